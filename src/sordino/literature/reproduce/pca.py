"""Shang et al., DP-SPCA and DP-VRPCA: table 3 (a linear SVM in the private subspace) and figure 1."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
from sklearn.svm import LinearSVC

from sordino.datasets import load, log1p_unit, unit_rows
from sordino.errors import UnsupportedError
from sordino.estimators.pca import PCA
from sordino.kernel import public_generator
from sordino.literature.pca import TEXT_STEPS, text_axes
from sordino.literature.reproduce import tables
from sordino.literature.reproduce.linear import RELATIONS, certified_epsilon

DELTA = 1e-3
METHODS = {
    "PPI": "power", "MOD-SULQ": "mod-sulq", "Gaussian": "gauss", "DP-SPCA": "spca", "DP-VRPCA": "vrpca",
}  # fmt: skip
Score = Callable[..., tuple[float, Any]]


@dataclass(frozen=True, eq=False)
class Points:
    """Rows of norm at most one with their labels, and the number of components."""

    rows: Any
    labels: np.ndarray
    components: int
    norm: float = 1.0  # of the longest row, before it was scaled to one


@cache
def _points(
    name: str, most: int | None = None, as_printed: bool = False, components: int | None = None
) -> Points:
    """Return a set, or its first ``most`` rows, of unit norm, and its usual number of components or another.

    ``as_printed``: each row has a largest entry of 1, as in the paper, whose noise is for rows of norm 1.
    The longest is scaled to norm 1 with all others; ``norm`` says by how much the noise is too small.
    """
    rows, labels, usual = _READ[name]()
    rows, labels, components = rows[:most], np.asarray(labels)[:most], components or usual
    if not as_printed:
        return Points(unit_rows(rows), labels, components)
    rows = rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-12)
    longest = float(np.sqrt(np.einsum("ij,ij->i", rows, rows)).max())
    return Points(rows / longest, labels, components, longest)


def _a9a() -> tuple[Any, Any, int]:
    data: Any = load("a9a")
    return data.data.toarray().astype(float), data.target, 10


def _ones_and_sevens() -> tuple[Any, Any, int]:
    data: Any = load("mnist")
    kept = np.isin(data.target, (1, 7))
    return data.data[kept].reshape(int(kept.sum()), -1).astype(float), np.asarray(data.target)[kept], 10


def _images(name: str) -> tuple[Any, Any, int]:
    data: Any = load(name)
    return data.data.reshape(len(data.data), -1).astype(np.float32), data.target, 10


def _reviews() -> tuple[Any, Any, int]:
    # A d x d matrix of 74,849 words is not formed; in the order of the alphabet the first say little.
    data: Any = load("imdb")
    reviews_with = np.bincount(data.data.indices, minlength=data.data.shape[1])
    common = np.sort(np.argsort(-reviews_with, kind="stable")[:2000])
    public = public_generator(0)
    mixed = public.permutation(len(data.target))  # one class comes after the other
    return log1p_unit(data.data)[:, common].toarray()[mixed], np.asarray(data.target)[mixed], 50


_READ: dict[str, Callable[[], tuple[Any, Any, int]]] = {
    "a9a": _a9a,
    "MNIST 1/7": _ones_and_sevens,
    "MNIST": partial(_images, "mnist"),
    "CIFAR-10": partial(_images, "cifar10"),
    "real-sim": _reviews,
}


def svm_table(name: str, quick: bool) -> tables.Table:
    """Return the accuracies of a linear SVM in the private subspace."""
    page, rows = tables.page_of(name, quick), []
    for group, numbers in page["numbers"].items():
        points = partial(_points, group, *page.get("most", ()))
        likeness: Any = "like" if group == "MNIST 1/7" else None  # the task is ours
        for method, solver in METHODS.items():
            cells, ours = _cells(group, points, method, solver)
            facts = (0.1, DELTA, numbers[method], cells, numbers["plain"], likeness)
            rows += [tables.Row(group, method, *facts)]
            rows += [tables.Row(group, f"{method}, nothing set", 0.1, DELTA, None, ours)]
    return tables.printed_table(name, rows, quick)


def distance_table(name: str, quick: bool) -> tables.Table:
    """Return the distances of the private subspace from the true one."""
    page, rows, nothing = tables.page_of(name, quick), [], {}
    sets = page["rows"] if quick else {"a9a": None, "MNIST": None, **page["rows"]}
    for (one, most), k in product(sets.items(), page["components"]):
        group = one if k == 10 else f"{one}, k = {k}"
        points = partial(_points, one, most) if k == 10 else partial(_points, one, most, False, k)
        nothing[group] = 1 - k / {"a9a": 123, "MNIST": 784, "CIFAR-10": 3072}[one]
        for epsilon, (method, solver) in product(page["epsilons"], METHODS.items()):
            cells, ours = _cells(group, points, method, solver, epsilon, _distance)
            rows += [tables.Row(group, method, epsilon, DELTA, None, cells)]
            rows += [tables.Row(group, f"{method}, nothing set", epsilon, DELTA, None, ours)]
    return tables.printed_table(name, rows, quick, trivial=nothing)


def _cells(
    group: str,
    points: Callable[[], Points],
    method: str,
    solver: str,
    epsilon: float = 0.1,
    score: Score | None = None,
) -> tuple[tables.RowCells, tables.RowCells]:
    """Return the cells of the text's method, and of our solver with nothing set."""
    at, rate = f"{group}/{epsilon:g}" if score else group, score or _accuracy

    def once(seed: int, **options: Any) -> tables.Outcome:
        options = {"epsilon": epsilon, "relation": "replace-one", **options}
        return {"value": rate(points(), seed, **options)[0]}

    name, *how = points.args  # type: ignore[attr-defined]
    told: dict[str, Any] = {"points": [name, *how], "score": rate.__name__}
    printed = partial(_points, name, *(how[:1] or [None]), name != "CIFAR-10", *how[2:])
    steps = {"step": _PRINTED_STEPS[solver]} if solver in _PRINTED_STEPS else {}
    noise = {"noise": "upper triangle"} if solver == "gauss" else {}
    paper = tables.Runs(
        f"{at}/{method}/paper",
        lambda seed: _fit_printed(printed(), solver, seed, epsilon, rate),
        {**told, "as_printed": name != "CIFAR-10", **steps, **noise},
    )
    text = tables.Runs(
        f"{at}/{method}/as the text has it",
        lambda seed: {"value": _text_value(points(), method, seed, epsilon, rate)},
        {**told, "rounds": ROUNDS[method]},
    )
    ours = tables.Runs(f"{at}/{method}/sound", lambda seed: once(seed, solver=solver), told)
    default = tables.Runs(f"{at}/default", once, told)
    plain = tables.Runs(f"{group}/plain", lambda seed: once(seed, epsilon=math.inf, delta=None), told)
    return tables.by_mode(paper, text, default, plain), tables.by_mode("as above", ours, default, plain)


