"""Designs and subjects of :mod:`benchmarks.behaviour`: what every public estimator is tried on.

Constants of the library were chosen on Gaussian designs of 5 to 200 columns; the shapes here are another
draw.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.decomposition import PCA as PlainPCA
from sklearn.linear_model import LinearRegression as PlainLinear
from sklearn.linear_model import LogisticRegression as PlainLogistic
from sklearn.metrics import log_loss

import sordino

D = 12


@dataclass(frozen=True)
class Design:
    """Train and test rows with a public bound of their norms and of the targets."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    data_norm: float = 3.0
    target_bound: float = 8.0


def base(n: int, d: int, seed: int, rows: Any = None) -> Design:
    """Draw rows of norm about 1 and targets with half of a deviation of noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 2000, d)) / np.sqrt(d) if rows is None else rows(rng, n + 2000, d)
    w = rng.normal(size=d)
    y = X @ (2.0 * w / max(np.std(X @ w), 1e-12)) + rng.normal(size=len(X))
    return Design(X[:n], y[:n], X[n:], y[n:])


def _correlated(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    common = rng.normal(size=(n, 1))
    return (np.sqrt(0.9) * common + np.sqrt(0.1) * rng.normal(size=(n, d))) / np.sqrt(d)


def _heavy(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.standard_t(3, size=(n, d)) / np.sqrt(3 * d)


def _moved(plain: Design, change: Callable[[np.ndarray], np.ndarray], bound: float) -> Design:
    return replace(plain, X=change(plain.X), X_test=change(plain.X_test), data_norm=bound)


def _sorted(plain: Design) -> Design:
    order = np.argsort(plain.y)
    return replace(plain, X=plain.X[order], y=plain.y[order])


def _rare(plain: Design) -> Design:
    """Shift the targets so that about 7 % are positive."""
    return replace(plain, y=plain.y - 3.3, y_test=plain.y_test - 3.3, target_bound=12.0)


DESIGNS: dict[str, Callable[[int, int], Design]] = {
    "plain": lambda n, seed: base(n, D, seed),
    "few rows": lambda n, seed: base(n // 10, D, seed),
    "four times the rows": lambda n, seed: base(4 * n, D, seed),
    "as many columns as rows / 10": lambda n, seed: base(n, n // 10, seed),
    "times 1,000": lambda n, seed: _moved(base(n, D, seed), lambda X: 1e3 * X, 3e3),
    "times 1e-3": lambda n, seed: _moved(base(n, D, seed), lambda X: 1e-3 * X, 3e-3),
    "shifted": lambda n, seed: _moved(base(n, D, seed), lambda X: X + 1.0, 3.0 + np.sqrt(D)),
    "correlated columns": lambda n, seed: base(n, D, seed, _correlated),
    "imbalanced": lambda n, seed: _rare(base(n, D, seed)),
    "heavy tails": lambda n, seed: base(n, D, seed, _heavy),
    "sorted": lambda n, seed: _sorted(base(n, D, seed)),
    "tied": lambda n, seed: _moved(base(n, D, seed), lambda X: np.round(X, 1), 3.0),
}
ALIKE = ("times 1,000", "times 1e-3", "shifted", "sorted", "tied")  # equivariance: as good as the plain one


@dataclass(frozen=True)
class Subject:
    """An estimator: how to fit and score it, the score of a constant and of scikit-learn."""

    make: Callable[[float, Design], Any]
    kind: str
    unbounded: bool = False
    effort: int = 1  # fits for each one of the others: quick to fit, and their scores vary more
    change: Callable[[np.ndarray], np.ndarray] = np.asarray  # of the rows, train and test

    def rows(self, design: Design) -> Design:
        """Return the design as this subject sees it."""
        return replace(design, X=self.change(design.X), X_test=self.change(design.X_test))

    def score(self, epsilon: float, design: Design) -> dict[str, float]:
        """Return R2, or accuracy with excess log loss and slope, or the share of the variance captured."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = self.make(epsilon, design).fit(design.X, self.targets(design.y))
            return getattr(self, f"_{self.kind}")(model, design)

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Return the targets that this kind of model has."""
        return y > 0 if self.kind == "classifier" else y

    def plain(self, design: Design) -> float:
        """Return the score of scikit-learn."""
        if self.kind == "components":
            return 1.0
        model = PlainLogistic(C=1e6, max_iter=2000) if self.kind == "classifier" else PlainLinear()
        scale = 1.0 / np.abs(design.X).max()  # scikit-learn's solver needs columns near one
        model.fit(scale * design.X, self.targets(design.y))
        return float(model.score(scale * design.X_test, self.targets(design.y_test)))

    def constant(self, design: Design) -> float:
        """Return the score of the best constant."""
        if self.kind == "classifier":
            share = float(np.mean(design.y_test > 0))
            return max(share, 1.0 - share)
        return 0.0 if self.kind == "regressor" else design.X.shape[1] ** -1.0

    def _regressor(self, model: Any, design: Design) -> dict[str, float]:
        return {"score": float(model.score(design.X_test, design.y_test))}

    def _classifier(self, model: Any, design: Design) -> dict[str, float]:
        truth, margin = design.y_test > 0, np.asarray(model.decision_function(design.X_test))
        share = np.clip(model.predict_proba(design.X_test)[:, 1], 1e-12, 1 - 1e-12)
        rate = np.clip(np.mean(truth), 1e-3, 1 - 1e-3)
        excess = log_loss(truth, share, labels=[False, True]) - log_loss(
            truth, np.full(len(truth), rate), labels=[False, True]
        )
        return {
            "score": float(np.mean((margin > 0) == truth)),
            "log loss": float(excess),
            "slope": calibration_slope(margin, truth),
        }

    def _components(self, model: Any, design: Design) -> dict[str, float]:
        """Return the variance that the axes capture, over the most that any two capture.

        On the rows of the fit, as PCA is defined, and clipped to the declared bound, as PCA says. On other
        rows of a law without a leading direction any two axes capture the same, so a score there would be
        a coin's (0.97 to 1.02 for random axes at 2,000 rows).
        """
        rows = clipped(design.X, design.data_norm)
        centred = rows - rows.mean(axis=0)
        best = PlainPCA(2).fit(rows).components_
        size = [np.sum((centred @ np.linalg.qr(axes.T)[0]) ** 2) for axes in (model.components_, best)]
        return {"score": float(size[0] / size[1])}


def clipped(rows: np.ndarray, bound: float) -> np.ndarray:
    """Return the rows, those longer than the bound shortened to it."""
    return rows * np.minimum(1.0, bound / np.maximum(np.linalg.norm(rows, axis=1), 1e-300))[:, None]


def fading(rows: np.ndarray) -> np.ndarray:
    """Return the rows with columns of deviations 1, 1 / sqrt 2, 1 / sqrt 3 ...: some axes lead."""
    return rows / np.sqrt(np.arange(1.0, rows.shape[1] + 1.0))


def calibration_slope(margin: np.ndarray, truth: np.ndarray) -> float:
    """Return the coefficient of the margin in a logistic regression of the truth on it."""
    spread = np.std(margin)
    if not spread > 0 or not np.isfinite(spread):
        return 0.0
    fitted = PlainLogistic(C=1e6, max_iter=1000).fit((margin / spread)[:, None], truth)
    return float(fitted.coef_[0, 0] / spread)


def _classes(kind: Any, **options: Any) -> Subject:
    def make(epsilon: float, design: Design) -> Any:
        return kind(epsilon, 1e-5, data_norm=design.data_norm, classes=[False, True], **options)

    return Subject(make, "classifier")


def _numbers(kind: Any, **options: Any) -> Subject:
    def make(epsilon: float, design: Design) -> Any:
        bounds = {"data_norm": design.data_norm, "target_bound": design.target_bound}
        return kind(epsilon, 1e-5, **bounds, **options)

    return Subject(make, "regressor")


def _axes(epsilon: float, design: Design) -> Any:
    return sordino.PCA(2, epsilon=epsilon, delta=1e-5, data_norm=design.data_norm)


SUBJECTS: dict[str, Subject] = {
    "LogisticRegression": _classes(sordino.LogisticRegression),
    "SparseLogisticRegression": _classes(sordino.SparseLogisticRegression),
    "HeavyTailedClassifier": Subject(
        lambda e, _: sordino.HeavyTailedClassifier(e, 1e-5, classes=[False, True]), "classifier", True
    ),
    "LinearRegression": _numbers(sordino.LinearRegression),
    "SparseLinearRegression": _numbers(sordino.SparseLinearRegression),
    "HeavyTailedRegressor": Subject(lambda e, _: sordino.HeavyTailedRegressor(e, 1e-5), "regressor", True),
    "PCA": Subject(_axes, "components", effort=20, change=fading),
    "PCA, no leading axes": Subject(_axes, "components", effort=20),
}
