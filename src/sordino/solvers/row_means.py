"""The mean of bounded rows, in one release."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sordino.kernel import Curator, Plan, Release
from sordino.kernel.arrays import Floats
from sordino.problems.robust import RobustSum, Truncation
from sordino.problems.sample import Sample
from sordino.solvers.heavy.shares import noise_of


@dataclass(frozen=True)
class NoisyMeans:
    """Released means of columns and the standard deviation of the noise in each of them."""

    value: Floats
    noise: float


@dataclass(frozen=True)
class RowMeans:
    r"""The mean of rows in a ball: ``c + (1/n) sum_i clip_r(x_i - c) + noise``, c and r public.

    **Privacy.** One Gaussian release of :class:`~sordino.problems.robust.RobustSum`, which clips every row to
    the ball whatever it holds.
    """

    centre: tuple[float, ...]
    radius: float

    def plan(self, problem: Sample) -> Plan:
        """Declare the sum."""
        query = RobustSum(problem.columns, Truncation(by="norm"))
        return problem.planned(scores=Release(query, problem.gaussian()))

    def run(self, curator: Curator, problem: Sample) -> Iterator[NoisyMeans]:
        """Yield the means with their noise."""
        centre = np.asarray(self.centre)
        params = (centre, np.full(centre.size, self.radius))
        noise = self.radius * noise_of(curator, "scores", params) / problem.population
        yield NoisyMeans(centre + self.radius * curator.release("scores", params), noise)
