"""Quantiles, and counts, sums and means by cell."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from sordino.kernel import Curator, JointSelection, Plan, Release
from sordino.kernel.arrays import Floats
from sordino.problems.robust import Sample
from sordino.problems.scales import REACH, CellMoments, Grid, RankLosses, RankTree, growing
from sordino.solvers.base import noise_std
from sordino.solvers.heavy.location import (
    border_variances,
    counts_below,
    half_width,
    interval_cells,
    quantiles_of,
    rank_margins,
    sampling_variance,
)


@dataclass(frozen=True)
class Cells:
    """Released numbers with the ends of their intervals: by cell, or by probability and column."""

    value: Floats
    low: Floats
    high: Floats


# -------------- Quantiles: a few of them by selections, many by the tree of counts that tells the intervals

FEW = 9  # quantiles that selections tell better, all together
BITS, AROUND = 16, 9  # of cells for a quantile, and of cells around it for its interval
FAINT = 6.0  # folds by which a candidate is behind whose place nothing but its order of magnitude speaks for
FAR, OUTSIDE = 4.0, 2e4  # median distances beyond which few records are, and what candidates there weigh
TAIL = -1.5  # the power of cells around a rough median, in units of the median distance from it
GAUSSIAN = 2.2  # the deviation of Gaussian noise at the price of a selection whose losses have the scale 1
ZCDP = 0.4  # the epsilon of a selection that a ledger adds up, in units of that of one asked once


@dataclass(frozen=True)
class RankQuantiles:
    r"""Quantiles of columns, or of the values in each of some ``cells``, shape (cells, probabilities).

    A few are chosen together by an exponential mechanism on ranks. A fold is the number of ranks over which a
    candidate becomes e times less likely. Where a median can be told for a small share of the budget, it and
    the median distance from it are chosen first, and the candidates are spread around them: bounds may be far
    too wide. A quantile that is few folds from the outermost record is looked for that far inside.

    Intervals, and many quantiles, are read off counts in a binary tree of cells with Gaussian noise, whose
    levels are made consistent by least squares (Hay et al. 2010). An interval covers, with probability
    ``confidence``, every sample quantile at q: the records of rank ``q n - 1`` to ``q n + 1`` and what lies
    between, so each of NumPy's definitions, ties or not. It covers the population's quantile
    ``inf {x: F(x) >= q}`` too, as far as the binomial law of ranks is normal. Where a tree would tell nothing
    it is left out, and the ends are the bounds.

    With ``outwards`` an answer errs upwards, as a quantile must that is to lie above a share of the records:
    it is looked for two folds further up, is infinite beyond the last record, and is the end of its cell, so
    that records which are all alike are below it.

    **Privacy.** Up to three :class:`~sordino.kernel.JointSelection`, and Gaussian counts of cells and nodes.
    """

    probabilities: tuple[float, ...]
    epsilon: float
    bounds: tuple[float, float] | None = None
    depth: int | None = None
    confidence: float = 0.95
    once: bool = True
    cells: int = 0
    outwards: bool = False

    def _shares(self, problem: Sample) -> dict[str, float]:
        """Return the shares of epsilon of releases, by public numbers; there are two rough questions."""
        replaced, d, groups = problem.relation.contributions, problem.columns, max(self.cells, 1)
        folds = max(self.epsilon * (1.0 if self.once else ZCDP) * problem.population / replaced, 1e-9)
        others = 0.5 if replaced == 1 else 0.2
        more = 16.0 * (self.bounds is None)  # folds: then nearly all of 2^16 candidates are far from the data
        rough, least = min(max((28.0 + more) * d / folds, 1e-3), 0.3 * others), (20.0 + more) * d / folds
        rough, counts = max(rough, least) * (least <= 0.5 * others), 0.1 * (self.cells > 0)
        tree = left = 1.0 - 2.0 * rough - counts
        few = d * len(self.probabilities) <= (FEW if self.once else FEW // 3)
        if self.outwards or (few and (self.bounds is not None or rough)):
            needed = (1.0 - others) * (d * len(self.probabilities)) ** -0.25
            worth = min(1.0 - 100.0 * groups / folds, left - needed)
            tree = 0.0 if self.outwards else max(worth, 0.0)
        shares = {"rough": rough, "counts": counts, "values": left - tree, "tree": tree}
        return {name: share for name, share in shares.items() if share > 0.0}

    def plan(self, problem: Sample) -> Plan:
        releases, by_cell, trees = {}, self.cells > 0, self.cells or problem.columns
        for name, share in self._shares(problem).items():
            noise: Any = JointSelection(relative=1.0 / share, once=self.once)
            query: Any = RankLosses(by_cell and name != "rough")
            if name in ("counts", "tree"):
                noise, depth = problem.gaussian(GAUSSIAN / share), self._depth(problem, "values" in releases)
                query = CellMoments(self.cells) if name == "counts" else RankTree(trees, depth, by_cell)
            releases[name] = Release(query, noise, times=1 + (name == "rough"), mean=False)
        return problem.planned(**releases)

    def _depth(self, problem: Sample, around: bool) -> int:
        """Return the depth of a tree, for intervals around known quantiles only, or for all of them."""
        trees = problem.columns * max(self.cells, 1)
        wanted = AROUND + math.ceil(math.log2(len(self.probabilities))) if around else BITS
        return self.depth or max(min(wanted, 20 - math.ceil(math.log2(trees))), 4)

    def run(self, curator: Curator, problem: Sample) -> Iterator[Cells]:
        plan, n, q = curator.plan.releases, problem.population, np.asarray(self.probabilities)
        columns, bits = (1,) if self.cells else tuple(range(problem.columns)), self._depth(problem, False)
        middle, near, outside = self._locate(curator, columns, bits)
        total, doubt = np.array([[float(n)]]), 0.0
        if self.cells:
            total, doubt = np.clip(curator.release("counts").T, 1.0, n), noise_std(curator, "counts")
        value = np.tile(np.array(middle)[:, None], (len(total), 1, 1))  # groups x columns x quantiles
        if "values" in plan:
            scale, share = noise_std(curator, "values"), q if self.cells else np.full(q.size, 0.5)
            fold = scale * np.maximum(share, 1.0 - share)  # a rank falls by the share of a record that leaves
            ranks = q * total + 2.0 * fold * self.outwards
            inside = [np.clip((out + q.size * len(columns)) * fold, 0.5, total / 2.0) for out in outside]
            aims = np.clip(ranks, inside[0], total - inside[1]) - share * total
            far = [Grid(self._borders(bits, m), penalty=FAINT * scale) for m in middle]
            grids, at = list(zip(near, far)), 1.0 if self.outwards else 0.5
            found = np.sort(_choose(curator, "values", columns, grids, aims, share, at))
            value = found[:, :, np.argsort(np.argsort(q, kind="stable"))]
            value = np.where((ranks > total)[:, None] & self.outwards, np.inf, value)
        ends = [np.full((*value.shape[:2], q.size), end) for end in self.bounds or (-np.inf, np.inf)]
        if "tree" in plan:
            depth = self._depth(problem, "values" in plan)
            cells = [[Grid(self._borders(depth, *points)) for points in group] for group in value]
            nodes = curator.release("tree", [[(j, (g,), ()) for j, g in zip(columns, one)] for one in cells])
            read = partial(self._read, noise_std(curator, "tree"), doubt, depth, "values" in plan)
            counts, known = np.repeat(total, len(columns)), value.reshape(len(nodes), -1)
            trees = zip(nodes, itertools.chain(*cells), counts, known, strict=True)
            three = [read(tree, g.borders, count, v) for tree, g, count, v in trees]
            value, *ends = np.moveaxis(np.reshape(three, (*value.shape[:2], 3, q.size)), 2, 0)
        yield Cells(*(part[:, 0] if self.cells else part[0].T for part in (value, *ends)))

    @property
    def _limits(self) -> tuple[float, float, float]:
        """Where quantiles are looked for, and the distance from a centre within which no finer."""
        low, high = self.bounds or (-(2.0**REACH), 2.0**REACH)
        return low, high, 2.0**-REACH * (1.0 if self.bounds is None else high / 2.0 - low / 2.0)

    def _borders(self, bits: int, *points: float, unit: float | None = None, power: float = 0.0) -> Floats:
        """Return the borders of ``2**bits`` cells that grow from some points; the last are empty."""
        (low, high, tiny), each = self._limits, max(bits - math.ceil(math.log2(len(points))), 1)
        cuts = [growing(low, high, float(p), unit or tiny, power, each)[1:-1] for p in points]
        inner = np.sort(np.concatenate(cuts), kind="stable")  # which merges parts that rise already
        return np.concatenate([[low], inner, np.full(2**bits - inner.size, high)])

    def _locate(
        self, curator: Curator, columns: tuple[int, ...], bits: int
    ) -> tuple[list[float], list[Grid], tuple[float, float]]:
        """Return a rough median of each column, candidates around it in units of the median distance, and how
        many folds from the outermost records one has to stay because of candidates below and above them.
        """
        low, high, tiny = self._limits
        start, half = min(max(0.0, low), high), (np.zeros((1, 1)), np.array([0.5]))
        if "rough" not in curator.plan.releases:
            flat = Grid(self._borders(bits, start, power=1.0), coarse=0.0)
            return [start] * len(columns), [flat] * len(columns), (0.0, 0.0)
        octaves = [(Grid(self._borders(bits, start)),)] * len(columns)
        middle = _choose(curator, "rough", columns, octaves, *half).ravel().tolist()
        away = [(Grid(growing(0.0, max(high - m, m - low), 0.0, tiny, 0.0, bits), pole=m),) for m in middle]
        units = np.maximum(_choose(curator, "rough", columns, away, *half).ravel(), tiny).tolist()
        both = list(zip(middle, units, strict=True))
        near = [Grid(self._borders(bits, m, unit=u, power=TAIL), coarse=u / 64.0) for m, u in both]
        far = [
            [(g.borders < m - FAR * u).mean(), (g.borders > m + FAR * u).mean()]
            for g, (m, u) in zip(near, both)
        ]
        sure = 2.0 if self.bounds is not None else 4.0  # without bounds an answer outside may be anywhere
        below, above = sure + np.log1p(OUTSIDE * np.max(far, axis=0))
        return middle, near, (below, above)

    def _read(
        self,
        noise: float,
        doubt: float,
        depth: int,
        known: bool,
        nodes: Floats,
        borders: Floats,
        n: float,
        value: Floats,
    ) -> tuple[Floats, Floats, Floats]:
        """Return known quantiles, or those that one tree tells, and the ends of their intervals."""
        q, below = np.asarray(self.probabilities), counts_below(nodes, depth, n)
        value, std = np.broadcast_to(value, q.shape), noise * math.sqrt(border_variances(depth).max())
        if not known and (std < n / 4.0 or self.bounds is not None):  # no farther out than noise reaches
            inside = min(2.0 * std, n / 2.0)
            value = quantiles_of(below, n, np.clip(q * n, inside, n - inside), borders)
        if self.bounds is None:
            borders = np.where(np.abs(borders) < 2.0**REACH, borders, np.copysign(np.inf, borders))
        sampling = np.sqrt((n + doubt) * q * (1.0 - q))
        margins = rank_margins(depth, self.confidence, noise, sampling, doubt)
        first, last = interval_cells(below, q * n, margins)
        return value, np.minimum(borders[first], value), np.maximum(borders[last + 1], value)


def _choose(
    curator: Curator,
    name: str,
    columns: tuple[int, ...],
    grids: list[Any],
    aims: Floats,
    share: Floats,
    at: float = 0.5,
) -> Floats:
    """Return a point of each cell that is chosen, 0 its lower end, 1 its upper: groups x columns x ranks."""
    lists = [[(*one, list(zip(row, share))) for one in zip(columns, grids)] for row in aims]
    found = curator.release(name, lists).reshape(len(aims), len(columns), -1)
    numbers = [
        np.concatenate([(1.0 - at) * g.borders[:-1] + at * g.borders[1:] for g in one]) for one in grids
    ]
    return np.stack([numbers[j][found[:, j]] for j in range(len(columns))], axis=1)


# ----- Counts, sums, means and quantiles by declared cell: a record is in one, so all cells share one price

COUNT, SQUARE = 0.7, 0.35  # the weights of counts and squares beside a mean: they cost 27 % more noise
_FEW = 5.0  # noise widths of a count below which a group has no mean to speak of


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
