"""The published tables of linear models: data, methods in four modes, their rows from ``printed.toml``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from sordino.datasets import load, log1p_unit, make_sparse_linear_model, unit_rows
from sordino.errors import NotPrivateWarning
from sordino.estimators.linear import LogisticRegression, SparseLinearRegression, SparseLogisticRegression
from sordino.kernel import public_generator
from sordino.literature.reproduce import tables
from sordino.problems.losses import LOSSES, Nonconvex

RELATIONS = ("add-remove", "replace-one")
HARDLY_ANY = 100.0  # an epsilon whose noise is of no account
Score = Callable[[Any, "Task"], float]

# --------------------------- How a cell is measured: by fits in four modes, as a reader would call them


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
    solver, by default none at all: what somebody gets who only names it; where the method has steps they are
    a row of ours, "nothing set". ``tries`` are options to try beside the printed ones, in paper mode too. The
    best is taken *with hindsight*. ``paper`` holds what the printed noise needs besides, or the reason why
    none is printed. ``public_rows``: the solver is given the public rows of the task. ``share``: a batch is
    one of so many parts of the records, or each kind of batch is.
    """

    name: str
    solver: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[float, ...] = ()
    paper: Mapping[str, Any] | str = field(default_factory=dict)
    public_rows: bool = False
    share: int | Mapping[str, int] = 0
    tries: tuple[Mapping[str, Any], ...] = ({},)
    variants: tuple[Mapping[str, Any], ...] = ({},)

    def options(self, task: Task, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        rows = {"solver_options": {"public_features": task.public}} if self.public_rows else {}
        parts = self.share if isinstance(self.share, Mapping) else {"batch_size": self.share}
        sizes = {kind: task.x.shape[0] // part for kind, part in parts.items() if part and settings is None}
        known = self.settings if settings is None else settings
        return join_settings(join_settings(known, {"solver_options": sizes}), rows)


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


def gradient_norm(model: Any, task: Task) -> float:
    """Return the norm of the gradient of the objective on the rows that were learned from, not clipped."""
    signs = np.where(np.asarray(task.y) == model.classes_[1], 1.0, -1.0)
    w, b = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
    slopes = LOSSES["logistic"].residual(task.x @ w + b, signs) / len(signs)
    penalty = Nonconvex(float(task.facts["alpha"])).gradient(np.append(w, b))
    return float(np.linalg.norm(np.append(task.x.T @ slopes, slopes.sum()) + penalty))


_SCORES: dict[str, Score] = {
    "loss": mean_log_loss, "error": error_rate, "objective": objective, "gradient": gradient_norm,
}  # fmt: skip


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
) -> list[tables.Row]:
    """Return the rows of one data set, a method and an epsilon each, for replace-one as in the papers."""
    known = (delta, data, quick)
    return [
        tables.Row(group, one.name, epsilon, delta, number, _cells(group, task, one, epsilon, *known), plain)
        for one in methods
        for epsilon, number in published[one.name].items()
    ]


def _cells(
    group: str, task: Callable[[], Task], method: Method, epsilon: float, delta: float, data: str, quick: bool
) -> tables.RowCells:
    steps = method.steps[-2:][:1] if quick else method.steps
    variants = method.variants[:1] if quick else method.variants
    at, known = f"{group}/{method.name}/{epsilon:g}", {"data": data, "delta": delta}
    told = {**known, "solver": method.solver, "options": dict(method.settings), "steps": list(steps)}
    told |= {"share": method.share} if method.share else {}
    tries = method.tries[:1] if quick else method.tries
    told |= {"tries": [dict(one) for one in tries]} if tries != ({},) else {}

    def printed(seed: int) -> tables.Outcome:
        """Fit with the printed noise, which is the same for both relations, and certify it for each."""
        here = task()
        extra = {"noise": "paper", **join_settings(method.options(here), method.paper)}  # type: ignore[arg-type]
        tried = _steps_of(here, extra, extra.pop("steps", steps), extra.pop("tries", tries))
        value, model = _tune(here, method.solver, tried, epsilon, delta, seed)
        settings = {**here.facts, "solver": method.solver, **extra, "relation": "add-remove"}
        other = here.estimator(epsilon, delta, random_state=seed, **settings)
        found = {
            "replace-one": model.privacy_.epsilon,
            "add-remove": certified_epsilon(other, here.x, here.y),
        }
        return {"value": value, **found}

    def sound(seed: int) -> tables.Outcome:
        here = task()
        tried = _steps_of(here, method.options(here), steps, tries)
        tried += [method.options(here, variant) for variant in variants]
        return {"value": _tune(here, method.solver, tried, epsilon, delta, seed)[0]}

    def default(seed: int) -> tables.Outcome:
        return {"value": _fit_one(task(), epsilon, delta, seed, relation="replace-one")[0]}

    return tables.by_mode(
        method.paper
        if isinstance(method.paper, str)
        else tables.Runs(f"{at}/paper", printed, {**told, "paper": dict(method.paper)}),
        tables.Runs(f"{at}/sound", sound, {**told, "variants": [dict(v) for v in variants]}),
        tables.Runs(f"{group}/default/{epsilon:g}", default, known),
        tables.Runs(f"{group}/plain", lambda seed: _plain(task(), delta, seed, 50 if quick else 300), known),
    )


def certified_epsilon(model: Any, *rows: Any) -> float:
    """Return the epsilon that an estimator's printed noise certifies; the fit ends there, nothing is run."""
    with warnings.catch_warnings(action="ignore"):
        warnings.simplefilter("error", NotPrivateWarning)
        try:
            model.fit(*rows)
        except NotPrivateWarning as stopped:
            return stopped.certified
    raise AssertionError(f"{model!r} has no printed noise.")


def _plain(task: Task, delta: float, seed: int, most: int) -> tables.Outcome:
    """Return the best of the default and of so many steps without noise, and of hardly any noise.

    Noise keeps a model from fitting the rows too closely, so that none at all is not always best.
    """
    solver, step = "gd" if task.estimator is LogisticRegression else "ight", 4.0 / _curvature(task)
    without = _fit_one(task, math.inf, delta, seed)[0]
    hardly = _fit_one(task, HARDLY_ANY, delta, seed, relation="replace-one")[0]
    steps = {"max_iter": most, "solver_options": {"step_size": step}}
    descent = _fit_one(task, math.inf, delta, seed, solver=solver, **steps)[0]
    return {"value": min(without, hardly, descent)}


def _steps_of(
    task: Task, options: Mapping[str, Any], steps: Sequence[float], tries: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the settings with each step size and each further option; without step sizes, the settings."""
    sizes: list[dict[str, Any]] = [
        {"solver_options": {"step_size": s / _curvature(task)}} for s in steps
    ] or [{}]
    return [join_settings(join_settings(options, size), more) for size in sizes for more in tries]


def _tune(
    task: Task, solver: str, tried: Sequence[Mapping[str, Any]], epsilon: float, delta: float, seed: int
) -> tuple[float, Any]:
    """Return the best value over some settings under replace-one, with the model that reached it."""
    asked = {"solver": solver, "relation": "replace-one"}
    found = [_fit_one(task, epsilon, delta, seed, **asked, **options) for options in tried]
    return min(found, key=lambda pair: pair[0])


def _fit_one(task: Task, epsilon: float, delta: float, seed: int, **options: Any) -> tuple[float, Any]:
    with warnings.catch_warnings(action="ignore"):
        settings = {**task.facts, **options, "random_state": seed}
        model = task.estimator(epsilon, delta, **settings).fit(task.x, task.y)
    value = task.score(model, task)
    return (value if math.isfinite(value) else math.inf), model


def join_settings(settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Join two settings; their solver_options are joined too."""
    options = {**settings.get("solver_options", {}), **more.get("solver_options", {})}
    return {**settings, **more, **({"solver_options": options} if options else {})}


def _curvature(task: Task) -> float:
    bound = float(task.facts.get("data_norm", 1.0)) ** 2 + float(task.facts.get("fit_intercept", True))
    return bound * (1.0 if task.estimator is SparseLinearRegression else 0.25)


# -------------------------------------------- The data sets behind the tables, each read once per process

# Rows of a9a hold at most 14 ones; features of ijcnn1 are scaled to [-1, 1], 2 is a guess that holds.
NORMS = {"a9a": math.sqrt(14.0), "ijcnn1": 2.0}


@cache
def rcv1(keep: int, ridge: float = 0.0, score: str = "loss", public: bool = False) -> Task:
    data: Any = load("rcv1_sample")
    sides = (data.data, data.target, data.test_data, data.test_target)
    facts = {"n_nonzero_coefs": keep, "data_norm": 1.0, "alpha": ridge}
    return _halve(Task("rcv1_sample", *sides, _SCORES[score], facts), public)


@cache
def reviews(keep: int, rows: int, half: bool = False, public: bool = False) -> Task:
    """Return the star ratings of so many reviews, evenly taken, and of 25,000 others to judge on."""
    data: Any = load("imdb", target="rating")
    facts = {"n_nonzero_coefs": keep, "data_norm": 1.0, "target_bound": 1.0}
    kept = np.linspace(0, len(data.target) - 1, rows).astype(int)
    y, test_y = ((np.asarray(t, dtype=float) - 5.5) / 4.5 for t in (data.target[kept], data.test_target))
    sides = (log1p_unit(data.data[kept]), y, log1p_unit(data.test_data), test_y)
    score: Score = (lambda model, task: 0.5 * mean_square(model, task)) if half else mean_square
    return _halve(Task("imdb ratings", *sides, score, facts, SparseLinearRegression), public)


def _halve(whole: Task, public: bool) -> Task:
    """Return a set, half of which may be public: its rows are used without their targets."""
    if not public:
        return whole
    x, other, y, _ = train_test_split(whole.x, whole.y, test_size=0.5, random_state=0)
    return replace(whole, x=x, y=y, public=other)


@cache
def xray(keep: int, score: str = "loss") -> Task:
    """Return the chest X-rays as unit rows of pixels."""
    data: Any = load("pneumoniamnist")
    rows = unit_rows(np.asarray(data.data, dtype=float).reshape(len(data.data), -1))
    x, test_x, y, test_y = train_test_split(rows, data.target, test_size=0.2, random_state=0)
    facts = {"n_nonzero_coefs": keep, "data_norm": 1.0}
    return Task("pneumoniamnist", x, y, test_x, test_y, _SCORES[score], facts)


@cache
def wang_gu_design(kind: str, d: int, keep: int) -> Task:
    """Return the design of Wang and Gu, whose coefficients are known, with as many rows as columns."""
    made = make_sparse_linear_model(
        d, d, keep, task="regression" if kind == "linear" else "classification", random_state=0
    )
    # |x . theta| is at most 2 s in the design; the targets of nearly all rows are within twice its root.
    return _design_task(kind, made.data, made.target, made.coef, made.data_norm, 2.0 * keep**0.5, None)


@cache
def uniform(kind: str, n: int, d: int, keep: int) -> Task:
    """Return the design of the dissertation's chapter 3, entries U(-1, 1), with n public rows besides."""
    public = public_generator(0)
    x, other = (public.uniform(-1.0, 1.0, (n, d)) for _ in range(2))
    truth = np.zeros(d)
    truth[public.permutation(d)[:keep]] = public.uniform(-1.0, 1.0, keep)
    if kind == "linear":
        y: Any = x @ truth + math.sqrt(0.1) * public.normal(size=n)
    else:
        y = (public.random(n) < 1.0 / (1.0 + np.exp(-(x @ truth)))).astype(int)
    return _design_task(kind, x, y, truth, 1.1 * math.sqrt(d / 3), 2.0 * math.sqrt(keep) / 3 + 1.0, other)


def _design_task(kind: str, x: Any, y: Any, truth: Any, norm: float, target: float, public: Any) -> Task:
    facts = {"n_nonzero_coefs": int(np.count_nonzero(truth)), "data_norm": norm, "fit_intercept": False}
    if kind == "linear":
        facts["target_bound"] = target
    estimator = SparseLinearRegression if kind == "linear" else SparseLogisticRegression

    def score(model: Any, task: Task) -> float:
        return float(np.linalg.norm(np.ravel(model.coef_) - truth) / np.linalg.norm(truth))

    return Task(f"design, {kind}", x, y, None, None, score, facts, estimator, public)


@cache
def nonconvex(name: str, score: str) -> Task:
    data: Any = load(name)
    facts = {"data_norm": NORMS[name], "penalty": "nonconvex", "alpha": 1e-3}
    sides = (data.data, data.target, data.test_data, data.test_target)
    return Task(name, *sides, _SCORES[score], facts, LogisticRegression)


@cache
def digits() -> Task:
    data: Any = load("mnist")
    x, test_x = (np.asarray(a).reshape(len(a), -1).astype(np.float32) for a in (data.data, data.test_data))
    # 784 pixels in [0, 1]; the mean norm is about 9.2, rows are clipped to 10, a round number.
    facts = {"data_norm": 10.0, "alpha": 1e-4}
    return Task("mnist", x, data.target, test_x, data.test_target, error_rate, facts, LogisticRegression)


READERS: dict[str, Callable[..., Task]] = {
    "rcv1": rcv1, "reviews": reviews, "xray": xray, "design": wang_gu_design,
    "uniform": uniform, "nonconvex": nonconvex, "digits": digits,
}  # fmt: skip


# --------------------------------------------------------- Tables from their rows in ``printed.toml``


def linear_table(name: str, quick: bool) -> tables.Table:
    """Return a table of linear models, group by group."""
    rows: list[tables.Row] = []
    groups = [one | one.get("quick", {}) if quick else one for one in tables.page_of(name)["groups"]]
    sources = [tables.PRINTED["sources"][one["on"]] for one in groups]
    said = [f"{s['words']} {s.get('quick', '')}".strip() if quick else s["words"] for s in sources]
    told = [source.get("told", words) for source, words in zip(sources, said)]
    for one, words in zip(groups, told):
        methods, asked = _methods(one), one.get("asked", one["epsilons"])
        curves, given = [None] * len(one["epsilons"]), one.get("numbers", {})
        printed = {m.name: dict(zip(one["epsilons"], given.get(m.name, curves))) for m in methods}
        numbers = {method: {e: found[e] for e in asked} for method, found in printed.items()}
        task = partial(READERS[one["on"]], **one["task"])
        known = {"data": one.get("told", words), "plain": one.get("plain"), "quick": quick}
        rows += rows_of(one["name"], task, methods, numbers, one["delta"], **known)
    return tables.printed_table(
        name,
        rows,
        quick,
        {"hardly_any": f"{HARDLY_ANY:g}"},
        data=" ".join(dict.fromkeys(said)),
        likeness=sources[0]["likeness"],
        needs=tuple(dict.fromkeys(need for source in sources for need in source["needs"])),
        trivial={one["name"]: one["trivial"] for one in groups if "trivial" in one},
    )


def _methods(group: Mapping[str, Any]) -> tuple[Method, ...]:
    """Return the methods of a group: on a stand-in, which is judged by ratios, with fewer settings."""
    sets = [_filled(tables.PRINTED["methods"][many], group.get("passes")) for many in group["methods"]]
    made: Sequence[Method] = [Method(name, **settings) for one in sets for name, settings in one.items()]
    if "few" in group:  # the printed noise bears no long steps there
        made = [
            replace(m, tries=m.tries[:3], variants=m.variants[:1], steps=m.steps and (1.0, 4.0, 16.0))
            for m in made
        ]
    elif group["on"] in ("design", "uniform"):
        made = _on_design(made, **group["task"])
    return tuple(one for method in made for one in _apart(method))


def _filled(value: Any, passes: int | None) -> Any:
    """Return settings with the number of passes of a group where they have the word."""
    if isinstance(value, Mapping):
        return {name: _filled(one, passes) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_filled(one, passes) for one in value)
    return passes if value == "passes" else value


def _apart(method: Method) -> Sequence[Method]:
    """Return a method as the text has it, and a row of ours for its solver with nothing set."""
    if not (method.steps and method.variants):
        return (method,)
    ours = Method(f"{method.name}, nothing set", method.solver, paper="as above", tries=method.variants)
    return replace(method, variants=()), replace(ours, variants=())


def _on_design(methods: Sequence[Method], kind: str, d: int, keep: int, n: int = 0) -> tuple[Method, ...]:
    """Return the methods on a design: rows have d equal parts, so clips are far below a bound, and steps d
    times longer than the bound on the curvature allows.
    """
    wolfe, two_stage, ight, *others = methods
    clip = {"clip_norm": (math.sqrt(d / 3) if n else 2.0 * keep) / 4}
    ball = join_settings(wolfe.settings, {"solver_options": {**clip, "radius": keep / 2}})
    descent = {"max_iter": 15, "solver_options": clip}
    variants: Any = ({}, {"solver_options": clip})
    return (
        replace(wolfe, settings=ball, variants=()),
        two_stage,
        replace(ight, settings=descent, steps=(d / 20, d / 4, float(d)), variants=variants),
        *others,
    )


LINEAR_TABLES: dict[str, Callable[[bool], tables.Table]] = {
    name: partial(linear_table, name)
    for name, page in tables.PRINTED.items()
    if isinstance(page.get("groups"), tuple)
}
