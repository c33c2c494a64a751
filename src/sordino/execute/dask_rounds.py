"""Rounds over the workers of a Dask cluster: one message to each worker and one back, no task."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np

from sordino.errors import WorkerError
from sordino.execute import dask_worker as worker
from sordino.execute.dask_worker import Failed, Job, Kept, Reply, Round
from sordino.execute.parts import PartedExecutor
from sordino.execute.tree import Nodes
from sordino.kernel import Question, SparseVector
from sordino.kernel.shares import Share

_REMEDY = "Bring the rows into one place (X.compute()), or choose a solver that asks for sums."
_LARGE = 1 << 22  # bytes, over all workers, from which on workers pass messages on to each other
# Seconds: how often silent workers are counted, how long a first word may take, how often a cluster is told
# that it is in use: rounds are no tasks, and some clusters close when they see none.
_BEAT, _FIRST, _SIGN = 2.0, 5.0, 60.0
_TRIES = 12  # how often lost parts are looked for in one round
_numbers = itertools.count()
_last_words = set[Any]()  # to workers that are to stop; a loop by itself may forget what it is to send


class DaskExecutor(PartedExecutor):
    """Answers releases with one message to each worker, which adds up all parts that lie there.

    Parameters
    ----------
    cluster : the client, with tasks that can be waited for.
    parts : futures of the parts, which Dask reads again when they are lost.
    found : the number of records of each part, and its mark.

    **Privacy.** Workers and scheduler are trusted: they see records, keys of batches and exact sums.
    """

    def __init__(self, cluster: Any, parts: Sequence[Any], found: Sequence[tuple[int, int]], sparse: bool):
        self._cluster, self._parts = cluster, list(parts)
        self._marks = [mark for _, mark in found]
        super().__init__([size for size, _ in found], sparse, "rows on the workers of a cluster", _REMEDY)
        self._kept: list[tuple[Any, Kept]] = []
        self._bytes, self._signed = 0, monotonic()
        self._groups = self._located()
        self._direct = all(self._cluster.client.sync(self._reached, home) for home in self._groups)

    def _located(self) -> dict[str, list[int]]:
        """Return which parts lie on which worker."""
        known = self._cluster.client.who_has(self._parts)
        groups: dict[str, list[int]] = {}
        for i, (part, home) in enumerate(zip(self._parts, self._cluster.homes, strict=True)):
            groups.setdefault(next(iter(known.get(part.key, ())), home), []).append(i)
        return groups

    async def _reached(self, home: str) -> bool:
        """Tell whether this process can speak with a worker; else the scheduler passes messages on."""
        try:
            await asyncio.wait_for(self._cluster.client.rpc(home).identity(), _FIRST)
        except OSError:
            return False
        return True

    def _branches(self, question: Question, shares: Sequence[Share]) -> list[Nodes]:
        found: list[Nodes] = []
        left = set(range(len(self.sizes)))
        self._sign()
        for attempt in range(_TRIES):
            asked = replace(question, params=self._sent(question.params, again=attempt > 0))
            reply = self._asked(asked, shares, left)
            found.append(reply.nodes)
            if not reply.missing:
                self._bytes = max((_nbytes(node) for node in reply.nodes.values()), default=0)
                return found
            left = set(reply.missing)
            self._look_again()
        raise WorkerError(
            f"The cluster lost workers {_TRIES} times in one round. What was booked stays spent; see why its "
            "workers die (memory, machines that are taken away)."
        )

    def _asked(self, question: Question, shares: Sequence[Share], left: set[int]) -> Reply:
        """Ask for the sums of some parts; nothing goes on when this fails."""
        client, token = self._cluster.client, f"{self._cluster.client.id}-{next(_numbers)}"
        asked = Round(token, question, len(self.sizes))
        try:
            reply = client.sync(self._round, asked, self._jobs(shares, left))
        except BaseException as error:
            with suppress(Exception):
                client.sync(self._stop, token)
            if not isinstance(error, Exception):
                raise
            reply = error
        if isinstance(reply, Exception):  # outside of the handler: the foreign error would be its context
            raise lost(reply)
        if isinstance(reply, Failed):
            raise reply.error()
        return reply

    def _jobs(self, shares: Sequence[Share], left: set[int]) -> list[Job]:
        jobs = []
        for home, numbers in self._groups.items():
            mine = [i for i in numbers if i in left]
            if mine:
                keys = tuple(self._parts[i].key for i in mine)
                marks = tuple(self._marks[i] for i in mine)
                jobs.append(Job(home, keys, tuple(mine), tuple(shares[i] for i in mine), marks))
        return jobs

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
            replies = [_answer(ask, branch) for ask, branch in asks.items()]
        finally:
            for ask in asks:
                ask.cancel()
        return worker.joined(replies, asked.count)

    async def _ask(self, jobs: Sequence[Job], asked: Round) -> Any:
        if self._direct:
            return await worker.forwarded(self._cluster.client.rpc, jobs, asked)
        words = {"op": "run", **worker.message(worker.branches_on, list(jobs), asked)}
        try:
            return worker.unpacked(await self._cluster.client.scheduler.proxy(worker=jobs[0].home, msg=words))
        except OSError:
            return Reply({}, _all_of(jobs))

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
        word = asyncio.ensure_future(self._stopped(token))
        _last_words.add(word)
        word.add_done_callback(_last_words.discard)
        await asyncio.wait([word], timeout=_BEAT)

    async def _stopped(self, token: str) -> None:
        words = worker.message(worker.stop, token)
        asks = (self._cluster.client.rpc(home).run(**words) for home in self._groups)
        await asyncio.gather(*asks, return_exceptions=True)

    def _look_again(self) -> None:
        """Wait until lost parts have been read again from their source, and see where they lie now."""
        self._cluster.results(self._cluster.each(worker.size_of, self._parts))
        self._groups = self._located()

    def _sign(self) -> None:
        if monotonic() - self._signed > _SIGN:
            self._signed = monotonic()
            self._cluster.submit("", worker.size_of, None)

    def _sent(self, params: Any, again: bool) -> Any:
        """Return parameters as they are sent: what stays the same for a run goes once to each worker."""
        if type(params) is tuple:
            return tuple(self._sent_one(value, again) for value in params)
        return self._sent_one(params, again)

    def _sent_one(self, value: Any, again: bool) -> Any:
        if isinstance(value, SparseVector):
            return SparseVector(value.indices, value.values, value.size)
        if not _is_constant(value):
            return value
        for known, kept in self._kept:
            if known is value:
                return replace(kept, value=value) if again else kept
        kept = Kept(f"{self._cluster.client.id}-{next(_numbers)}")
        self._kept = [(value, kept), *self._kept[:3]]
        return replace(kept, value=value)


def lost(error: Exception) -> WorkerError:
    """Return what to raise for an error of the cluster, whose own words may quote a record."""
    return WorkerError(
        f"The cluster lost some records or their workers ({type(error).__name__}), and could not read them "
        "again from their source. What was booked stays spent; keep the source (delayed blocks, files) "
        "within reach of all workers, so that what a worker held can be read again."
    )


def unread(error: Exception) -> WorkerError:
    """Return what to raise when rows cannot be read for the first time, before a budget is booked."""
    return WorkerError(
        f"The source of some rows failed on a worker, or the worker was lost ({type(error).__name__}). What "
        "it said is not shown: it may quote records. Nothing was booked; compute a block alone to see why."
    )


def _answer(ask: Any, branch: Sequence[Job]) -> Any:
    return Reply({}, _all_of(branch)) if ask.cancelled() else ask.result()


def _all_of(jobs: Sequence[Job]) -> tuple[int, ...]:
    return tuple(number for job in jobs for number in job.numbers)


def _is_constant(value: Any) -> bool:
    """Tell whether an object is large and stays what it is: an array may be changed in place."""
    settings = getattr(value, "__dataclass_params__", None)
    frozen = settings is not None and settings.frozen
    return frozen and _nbytes(value) > 4096


def _nbytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple):
        return sum(_nbytes(part) for part in value)
    return sum(_nbytes(part) for part in getattr(value, "__dict__", {}).values())
