"""Data without one of their units: it is not there, or all of its records are not numbers.

Executors that are not listed are asked for batches that leave the unit out; see ``tape.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from sordino.execute import GroupedExecutor, LocalExecutor
from sordino.execute.local import StreamExecutor, ValueExecutor
from sordino.execute.parties import SimulatedParties


@dataclass(frozen=True, eq=False)
class Absent:
    """A unit that leaves: its number and, where records have owners, whom the caller knows to own each.

    An executor's own numbers of persons are not asked: it may have merged two of them.
    """

    unit: int
    owners: np.ndarray | None = None

    def rows(self, population: int) -> Any:
        """Return its rows among so many: one, or all records of a person."""
        if self.owners is not None and len(self.owners) == population:
            return np.flatnonzero(self.owners == self.unit)
        return np.array([min(self.unit, population - 1)])


def without(executor: Any, absent: Absent) -> Any:
    """Return an executor to which the unit contributes nothing; None for one that only has batches."""
    if isinstance(executor, GroupedExecutor):
        rows = absent.rows(executor.local.population)
        return GroupedExecutor(_rows(executor.local, rows), executor.groups)
    make = ABSENT.get(type(executor))
    return None if make is None else make(executor, absent.rows(executor.population))


def _rows(executor: LocalExecutor, rows: Any) -> LocalExecutor:
    matrix, facts = (
        executor.matrix,
        (executor.targets, executor.data_norm, executor.intercept, executor.weights),
    )
    if not sparse.issparse(matrix):
        gone = np.array(matrix, dtype=float)
        gone[rows] = np.nan
        return LocalExecutor(gone, *facts)
    keep = np.ones(matrix.shape[0])
    keep[rows] = 0.0
    mark = sparse.csr_matrix(
        (np.full(np.size(rows), np.nan), (np.ravel(rows), np.zeros(np.size(rows), int))), shape=matrix.shape
    )
    return LocalExecutor(sparse.csr_matrix(sparse.diags(keep) @ matrix + mark), *facts)


def _value(executor: ValueExecutor, rows: Any) -> ValueExecutor:
    keep = ~np.isin(np.arange(executor.population), rows)
    numbers = tuple(np.where(keep, column, np.nan) for column in executor.number_columns)
    texts = tuple((np.where(keep, codes, -1), words) for codes, words in executor.text_columns)
    return ValueExecutor(executor.population, numbers, texts)


def _parties(executor: SimulatedParties, rows: Any) -> SimulatedParties:
    """Return members of whom one has lost a record; the numbers of their records are public and stay."""
    members, start = [], 0
    for member in executor.members:
        gone = rows[(rows >= start) & (rows < start + member.population)] - start
        members.append(_rows(member, gone) if gone.size else member)
        start += member.population
    return SimulatedParties(members, executor.share)


class _Stream(StreamExecutor):
    """Loses one record of the chunk it is in: that of a number, counted over all chunks."""

    def __init__(self, inner: StreamExecutor, rows: Any) -> None:
        self._inner, self._row, self._past, self._seen = inner, int(rows[0]), 0, -1

    @property
    def population(self) -> int:
        return self._inner.population

    def total(self, *asked: Any) -> Any:
        inner = self._inner
        if inner._number != self._seen and inner._chunk is not None:
            self._seen, chunk = inner._number, inner._chunk
            if self._past <= self._row < self._past + chunk.population:
                inner._chunk = _rows(chunk, self._row - self._past)
            self._past += chunk.population
        return inner.total(*asked)


ABSENT: dict[type, Callable[[Any, Any], Any]] = {
    LocalExecutor: _rows,
    ValueExecutor: _value,
    StreamExecutor: _Stream,
    SimulatedParties: _parties,
}
