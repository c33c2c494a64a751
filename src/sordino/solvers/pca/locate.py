"""Where the data lie and how far they spread: a cheap first release that makes all others sharper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.kernel import Curator, Full, Release
from sordino.kernel.arrays import Floats
from sordino.problems.covariance import AxisSquares, Ball, PcaProblem, RowMoments

# The part of the squared privacy loss that the mean gets. Where rows lie far from zero for their spread, the
# error of the mean shows as an axis of its own, which .1 does not pay for; digits and a9a lose .001 by it.
SHARE = 0.15
# The part of it that the last question gets, of the variances of whole rows along the axes: less for fewer
# records, which it could tell nothing.
SPECTRUM_SHARE, SPECTRUM_RECORDS = 0.05, 6000.0
SPECTRUM_LEAST = 1e-6  # a smaller share tells nothing
# Rows are clipped a little below their root mean square distance s while the noise is strong, and later
# at ``s (LEVEL / level)^(1/6)``, where ``level`` is the spectral norm of the noise over the squared radius.
# At a radius f s the noise is ``level f^2``, and what clipping takes from rows with six moments is at most
# in proportion to ``f^-4``: their sum is least where f^6 is in proportion to one over the level.
LEVEL, SHORTEST, MOMENTS = 0.003, 0.85, 6
# Rows need no moments where longer ones cost noise of no more than this part of the total variance, over the
# root of the columns: many records leave no row clipped, and the axes are those of the plain second moment.
AFFORDED = 0.02
# What clipping usually takes from the variances, and how unevenly it takes from the axes.
USUAL, UNEVEN = 0.2, 0.35


@dataclass(frozen=True)
class Location:
    """The released mean, the ball in which rows are measured, and the released total variance.

    ``total`` is None when nothing was released about it. ``stray`` is the expected squared distance of the
    released from the true mean: a second moment about the former shows that much along an axis of its own.
    ``heard`` is the standard deviation of the noise in the total: below it, nothing is heard.
    """

    mean: Floats
    ball: Ball
    total: float | None
    stray: float = 0.0
    heard: float = 0.0

    def unclipped(self, trace: float, std: float, problem: PcaProblem) -> tuple[float, float]:
        """Return by what the variances were shortened with the rows, and how far that is in doubt.

        The released total over a noisy ``trace`` of the clipped rows is that factor, if all axes lost alike;
        they lose about as much, within ``UNEVEN`` of it. As far as the trace drowns, ``USUAL`` stands in.
        """
        if self.total is None or self.ball.radius >= self.bound(problem):
            return 1.0, 0.0
        wanted = self.total - (0.0 if problem.center else float(self.mean @ self.mean))
        known = 1.0 / (1.0 + min(std / (USUAL * max(wanted, 1e-300)), 1e9) ** 2)
        factor = min(max(wanted / trace, 1.0), 2.0) if trace > 0 else 2.0
        factor = known * factor + (1 - known) * (1 + USUAL)
        left = USUAL * math.sqrt(1 - known)  # the deviation of a value of which so much is known
        return factor, math.hypot(UNEVEN * (factor - 1) + left, self.heard / self.total)

    def real(self, variances: Floats, doubt: Floats) -> tuple[Floats, Floats]:
        """Return the variances without the stray one, and the doubt with it: any axis may have it."""
        share = min(self.stray / max(float(variances.sum()), 1e-300), 1.0)
        return (1 - share) * variances, np.hypot(doubt, np.minimum(self.stray, variances))

    def bound(self, problem: PcaProblem) -> float:
        """Return the largest distance of a row from the mean."""
        return problem.data_norm + float(np.linalg.norm(self.mean))

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


def weight_of_rest(problem: PcaProblem, times: int = 1, last: bool = False) -> float:
    """Return the relative noise of ``times`` releases that share what the mean (and the last one) leaves."""
    taken = SHARE + (spectrum_share(problem) if last else 0.0)
    return math.sqrt(times / (1 - taken if problem.adaptive else 1.0))


def spectrum_share(problem: PcaProblem) -> float:
    """Return the part of the last question, from public numbers."""
    share = SPECTRUM_SHARE * min(1.0, problem.population * problem.epsilon / SPECTRUM_RECORDS) ** 2
    return share if share > SPECTRUM_LEAST else 0.0


def spectrum_release(problem: PcaProblem) -> dict[str, Release]:
    """Return the last release of an adaptive plan, or nothing where its share would buy nothing."""
    share = spectrum_share(problem)
    if not problem.adaptive or not share > 0:
        return {}
    noise = problem.gaussian(1 / math.sqrt(share))
    return {"spectrum": Release(AxisSquares(problem.data_norm), noise, Full())}


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
    heard = min(RowMoments(problem.data_norm).square_noise(std), problem.data_norm**2)
    total = max(square - (signal if problem.center else 0.0), heard, 1e-12 * problem.data_norm**2)
    spread = max(spread, heard, (0.05 * problem.data_norm) ** 2)
    ball, stray = _ball(problem, mean, spread, level), shrink * mean.size * std**2
    return Location(mean, ball, total, stray, heard)


def _ball(problem: PcaProblem, mean: Floats, spread: float, level: float) -> Ball:
    bound = problem.data_norm + float(np.linalg.norm(mean))  # no clipped row is further away
    if level <= 0:
        return Ball(bound, mean)
    afforded = math.sqrt(AFFORDED / (math.sqrt(problem.features) * level))
    length = max(SHORTEST, (LEVEL / level) ** (1 / MOMENTS), afforded)
    return Ball(min(bound, math.sqrt(spread) * length), mean)


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
