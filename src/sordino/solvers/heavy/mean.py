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
from sordino.solvers.heavy.bands import RobustEstimate, reaches, sampling_variance
from sordino.solvers.heavy.hidden import DOUBT_SQUARES, Seen, hidden_limit, two_sides
from sordino.solvers.heavy.location import UNLIMITED, location_release, median_of
from sordino.solvers.heavy.shares import noise_of, share_relative
from sordino.solvers.heavy.threshold import Tail, known_bias, moment_threshold

_CLIP = Truncation()
SCALE_SHARE = 0.2  # of the budget, for the histogram of scales: it costs 12 % more noise
SIDE = 0.35  # the weight of a moment that only feeds the interval: it costs 6 % more noise
# Where no tail is declared, the interval has to see it: 20 % more noise, 3 to 7 % more error at n = 1,000.
SEEING_SHARE, SEEING_SIDE = 0.3, 0.65


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
    declared : whether the order is known, so that the interval may rest on it. If not, the histogram and the
        squares are released for each side of the centre, and tell how heavy the tails may be.
    bounds : public limits of the numbers, which the data were clipped to.

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
    declared: bool = True
    bounds: tuple[float, float] = UNLIMITED

    @property
    def _learns(self) -> bool:
        return self.bound is None and self.fixed is None

    @property
    def takes_plain(self) -> bool:
        """Whether bounds are declared and nothing else is: then the plain mean at them is asked as well."""
        return self.bounds != UNLIMITED and self._learns and self.blocks == 1 and self.truncation == _CLIP

    @property
    def _squares(self) -> bool:
        return self._learns and self.blocks == 1

    @property
    def _sees(self) -> bool:
        """Whether the interval rests on what the counts of both sides show."""
        return self._learns and not (self.declared or self.takes_plain) and self.truncation.joint is None

    def plan(self, problem: Sample) -> Plan:
        """Declare the halvings and the histogram, if any, and the mean."""
        if problem.secure_noise and self.blocks > 1:
            raise InvalidInputError("secure_noise=True is not proven for medians. Use estimator='truncated'.")
        squares = ((2, SEEING_SIDE if self._sees else SIDE),) if self._squares else ()
        powers, apart = (((1, 1.0),), squares) if self._sees else (((1, 1.0), *squares), ())
        query = RobustSum(problem.columns, self.truncation, self.blocks, powers, apart)
        releases = {}
        if self.center is None:
            releases["location"] = location_release(problem, self.bounds)
        if self._learns:
            hint = problem.gaussian(share_relative(SEEING_SHARE if self._sees else SCALE_SHARE))
            releases["scales"] = Release(ColumnScales(problem.columns, self._sees), hint, mean=False)
        releases["mean"] = Release(query, problem.gaussian(), mean=False)
        return problem.planned(**releases)

    def run(self, curator: Curator, problem: Sample) -> Iterator[RobustEstimate]:
        """Yield the estimate."""
        z = self.blocks * noise_of(curator, "mean", None)  # of the mean, in units of threshold / n
        n, width = problem.population, problem.columns
        center = self.center
        if center is None:
            center = median_of(curator, n, width, limits=self.bounds)
        scales = Scales.read(curator, center, 1.0 + self.order, self._sees) if self._learns else None
        if scales is not None:
            cut = np.array([tail.threshold(z) for tail in scales.tails])
        else:
            cut = np.full(width, self._known_threshold(z, n))
        moments = curator.release("mean", (center, cut)) * (self.blocks / n)
        first, noise = moments[:width], z * cut / n
        squares = moments[width:].reshape(-1, width) / (SEEING_SIDE if self._sees else SIDE)
        if self._squares:
            blur = z / ((SEEING_SIDE / math.sqrt(2.0) if self._sees else SIDE) * n)
            spread = cut**2 * sampling_variance(squares.sum(axis=0), first, blur, n)
        else:
            spread = self._second(scales, cut, n) / n
        below, above = self._bias(scales, cut, n, squares, z / SEEING_SIDE)
        if self.truncation == _CLIP:  # nothing lies beyond the bounds, so nothing there is hidden
            below = np.minimum(below, np.maximum(center - cut - self.bounds[0], 0.0))
            above = np.minimum(above, np.maximum(self.bounds[1] - center - cut, 0.0))
        sure = np.array([scales is None or scales.tails[j].sure for j in range(width)])
        ends = self._reaches(noise, spread, below, above)
        endless = self._sees and bool(sure.all()) and not np.isfinite(below + above).all()
        found = RobustEstimate(center + cut * first, cut, noise, *ends, endless, center, spread, sure)
        yield found.within(*self.bounds)

    def _known_threshold(self, z: float, n: int) -> float:
        if self.fixed is not None:
            return self.fixed
        log = math.log(1.0 / self.failure)
        return moment_threshold(float(self.bound or 0.0), self.order, n, z, log)

    def _bias(
        self, scales: Scales | None, cut: Floats, n: int, squares: Floats, blur: float
    ) -> tuple[Floats, Floats]:
        """Return bounds of the bias of truncation below and above."""
        zero = self.truncation.zero
        if self.fixed is not None or self.truncation.joint is not None:
            bias = np.full(cut.shape, math.inf)  # no moment of one column tells what these hide
        elif scales is None:
            bias = np.array([known_bias(float(self.bound or 0.0), self.order, t, zero) for t in cut])
        elif not scales.apart:
            bias = np.array([tail.bias(t, n, 1, zero) for tail, t in zip(scales.tails, cut, strict=True)])
        else:
            return scales.hidden(cut, n, squares * n if self._squares else None, blur, zero)
        return bias, bias

    def _second(self, scales: Scales | None, cut: Floats, n: int) -> Floats:
        """Return bounds of the second moment of the truncated values."""
        if scales is not None:
            bounds = np.array([tail.moment(t, n, 2) for tail, t in zip(scales.tails, cut, strict=True)])
        else:
            bounds = (self.bound or math.inf) * cut ** (1.0 - self.order)
        return np.minimum(bounds, cut**2)

    def _reaches(self, noise: Floats, spread: Floats, below: Floats, above: Floats) -> tuple[Floats, Floats]:
        if self.blocks == 1:
            return reaches(np.sqrt(noise**2 + spread), below, above, self.confidence)
        miss = (1.0 - self.confidence) / 2.0  # half for the blocks, half for the noise
        error = median_error(spread, self.blocks, miss)
        return reaches(noise, below + error, above + error, 1.0 - miss)


