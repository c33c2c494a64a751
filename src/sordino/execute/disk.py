"""Rows on a disk, read in order or here and there: a batch reads its own rows only."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from scipy import sparse

from sordino.errors import InvalidInputError
from sordino.execute.disk_files import Blocks, Layout, Opened, write_blocks
from sordino.execute.disk_sums import SHARE, Buffers, Chosen, DiskExecutor, cut
from sordino.execute.held import Held
from sordino.kernel.arrays import Ints
from sordino.kernel.machine_code import compiled

# A block is as small as it can be without answers, of eight bytes a column, taking long beside it: it is
# looked at several times, and one that stays in the caches is read from memory once.
_BLOCK, _ANSWERS = 1 << 24, 20 * 8
# Files larger than the first share of the machine's memory push each other's pages out of the system's cache
# before a pass returns to them; then only the last rows, the second share's worth, are left there. (The first
# ones are kept by who has room for them.)
_BEYOND, _CACHED = 0.75, 0.5


class DiskMatrix(Held):
    """Rows in a folder, opened by :func:`on_disk`; ``fit`` takes it in place of a matrix.

    Attributes
    ----------
    shape, dtype, sparse : of the rows.
    target : the targets that were written with the rows, or None.
    memory : how many bytes a pass over the rows may use.
    """

    def __init__(self, layout: Layout, files: dict[str, Opened], memory: int) -> None:
        self._layout, self._files, self.memory = layout, files, memory
        self._touched = 0  # bytes of mapped pages, about
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._beyond = sum(self._layout.sizes().values()) > _BEYOND * machine
        self._cached = self._layout.rows - int(_CACHED * machine / self._layout.row_bytes)  # from this row on
        self.shape, self.sparse = (layout.rows, layout.columns), layout.sparse
        self.dtype = np.dtype(layout.values)
        self.target = self._mapped("targets.bin", layout.targets) if layout.targets else None
        self._values = self._mapped("values.bin", layout.values)
        if layout.sparse:
            self._indices = self._mapped("indices.bin", layout.indices)
            self._pointers = self._mapped("pointers.bin", "<i8")
        if self._beyond:
            for name in self._row_files:
                self._files[name].scatter()

    def __repr__(self) -> str:
        kind = "sparse" if self.sparse else "dense"
        return f"DiskMatrix({self.shape[0]} x {self.shape[1]}, {kind}, {self.dtype})"

    @property
    def block_rows(self) -> int:
        """How many rows are in memory at a time."""
        return max(1, int(self.block_bytes / self._layout.row_bytes))

    @property
    def block_bytes(self) -> int:
        """The bytes of a block: so that blocks of all threads take half of the memory at most."""
        return min(self.memory // (2 * SHARE), max(_BLOCK, _ANSWERS * self.shape[1]))

    @property
    def _row_files(self) -> tuple[str, ...]:
        return ("values.bin", "indices.bin") if self.sparse else ("values.bin",)

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
        for rows in cut(None, self.shape[0], self.block_rows):
            yield self.read(rows)

    def read(self, rows: Chosen, buffers: Buffers | None = None) -> Any:
        """Return some rows in memory; nothing else is read.

        With ``buffers`` a block lies in them, until the next one is read into them.
        """
        kept = {} if buffers is None else buffers
        found = self._read_sparse(rows, kept) if self.sparse else self._read_dense(rows, kept)
        if not isinstance(rows, slice):
            self._touched += int(3 * mmap.PAGESIZE + self._layout.row_bytes) * len(rows)
        if self._touched * SHARE > self.memory:
            self._forget()
        return found

    def announce(self, rows: Chosen) -> None:
        """Have the system read some rows that will be asked for soon.

        Of batches from files that its cache can hold it reads more than is asked for, by itself.
        """
        if not isinstance(rows, slice) and not self._beyond:
            return
        starts, stops = self._entries(rows)
        if isinstance(rows, slice):
            starts, stops = starts[:1], stops[-1:]
        for name in self._row_files if starts.size else ():
            width = self._kind(name).itemsize
            self._files[name].announce(starts * width, stops * width)

    def _entries(self, rows: Chosen) -> tuple[Ints, Ints]:
        """Return where rows begin and end, counted in entries; in the files, for all that is believed."""
        if isinstance(rows, slice):
            edges = self._edges(rows)
            return edges[:-1], edges[1:]
        if not self.sparse:
            return rows * self.shape[1], (rows + 1) * self.shape[1]
        starts, stops = self._pointers[rows], self._pointers[rows + 1]
        self._check_inside(starts, stops)
        return starts, stops

    def _edges(self, rows: slice) -> Ints:
        if not self.sparse:
            return np.arange(rows.start, rows.stop + 1) * self.shape[1]
        edges = np.array(self._pointers[rows.start : rows.stop + 1])
        self._check_inside(edges[:-1], edges[1:])
        return edges

    def _read_dense(self, rows: Chosen, buffers: Buffers) -> Any:
        width = self.shape[1]
        if isinstance(rows, slice):
            return self._from("values.bin", rows, rows.start * width, rows.stop * width, buffers).reshape(
                -1, width
            )
        out = self._room("values.bin", len(rows) * width, buffers).reshape(-1, width)
        return self._values.reshape(self.shape).take(rows, axis=0, out=out, mode="clip")

    def _read_sparse(self, rows: Chosen, buffers: Buffers) -> Any:
        if isinstance(rows, slice):
            ends = self._edges(rows)
            first, last = int(ends[0]), int(ends[-1])
            values, indices = (self._from(name, rows, first, last, buffers) for name in self._row_files)
            ends -= first
        else:
            starts, stops = self._entries(rows)
            ends = np.concatenate([[0], np.cumsum(stops - starts)])
            values, indices = (self._room(name, int(ends[-1]), buffers) for name in self._row_files)
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

    def _from(self, name: str, rows: slice, first: int, last: int, buffers: Buffers) -> Any:
        """Return the entries of a block, which holds these rows, and leave room in the system's cache."""
        out, width = self._room(name, last - first, buffers), self._kind(name).itemsize
        self._files[name].read(out.view(np.uint8).data, first * width)
        if self._beyond and rows.stop <= self._cached:
            self._files[name].drop(first * width, last * width)
        return out

    def _room(self, name: str, count: int, buffers: Buffers) -> Any:
        if name not in buffers or buffers[name].size < count:
            buffers[name] = np.empty(count, dtype=self._kind(name))
        return buffers[name][:count]

    def _kind(self, name: str) -> np.dtype[Any]:
        return np.dtype(self._layout.values if name == "values.bin" else self._layout.indices)

    def _mapped(self, name: str, kind: str) -> Any:
        return self._files[name].mapped(kind)

    def _forget(self) -> None:
        """Give mapped pages back: what batches read is not memory that the next one needs."""
        self._touched = 0
        for file in self._files.values():
            file.forget()


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
    folder = Path(path)
    layout = Layout.read(folder)
    files = {name: Opened.at(folder / name, size) for name, size in layout.sizes().items()}
    rows = DiskMatrix(layout, files, memory)
    if verify:
        rows.verify()
    return rows


def without_name(blocks: Blocks, memory: int) -> DiskMatrix:
    """Return rows in files that have no name: however this process ends, the system takes their room back."""
    with ExitStack() as stack:
        made: dict[str, Any] = {}

        def opened(name: str) -> BinaryIO:
            made[name] = stack.enter_context(tempfile.TemporaryFile(prefix="sordino-rows-"))
            return cast(BinaryIO, made[name])

        layout = write_blocks(blocks, opened)
        for file in made.values():
            file.flush()
        sizes = layout.sizes()
        files = {name: Opened(os.dup(file.fileno()), name, sizes[name]) for name, file in made.items()}
    return DiskMatrix(layout, files, memory)


@compiled(nogil=True)
def _gather(starts: Ints, stops: Ints, values: Any, indices: Any, out: Any, columns: Ints) -> None:
    """Copy the entries of some rows behind each other."""
    at = 0
    for i in range(starts.size):
        for p in range(starts[i], stops[i]):
            out[at] = values[p]
            columns[at] = indices[p]
            at += 1
