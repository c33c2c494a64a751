"""Location of heavy-tailed data: rough medians, intervals, trees of counts, and means (Algorithms 1, 3)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from scipy import special

from sordino.kernel import Curator, Plan, Release
from sordino.kernel.arrays import Bools, Floats, Ints
from sordino.problems.robust import RobustSum, Sample, Truncation
from sordino.problems.scales import BINS, EDGES, REACH, ColumnScales, CountsBelow
from sordino.solvers.base import noise_std

# ----------------------- What a histogram costs beside the rest of a plan, and how much noise a release has


def share_relative(share: float, times: float = 1.0) -> float:
    """Return the relative noise that gives a Gaussian release this share beside ``times`` others."""
    return math.sqrt((1.0 - share) / (share * times))


# --------- Half-widths of intervals from a known noise, an estimated sampling error and a bound of the bias

_FAR = 8.0  # biases of so many deviations: the far end of the normal law does not count any more


def half_width(std: Floats, bias: Floats, confidence: float) -> Floats:
    r"""Return the smallest h with ``P(|N(b, std^2)| <= h) >= confidence`` for every ``|b| <= bias``.

    The worst bias is the largest. ``h / std`` is the root of a quantile of the noncentral chi-square law,
    which is shorter than the normal quantile plus the bias.
    """
    std, bias = np.broadcast_arrays(np.asarray(std, dtype=float), np.asarray(bias, dtype=float))
    ratio = np.divide(bias, std, out=np.full(std.shape, np.inf), where=std > 0)
    near = np.sqrt(special.chndtrix(confidence, 1.0, np.minimum(ratio, _FAR) ** 2))
    far = bias + special.ndtri(confidence) * std
    return np.where(ratio < _FAR, near * std, far)


def reaches(std: Floats, below: Floats, above: Floats, confidence: float) -> tuple[Floats, Floats]:
    r"""Return how far an interval has to reach down and up if the bias is anything from -below to above.

    Its ends are the biases and k deviations more, with ``Phi(k) - Phi(-k - (below + above) / std)`` equal to
    the confidence: the k of :func:`half_width` for two equal ones.
    """
    std = np.asarray(std, dtype=float)
    middle = np.minimum((below + above) / 2.0, _FAR * std)
    more = half_width(std, middle, confidence) - middle
    return below + more, above + more


@dataclass(frozen=True)
class RobustEstimate:
    """A released value, where it was truncated, its noise and how far its interval reaches down and up.

    All of it is post-processing of released numbers. ``noise`` is a standard deviation; the reaches hold
    noise, sampling error and the bias of truncation. ``open`` says that the interval is infinite because the
    released counts do not rule out a tail that hides so much. ``center`` is the point around which values
    were truncated, ``spread`` the sampling variance of the truncated mean, ``sure`` says for which columns a
    scale was seen at all, ``point`` where nearly all that is seen has one size, ``hidden`` how much is
    expected to be truncated where bounds are declared.
    """

    value: Floats
    threshold: Floats
    noise: Floats
    down: Floats
    up: Floats
    open: bool = False
    center: Floats | float = 0.0
    spread: Floats | float = 0.0
    sure: Bools | bool = True
    point: Bools | bool = True
    hidden: Floats | float = 0.0

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """The two ends."""
        return self.value - self.down, self.value + self.up

    def within(self, low: float, high: float) -> RobustEstimate:
        """Return the same with value and ends between public limits, in which the truth is known to lie."""
        value, (start, end) = np.clip(self.value, low, high), np.clip(self.interval, low, high)
        endless = self.open and not np.isfinite(start + end).all()
        return replace(self, value=value, down=value - start, up=end - value, open=endless)


def sampling_variance(second: Floats, first: Floats, noise: float, count: float) -> Floats:
    """Return an upper guess of the variance of a mean of n values in [-1, 1], from their released moments.

    ``noise`` is that of the second moment; half of it is added, so that a guess that came out low by chance
    does not shorten the interval much.
    """
    guess = np.clip(second - np.square(first) + noise / 2.0, 0.0, 1.0)
    return guess / count


# ----- Intervals for quantiles, read off a noisy tree of counts: free post-processing that ties cannot fool

# The share of the error probability that sampling gets where sampling and noise are bounded one by one.
SAMPLING = 0.8


def border_variances(depth: int) -> Floats:
    r"""Return, for noise of variance 1 in each node, that of the consistent count before each cell.

    On the way down to a cell, level by level, least squares shares the disagreement of two siblings with
    their parent: a child is half of its parent plus or minus ``D_j / 2``, where ``D_j``, the difference of
    what the two subtrees of height h say, has variance ``2 V_h``, ``V_h = 2^(h-1) / (2^h - 1)``, and is
    independent of those of the other levels. With ``f_j`` the share of the chosen child that lies before
    the cell, ``D_j`` counts ``f_j / 2`` if that is the left child and ``(1 - f_j) / 2`` if it is the right.
    """
    cell = np.arange(2**depth)
    out = np.zeros(cell.size)
    for height in range(depth, 0, -1):  # of the chosen child and its sibling
        inside = (cell % 2 ** (height - 1)) / 2 ** (height - 1)
        right = (cell // 2 ** (height - 1)) % 2 == 1
        weight = np.where(right, 1.0 - inside, inside) / 2.0
        out += weight**2 * 2.0 * 2.0 ** (height - 1) / (2.0**height - 1.0)
    return out


def rank_margins(depth: int, confidence: float, noise: float, sampling: Floats, total: float) -> Floats:
    """Return how far a noisy count before a cell may be from its rank, shape (probabilities, cells).

    The way to a cell compares once per level, and each comparison can err to one side only, so their error
    probabilities add up over the levels. ``noise`` and ``sampling`` are deviations, ``total`` is that of
    a noisy number of records: it moves a count and the wanted rank apart by at most its own error.
    """
    miss, std = 1.0 - confidence, np.hypot(noise * np.sqrt(border_variances(depth)), total)
    joint = -special.ndtri(miss / depth) * np.hypot(std, sampling[:, None])
    of_noise = -special.ndtri((1.0 - SAMPLING) * miss / depth) * std
    apart = -special.ndtri(SAMPLING * miss / 2.0) * sampling[:, None] + of_noise
    # Both are true; which one is smaller where they are largest is a public fact.
    better = joint.max(axis=1) <= apart.max(axis=1)
    return np.where(better[:, None], joint, apart)


def interval_cells(below: Floats, ranks: Floats, margins: Floats) -> tuple[Ints, ...]:
    """Return the first and the last cell that may hold a record of rank within one of ``ranks``.

    If the counts on the way to such a record's cell are right within the margins, its cell is between the
    two: nothing is said about where in its cell a record lies, so ties do no harm.
    """
    total = below[-1]
    lowest = np.maximum(ranks - 1.0, 0.5)[:, None] - margins
    highest = np.minimum(ranks + 1.0, total - 0.5)[:, None] + margins
    before = np.concatenate([[0.0], below[:-1]])
    return _descend(before < lowest), _descend(before <= highest)


def _descend(to_the_right: Bools) -> Ints:
    """Follow the tree down to a cell: at each border, right where the count before it says so."""
    row = np.arange(len(to_the_right))
    cell = np.zeros(row.size, dtype=np.int64)
    step = to_the_right.shape[1] // 2
    while step:
        cell += np.where(to_the_right[row, cell + step], step, 0)
        step //= 2
    return cell


# ------------------------------------------- Reading ranks off a noisy tree of counts: free post-processing


def cells_at(below: Floats, total: float, ranks: Floats) -> tuple[Floats, Ints]:
    """Return rising counts up to each cell, made of noisy ones, and the cells at the ranks of one column."""
    # Counts below cannot fall: the middle between the nearest rising sequences above and below.
    below = (np.maximum.accumulate(below) + np.minimum.accumulate(below[::-1])[::-1]) / 2.0
    below = np.clip(below, 0.0, total)
    return below, np.minimum(np.searchsorted(below, ranks, side="left"), below.size - 1)


def quantiles_of(below: Floats, total: float, ranks: Floats, borders: Floats) -> Floats:
    """Return the values at the ranks of one column, from the noisy counts up to each cell."""
    below, cell = cells_at(below, total, ranks)
    before = np.where(cell > 0, below[cell - 1], 0.0)
    inside = np.clip((ranks - before) / np.maximum(below[cell] - before, 1e-9), 0.0, 1.0)
    return borders[cell] + inside * (borders[cell + 1] - borders[cell])


def counts_below(nodes: Floats, depth: int, total: float) -> Floats:
    """Return for each cell the noisy number of records in it and below it."""
    return np.cumsum(reconcile_levels(nodes, depth, total))


def reconcile_levels(nodes: Floats, depth: int, total: float) -> Floats:
    r"""Return leaf counts that agree with all levels in the least-squares sense and sum to ``total``."""
    starts = np.cumsum([0, *(2**level for level in range(1, depth + 1))])
    levels = [nodes[a:b] for a, b in itertools.pairwise(starts)]
    best = [levels[-1]]
    for height, level in enumerate(levels[-2::-1], start=2):  # upwards: own count and children's sum
        own = 2.0 ** (height - 1) / (2.0**height - 1.0)
        best.insert(0, own * level + (1.0 - own) * best[0].reshape(-1, 2).sum(axis=1))
    parents = np.array([float(total)])
    for level in best:  # downwards: children share what their parent disagrees with
        pairs = level.reshape(-1, 2)
        parents = (pairs + (parents - pairs.sum(axis=1))[:, None] / 2.0).reshape(-1)
    return parents


# ------------ A rough private median: where values are truncated around, so that answers move with the data

HALVINGS = 28  # a number is found to 4e-7 of itself, between declared limits to 4e-9 of their distance
ROUGH = 20  # halvings that find it to 1e-4 of itself, for the targets of a model
SHARE = 0.1  # of the budget: it costs 5 % more noise in the rest
CROWD = 10.0  # records per noise width: to go astray against all records takes 5 of them
COLUMNS = 7.0  # the same for the columns of a model: one that goes astray is only lost
UNLIMITED = (-np.inf, np.inf)
NEAR = 1.5  # deviations of noise and sampling: a point whose count is so near to a half is as good as any


def location_release(problem: Sample) -> Release:
    """Return the halvings: how many records are at most a point, which the answers so far choose."""
    hint = problem.gaussian(share_relative(SHARE, 1.0 / HALVINGS))
    return Release(CountsBelow(problem.columns), hint, times=HALVINGS, mean=False)


def median_of(
    curator: Curator,
    population: int,
    columns: int,
    name: str = "location",
    crowd: float = CROWD,
    near: float = NEAR,
    limits: tuple[float, float] = UNLIMITED,
) -> Floats:
    """Return a rough median of each column by bisection; zero where the records are too few to see one.

    The points have equal ratios on both sides of zero, so the error is a small fraction of the median: a
    shift of the data moves the answer with it. Between two clusters of equal size every point is a median:
    the first point asked whose count is within ``near`` deviations of a half is taken, which lies between the
    clusters and not at the edge of one. All steps are asked in any case; the plan has paid them. Between
    finite ``limits`` the points have equal distances, and too few records are put in the middle.
    """
    times, noise = curator.plan.releases[name].times, noise_std(curator, name)
    near *= float(np.hypot(noise, np.sqrt(population) / 2.0))
    high = np.full(columns, 2 ** (times - 1), dtype=np.int64)
    low, cells = -high, high[0]
    found = np.full(columns, np.nan)
    for _ in range(times):
        middle = (low + high) // 2
        point = _points(middle, cells, limits)
        above_half = curator.release(name, point) - population / 2.0
        found = np.where(np.isnan(found) & (np.abs(above_half) <= near), point, found)
        low, high = np.where(above_half >= 0, low, middle), np.where(above_half >= 0, middle, high)
    if population < crowd * noise:
        return _points(np.zeros(columns, dtype=np.int64), cells, limits)
    return np.where(np.isnan(found), _points(high, cells, limits), found)


def resolution(times: int) -> float:
    """Return how far from a median so many halvings may end, as a fraction of the median."""
    return float(np.expm1(np.log(2.0) * 2.0 * REACH / 2 ** (times - 1)))


def _points(cells: Ints, most: int, limits: tuple[float, float]) -> Floats:
    """Return the numbers at the cells: equal distances between limits, without them equal ratios on both
    sides of zero, up to ``2**REACH``.
    """
    low, high = limits
    if np.isfinite(low + high):
        return low / 2.0 + high / 2.0 + (high / 2.0 - low / 2.0) * cells / most
    size = np.exp2(-REACH + 2.0 * REACH * np.abs(cells) / most)
    return np.where(cells == 0, 0.0, np.copysign(size, cells))


# ----------------------------------------------------------------- The mean of bounded rows, in one release


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
        query = RobustSum(problem.columns, Truncation(by="norm"))
        return problem.planned(scores=Release(query, problem.gaussian()))

    def run(self, curator: Curator, problem: Sample) -> Iterator[NoisyMeans]:
        centre = np.asarray(self.centre)
        params = (centre, np.full(centre.size, self.radius))
        noise = self.radius * noise_std(curator, "scores", params) / problem.population
        yield NoisyMeans(centre + self.radius * curator.release("scores", params), noise)


# ------------------------------ Where to truncate: from a known moment, or from a noisy histogram of scales
# Raising the threshold t costs noise, ``z t / n`` per unit of t (z: the noise of the mean in units of t /
# n), and saves bias, ``P(|x| > t)`` per unit of t. Both balance where about z records lie beyond t. With
# ``E|x|^(1+v) <= u`` Markov's inequality puts that point at ``t = (u n / z)^(1/(1+v))``.

LARGEST = 2.0**250  # stands for "no truncation": far beyond any data, and its fourth power is finite
SURE = 5.5  # noise alone lifts one of 129 bins this many widths above zero once in 400,000 runs
_WINDOW = 3  # octaves that are looked at together as well: smooth laws are spread over several
_LOOK = 4  # octaves past the last one that tell how heavy the tail is
_GUESS = 5.0 * math.sqrt(_WINDOW)  # for a window: enough to guess, not to be sure
# For an octave more than ``_LOOK`` past all others that are seen: noise alone does it once in 3e9 runs. If it
# opens a cell far out, the threshold goes there, and the noise of the answer with it.
_LONELY = 7.0
_DOUBT = 1.2  # noise widths that the values beyond may be more than they look, where squares are hidden
_PEAK = 0.9  # an octave with this part of all that are seen is one number, as far as counts tell
LIKELY = 2.5  # enough for a bin next to one that is seen: a mistake costs a factor of two
_MAYBE = 1.5  # enough for a bin past the edge to count in an interval, which a mistake makes only wider,
_GROUP = 0.02  # if it is that part of all records: the declared tail speaks for less


def moment_threshold(bound: float, order: float, count: float, noise: float, log: float) -> float:
    r"""Return ``(u n / (ln(1/xi) z))^(1/(1+v))``, the paper's threshold with the exact constant z.

    Parameters: ``bound`` is u, ``order`` is v, ``count`` is n, ``noise`` is z (the std of the mean's noise in
    units of threshold / n), ``log`` is ln(1/xi).
    """
    if noise <= 0:
        return LARGEST
    return float(min((bound * count / (log * noise)) ** (1.0 / (1.0 + order)), LARGEST))


@dataclass(frozen=True)
class Tail:
    """What a noisy histogram of magnitudes tells.

    ``edge`` is the end of the last octave that stands out of the noise, ``beyond`` the number of values
    past it at most, if the tail falls like ``t^-index`` from there on, ``counts`` the histogram up to the
    edge, ``at_most`` is ``beyond`` with some doubt added. Where no octave stands out (too few records), the
    edge is a guess, ``sure`` is False and the bias unknown. ``after`` are the counts of the next octaves that
    may hold records, though not surely enough to be cut at.
    """

    edge: float
    beyond: float
    counts: Floats
    noise: float
    index: float
    sure: bool = True
    at_most: float = math.inf
    after: tuple[float, ...] = ()

    @classmethod
    def read(cls, counts: Floats, noise: float, index: float) -> Tail:
        """Find the last octave that is seen and extrapolate from it with the declared tail index."""
        last, sure = last_octave(counts, noise)
        inside = np.where(np.arange(BINS) <= last, np.maximum(counts, 0.0), 0.0)
        continued = float(inside[last]) / (2.0**index - 1.0)
        # Values past the octave that the next ones show, as they are and two noise widths up.
        shown, seen = max(float(counts[last + 1 :][:_LOOK].sum()), 0.0), 1.0 - 2.0 ** (-index * _LOOK)
        least, most = shown / seen, (shown + 2.0 * noise * math.sqrt(_LOOK)) / seen
        beyond = float(np.clip(continued, least, most))
        at_most = min(beyond + _DOUBT * noise, most)
        after = tuple(_perhaps(counts[last + 1 :], noise).tolist())
        return cls(float(EDGES[last]), beyond, inside, noise, index, sure, at_most, after)

    @property
    def point(self) -> bool:
        """Whether nearly all values that are seen lie in one octave: as those of one number do."""
        seen = np.where(self.counts > LIKELY * self.noise, self.counts, 0.0)
        return bool(seen.max() >= _PEAK * seen.sum())

    def threshold(self, noise: float, power: int = 1) -> float:
        """Return the point, at least the edge, with so many values beyond it that bias and noise balance.

        About ``noise`` of them, and fewer where the tail of ``|x|^p`` is so heavy that they hide more.
        """
        if noise <= 0:  # without noise the histogram is exact, and nothing lies beyond its edge
            return self.edge
        if power > 1:
            noise *= min(1.0, self.index / power - 1.0)
        return float(self.edge * max(1.0, self.beyond / noise) ** (1.0 / self.index))

    def bias(self, threshold: float, count: float, power: int = 1, zero: bool = False) -> float:
        r"""Return what truncation at t hides of ``E|x|^p`` if the tail falls like ``t^-a`` beyond the edge.

        Clipping hides ``P(|x| > t) t^p / (a/p - 1)``; setting to zero hides ``P(|x| > t) t^p`` more. If the
        next octaves hold more than that, a group of records far away, it is what they hide.
        """
        if not self.sure:
            return math.inf
        beyond = self.beyond if power == 1 else self.at_most  # squares forgive less
        share = beyond / count * (self.edge / threshold) ** self.index
        falling = share * threshold**power * (power / (self.index - power) + zero)
        groups = far_groups(self.after, 0.0, self.edge, threshold, count, power, zero)
        return float(max(falling, groups))

    def moment(self, threshold: float, count: float, power: int) -> float:
        """Return a bound of ``E min(|x|, t)^p``: upper edges, two noise widths, the tail."""
        sizes = np.minimum(EDGES, threshold) ** power
        body = float(self.counts @ sizes)
        width = self.noise * float(np.sqrt(np.sum(sizes[self.edge >= EDGES] ** 2)))
        # E[min(x, t)^p | x > edge] for a Pareto tail of index a
        a, top = self.index, max(threshold, self.edge)
        if abs(power - a) < 1e-9:
            tail = float(self.edge**a * (1.0 + a * math.log(top / self.edge)))
        else:
            at_top = self.edge**a * top ** (power - a)
            tail = float(at_top + a / (power - a) * (at_top - self.edge**power))
        return (body + 2.0 * width + self.beyond * tail) / count

    def typical(self, count: float) -> float:
        """Return the root mean square of the octaves that are likely there, from their middles."""
        likely = np.where(self.counts > max(LIKELY * self.noise, 0.5), self.counts, 0.0)
        return float(np.sqrt(likely @ (0.75 * EDGES) ** 2 / count))


def last_octave(counts: Floats, noise: float) -> tuple[int, bool]:
    """Return the last octave that stands out of the noise, and whether any does."""
    together = np.convolve(counts, np.ones(_WINDOW), mode="same")
    best = int(np.argmax(together))
    with_next = np.append(together[1:], 0.0) / math.sqrt(_WINDOW)
    shown = np.maximum(counts, with_next)
    seen = np.flatnonzero(shown > max(SURE * noise, 0.5))
    if not seen.size:
        # A wrong guess upwards is noise without bound; downwards the answer is the centre, no worse.
        return (min(best + 1, BINS - 1) if together[best] > _GUESS * noise else 0), False
    last = int(seen[seen <= best][-1]) if (seen <= best).any() else int(seen[0])
    for octave in seen[seen > last]:
        if octave - last <= _LOOK or shown[octave] > _LONELY * noise:
            last = int(octave)
    while last + 1 < BINS and counts[last + 1] > max(LIKELY * noise, 0.5):
        last += 1
    return last, True


def _perhaps(past: Floats, noise: float) -> Floats:
    """Return the next counts that may be records; zero for the others."""
    near = np.asarray(past[:_LOOK], dtype=float)
    return np.where(near > _MAYBE * noise, near, 0.0)


def far_groups(
    past: Any, noise: float, edge: float, threshold: float, count: float, power: int, zero: bool
) -> float:
    """Return what truncation hides of a group of records far away, which octaves past an edge may show."""
    near = _perhaps(past, noise)
    far = edge * np.exp2(np.arange(1.0, near.size + 1.0))
    cut = np.where(far > threshold, 0.0 if zero else threshold, far) ** power
    return float(np.where(near > _GROUP * count, near, 0.0) @ (far**power - cut) / count)


def known_bias(bound: float, order: float, threshold: float, zero: bool) -> float:
    r"""Return the largest bias of truncation at t when ``E|x|^(1+v) <= u``.

    ``u t^-v`` for setting to zero; clipping hides at most
    ``(|x| - t)_+ <= |x|^(1+v) t^-v v^v / (1+v)^(1+v)``.
    """
    worst = 1.0 if zero else order**order / (1.0 + order) ** (1.0 + order)
    return bound * worst * threshold**-order


# ----------------------------------- What truncation hides at most, as far as the released numbers can tell
# Nobody declared how fast the tail falls, so it is read off the noisy counts of octaves: past the last
# octave that stands out (the knot) a tail falls no slower than before, from octave to octave by a factor
# ``exp(-s)`` at least. All pairs of a height and a slope s that the counts and the released moments of the
# truncated values do not speak against are tried; what the worst of them hides is the limit. A slope of ``p
# ln 2`` or less hides an infinite ``E|x|^p``, and then there is none.

# Deviations by which a tail may be worse than it looks; chosen on lognormal laws with sigma 0.5, 1 and 1.5,
# t(3) and Pareto(2.5) at n = 1,000 and epsilon 1: as many as keep intervals of means within three errors. The
# last step was made with lognormal sigma 2, Pareto(1.5) and zero-inflated columns in view as well.
DOUBT, DOUBT_SQUARES = 1.1, 0.9
_AHEAD = 8  # octaves past the knot that are compared with a tail
_WITHIN = 0.15  # of a moment of smaller values, which depends on how they lie in their octaves
_OCTAVES = 45  # octaves past the knot that are summed
_SLOPES = np.linspace(0.0, 6.0, 121)
_BENDS = np.array([0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.5])  # how much flatter it is before


@dataclass(frozen=True)
class Seen:
    """Released numbers about one tail.

    ``counts`` and their ``noise``: the histogram of magnitudes by octave. ``moments``: for some k, the sum of
    ``min(|x| / cut, 1)^k`` over the tail's records, and its noise. ``count`` is the number of all records,
    ``cut`` the point of truncation, ``zero`` whether values beyond it count as zero, ``slope`` the least that
    is declared.
    """

    counts: Floats
    noise: float
    count: float
    cut: float
    moments: tuple[tuple[int, float, float], ...] = ()
    zero: bool = False
    slope: float = 0.0

    @property
    def knot(self) -> int | None:
        """The last octave from which a tail can be told; None if no octave stands out."""
        last, sure = last_octave(self.counts, self.noise)
        spread = np.hypot(self.noise, np.sqrt(np.maximum(self.counts, 0.0)))
        while sure and self.counts[last] <= LIKELY * spread[last]:
            last -= 1
            sure = last >= 0
        return last if sure else None


def hidden_limit(seen: Seen, power: int, doubt: float, at: int | None = None) -> float:
    r"""Return the most of ``E|x|^p`` that truncation hides, unless a tail is worse than ``doubt`` deviations.

    ``at`` is the knot of a tail in which no octave stands out.
    """
    knot = seen.knot if at is None else at
    if knot is None:
        return math.inf
    before = int(at is None and knot > 0 and seen.counts[knot - 1] >= seen.counts[knot])
    slopes, tails = _profiles(before)
    octaves = np.arange(knot - before, knot + _OCTAVES, dtype=np.int64)
    height, distance, stiff = _fit_heights(seen, tails, octaves)
    hides: Floats = np.dot(tails, _hidden_by_octave(seen, power, octaves))
    hides[slopes <= power * math.log(2.0)] = math.inf
    declared = slopes >= seen.slope - 1e-9
    room = doubt**2 - (distance - distance[declared].min())
    possible = declared & (room >= 0.0)
    most = np.maximum(height[possible] + np.sqrt(room[possible] / stiff[possible]), 1e-9)
    past = seen.counts[knot + 1 :]
    groups = far_groups(past, seen.noise, float(EDGES[knot]), seen.cut, seen.count, power, seen.zero)
    return float(max(np.max(most * hides[possible]) / seen.count, groups))


def likely_hidden(seen: Seen, limit: float) -> float:
    r"""Return what truncation is expected to hide of ``E|x|`` if all slopes are as likely as the counts say.

    Nothing lies beyond ``limit``, so that every slope hides something finite.
    """
    knot = seen.knot
    if knot is None or limit <= seen.cut:
        return 0.0
    before = int(knot > 0 and seen.counts[knot - 1] >= seen.counts[knot])
    octaves = np.arange(knot - before, knot + _OCTAVES, dtype=np.int64)
    octaves = octaves[EDGES[0] * np.exp2(octaves - 1.0) < limit]
    tails = _profiles(before)[1][:, : octaves.size]
    height, distance, _ = _fit_heights(seen, tails, octaves)
    hides = np.minimum(_hidden_by_octave(seen, 1, octaves), limit - seen.cut)
    likely = np.exp((distance.min() - distance) / 2.0)
    return float(likely @ (height * np.dot(tails, hides)) / likely.sum() / seen.count)


def two_sides(above: Seen, below: Seen, index: float, doubt: float = DOUBT) -> tuple[float, float]:
    """Return what truncation hides of the mean below the centre and above it.

    A side on which no octave stands out has a tail no heavier than ``t^-index``, if the other one is seen; if
    neither is, both together are looked at.
    """
    knots = [side.knot for side in (below, above)]
    if knots == [None, None]:
        pairs = zip(above.moments, below.moments, strict=True)
        moments = tuple((k, one + other, math.hypot(a, b)) for (k, one, a), (_, other, b) in pairs)
        noise, counts = math.hypot(above.noise, below.noise), above.counts + below.counts
        both = replace(above, counts=counts, noise=noise, moments=moments)
        return (hidden_limit(both, 1, doubt),) * 2
    seen = max(knot for knot in knots if knot is not None)
    least = index * math.log(2.0)
    low, high = (
        hidden_limit(side, 1, doubt)
        if knot is not None
        else hidden_limit(replace(side, slope=max(side.slope, least)), 1, doubt, seen)
        for side, knot in zip((below, above), knots, strict=True)
    )
    return low, high


@cache
def _profiles(before: int) -> tuple[Floats, Floats]:
    """Return slopes, and the counts of octaves in units of the knot's for each slope (and bend before it)."""
    slope, bend = (a.ravel() for a in np.meshgrid(_SLOPES, _BENDS if before else [0.0], indexing="ij"))
    step = np.arange(-before, _OCTAVES)
    flatter = np.where(step < 0, bend[:, None] / 2.0, 0.0)
    return slope, np.exp(-slope[:, None] * step - flatter)


