"""Questions about the columns of a table as they are: which values are frequent, how numbers are spread."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import ClippedSum, Relation
from sordino.kernel.arrays import Floats
from sordino.kernel.contracts import ValueColumns
from sordino.problems.scales import RankTree, tree_above


@dataclass(frozen=True)
class FrequentValues(ClippedSum):
    """How many records have each text that occurs, for each of ``columns`` columns.

    **Privacy.** A record adds one to one count of each column: sqrt(columns) in L2, and sqrt(2 columns) when
    it is replaced. Which texts occur is private too: the mechanism has to hide it.
    """

    needs: ClassVar[tuple[type, ...]] = (ValueColumns,)

    columns: int

    @property
    def adds_up(self) -> bool:
        """False: answers are dictionaries."""
        return False

    def contribution(self, params: Any) -> float:
        """Return sqrt(columns)."""
        return math.sqrt(self.columns)

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return sqrt(columns), or sqrt(2 columns) for a replaced record."""
        return math.sqrt(relation.contributions * self.columns)

    def evaluate(self, records: ValueColumns, params: Any) -> list[dict[str, int]]:
        """Return the counts of each column."""
        return [records.counts(column) for column in range(self.columns)]


@dataclass(frozen=True)
class ValueKinds(ClippedSum):
    """For each of ``columns`` columns, how many records have a value, and how many have a number.

    **Privacy.** A record adds at most one to each count, and moves each by at most one when it is replaced:
    sqrt(2 columns) in L2 for both relations.
    """

    needs: ClassVar[tuple[type, ...]] = (ValueColumns,)

    columns: int

    def contribution(self, params: Any) -> float:
        """Return sqrt(2 columns)."""
        return math.sqrt(2 * self.columns)

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return sqrt(2 columns)."""
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

    needs: ClassVar[tuple[type, ...]] = (ValueColumns,)

    def evaluate(self, records: Any, params: Any) -> Floats:
        """Return the counts level by level from below the root."""
        edges, out = self.edges, np.zeros((self.columns, 2**self.depth))
        for column in range(self.columns):
            numbers = records.numbers(column)
            cells = np.searchsorted(edges, numbers[~np.isnan(numbers)], side="right")
            out[column] = np.bincount(cells, minlength=out.shape[1])
        return tree_above(out)
