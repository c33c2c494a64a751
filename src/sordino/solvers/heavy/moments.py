"""Variances and covariances of heavy-tailed data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from sordino.kernel import Curator, Laplace, Norm, Plan, Release, SymmetricGaussian
from sordino.kernel.arrays import Floats
from sordino.problems.covariance import Ball, GramMatrix
from sordino.problems.robust import BoundedMoments, RobustSum, Sample
from sordino.problems.scales import EDGES, ColumnScales, PairMoments, PairScales
from sordino.solvers.base import noise_std
from sordino.solvers.heavy.location import (
    HALVINGS,
    SCALE_SHARE,
    SIDE,
    UNLIMITED,
    RobustEstimate,
    RobustMean,
    Scales,
    Tail,
    half_width,
    location_release,
    median_of,
    reaches,
    sampling_variance,
    share_relative,
)


@dataclass(frozen=True)
class RobustVariance:
    r"""``mean a^2 - (mean a)^2`` of values truncated around a rough median, in units of the threshold.

    All records count, whatever their order. The squares have a moment of order 1 + v, on which the interval
    rests if it is ``declared``; if not, on what the released counts and powers show.

    **Privacy.** Halvings for the median, a histogram of the distances from it, then one Gaussian release of
    the truncated values, their squares and their fourth powers, which tell the sampling error.
    """

    order: float
    confidence: float = 0.95
    declared: bool = True
    bounds: tuple[float, float] = UNLIMITED

    def plan(self, problem: Sample) -> Plan:
        hint = problem.gaussian(share_relative(SCALE_SHARE))
        powers = RobustSum(problem.columns, powers=((2, 1.0), (1, SIDE), (4, SIDE)))
        return problem.planned(
            location=location_release(problem),
            scales=Release(ColumnScales(problem.columns), hint, mean=False),
            powers=Release(powers, problem.gaussian(), mean=False),
        )

    def run(self, curator: Curator, problem: Sample) -> Iterator[RobustEstimate]:
        n = problem.population
        center = median_of(curator, n, problem.columns, limits=self.bounds)
        z = noise_std(curator, "powers")
        scales = Scales.read(curator, center, 2.0 * (1.0 + self.order))
        cut = np.array([tail.threshold(z, 2) for tail in scales.tails])
        second, first, fourth = curator.release("powers", (center, cut)).reshape(3, -1) / n
        first, fourth = first / SIDE, fourth / SIDE
        spread = sampling_variance(fourth, np.clip(second, 0.0, 1.0), 0.0, n)  # the bias leaves room enough
        noise = z * cut**2 / n
        both = noise * np.hypot(1.0, 2.0 * np.clip(first, -1.0, 1.0) / SIDE)  # of the square and of the mean
        std = np.sqrt(both**2 + cut**4 * spread)
        value = cut**2 * np.maximum(second - first**2, 0.0)
        hides = usual = np.array([tail.bias(t, n, 2) for tail, t in zip(scales.tails, cut, strict=True)])
        if not self.declared:
            hides = scales.squares(cut, n, [(2, second * n, z), (4, fourth * n, z / SIDE)])
        hides = np.maximum(usual, hides)
        # Truncation makes squares smaller only; half of the room below is for a heavy tail's sampling error.
        down, up = reaches(std, usual if self.declared else usual / 2.0, hides, self.confidence)
        sure = np.array([tail.sure for tail in scales.tails])
        shut = self.declared or np.isfinite(hides).all() or not sure.all()
        most = cut**4 * sampling_variance(fourth, np.clip(second, 0.0, 1.0), 4.0 * z / (SIDE * n), n)
        point = np.array([tail.point for tail in scales.tails])
        found = RobustEstimate(value, cut, noise, down, up, not shut, center, most, sure, point)
        yield found.within(0.0, math.inf)


@dataclass(frozen=True)
class RobustCovariance:
    r"""The covariance matrix from differences of pairs, which need no location.

    ``Cov = E[(x - x')(x - x')^T] / 2``. The squared differences have a moment of order 1 + v.

    **Privacy.** Histograms of the scales of the differences, then one Gaussian release of their truncated
    outer products. A record is in one pair only.
    """

    order: float
    confidence: float = 0.95

    def plan(self, problem: Sample) -> Plan:
        hint = problem.gaussian(share_relative(SCALE_SHARE / 2.0))
        return problem.planned(
            scales=Release(PairScales(problem.columns), hint, mean=False),
            norms=Release(PairScales(problem.columns, norms=True), hint, mean=False),
            moments=Release(PairMoments(problem.columns), SymmetricGaussian(), mean=False),
        )

    def run(self, curator: Curator, problem: Sample) -> Iterator[RobustEstimate]:
        pairs, index = problem.population // 2, 2.0 * (1.0 + self.order)
        counts, width = curator.release("scales"), noise_std(curator, "scales")
        tails = [Tail.read(c, width, index) for c in counts]
        typical = _fill_units([math.sqrt(tail.moment(tail.edge, pairs, 2)) for tail in tails], tails)
        norms = curator.release("norms", typical)[0]
        tail = Tail.read(norms, noise_std(curator, "norms"), index)
        z = noise_std(curator, "moments")
        cut, unit = tail.threshold(z, 2), np.outer(typical, typical)
        value = curator.release("moments", typical * cut) / pairs * cut**2 * unit
        noise = z * cut**2 / pairs * unit * np.where(np.eye(len(unit)) > 0, 1.0, math.sqrt(0.5))
        spread = math.sqrt(min(tail.moment(cut, pairs, 4), cut**4) / pairs) * unit
        bias = tail.bias(cut, pairs, 2) * unit
        half = half_width(np.hypot(noise, spread), bias, self.confidence)
        found = RobustEstimate(positive(value), typical * cut, noise, half, half)
        yield replace(found, spread=np.square(spread), sure=tail.sure)


def _fill_units(sizes: list[float], tails: list[Tail]) -> Floats:
    """Return the unit of each column; one whose counts show nothing gets the largest unit of the others.

    A unit that is far too small would make all normed rows long, and their cut, in the units of the other
    columns, noise without bound.
    """
    shown = np.array([tail.edge > EDGES[0] for tail in tails])
    found = np.array(sizes)
    return np.where(shown, found, found[shown].max()) if shown.any() else found


def positive(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


# --------------------------------------------------- Means and variances of numbers between declared bounds
# Two answers are released: the plain moment at the declared bounds, which no tail can bias, and the
# truncated one of :class:`RobustMean` or :class:`RobustVariance`, whose noise is that of the bulk. The latter
# is taken as long as the two agree; the farther they are apart in deviations of their noise, the more the
# plain one counts. The interval is that of the plain one: it holds whatever lies where counts cannot see
# it.

# Beside the truncated answer: about .6 of epsilon for one number (Laplace noise, the smallest there is for
# one), and 70 % of the zCDP cost for several.
ALONE, BESIDE = 0.17, 0.54
# The distance, in deviations of its noise, up to which the truncated answer is taken: ``AGREE + RISE ln q``,
# q the noise of the plain one over the error of the truncated one. The more the truncated one can win, the
# more has to be seen against it; where it can win nothing, it is not taken. Where the bulk is a single value
# as far as the halvings can tell, there is no bulk to speak of and it is AGREE. ``FADE`` deviations farther
# the truncated answer is not taken at all. Gaussian noise strays less far than that of Laplace: see ``MOST``.
AGREE, RISE, FADE = 0.6, 1.1, 1.5
MOST_LAPLACE, MOST_GAUSSIAN = 4.0, 3.0
POINT = 8.0 * 2.0**-HALVINGS  # of the radius: four steps of the halvings
_SQUARE = 0.2  # the weight of squares beside a mean: 10 % more noise
_LARGEST = 1e150  # numbers beyond have no squares: they are clipped there
_FIRST = 0.25  # the weight of the mean beside squares


@dataclass(frozen=True)
class BoundedMean:
    """The mean of numbers between bounds: the plain one and the truncated one, by their released distance.

    ``once`` says that a single number may have Laplace noise: half of what Gaussian noise would be for one
    question, but where many questions are added up it costs them more.

    **Privacy.** The releases of the truncated mean and one of the plain moments.
    """

    robust: RobustMean
    once: bool = True

    def plan(self, problem: Sample) -> Plan:
        return _with_plain(problem, self.robust.plan(problem), 1.0, _SQUARE, self.once)

    def run(self, curator: Curator, problem: Sample) -> Iterator[RobustEstimate]:
        (robust,) = self.robust.run(curator, problem)
        low, high = self.robust.bounds
        middle, radius = low / 2.0 + high / 2.0, high / 2.0 - low / 2.0
        plain = PlainMoments.read(curator, problem, middle, radius)
        spread = sampling_variance(plain.second, plain.first, plain.second_noise, plain.count)
        rare = 1.0 + np.minimum(np.abs(plain.first), 1.0)
        half = radius * plain.half_width(plain.first_noise, spread, rare, self.robust.confidence)
        value, noise = middle + radius * plain.first, radius * plain.first_noise
        yield plain.beside(robust, value, noise, half, radius).within(low, high)


@dataclass(frozen=True)
class BoundedVariance:
    """The variance of numbers between bounds: the plain one and the truncated one, as for the mean.

    Both are measured from the rough median of the truncated one.

    **Privacy.** As for the mean.
    """

    robust: RobustVariance
    once: bool = True

    def plan(self, problem: Sample) -> Plan:
        return _with_plain(problem, self.robust.plan(problem), _FIRST, 1.0, self.once)

    def run(self, curator: Curator, problem: Sample) -> Iterator[RobustEstimate]:
        (robust,) = self.robust.run(curator, problem)
        low, high = np.clip(self.robust.bounds, -_LARGEST, _LARGEST)
        center = np.clip(robust.center, low, high)
        radius = np.maximum(high - center, center - low)
        plain = PlainMoments.read(curator, problem, center, radius)
        first = np.clip(plain.first, -1.0, 1.0)
        value = radius**2 * (plain.second - first**2)
        noise = radius**2 * np.hypot(plain.second_noise, 2.0 * first * plain.first_noise)
        # E(x - c)^4 is what the truncated values show, and beyond the cut at most radius^2 E(x - c)^2.
        unseen = np.where(robust.sure, value - robust.value, value) + np.hypot(noise, robust.noise) / 2.0
        spread = robust.spread + radius**2 * np.maximum(unseen, 0.0) / plain.count
        spread = np.minimum(spread, radius**2 * np.maximum(value + noise, 0.0) / plain.count)
        half = plain.half_width(noise, spread, radius**2, self.robust.confidence)
        found = plain.beside(robust, value, noise, half, radius, rises=True)
        yield found.within(0.0, (high / 2.0 - low / 2.0) ** 2)  # a variance between bounds is at most that


@dataclass(frozen=True)
class BoundedCovariance:
    r"""The covariance of rows between bounds: the plain one and that of truncated pairs, entry by entry.

    The plain one is ``mean a a^T - (mean a)(mean a)^T``, a the row less the middle of the bounds.

    **Privacy.** The releases of the truncated one, one of the plain second moments and one of the means.
    """

    robust: RobustCovariance
    bounds: tuple[float, float]

    def plan(self, problem: Sample) -> Plan:
        robust, d = self.robust.plan(problem), problem.columns
        gram = Release(GramMatrix(self._radius * math.sqrt(d)), SymmetricGaussian(relative=BESIDE))
        means = Release(RobustSum(d), problem.gaussian(2.0 * BESIDE))
        return problem.planned(**robust.releases, gram=gram, means=means)

    @property
    def _radius(self) -> float:
        return min(self.bounds[1] / 2.0 - self.bounds[0] / 2.0, _LARGEST)

    def run(self, curator: Curator, problem: Sample) -> Iterator[RobustEstimate]:
        (robust,) = self.robust.run(curator, problem)
        n, d, radius = problem.population, problem.columns, self._radius
        middle = np.full(d, self.bounds[0] / 2.0 + self.bounds[1] / 2.0)
        means = np.clip(curator.release("means", (middle, np.full(d, radius))), -1.0, 1.0)
        ball = Ball(radius * math.sqrt(d), middle)
        value = curator.release("gram", ball) - radius**2 * np.outer(means, means)
        square = noise_std(curator, "gram", ball) / n * np.where(np.eye(d) > 0, 1.0, math.sqrt(0.5))
        sizes = np.abs(means)
        of_means = radius**2 * noise_std(curator, "means") / n * np.hypot.outer(sizes, sizes)
        noise = np.hypot(square, of_means)
        # E (x_i x_j)^2 is what the truncated pairs show, and beyond their cut at most (2 R)^2 E x_i^2.
        unseen = np.maximum(np.diag(value - robust.value) + np.diag(noise) / 2.0, 0.0)
        spread = robust.spread + (2.0 * radius) ** 2 * np.sqrt(np.outer(unseen, unseen)) / n
        plain = PlainMoments(means, means, 0.0, 0.0, n, False)
        half = plain.half_width(noise, spread, (2.0 * radius) ** 2, self.robust.confidence)
        found = plain.beside(robust, value, noise, half, radius).within(-(radius**2), radius**2)
        yield replace(found, value=positive(found.value))


@dataclass(frozen=True)
class PlainMoments:
    """Released means of a and a^2, a in [-1, 1], with the standard deviations of their noise."""

    first: Floats
    second: Floats
    first_noise: float
    second_noise: float
    count: int
    laplace: bool

    @classmethod
    def read(
        cls, curator: Curator, problem: Sample, center: Floats | float, radius: Floats | float
    ) -> PlainMoments:
        query: BoundedMoments = curator.plan.releases["bounded"].query  # type: ignore[assignment]
        laplace, n = query.norm is Norm.L1, problem.population
        answer = curator.release("bounded", (center, radius)) / n
        std = noise_std(curator, "bounded") / n
        first, second = answer[0] / query.first, answer[1] / query.second + 0.5
        return cls(first, second, std / query.first, std / query.second, n, laplace)

    def half_width(
        self, noise: Floats | float, spread: Floats, rare: Floats | float, confidence: float
    ) -> Floats:
        """Return how far an interval reaches: noise, sampling error of variance ``spread``, rare values.

        Values that no record happens to show may have a share of 3 in n (at 95 %), and ``rare`` is how far
        out they can be. Few that are shown look less spread where they are fewer by chance, which a deviation
        longer by ``rare / n`` makes up for, as in Wilson's interval of a proportion.
        """
        std, noise = np.sqrt(spread) + rare / self.count, np.broadcast_to(noise, np.shape(spread))
        if self.laplace:
            half = np.array([_laplace_half(*pair, confidence) for pair in zip(std, noise, strict=True)])
        else:
            half = half_width(np.hypot(std, noise), np.zeros(np.shape(std)), confidence)
        return np.hypot(half, -math.log1p(-confidence) * rare / self.count)

    def beside(
        self,
        robust: RobustEstimate,
        value: Floats,
        noise: Floats | float,
        half: Floats,
        radius: Floats | float,
        rises: bool = False,
    ) -> RobustEstimate:
        """Return the truncated answer where the plain ``value`` agrees with it, else that; between, a mean.

        The interval is that of the plain one, and holds the answer. What ``rises`` by tails alone is no less
        than the truncated one.
        """
        tiny, above = 1e-300, value - robust.value
        distance = (above if rises else np.abs(above)) / np.maximum(np.hypot(noise, robust.noise), tiny)
        error = np.sqrt(np.square(robust.noise) + robust.spread + np.square(robust.hidden))
        gain = np.maximum(noise / np.maximum(error, tiny), tiny)
        most = MOST_LAPLACE if self.laplace else MOST_GAUSSIAN
        start = np.minimum(AGREE + RISE * np.log(gain), most)
        point = robust.point & (robust.threshold <= POINT * radius)
        start = np.where(point, np.minimum(start, AGREE), start)
        weight = np.where(robust.sure, np.clip((distance - start) / FADE, 0.0, 1.0), 1.0)
        found = robust.value + weight * above
        low, high = np.minimum(value - half, found), np.maximum(value + half, found)
        cut = np.where(weight < 1.0, robust.threshold, radius)
        std = np.hypot(weight * noise, (1.0 - weight) * robust.noise)
        return RobustEstimate(found, cut, std, found - low, high - found)


def _with_plain(problem: Sample, robust: Plan, first: float, second: float, once: bool) -> Plan:
    alone = problem.columns == 1 and once
    query = BoundedMoments(problem.columns, first, second, Norm.L1 if alone else Norm.L2)
    noise = Laplace(relative=ALONE) if alone else problem.gaussian(BESIDE)
    return problem.planned(**robust.releases, bounded=Release(query, noise, mean=False))


def _laplace_half(std: float, noise: float, confidence: float) -> float:
    """Return h with ``P(|N(0, std^2) + Laplace| <= h) = confidence``, the latter of deviation ``noise``."""
    scale, miss = noise / math.sqrt(2.0), 1.0 - confidence
    if std <= 1e-6 * noise or noise <= 1e-6 * std:
        return max(-math.log(miss) * scale, float(special.ndtri(1.0 - miss / 2.0)) * std)
    ratio, low = std / scale, 0.0
    high = -math.log(miss / 2.0) * scale + float(special.ndtri(1 - miss / 4)) * std
    for _ in range(60):
        h = (low + high) / 2.0
        z, even = h / std, ratio**2 / 2.0
        right = math.exp(even - h / scale + float(special.log_ndtr(z - ratio)))
        left = math.exp(min(even + h / scale + float(special.log_ndtr(-z - ratio)), 700.0))
        beyond = 2.0 * (float(special.ndtr(-z)) + (right - left) / 2.0)
        low, high = (h, high) if beyond > miss else (low, h)
    return high
