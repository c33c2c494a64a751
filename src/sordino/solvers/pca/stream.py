"""PCA of a stream: each chunk is released once, with the whole budget, and then forgotten."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sordino.kernel import Curator, Disjoint, Plan, Release
from sordino.kernel.arrays import Floats
from sordino.problems.covariance import GramMatrix, PcaProblem, RowMoments
from sordino.solvers.pca.gauss import Gauss, principal_of
from sordino.solvers.pca.locate import SHARE, Location, location_from, noise_std, weight_of_rest
from sordino.solvers.pca.options import PcaOptions
from sordino.solvers.pca.spectrum import Principal


@dataclass(frozen=True)
class Pooled:
    """Released sums over the chunks so far; all of it is public.

    ``moments`` sums ``(x, w ||x||^2 / R)``, ``matrix`` sums ``x x^T``, each with the variance of its noise.
    """

    count: int
    moments: Floats
    matrix: Floats
    moments_variance: float = 0.0
    matrix_variance: float = 0.0

    @classmethod
    def empty(cls, features: int) -> Pooled:
        """Return the sums over no chunk."""
        return cls(0, np.zeros(features + 1), np.zeros((features, features)))


@dataclass(frozen=True)
class StreamGauss:
    """The matrix of :class:`Gauss`, chunk by chunk.

    **Privacy.** A record is in one chunk, so ``parts`` releases of disjoint chunks cost as much as one.
    """

    parts: int

    @classmethod
    def configured(cls, problem: PcaProblem, parts: int) -> StreamGauss:
        """Refuse a matrix that does not fit."""
        Gauss.configured(problem, PcaOptions())
        return cls(parts)

    def plan(self, problem: PcaProblem) -> Plan:
        """Declare a mean and a matrix for each chunk."""
        chunks, norm = Disjoint(self.parts), problem.data_norm
        noise = problem.gaussian(1 / math.sqrt(SHARE))
        moments = Release(RowMoments(norm), noise, chunks, self.parts, mean=False)
        matrix_noise = problem.symmetric(weight_of_rest(problem))
        gram = Release(GramMatrix(norm), matrix_noise, chunks, self.parts, mean=False)
        return problem.planned(moments=moments, gram=gram)

    def absorb(self, curator: Curator, problem: PcaProblem, pooled: Pooled, size: int) -> Pooled:
        r"""Release the next chunk, of a public size, and add it to what is known.

        The chunk is measured from the mean c of all chunks up to it, which is sharper than its own mean m;
        ``sum x x^T = sum (x-c)(x-c)^T + n (c m^T + m c^T - c c^T)`` puts it back.
        """
        own = curator.release("moments")
        pooled = replace(
            pooled,
            count=pooled.count + size,
            moments=pooled.moments + own,
            moments_variance=pooled.moments_variance + noise_std(curator, "moments") ** 2,
        )
        place = self._place(curator, problem, pooled, size)
        c, m = place.mean, own[:-1]
        shift = np.outer(c, m) + np.outer(m, c) - size * np.outer(c, c)
        return replace(
            pooled,
            matrix=pooled.matrix + curator.release("gram", place.ball) + shift,
            matrix_variance=pooled.matrix_variance + noise_std(curator, "gram", place.ball) ** 2,
        )

    def _place(self, curator: Curator, problem: PcaProblem, pooled: Pooled, size: int) -> Location:
        multiplier = curator.plan.releases["gram"].mechanism.multiplier or 0.0
        level = multiplier * 2 * math.sqrt(problem.features) / size
        std = math.sqrt(pooled.moments_variance) / pooled.count
        return location_from(problem, pooled.moments / pooled.count, std, level)

    def principal(self, pooled: Pooled, problem: PcaProblem) -> Principal:
        """Return the axes of all chunks so far."""
        n, mean = pooled.count, pooled.moments[:-1] / pooled.count
        std = math.sqrt(pooled.moments_variance) / n
        place = location_from(problem, pooled.moments / n, std, 0.0)
        # The same noise is in the mean and in the matrix: taking the mean out takes most of it out.
        matrix = pooled.matrix / n - np.outer(mean, mean)
        return principal_of(matrix, math.sqrt(pooled.matrix_variance) / n, place, problem)
