"""What estimators of location share: budget shares, bands, intervals, trees of counts, and means of rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from sordino.kernel import Curator, Plan, Release
from sordino.kernel.arrays import Bools, Floats, Ints
from sordino.problems.robust import RobustSum, Sample, Truncation
from sordino.problems.scales import REACH, CountsBelow
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

STEPS = 28  # halvings: a number is found to 4e-7 of itself
WITHIN = 10  # halvings between declared limits: a thousandth of their distance
ROUGH = 20  # halvings that find it to 1e-4 of itself, for the columns of a model
SHARE = 0.1  # of the budget: it costs 5 % more noise in the rest
CROWD = 10.0  # records per noise width: to go astray against all records takes 5 of them
COLUMNS = 7.0  # the same for the columns of a model: one that goes astray is only lost
UNLIMITED = (-np.inf, np.inf)
NEAR = 1.5  # deviations of noise and sampling: a point whose count is so near to a half is as good as any


def location_release(problem: Sample, limits: tuple[float, float] = UNLIMITED) -> Release:
    """Return the halvings: how many records are at most a point, which the answers so far choose."""
    times = WITHIN if np.isfinite(limits).all() else STEPS
    hint = problem.gaussian(share_relative(SHARE, 1.0 / times))
    return Release(CountsBelow(problem.columns), hint, times=times, mean=False)


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
