"""Records on the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any
from weakref import WeakSet

import dask
import dask.array
import numpy as np
from dask import delayed
from dask.delayed import Delayed
from distributed import Future

from sordino.errors import InvalidInputError, PlanError, UnsupportedError, WorkerError
from sordino.execute import dask_worker as worker
from sordino.execute.cluster import current_client
from sordino.execute.dask_worker import Facts, Failed, Job, Kept, Reply, Round, Steps
from sordino.execute.local import Held, HeldColumn, Nodes, in_parts, total
from sordino.kernel import Batch, Question, SparseVector
from sordino.kernel.events import Share

_REMEDY = "Bring the rows into one place (X.compute()), or choose a solver that asks for sums."
_LARGE = 1 << 22  # bytes, over all workers, from which on workers pass messages on to each other
# Seconds: how often silent workers are counted, how long a first word may take, how often a cluster is told
# that it is in use: rounds are no tasks, and some clusters close when they see none.
_BEAT, _FIRST, _SIGN = 2.0, 5.0, 60.0
_TRIES = 12  # how often lost parts are looked for in one round
_numbers = itertools.count()
_last_words = set[Any]()  # to workers that are to stop; a loop by itself may forget what it is to send


class DaskExecutor:
    """Answers releases with one message to each worker, which adds up all parts that lie there.

    Parameters
    ----------
    cluster : the client, with tasks that can be waited for.
    parts : futures of the parts, which Dask reads again when they are lost.
    found : the number of records of each part, and its mark.

    **Privacy.** Workers and scheduler are trusted: they see records, keys of batches and exact sums. These
    come to this process and nowhere else; the curator adds the noise once, after all parts have entered their
    sum exactly once. Each part draws its rows of a batch from a key that the curator drew for this release,
    position and part: a task that is run again draws the same ones.
    """

    def __init__(self, cluster: Any, parts: Sequence[Any], found: Sequence[tuple[int, int]], sparse: bool):
        self._cluster, self._parts = cluster, list(parts)
        self.sizes, self._marks = tuple(size for size, _ in found), [mark for _, mark in found]
        self.population = sum(self.sizes)
        self.offer = in_parts(sparse, "rows on the workers of a cluster", _REMEDY, self.sizes)
        self._kept: list[tuple[Any, Kept]] = []
        self._bytes, self._signed = 0, monotonic()
        self._groups = self._locate()
        self._direct = all(self._cluster.client.sync(self._can_reach, home) for home in self._groups)

    def _locate(self) -> dict[str, list[int]]:
        """Return which parts lie on which worker."""
        known = self._cluster.client.who_has(self._parts)
        groups: dict[str, list[int]] = {}
        for i, (part, home) in enumerate(zip(self._parts, self._cluster.homes, strict=True)):
            groups.setdefault(next(iter(known.get(part.key, ())), home), []).append(i)
        return groups

    async def _can_reach(self, home: str) -> bool:
        """Tell whether this process can speak with a worker; else the scheduler passes messages on."""
        try:
            await asyncio.wait_for(self._cluster.client.rpc(home).identity(), _FIRST)
        except OSError:
            return False
        return True

    def total(self, question: Question, batch: Batch) -> Any:
        """Return the exact sum over a batch, of sums of parts that together hold each part once."""
        return total(self._branches(question, batch.shares), len(self.sizes))

    def _branches(self, question: Question, shares: Sequence[Share]) -> list[Nodes]:
        found: list[Nodes] = []
        left = set(range(len(self.sizes)))
        if monotonic() - self._signed > _SIGN:
            self._signed = monotonic()
            self._cluster.submit("", worker.size_of, None)
        for attempt in range(_TRIES):
            asked = replace(question, params=self._pack(question.params, again=attempt > 0))
            reply = self._ask_once(asked, shares, left)
            found.append(reply.nodes)
            if not reply.missing:
                self._bytes = max((_nbytes(node) for node in reply.nodes.values()), default=0)
                return found
            left = set(reply.missing)  # these parts are read again from their source, perhaps elsewhere
            self._cluster.results(self._cluster.each(worker.size_of, self._parts))
            self._groups = self._locate()
        raise WorkerError(
            f"The cluster lost workers {_TRIES} times in one round. What was booked stays spent; see why its "
            "workers die (memory, machines that are taken away)."
        )

    def _ask_once(self, question: Question, shares: Sequence[Share], left: set[int]) -> Reply:
        """Ask for the sums of some parts; nothing goes on when this fails."""
        client, token = self._cluster.client, f"{self._cluster.client.id}-{next(_numbers)}"
        asked = Round(token, question, len(self.sizes))
        jobs = []
        for home, numbers in self._groups.items():
            mine = [i for i in numbers if i in left]
            if mine:
                keys = tuple(self._parts[i].key for i in mine)
                marks = tuple(self._marks[i] for i in mine)
                jobs.append(Job(home, keys, tuple(mine), tuple(shares[i] for i in mine), marks))
        try:
            reply = client.sync(self._round, asked, jobs)
        except BaseException as error:
            with suppress(Exception):
                client.sync(self._stop, token)
            if not isinstance(error, Exception):
                raise
            reply = error
        if isinstance(reply, Exception):  # outside of the handler: the foreign error would be its context
            raise lost_error(reply)
        if isinstance(reply, Failed):
            raise reply.error()
        return reply

    async def _round(self, asked: Round, jobs: list[Job]) -> Any:
        """Ask all workers, each by itself or, with much to send, two who ask the others."""
        size = max(self._bytes, _nbytes(asked.question.params))
        heavy = self._direct and size * len(jobs) > _LARGE
        branches = [half for half in worker.halves(jobs) if half] if heavy else [[job] for job in jobs]
        asks = {asyncio.ensure_future(self._ask(branch, asked)): branch for branch in branches}
        beat = _BEAT / 16
        try:
            while not all(ask.done() for ask in asks):
                await asyncio.wait(asks, timeout=beat)
                await self._give_up_on_lost(asks)
                beat = min(2 * beat, _BEAT)
            replies = [
                Reply({}, worker.numbers_of(branch)) if ask.cancelled() else ask.result()
                for ask, branch in asks.items()
            ]
        finally:
            for ask in asks:
                ask.cancel()
        return worker.join_replies(replies, asked.count)

    async def _ask(self, jobs: Sequence[Job], asked: Round) -> Any:
        if self._direct:
            return await worker.forward_jobs(self._cluster.client.rpc, jobs, asked)
        words = {"op": "run", **worker.message(worker.branches_on, list(jobs), asked)}
        try:
            return worker.unpack_response(
                await self._cluster.client.scheduler.proxy(worker=jobs[0].home, msg=words)
            )
        except OSError:
            return Reply({}, worker.numbers_of(jobs))

    async def _give_up_on_lost(self, asks: Mapping[Any, Sequence[Job]]) -> None:
        """Stop waiting for workers that the scheduler has given up."""
        if all(ask.done() for ask in asks):
            return
        known = set((await self._cluster.client.scheduler.identity(n_workers=-1))["workers"])
        for ask, branch in asks.items():
            if not ask.done() and not {job.home for job in branch} <= known:
                ask.cancel()
                with suppress(asyncio.CancelledError):
                    await ask

    async def _stop(self, token: str) -> None:
        """Tell all workers, and wait a moment; what a busy process has not sent by then, it sends later."""
        word = asyncio.ensure_future(self._tell_all(token))
        _last_words.add(word)
        word.add_done_callback(_last_words.discard)
        await asyncio.wait([word], timeout=_BEAT)

    async def _tell_all(self, token: str) -> None:
        words = worker.message(worker.stop, token)
        asks = (self._cluster.client.rpc(home).run(**words) for home in self._groups)
        await asyncio.gather(*asks, return_exceptions=True)

    def _pack(self, params: Any, again: bool) -> Any:
        """Return parameters as they are sent: what stays the same for a run goes once to each worker."""
        if type(params) is tuple:
            return tuple(self._pack_one(value, again) for value in params)
        return self._pack_one(params, again)

    def _pack_one(self, value: Any, again: bool) -> Any:
        if isinstance(value, SparseVector):
            return SparseVector(value.indices, value.values, value.size)
        # Large and frozen stays what it is; an array may be changed in place.
        settings = getattr(value, "__dataclass_params__", None)
        if settings is None or not settings.frozen or _nbytes(value) <= 4096:
            return value
        for known, kept in self._kept:
            if known is value:
                return replace(kept, value=value) if again else kept
        kept = Kept(f"{self._cluster.client.id}-{next(_numbers)}")
        self._kept = [(value, kept), *self._kept[:3]]
        return replace(kept, value=value)


def lost_error(error: Exception) -> WorkerError:
    """Return what to raise for an error of the cluster, whose own words may quote a record."""
    return WorkerError(
        f"The cluster lost some records or their workers ({type(error).__name__}), and could not read them "
        "again from their source. What was booked stays spent; keep the source (delayed blocks, files) "
        "within reach of all workers, so that what a worker held can be read again."
    )


def _nbytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple):
        return sum(_nbytes(part) for part in value)
    return sum(_nbytes(part) for part in getattr(value, "__dict__", {}).values())


# Seconds: how often workers are counted, how long nobody may be there, and how long none of those to whom
# parts were given: Dask does not give those parts to workers that come later.
_TASK_BEAT, _PATIENCE, _MOMENT = 2.0, 60.0, 5.0
_READS = 4  # how often reading is begun
_discreet: WeakSet[Any] = WeakSet()  # clients whose workers keep what failed tasks say out of their logs
_PROBLEMS = {
    "shape": "Expected blocks with one row per record and one value of y per row, got another shape.",
    "numbers": "Expected a numeric matrix X and numeric targets, got entries that are not numbers. Encode "
    "them with a public vocabulary first.",
    "finite": "Expected finite numbers, got NaN or inf. Drop or replace them by a public rule.",
}


def spread(X: Any, y: Any = None, rows_of: Any = None, targets_of: Any = None) -> tuple[Spread, Any]:
    """Return rows (and targets) that lie in Dask, with their public facts read.

    Parameters
    ----------
    X : a dask array, a dask dataframe of numbers, or a list of delayed or future blocks, dense or CSR.
    y : one value per row: the same kinds, or an array in this process; None for none.
    rows_of, targets_of : functions that make rows and targets of a part of a table, where it lies.
    """
    cluster, rows, facts = _read(X, rows_of)
    columns = {f.columns for f in facts}
    if len(columns) != 1:
        raise InvalidInputError(
            f"Expected blocks with one number of columns, got {len(columns)} different ones."
        )
    names = [] if rows_of else list(getattr(X, "columns", []))  # those of a table are not those of its rows
    known = bool(names) and all(isinstance(name, str) for name in names)
    found = Spread(cluster, rows, facts, names if known else None, blocks_of(X))
    if y is None and targets_of is None:
        return found, None
    return found, found.column(X if y is None else y, targets_of if y is None else None)


def _read(X: Any, rows_of: Any) -> tuple[Placed, list[Any], list[Facts]]:
    """Read each part on a worker; where all of these are lost, start again with those that are there."""
    for attempt in itertools.count(1):
        cluster, blocks = Placed.on(current_client(), X), blocks_of(X)
        rows = cluster.stored(worker.stored_rows, blocks, rows_of)
        try:
            facts = cluster.facts(rows)
        except _HomesLostError:
            if attempt == _READS:
                raise
            continue
        return cluster, rows, facts
    raise AssertionError  # pragma: no cover


class _HomesLostError(WorkerError):
    """All workers that parts were given to are lost."""


@dataclass(frozen=True, eq=False)
class Placed:
    """A client and the worker that each part is read by.

    Once read, a part is no longer tied to its worker (:meth:`free`): tasks go where their parts lie anyway,
    and Dask would wait for ever for a worker that was lost together with all others.
    """

    client: Any
    homes: tuple[str, ...]
    pinned: bool = True
    begun: list[Any] = field(default_factory=list)  # tasks that are tied to a worker

    @classmethod
    def on(cls, client: Any, X: Any) -> Placed:
        """Give each worker neighbouring parts, unless the parts lie somewhere already."""
        blocks = blocks_of(X)
        refuse_repeated(blocks)
        if client not in _discreet:
            client.register_plugin(worker.DiscreetLog())
            _discreet.add(client)
        # Not scheduler_info: the client's timer may replace what that has read by a summary without workers.
        workers = sorted(client.sync(client.scheduler.identity, n_workers=-1)["workers"])
        if not workers:
            raise WorkerError("Expected a cluster with at least one worker, got none. Start workers first.")
        known = client.who_has([b for b in blocks if isinstance(b, Future)])
        lies = [next(iter(known.get(getattr(b, "key", None), ())), None) for b in blocks]
        spots = [workers[i * len(workers) // len(blocks)] for i in range(len(blocks))]
        return cls(client, tuple(home or spot for home, spot in zip(lies, spots, strict=True)))

    def submit(self, home: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Start a task where a part is to lie; later, where the parts lie that it is given."""
        where = {"workers": [home], "allow_other_workers": True} if self.pinned else {}
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            future = self.client.submit(
                function,
                *arguments,
                key=f"sordino-{function.__name__}-{self.client.id}-{next(_numbers)}",  # of no other client
                pure=False,
                **where,
            )
        self.begun.extend([future] if self.pinned else [])
        return future

    def free(self, futures: Sequence[Any], sources: Sequence[Any]) -> Placed:
        """Let Dask read parts again anywhere, now that each has its place."""
        graphs = [block.__dask_graph__() for block in sources if isinstance(block, Delayed)]
        keys = {key for graph in graphs for key in graph} | {future.key for future in futures}
        try:
            self._unpin(keys)
        except KeyError:  # some of a source's tasks were fused away
            for key in keys:
                with suppress(KeyError):
                    self._unpin([key])
        self.begun.clear()
        return replace(self, pinned=False)

    def _unpin(self, keys: Iterable[Any]) -> None:
        self.client.sync(self.client.scheduler.set_restrictions, worker=dict.fromkeys(keys))

    def each(self, function: Callable[..., Any], *arguments: Iterable[Any]) -> list[Any]:
        """Start one task for each part, on its worker."""
        rows = zip(self.homes, *arguments, strict=True)
        return [self.submit(home, function, *given) for home, *given in rows]

    def stored(self, function: Callable[..., Any], blocks: Sequence[Any], encode: Any = None) -> list[Any]:
        """Return futures of blocks that were read; a block can be read again from its source."""
        where = [{"workers": [home], "allow_other_workers": True} for home in self.homes]
        both = zip(blocks, where, strict=True)
        started = [self.client.compute(b, **there) if isinstance(b, Delayed) else b for b, there in both]
        if encode is not None:  # sent once, and tied to no worker
            encode = replace(self, pinned=False).submit("", worker.same, encode)
        return self.each(function, started, [encode] * len(started))

    def facts(self, stored: Sequence[Any]) -> list[Facts]:
        """Return the facts of stored parts; refuse what is wrong with one of them."""
        found: list[Facts] = self.results(self.each(worker.facts_of, stored))
        problem = next((fact.problem for fact in found if fact.problem), None)
        if problem is not None:
            raise InvalidInputError(_PROBLEMS[problem])
        return found

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for tasks and return what they found; nothing is left running when this fails."""
        try:
            found = self.client.sync(self._gather, list(futures))
        except BaseException as error:
            # Those that wait for a worker that was lost too: Dask would tie the next reader's tasks to it.
            self.client.cancel([*futures, *self.begun], force=True)
            if not isinstance(error, Exception) or isinstance(error, WorkerError):
                raise
            broken = error
        else:
            failed = next((f for f in found if isinstance(f, Failed)), None)
            if failed is None:
                return found
            raise failed.error()
        # outside of the handler: the foreign error would be its context
        if not self.pinned:
            raise lost_error(broken)
        raise WorkerError(
            f"The source of some rows failed on a worker, or the worker was lost ({type(broken).__name__}). "
            "What it said is not shown: it may quote records. Nothing was booked; compute a block alone to "
            "see why."
        )

    async def _gather(self, futures: list[Any]) -> Any:
        """Gather, and look now and then whether anybody is there to answer."""
        task = asyncio.ensure_future(self.client.gather(futures, asynchronous=True))
        seen = monotonic()
        while not (await asyncio.wait({task}, timeout=_TASK_BEAT))[0]:
            known = set((await self.client.scheduler.identity(n_workers=-1))["workers"])
            seen = monotonic() if (known & set(self.homes) if self.pinned else known) else seen
            patience = _MOMENT if self.pinned and known else _PATIENCE
            if monotonic() - seen > patience:
                task.cancel()
                raise _HomesLostError(
                    f"The workers that read the rows have been lost for {patience:g} seconds."
                )
        return task.result()


class Spread(Held):
    """Rows on the workers of a cluster."""

    def __init__(
        self,
        cluster: Placed,
        rows: list[Any],
        facts: list[Facts],
        names: list[str] | None,
        sources: list[Any],
    ) -> None:
        self._cluster, self._rows, self._sources = cluster, rows, sources
        self.sizes = tuple(fact.rows for fact in facts)
        self.shape = (sum(self.sizes), facts[0].columns)
        self.sparse = any(fact.sparse for fact in facts)
        self.dtype = np.result_type(*{fact.kind for fact in facts})
        self.names = names

    def column(self, values: Any, encode: Any = None) -> SpreadColumn:
        if isinstance(values, SpreadColumn):
            return values
        if isinstance(values, dask.array.Array) and not np.isnan(sum(values.chunks[0])):
            self._check_rows(values.shape)
            values = values.rechunk({0: self.sizes}) if values.chunks[0] != self.sizes else values
        if type(values).__module__.partition(".")[0] == "dask" or _is_blocks(values):
            blocks: Sequence[Any] = blocks_of(values)
        else:
            here = np.asarray(values)
            self._check_rows(here.shape)
            blocks = np.split(here, np.cumsum(self.sizes)[:-1])
        if len(blocks) != len(self.sizes):
            raise InvalidInputError(
                f"Expected one block of values for each of {len(self.sizes)} blocks of X, got {len(blocks)}."
            )
        stored = self._cluster.stored(worker.stored_column, blocks, encode)
        facts = self._cluster.facts(stored)
        if tuple(fact.rows for fact in facts) != self.sizes:
            raise InvalidInputError("Expected one value per row in each block, got blocks of other lengths.")
        self._sources.extend(blocks)
        return SpreadColumn(self._cluster, self.shape[0], ((tuple(stored), ()),), {f.kind for f in facts})

    def _check_rows(self, shape: tuple[int, ...]) -> None:
        if shape[:1] != self.shape[:1]:
            raise InvalidInputError(f"Expected one value for each of {self.shape[0]} rows, got {shape}.")

    def executor(self, targets: Any, data_norm: float | None, intercept: float, weights: Any) -> DaskExecutor:
        """Return the executor over these rows, once: the rows are handed over to it."""
        if not self._rows:
            raise PlanError("The executor over these rows was made before. Read the rows again.")
        if weights is not None and targets is None:  # pragma: no cover - no estimator does
            raise UnsupportedError("Weights without targets are not supported in Dask.")
        columns = [c for c in (targets, weights) if c is not None]
        factors = [factor for c in columns for factor in self.column(c).factors]
        stored = list(zip(*(futures for futures, _ in factors), strict=True)) or [()] * len(self.sizes)
        steps = [maps for _, maps in factors]
        parts = [
            self._cluster.submit(home, worker.held_part, rows, list(columns), steps, data_norm, intercept)
            for home, rows, columns in zip(self._cluster.homes, self._rows, stored, strict=True)
        ]
        found = self._cluster.results(self._cluster.each(worker.size_of, parts))
        stored_too = [future for futures, _ in factors for future in futures]
        free = self._cluster.free([*self._rows, *stored_too, *parts], self._sources)
        # The parts hold the same arrays: kept twice, Dask would count them twice and spill to disk too early.
        self._rows = self._sources = []
        return DaskExecutor(free, parts, found, self.sparse)


class SpreadColumn(HeldColumn):
    """One value per record, with its record: a product of columns, each through maps."""

    def __init__(
        self, cluster: Placed, count: int, factors: tuple[tuple[tuple[Any, ...], Steps], ...], kinds: set[str]
    ) -> None:
        self._cluster, self.factors, self.kinds = cluster, factors, kinds
        self.shape = (count,)

    def map(self, function: Callable[..., Any], *constants: Any) -> SpreadColumn:
        ((futures, steps),) = self.factors
        mapped = ((futures, (*steps, (function, constants))),)
        return SpreadColumn(self._cluster, self.shape[0], mapped, self.kinds)

    def __mul__(self, other: SpreadColumn) -> SpreadColumn:
        both = (*self.factors, *other.factors)
        return SpreadColumn(self._cluster, self.shape[0], both, self.kinds | other.kinds)

    def unique(self) -> Any:
        ((futures, _),) = self.factors
        found = self._cluster.results(self._cluster.each(worker.labels_of, futures))
        if any(part is None for part in found):
            return None
        return np.unique(np.concatenate(found))

    def least(self) -> float:
        ((futures, _),) = self.factors
        return min(self._cluster.results(self._cluster.each(worker.least_of, futures)))


def _is_blocks(X: Any) -> bool:
    return isinstance(X, (list, tuple)) and all(isinstance(block, (Delayed, Future)) for block in X)


def refuse_repeated(blocks: Sequence[Any]) -> None:
    """Refuse no blocks, and one that is given twice: its records would count twice."""
    if not blocks:
        raise InvalidInputError("Expected at least one block of rows, got none.")
    if len({block.key for block in blocks}) < len(blocks):
        raise InvalidInputError("Expected blocks that are each given once, got one of them twice.")


def blocks_of(X: Any) -> list[Any]:
    """Return one delayed or future block for each part of the rows."""
    if isinstance(X, (list, tuple)):
        if not _is_blocks(X):
            raise InvalidInputError("Expected a list of delayed or future blocks, got others among them.")
        return list(X)
    if isinstance(X, Delayed | Future):
        return [X]
    if isinstance(X, dask.array.Array):
        if X.ndim > 1 and len(X.chunks[1]) > 1:
            X = X.rechunk({1: -1})
        return list(np.ravel(X.to_delayed()))
    if hasattr(X, "to_delayed"):
        return list(X.to_delayed())
    raise InvalidInputError(
        f"Expected a dask array or dataframe, or a list of blocks, got {type(X).__name__}."
    )


def rows_of_columns(columns: Sequence[Any], make: Callable[[tuple[Any, ...]], Any]) -> Spread:
    """Return the rows that a function makes of neighbouring blocks of several collections.

    Parameters
    ----------
    columns : collections with as many records each, in the same order.
    make : is given one block of each and returns as many rows; it is sent to the workers.

    **Privacy.** A block that is given twice in one collection is refused: its records would count twice.
    """
    first = next((c for c in columns if _chunks(c) is not None), None)
    blocks = [blocks_of(_rechunk(column, first)) for column in columns]
    for each in blocks:
        refuse_repeated(each)
    if len({len(each) for each in blocks}) != 1:
        raise InvalidInputError(
            f"Expected as many blocks of every column, got {sorted({len(each) for each in blocks})}. "
            "Bring them to the same partitions first."
        )
    return spread([delayed(parts, pure=False) for parts in zip(*blocks, strict=True)], rows_of=make)[0]


def apply_by_block(X: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a function makes of each block of rows where it lies: a dask array, or sparse futures.

    The function is run now, so that an error is told in our words, not in a worker's log beside records.
    """
    cluster, blocks = Placed.on(current_client(), X), blocks_of(X)
    found = cluster.stored(worker.apply_to_block, blocks, function)
    facts: list[Facts] = cluster.results(cluster.each(worker.shape_of, found))
    cluster.free(found, blocks)
    full = [(one, fact) for one, fact in zip(found, facts, strict=True) if fact.rows]
    if not full:
        raise InvalidInputError("Expected at least one row, got none.")
    if any(fact.sparse for _, fact in full):
        return [one for one, _ in full]
    kind = np.result_type(*{np.dtype(fact.kind) for _, fact in full})
    shapes = [(fact.rows, fact.columns)[: 1 if fact.columns == 0 else 2] for _, fact in full]
    arrays = [dask.array.from_delayed(one, shape, kind) for (one, _), shape in zip(full, shapes)]
    return dask.array.concatenate(arrays)


def _chunks(column: Any) -> Any:
    """Return the known lengths of an array's blocks; None where they are not known."""
    known = isinstance(column, dask.array.Array) and not np.isnan(sum(column.chunks[0]))
    return column.chunks[0] if known else None


def _rechunk(column: Any, first: Any) -> Any:
    own, wanted = _chunks(column), _chunks(first)
    if own is None or own == wanted:
        return column
    if sum(own) != sum(wanted):
        raise InvalidInputError(f"Expected columns of one length, got {sum(wanted)} and {sum(own)} values.")
    return column.rechunk({0: wanted})
