"""Rows on a disk, read in order or here and there: a batch reads its own rows only."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, TypeAlias, cast

import numpy as np
from scipy import sparse

from sordino.errors import InvalidInputError
from sordino.execute.disk_files import Blocks, Layout, Opened, write_blocks
from sordino.execute.local import CSR, DENSE, Held, LocalExecutor, Nodes, fold, in_parts, total
from sordino.execute.records import LocalRecords, LocalView, places_of, same_map
from sordino.kernel import Batch, Question
from sordino.kernel.arrays import Ints, compile_with_cache
from sordino.kernel.query import PublicMap

_FACTS = 10 * 8  # bytes for a record besides its row: norms, factors, targets, what its last map made of them


def asked_columns(params: Any) -> Ints | None:
    """Return the columns of the first public map among parameters that drops all others."""
    for value in params if isinstance(params, tuple) else (params,):
        affine = getattr(value, "affine", value)
        columns = getattr(affine, "columns", None)
        if isinstance(columns, np.ndarray) and getattr(affine, "rest", None) is None:
            return columns
    return None


class Narrow:
    """The records of a block with some columns alone; whatever else is asked of them, the block is read.

    The last map of these columns is remembered.
    """

    whole: Callable[[], Any]

    def __init__(self, columns: Ints, records: LocalRecords) -> None:
        self.columns, self.records = columns, records
        self.targets, self.weights, self.parts = records.targets, records.weights, records.parts
        self._view: tuple[PublicMap, LocalView] | None = None

    @property
    def bytes(self) -> int:
        """How much memory they take, about."""
        x = self.records.matrix
        arrays = (x.data, x.indices, x.indptr) if sparse.issparse(x) else (x,)
        return sum(int(array.nbytes) for array in arrays) + _FACTS * self.records.count

    def through(self, affine: PublicMap) -> Any:
        """Return the rows through a public affine map."""
        if affine.rest is not None or not self._has(affine.columns):
            return self.whole().through(affine)
        known = self._view
        if known is None or not same_map(known[0], affine):
            known = self._view = (affine, LocalView(self.records, affine))
        return known[1]

    def within(self, columns: Ints | None) -> Any:
        return self.records if self._has(columns) else self.whole().within(columns)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole(), name)

    def _has(self, columns: Ints | None) -> bool:
        return columns is not None and np.array_equal(columns, self.columns)

    def places(self, columns: Ints) -> Ints | None:
        """Return where some columns are among these, which rise; None where one of them is not."""
        return places_of(columns, self.columns)

    def narrow(self, columns: Ints) -> Narrow | None:
        """Return the records with these columns; None where some of them are not here."""
        if self._has(columns):
            return self
        places = self.places(columns)
        return None if places is None else Narrow(columns, self.records.within(places))


class Kept:
    """Blocks by their first row, as many as there is room for.

    A solver that has chosen some of very many columns asks for them again and again: what is kept of a block
    answers in its place, also where it chooses among these once more.

    **Privacy.** Rows are those that were clipped when their block was read, less some columns; their norms
    stay those of whole rows. What is kept is exactly what reading again would give.
    """

    def __init__(self, room: int) -> None:
        self._room, self._lock = room, Lock()
        self._parts: dict[int, Narrow] = {}

    def records(self, start: int, columns: Ints, whole: Callable[[], LocalRecords]) -> Any:
        """Return the records of a block for a question about some columns; ``whole`` reads it."""
        known = self._parts.pop(start, None)
        if known is not None:
            self._add(known.bytes)
        part = None if known is None else known.narrow(columns)
        if part is None:
            read = whole()
            if self._room < _FACTS * read.count:
                return read
            part, whole = Narrow(columns, read.within(columns)), lambda: read
        part.whole = whole
        if self._add(-part.bytes):
            self._parts[start] = part
        return part

    def has(self, start: int, columns: Ints) -> bool:
        """Tell whether a block need not be read for a question about these columns."""
        known = self._parts.get(start)
        return known is not None and known.places(columns) is not None

    def _add(self, freed: int) -> bool:
        """Take room or give it back; tell whether there was enough."""
        with self._lock:
            enough = self._room + freed >= 0
            self._room += freed if enough else 0
        return enough


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
            nodes = fold({**nodes, (0, number): part}, len(chosen))
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
            read = self._part
            kept = self._kept.records(rows.start, columns, lambda: read(rows, buffers).records(None))
            found = question.summed(kept)
            vars(kept).pop("whole", None)  # which holds the block that was read
            return found
        finally:
            self._free.append(buffers)

    def _part(self, rows: Chosen, buffers: Buffers) -> LocalExecutor:
        targets, weights = (
            None if v is None else np.asarray(v[rows], dtype=np.float64)
            for v in (self._targets, self._weights)
        )
        block = self._rows.read(rows, buffers)
        return LocalExecutor(block, targets, self._norm, self._intercept, weights)


def cut(rows: Ints | None, count: int, size: int) -> list[Chosen]:
    """Return consecutive pieces of at most ``size`` rows; without a row there is one empty piece."""
    if rows is None:
        return [slice(i, min(i + size, count)) for i in range(0, max(count, 1), size)]
    return [np.sort(rows)[i : i + size] for i in range(0, max(len(rows), 1), size)]


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
        self.target = files["targets.bin"].mapped(layout.targets) if layout.targets else None
        self._values = files["values.bin"].mapped(layout.values)
        if layout.sparse:
            self._indices = files["indices.bin"].mapped(layout.indices)
            self._pointers = files["pointers.bin"].mapped("<i8")
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
            self._touched = 0  # what batches read is not memory that the next one needs
            for file in self._files.values():
                file.forget()
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


@compile_with_cache(nogil=True)
def _gather(starts: Ints, stops: Ints, values: Any, indices: Any, out: Any, columns: Ints) -> None:
    """Copy the entries of some rows behind each other."""
    at = 0
    for i in range(starts.size):
        for p in range(starts[i], stops[i]):
            out[at] = values[p]
            columns[at] = indices[p]
            at += 1
