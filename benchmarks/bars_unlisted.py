"""Bars of designs that nobody had listed: what a user may bring, every linear model with its defaults.

Run by `python -m benchmarks.bars unlisted`. No constant of the library was chosen on these designs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

import sordino
from benchmarks.bars import Bar, numbers
from sordino.testing import seeded_noise_not_private

EPSILONS, SEEDS, TEST = (0.3, 1.0, 10.0, math.inf), 2, 1000
WHY = {
    "labels": "500 records at epsilon .3 do not tell how rare a class is; 60 rows of 500 columns are "
    "separable, so that log odds have no right length there",
    "bounded": "the targets have the mean 1.5, the deviation .29 and a declared bound of 10; of that, "
    "500 records at epsilon .3 tell a mean of .9 or 1.2",
    "free": "nothing is declared of these targets (1 to 2), and 500 records at epsilon .3 do not tell "
    "where they lie: the answers of the two fits are 0 and .7",
}
Drawn = tuple[np.ndarray, np.ndarray, float, float]  # rows, targets, their bounds


def _flag(public: np.random.Generator, n: int) -> Drawn:
    X = public.normal(size=(n, 31)) / 6
    X[:, 0] = public.random(n) < 0.01
    return X, 4 * X[:, 0] + 5.4 * X[:, 1] + 0.3 * public.normal(size=n), 2.0, 8.0


def _integers(public: np.random.Generator, n: int) -> Drawn:
    X = public.normal(size=(n, 8)) / 3
    whole = np.clip(np.round(1.5 + 2.4 * X[:, 0] + 0.3 * public.normal(size=n)), 0, 3)
    return X, whole - 1.5, 2.0, 3.0


def _rare(public: np.random.Generator, n: int) -> Drawn:
    X = public.normal(size=(n, 6)) / 2.5
    return X, 7.5 * X[:, 0] - 6.5, 2.0, 20.0


def _copies(public: np.random.Generator, n: int) -> Drawn:
    rows = public.normal(size=(n, 10)) / 3
    return np.repeat(rows, 5, axis=1), 6.3 * rows[:, 0] - 3 * rows[:, 1], 4.0, 10.0


def _wide(public: np.random.Generator, n: int) -> Drawn:
    X = public.normal(size=(n, 500)) / 22
    return X, 22 * X[:, :5].sum(axis=1), 1.5, 10.0


def _one_class(public: np.random.Generator, n: int) -> Drawn:
    return public.normal(size=(n, 5)) / 2, 1.0 + public.random(n), 2.0, 10.0


def _equal(public: np.random.Generator, n: int) -> Drawn:
    return np.full((n, 5), 0.3), public.normal(size=n), 2.0, 5.0


def _huge(public: np.random.Generator, n: int) -> Drawn:
    X = public.normal(size=(n, 4))
    X[:, 1] = 1e9 * public.random(n)
    return X, X[:, 0] + X[:, 1] / 5e8 - 1 + 0.3 * public.normal(size=n), 1.1e9, 6.0


DESIGNS: dict[str, tuple[Callable[[np.random.Generator, int], Drawn], int]] = {
    "a flag in 1 % of 2,000 rows": (_flag, 2000),
    "targets 0 to 3": (_integers, 2000),
    "classes 99:1, 500 rows": (_rare, 500),
    "each column five times": (_copies, 2000),
    "60 rows, 500 columns": (_wide, 60),
    "one class of two, 500 rows": (_one_class, 500),
    "equal rows": (_equal, 500),
    "a column in units of 1e-9": (_huge, 1500),
}


def _models(epsilon: float, norm: float, bound: float) -> dict[str, tuple[str, Any]]:
    rows, labels = {"data_norm": norm}, {"classes": [0, 1]}
    few, numbers_ = {"n_nonzero_coefs": 3}, {"target_bound": bound}
    return {
        "LogisticRegression": ("labels", sordino.LogisticRegression(epsilon, 1e-5, **rows, **labels)),
        "SparseLogisticRegression": (
            "labels",
            sordino.SparseLogisticRegression(epsilon, 1e-5, **rows, **labels, **few),
        ),
        "HeavyTailedClassifier": ("labels", sordino.HeavyTailedClassifier(epsilon, 1e-5, **labels)),
        "LinearRegression": ("bounded", sordino.LinearRegression(epsilon, 1e-5, **rows, **numbers_)),
        "SparseLinearRegression": (
            "bounded",
            sordino.SparseLinearRegression(epsilon, 1e-5, **rows, **numbers_, **few),
        ),
        "HeavyTailedRegressor": ("free", sordino.HeavyTailedRegressor(epsilon, 1e-5)),
        "HeavyTailedRegressor, 3 kept": ("free", sordino.HeavyTailedRegressor(epsilon, 1e-5, **few)),
    }


def _score(kind: str, model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Return R2, or how far the log loss is below that of the constant."""
    if kind != "labels":
        return 1.0 - float(np.mean((model.predict(X) - y) ** 2)) / float(np.var(y))
    truth, share = y > 0, np.clip(model.predict_proba(X)[:, 1], 1e-12, 1 - 1e-12)
    rate = np.clip(np.mean(truth), 1e-3, 1 - 1e-3)
    constant = log_loss(truth, np.full(len(y), rate), labels=[False, True])
    return float(constant - log_loss(truth, share, labels=[False, True]))


def _scores(order: Callable[[np.ndarray], np.ndarray], epsilon: float, seeds: int) -> dict[str, Any]:
    """Return the worst score of each kind, with its design and model, and all of them."""
    out: dict[str, Any] = defaultdict(dict)
    for name, (draw, n) in DESIGNS.items():
        X, y, norm, bound = draw(np.random.default_rng(7), n + TEST)
        at = order(y[:n])
        for seed in range(seeds):
            for model_name, (kind, model) in _models(epsilon, norm, bound).items():
                targets = (y[at] > 0).astype(int) if kind == "labels" else y[at]
                with seeded_noise_not_private(seed):
                    model.fit(X[at], targets)
                out[kind][name, model_name, seed] = _score(kind, model, X[n:], y[n:])
    return out


def unlisted() -> Iterator[Bar]:
    """The worst fits, and sorted rows."""
    found = [_scores(lambda y: np.arange(y.size), epsilon, SEEDS) for epsilon in EPSILONS]
    runs = f"{len(DESIGNS)} designs, {SEEDS} fits each"
    for kind, what, least in (
        ("labels", "log loss below the constant's, classifiers", -0.15),
        ("bounded", "R², regressors with declared bounds", -0.5),
        ("free", "R², `HeavyTailedRegressor`, nothing declared", -0.5),
    ):
        worst = [min(cells[kind].items(), key=lambda item: item[1]) for cells in found]
        under = [
            f"epsilon {epsilon:g}: {name}, {model} {value:.2f}"
            for epsilon, ((name, model, _), value) in zip(EPSILONS, worst, strict=True)
            if value < least
        ]
        yield Bar(
            2,
            f"designs nobody had listed: worst {what}, at epsilon .3 / 1 / 10 / no noise",
            f">= {least:g}",
            numbers([value for _, value in worst]),
            runs,
            not under,
            f"{'; '.join(under)}. {WHY[kind]}",
        )
    ordered = _scores(np.argsort, math.inf, 1)
    apart = max(abs(ordered[k][key] - found[-1][k][key]) for k in ordered for key in ordered[k])
    yield Bar(
        4,
        "designs nobody had listed, rows sorted by their targets: change of a score without noise",
        "<= 0.001",
        f"{apart:.2g}",
        f"{len(DESIGNS)} designs, all linear models",
        apart <= 0.001,
        "see the designs",
    )
