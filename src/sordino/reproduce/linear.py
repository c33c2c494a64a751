"""How a cell of a table of linear models is measured: by fits in four modes, as a reader would call them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

from sordino.errors import DivergenceWarning, NotPrivateWarning, PrivacyWarning, UndeclaredBoundWarning
from sordino.estimators.linear import LogisticRegression
from sordino.estimators.sparse import SparseLinearRegression, SparseLogisticRegression
from sordino.reproduce.tables import Outcome, Row, Runs

RELATIONS = ("add-remove", "replace-one")
HARDLY_ANY = 100.0  # an epsilon whose noise is of no account
KNOWN = (DivergenceWarning, NotPrivateWarning, PrivacyWarning, UndeclaredBoundWarning)
Score = Callable[[Any, "Task"], float]


@dataclass(frozen=True, eq=False)
class Task:
    """A data set, cut into the rows to learn from and those to judge on, with its public facts."""

    name: str
    x: Any
    y: Any
    test_x: Any
    test_y: Any
    score: Score
    facts: Mapping[str, Any] = field(default_factory=dict)
    estimator: Any = SparseLogisticRegression
    public: Any = None  # rows of no person, for knowledge transfer


@dataclass(frozen=True)
class Method:
    """A method of a paper: its solver here, and the settings that the paper prints.

    ``steps`` are step sizes in units of one over the curvature; the best of them is taken *with hindsight*,
    as the papers do. ``paper`` holds what the printed noise needs besides, or the reason why none is printed.
    ``public_rows``: the solver is given the public rows of the task.
    """

    name: str
    solver: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[float, ...] = ()
    paper: Mapping[str, Any] | str = field(default_factory=dict)
    public_rows: bool = False

    def options(self, task: Task) -> dict[str, Any]:
        """Return the settings on a task."""
        rows = {"solver_options": {"public_features": task.public}} if self.public_rows else {}
        return joined(self.settings, rows)


def mean_log_loss(model: Any, task: Task) -> float:
    """Return the mean logistic loss on test rows."""
    return float(log_loss(task.test_y, model.predict_proba(task.test_x), labels=model.classes_))


def error_rate(model: Any, task: Task) -> float:
    """Return the share of wrong predictions on test rows."""
    return 1.0 - float(np.mean(model.predict(task.test_x) == task.test_y))


def mean_square(model: Any, task: Task) -> float:
    """Return the mean squared error on test rows."""
    return float(np.mean((model.predict(task.test_x) - task.test_y) ** 2))


def objective(model: Any, task: Task) -> float:
    """Return the logistic objective on the rows that were learned from, ridge included."""
    fitted = log_loss(task.y, model.predict_proba(task.x), labels=model.classes_)
    ridge = float(task.facts.get("alpha", 0.0)) / 2 * float(np.sum(np.square(model.coef_)))
    return float(fitted) + ridge


def half_mean_square(model: Any, task: Task) -> float:
    """Return half of the mean squared error on test rows."""
    return 0.5 * mean_square(model, task)


def rows_of(
    group: str,
    task: Callable[[], Task],
    methods: Sequence[Method],
    published: Mapping[str, Mapping[float, float | None]],
    delta: float,
    *,
    plain: float | None = None,
    quick: bool = False,
) -> list[Row]:
    """Return the rows of one data set: a method and an epsilon each.

    Everything is stated for replace-one, the relation of the papers; the printed noise is certified for both.
    """
    return [
        Row(group, method.name, eps, delta, number, _cells(group, task, method, eps, delta, quick), plain)
        for method in methods
        for eps, number in published[method.name].items()
    ]


def _cells(
    group: str, task: Callable[[], Task], method: Method, epsilon: float, delta: float, quick: bool
) -> dict[str, Runs | str]:
    steps = method.steps[len(method.steps) // 2 :][:1] if quick else method.steps
    at = f"{group}/{method.name}/{epsilon:g}"
    paper: Runs | str
    if isinstance(method.paper, str):
        paper = method.paper
    else:
        paper = Runs(f"{at}/paper", lambda seed: _printed(task(), method, epsilon, delta, seed, steps))
    return {
        "paper": paper,
        "sound": Runs(f"{at}/sound", lambda seed: _sound(task(), method, epsilon, delta, seed, steps)),
        "default": Runs(f"{group}/default/{epsilon:g}", lambda seed: _default(task(), epsilon, delta, seed)),
        "plain": Runs(f"{group}/plain", lambda seed: _plain(task(), delta, seed)),
    }


def _printed(
    task: Task, method: Method, epsilon: float, delta: float, seed: int, steps: Sequence[float]
) -> Outcome:
    """Fit with the printed noise, which is the same for both relations, and certify it for each."""
    assert not isinstance(method.paper, str)
    extra = {"noise": "paper", **joined(method.options(task), method.paper)}
    options = {**extra, "relation": "replace-one"}
    value, model = _tuned(task, method.solver, options, epsilon, delta, seed, steps)
    settings = {**task.facts, "solver": method.solver, **extra, "relation": "add-remove"}
    other = task.estimator(epsilon, delta, random_state=seed, **settings)
    found = {"replace-one": model.privacy_.epsilon, "add-remove": certified(other, task.x, task.y)}
    return {"value": value, **found}


def certified(model: Any, *rows: Any) -> float:
    """Return the epsilon that an estimator's printed noise certifies; the fit ends there, nothing is run."""
    with warnings.catch_warnings():
        for said in KNOWN:
            warnings.simplefilter("ignore", said)
        warnings.simplefilter("error", NotPrivateWarning)
        try:
            model.fit(*rows)
        except NotPrivateWarning as stopped:
            return stopped.certified
    raise AssertionError(f"{model!r} has no printed noise.")


