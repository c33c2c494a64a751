"""Sizes of numbers: histograms over powers of two, second moments of pairs, ranks.

A count is the safest question there is: a record adds one to one bin, however large it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numba
import numpy as np
from scipy import sparse, special

from sordino.kernel import ClippedSum, FromSum, Norm, Relation
from sordino.kernel.arrays import Floats, Ints, compile_with_cache
from sordino.kernel.clip import row_norms, scale_down
from sordino.kernel.query import (
    AffineViews,
    DenseRows,
    OneCount,
    PartedArrays,
    PartedRows,
    StoredRows,
    ValueColumns,
    shares_of,
    summation_error,
)
from sordino.problems.affine import Affine
from sordino.problems.losses import Loss
from sordino.problems.robust import (
    ABOVE,
    GradientPoint,
    Truncation,
    gradient_blocks,
    present,
    residuals,
    scaled_norms,
    weigh,
)

LOWEST, HIGHEST = -64, 64  # bin e holds 2^(e-1) <= |v| < 2^e; what is beyond goes to the last bin
BINS = HIGHEST - LOWEST + 1
REACH = 40  # quantiles are looked for up to 2^40 in magnitude
_MAGNITUDE, _INFINITE = 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000
_BIASED = 1022 + LOWEST  # the biased exponent of the numbers of the first bin
EDGES = np.exp2(np.arange(LOWEST, HIGHEST + 1, dtype=float))  # upper edges


def counts_of(values: Floats, parts: Floats | None = None) -> Floats:
    """Return the histogram of each column of ``values``, shape (columns, BINS); a row counts as its part."""
    rows, columns = values.shape
    out, one = np.zeros((1, columns, BINS)), np.ones(rows)
    _add_octaves(values, one, np.zeros(columns), one if parts is None else parts, out)
    return out[0]


@numba.njit(inline="always")
def _bin_of(bits: Any, sides: int) -> Any:
    """Return the bin of a number by its bits, behind the others if it is below zero and there are two sides.

    Zero and what is not a finite number come last of all.
    """
    size = bits & _MAGNITUDE
    octave = min(max((size >> 52) - _BIASED, 0), BINS - 1) + (BINS if bits < 0 and sides == 2 else 0)
    return sides * BINS if size == 0 or size >= _INFINITE else octave


@compile_with_cache(nogil=True)
def _add_octaves(rows: Any, factors: Floats, center: Floats, parts: Floats, out: Floats) -> None:
    """Add the part of each row to the bins of ``factors_i x_ij - center_j``, by sign if ``out`` has two."""
    sides, columns, _ = out.shape
    width = sides * BINS + 1
    # A place that cannot be negative needs no test: see :data:`sordino.execute.csr.At`.
    away, at, found = np.empty(columns), np.empty(columns, np.uint64), np.zeros(columns * width)
    bits = away.view(np.int64)
    for i in range(rows.shape[0]):
        if parts[i] != 0.0:
            for j in range(columns):
                away[j] = factors[i] * np.float64(rows[i, j]) - center[j]
            for j in range(columns):
                at[j] = _bin_of(bits[j], sides) + j * width
            for j in range(columns):
                found[at[j]] += parts[i]
    counts = found.reshape(columns, width)
    for side in range(sides):
        out[side] += counts[:, side * BINS : (side + 1) * BINS]


@compile_with_cache(nogil=True)
def _add_entries(indptr: Any, indices: Any, data: Floats, parts: Floats, out: Floats) -> None:
    """Add the part of each row to the bins of its stored entries, see :func:`_add_octaves`."""
    sides, columns, _ = out.shape
    bits = data.view(np.int64)
    for i in range(parts.size):
        for p in range(indptr[i], indptr[i + 1]):
            at = _bin_of(bits[p], sides)
            if indices[p] < columns and at < sides * BINS:
                out[at // BINS, indices[p], at % BINS] += parts[i]


def _own(records: PartedRows) -> Floats:
    """Return what each row counts for: its share, 1 as a record without a weight, 0 if it is not finite."""
    shares = shares_of(records)
    return np.where(present(records), 1.0 if shares is None else shares, 0.0)


@dataclass(frozen=True)
class ColumnScales(OneCount):
    """For each column, how many ``|x_ij - center_j| > 0`` lie in each octave; ``params = center``.

    With ``sides`` those above the centre and those below are counted apart, for the same price.

    **Privacy.** A record adds one to one bin of each column: sqrt(columns) in L2, and sqrt(2 columns)
    when it is replaced (one bin falls, another rises).
    """

    shortcuts: ClassVar[tuple[type, ...]] = (StoredRows,)

    columns: int
    sides: bool = False

    @property
    def counts(self) -> int:
        """How many counts a record adds to: one octave, text or gap of each column."""
        return self.columns

    def evaluate(self, records: PartedRows, params: Any) -> Floats:
        """Return the counts, shape (columns, BINS); with sides (2, columns, BINS), those above first."""
        out, one = np.zeros((2 if self.sides else 1, self.columns, BINS)), np.ones(records.count)
        own = _own(records)
        center = np.zeros(self.columns) if params is None else np.ascontiguousarray(params, dtype=float)
        stored, factors = getattr(records, "stored", (np.empty((0, 0)), one))
        if stored.shape[1] >= self.columns:  # what is counted is stored: nothing is copied
            _add_octaves(stored, scale_down(one, factors), center, own, out)
            return out if self.sides else out[0]
        for rows, block in records.scaled_rows(one):
            if sparse.issparse(block):  # the centre of sparse data is zero
                _add_entries(block.indptr, block.indices, block.data, own[rows], out)
            else:
                _add_octaves(block, one, center, own[rows], out)
        return out if self.sides else out[0]


@dataclass(frozen=True)
class ColumnUnits(ColumnScales):
    """The same counts of rows that are also seen through maps; rows on a device are counted by column."""

    needs: ClassVar[tuple[type, ...]] = (AffineViews,)
    shortcuts: ClassVar[tuple[type, ...]] = (PartedRows, StoredRows)

    def evaluate(self, records: Any, params: Any) -> Floats:
        if hasattr(records, "scaled_rows"):
            return super().evaluate(records, params)
        center = np.zeros(self.columns) if params is None else params
        maps = [Affine(center[[j]], np.ones(1), 0.0, np.array([j])) for j in range(self.columns)]
        sizes = [np.asarray(records.through(one).sizes)[:, None] for one in maps]
        return np.concatenate([counts_of(one, shares_of(records)) for one in sizes])


@dataclass(frozen=True)
class GradientScales(OneCount):
    """How many gradient norms (or, averaged over a record's entries, gradient entries) per octave.

    ``params`` is a :class:`GradientPoint`.

    **Privacy.** The weights a record adds to the bins are non-negative and sum to at most
    one: 1 in L2, sqrt 2 when it is replaced.
    """

    loss: Loss
    by: str = "norm"

    def evaluate(self, records: PartedRows, params: GradientPoint) -> Floats:
        """Return the counts, shape (1, BINS)."""
        residual, shares = residuals(self.loss, records, params), records.parts
        if self.by == "norm" and params.center is None:
            joint = residual if residual.ndim == 1 else row_norms(residual)
            with np.errstate(over="ignore", invalid="ignore"):
                return counts_of((joint * scaled_norms(records, params))[:, None], shares)
        out = np.zeros((1, BINS))
        for rows, parts in gradient_blocks(records, residual, params):
            own = np.ones(rows.stop - rows.start) if shares is None else shares[rows]
            if self.by == "norm":
                out += counts_of(row_norms(np.concatenate(parts, axis=1))[:, None], own)
                continue
            for part in parts:
                stored = sparse.issparse(part)
                each = np.repeat(own, np.diff(part.indptr) if stored else part.shape[1])
                entries = part.data if stored else part
                out += counts_of(entries.reshape(-1, 1), each)
        return out if self.by == "norm" else out / params.size


@dataclass(frozen=True)
class FeatureScales(OneCount):
    """How many norms of the first ``columns`` entries of a row lie in each octave: one scale for all of them.

    **Privacy.** A record adds one to one bin: 1 in L2, sqrt 2 when it is replaced.
    """

    columns: int

    def evaluate(self, records: PartedRows, params: Any) -> Floats:
        """Return the counts, shape (1, BINS); ``params`` are one weight per column, 0 for the intercept."""
        norms = np.where(present(records), records.weighted_norms(params), np.nan)
        return counts_of(norms[:, None], records.parts)


@dataclass(frozen=True)
class CountsBelow(ClippedSum):
    """For each column, how many ``x_ij <= point_j``; ``params`` are the points.

    **Privacy.** A record adds 0 or 1 to each count, and a replaced one moves each by at most 1: sqrt(columns)
    in L2 under both relations.
    """

    columns: int

    def contribution(self, params: Any) -> float:
        return math.sqrt(self.columns)

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return sqrt(columns): both records of a replacement may add the same ones."""
        return math.sqrt(self.columns)

    def evaluate(self, records: PartedArrays, params: Any) -> Floats:
        out, own = np.zeros(self.columns), _own(records)
        for rows, block in records.scaled_rows(np.ones(records.count)):
            out += own[rows] @ (block[:, : self.columns] <= params)
        return out


@dataclass(frozen=True)
class TargetsBelow(ClippedSum):
    """How many targets are at most a point, ``params``.

    **Privacy.** A record adds 0 or 1, and a replaced one moves the count by at most 1.
    """

    def contribution(self, params: Any) -> float:
        return 1.0

    def sensitivity(self, relation: Relation, params: Any) -> float:
        return 1.0

    def evaluate(self, records: PartedRows, params: Any) -> Floats:
        return np.array([weigh(records.targets <= params, records.parts).sum()], dtype=float)


def pair_differences(records: DenseRows) -> Floats:
    """Return ``(x_i - x_{i+h}) / sqrt 2`` for the first ``h = n // 2`` records: the location cancels.

    A pair of which one record is absent (not finite) is zero: it adds nothing.
    """
    x = np.concatenate([block for _, block in records.scaled_rows(np.ones(records.count))])
    half, there = len(x) // 2, present(records)
    with np.errstate(over="ignore", invalid="ignore"):
        out = (x[:half] - x[half : 2 * half]) / math.sqrt(2.0)
    return np.where((there[:half] & there[half : 2 * half])[:, None], out, 0.0)


@dataclass(frozen=True)
class PairScales(OneCount):
    """For each column (or for the norm of ``difference / params``), the octaves of pair differences.

    **Privacy.** A record is in one pair, which adds nothing without it: sqrt(columns) in L2, and
    sqrt(2 columns) when it is replaced (one bin falls, another rises). For norms there is one column.
    """

    columns: int
    norms: bool = False

    adds_up: ClassVar[bool] = False  # records are paired across the whole table

    @property
    def counts(self) -> int:
        """One octave of each column, or of the norms."""
        return 1 if self.norms else self.columns

    def evaluate(self, records: DenseRows, params: Any) -> Floats:
        pairs = pair_differences(records)
        if not self.norms:
            return counts_of(pairs)
        with np.errstate(over="ignore", invalid="ignore"):
            return counts_of(row_norms(pairs / params)[:, None])


@dataclass(frozen=True)
class PairMoments(OneCount):
    r"""The sum over pairs of the outer products of differences, of norm at most 1 in units of ``params``.

    **Privacy.** A record is in one pair, which adds nothing without it. The outer product of a vector a in
    the unit ball has ``||aa'||_F = |a|^2 <= 1``; when another, b, takes its place,
    ``||aa' - bb'||_F^2 = |a|^4 + |b|^4 - 2 (a.b)^2 <= 2``.
    """

    columns: int

    adds_up: ClassVar[bool] = False  # records are paired across the whole table

    def evaluate(self, records: DenseRows, params: Any) -> Floats:
        """Return the sum of the outer products, shape (columns, columns)."""
        with np.errstate(over="ignore", invalid="ignore"):
            pairs = Truncation(by="norm").apply([pair_differences(records) / params], 1.0)[0]
        return pairs.T @ pairs


# ------------------------------------------------------- Ranks: how many records are in cells between borders


def growing(low: float, high: float, center: float, unit: float, power: float, bits: int) -> Floats:
    """Return the borders of ``2**bits`` cells that have equal shares of a measure around a centre.

    Its density is ``(1 + |x - center| / unit)^(power - 1)``: uniform at power 1, equal for all octaves at 0,
    and below 0 only few cells are far out.
    """
    ends = np.array([low, high]) / unit - center / unit
    first, last = np.copysign(special.boxcox1p(np.abs(ends), power), ends)
    size = first + (last - first) * np.linspace(0.0, 1.0, 2**bits + 1)
    inner = center + np.copysign(special.inv_boxcox1p(np.abs(size), power), size) * unit
    return np.maximum.accumulate(np.concatenate([[low], np.clip(inner[1:-1], low, high), [high]]))


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells between borders, of numbers or of their distances from ``pole``.

    A selection takes cells wider than ``coarse`` for no better than their ends, all for worse by a penalty.
    """

    borders: Floats
    pole: float | None = None
    coarse: float = math.inf
    penalty: float = 0.0

    def cells(self, x: Floats) -> Ints:
        """Return the cell of each number; one beyond the ends is in the cell at that end."""
        inner = self.borders[1:-1]
        return np.searchsorted(inner, x if self.pole is None else np.abs(x - self.pole), side="right")


Lists = Sequence[Sequence[tuple[int, Sequence[Grid], Sequence[tuple[float, float]]]]]
"""Of each group of records: columns, each with grids of one size, and ranks, each an offset and a share."""


def grid_counts(records: PartedRows, lists: Lists, by_cell: bool) -> Floats:
    """Return how many records each cell has: groups x columns x grids x cells.

    With ``by_cell`` the first number of a record says to which group it belongs, as a whole number from 0.
    """
    out = np.zeros((len(lists), len(lists[0]), len(lists[0][0][1]), lists[0][0][1][0].borders.size - 1))
    own = _own(records)
    for rows, block in records.scaled_rows(np.ones(records.count)):
        group, there = number_cells(block[:, 0] if by_cell else np.zeros(len(block)), len(lists))
        order = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[order], np.arange(len(lists) + 1))
        numbers, parts = block[there][order], own[rows][there][order]
        for g, j, k in np.ndindex(out.shape[:3]):
            mine, (column, grids, _) = slice(starts[g], starts[g + 1]), lists[g][j]
            cells = grids[k].cells(numbers[mine, column])
            out[g, j, k] += np.bincount(cells, parts[mine], minlength=out.shape[3])
    return out


@dataclass(frozen=True)
class RankLosses(FromSum):
    r"""How far each cell of some grids is from some ranks, for each group of records and column (``params``).

    With A of the N records of a group below a cell and B up to its end it is ``max(0, A - R, R - B) / m``,
    which is nothing for a tie, or ``max(B - R, R - A) / m`` in coarse cells, and the penalty of the grid.
    A rank is ``R = offset + w N`` with a share w, and ``m = max(w, 1 - w)``.

    **Privacy.** Without a record N falls by 1, R by w, A and B by at most 1: no difference moves by more than
    m, no loss by more than 1. A replaced record leaves one group for another, or moves A and B by at most 1
    and N not at all: 2 in all. Rows that are parts of a person move A, B and N by parts of that.
    """

    norm = Norm.LINF
    adds_up: ClassVar[bool] = False  # counts do

    by_cell: bool = False

    def contribution(self, params: Any) -> float:
        return 1.0

    def error(self, params: Lists, count: int) -> float:
        """Return the rounding of counts of parts, and of a rank, a difference and a penalty."""
        asked = [one for group in params for one in group]
        far = max(abs(offset) for *_, ranks in asked for offset, _ in ranks)
        far += max(grid.penalty for _, grids, _ in asked for grid in grids)
        return 4.0 * summation_error(count, 1.0) + 16.0 * (count + far) * 2.0**-52

    def summed(self, records: PartedArrays, params: Lists) -> Floats:
        return grid_counts(records, params, self.by_cell)

    def finished(self, total: Floats, params: Lists) -> Floats:
        """Return the losses: groups x ranks x cells, those of the grids of a column behind each other."""
        out, asked = [], [one for group in params for one in group]
        for counts, (_, grids, ranks) in zip(total.reshape(-1, *total.shape[2:]), asked, strict=True):
            stop = np.cumsum(counts, axis=1)
            wide = np.array([np.diff(grid.borders) > grid.coarse for grid in grids])
            above, below = np.where(wide, stop, stop - counts), np.where(wide, stop - counts, stop)
            for offset, share in ranks:
                rank = offset + share * stop[:, -1:]
                away = np.maximum(np.maximum(above - rank, rank - below), 0.0) / max(share, 1.0 - share)
                out.append((away + [[grid.penalty] for grid in grids]).ravel())
        return np.reshape(out, (len(params), -1, out[0].size))


@dataclass(frozen=True)
class RankTree(OneCount):
    r"""For each group and column the counts in the nodes of a binary tree over cells, without the root.

    **Privacy.** A record is in one node per level and column: sqrt(depth columns) in L2, sqrt(2) times that
    when it is replaced. ``by_cell`` it is in one group, and all of them count as one column.
    """

    needs: ClassVar[tuple[type, ...]] = (PartedArrays,)

    columns: int
    depth: int
    by_cell: bool = False

    @property
    def counts(self) -> int:
        """One node per level and column."""
        return self.depth * (1 if self.by_cell else self.columns)

    def evaluate(self, records: Any, params: Any) -> Floats:
        """Return the counts level by level from below the root, shape (columns, 2^(depth+1) - 2)."""
        return tree_above(grid_counts(records, params, self.by_cell).reshape(self.columns, -1))


def tree_above(leaves: Floats) -> Floats:
    """Return the counts of all nodes, level by level from below the root, from those of the cells."""
    levels = [leaves]
    while levels[0].shape[1] > 2:
        below = levels[0]
        levels.insert(0, below[:, ::2] + below[:, 1::2])
    return np.concatenate(levels, axis=1)


# ------------------------------ Sums over records by cell: a record belongs to one declared cell or to none
# Records hold two numbers: the cell, a whole number from 0 (anything else is in no cell), and a value. Where
# a unit is a person, a row stands for a part of it, and all rows of one add a convex combination together
# of what single records add (or add nothing): the bounds below hold for it as well.


@dataclass(frozen=True)
class CellMoments(ClippedSum):
    r"""For each cell the sums of ``weight * a**k``, a the value in [-1, 1] after ``(x - center) / scale``
    and a clip.

    ``powers`` are pairs (k, weight); k = 0 counts. The answer has one row per power and one column per cell.

    **Privacy.** A record adds to one cell a vector with entries of at most its weights:
    ``C = sqrt(sum of weights^2)``. A replaced one moves ``sqrt 2 C`` at most if it changes its cell; within
    its cell counts stay, even powers (in [0, 1]) move by their weight and odd ones by twice it.
    """

    cells: int
    powers: tuple[tuple[int, float], ...] = ((0, 1.0),)
    center: float = 0.0
    scale: float = 1.0

    def contribution(self, params: Any) -> float:
        square = math.fsum(weight**2 for _, weight in self.powers)
        return 1.0 if square == 1.0 else math.sqrt(square) * ABOVE

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return C, or the larger of the two ways to replace a record."""
        one = self.contribution(params)
        if relation.contributions == 1:
            return one
        inside = math.fsum((1 + k % 2) ** 2 * weight**2 for k, weight in self.powers if k)
        return max(math.sqrt(2.0) * one, math.sqrt(inside)) * ABOVE

    def evaluate(self, records: PartedArrays, params: Any) -> Floats:
        out = np.zeros((len(self.powers), self.cells))
        for cell, a, part in self._values(records):
            for row, (k, weight) in zip(out, self.powers, strict=True):
                row += np.bincount(cell, weights=part * (weight * a**k), minlength=self.cells)
        return out

    def _values(self, records: PartedArrays) -> Iterator[tuple[Ints, Floats, Floats]]:
        own = _own(records)
        for rows, block in records.scaled_rows(np.ones(records.count)):
            cell, inside = number_cells(block[:, 0], self.cells)
            with np.errstate(over="ignore"):
                a = np.clip((block[inside, 1] - self.center) / self.scale, -1.0, 1.0)
            yield cell, a, own[rows][inside]


def number_cells(column: Floats, cells: int) -> tuple[Ints, np.ndarray]:
    """Return the cells of the records that have one, and the numbers of these records."""
    inside = (column >= 0) & (column < cells) & (column == np.floor(column))
    return column[inside].astype(np.int64), inside


# ----------------------------------------------------------------------------------------------------------
# Questions about the columns of a table as they are: which values are frequent, how numbers are spread.


@dataclass(frozen=True)
class FrequentValues(OneCount):
    """How many records have each text that occurs, for each of ``columns`` columns.

    **Privacy.** A record adds one to one count of each column: sqrt(columns) in L2, and sqrt(2 columns) when
    it is replaced. Which texts occur is private too: the mechanism has to hide it.
    """

    columns: int

    adds_up: ClassVar[bool] = False  # answers are dictionaries

    @property
    def counts(self) -> int:
        """How many counts a record adds to: one octave, text or gap of each column."""
        return self.columns

    def evaluate(self, records: ValueColumns, params: Any) -> list[dict[str, int]]:
        return [records.counts(column) for column in range(self.columns)]


@dataclass(frozen=True)
class ValueKinds(ClippedSum):
    """For each of ``columns`` columns, how many records have a value, and how many have a number.

    **Privacy.** A record adds at most one to each count, and moves each by at most one when it is replaced:
    sqrt(2 columns) in L2 for both relations.
    """

    columns: int

    def contribution(self, params: Any) -> float:
        return math.sqrt(2 * self.columns)

    def sensitivity(self, relation: Relation, params: Any) -> float:
        return self.contribution(params)

    def evaluate(self, records: ValueColumns, params: Any) -> Floats:
        """Return the counts, shape (columns, 2)."""
        present = [sum(records.counts(column).values()) for column in range(self.columns)]
        numbers = [np.count_nonzero(~np.isnan(records.numbers(column))) for column in range(self.columns)]
        return np.stack([present, numbers], axis=1).astype(float)


@dataclass(frozen=True)
class NumberTree(RankTree):
    """The tree of counts of :class:`RankTree` for columns with gaps: a record without a number is in no node.

    **Privacy.** As for :class:`RankTree`.
    """

    def evaluate(self, records: ValueColumns, params: Any) -> Floats:
        """Return the counts of all columns, each in the cells of its own grid."""
        columns = [records.numbers(column) for column in range(self.columns)]
        pairs = zip(params, columns, strict=True)
        cells = [grid.cells(numbers[~np.isnan(numbers)]) for grid, numbers in pairs]
        return tree_above(np.array([np.bincount(c, minlength=2**self.depth) for c in cells], dtype=float))
