"""What runs on the workers of a cluster; nothing raises: an exception would be logged with its arguments."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from dask.sizeof import sizeof
from distributed import WorkerPlugin
from distributed.protocol.pickle import dumps
from scipy import sparse

from sordino import errors
from sordino.errors import SordinoError, WorkerError
from sordino.execute.csr import as_rows, sound
from sordino.execute.local import LocalExecutor, Nodes, fold, part_sum
from sordino.execute.persons import is_missing
from sordino.kernel import Question, SparseVector
from sordino.kernel.arrays import Floats
from sordino.kernel.events import Share

_CHANGED = (
    "Expected a source that gives the same rows each time, got others when a part that was lost was read "
    "again. What was booked stays spent; write the rows down first (files, X.persist()), then fit."
)
MOST_LABELS = 10_000
_MOST_KEPT = 8
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


class DiscreetLog(WorkerPlugin):
    """Keeps what a failed task said out of a worker's log: a source may quote a value of a record there."""

    name = "sordino-discreet-log"

    def setup(self, worker: Any) -> None:
        """Begin, for as long as the worker runs; Dask may read a lost part again at any time."""
        logging.getLogger("distributed.worker").addFilter(discreet)


def discreet(record: logging.LogRecord) -> bool:
    """Leave the key of a failed task in its message, and nothing else."""
    if str(record.msg).startswith("Compute Failed") and record.args:
        record.msg = "Compute Failed\nKey: %s\nWhat it said is not shown: it may quote records."
        record.args = (next(iter(record.args)),)
    return True


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


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that is sent to workers return how it failed, as :func:`quietly`."""
    return wraps(function)(partial(quietly, function))


@quiet
def stored_rows(block: Any, encode: Callable[[Any], Any] | None = None) -> Stored:
    """Return a block as rows of floats with their facts; ``encode`` makes rows of a table."""
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


@quiet
def stored_column(block: Any, encode: Callable[[Any], Any] | None = None) -> Stored:
    """Return a block of one value per record with its facts; ``encode`` finds them in a table."""
    block = block if encode is None else encode(block)
    values = np.asarray(block.to_numpy() if hasattr(block, "to_numpy") else block)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        return Stored(None, Facts(0, problem="shape"))
    kind = values.dtype.kind
    infinite = kind == "f" and not np.isfinite(values).all()
    missing = kind == "O" and any(is_missing(value) for value in values)
    problem = "finite" if infinite or missing else "numbers" if kind == "c" else ""
    return Stored(values, Facts(len(values), kind=kind, problem=problem))


@quiet
def apply_to_block(block: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a function makes of a block of rows, or how it failed."""
    if not block.shape[0]:  # of which a model says nothing, not even how many columns it would have made
        return np.zeros(0)
    found = function(block)
    return found if sparse.issparse(found) else np.asarray(found)


def shape_of(values: Any) -> Any:
    """Return the facts of an array, with no columns where it has one dimension; or how it failed."""
    if isinstance(values, Failed):
        return values
    columns = 0 if values.ndim == 1 else values.shape[1]
    return Facts(values.shape[0], columns, bool(sparse.issparse(values)), str(values.dtype))


def same(value: Any) -> Any:
    """Return the value: what many tasks need is sent once."""
    return value


def facts_of(stored: Any) -> Any:
    return stored.facts if isinstance(stored, Stored) else stored


def labels_of(stored: Any) -> Any:
    """Return the distinct values of a column; None where they are too many for labels."""
    found = quietly(np.unique, stored.values)
    return found if isinstance(found, Failed) or len(found) <= MOST_LABELS else None


def least_of(stored: Any) -> float:
    """Return the smallest number of a column, or infinity."""
    return float(stored.values.min(initial=np.inf))


@quiet
def held_part(
    rows: Stored, columns: Sequence[Stored], steps: Sequence[Steps], bound: float | None, intercept: float
) -> MarkedPart:
    """Return the executor over one part; ``columns`` are its targets and then factors of its weights."""
    ready = [_apply_steps(column.values, maps) for column, maps in zip(columns, steps, strict=True)]
    weights = None if len(ready) < 2 else np.prod(ready[1:], axis=0)
    mark = 0
    for array in (*_arrays(rows.values), *ready):
        mark = crc32(np.ascontiguousarray(array).data, crc32(str(array.shape).encode(), mark))
    return MarkedPart(rows.values, ready[0] if ready else None, bound, intercept, weights, mark=mark)


def _apply_steps(values: Any, steps: Steps) -> Floats:
    for function, constants in steps:
        values = function(values, *constants)
    return np.asarray(values, dtype=np.float64)


def size_of(part: Any) -> Any:
    """Return the number of records of a part and its mark, or how it failed."""
    return (part.population, part.mark) if isinstance(part, MarkedPart) else part


@dataclass(frozen=True)
class Job:
    """The parts of one worker, by their keys, and which rows of them are asked."""

    home: str
    keys: tuple[str, ...]
    numbers: tuple[int, ...]
    shares: tuple[Share, ...] = field(repr=False)
    marks: tuple[int, ...]


@dataclass(frozen=True)
class Round:
    """What all workers are asked at once; ``token`` tells it from every other round of a cluster."""

    token: str
    question: Question = field(repr=False)
    count: int


@dataclass(frozen=True)
class Kept:
    """A parameter that stays the same for many rounds: sent with its value once, then by its name."""

    token: str
    value: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Reply:
    """Sums of parts, and the numbers of those that were not where they were looked for."""

    nodes: Nodes = field(repr=False)
    missing: tuple[int, ...] = ()


