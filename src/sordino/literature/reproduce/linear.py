"""Wang's dissertation, chapters 4 (DP-SRM, nonconvex logistic regression) and 5 (DP-LSSGD, table 5.2)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

from sordino.datasets import load
from sordino.errors import DivergenceWarning, NotPrivateWarning, PrivacyWarning, UndeclaredBoundWarning
from sordino.estimators.linear import LogisticRegression, SparseLinearRegression, SparseLogisticRegression
from sordino.literature.reproduce.tables import Outcome, Row, RowCells, Runs, Table, by_mode
from sordino.problems.losses import LOSSES, Nonconvex

# ----------------------------------------------------------------------------------------------------------
# How a cell of a table of linear models is measured: by fits in four modes, as a reader would call them.

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

    ``steps`` are step sizes in units of one over the curvature. ``variants`` are other settings of the same
    solver, by default none at all: what somebody gets who only names it. The best of all is taken *with
    hindsight*, as the papers do. ``tries`` are options to try beside the printed ones, in paper mode too.
    ``paper`` holds what the printed noise needs besides, or the reason why none
    is printed. ``public_rows``: the solver is given the public rows of the task. ``share``: a batch is one of
    so many parts of the records.
    """

    name: str
    solver: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[float, ...] = ()
    paper: Mapping[str, Any] | str = field(default_factory=dict)
    public_rows: bool = False
    share: int = 0
    tries: tuple[Mapping[str, Any], ...] = ({},)
    variants: tuple[Mapping[str, Any], ...] = ({},)

    def options(self, task: Task, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        rows = {"solver_options": {"public_features": task.public}} if self.public_rows else {}
        size = {"batch_size": task.x.shape[0] // self.share} if self.share and settings is None else {}
        known = self.settings if settings is None else settings
        return joined(joined(known, {"solver_options": size}), rows)


def mean_log_loss(model: Any, task: Task) -> float:
    return float(log_loss(task.test_y, model.predict_proba(task.test_x), labels=model.classes_))


def error_rate(model: Any, task: Task) -> float:
    return 1.0 - float(np.mean(model.predict(task.test_x) == task.test_y))


def mean_square(model: Any, task: Task) -> float:
    return float(np.mean((model.predict(task.test_x) - task.test_y) ** 2))


def objective(model: Any, task: Task) -> float:
    """Return the logistic objective on the rows that were learned from, ridge included."""
    fitted = log_loss(task.y, model.predict_proba(task.x), labels=model.classes_)
    ridge = float(task.facts.get("alpha", 0.0)) / 2 * float(np.sum(np.square(model.coef_)))
    return float(fitted) + ridge


def half_mean_square(model: Any, task: Task) -> float:
    return 0.5 * mean_square(model, task)


def rows_of(
    group: str,
    task: Callable[[], Task],
    methods: Sequence[Method],
    published: Mapping[str, Mapping[float, float | None]],
    delta: float,
    *,
    data: str,
    plain: float | None = None,
    quick: bool = False,
) -> list[Row]:
    """Return the rows of one data set: a method and an epsilon each.

    Everything is stated for replace-one, the relation of the papers; the printed noise is certified for both.
    """
    return [
        Row(
            group,
            method.name,
            eps,
            delta,
            number,
            _cells(group, task, method, eps, delta, data, quick),
            plain,
        )
        for method in methods
        for eps, number in published[method.name].items()
    ]


def _cells(
    group: str, task: Callable[[], Task], method: Method, epsilon: float, delta: float, data: str, quick: bool
) -> RowCells:
    steps = method.steps[-2:][:1] if quick else method.steps
    variants = method.variants[:1] if quick else method.variants
    at, known = f"{group}/{method.name}/{epsilon:g}", {"data": data, "delta": delta}
    told = {**known, "solver": method.solver, "options": dict(method.settings), "steps": list(steps)}
    told |= {"share": method.share} if method.share else {}
    tries = method.tries[:1] if quick else method.tries
    told |= {"tries": [dict(one) for one in tries]} if tries != ({},) else {}

    def printed(seed: int) -> Outcome:
        """Fit with the printed noise, which is the same for both relations, and certify it for each."""
        here = task()
        extra = {"noise": "paper", **joined(method.options(here), method.paper)}  # type: ignore[arg-type]
        value, model = _tune(here, method.solver, _steps_of(here, extra, steps, tries), epsilon, delta, seed)
        settings = {**here.facts, "solver": method.solver, **extra, "relation": "add-remove"}
        other = here.estimator(epsilon, delta, random_state=seed, **settings)
        found = {"replace-one": model.privacy_.epsilon, "add-remove": certified(other, here.x, here.y)}
        return {"value": value, **found}

    def sound(seed: int) -> Outcome:
        here = task()
        tried = _steps_of(here, method.options(here), steps, tries)
        tried += [method.options(here, variant) for variant in variants]
        return {"value": _tune(here, method.solver, tried, epsilon, delta, seed)[0]}

    def default(seed: int) -> Outcome:
        return {"value": _fit_one(task(), epsilon, delta, seed, relation="replace-one")[0]}

    return by_mode(
        method.paper
        if isinstance(method.paper, str)
        else Runs(f"{at}/paper", printed, {**told, "paper": dict(method.paper)}),
        Runs(f"{at}/sound", sound, {**told, "variants": [dict(v) for v in variants]}),
        Runs(f"{group}/default/{epsilon:g}", default, known),
        Runs(f"{group}/plain", lambda seed: _plain(task(), delta, seed), known),
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out what a private library has to say about such a use: it is known here."""
    with warnings.catch_warnings():
        for said in KNOWN:
            warnings.simplefilter("ignore", said)
        yield


def certified(model: Any, *rows: Any) -> float:
    """Return the epsilon that an estimator's printed noise certifies; the fit ends there, nothing is run."""
    with quiet():
        warnings.simplefilter("error", NotPrivateWarning)
        try:
            model.fit(*rows)
        except NotPrivateWarning as stopped:
            return stopped.certified
    raise AssertionError(f"{model!r} has no printed noise.")


def _plain(task: Task, delta: float, seed: int) -> Outcome:
    """Return the best of the default and of plain hard thresholding without noise, and of hardly any noise.

    Noise keeps a model from fitting the rows too closely, so that none at all is not always best.
    """
    solver, step = "gd" if task.estimator is LogisticRegression else "ight", 4.0 / _curvature(task)
    without = _fit_one(task, math.inf, delta, seed)[0]
    hardly = _fit_one(task, HARDLY_ANY, delta, seed, relation="replace-one")[0]
    steps = {"max_iter": 300, "solver_options": {"step_size": step}}
    descent = _fit_one(task, math.inf, delta, seed, solver=solver, **steps)[0]
    return {"value": min(without, hardly, descent)}


def _steps_of(
    task: Task, options: Mapping[str, Any], steps: Sequence[float], tries: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the settings with each step size and each further option; without step sizes, the settings."""
    sizes: list[dict[str, Any]] = [
        {"solver_options": {"step_size": s / _curvature(task)}} for s in steps
    ] or [{}]
    return [joined(joined(options, size), more) for size in sizes for more in tries]


def _tune(
    task: Task, solver: str, tried: Sequence[Mapping[str, Any]], epsilon: float, delta: float, seed: int
) -> tuple[float, Any]:
    """Return the best value over some settings under replace-one, with the model that reached it."""
    asked = {"solver": solver, "relation": "replace-one"}
    found = [_fit_one(task, epsilon, delta, seed, **asked, **options) for options in tried]
    return min(found, key=lambda pair: pair[0])


def _fit_one(task: Task, epsilon: float, delta: float, seed: int, **options: Any) -> tuple[float, Any]:
    with quiet():
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


DELTA = 1e-5
# Rows of a9a hold at most 14 ones; features of ijcnn1 are scaled to [-1, 1], 2 is a guess that holds.
NORMS = {"a9a": math.sqrt(14.0), "ijcnn1": 2.0}
EPSILONS = (0.2, 0.5)
# By set and method, at each epsilon: test loss, data passes, gradient norm.
PUBLISHED: dict[str, dict[str, tuple[tuple[float, float, float], ...]]] = {
    "a9a": {
        "DP-GD": ((0.4155, 20, 0.0953), (0.3859, 20, 0.0866)),
        "DP-AGD": ((0.3713, 360, 0.0437), (0.3627, 365, 0.0402)),
        "RRPSGD": ((0.4019, 8, 0.2175), (0.3861, 10, 0.1454)),
        "DP-SRM": ((0.3579, 4, 0.0528), (0.3506, 5, 0.0502)),
    },
    "ijcnn1": {
        "DP-GD": ((0.3160, 20, 0.0184), (0.2717, 20, 0.0171)),
        "DP-AGD": ((0.2645, 346, 0.0133), (0.2416, 365, 0.0397)),
        "RRPSGD": ((0.3110, 8, 0.0175), (0.3033, 10, 0.0160)),
        "DP-SRM": ((0.2503, 4, 0.0117), (0.2341, 5, 0.0082)),
    },
}
_PLAIN = {"a9a": 0.3346, "ijcnn1": 0.2096}
_GRID = (1.0, 4.0, 12.0)
SRM_METHODS = (
    Method("DP-GD", "gd", {"max_iter": 20}, _GRID, "the cited formula's constant is not printed"),
    Method("DP-AGD", "agd", {"max_iter": 180}, (), "no formula printed"),
    Method("RRPSGD", "rrp-sgd", {"solver_options": {"epochs": 10}}, _GRID, "no formula printed"),
    Method("DP-SRM", "srm", {"solver_options": {"epochs": 5}}, (), {}),
)


def srm(quick: bool) -> Table:
    """Nonconvex logistic regression: test losses."""
    return _chapter_4("srm", "test loss (printed as test error)", 0, mean_log_loss, _PLAIN, quick)


def srm_gradients(quick: bool) -> Table:
    """Nonconvex logistic regression: norms of the gradient."""
    metric = "norm of the gradient of the training objective"
    return _chapter_4("srm-gradients", metric, 2, gradient_norm, {}, quick)


def _chapter_4(
    name: str, metric: str, which: int, score: Score, plain: Mapping[str, float], quick: bool
) -> Table:
    rows = []
    for data, published in PUBLISHED.items():
        numbers = {
            method: {epsilon: triple[which] for epsilon, triple in zip(EPSILONS, pair)}
            for method, pair in published.items()
        }
        task = partial(_nonconvex, data, score)
        rows += rows_of(
            data, task, SRM_METHODS, numbers, DELTA, data=metric, plain=plain.get(data), quick=quick
        )
    return Table(
        name,
        f"Wang, dissertation, chapter 4: nonconvex logistic regression, {metric.split(' (')[0]}",
        metric,
        "lower",
        "Ours: a9a and ijcnn1 themselves.",
        "same",
        rows,
        "Data passes: 20 of DP-GD (20 printed), 180 shares of the budget of DP-AGD (346 to 365 "
        "printed), 10 of RRPSGD (8 at epsilon .2, 10 at .5), 5 of DP-SRM (4 and 5). Step sizes of "
        "DP-GD and RRPSGD: the best of three in hindsight; the others choose theirs.",
        needs=("a9a", "ijcnn1"),
    )


def gradient_norm(model: Any, task: Task) -> float:
    """Return the norm of the gradient of the objective on the rows that were learned from, not clipped."""
    signs = np.where(np.asarray(task.y) == model.classes_[1], 1.0, -1.0)
    w, b = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
    slopes = LOSSES["logistic"].residual(task.x @ w + b, signs) / len(signs)
    penalty = Nonconvex(float(task.facts["alpha"])).gradient(np.append(w, b))
    return float(np.linalg.norm(np.append(task.x.T @ slopes, slopes.sum()) + penalty))


@cache
def _nonconvex(name: str, score: Score) -> Task:
    data: Any = load(name)
    facts = {"data_norm": NORMS[name], "penalty": "nonconvex", "alpha": 1e-3}
    sides = (data.data, data.target, data.test_data, data.test_target)
    return Task(name, *sides, score, facts, LogisticRegression)


_EPSILONS = (0.30, 0.25, 0.20, 0.15, 0.10)
QUICK_EPSILONS = (0.30, 0.10)
_LSSGD = {
    0.0: (81.74, 81.45, 78.92, 77.03, 73.49),
    1.0: (84.21, 83.27, 81.56, 79.46, 76.29),
    2.0: (84.23, 83.65, 82.15, 80.77, 76.31),
    3.0: (85.11, 82.97, 82.22, 80.81, 77.13),
}


def lssgd(quick: bool) -> Table:
    """MNIST, multi-class logistic regression with smoothed gradients."""
    methods = tuple(_smoothing(strength, quick) for strength in _LSSGD)
    asked = QUICK_EPSILONS if quick else _EPSILONS
    numbers = {
        method.name: {e: round(1 - n / 100, 4) for e, n in zip(_EPSILONS, row) if e in asked}
        for method, row in zip(methods, _LSSGD.values())
    }
    rows = rows_of("MNIST", _digits, methods, numbers, DELTA, data="MNIST, rows of norm 10", quick=quick)
    return Table(
        "lssgd",
        "Wang, dissertation, table 5.2: MNIST, multi-class logistic regression",
        "test error",
        "lower",
        "Ours: MNIST itself.",
        "same",
        rows,
        "Batch 128, ridge 1e-4, 50 epochs. Step sizes: constant, not 1/t as printed, for all methods the "
        "better of two at epsilon .4, which is not in the table."
        + (" Quick: 2 epochs, the largest and the smallest epsilon." if quick else ""),
        needs=("mnist",),
        repeats=1,
    )


def _smoothing(strength: float, quick: bool) -> Method:
    options = {"epochs": 2 if quick else 50, "batch_size": 128}
    steps = (0.25,) if quick else (0.05,)  # for 2 epochs, for 50 (.0125 is worse)
    if not strength:
        return Method("DP-SGD", "sgd", {"solver_options": options}, steps, variants=())
    smooth = {"solver_options": {**options, "smoothing": strength}}
    return Method(f"DP-LSSGD, {strength:g}", "ls-sgd", smooth, steps, variants=())


@cache
def _digits() -> Task:
    data: Any = load("mnist")
    x, test_x = (np.asarray(a).reshape(len(a), -1).astype(np.float32) for a in (data.data, data.test_data))
    # 784 pixels in [0, 1]; the mean norm is about 9.2, rows are clipped to 10, a round number.
    facts = {"data_norm": 10.0, "alpha": 1e-4}
    score: Score = error_rate
    return Task("mnist", x, data.target, test_x, data.test_target, score, facts, LogisticRegression)
