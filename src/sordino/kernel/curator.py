"""The curator, which answers the releases of one plan, and the protocols of executors."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, runtime_checkable
from weakref import WeakSet

import numpy as np

from sordino.errors import PlanError, PlanSpentError
from sordino.kernel.correlated import Correlated, Memory, Remembered
from sordino.kernel.events import Batch, Listed
from sordino.kernel.noise import NoiseSource
from sordino.kernel.plan import Offer, Plan, Question, Release, check_asked, check_offer
from sordino.kernel.query import Answer

_opened: WeakSet[Plan] = WeakSet()
_lock = threading.Lock()
_DEALT = "records dealt to parts by the key"  # a line of the journal


class Place(Protocol):
    """Where the data lives."""

    @property
    def population(self) -> int:
        """The number of units, declared public."""

    @property
    def offer(self) -> Offer:
        """What it can do for a query."""


class Executor(Place, Protocol):
    """Adds up what a query asks of its records; it sees neither noise nor a source of it."""

    def total(self, question: Question, batch: Batch) -> Answer:
        """Return the exact sum over the records of a batch; nobody but the curator asks for it."""


@runtime_checkable
class NoisyExecutor(Place, Protocol):
    """An executor that is given the noise source, because its exact sum may not or cannot reach the curator.

    There are two: tensors, whose noise is made on their device (:mod:`sordino.execute.torch`), and parties,
    whose noise is made inside a secure computation (:mod:`sordino.execute.parties`).
    """

    def noisy_total(self, question: Question, batch: Batch, noise: NoiseSource) -> Answer:
        """Return the sum over the records of a batch with the noise of the release."""


def draw_batch(executor: Place, question: Question, noise: NoiseSource, later: int = 0) -> Batch:
    """Draw the records that a question looks at, or the one that comes so much later."""
    sampling, parts = question.release.sampling, executor.offer.parts
    memory, position = question.memory, question.position + later
    source: Any = noise if memory is None else Remembered(noise, memory, position)
    if parts:
        return Batch(tuple(sampling.shares(parts, position, source)))
    return Batch((Listed(sampling.draw(executor.population, position, source)),))


def answer(
    executor: Executor | NoisyExecutor, question: Question, noise: NoiseSource, batch: Batch | None = None
) -> Answer:
    """Draw the batch, have it added up and add the noise: the one place where data and noise meet."""
    batch = draw_batch(executor, question, noise) if batch is None else batch
    place: Any = executor  # isinstance of a protocol would take 0.1 ms, longer than many an answer
    if hasattr(place, "noisy_total"):
        return place.noisy_total(question, batch, noise)
    return question.noised(place.total(question, batch), noise)


class Curator:
    """Answers the releases of one calibrated plan, each as often as planned, and nothing else.

    Parameters
    ----------
    executor : holds the data.
    plan : a calibrated plan that no curator has opened before.
    noise : the source of randomness.
    used : what the journal was told in earlier sessions of the same run; those releases stay spent.
    journal : is told (name, count) before a release is asked, so that a crash cannot forget it, and once the
        key by which records are dealt to parts, where they are: a later session must not deal them anew.
    printed : the names of the parts of the plan that are not proven here (``plan.printed``), said by whoever
        wants them run all the same.

    **Privacy.** The sequence of all answers satisfies the event of the plan. A curator belongs to the process
    that opened it: a forked copy would spend the same plan a second time, so it refuses.
    """

    def __init__(
        self,
        executor: Executor | NoisyExecutor,
        plan: Plan,
        noise: NoiseSource,
        used: Mapping[str, int] | None = None,
        journal: Callable[[str, int], None] | None = None,
        printed: Collection[str] = (),
    ) -> None:
        check_asked(plan.printed, printed)
        if not plan.is_calibrated:
            raise PlanError("The plan has no noise multipliers yet. Call accounting.calibrate first.")
        if executor.population != plan.population:
            raise PlanError(
                f"The plan was made for a public population of {plan.population}, the executor "
                f"declares {executor.population}. Plan again with the same public number."
            )
        check_offer(plan, executor.offer)
        with _lock:
            if plan in _opened:
                raise PlanSpentError("This plan was already opened once. Calibrate and reserve a new one.")
            _opened.add(plan)
        self._executor, self._plan, self._noise = executor, plan, noise

        known = dict(used or {})
        key = known.pop(_DEALT, None)
        for name, count in known.items():
            if name not in plan.releases or not 0 <= count <= plan.releases[name].times:
                raise PlanError(f"Expected a position inside the plan, got {count} of {name!r}.")
        self._used, self._journal = Counter(known), journal
        self._turn, self._coming = threading.Lock(), dict[str, dict[int, Batch]]()
        self._process, self._closed = os.getpid(), False
        noises = {n: m for n, r in plan.releases.items() if isinstance(m := r.mechanism, Correlated)}
        if noises and key is None:
            if known:
                raise PlanError("The run does not know how its records were dealt to parts. Begin a new one.")
            key = noise.subkey()
            if journal is not None:
                journal(_DEALT, key)
        self._memories = {name: Memory(one.strategy, key or 0) for name, one in noises.items()}

    @property
    def plan(self) -> Plan:
        """The plan, which is public."""
        return self._plan

    @property
    def used(self) -> dict[str, int]:
        """How often each release was asked so far."""
        return dict(self._used)

    def close(self) -> None:
        """End the run: whatever is left of the plan stays spent and is never answered."""
        self._closed = True
        self._coming.clear()

    def release(self, name: str, params: Any = None) -> Answer:
        """Ask one planned question and return its noisy answer."""
        release, position = self._count(name)
        sensitivity = release.sensitivity(self._plan.relation, params)
        offer, population = self._executor.offer, self._plan.population
        known = (self._memories.get(name), offer.lattice, offer.roundings)
        question = Question(release, params, sensitivity, position, population, *known)
        with np.errstate(all="ignore"):  # what a caller has set: an error would tell of a record
            found = answer(self._executor, question, self._noise, self._known_batch(name, question))
        return found / release.sampling.expected(population) if release.mean else found

    def _known_batch(self, name: str, question: Question) -> Batch | None:
        """Return the batch of a question that was drawn ahead, or is now; None where nobody wants that.

        An executor that reads batches better together has ``ahead(release, left)``, how many of the next ones
        it wants to be told, by public numbers alone, and ``prepare(batches)``, which returns them as it wants
        to be given them. **Privacy.** A batch is drawn independently of all others, of the noise and of the
        answers. Drawn earlier it has the same law given all that was released before it is asked; nobody sees
        one that is not asked.
        """
        place: Any = self._executor
        if not hasattr(place, "ahead"):
            return None
        with self._turn:
            first, known = question.position, self._coming.setdefault(name, {})
            if first not in known:
                count = place.ahead(question.release, question.release.times - first)
                batches = (draw_batch(place, question, self._noise, later) for later in range(count))
                known.update(enumerate(place.prepare(batches) if count else (), first))
            return known.pop(first, None)

    def _count(self, name: str) -> tuple[Release, int]:
        if os.getpid() != self._process:
            raise PlanSpentError(
                "This curator belongs to the process that opened it. A copy made by fork would spend the "
                "same plan twice: fit in the child itself, with a budget of its own."
            )
        if self._closed:
            raise PlanSpentError("The run of this plan has ended. Make a new one, with a budget of its own.")
        if name not in self._plan.releases:
            known = ", ".join(self._plan.releases)
            raise PlanError(f"No release {name!r} in the plan; planned are: {known}.")
        release = self._plan.releases[name]
        with self._turn:  # counted before it is asked: a crash is spent
            position = self._used[name]
            if position >= release.times:
                raise PlanSpentError(f"Release {name!r} was planned {release.times} times, all are spent.")
            if self._journal is not None:
                self._journal(name, position + 1)
            self._used[name] += 1
        return release, position
