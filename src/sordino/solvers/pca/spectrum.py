"""From noisy eigenvalues to private variances: free post-processing with a known noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh, eigvalsh
from scipy.optimize import isotonic_regression

from sordino.kernel.arrays import Floats

# Two eigenvalues closer than this part of the noise are pushed apart as if they were as far as that.
CLOSE = 0.2


@dataclass(frozen=True)
class Principal:
    """Released axes (rows, the strongest first) and what is known about their variances.

    Parameters
    ----------
    axes : orthonormal rows.
    variances : the variance that each axis captures, with the known noise taken out.
    noisy : the eigenvalues before that.
    noise : the standard deviation of the noise in one eigenvalue.
    doubt : the standard deviation of each of the variances: noise, and what clipping may have moved.
    edge : the largest eigenvalue that the noise alone would show.
    total : the total variance.
    mean : the released mean, zero when nothing was released.
    stray : the expected squared distance of that mean from the true one: variances about it hold it too.
    """

    axes: Floats
    variances: Floats
    noisy: Floats
    noise: float
    doubt: Floats
    edge: float
    total: float
    mean: Floats
    stray: float = 0.0

    def to_dense(self) -> Floats:
        """Return all numbers of the result in one vector."""
        return np.concatenate([self.axes.ravel(), self.variances, self.mean])


def decompose(matrix: Floats, count: int) -> tuple[Floats, Floats]:
    """Return all eigenvalues of a symmetric matrix, the largest first, and ``count`` vectors as rows."""
    d = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=(d - count, d - 1) if count < d else None)
    values = values if count == d else eigvalsh(matrix)
    return values[::-1], fix_signs(np.ascontiguousarray(vectors[:, ::-1].T))


def fix_signs(axes: Floats) -> Floats:
    """Make the largest entry of each axis positive, so that two equal subspaces look equal."""
    largest = axes[np.arange(len(axes)), np.argmax(np.abs(axes), axis=1)]
    return axes * np.where(largest < 0, -1.0, 1.0)[:, None]


def captured_variance(noisy: Floats, std: float, count: int) -> tuple[Floats, Floats]:
    r"""Return what the first noisy eigenvectors really capture, and the standard deviation of that.

    ``y_i - s^2 sum_j (y_i - y_j) / ((y_i - y_j)^2 + s^2)`` over the whole noisy spectrum y, s the noise of a
    diagonal entry: the noise pushes an eigenvalue away from the others by half of that sum, and its
    eigenvector captures as much less. With one eigenvalue above a bulk of noise of edge e it is
    ``sqrt(y^2 - e^2)``. Summed over all axes it is the trace, so nothing is overstated.

    References: Bun, Bouchaud, Potters 2016 (the rotationally invariant estimator for additive noise).
    """
    y = noisy[:count]
    if std == 0:
        return np.maximum(y, 0.0), np.zeros(count)
    gaps = y[:, None] - noisy[None, :]
    push = std**2 * (gaps / (np.square(gaps) + (CLOSE * std) ** 2)).sum(axis=1)
    captured = isotonic_regression(y - push, increasing=False).x
    near = np.square(gaps) + std**2
    slope = 1.0 + std**2 * ((np.square(gaps) - std**2) / np.square(near)).sum(axis=1)
    doubt = std * np.maximum(slope, 1.0)
    # What is no larger than its doubt is noise that happened to be positive.
    return np.sqrt(np.maximum(np.square(captured) - np.square(doubt), 0.0)) * (captured > 0), doubt


def filled(variances: Floats, total: float, features: int) -> Floats:
    """Give axes that drown in noise the average of what is left: random directions capture that.

    Together they explain no more than the total.
    """
    variances = variances * min(1.0, total / max(float(variances.sum()), 1e-300))
    left = max(total - float(variances.sum()), 0.0) / features
    return np.maximum(variances, left)


def shared(doubt: Floats, features: int) -> Floats:
    """Add to each deviation its part of all of them: what one axis lacks, :func:`filled` gives to others."""
    return np.hypot(doubt, doubt.sum() / features)


def choose_count(rule: float | str, principal: Principal, features: int) -> int:
    """Return how many axes to keep, from released values alone.

    A float is the share of the total variance, to within half the standard deviation of what was released and
    without axes that drown in noise, ``"gap"`` the largest drop between two variances that
    stand out of the noise, ``"broken-stick"`` the axes above the lengths of a randomly broken stick.
    """
    if rule == "gap":
        return _gap(principal)
    ratio = principal.variances / principal.total
    if rule == "broken-stick":
        stick = np.cumsum(1 / np.arange(features, 0, -1.0))[::-1] / features
        below = np.flatnonzero(ratio <= stick[: ratio.size])
        return max(1, int(below[0]) if below.size else ratio.size)
    return _share(float(rule), principal)


def _share(wanted: float, principal: Principal) -> int:
    """Return the fewest axes that reach the share within half a standard deviation, without drowned ones."""
    within = 0.5 * np.sqrt(np.cumsum(np.square(principal.doubt)))
    reached = np.cumsum(principal.variances) + within >= wanted * (1 - 1e-12) * principal.total
    fewest = int(np.argmax(reached)) + 1 if reached.any() else reached.size
    return max(1, min(fewest, _seen(principal)))


def _seen(principal: Principal) -> int:
    """Return how many eigenvalues stand out of the noise."""
    if principal.noise == 0:
        return int(principal.noisy.size)
    return int((principal.noisy > principal.edge + 3 * principal.noise).sum())


def _gap(principal: Principal) -> int:
    seen = _seen(principal)
    if seen < 2:
        return max(seen, 1)
    y = principal.noisy[: min(seen + 1, principal.noisy.size)]
    return int(np.argmax(y[:-1] - y[1:])) + 1


def by_strength(basis: Floats, inner: Floats) -> Floats:
    """Rotate a basis within its span so that ``inner = V^T A V`` is diagonal, the largest first."""
    return basis @ np.linalg.eigh((inner + inner.T) / 2)[1][:, ::-1]


def polar(block: Floats) -> Floats:
    """Return ``B (B^T B)^(-1/2)``: the orthonormal block nearest to B, so that small steps stay small."""
    left, _, right = np.linalg.svd(block, full_matrices=False)
    return left @ right


def strength(std: float, features: int) -> float:
    """Return the edge ``2 sqrt(d) std / sqrt 2`` of symmetric noise with ``std`` on the diagonal."""
    return std * math.sqrt(2 * features)
