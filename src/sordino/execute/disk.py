"""Rows on a disk, read in order by several threads; a batch reads its own rows only."""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import numba
import numpy as np
from scipy import sparse

from sordino.errors import InvalidInputError
from sordino.execute.disk_files import Layout, Opened
from sordino.execute.held import Held
from sordino.execute.local import LocalExecutor
from sordino.execute.parts import SummedExecutor
from sordino.execute.question import Question
from sordino.execute.tree import Nodes, folded, total
from sordino.kernel import NoiseSource
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.sampling import Sampling

Chosen: TypeAlias = slice | Ints
Buffers: TypeAlias = dict[str, Any]
"""Arrays by the name of the file that they are read from: a fresh page costs more than reading into it."""
_THREADS = max(2, min(8, os.cpu_count() or 2))  # at least two: one reads while the other adds up
_SHARE = 3 * _THREADS  # a block of each thread, and what a pass over a block makes of it
_REMEDY = "Read the rows into memory, or choose a solver that asks for sums."


class DiskMatrix(Held):
    """Rows in a folder, opened by :func:`on_disk`; ``fit`` takes it in place of a matrix.

    Attributes
    ----------
    shape, dtype, sparse : of the rows.
    target : the targets that were written with the rows, or None.
    memory : how many bytes a pass over the rows may use.
    """

    def __init__(self, folder: Path, memory: int) -> None:
        self._layout, self.memory = Layout.read(folder), memory
        self._files = {name: Opened(folder / name, size) for name, size in self._layout.sizes().items()}
        self._touched = 0  # bytes of mapped pages, about
        layout = self._layout
        self.shape, self.sparse = (layout.rows, layout.columns), layout.sparse
        self.dtype = np.dtype(layout.values)
        self.target = self._mapped("targets.bin", layout.targets) if layout.targets else None
        self._values = self._mapped("values.bin", layout.values)
        if layout.sparse:
            self._indices = self._mapped("indices.bin", layout.indices)
            self._pointers = self._mapped("pointers.bin", "<i8")

    def __repr__(self) -> str:
        kind = "sparse" if self.sparse else "dense"
        return f"DiskMatrix({self.shape[0]} x {self.shape[1]}, {kind}, {self.dtype})"

    @property
    def block_rows(self) -> int:
        """How many rows are in memory at a time."""
        return max(1, int(self.memory / (_SHARE * self._layout.row_bytes)))

    def column(self, values: Any) -> Any:
        """Return one value per row as an array; these are small enough for memory."""
        here = np.asarray(values)
        if here.shape != self.shape[:1]:
            raise InvalidInputError(f"Expected one value for each of {self.shape[0]} rows, got {here.shape}.")
        if here.dtype.kind == "f" and not np.isfinite(here).all():
            raise InvalidInputError(
                "Expected finite numbers, got NaN or inf. Drop or replace them by a public rule."
            )
        return here

    def executor(self, targets: Any, data_norm: float | None, intercept: float, weights: Any) -> DiskExecutor:
        """Return the executor over these rows."""
        return DiskExecutor(self, targets, data_norm, intercept, weights)

    def blocks(self) -> Iterator[Any]:
        """Yield the rows in order, a block at a time, for example to predict for them."""
        for rows in _cut(None, self.shape[0], self.block_rows):
            yield self.read(rows)

    def read(self, rows: Chosen, buffers: Buffers | None = None) -> Any:
        """Return some rows in memory; nothing else is read.

        With ``buffers`` a block lies in them, until the next one is read into them.
        """
        kept = {} if buffers is None else buffers
        found = self._read_sparse(rows, kept) if self.sparse else self._read_dense(rows, kept)
        if not isinstance(rows, slice):
            self._touched += 3 * mmap.PAGESIZE * len(rows)
        if self._touched * _SHARE > self.memory:
            self._forget()
        return found

    def _read_dense(self, rows: Chosen, buffers: Buffers) -> Any:
        width = self.shape[1]
        if isinstance(rows, slice):
            count = (rows.stop - rows.start) * width
            return self._from("values.bin", self.dtype, rows.start * width, count, buffers).reshape(-1, width)
        return self._values.reshape(self.shape)[rows]

    def _read_sparse(self, rows: Chosen, buffers: Buffers) -> Any:
        if isinstance(rows, slice):
            ends = np.array(self._pointers[rows.start : rows.stop + 1])
            first, last = int(ends[0]), int(ends[-1])
            self._check_inside(ends[:-1], ends[1:])
            values = self._from("values.bin", self.dtype, first, last - first, buffers)
            kind = np.dtype(self._layout.indices)
            indices = self._from("indices.bin", kind, first, last - first, buffers)
            ends -= first
        else:
            starts, stops = self._pointers[rows], self._pointers[rows + 1]
            self._check_inside(starts, stops)
            ends = np.concatenate([[0], np.cumsum(stops - starts)])
            values, indices = np.empty(ends[-1], self.dtype), np.empty(ends[-1], self._layout.indices)
            _gather(starts, stops, self._values, self._indices, values, indices)
        return sparse.csr_matrix((values, indices, ends), shape=(len(ends) - 1, self.shape[1]), copy=False)

    def _check_inside(self, starts: Ints, stops: Ints) -> None:
        inside = (starts >= 0) & (starts <= stops) & (stops <= self._layout.entries)
        if not inside.all():
            raise InvalidInputError(
                "Expected rising row pointers inside the file, got others. Convert it again."
            )

    def require_unchanged(self) -> None:
        """Refuse files that somebody wrote to since they were opened."""
        for file in self._files.values():
            file.require_unchanged()

    def verify(self) -> None:
        """Read all files and compare them with the sums that :func:`to_disk` wrote down."""
        for name, file in self._files.items():
            file.require_sum(self._layout.sums.get(name))

    def _from(self, name: str, kind: np.dtype[Any], start: int, count: int, buffers: Buffers) -> Any:
        if name not in buffers or buffers[name].size < count:
            buffers[name] = np.empty(count, dtype=kind)
        out = buffers[name][:count]
        self._files[name].read(out.view(np.uint8).data, start * kind.itemsize)
        return out

    def _mapped(self, name: str, kind: str) -> Any:
        return self._files[name].mapped(kind)

    def _forget(self) -> None:
        """Give mapped pages back: what batches read is not memory that the next one needs."""
        self._touched = 0
        for file in self._files.values():
            file.forget()


