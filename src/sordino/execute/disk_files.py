"""Rows in a folder: arrays as they are in memory, and a page that says what they are."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias
from zlib import crc32

import numpy as np
from scipy import sparse

from sordino.errors import DataNotFoundError, InvalidInputError, import_extra
from sordino.execute.csr import as_rows, sound
from sordino.kernel.arrays import Ints

PAGE = "rows.json"
_CHUNK = 1 << 26  # bytes of a text file, or about the bytes of a batch, that are converted at a time
# Bytes: what lies between two wanted places is read too if it is less; some systems heed no longer advice.
_GAP, _ADVICE = 1 << 15, 1 << 17
Blocks: TypeAlias = Iterable[tuple[Any, Any]]


@dataclass(frozen=True)
class Layout:
    """What the files of a folder hold; ``entries`` counts stored numbers, ``targets`` may be empty."""

    rows: int
    columns: int
    entries: int
    sparse: bool
    values: str
    indices: str = ""
    targets: str = ""
    version: int = 1
    sums: dict[str, int] = field(default_factory=dict)

    @property
    def row_bytes(self) -> float:
        """The bytes of a row, on average."""
        width = np.dtype(self.values).itemsize + (np.dtype(self.indices).itemsize if self.sparse else 0)
        return 8 + width * self.entries / max(1, self.rows)

    @classmethod
    def read(cls, folder: Path) -> Layout:
        """Read the page of a folder and compare it with the sizes of the files."""
        try:
            layout = cls(**json.loads((folder / PAGE).read_text("utf-8")))
            expected = layout.sizes()
        except FileNotFoundError:
            raise DataNotFoundError(
                f"{folder} holds no {PAGE}. Make it with sordino.to_disk(path, source)."
            ) from None
        except (TypeError, ValueError, OSError, RecursionError, SyntaxError):  # the last by NumPy, of types
            raise InvalidInputError(
                f"Expected the {PAGE} of sordino.to_disk in {folder}, got another."
            ) from None
        found = {name: (folder / name).stat().st_size for name in expected if (folder / name).exists()}
        counts = (layout.rows, layout.columns, layout.entries)
        whole = all(type(one) is int and one >= 0 for one in counts) and type(layout.sums) is dict
        filled = whole and (layout.sparse or layout.entries == layout.rows * layout.columns)
        columns = ("<i4", "<i8") if layout.sparse else ("",)
        known = layout.values in ("<f4", "<f8") and layout.indices in columns
        if not (filled and known and layout.version == 1) or found != expected:
            raise InvalidInputError(
                f"Expected files in {folder} of the sizes that {PAGE} says, got others. Convert them again."
            )
        return layout

    def sizes(self) -> dict[str, int]:
        out = {"values.bin": self.entries * np.dtype(self.values).itemsize}
        if self.sparse:
            out |= {"indices.bin": self.entries * np.dtype(self.indices).itemsize}
            out |= {"pointers.bin": 8 * (self.rows + 1)}
        return out | ({"targets.bin": self.rows * np.dtype(self.targets).itemsize} if self.targets else {})


class Opened:
    """A file that is kept open, and what it looked like then: one that is put in its place is not seen.

    Parameters
    ----------
    number : of the open file, which belongs to this object from now on.
    name : what messages call it.
    size : its bytes.
    """

    def __init__(self, number: int, name: str, size: int) -> None:
        self._number = number
        self._map: mmap.mmap | None = None
        weakref.finalize(self, os.close, self._number)
        self._name, self._size, self._mark = name, size, self._stamp()
        if self._mark[0] != size:
            raise self._change_error()

    @classmethod
    def at(cls, path: Path, size: int) -> Opened:
        """Open the file at a path, its pages cleaned: a dirty one is written to without a change of times."""
        number = os.open(path, os.O_RDONLY)
        with suppress(OSError):  # a system that cannot do so here has nothing to write back
            os.fsync(number)
        return cls(number, path.name, size)

    def _stamp(self) -> tuple[int, ...]:
        now = os.fstat(self._number)
        # The time of the last change cannot be set back. A file that lost its name has another one for that.
        return now.st_size, now.st_mtime_ns, now.st_ctime_ns if now.st_nlink else 0

    def _change_error(self) -> InvalidInputError:
        return InvalidInputError(
            f"Expected {self._name} as it was when it was opened, got another. Leave files alone while they "
            "are fitted; what was booked stays spent."
        )

    def require_unchanged(self) -> None:
        """Refuse a file that was written to since."""
        now = self._stamp()
        if now[:2] != self._mark[:2] or now[2] not in (0, self._mark[2]):
            raise self._change_error()

    def read(self, buffer: memoryview, start: int) -> None:
        """Fill a buffer with the bytes from a place on; several threads may do so at a time."""
        while len(buffer):
            got = os.preadv(self._number, [buffer], start)
            if not got:
                raise self._change_error()
            buffer, start = buffer[got:], start + got

    def mapped(self, kind: str, scattered: bool = False) -> Any:
        """Return the file as an array whose pages are read when looked at; scattered: nothing around them."""
        count = self._size // np.dtype(kind).itemsize
        if not count:
            return np.empty(0, dtype=kind)
        self._map = mmap.mmap(self._number, self._size, access=mmap.ACCESS_READ)
        if scattered:
            self._map.madvise(mmap.MADV_RANDOM)
        return np.frombuffer(self._map, dtype=kind)

    def announce(self, starts: Ints, stops: Ints) -> None:
        """Have the system read some places, in rising order, while this process does something else."""
        if not hasattr(os, "posix_fadvise"):  # pragma: no cover
            return
        last = np.flatnonzero(np.append(starts[1:] - stops[:-1] > _GAP, True))
        first = np.concatenate([[0], last[:-1] + 1])
        for start, stop in zip(starts[first].tolist(), stops[last].tolist(), strict=True):
            for at in range(start, stop, _ADVICE):
                os.posix_fadvise(self._number, at, min(_ADVICE, stop - at), os.POSIX_FADV_WILLNEED)

    def drop(self, start: int, stop: int) -> None:
        """Have the system forget some places: it would forget others for them, which are wanted sooner."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._number, start, stop - start, os.POSIX_FADV_DONTNEED)

    def forget(self) -> None:
        """Give pages of the map back: what was looked at is not memory that the next one needs."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def require_sum(self, expected: int | None) -> None:
        """Read the whole file and compare its CRC-32 with the one that was written down."""
        if expected is None:
            raise InvalidInputError(f"{self._name} was written without a sum to compare. Convert it again.")
        found, buffer = 0, memoryview(bytearray(_CHUNK // 4))
        for start in range(0, self._size, len(buffer)):
            piece = buffer[: min(len(buffer), self._size - start)]
            self.read(piece, start)
            found = crc32(piece, found)
        if found != expected:
            raise InvalidInputError(f"Expected {self._name} as it was written, got another. Write it again.")


def to_disk(
    path: str | os.PathLike[str],
    source: Any,
    *,
    target: str | None = None,
    n_features: int | None = None,
    verbose: bool = False,
) -> Path:
    """Write rows to a folder that :func:`on_disk` opens; memory holds one block at a time.

    Parameters
    ----------
    path : the folder; it must not be there yet.
    source : a Parquet file or a folder of them (extra ``dask``), a file in libsvm format (``.svm``,
        ``.libsvm``, ``.txt``), or pairs (rows, targets) of arrays or sparse matrices, all of one kind.
    target : the column of a Parquet file that holds the targets; the others are the features.
    n_features : the number of columns of a libsvm file, declared public.
    verbose : say how far it is.

    Nothing is left behind where writing fails. Only the owner of the files may read them.
    """
    folder = Path(path)
    if folder.exists():
        raise InvalidInputError(f"Expected a folder that is not there yet, got {folder}.")
    part = folder.with_name(folder.name + ".part")
    folder.parent.mkdir(parents=True, exist_ok=True)
    if part.exists():
        raise InvalidInputError(f"{part} was left by a conversion that was cut off. Delete it.")
    part.mkdir(mode=0o700)
    try:
        with ExitStack() as stack:
            layout = write_blocks(
                _blocks(source, target, n_features),
                lambda name: stack.enter_context(_own(part / name)),
                verbose,
            )
        with _own(part / PAGE) as page:
            page.write(json.dumps(asdict(layout)).encode())
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _own(path: Path) -> BinaryIO:
    """Open a new file that only its owner may read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _blocks(source: Any, target: str | None, n_features: int | None) -> Blocks:
    if not isinstance(source, (str, os.PathLike)):
        return source
    file = Path(source)
    if not file.is_file() and not parquet_parts(file):
        raise DataNotFoundError(f"{file} is neither a file nor a folder of Parquet files.")
    if file.suffix == ".parquet" or file.is_dir():
        return parquet_blocks(file, target)
    if n_features is None:
        raise InvalidInputError(
            "Expected n_features for a libsvm file: how many columns there are is public."
        )
    return libsvm_blocks(file, n_features)


