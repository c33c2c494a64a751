"""Quantiles from one noisy tree of counts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import special

from sordino.kernel import Curator, Plan, Release
from sordino.kernel.arrays import Floats
from sordino.problems.robust import Sample
from sordino.problems.scales import CellMoments, CellTrees, RankTree
from sordino.solvers.base import noise_std
from sordino.solvers.heavy.location import (
    RankMargins,
    border_variances,
    counts_below,
    half_width,
    interval_cells,
    location_release,
    median_of,
    outer_borders,
    quantiles_of,
    sampling_variance,
    share_relative,
    support,
)


@dataclass(frozen=True)
class Cells:
    """Released numbers with the ends of their intervals: by cell, or by probability and column."""

    value: Floats
    low: Floats
    high: Floats


def tree_depth(records: float, trees: int, least: int) -> int:
    """Return a depth that leaves as many cells as records: what a cell is wide vanishes as n grows.

    Twice as many cells cost 3 % more noise; 2^20 cells in all take half a second.
    """
    most = min(18, 20 - math.ceil(math.log2(trees)))
    return max(least, min(most, max(least + 2, math.ceil(math.log2(max(records, 1.0))))))


@dataclass(frozen=True)
class RankQuantiles:
    r"""Any number of quantiles, for one price: the counts in a binary tree of cells, with Gaussian noise.

    Levels are made consistent by least squares (Hay et al. 2010), the counts of the cells are summed from
    below and read off at ``q n``.

    An interval covers, with probability ``confidence``, every sample quantile at q: the records of rank
    ``q n - 1`` to ``q n + 1`` and what lies between, so each of NumPy's definitions, ties or not. It covers
    the population's quantile ``inf {x: F(x) >= q}`` too, as far as the binomial law of ranks is normal.

    Cells grow from a rough private median outwards, between bounds half of them: answers move with the data,
    and bounds may be far too wide. An answer stays between the outermost nodes that stand out of the noise:
    an extreme quantile of few records is drawn inwards, never thrown out to the end of the grid. With
    ``outwards`` it errs to the other side, as a quantile must that is to lie above a share of the records: it
    is read a standard deviation of the noise of its rank further up and not drawn inwards; where that is
    beyond the last record it is infinite.

    **Privacy.** One Gaussian release, and the halvings of a median. Intervals are quantiles
    at ranks ``q n -+`` the errors of the noise and of sampling, so they cost nothing.
    """

    probabilities: tuple[float, ...]
    bounds: tuple[float, float] | None = None
    depth: int | None = None
    confidence: float = 0.95
    outwards: bool = False

    def plan(self, problem: Sample) -> Plan:
        depth = self.depth or tree_depth(problem.population, problem.columns, 14)
        query = RankTree(problem.columns, depth, self.bounds)
        tree = Release(query, problem.gaussian(), mean=False)
        return problem.planned(location=location_release(problem), tree=tree)

    def run(self, curator: Curator, problem: Sample) -> Iterator[Cells]:
        query: RankTree = curator.plan.releases["tree"].query  # type: ignore[assignment]
        n = problem.population
        center = median_of(curator, n, problem.columns, near=0.0)
        q, noise = np.asarray(self.probabilities), noise_std(curator, "tree")
        margins = RankMargins(query.depth, self.confidence).at(noise, np.sqrt(n * q * (1.0 - q)))
        further = noise * math.sqrt(border_variances(query.depth).max()) if self.outwards else 0.0
        out = []
        for nodes, middle in zip(curator.release("tree", center), center, strict=True):
            below, edges = counts_below(nodes, query.depth, n), query.edges(middle)
            value = quantiles_of(below, n, np.minimum(q * n + further, n), edges, self.bounds)
            if self.outwards:
                value = np.where(q * n + further > n, np.inf, value)
            else:
                value = np.clip(value, *support(below, edges, self.bounds, noise))
            low, high = outer_borders(interval_cells(below, q * n, margins), edges, self.bounds)
            found = np.array([value, np.minimum(low, value), np.maximum(high, value)])
            out.append(found + (middle if self.bounds is None else 0.0))
        yield Cells(*np.stack(out, axis=-1))


# ----- Counts, sums, means and quantiles by declared cell: a record is in one, so all cells share one price

COUNT, SQUARE = 0.7, 0.35  # the weights of counts and squares beside a mean: they cost 27 % more noise
_FEW = 5.0  # noise widths of a count below which a group has no mean to speak of
TOTAL_SHARE = 0.2  # of the budget of quantiles, for the number of records of each group


@dataclass(frozen=True)
class CellCounts:
    """How many records each cell has.

    Rounded to whole numbers of at least zero, which is post-processing. An interval holds the number in
    *these* data: the whole numbers within the noise.

    **Privacy.** One Gaussian release of counts: a record adds one to one of them.
    """

    cells: int
    confidence: float = 0.95

    def plan(self, problem: Sample) -> Plan:
        return problem.planned(counts=Release(CellMoments(self.cells), problem.gaussian(), mean=False))

    def run(self, curator: Curator, problem: Sample) -> Iterator[Cells]:
        noisy, std = curator.release("counts")[0], noise_std(curator, "counts")
        reach, most = special.ndtri((1.0 + self.confidence) / 2.0) * std, float(problem.population)
        if problem.unit == "record":
            value, low, high = np.rint(noisy), np.ceil(noisy - reach), np.floor(noisy + reach)
        else:  # a person may be in several cells, in parts
            value, low, high = noisy, noisy - reach, noisy + reach
        value, low, high = (np.clip(a, 0.0, most) for a in (value, low, high))
        yield Cells(value, np.minimum(low, value), np.maximum(high, value))


@dataclass(frozen=True)
class CellSums:
    """The sums of the values of each cell, clipped to ``bounds``; an interval holds the sum in these data.

    **Privacy.** One Gaussian release: a record adds at most ``max(|low|, |high|)`` to one sum.
    """

    cells: int
    bounds: tuple[float, float]
    confidence: float = 0.95

    def plan(self, problem: Sample) -> Plan:
        query = CellMoments(self.cells, ((1, 1.0),), 0.0, self._scale)
        return problem.planned(sums=Release(query, problem.gaussian(), mean=False))

    def run(self, curator: Curator, problem: Sample) -> Iterator[Cells]:
        value = self._scale * curator.release("sums")[0]
        reach = special.ndtri((1.0 + self.confidence) / 2.0) * self._scale
        half = reach * noise_std(curator, "sums")
        yield Cells(value, value - half, value + half)

    @property
    def _scale(self) -> float:
        return max(abs(self.bounds[0]), abs(self.bounds[1]))


@dataclass(frozen=True)
class CellMeans:
    """The means of the values of each cell, clipped to ``bounds``.

    The ratio of a noisy sum to a noisy count. An interval holds the mean of the law behind the records of the
    cell, after the clip: noise of both, and the sampling error. Where the count hardly stands out of its
    noise the answer is drawn to the middle of the bounds and the interval is all of them.

    **Privacy.** One Gaussian release of counts, sums and sums of squares: a record adds to one cell.
    """

    cells: int
    bounds: tuple[float, float]
    confidence: float = 0.95

    def plan(self, problem: Sample) -> Plan:
        powers = ((0, COUNT), (1, 1.0), (2, SQUARE))
        query = CellMoments(self.cells, powers, self._middle, self._radius)
        return problem.planned(moments=Release(query, problem.gaussian(), mean=False))

    def run(self, curator: Curator, problem: Sample) -> Iterator[Cells]:
        std = noise_std(curator, "moments")
        counts, sums, squares = curator.release("moments") / np.array([[COUNT], [1.0], [SQUARE]])
        few = std * _FEW / COUNT
        size = np.maximum(counts, max(few, 1.0))
        first = np.clip(sums / size, -1.0, 1.0)
        noise = std * np.sqrt(1.0 + (first / COUNT) ** 2) / size
        spread = sampling_variance(squares / size, first, std / SQUARE / size, size)
        half = half_width(np.sqrt(noise**2 + spread), np.zeros(self.cells), self.confidence)
        # Values that no record of the group happens to show may have a share of 3 in n (at 95 %).
        half = np.hypot(half, -math.log1p(-self.confidence) * (1.0 + np.abs(first)) / size)
        half *= 1.0 + std / COUNT / size  # the count in the denominator is noisy too
        half = np.where(counts < max(few, 0.5), 2.0, half)
        ends = np.clip([first - half, first + half], -1.0, 1.0)
        yield Cells(*(self._middle + self._radius * a for a in (first, *ends)))

    @property
    def _middle(self) -> float:
        return self.bounds[0] / 2.0 + self.bounds[1] / 2.0

    @property
    def _radius(self) -> float:
        return self.bounds[1] / 2.0 - self.bounds[0] / 2.0


@dataclass(frozen=True)
class CellQuantiles:
    """Quantiles of the values of each cell between ``bounds``, shape (cells, probabilities).

    Intervals as those of :class:`RankQuantiles`, with the error of the noisy number of records of a cell.

    **Privacy.** One Gaussian release of counts and one of trees of counts: a record is in one cell.
    """

    cells: int
    probabilities: tuple[float, ...]
    bounds: tuple[float, float]
    depth: int | None = None
    confidence: float = 0.95

    def plan(self, problem: Sample) -> Plan:
        hint = problem.gaussian(share_relative(TOTAL_SHARE))
        depth = self.depth or tree_depth(problem.population / self.cells, self.cells, 12)
        trees = CellTrees(self.cells, depth, self.bounds)
        return problem.planned(
            counts=Release(CellMoments(self.cells), hint, mean=False),
            trees=Release(trees, problem.gaussian(), mean=False),
        )

    def run(self, curator: Curator, problem: Sample) -> Iterator[Cells]:
        counts, trees = curator.release("counts")[0], curator.release("trees")
        query: CellTrees = curator.plan.releases["trees"].query  # type: ignore[assignment]
        total, noise = noise_std(curator, "counts"), noise_std(curator, "trees")
        q, edges, out = np.asarray(self.probabilities), query.edges(), []
        for count, nodes in zip(np.maximum(counts, 1.0), trees, strict=True):
            sampling = np.sqrt((count + total) * q * (1.0 - q))
            margins = RankMargins(query.depth, self.confidence).at(noise, sampling, total)
            below = counts_below(nodes, query.depth, count)
            value = quantiles_of(below, count, q * count, edges, self.bounds)
            low, high = outer_borders(interval_cells(below, q * count, margins), edges, self.bounds)
            out.append([value, np.minimum(low, value), np.maximum(high, value)])
        yield Cells(*np.stack(out, axis=1))
