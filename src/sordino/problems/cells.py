"""Sums over records by cell: a record belongs to one declared cell or to none.

Records hold two numbers: the cell, a whole number from 0 (anything else is in no cell), and a value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import ClippedSum, OnLattice, Relation
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.contracts import DenseRows
from sordino.problems.robust import present
from sordino.problems.scales import RankTree

_ABOVE = 1.0 + 2.0**-48  # covers the rounding of the powers and of the root


@dataclass(frozen=True)
class CellMoments(ClippedSum, OnLattice):
    r"""For each cell the sums of ``weight * a**k``, a the value in [-1, 1] after ``(x - center) / scale``
    and a clip.

    ``powers`` are pairs (k, weight); k = 0 counts. The answer has one row per power and one column per cell.

    **Privacy.** A record adds to one cell a vector with entries of at most its weights:
    ``C = sqrt(sum of weights^2)``. A replaced one moves ``sqrt 2 C`` at most if it changes its cell; within
    its cell counts stay, even powers (in [0, 1]) move by their weight and odd ones by twice it.
    """

    needs: ClassVar[tuple[type, ...]] = (DenseRows,)

    cells: int
    powers: tuple[tuple[int, float], ...] = ((0, 1.0),)
    center: float = 0.0
    scale: float = 1.0

    def contribution(self, params: Any) -> float:
        """Return C."""
        square = math.fsum(weight**2 for _, weight in self.powers)
        return 1.0 if square == 1.0 else math.sqrt(square) * _ABOVE

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return C, or the larger of the two ways to replace a record."""
        one = self.contribution(params)
        if relation.contributions == 1:
            return one
        inside = math.fsum((1 + k % 2) ** 2 * weight**2 for k, weight in self.powers if k)
        return max(math.sqrt(2.0) * one, math.sqrt(inside)) * _ABOVE

    def evaluate(self, records: DenseRows, params: Any) -> Floats:
        """Return the sums, shape (powers, cells)."""
        out = np.zeros((len(self.powers), self.cells))
        for cell, a in self._values(records):
            for row, (k, weight) in zip(out, self.powers, strict=True):
                row += np.bincount(cell, weights=weight * a**k, minlength=self.cells)
        return out

    def evaluate_on_lattice(self, records: DenseRows, params: Any, spacing: float) -> Ints:
        """Return the sums of contributions truncated towards zero to multiples of ``spacing``."""
        out = np.zeros((len(self.powers), self.cells), dtype=np.int64)
        for cell, a in self._values(records):
            for row, (k, weight) in zip(out, self.powers, strict=True):
                np.add.at(row, cell, np.trunc(weight * a**k / spacing).astype(np.int64))
        return out

    def _values(self, records: DenseRows) -> Iterator[tuple[Ints, Floats]]:
        for rows, block in records.scaled_rows(np.ones(records.count)):
            block = block[present(records, rows)]
            cell, inside = numbered(block[:, 0], self.cells)
            with np.errstate(over="ignore"):
                yield cell, np.clip((block[inside, 1] - self.center) / self.scale, -1.0, 1.0)


@dataclass(frozen=True)
class CellTrees(ClippedSum, OnLattice):
    """For each cell the counts in the nodes of a binary tree over the values of its records.

    **Privacy.** A record is in one cell, and there in one node per level: sqrt(depth) in L2, sqrt(2 depth)
    when it is replaced.
    """

    needs: ClassVar[tuple[type, ...]] = (DenseRows,)

    cells: int
    depth: int
    bounds: tuple[float, float]

    @property
    def edges(self) -> Floats:
        """The inner borders of the leaves."""
        return RankTree(1, self.depth, self.bounds).edges

    def contribution(self, params: Any) -> float:
        """Return sqrt(depth)."""
        return math.sqrt(self.depth)

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return sqrt(depth), or sqrt(2 depth) for a replaced record."""
        return math.sqrt(relation.contributions * self.depth)

    def evaluate(self, records: DenseRows, params: Any) -> Floats:
        """Return the counts level by level from below the root, shape (cells, 2^(depth+1) - 2)."""
        size, edges = 2**self.depth, self.edges
        leaves = np.zeros(self.cells * size)
        for rows, block in records.scaled_rows(np.ones(records.count)):
            block = block[present(records, rows)]
            cell, inside = numbered(block[:, 0], self.cells)
            leaf = np.searchsorted(edges, block[inside, 1], side="right")
            leaves += np.bincount(cell * size + leaf, minlength=leaves.size)
        levels = [leaves.reshape(self.cells, size)]
        while levels[0].shape[1] > 2:
            levels.insert(0, levels[0][:, ::2] + levels[0][:, 1::2])
        return np.concatenate(levels, axis=1)

    def evaluate_on_lattice(self, records: DenseRows, params: Any, spacing: float) -> Ints:
        """Return the counts as multiples of ``spacing``, a power of two."""
        return self.evaluate(records, params).astype(np.int64) * int(1.0 / spacing)


def numbered(column: Floats, cells: int) -> tuple[Ints, np.ndarray]:
    """Return the cells of the records that are in one, and which records those are."""
    inside = (column >= 0) & (column < cells) & (column == np.floor(column))
    return column[inside].astype(np.int64), inside
