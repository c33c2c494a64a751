"""What runs on the workers of a cluster; nothing raises: an exception would be logged with its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from dask.sizeof import sizeof
from distributed import get_worker
from scipy import sparse

from sordino import errors
from sordino.errors import SordinoError, WorkerError
from sordino.execute.csr import as_rows, sound
from sordino.execute.grouped import is_missing
from sordino.execute.local import LocalExecutor
from sordino.execute.parts import part_sum
from sordino.execute.question import Question
from sordino.execute.tree import Nodes, folded
from sordino.kernel import SparseVector
from sordino.kernel.arrays import Floats
from sordino.kernel.shares import Share

_CHANGED = (
    "Expected a source that gives the same rows each time, got others when a part that was lost was read "
    "again. What was booked stays spent; write the rows down first (files, X.persist()), then fit."
)
MOST_LABELS = 10_000
Steps: TypeAlias = tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...]


@dataclass(frozen=True)
class Failed:
    """What is told of a failure: its kind, and our own words where there are any."""

    kind: str
    words: str = ""

    def error(self) -> SordinoError:
        """Return what to raise where the fit was called."""
        known: Any = getattr(errors, self.kind, None)
        if self.words and isinstance(known, type):
            return known(self.words)
        return WorkerError(
            f"A worker failed on its records ({self.kind}). What it said is not shown: it may quote them. "
            "Compare the versions of Python, NumPy and Sordino on the workers with those here."
        )


@dataclass(frozen=True)
class Facts:
    """What is public of one part, and what is wrong with it."""

    rows: int
    columns: int = 1
    sparse: bool = False
    kind: str = "float64"
    problem: str = ""


@dataclass(frozen=True, eq=False)
class Stored:
    """A part of the rows, or of one value per row, with its facts."""

    values: Any = field(repr=False)
    facts: Facts


@dataclass(frozen=True, eq=False)
class MarkedPart(LocalExecutor):
    """One part of the records, with a mark of what was read: a source that is read again may have changed."""

    mark: int = field(repr=False, kw_only=True)


def quietly(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or how it failed; NumPy says nothing of the records."""
    try:
        with np.errstate(all="ignore"):
            return function(*arguments)
    except SordinoError as error:
        return Failed(type(error).__name__, str(error))
    except Exception as error:
        return Failed(type(error).__name__)


def stored_rows(block: Any, encode: Callable[[Any], Any] | None = None) -> Any:
    """Return a block as rows of floats with their facts; ``encode`` makes rows of a table."""
    return quietly(_stored_rows, block, encode)


def _stored_rows(block: Any, encode: Callable[[Any], Any] | None) -> Stored:
    block = block if encode is None else encode(block)
    values = block.to_numpy() if hasattr(block, "to_numpy") else block
    if not sparse.issparse(values):
        values = np.asarray(values)
    if values.ndim != 2:
        return Stored(None, Facts(0, problem="shape"))
    if values.dtype.kind == "O":
        values = values.astype(np.float64)
    if values.dtype.kind not in "fiub":
        return Stored(None, Facts(values.shape[0], problem="numbers"))
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    rows = as_rows(sound(values))
    dense = not sparse.issparse(rows)
    finite = bool(np.isfinite(rows if dense else rows.data).all())
    facts = Facts(rows.shape[0], rows.shape[1], not dense, str(rows.dtype), "" if finite else "finite")
    return Stored(rows, facts)


def stored_column(block: Any, encode: Callable[[Any], Any] | None = None) -> Any:
    """Return a block of one value per record with its facts; ``encode`` finds them in a table."""
    return quietly(_stored_column, block, encode)


def _stored_column(block: Any, encode: Callable[[Any], Any] | None) -> Stored:
    block = block if encode is None else encode(block)
    values = np.asarray(block.to_numpy() if hasattr(block, "to_numpy") else block)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        return Stored(None, Facts(0, problem="shape"))
    problem = "numbers" if values.dtype.kind == "c" else ""
    if _has_gaps(values):
        problem = "finite"
    return Stored(values, Facts(len(values), kind=values.dtype.kind, problem=problem))


def _has_gaps(values: Any) -> bool:
    """Tell whether a value is missing or infinite."""
    if values.dtype.kind == "f":
        return not np.isfinite(values).all()
    return values.dtype.kind == "O" and any(is_missing(value) for value in values)


