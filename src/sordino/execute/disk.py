"""Rows on a disk, read in order or here and there: a batch reads its own rows only."""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, TypeAlias, cast

import numpy as np
from scipy import sparse

from sordino.errors import InvalidInputError
from sordino.execute.disk_files import Blocks, Layout, Opened, write_blocks
from sordino.execute.local import Held, LocalExecutor, Nodes, fold, in_parts, total
from sordino.execute.records import LocalRecords, LocalView, places_of, same_map
from sordino.kernel import Batch, Disjoint, Question, Release
from sordino.kernel.arrays import Ints, compile_with_cache
from sordino.kernel.events import Listed
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
    """The records of a block with some columns alone; for anything else the block is read again."""

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

    def narrow(self, columns: Ints) -> Narrow | None:
        """Return the records with these columns; None where some of them are not here."""
        if self._has(columns):
            return self
        places = places_of(columns, self.columns)
        return None if places is None else Narrow(columns, self.records.within(places))


class Kept:
    """Blocks by their first row, as many as there is room for, with the columns that a solver has chosen.

    **Privacy.** Rows are as they were clipped when their block was read, and norms those of whole rows.
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
        return known is not None and places_of(columns, known.columns) is not None

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
        self.offer = in_parts(rows.sparse, "rows on a disk", _REMEDY)
        self._rows, self._targets, self._weights = rows, targets, weights
        self._norm, self._intercept = data_norm, intercept
        self._kept = Kept(rows.memory - SHARE * rows.block_bytes)
        self._free: deque[Buffers] = deque()  # of threads that are done with theirs: no more than there are

    def ahead(self, release: Release, left: int) -> int:
        """Return the batches of an epoch, or those that are left, where it pays to copy their rows."""
        rate = release.sampling.expected(self.population) / self.population
        count = min(left, math.ceil(1 / rate))
        scattered = not isinstance(release.sampling, Disjoint)
        return count if scattered and self._rows.copies_pay(rate, count) else 0

    def prepare(self, batches: Iterable[Batch]) -> Sequence[Batch]:
        """Copy the rows of batches behind each other; without room for that they are read as they lie."""
        drawn = [np.sort(cast(Ints, batch.rows(self.population))) for batch in batches]
        try:
            copy, places = self._rows.copy_batches(drawn)
        except OSError:
            return [Batch((Listed(rows),)) for rows in drawn]
        targets, weights = (None if v is None else v[copy.target] for v in (self._targets, self._weights))
        there = DiskExecutor(copy, targets, self._norm, self._intercept, weights)
        return [Batch((Copied(there, *pieces),)) for pieces in places]

    def total(self, question: Question, batch: Batch) -> Any:
        """Add up the drawn rows, as many at a time as fit."""
        (share,) = batch.shares
        place = share.place if isinstance(share, Copied) else self
        found = place._total(question, share.rows(self.population))
        self._rows.require_unchanged()
        return found

    def _total(self, question: Question, rows: Ints | None) -> Any:
        chosen = cut(rows, self.population, self._rows.block_rows)
        nodes: Nodes = {}
        for number, part in enumerate(self._sums(question, chosen)):
            nodes = fold({**nodes, (0, number): part}, len(chosen))
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


@dataclass(frozen=True)
class Copied:
    """The rows of a batch that were copied, in order: where pieces of them begin and end in the copy."""

    place: DiskExecutor = field(repr=False)
    starts: Ints = field(repr=False)
    stops: Ints = field(repr=False)

    def rows(self, count: int) -> Ints:
        return np.concatenate(list(map(np.arange, self.starts, self.stops)))


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
    block_bytes, block_rows : of a block, which is in memory at a time.
    """

    def __init__(self, layout: Layout, files: dict[str, Opened], memory: int, scratch: Path) -> None:
        self._layout, self._files, self.memory, self._scratch = layout, files, memory, scratch
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._beyond = sum(layout.sizes().values()) > _BEYOND * machine
        self._cached = layout.rows - int(_CACHED * machine / layout.row_bytes)  # from this row on
        self.shape, self.sparse = (layout.rows, layout.columns), layout.sparse
        self.dtype = np.dtype(layout.values)
        self._row_files = {"values.bin": self.dtype} | (
            {"indices.bin": np.dtype(layout.indices)} if self.sparse else {}
        )
        # Blocks of all threads take half of the memory at most; rows that are copied take a quarter, twice.
        self.block_bytes = min(memory // (2 * SHARE), max(_BLOCK, _ANSWERS * layout.columns))
        at_once = (max(1, int(size / layout.row_bytes)) for size in (self.block_bytes, memory / 4))
        self.block_rows, self._copied_rows = at_once
        self.target = files["targets.bin"].mapped(layout.targets) if layout.targets else None
        self._values = files["values.bin"].mapped(layout.values, self._beyond)
        if layout.sparse:
            self._indices = files["indices.bin"].mapped(layout.indices, self._beyond)
            self._pointers = files["pointers.bin"].mapped("<i8")

    def __repr__(self) -> str:
        kind = "sparse" if self.sparse else "dense"
        return f"DiskMatrix({self.shape[0]} x {self.shape[1]}, {kind}, {self.dtype})"

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
        """Return some rows in memory, nothing else; with ``buffers`` they lie there until the next block."""
        found = self._read(rows, {} if buffers is None else buffers)
        # Pages that the system's cache holds stay where they are: to find one again costs more than its row.
        for file in self._files.values() if self._beyond and not isinstance(rows, slice) else ():
            file.forget()
        return found

    def copies_pay(self, rate: float, count: int) -> bool:
        """Tell whether the rows of batches cost fewer bytes copied than read as they lie, by public numbers.

        A copy costs a pass over the files and its rows twice; a row as it lies, a page of each file.
        """
        epochs, page = rate * count, len(self._row_files) * mmap.PAGESIZE
        each = min(1 / rate, 1 + page / self._layout.row_bytes)
        return self._beyond and epochs * each > 1 + 2 * epochs and rate * self._copied_rows >= 1

    def copy_batches(self, drawn: Sequence[Ints]) -> tuple[DiskMatrix, Iterable[tuple[Ints, Ints]]]:
        """Copy the rows of batches, which rise, in one pass; return the nameless copy and their places."""
        if shutil.disk_usage(self._scratch).free < 2 * self._layout.row_bytes * sum(map(len, drawn)):
            raise OSError("too little room")
        edges = np.append(np.arange(0, self.shape[0], self._copied_rows), self.shape[0])
        cuts = np.array([np.searchsorted(rows, edges) for rows in drawn], dtype=np.int32)

        def blocks() -> Blocks:
            buffers: Buffers = {}
            for number, (start, stop) in enumerate(pairwise(edges.tolist())):
                block = self.read(slice(start, stop), buffers)
                self.announce(slice(stop, min(stop + self._copied_rows, self.shape[0])))
                pieces = zip(drawn, cuts[:, number], cuts[:, number + 1], strict=True)
                wanted = np.concatenate([rows[first:last] for rows, first, last in pieces])
                yield block[wanted - start], wanted

        copy = without_name(blocks(), self.memory, self._scratch)
        copy.block_rows = self.block_rows  # the same sums, to the last bit
        ends = np.append(0, np.diff(cuts).T.cumsum())
        starts, stops = (edge.reshape(-1, len(drawn)).T for edge in (ends[:-1], ends[1:]))
        return copy, zip(starts, stops, strict=True)

    def announce(self, rows: Chosen) -> None:
        """Have the system read some rows that will be asked for soon; small files it reads by itself."""
        if not isinstance(rows, slice) and not self._beyond:
            return
        starts, stops = self._entries(rows)
        if isinstance(rows, slice):
            starts, stops = starts[:1], stops[-1:]
        for name, kind in self._row_files.items() if starts.size else ():
            self._files[name].announce(starts * kind.itemsize, stops * kind.itemsize)

    def _entries(self, rows: Chosen) -> tuple[Ints, Ints]:
        """Return where rows begin and end, counted in entries; in the files, for all that is believed."""
        picked = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        if not self.sparse:
            return picked * self.shape[1], (picked + 1) * self.shape[1]
        starts, stops = self._pointers[picked], self._pointers[picked + 1]
        inside = (starts >= 0) & (starts <= stops) & (stops <= self._layout.entries)
        if not inside.all():
            raise InvalidInputError(
                "Expected rising row pointers inside the file, got others. Convert it again."
            )
        return starts, stops

    def require_unchanged(self) -> None:
        """Refuse files that somebody wrote to since they were opened."""
        for file in self._files.values():
            file.require_unchanged()

    def _read(self, rows: Chosen, buffers: Buffers) -> Any:
        starts, stops = self._entries(rows)
        ends = np.append(0, np.cumsum(stops - starts))
        shape, parts = (
            (len(starts), self.shape[1]),
            [self._room(name, int(ends[-1]), buffers) for name in self._row_files],
        )
        if isinstance(rows, slice):
            for name, out in zip(self._row_files if starts.size else (), parts):
                self._fill(name, out, int(starts[0]), rows.stop)
        elif self.sparse:
            _gather(starts, stops, self._values, self._indices, *parts)
        else:
            self._values.reshape(self.shape).take(rows, axis=0, out=parts[0].reshape(shape), mode="clip")
        return sparse.csr_matrix((*parts, ends), shape) if self.sparse else parts[0].reshape(shape)

    def _fill(self, name: str, out: Any, first: int, last_row: int) -> None:
        """Read entries from the first on, of rows before the last, and leave room in the system's cache."""
        start = first * out.itemsize
        self._files[name].read(out.view(np.uint8).data, start)
        if self._beyond and last_row <= self._cached:
            self._files[name].drop(start, start + out.nbytes)

    def _room(self, name: str, count: int, buffers: Buffers) -> Any:
        if name not in buffers or buffers[name].size < count:
            buffers[name] = np.empty(count, dtype=self._row_files[name])
        return buffers[name][:count]


def on_disk(
    path: str | os.PathLike[str],
    *,
    memory: int = 1 << 30,
    verify: bool = False,
    scratch: str | os.PathLike[str] | None = None,
) -> DiskMatrix:
    """Open rows that :func:`to_disk` wrote, without reading them.

    Parameters
    ----------
    path : the folder.
    memory : how many bytes a pass over the rows may use.
    verify : read everything once and compare it with the sums that were written down with the rows.
    scratch : a folder on a disk for copies of the rows of batches, which have no name there; that of the rows
        by default.

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
    if scratch is not None and not Path(scratch).is_dir():
        raise InvalidInputError(f"Expected scratch as a folder that is there, got {scratch}. Make it first.")
    files = {name: Opened.at(folder / name, size) for name, size in layout.sizes().items()}
    for name, file in files.items() if verify else ():
        file.require_sum(layout.sums.get(name))
    return DiskMatrix(layout, files, memory, folder if scratch is None else Path(scratch))


def without_name(blocks: Blocks, memory: int, folder: Path | None = None) -> DiskMatrix:
    """Return rows in files that have no name: however this process ends, the system takes their room back."""
    place = Path(tempfile.gettempdir()) if folder is None else folder
    with ExitStack() as stack:
        made: dict[str, Any] = {}

        def opened(name: str) -> BinaryIO:
            made[name] = stack.enter_context(tempfile.TemporaryFile(prefix="sordino-rows-", dir=place))
            return cast(BinaryIO, made[name])

        layout = write_blocks(blocks, opened)
        for file in made.values():
            file.flush()
        sizes = layout.sizes()
        files = {name: Opened(os.dup(file.fileno()), name, sizes[name]) for name, file in made.items()}
    return DiskMatrix(layout, files, memory, place)


@compile_with_cache(nogil=True)
def _gather(starts: Ints, stops: Ints, values: Any, indices: Any, out: Any, columns: Ints) -> None:
    """Copy the entries of some rows behind each other."""
    at = 0
    for i in range(starts.size):
        for p in range(starts[i], stops[i]):
            out[at] = values[p]
            columns[at] = indices[p]
            at += 1
