"""Where the data lie and how far they spread: a cheap first release that makes all others sharper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.kernel import Curator, Full, Release
from sordino.kernel.arrays import Floats
from sordino.problems.covariance import Ball, PcaProblem, RowMoments

# The part of the squared privacy loss that the mean gets; the error is flat from .05 to .2.
SHARE = 0.1
# Rows are clipped a little below their root mean square distance s while the noise is strong, and later
# at ``s (LEVEL / level)^(1/6)``, where ``level`` is the spectral norm of the noise over the squared radius.
# At a radius f s the noise is ``level f^2``, and what clipping takes from rows with six moments is at most
# in proportion to ``f^-4``: their sum is least where f^6 is in proportion to one over the level.
LEVEL, SHORTEST, MOMENTS = 0.003, 0.85, 6


@dataclass(frozen=True)
class Location:
    """The released mean, the ball in which rows are measured, and the released total variance.

    ``total`` is None when nothing was released about it.
    """

    mean: Floats
    ball: Ball
    total: float | None

    def with_mean(self, product: Floats, block: Floats | None = None) -> Floats:
        """Add ``m m^T`` (times a block) to a second moment about m: it becomes one about zero."""
        right = self.mean if block is None else self.mean @ block
        return product + np.outer(self.mean, right)


def moments_release(problem: PcaProblem) -> dict[str, Release]:
    """Return the first release of an adaptive plan, or nothing."""
    if not problem.adaptive:
        return {}
    noise = problem.gaussian(1 / math.sqrt(SHARE))
    return {"moments": Release(RowMoments(problem.data_norm), noise, Full())}


def weight_of_rest(problem: PcaProblem, times: int = 1) -> float:
    """Return the relative noise of ``times`` releases that share what the mean leaves."""
    return math.sqrt(times / (1 - SHARE if problem.adaptive else 1.0))


def locate(curator: Curator, problem: PcaProblem, level: float) -> Location:
    r"""Release the mean m and the mean squared norm q; choose the ball from them.

    The mean is shrunk by the positive-part James-Stein factor ``a`` for its known noise. With ``s`` the
    squared length of the true mean, rows are at mean squared distance ``q - a s`` from ``a m``: often far
    below the squared row bound, and clipping them there divides the noise of all later releases by as much.

    **Privacy.** One release; the rest is post-processing.
    """
    if not problem.adaptive:
        return Location(np.zeros(problem.features), Ball(problem.data_norm), None)
    std = noise_std(curator, "moments") / problem.population
    return location_from(problem, curator.release("moments"), std, level)


def location_from(problem: PcaProblem, answer: Floats, std: float, level: float) -> Location:
    """Return the location that a released mean, with noise ``std`` on each entry, tells."""
    mean, square = RowMoments(problem.data_norm).read(answer)
    length = float(mean @ mean)
    signal = max(length - mean.size * std**2, 0.0)
    shrink = signal / length if length else 0.0
    mean, spread = shrink * mean, square - shrink * signal
    total = max(square - (signal if problem.center else 0.0), 1e-12 * problem.data_norm**2)
    return Location(mean, _ball(problem, mean, spread, level), total)


def _ball(problem: PcaProblem, mean: Floats, spread: float, level: float) -> Ball:
    bound = problem.data_norm + float(np.linalg.norm(mean))  # no clipped row is further away
    if level <= 0:
        return Ball(bound, mean)
    root = math.sqrt(max(spread, (0.05 * problem.data_norm) ** 2))
    return Ball(min(bound, root * max(SHORTEST, (LEVEL / level) ** (1 / MOMENTS))), mean)


def noise_std(curator: Curator, name: str, params: Any = None) -> float:
    """Return the standard deviation of the noise on a planned sum, which is public."""
    release = curator.plan.releases[name]
    multiplier = release.mechanism.multiplier or 0.0
    return multiplier * release.sensitivity(curator.plan.relation, params)


def noise_level(curator: Curator, name: str, problem: PcaProblem, columns: int) -> float:
    """Return the size of the noise in a mean of unit rows: that of a d x columns Gaussian block."""
    release = curator.plan.releases[name]
    multiplier = (release.mechanism.multiplier or 0.0) * math.sqrt(curator.plan.relation.contributions)
    spread = math.sqrt(problem.features) + math.sqrt(columns)
    return multiplier * spread / release.sampling.expected(problem.population)
