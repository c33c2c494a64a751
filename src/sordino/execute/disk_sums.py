"""Sums over rows on a disk: blocks are announced, read by several threads and added up in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sordino.execute.disk_kept import Kept, asked_columns
from sordino.execute.local import CSR, DENSE, LocalExecutor
from sordino.execute.parts import in_parts
from sordino.execute.records import LocalRecords
from sordino.execute.tree import Nodes, folded, total
from sordino.kernel import Batch, Question
from sordino.kernel.arrays import Floats, Ints

if TYPE_CHECKING:
    from sordino.execute.disk import DiskMatrix

Chosen: TypeAlias = slice | Ints
Buffers: TypeAlias = dict[str, Any]
"""Arrays by the name of the file that they are read from: a fresh page costs more than reading into it."""
_THREADS = max(2, min(8, os.cpu_count() or 2))  # at least two: one reads while the other adds up
_AHEAD = 2 * _THREADS  # blocks that are begun or announced: the disk works while all threads add up
SHARE = 3 * _THREADS  # a block of each thread, and what a pass over a block makes of it
_REMEDY = "Read the rows into memory, or choose a solver that asks for sums."


class DiskExecutor:
    """Answers releases from rows on a disk: all of them block by block, or the rows of a batch.

    **Privacy.** As in memory: rows are clipped as they are read, a record that is not finite contributes
    zero, noise is added to the sum over all blocks. Files that were written to since they were opened are
    refused before anything is released from them: a record could have moved to where it enters twice.
    """

    def __init__(
        self, rows: DiskMatrix, targets: Any, data_norm: float | None, intercept: float, weights: Any
    ) -> None:
        self.population = rows.shape[0]
        self.offer = in_parts(CSR if rows.sparse else DENSE, "rows on a disk", _REMEDY)
        self._rows, self._targets, self._weights = rows, targets, weights
        self._norm, self._intercept = data_norm, intercept
        self._kept = Kept(rows.memory - SHARE * rows.block_bytes)
        self._free: deque[Buffers] = deque()  # of threads that are done with theirs: no more than there are

    def total(self, question: Question, batch: Batch) -> Any:
        """Add up the drawn rows, as many at a time as fit."""
        chosen = cut(batch.rows(self.population), self.population, self._rows.block_rows)
        nodes: Nodes = {}
        for number, part in enumerate(self._sums(question, chosen)):
            nodes = folded({**nodes, (0, number): part}, len(chosen))
        self._rows.require_unchanged()
        return total([nodes], len(chosen))

    def _sums(self, question: Question, chosen: Sequence[Chosen]) -> Iterator[Any]:
        """Yield the sums of blocks in order; each thread reads a block and adds it up."""
        if len(chosen) == 1:
            self._announce(question, chosen[0])
            yield self._sum(question, chosen[0])
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            begun: deque[Future[Any]] = deque()
            try:
                for rows in chosen:
                    if len(begun) == _AHEAD:
                        yield begun.popleft().result()
                    self._announce(question, rows)
                    begun.append(pool.submit(self._sum, question, rows))
                while begun:
                    yield begun.popleft().result()
            finally:
                for future in begun:
                    future.cancel()

    def _announce(self, question: Question, rows: Chosen) -> None:
        columns = asked_columns(question.params)
        if columns is None or not isinstance(rows, slice) or not self._kept.has(rows.start, columns):
            self._rows.announce(rows)

    def _sum(self, question: Question, rows: Chosen) -> Any:
        """Return the sum over a block; nothing of the block is left in it."""
        try:
            buffers = self._free.pop()
        except IndexError:
            buffers = {}
        columns = asked_columns(question.params) if isinstance(rows, slice) and not question.lazy else None
        try:
            if columns is None or not isinstance(rows, slice):
                return self._part(rows, buffers).total(question, Batch())
            whole = partial(self._whole, rows, buffers)
            return question.summed(self._kept.records(rows.start, columns, whole))
        finally:
            self._free.append(buffers)

    def _whole(self, rows: Chosen, buffers: Buffers) -> LocalRecords:
        return self._part(rows, buffers).records(None)

    def _part(self, rows: Chosen, buffers: Buffers) -> LocalExecutor:
        targets, weights = (None if v is None else _picked(v, rows) for v in (self._targets, self._weights))
        block = self._rows.read(rows, buffers)
        return LocalExecutor(block, targets, self._norm, self._intercept, weights)


def cut(rows: Ints | None, count: int, size: int) -> list[Chosen]:
    """Return consecutive pieces of at most ``size`` rows; one, if it is empty, of none."""
    if rows is None:
        return [slice(i, min(i + size, count)) for i in range(0, max(count, 1), size)]
    return [np.sort(rows)[i : i + size] for i in range(0, max(len(rows), 1), size)]


def _picked(values: Any, rows: Chosen) -> Floats:
    return np.asarray(values[rows], dtype=np.float64)