def parquet_parts(path: Path) -> list[Path]:
    """Return a file by itself, or the Parquet files in a folder by their names: the order of the rows."""
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path] if path.is_file() else []


def parquet_blocks(path: Path, target: str | None) -> Iterator[tuple[Any, Any]]:
    """Yield the rows and targets of a Parquet file, or of a folder of them, some thousand at a time."""
    parquet = import_extra("pyarrow.parquet", "dask")
    names: list[str] = []
    for file in parquet_parts(path):
        with parquet.ParquetFile(file) as table:
            names = names or table.schema_arrow.names
            if table.schema_arrow.names != names:
                raise InvalidInputError(f"Expected the columns of the first file in {file.name}, got others.")
            if target is not None and target not in names:
                raise InvalidInputError(f"Expected target among the columns of {file.name}, got {target!r}.")
            for batch in table.iter_batches(batch_size=max(1, _CHUNK // (8 * max(1, len(names))))):
                yield _numbers_of(batch, [name for name in names if name != target], target)


def _numbers_of(batch: Any, features: list[str], target: str | None) -> tuple[Any, Any]:
    """Return the features and the target of a batch of records; refuse what is no number."""
    columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in features]
    for values, name in zip(columns, features):
        if values.dtype.kind not in "fiub":
            raise InvalidInputError(f"Expected numbers in column {name!r}, got others. Encode them first.")
    y = None if target is None else batch.column(target).to_numpy(zero_copy_only=False)
    return np.stack([values.astype(np.float64) for values in columns], axis=1), y


def libsvm_blocks(file: Path, n_features: int) -> Iterator[tuple[Any, Any]]:
    """Yield the rows and targets of a libsvm file (columns from 1 on), some megabytes at a time."""
    from sklearn.datasets import load_svmlight_file

    size = file.stat().st_size
    for start in range(0, size, _CHUNK):
        with file.open("rb") as opened:
            yield load_svmlight_file(
                opened, n_features=n_features, zero_based=False, offset=start, length=_CHUNK
            )


def write_blocks(blocks: Blocks, opened: Callable[[str], BinaryIO], verbose: bool = False) -> Layout:
    """Write blocks of rows into files that ``opened`` makes by their names; return what they hold."""
    first: Layout | None = None
    rows = entries = 0
    files: dict[str, BinaryIO] = {}
    sums: dict[str, int] = {}
    for x, y in blocks:
        block = as_rows(sound(x if sparse.issparse(x) else np.asarray(x)))
        made = _layout_of(block, y)
        if first is None:
            first, files = made, {name: opened(name) for name in made.sizes()}
        kinds = [(layout.columns, layout.sparse, layout.values, layout.targets) for layout in (first, made)]
        if kinds[0] != kinds[1]:
            raise InvalidInputError("Expected blocks of one width and kind, got others behind the first.")
        for name, array, kind in _pieces(block, y, first, None if first is made else entries):
            piece = np.ascontiguousarray(array, dtype=kind).reshape(-1).view(np.uint8).data
            sums[name] = crc32(piece, sums.get(name, 0))
            files[name].write(piece)
        rows, entries = rows + made.rows, entries + made.entries
        if verbose:
            print(f"{rows:,} rows written", flush=True)
    if first is None:
        raise InvalidInputError("Expected at least one block of rows, got none.")
    return replace(first, rows=rows, entries=entries, sums=sums)


def _layout_of(block: Any, y: Any) -> Layout:
    if block.ndim != 2 or block.dtype.kind not in "fiub":
        raise InvalidInputError("Expected blocks of numbers with one row per record, got others.")
    rows, columns = block.shape
    values = "<f4" if block.dtype == np.float32 else "<f8"
    targets = "" if y is None else np.asarray(y).dtype.str
    if y is not None and np.asarray(y).shape != block.shape[:1]:
        raise InvalidInputError("Expected one target per row in each block, got others.")
    if np.dtype(targets or "f8").kind not in "fiub":
        raise InvalidInputError("Expected targets that are numbers, got others. Number the classes first.")
    if not sparse.issparse(block):
        return Layout(rows, columns, block.size, False, values, "", targets)
    indices = "<i4" if columns <= np.iinfo(np.int32).max else "<i8"
    return Layout(rows, columns, int(block.nnz), True, values, indices, targets)


def _pieces(block: Any, y: Any, layout: Layout, before: int | None) -> Iterator[tuple[str, Any, str]]:
    """Yield arrays by the names of their files, with their kinds; ``before``: entries of blocks before."""
    yield "values.bin", block.data if layout.sparse else block, layout.values
    if layout.sparse:
        yield "indices.bin", block.indices, layout.indices
        ends = block.indptr.astype(np.int64)
        yield "pointers.bin", ends if before is None else ends[1:] + before, "<i8"
    if y is not None:
        yield "targets.bin", y, layout.targets
