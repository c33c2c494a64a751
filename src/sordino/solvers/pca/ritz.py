"""What the iterations share: products about the mean, and the variances that they tell."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sordino.kernel.arrays import Floats
from sordino.problems.covariance import PcaProblem
from sordino.solvers.pca.locate import Location
from sordino.solvers.pca.spectrum import (
    Principal,
    captured_variance,
    filled,
    fix_signs,
    polar,
    shared,
    strength,
)

# Products are averaged over about the last sixth of them; how far off the trace is that a few random
# directions tell; how much of a standard deviation to state where later bases follow earlier noise.
LATE, DIRECTIONS, FOLLOWED = 6, 0.1, 1.5


@dataclass(frozen=True)
class Products:
    """Released products with clipped rows: by what they are too short, and in which unit to step.

    Parameters
    ----------
    place : where rows are measured.
    problem : what is public.
    factor, moved : see :meth:`Location.unclipped`.
    unit : one over the unit of a step, the largest singular value of a product so far: the leading eigenvalue
        where the data speak and the size of the noise where they do not. The same step is short against
        noise and does not vanish without it, whatever the scale of the rows. In a paper's plan, which
        releases no mean, it is the squared radius.
    """

    place: Location
    problem: PcaProblem
    factor: float = 1.0
    moved: float = 0.0
    unit: float = 0.0

    def first(self, basis: Floats, answer: Floats, std: float) -> Products:
        """Return the products after the first one, of a random basis: it tells the trace."""
        d, p = basis.shape
        inner = basis.T @ answer
        trace = d / p * float(np.trace(inner))
        squares = (d / p) ** 2 * (float(np.square(inner).sum()) - (p * std) ** 2) - trace**2 / p
        missed = math.sqrt(2 * max(squares, 0.0) * (1 / p - 1 / d))  # the more, the fewer axes there are
        off = math.hypot(d / math.sqrt(p) * std, max(DIRECTIONS * trace, missed))
        factor, moved = self.place.unclipped(trace, off, self.problem)
        return replace(self, factor=factor, moved=moved)

    def about(self, basis: Floats, answer: Floats) -> Floats:
        """Return the product with rows of full length, about the mean or about zero."""
        answer = self.factor * answer
        return answer if self.problem.center else self.place.with_mean(answer, basis)

    def after(self, answer: Floats) -> Products:
        """Return the products with the unit once this one, about the mean, is released."""
        if self.place.total is None:
            return replace(self, unit=self.place.ball.radius**2)
        return replace(self, unit=max(self.unit, self.factor * float(np.linalg.norm(answer, 2)), 1e-300))

    def principal(self, inner: Floats, axes: Floats, std: float) -> Principal:
        """Return the axes (columns, the strongest first) with the variances ``inner = V^T (A V + N)``.

        The noise N of an answer, of standard deviation ``std``, is independent of the basis V that was
        asked, so ``inner`` is unbiased; made symmetric, its noise is that of a small matrix.
        """
        k, place, std = self.problem.components, self.place, self.factor * std
        noisy = np.asarray(np.linalg.eigvalsh((inner + inner.T) / 2)[::-1], dtype=np.float64)
        variances, doubt = place.real(*captured_variance(noisy, std, k))
        doubt = shared(np.hypot(FOLLOWED * doubt, self.moved * variances), self.problem.features)
        total = max(place.total or float(variances.sum()), 1e-300)
        variances = filled(variances, total, self.problem.features)
        rows, edge = fix_signs(np.ascontiguousarray(axes[:, :k].T)), strength(std, len(inner))
        return Principal(rows, variances, noisy[:k], std, doubt, edge, total, place.mean, place.stray)


@dataclass(frozen=True)
class Averaged:
    """A running mean of ``V_t^T (A V_t + N_t)``, turned with the basis, and the variance of its noise."""

    value: Floats
    variance: float = 0.0

    def with_one(self, t: int, inner: Floats, std: float) -> Averaged:
        """Return the mean with one more; newer ones weigh more, as the basis was still moving."""
        weight = LATE / (t + LATE)
        return Averaged(
            self.value + weight * (inner - self.value),
            (1 - weight) ** 2 * self.variance + (weight * std) ** 2,
        )

    def turned(self, old: Floats, new: Floats) -> Averaged:
        """Return the mean in the coordinates of the new basis."""
        turn = polar(old.T @ new)
        return replace(self, value=turn.T @ self.value @ turn)