# ------------ The text's methods themselves: k columns, constant steps, no mean, no learned clip, one noise

PASSES = (100, 300, 1000)
ROUNDS = {
    "PPI": (2, 5, 10), "MOD-SULQ": (1,), "Gaussian": (1,), "DP-SPCA": PASSES, "DP-VRPCA": PASSES
}  # fmt: skip


def _text_value(points: Points, method: str, seed: int, epsilon: float, rate: Score) -> float:
    """Return the best score of a method over its rounds, which the text does not print."""
    k, halves = points.components, list[Points]()

    def axes(points: Points, rounds: int) -> np.ndarray:
        return text_axes(*_spectrum(points), len(points.rows), k, method, epsilon, rounds, seed)

    if rate is _distance:
        bases = (axes(points, rounds) for rounds in ROUNDS[method])
        return min(1.0 - float(np.sum(np.square(_best(points) @ basis))) / k for basis in bases)

    def fit(rounds: int, half: Any) -> _Axes:
        halves[:] = halves or [Points(half, points.labels, k)]
        return _Axes(axes(halves[0], rounds))

    return max(
        svm_accuracy(points.rows, points.labels, seed, partial(fit, rounds))[0] for rounds in ROUNDS[method]
    )


@dataclass(frozen=True, eq=False)
class _Axes:
    basis: np.ndarray

    def transform(self, rows: Any) -> Any:
        return rows @ self.basis