def facts_of(stored: Any) -> Any:
    """Return the facts alone."""
    return stored.facts if isinstance(stored, Stored) else stored


def labels_of(stored: Any) -> Any:
    """Return the distinct values of a column; None where they are too many for labels."""
    found = quietly(np.unique, stored.values)
    return found if isinstance(found, Failed) or len(found) <= MOST_LABELS else None


def least_of(stored: Any) -> float:
    """Return the smallest number of a column, or infinity."""
    return float(stored.values.min(initial=np.inf))


def held_part(
    rows: Any, columns: Sequence[Any], steps: Sequence[Steps], data_norm: float | None, intercept: float
) -> Any:
    """Return the executor over one part; ``columns`` are its targets and then factors of its weights."""
    return quietly(_held_part, rows, columns, steps, data_norm, intercept)


def _held_part(
    rows: Stored, columns: Sequence[Stored], steps: Sequence[Steps], bound: float | None, intercept: float
) -> MarkedPart:
    ready = [_mapped(column.values, maps) for column, maps in zip(columns, steps, strict=True)]
    weights = None if len(ready) < 2 else np.prod(ready[1:], axis=0)
    mark = _mark([*_arrays(rows.values), *ready])
    return MarkedPart(rows.values, ready[0] if ready else None, bound, intercept, weights, mark=mark)


def _mapped(values: Any, steps: Steps) -> Floats:
    for function, constants in steps:
        values = function(values, *constants)
    return np.asarray(values, dtype=np.float64)


def _mark(arrays: Sequence[Any]) -> int:
    mark = 0
    for array in arrays:
        mark = crc32(np.ascontiguousarray(array).data, crc32(str(array.shape).encode(), mark))
    return mark


def size_of(part: Any) -> Any:
    """Return the number of records of a part and its mark, or how it failed."""
    return (part.population, part.mark) if isinstance(part, MarkedPart) else part


def same(value: Any) -> Any:
    """Return the value: public parameters that several tasks use are sent once."""
    return value


def branches_on(
    parts: Sequence[MarkedPart],
    numbers: Sequence[int],
    question: Question,
    params: Any,
    shares: Sequence[Share],
    marks: Sequence[int],
    count: int,
) -> Any:
    """Return the sums of this worker's parts, folded as far as they reach, and its address.

    **Privacy.** A part that was lost and read again with other rows is refused: a record could enter two
    parts, or two batches of which each record is in one.
    """
    worker: Any = get_worker()
    key = worker.get_current_task()
    asked = replace(question, params=tuple(params) if isinstance(params, list) else params)

    def one(at: int) -> Any:
        known = worker.state.tasks.get(key)
        if known is not None and known.state == "cancelled":
            return Failed("Cancelled")
        if getattr(parts[at], "mark", marks[at]) != marks[at]:
            return Failed("WorkerError", _CHANGED)
        return quietly(part_sum, parts[at], asked, shares[at])

    threads = min(worker.state.nthreads, len(parts))
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            sums = list(pool.map(one, range(len(parts))))
    else:
        sums = [one(at) for at in range(len(parts))]
    failed = next((found for found in sums if isinstance(found, Failed)), None)
    if failed is not None:
        return failed
    return _sendable(folded({(0, i): s for i, s in zip(numbers, sums, strict=True)}, count)), worker.address


def _sendable(nodes: Nodes) -> Nodes:
    """Return sums without the maps of their columns: whoever joins them makes one."""
    return {
        at: SparseVector(s.indices, s.values, s.size) if isinstance(s, SparseVector) else s
        for at, s in nodes.items()
    }


def _arrays(matrix: Any) -> tuple[Any, ...]:
    return (matrix.data, matrix.indices, matrix.indptr) if sparse.issparse(matrix) else (matrix,)


def _array_bytes(matrix: Any) -> int:
    return sum(part.nbytes for part in _arrays(matrix))


@sizeof.register(LocalExecutor)
def _part_bytes(part: LocalExecutor) -> int:
    # Honest sizes: Dask weighs them against the time of a task before it moves one to another worker.
    return _array_bytes(part.matrix) + 32 * part.population


@sizeof.register(Stored)
def _stored_bytes(stored: Stored) -> int:
    return 64 if stored.values is None else _array_bytes(stored.values)
