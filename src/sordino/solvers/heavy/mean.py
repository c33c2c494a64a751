"""Means of heavy-tailed data (Algorithms 1 and 3 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import special

from sordino.errors import InvalidInputError
from sordino.kernel import Curator, Plan, Release
from sordino.kernel.arrays import Floats
from sordino.problems.robust import RobustSum, Truncation
from sordino.problems.sample import Sample
from sordino.problems.scales import ColumnScales
from sordino.solvers.heavy.bands import RobustEstimate, half_width, sampling_variance
from sordino.solvers.heavy.location import location_release, median_of
from sordino.solvers.heavy.shares import noise_of, share_relative
from sordino.solvers.heavy.threshold import Tail, known_bias, moment_threshold

_CLIP = Truncation()
SCALE_SHARE = 0.2  # of the budget, for the histogram of scales: it costs 12 % more noise
SIDE = 0.35  # the weight of a moment that only feeds the interval: it costs 6 % more noise


@dataclass(frozen=True)
class RobustMean:
    r"""The mean of truncated records, or the coordinate-wise median of truncated block means, with noise.

    Parameters
    ----------
    order : v, the data has a moment of order 1 + v.
    bound : u with ``E|x_j - center_j|^(1+v) <= u``; None learns the scale from a noisy histogram.
    fixed : a public threshold that replaces the choice.
    truncation : to the edge (default) or to zero (paper), with or without a joint clip.
    blocks : 1 for the truncated mean, m for the median of m block means.
    center : the public point around which values are truncated; None learns a rough median, for another
        tenth of the budget.
    failure : xi, in the threshold of a known moment.
    confidence : of the interval.

    **Privacy.** One Gaussian release (of the truncated values and, where the scale is learned, their squares,
    which tell the sampling error), and more for a learned centre and learned scales.
    """

    order: float
    bound: float | None
    center: Floats | None
    truncation: Truncation = _CLIP
    blocks: int = 1
    fixed: float | None = None
    failure: float = 0.05
    confidence: float = 0.95

    @property
    def _learns(self) -> bool:
        return self.bound is None and self.fixed is None

    @property
    def _squares(self) -> bool:
        return self._learns and self.blocks == 1

    def plan(self, problem: Sample) -> Plan:
        """Declare the halvings and the histogram, if any, and the mean."""
        if problem.secure_noise and self.blocks > 1:
            raise InvalidInputError("secure_noise=True is not proven for medians. Use estimator='truncated'.")
        powers = ((1, 1.0), (2, SIDE)) if self._squares else ((1, 1.0),)
        query = RobustSum(problem.columns, self.truncation, self.blocks, powers)
        releases = {}
        if self.center is None:
            releases["location"] = location_release(problem)
        if self._learns:
            hint = problem.gaussian(share_relative(SCALE_SHARE))
            releases["scales"] = Release(ColumnScales(problem.columns), hint, mean=False)
        releases["mean"] = Release(query, problem.gaussian(), mean=False)
        return problem.planned(**releases)

    def run(self, curator: Curator, problem: Sample) -> Iterator[RobustEstimate]:
        """Yield the estimate."""
        z = self.blocks * noise_of(curator, "mean", None)  # of the mean, in units of threshold / n
        center = (
            median_of(curator, problem.population, problem.columns) if self.center is None else self.center
        )
        tails = tails_of(curator, center, 1.0 + self.order) if self._learns else None
        n, width = problem.population, problem.columns
        if tails is not None:
            cut = np.array([tail.threshold(z) for tail in tails])
        else:
            cut = np.full(width, self._known_threshold(z, n))
        moments = curator.release("mean", (center, cut)) * (self.blocks / n)
        first, noise = moments[:width], z * cut / n
        if self._squares:
            spread = cut**2 * sampling_variance(moments[width:] / SIDE, first, z / (SIDE * n), n)
        else:
            spread = self._second(tails, cut, n) / n
        half = self._half(noise, spread, self._bias(tails, cut, n))
        yield RobustEstimate(center + cut * first, cut, noise, half)

    def _known_threshold(self, z: float, n: int) -> float:
        if self.fixed is not None:
            return self.fixed
        log = math.log(1.0 / self.failure)
        return moment_threshold(float(self.bound or 0.0), self.order, n, z, log)

    def _bias(self, tails: list[Tail] | None, cut: Floats, n: int) -> Floats:
        """Return bounds of the bias of truncation."""
        if self.fixed is not None or self.truncation.joint is not None:
            return np.full(cut.shape, math.inf)  # no moment of one column tells what these hide
        zero = self.truncation.zero
        if tails is not None:
            return np.array([tail.bias(t, n, 1, zero) for tail, t in zip(tails, cut, strict=True)])
        return np.array([known_bias(float(self.bound or 0.0), self.order, t, zero) for t in cut])

    def _second(self, tails: list[Tail] | None, cut: Floats, n: int) -> Floats:
        """Return bounds of the second moment of the truncated values."""
        if tails is not None:
            bounds = np.array([tail.moment(t, n, 2) for tail, t in zip(tails, cut, strict=True)])
        else:
            bounds = (self.bound or math.inf) * cut ** (1.0 - self.order)
        return np.minimum(bounds, cut**2)

    def _half(self, noise: Floats, spread: Floats, bias: Floats) -> Floats:
        if self.blocks == 1:
            return half_width(np.sqrt(noise**2 + spread), bias, self.confidence)
        miss = (1.0 - self.confidence) / 2.0  # half for the blocks, half for the noise
        return half_width(noise, bias + median_error(spread, self.blocks, miss), 1.0 - miss)


def tails_of(curator: Curator, center: Floats, index: float) -> list[Tail]:
    """Release the histogram of distances from the centre and read the tail of each column."""
    counts = curator.release("scales", center)
    width = noise_of(curator, "scales", center)
    return [Tail.read(c, width, index) for c in counts]


def median_error(variance: Floats, blocks: int, failure: float) -> Floats:
    r"""Bound the error of a median of m block means, ``variance`` being that of the mean of all records.

    Each block mean deviates by at most ``sqrt(m variance / p)`` with probability 1 - p (Chebyshev), and p is
    such that half of the blocks fail with probability at most ``failure``.
    """
    half = (blocks + 1) // 2
    p = special.betaincinv(half, blocks - half + 1, failure)
    return np.sqrt(variance * blocks / p)