def _fit_heights(seen: Seen, tails: Floats, octaves: Ints) -> tuple[Floats, Floats, Floats]:
    """Return the best height of each tail, its squared distance in deviations, and how sharp it is."""
    there = octaves[octaves < BINS][: _AHEAD + 2]
    shown, shapes = seen.counts[there], tails[:, : there.size]
    weight = 1.0 / (seen.noise**2 + np.maximum(shown, 0.0) + 1.0)
    for k, moment, noise in seen.moments:
        smaller = np.arange(octaves[0], dtype=np.int64)
        body = float(np.maximum(seen.counts[smaller], 0.0) @ _truncated_means(seen, k, smaller))
        shown = np.append(shown, moment - body)
        shapes = np.column_stack([shapes, tails @ _truncated_means(seen, k, octaves)])
        error = noise**2 + max(moment - body, 0.0) + (_WITHIN * body) ** 2 + 1.0
        weight = np.append(weight, 1.0 / error)
    stiff = shapes**2 @ weight
    height = np.maximum(shapes @ (weight * shown) / stiff, 0.0)
    distance = np.square(shown - height[:, None] * shapes) @ weight
    return height, distance, stiff


def _octave(octaves: Ints, cut: float) -> tuple[Floats, Floats]:
    """Return the ends of octaves in units of the cut."""
    high = np.exp2(octaves - (BINS - 1.0) / 2.0) / cut
    return high / 2.0, high