class DiskExecutor(SummedExecutor):
    """Answers releases from rows on a disk: all of them block by block, or the rows of a batch.

    **Privacy.** As in memory: rows are clipped as they are read, a record that is not finite contributes
    zero, noise is added to the sum over all blocks. Files that were written to since they were opened are
    refused before anything is released from them: a record could have moved to where it enters twice.
    """

    def __init__(
        self, rows: DiskMatrix, targets: Any, data_norm: float | None, intercept: float, weights: Any
    ) -> None:
        super().__init__(rows.shape[0], rows.sparse, "rows on a disk", _REMEDY)
        self._rows, self._targets, self._weights = rows, targets, weights
        self._norm, self._intercept = data_norm, intercept
        self._free: deque[Buffers] = deque()  # of threads that are done with theirs: no more than there are

    def _total(self, question: Question, sampling: Sampling, position: int, noise: NoiseSource) -> Any:
        """Add up the drawn rows, as many at a time as fit."""
        chosen = _cut(sampling.draw(self.population, position, noise), self.population, self._rows.block_rows)
        nodes: Nodes = {}
        for number, part in enumerate(self._sums(question, chosen)):
            nodes = folded({**nodes, (0, number): part}, len(chosen))
        self._rows.require_unchanged()
        return total([nodes], len(chosen))

    def _sums(self, question: Question, chosen: Sequence[Chosen]) -> Iterator[Any]:
        """Yield the sums of blocks in order; each thread reads a block and adds it up."""
        if len(chosen) == 1:
            yield self._sum(question, chosen[0])
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            begun: deque[Future[Any]] = deque()
            try:
                for rows in chosen:
                    if len(begun) == _THREADS:
                        yield begun.popleft().result()
                    begun.append(pool.submit(self._sum, question, rows))
                while begun:
                    yield begun.popleft().result()
            finally:
                for future in begun:
                    future.cancel()

    def _sum(self, question: Question, rows: Chosen) -> Any:
        """Return the sum over a block; nothing of the block is left in it."""
        try:
            buffers = self._free.pop()
        except IndexError:
            buffers = {}
        try:
            return self._part(rows, self._rows.read(rows, buffers)).summed(question, None)
        finally:
            self._free.append(buffers)

    def _part(self, rows: Chosen, block: Any) -> LocalExecutor:
        targets, weights = (None if v is None else _picked(v, rows) for v in (self._targets, self._weights))
        return LocalExecutor(block, targets, self._norm, self._intercept, weights)


def on_disk(path: str | os.PathLike[str], *, memory: int = 1 << 30, verify: bool = False) -> DiskMatrix:
    """Open rows that :func:`to_disk` wrote, without reading them.

    Parameters
    ----------
    path : the folder.
    memory : how many bytes a pass over the rows may use.
    verify : read everything once and compare it with the sums that were written down with the rows.

    Files that are written to while they are open are refused (by their size and times).

    **Privacy.** The number of rows and of columns is declared public. Rows that are not finite are not
    refused as they are in memory: they contribute nothing.

    Examples
    --------
    >>> import numpy as np, sordino, tempfile
    >>> X = np.eye(4)[np.arange(400) % 4]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = sordino.on_disk(sordino.to_disk(folder + "/rows", [(X, X[:, 2])]))
    ...     model = sordino.LinearRegression(data_norm=1.0, target_bound=1.0).fit(rows, rows.target)
    >>> model.coef_.shape
    (4,)
    """
    if not isinstance(memory, int) or isinstance(memory, bool) or memory < 1:
        raise InvalidInputError("Expected memory as a number of bytes >= 1, got another.")
    rows = DiskMatrix(Path(path), memory)
    if verify:
        rows.verify()
    return rows


def _cut(rows: Ints | None, count: int, size: int) -> list[Chosen]:
    """Return consecutive pieces of at most ``size`` rows; one, if it is empty, of none."""
    if rows is None:
        return [slice(i, min(i + size, count)) for i in range(0, max(count, 1), size)]
    return [np.sort(rows)[i : i + size] for i in range(0, max(len(rows), 1), size)]


def _picked(values: Any, rows: Chosen) -> Floats:
    return np.asarray(values[rows], dtype=np.float64)


@numba.njit(cache=True, nogil=True)
def _gather(starts: Ints, stops: Ints, values: Any, indices: Any, out: Any, columns: Ints) -> None:
    """Copy the entries of some rows behind each other."""
    at = 0
    for i in range(starts.size):
        for p in range(starts[i], stops[i]):
            out[at] = values[p]
            columns[at] = indices[p]
            at += 1
