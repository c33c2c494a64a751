"""Rows on a disk, read in order with one block ahead; a batch reads its own rows only."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import numba
import numpy as np
from scipy import sparse

from sordino.errors import InvalidInputError
from sordino.execute.disk_files import Layout
from sordino.execute.held import Held
from sordino.execute.local import CSR, DENSE, LocalExecutor
from sordino.execute.parts import in_parts
from sordino.execute.question import Question
from sordino.execute.tree import Nodes, folded, total
from sordino.kernel import NoiseSource, Offer, Release
from sordino.kernel.arrays import Floats, Ints

Chosen: TypeAlias = slice | Ints
_SHARE = 6  # a block, the next one, and what a pass over a block makes of it
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
        self._folder, self._layout, self.memory = folder, Layout.read(folder), memory
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

    def read(self, rows: Chosen) -> Any:
        """Return some rows in memory; nothing else is read."""
        found = self._read_sparse(rows) if self.sparse else self._read_dense(rows)
        if not isinstance(rows, slice):
            self._touched += 3 * mmap.PAGESIZE * len(rows)
        if self._touched * _SHARE > self.memory:
            self._forget()
        return found

    def _read_dense(self, rows: Chosen) -> Any:
        width = self.shape[1]
        if isinstance(rows, slice):
            count = (rows.stop - rows.start) * width
            return self._from("values.bin", self.dtype, rows.start * width, count).reshape(-1, width)
        return self._values.reshape(self.shape)[rows]

    def _read_sparse(self, rows: Chosen) -> Any:
        if isinstance(rows, slice):
            ends = np.array(self._pointers[rows.start : rows.stop + 1])
            first, last = int(ends[0]), int(ends[-1])
            self._check_inside(ends[:-1], ends[1:])
            values = self._from("values.bin", self.dtype, first, last - first)
            indices = self._from("indices.bin", np.dtype(self._layout.indices), first, last - first)
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

    def _from(self, name: str, kind: np.dtype[Any], start: int, count: int) -> Any:
        with (self._folder / name).open("rb") as file:
            return np.fromfile(file, dtype=kind, count=count, offset=start * kind.itemsize)

    def _mapped(self, name: str, kind: str) -> Any:
        size = self._layout.sizes()[name] // np.dtype(kind).itemsize
        if not size:
            return np.empty(0, dtype=kind)
        return np.memmap(self._folder / name, dtype=kind, mode="r", shape=(size,))

    def _forget(self) -> None:
        """Give mapped pages back: what batches read is not memory that the next one needs."""
        self._touched = 0
        for part in ("_values", "_indices", "_pointers"):
            mapped = getattr(getattr(self, part, None), "_mmap", None)
            if mapped is not None:
                mapped.madvise(mmap.MADV_DONTNEED)


class DiskExecutor:
    """Answers releases from rows on a disk: all of them block by block, or the rows of a batch.

    **Privacy.** As in memory: rows are clipped as they are read, a record that is not finite contributes
    zero, noise is added to the sum over all blocks.
    """

    def __init__(
        self, rows: DiskMatrix, targets: Any, data_norm: float | None, intercept: float, weights: Any
    ) -> None:
        self._rows, self._targets, self._weights = rows, targets, weights
        self._norm, self._intercept = data_norm, intercept
        self._offer = in_parts(CSR if rows.sparse else DENSE, "rows on a disk", _REMEDY)

    @property
    def population(self) -> int:
        """The number of records, declared public."""
        return self._rows.shape[0]

    @property
    def offer(self) -> Offer:
        """What queries can ask of these rows."""
        return self._offer

    def answer(
        self, release: Release, params: Any, sensitivity: float, position: int, noise: NoiseSource
    ) -> Any:
        """Add up the drawn rows, as many at a time as fit, and add the noise."""
        question = Question.of(release, params, sensitivity, self.population)
        rows = release.sampling.draw(self.population, position, noise)
        chosen = _cut(rows, self.population, self._rows.block_rows)
        nodes: Nodes = {}
        for number, part in enumerate(self._parts(chosen)):
            nodes = folded({**nodes, (0, number): part.summed(question, None)}, len(chosen))
        return question.noised(total([nodes], len(chosen)), release, sensitivity, noise)

    def _parts(self, chosen: Sequence[Chosen]) -> Iterator[LocalExecutor]:
        """Yield executors over blocks; the next block is read while one is worked on."""
        if len(chosen) == 1:
            yield self._part(chosen[0], self._rows.read(chosen[0]))
            return
        with ThreadPoolExecutor(1) as reader:
            ahead = reader.submit(self._rows.read, chosen[0])
            for number, rows in enumerate(chosen):
                block = ahead.result()
                if number + 1 < len(chosen):
                    ahead = reader.submit(self._rows.read, chosen[number + 1])
                yield self._part(rows, block)

    def _part(self, rows: Chosen, block: Any) -> LocalExecutor:
        targets, weights = (None if v is None else _picked(v, rows) for v in (self._targets, self._weights))
        return LocalExecutor(block, targets, self._norm, self._intercept, weights)


def on_disk(path: str | os.PathLike[str], *, memory: int = 1 << 30) -> DiskMatrix:
    """Open rows that :func:`to_disk` wrote, without reading them.

    Parameters
    ----------
    path : the folder.
    memory : how many bytes a pass over the rows may use.

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
    return DiskMatrix(Path(path), memory)


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