def _truncated_means(seen: Seen, k: int, octaves: Ints) -> Floats:
    """Return the mean of ``min(|x| / cut, 1)^k`` in each octave, of values spread evenly in logarithm."""
    low, high = _octave(octaves, seen.cut)
    inside = np.minimum(high, 1.0)
    part = (inside**k - np.minimum(low, 1.0) ** k) / k
    beyond = 0.0 if seen.zero else np.log(high / np.clip(1.0, low, high))
    return (part + beyond) / math.log(2.0)


def _hidden_by_octave(seen: Seen, power: int, octaves: Ints) -> Floats:
    """Return the mean of ``|x|^p`` less its truncated value in each octave, spread in the same way."""
    low, high = _octave(octaves, seen.cut)
    start = np.clip(1.0, low, high)
    kept = 0.0 if seen.zero else np.log(high / start)
    return seen.cut**power * ((high**power - start**power) / power - kept) / math.log(2.0)


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
        squares = ((2, SEEING_SIDE if self._sees else SIDE),) if self._squares else ()
        powers, apart = (((1, 1.0),), squares) if self._sees else (((1, 1.0), *squares), ())
        query = RobustSum(problem.columns, self.truncation, self.blocks, powers, apart)
        releases = {}
        if self.center is None:
            releases["location"] = location_release(problem)
        if self._learns:
            hint = problem.gaussian(share_relative(SEEING_SHARE if self._sees else SCALE_SHARE))
            releases["scales"] = Release(ColumnScales(problem.columns, self._sees), hint, mean=False)
        releases["mean"] = Release(query, problem.gaussian(), mean=False)
        return problem.planned(**releases)

    def run(self, curator: Curator, problem: Sample) -> Iterator[RobustEstimate]:
        z = self.blocks * noise_std(curator, "mean")  # of the mean, in units of threshold / n
        n, width = problem.population, problem.columns
        center = self.center
        if center is None:
            center = median_of(curator, n, width, limits=self.bounds)
        scales = Scales.read(curator, center, 1.0 + self.order, self._sees) if self._learns else None
        if scales is not None:
            cut = np.array([tail.threshold(z) for tail in scales.tails])
        else:
            log, bound = math.log(1.0 / self.failure), float(self.bound or 0.0)
            cut = np.full(width, self.fixed or moment_threshold(bound, self.order, n, z, log))
        moments = curator.release("mean", (center, cut)) * (self.blocks / n)
        first, noise = moments[:width], z * cut / n
        squares = moments[width:].reshape(-1, width) / (SEEING_SIDE if self._sees else SIDE)
        if self._squares:
            blur = z / ((SEEING_SIDE / math.sqrt(2.0) if self._sees else SIDE) * n)
            spread = cut**2 * sampling_variance(squares.sum(axis=0), first, blur, n)
        else:
            # bounds of the second moment of the truncated values
            if scales is not None:
                bounds = np.array([tail.moment(t, n, 2) for tail, t in zip(scales.tails, cut, strict=True)])
            else:
                bounds = (self.bound or math.inf) * cut ** (1.0 - self.order)
            spread = np.minimum(bounds, cut**2) / n
        below, above = self._bias(scales, cut, n, squares, z / SEEING_SIDE)
        if self.truncation == _CLIP:  # nothing lies beyond the bounds, so nothing there is hidden
            below = np.minimum(below, np.maximum(center - cut - self.bounds[0], 0.0))
            above = np.minimum(above, np.maximum(self.bounds[1] - center - cut, 0.0))
        sure = np.array([scales is None or scales.tails[j].sure for j in range(width)])
        hidden: Floats | float = 0.0
        if scales and self.takes_plain:
            limits = np.maximum(center - self.bounds[0], self.bounds[1] - center)
            hidden = scales.likely(cut, n, squares[0] * n, z / SIDE, limits)
        ends = self._reaches(noise, spread, below, above)
        endless = self._sees and bool(sure.all()) and not np.isfinite(below + above).all()
        point = np.array([tail.point for tail in scales.tails]) if scales else True
        found = RobustEstimate(
            center + cut * first, cut, noise, *ends, endless, center, spread, sure, point, hidden
        )
        yield found.within(*self.bounds)

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

    def _reaches(self, noise: Floats, spread: Floats, below: Floats, above: Floats) -> tuple[Floats, Floats]:
        if self.blocks == 1:
            return reaches(np.sqrt(noise**2 + spread), below, above, self.confidence)
        miss = (1.0 - self.confidence) / 2.0  # half for the blocks, half for the noise
        # A block mean of m errs by at most sqrt(m spread / p) with probability 1 - p (Chebyshev), and p is
        # such that half of the blocks fail with probability at most `miss`.
        half = (self.blocks + 1) // 2
        p = special.betaincinv(half, self.blocks - half + 1, miss)
        error = np.sqrt(spread * self.blocks / p)
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
        counts, noise = curator.release("scales", center), noise_std(curator, "scales", center)
        both, blur = (counts.sum(axis=0), noise * math.sqrt(2.0)) if apart else (counts, noise)
        return cls([Tail.read(c, blur, index) for c in both], counts, noise, apart)

    def hidden(
        self, cut: Floats, n: int, squares: Floats | None, blur: float, zero: bool
    ) -> tuple[Floats, Floats]:
        """Return what truncation hides below and above the centre, column by column."""
        out = []
        for j, (tail, t) in enumerate(zip(self.tails, cut, strict=True)):
            moments = [((2, float(side[j]), blur),) for side in squares] if squares is not None else [(), ()]
            above, below = (
                Seen(side[j], self.noise, n, float(t), told, zero)
                for side, told in zip(self.counts, moments, strict=True)
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

    def likely(self, cut: Floats, n: int, squares: Floats, blur: float, limits: Floats) -> Floats:
        """Return what truncation is expected to hide of each column, whose distances have a public limit."""
        columns = zip(self.counts, cut, squares, limits, strict=True)
        seen = (
            (Seen(c, self.noise, n, float(t), ((2, float(s), blur),)), float(most))
            for c, t, s, most in columns
        )
        return np.array([likely_hidden(*one) for one in seen])
