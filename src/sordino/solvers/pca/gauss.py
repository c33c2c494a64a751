"""Analyze-Gauss: the whole second moment once, with symmetric noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import Curator, Full, Plan, Release
from sordino.kernel.arrays import Floats
from sordino.problems.covariance import GramMatrix, PcaProblem
from sordino.solvers.pca.locate import (
    Location,
    locate,
    moments_release,
    noise_level,
    noise_std,
    spectrum_release,
    weight_of_rest,
)
from sordino.solvers.pca.measured import measured
from sordino.solvers.pca.options import PcaOptions, fits_matrix
from sordino.solvers.pca.spectrum import (
    Principal,
    captured_variance,
    decompose,
    filled,
    shared,
    strength,
)


@dataclass(frozen=True)
class Gauss:
    r"""Eigenvectors of ``sum (x_i - m)(x_i - m)^T / n + noise``, rows clipped about the released mean m.

    **Privacy.** One Gaussian release of the mean, one of the matrix with noise of the Gaussian orthogonal
    ensemble (half the off-diagonal variance of independent entries), one of the variances along the axes.

    References: Dwork et al. 2014. Departures: symmetric noise; rows are measured from the released mean
    and clipped at their released spread, which makes the second release sharper.
    """

    @classmethod
    def configured(cls, problem: PcaProblem, options: PcaOptions) -> Gauss:
        """Refuse a matrix that does not fit."""
        if not fits_matrix(problem.features):
            raise InvalidInputError(
                f"Expected at most 3952 features for solver 'gauss' (500 MB of matrices), got "
                f"{problem.features}. Use solver='power'."
            )
        return cls()

    def plan(self, problem: PcaProblem) -> Plan:
        """Declare the mean and the matrix."""
        noise = problem.symmetric(weight_of_rest(problem, last=True))
        gram = Release(GramMatrix(problem.data_norm), noise, Full())
        return problem.planned(**moments_release(problem), gram=gram, **spectrum_release(problem))

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        """Yield the axes."""
        d = problem.features
        place = locate(curator, problem, noise_level(curator, "gram", problem, d))
        matrix = curator.release("gram", place.ball)
        std = noise_std(curator, "gram", place.ball) / problem.population
        yield measured(curator, problem, principal_of(matrix, std, place, problem))


def principal_of(matrix: Floats, std: float, place: Location, problem: PcaProblem) -> Principal:
    """Return the axes of a noisy second moment about ``place.mean``; ``std`` is that of its diagonal."""
    d, k = problem.features, problem.components
    factor, moved = place.unclipped(float(np.trace(matrix)), std * math.sqrt(d), problem)
    matrix, std = factor * matrix, factor * std
    if not problem.center:
        matrix = place.with_mean(matrix)
    noisy, axes = decompose(matrix, k)
    total = float(np.trace(matrix)) if place.total is None else place.total
    variances, doubt = place.real(*captured_variance(noisy, std, k))
    doubt, total = np.hypot(doubt, moved * variances), max(total, 1e-300)
    variances, doubt = filled(variances, total, d), shared(doubt, d)
    edge = strength(std, d)
    return Principal(axes, variances, noisy[:k], std, doubt, edge, total, place.mean, place.stray)