def _sound(
    task: Task, method: Method, epsilon: float, delta: float, seed: int, steps: Sequence[float]
) -> Outcome:
    extra = {**method.options(task), "relation": "replace-one"}
    return {"value": _tuned(task, method.solver, extra, epsilon, delta, seed, steps)[0]}


def _default(task: Task, epsilon: float, delta: float, seed: int) -> Outcome:
    return {"value": _fitted(task, epsilon, delta, seed, relation="replace-one")[0]}


def _plain(task: Task, delta: float, seed: int) -> Outcome:
    """Return the best of the default and of plain hard thresholding without noise, and of hardly any noise.

    Noise keeps a model from fitting the rows too closely, so that none at all is not always best.
    """
    solver, step = "ight" if _is_sparse(task) else "gd", 4.0 / _curvature(task)
    without = _fitted(task, math.inf, delta, seed)[0]
    hardly = _fitted(task, HARDLY_ANY, delta, seed, relation="replace-one")[0]
    descent = _fitted(task, math.inf, delta, seed, solver=solver, max_iter=300, step_size=step)[0]
    return {"value": min(without, hardly, descent)}


def _tuned(
    task: Task,
    solver: str,
    options: Mapping[str, Any],
    epsilon: float,
    delta: float,
    seed: int,
    steps: Sequence[float],
) -> tuple[float, Any]:
    """Return the best value over the step sizes, with the model that reached it."""
    sizes: list[dict[str, Any]] = [{"step_size": s / _curvature(task)} for s in steps] or [{}]
    tried = [_fitted(task, epsilon, delta, seed, solver=solver, **options, **size) for size in sizes]
    return min(tried, key=lambda pair: pair[0])


def _fitted(task: Task, epsilon: float, delta: float, seed: int, **options: Any) -> tuple[float, Any]:
    """Fit one model; what a private library has to say about such a use is known here, and not repeated."""
    with warnings.catch_warnings():
        for said in KNOWN:
            warnings.simplefilter("ignore", said)
        settings = {**task.facts, **options, "random_state": seed}
        model = task.estimator(epsilon, delta, **settings).fit(task.x, task.y)
    value = task.score(model, task)
    return (value if math.isfinite(value) else math.inf), model


def joined(settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Join two settings; their solver_options are joined too."""
    options = {**settings.get("solver_options", {}), **more.get("solver_options", {})}
    return {**settings, **more, **({"solver_options": options} if options else {})}


def _curvature(task: Task) -> float:
    bound = float(task.facts.get("data_norm", 1.0)) ** 2 + float(task.facts.get("fit_intercept", True))
    return bound * (1.0 if task.estimator is SparseLinearRegression else 0.25)


def _is_sparse(task: Task) -> bool:
    return task.estimator is not LogisticRegression
