"""From noisy eigenvalues to private variances: free post-processing with a known noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import eigh

from sordino.kernel.arrays import Floats
from sordino.solvers.pca.locate import Location


@dataclass(frozen=True)
class Principal:
    """Released axes (rows, the strongest first) and what is known about their variances.

    Parameters
    ----------
    axes : orthonormal rows.
    variances : the variance that each axis captures, with the known noise taken out.
    noisy : the eigenvalues before that.
    noise : the standard deviation of the noise in one eigenvalue.
    edge : the largest eigenvalue that the noise alone would show.
    total : the total variance.
    mean : the released mean, zero when nothing was released.
    """

    axes: Floats
    variances: Floats
    noisy: Floats
    noise: float
    edge: float
    total: float
    mean: Floats

    def to_dense(self) -> Floats:
        """Return all numbers of the result in one vector."""
        return np.concatenate([self.axes.ravel(), self.variances, self.mean])


def decompose(matrix: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the ``count`` largest eigenvalues of a symmetric matrix and their vectors as rows."""
    d = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=(d - count, d - 1) if count < d else None)
    return values[::-1], fix_signs(np.ascontiguousarray(vectors[:, ::-1].T))


def fix_signs(axes: Floats) -> Floats:
    """Make the largest entry of each axis positive, so that two equal subspaces look equal."""
    largest = axes[np.arange(len(axes)), np.argmax(np.abs(axes), axis=1)]
    return axes * np.where(largest < 0, -1.0, 1.0)[:, None]


def captured_variance(noisy: Floats, edge: float) -> Floats:
    r"""Return ``sqrt(y^2 - edge^2)``: what the noisy eigenvector really captures.

    An eigenvalue ``l`` under symmetric noise of edge ``e`` is seen at ``y = l + e^2 / (4 l)``, and its noisy
    eigenvector captures ``l - e^2 / (4 l)``, which is ``sqrt(y^2 - e^2)``; nothing is seen below the edge.
    """
    return np.sqrt(np.maximum(np.square(noisy) - edge**2, 0.0)) * (noisy > 0)


def filled(variances: Floats, total: float, features: int) -> Floats:
    """Give axes that drown in noise the average of what is left: random directions capture that."""
    left = max(total - float(variances.sum()), 0.0) / features
    return np.maximum(variances, left)


def choose_count(rule: float | str, principal: Principal, features: int) -> int:
    """Return how many axes to keep, from released values alone.

    A float is the share of the total variance, ``"gap"`` the largest drop between two variances that
    stand out of the noise, ``"broken-stick"`` the axes above the lengths of a randomly broken stick.
    """
    if rule == "gap":
        return _gap(principal)
    ratio = principal.variances / principal.total
    if rule == "broken-stick":
        stick = np.cumsum(1 / np.arange(features, 0, -1.0))[::-1] / features
        below = np.flatnonzero(ratio <= stick[: ratio.size])
        return max(1, int(below[0]) if below.size else ratio.size)
    reached = np.flatnonzero(np.cumsum(ratio) >= float(rule) * (1 - 1e-12))
    return int(reached[0]) + 1 if reached.size else ratio.size


def _gap(principal: Principal) -> int:
    seen = int((principal.noisy > principal.edge + 3 * principal.noise).sum())
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


@dataclass(frozen=True)
class StepUnit:
    """One over the unit of a step: the largest singular value of a released product so far.

    It is the leading eigenvalue where the data speak and the size of the noise where they do not, so the
    same step is short against noise and does not vanish without it, whatever the scale of the rows.
    Without a released mean it is the squared radius, as in the papers.
    """

    size: float
    fixed: bool

    @classmethod
    def of(cls, place: Location) -> StepUnit:
        """Return the unit before the first product."""
        return cls(place.ball.radius**2, True) if place.total is None else cls(0.0, False)

    def after(self, product: Floats) -> StepUnit:
        """Return the unit once this product is released."""
        if self.fixed:
            return self
        return replace(self, size=max(self.size, float(np.linalg.norm(product, 2)), 1e-300))
