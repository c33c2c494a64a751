"""Shang et al., DP-SPCA and DP-VRPCA: table 3 (a linear SVM in the private subspace) and figure 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.svm import LinearSVC

from sordino.datasets import load, log1p_unit, unit_rows
from sordino.errors import UnsupportedError
from sordino.estimators.pca import PCA
from sordino.kernel import public_generator
from sordino.literature.reproduce.linear import RELATIONS, certified, quiet
from sordino.literature.reproduce.tables import Outcome, Row, RowCells, Runs, Table, by_mode

DELTA = 1e-3
METHODS = {
    "PPI": "power",
    "MOD-SULQ": "mod-sulq",
    "Gaussian": "gauss",
    "DP-SPCA": "spca",
    "DP-VRPCA": "vrpca",
}
_PUBLISHED = {
    "a9a": (79.80, 80.11, 80.32, 82.55, 82.55),
    "MNIST 1/7": (96.15, 96.52, 97.07, 98.35, 98.48),
    "real-sim": (71.78, 72.79, 85.57, 92.13, 94.19),
}
_PLAIN = {"a9a": 84.95, "MNIST 1/7": 99.29, "real-sim": 99.43}
Score = Callable[..., tuple[float, Any]]
CIFAR_ROWS, QUICK_ROWS = 20_000, 5000
_NO_LESS = (
    "The printed step of DP-VRPCA is accounted for add-remove; a row of zeros in the place of a record is as "
    "good as none, so that replace-one certifies no less."
)
_AS_PRINTED = (
    "Paper mode has the printed schedule, noise and scaling: a largest entry of 1 in each row, which leaves "
    "rows of norms up to 3.7 (a9a) and 14 (MNIST) under a noise for norm 1, up to 190 times too small; what "
    "it certifies is for these rows. Not centred, as printed."
)
_SETTINGS = (
    "Half of the rows for the subspace, a tenth to train the SVM, the rest to test. The binary task behind "
    f"MNIST is not printed: 1 against 7 here. {_AS_PRINTED} {_NO_LESS}"
)


@dataclass(frozen=True, eq=False)
class Points:
    """Rows of norm at most one with their labels, and the number of components."""

    rows: Any
    labels: np.ndarray
    components: int
    norm: float = 1.0  # of the longest row, before it was scaled to one


@cache
def _points(name: str, most: int | None = None, as_printed: bool = False) -> Points:
    """Return a set, or its first ``most`` rows, of unit norm.

    ``as_printed``: each row has a largest entry of 1, as in the paper, whose noise is for rows of norm 1.
    The longest is scaled to norm 1 with all others; ``norm`` says by how much the noise is too small.
    """
    rows, labels, components = _READ[name]()
    rows, labels = rows[:most], np.asarray(labels)[:most]
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
    return log1p_unit(data.data)[:, common].toarray(), data.target, 50


_READ: dict[str, Callable[[], tuple[Any, Any, int]]] = {
    "a9a": _a9a,
    "MNIST 1/7": _ones_and_sevens,
    "MNIST": partial(_images, "mnist"),
    "CIFAR-10": partial(_images, "cifar10"),
    "real-sim": _reviews,
}


def table_3(quick: bool) -> Table:
    """Accuracy of a linear SVM."""
    rows = [row for group in ("a9a", "MNIST 1/7") for row in _rows(group)]
    return Table(
        "shang-3",
        "Shang et al., table 3: a9a and MNIST, k = 10",
        "accuracy of a linear SVM, %",
        "higher",
        "Ours: a9a and MNIST themselves.",
        "same",
        rows,
        _SETTINGS,
        needs=("a9a", "mnist"),
    )


def table_3_text(quick: bool) -> Table:
    """The column on real-sim, on reviews."""
    return Table(
        "shang-3-text",
        "Shang et al., table 3: real-sim, k = 300",
        "accuracy of a linear SVM, %",
        "higher",
        "real-sim (72,309 rows) is not at hand. Stand-in: 25,000 IMDB reviews, the 2,000 words in most of "
        "them, k = 50; compared is the ratio to the model without privacy.",
        "stand-in",
        _rows("real-sim"),
        _SETTINGS,
        needs=("imdb",),
        repeats=2,
    )


def figure_1(quick: bool) -> Table:
    """Distances of the private subspace from the true one."""
    epsilons = (0.1, 1.0) if quick else (0.1, 0.2, 0.5, 1.0, 2.0)
    rows = [
        Row(group, method, epsilon, DELTA, None, _cells(group, points, method, solver, epsilon, _distance))
        for group, points in _sets(quick).items()
        for epsilon in epsilons
        for method, solver in METHODS.items()
    ]
    quickly = f" Quick: {QUICK_ROWS:,} rows of a9a and MNIST, without CIFAR-10." if quick else ""
    return Table(
        "shang-figure-1",
        "Shang et al., figure 1: subspace distance against epsilon, k = 10",
        "share of the best subspace that is missed",
        "lower",
        f"Ours: a9a, MNIST and {CIFAR_ROWS:,} images of CIFAR-10, rows of unit norm, not centred.{quickly}",
        "same",
        rows,
        f"The paper's epsilons are not printed: ours span its axis. {_AS_PRINTED} CIFAR-10 has unit rows in "
        f"paper mode too. {_NO_LESS}",
        needs=("a9a", "mnist", "cifar10"),
        repeats=1,
        order=(("DP-SPCA", "DP-VRPCA"), ("Gaussian", "MOD-SULQ", "PPI")),
        trivial={"a9a": 1 - 10 / 123, "MNIST": 1 - 10 / 784, "CIFAR-10": 1 - 10 / 3072},
    )


def _sets(quick: bool) -> dict[str, Callable[[], Points]]:
    sizes = {"a9a": None, "MNIST": None, "CIFAR-10": CIFAR_ROWS}
    if quick:
        sizes = dict.fromkeys(("a9a", "MNIST"), QUICK_ROWS)
    return {name: partial(_points, name, most) for name, most in sizes.items()}


def _rows(group: str) -> list[Row]:
    points = partial(_points, group)
    return [
        Row(group, method, 0.1, DELTA, number, _cells(group, points, method, solver), _PLAIN[group])
        for (method, solver), number in zip(METHODS.items(), _PUBLISHED[group])
    ]


def _cells(
    group: str,
    points: Callable[[], Points],
    method: str,
    solver: str,
    epsilon: float = 0.1,
    score: Score | None = None,
) -> RowCells:
    at, rate = f"{group}/{epsilon:g}" if score else group, score or _accuracy

    def once(seed: int, **options: Any) -> Outcome:
        options = {"epsilon": epsilon, "relation": "replace-one", **options}
        return {"value": rate(points(), seed, **options)[0]}

    name, *most = points.args  # type: ignore[attr-defined]
    told: dict[str, Any] = {"points": [name, *most], "score": rate.__name__}
    printed = partial(_points, name, *(most or [None]), name != "CIFAR-10")
    return by_mode(
        Runs(
            f"{at}/{method}/paper",
            lambda seed: _fit_printed(printed(), solver, seed, epsilon, rate),
            {**told, "as_printed": name != "CIFAR-10", **_schedule(solver)},
        ),
        Runs(f"{at}/{method}/sound", lambda seed: once(seed, solver=solver), told),
        Runs(f"{at}/default", once, told),
        Runs(f"{group}/plain", lambda seed: once(seed, epsilon=math.inf, delta=None), told),
    )


def _fit_printed(points: Points, solver: str, seed: int, epsilon: float, rate: Score) -> Outcome:
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
            found[relation] = certified(_model(points, seed, {**extra, "relation": relation}), learned)
    value, _ = rate(points, seed, relation=next(reversed(found)), **extra)
    return {"value": value, **found}


_PRINTED_STEPS = {"spca": 0.5, "vrpca": 1.0}  # over the number of rows


def _schedule(solver: str) -> dict[str, Any]:
    return {"step": _PRINTED_STEPS[solver]} if solver in _PRINTED_STEPS else {}


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
    with quiet():
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
