"""What the benchmarks of private PCA share: sets, the two measures, the textbook."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, svds
from sklearn.preprocessing import normalize

from sordino import PCA
from sordino.accounting import gaussian_multiplier
from sordino.datasets import load
from sordino.kernel import NoiseSource
from sordino.testing import seeded_noise_not_private

DELTA, AXES = 1e-5, 10


@dataclass(frozen=True)
class Rows:
    """Rows with a public bound, their mean, and the best axes about it."""

    name: str
    data: Any
    norm: float
    mean: np.ndarray
    best: np.ndarray
    most: float

    @classmethod
    def of(cls, name: str, data: Any, norm: float = 1.0, axes: int = AXES) -> Rows:
        """Return the rows with the axes that nobody has to pay for."""
        mean = np.asarray(data.mean(axis=0)).ravel()
        found = best_axes(data, mean, axes)
        return cls(name, data, norm, mean, found, captured(found, data, mean).sum())

    def judged(self, axes: np.ndarray) -> tuple[float, float]:
        """Return the captured variance relative to the best, and the distance of the projections."""
        return float(captured(axes, self.data, self.mean).sum() / self.most), distance(axes, self.best)


def captured(axes: np.ndarray, data: Any, mean: np.ndarray) -> np.ndarray:
    """Return the variance of the data along each axis."""
    return np.square(data @ axes.T).mean(axis=0) - np.square(axes @ mean)


def distance(axes: np.ndarray, best: np.ndarray) -> float:
    """Return the Frobenius distance of the two projections."""
    return math.sqrt(max(0.0, len(axes) + len(best) - 2 * float(np.square(axes @ best.T).sum())))


def best_axes(data: Any, mean: np.ndarray, count: int) -> np.ndarray:
    """Return the leading axes about the mean, without a d x d matrix where the data are sparse."""
    if isinstance(data, np.ndarray):
        about = data - mean
        return np.linalg.eigh(about.T @ about)[1][:, ::-1][:, :count].T
    operator = LinearOperator(
        data.shape,
        matvec=lambda v: data @ v.ravel() - mean @ v.ravel(),
        rmatvec=lambda u: data.T @ u.ravel() - mean * u.sum(),
        dtype=np.float64,
    )
    _, values, axes = svds(operator, k=count, random_state=0)
    return axes[np.argsort(-values)]


def digits() -> Rows:
    return Rows.of("digits", normalize(load("digits").data))


def a9a() -> Rows:
    return Rows.of("a9a", load("a9a").data.toarray().astype(float), 3.75)


def mnist() -> Rows:
    images = load("mnist").data
    return Rows.of("MNIST", normalize(images.reshape(len(images), -1).astype(float)))


def news() -> Rows:
    return Rows.of("20news", normalize(load("20news").data.tocsr().astype(float)))


SETS = {"digits": digits, "a9a": a9a, "MNIST": mnist, "20news": news}


def textbook(rows: np.ndarray, epsilon: float, seed: int, center: bool, axes: int = AXES) -> np.ndarray:
    """Return the axes of Analyze-Gauss with independent entries (centred by a free, non-private mean)."""
    d = rows.shape[1]
    noise = NoiseSource.seeded_not_private(seed)
    multiplier = gaussian_multiplier(epsilon, DELTA) if math.isfinite(epsilon) else 0.0
    entries = np.triu(noise.normal((d, d))) * multiplier / len(rows)
    about = rows - rows.mean(axis=0) if center else rows
    noisy = about.T @ about / len(rows) + entries + np.triu(entries, 1).T
    return np.linalg.eigh(noisy)[1][:, -axes:].T


def fitted(rows: Any, solver: str, epsilon: float, seed: int, axes: Any = AXES, **settings: Any) -> PCA:
    """Return a fit with seeded noise, which is not private."""
    settings = {"delta": DELTA, "solver": solver, "random_state": seed} | settings
    with seeded_noise_not_private(seed):
        return PCA(axes, epsilon=epsilon, **settings).fit(rows)


def told(epsilon: float) -> float | None:
    """Return the budget as JSON can hold it: None is no noise."""
    return epsilon if math.isfinite(epsilon) else None


def summary(values: Any) -> tuple[float, float]:
    """Return the mean of some figures and its standard error, to four digits."""
    found = np.asarray(values, dtype=float)
    error = found.std(ddof=1) / math.sqrt(found.size) if found.size > 1 else 0.0
    return float(f"{found.mean():.4g}"), float(f"{error:.2g}")