_stopped: deque[str] = deque(maxlen=64)
_known: dict[str, Any] = {}


def stop(token: str) -> None:
    """Begin no other part of a round."""
    _stopped.append(token)


async def branches_on(jobs: Sequence[Job], asked: Round, dask_worker: Any) -> Any:
    """Return the sums of the parts of the first job, and of those of the others, who are asked from here.

    Sums are folded as far as they reach. Nothing is a task of Dask: a round is one message and its answer.

    **Privacy.** A part that was lost and read again with other rows is refused: a record could enter two
    parts, or two batches of which each record is in one.
    """
    others = [job for job in halves(jobs[1:]) if job]
    below = asyncio.gather(*(forward_jobs(dask_worker.rpc, half, asked) for half in others))
    replies = [await _own(jobs[0], asked, dask_worker), *await below]
    return join_replies(replies, asked.count)


def numbers_of(jobs: Sequence[Job]) -> tuple[int, ...]:
    """Return the numbers of the parts of some jobs."""
    return tuple(number for job in jobs for number in job.numbers)


def halves(jobs: Sequence[Job]) -> tuple[Sequence[Job], Sequence[Job]]:
    return jobs[: (len(jobs) + 1) // 2], jobs[(len(jobs) + 1) // 2 :]


def join_replies(replies: Sequence[Any], count: int) -> Any:
    """Return one reply for several, or the first failure among them."""
    failed = next((reply for reply in replies if isinstance(reply, Failed)), None)
    if failed is not None:
        return failed
    missing = tuple(number for reply in replies for number in reply.missing)
    nodes = {at: value for reply in replies for at, value in reply.nodes.items()}
    if len(nodes) < sum(len(reply.nodes) for reply in replies):
        return Failed("PlanError", "Expected each part once in a sum, got one of them twice.")
    found = quietly(fold, nodes, count)
    if isinstance(found, Failed):
        return found
    for at, s in found.items():  # without the maps of their columns: whoever joins these sums makes one
        found[at] = SparseVector(s.indices, s.values, s.size) if isinstance(s, SparseVector) else s
    return Reply(found, missing)


async def forward_jobs(rpc: Any, jobs: Sequence[Job], asked: Round) -> Any:
    """Ask the worker of the first of some jobs for all of them; what a lost worker held is missing."""
    try:
        return unpack_response(await rpc(jobs[0].home).run(**message(branches_on, list(jobs), asked)))
    except OSError:
        return Reply({}, numbers_of(jobs))


def message(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Return what asks a worker to run a function now, besides its tasks."""
    return {"function": dumps(function), "args": dumps(arguments)}


def unpack_response(response: Any) -> Any:
    """Return what a function returned on a worker, or how it failed there."""
    if response["status"] == "OK":
        return response["result"]
    return Failed(str(response.get("exception_text", "an error")).partition("(")[0])


async def _own(job: Job, asked: Round, worker: Any) -> Any:
    """Return the sums of the parts that lie here, as many at a time as the worker has threads."""
    params = _resolve(asked.question.params)
    if isinstance(params, Kept):
        return Reply({}, job.numbers)
    question = replace(asked.question, params=params)
    held = [(i, worker.data[key]) for i, key in enumerate(job.keys) if key in worker.data]
    loop, pool = asyncio.get_running_loop(), worker.executors["default"]
    try:
        starts = [loop.run_in_executor(pool, _one, part, job, i, question, asked.token) for i, part in held]
        sums = await asyncio.gather(*starts)
    except RuntimeError:  # this worker is closing, and begins nothing new
        return Reply({}, job.numbers)
    failed = next((found for found in sums if isinstance(found, Failed)), None)
    nodes = {(0, job.numbers[i]): found for (i, _), found in zip(held, sums, strict=True)}
    there = {i for i, _ in held}
    return failed or Reply(nodes, tuple(n for i, n in enumerate(job.numbers) if i not in there))


def _one(part: Any, job: Job, at: int, question: Question, token: str) -> Any:
    if token in _stopped:
        return Failed("Cancelled")
    if getattr(part, "mark", job.marks[at]) != job.marks[at]:
        return Failed("WorkerError", _CHANGED)
    return part if isinstance(part, Failed) else quietly(part_sum, part, question, job.shares[at])


def _resolve(params: Any) -> Any:
    """Return parameters with what was sent before in its place; one that is not known, if there is one."""
    values = params if type(params) is tuple else (params,)
    for kept in (value for value in values if isinstance(value, Kept) and value.value is not None):
        _known[kept.token] = kept.value
    while len(_known) > _MOST_KEPT:
        _known.pop(next(iter(_known)), None)
    ready = tuple(_known.get(v.token, v) if isinstance(v, Kept) else v for v in values)
    unknown = next((value for value in ready if isinstance(value, Kept)), None)
    return unknown if unknown is not None else ready if type(params) is tuple else ready[0]


def _arrays(matrix: Any) -> tuple[Any, ...]:
    return (matrix.data, matrix.indices, matrix.indptr) if sparse.issparse(matrix) else (matrix,)


def _array_bytes(matrix: Any) -> int:
    return sum(part.nbytes for part in _arrays(matrix))


@sizeof.register(LocalExecutor)
def _part_bytes(part: LocalExecutor) -> int:
    # Honest sizes: Dask weighs them against the time of a task before it moves one to another worker.
    return _array_bytes(part.matrix) + 32 * part.population


@sizeof.register(Stored)
def _count_bytes(stored: Stored) -> int:
    return 64 if stored.values is None else _array_bytes(stored.values)