@lru_cache(maxsize=2)
def _spectrum(points: Points) -> tuple[np.ndarray, np.ndarray]:
    moment = np.asarray(points.rows.T @ points.rows, dtype=float) / len(points.rows)
    values, vectors = np.linalg.eigh(moment)
    return values, vectors


def _fit_printed(points: Points, solver: str, seed: int, epsilon: float, rate: Score) -> tables.Outcome:
    """Run the printed noise, which is the same for both relations, and certify it for each accounted one."""
    claim = _claim(solver, epsilon, points.norm**2)
    extra: dict[str, Any] = {"solver": solver, "noise": "paper", "center": False, "epsilon": claim}
    if solver == "power":
        extra |= {"max_iter": 5, "solver_options": {"n_oversamples": 0}}
    found, learned = {}, points.rows[: len(points.labels) // 2] if rate is _accuracy else points.rows
    if solver in _PRINTED_STEPS:  # of rows that are not scaled to norm one
        step = _PRINTED_STEPS[solver] * points.norm**2 / len(learned)
        extra["solver_options"] = {"step_size": step}
    for relation in RELATIONS:
        with suppress(UnsupportedError):
            found[relation] = certified_epsilon(
                _model(points, seed, {**extra, "relation": relation}), learned
            )
    value, _ = rate(points, seed, relation=next(reversed(found)), **extra)
    return {"value": value, **found}


_PRINTED_STEPS = {METHODS[method]: step for method, step in TEXT_STEPS.items()}


def _claim(solver: str, epsilon: float, ratio: float) -> float:
    """Return the claim whose printed noise is so many times smaller: what rows longer than assumed amount to.

    All formulas fall as 1 / epsilon but that of DP-SPCA, ``c / epsilon^2 + 1 / epsilon`` in its variance.
    """
    if solver != "spca":
        return epsilon * ratio
    c = 2 * math.log(1 / DELTA)
    least = (c / epsilon**2 + 1 / epsilon) / ratio**2
    return 2 * c / (math.sqrt(1 + 4 * c * least) - 1)


def _model(points: Points, seed: int, options: dict[str, Any]) -> PCA:
    settings = {"delta": DELTA, "data_norm": 1.0, "random_state": seed, **options}
    return PCA(points.components, **settings)


def _fit_one(points: Points, rows: Any, seed: int, options: dict[str, Any]) -> PCA:
    with warnings.catch_warnings(action="ignore"):
        return _model(points, seed, options).fit(rows)


def _accuracy(points: Points, seed: int, **options: Any) -> tuple[float, PCA]:
    """Return the paper's accuracy, and the PCA behind it."""
    return svm_accuracy(points.rows, points.labels, seed, lambda half: _fit_one(points, half, seed, options))


def svm_accuracy(rows: Any, labels: Any, seed: int, fit: Callable[[Any], Any]) -> tuple[float, Any]:
    """Return the accuracy in per cent of a linear SVM in a subspace, and the model that found it.

    Half of the rows are for the subspace, a tenth trains the SVM, the rest is to test.
    """
    public = public_generator(seed)
    order = public.permutation(len(labels))
    half, tenth = len(labels) // 2, len(labels) // 10
    rest = order[half:]
    model = fit(rows[order[:half]])
    low = model.transform(rows[rest])
    low = low / max(float(np.std(low[:tenth])), 1e-12)
    svm = LinearSVC(dual=False).fit(low[:tenth], labels[rest[:tenth]])
    return 100 * float(svm.score(low[tenth:], labels[rest[tenth:]])), model


def _distance(points: Points, seed: int, **options: Any) -> tuple[float, PCA]:
    """Return ``||V V^T - W W^T||_F^2 / 2k`` in [0, 1], W the subspace without noise."""
    options = {"center": False, **options}
    model = _fit_one(points, points.rows, seed, options)
    best = _best(points)
    overlap = float(np.sum(np.square(model.components_ @ best.T)))
    return 1.0 - overlap / points.components, model


@cache
def _best(points: Points) -> Any:
    return _fit_one(points, points.rows, 0, {"epsilon": math.inf, "delta": None, "center": False}).components_