@dataclass(frozen=True)
class Scales:
    """The released histogram of distances from the centre: the tail of each column, and each of its sides."""

    tails: list[Tail]
    counts: Floats
    noise: float
    apart: bool

    @classmethod
    def read(cls, curator: Curator, center: Floats, index: float, apart: bool = False) -> Scales:
        """Release the histogram."""
        counts, noise = curator.release("scales", center), noise_of(curator, "scales", center)
        both, blur = (counts.sum(axis=0), noise * math.sqrt(2.0)) if apart else (counts, noise)
        return cls([Tail.read(c, blur, index) for c in both], counts, noise, apart)

    def hidden(
        self, cut: Floats, n: int, squares: Floats | None, blur: float, zero: bool
    ) -> tuple[Floats, Floats]:
        """Return what truncation hides below and above the centre, column by column."""
        out = []
        for j, (tail, t) in enumerate(zip(self.tails, cut, strict=True)):
            above, below = (
                Seen(side[j], self.noise, n, float(t), told, zero)
                for side, told in zip(self.counts, _told(squares, j, blur), strict=True)
            )
            out.append(two_sides(above, below, tail.index) if tail.sure else (math.inf, math.inf))
        low, high = np.array(out).T
        return low, high

    def squares(self, cut: Floats, n: int, moments: list[tuple[int, Floats, float]]) -> Floats:
        """Return what truncation hides of the mean squares, column by column."""
        out = []
        for j, (tail, t) in enumerate(zip(self.tails, cut, strict=True)):
            told = tuple((k, float(value[j]), noise) for k, value, noise in moments)
            seen = Seen(self.counts[j], self.noise, n, float(t), told)
            out.append(hidden_limit(seen, 2, DOUBT_SQUARES) if tail.sure else math.inf)
        return np.array(out)


def _told(squares: Floats | None, column: int, noise: float) -> list[tuple[tuple[int, float, float], ...]]:
    """Return the squares above and below the centre as moments of tails; none where none were released."""
    return [(), ()] if squares is None else [((2, float(side[column]), noise),) for side in squares]


def median_error(variance: Floats, blocks: int, failure: float) -> Floats:
    r"""Bound the error of a median of m block means, ``variance`` being that of the mean of all records.

    Each block mean deviates by at most ``sqrt(m variance / p)`` with probability 1 - p (Chebyshev), and p is
    such that half of the blocks fail with probability at most ``failure``.
    """
    half = (blocks + 1) // 2
    p = special.betaincinv(half, blocks - half + 1, failure)
    return np.sqrt(variance * blocks / p)
