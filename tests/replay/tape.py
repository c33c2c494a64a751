"""Record the releases of one run, and replay their noisy answers on a neighbour.

While a tape runs, each question of every curator gets noise and a batch that depend on the number of the
question alone. A tape with a script adds that noise to the *script's* exact answers: whoever asks hears the
answers on the first data set, whatever the second one holds. What a run does then may differ in the exact
answers only, and in those by at most the sensitivity.
"""

from __future__ import annotations

import contextlib
import io
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tests.replay.absent import Absent, without
from tests.replay.facts import Facts, facts_of
from tests.replay.readings import Reading, kept, read

import sordino.literature  # noqa: F401 - its mechanisms are known before the tape looks for all of them
from sordino.errors import SordinoError
from sordino.execute.parties import executor as parties
from sordino.kernel import Curator, Plan, curator
from sordino.kernel.mechanism import Additive
from sordino.kernel.noise import NoiseSource, seeded_noise_not_private
from sordino.kernel.sampling import Disjoint, FixedSize, Full, Poisson

_running: list[Tape] = []
_SAMPLINGS = (Full, Poisson, FixedSize, Disjoint)


@dataclass
class Question:
    """One release: what was asked, in which plan, and the exact answer, which nobody but the tape sees."""

    name: str
    executor: str
    facts: Facts
    params: Facts
    norm: Any
    sensitivity: float
    exact: list[Reading] | None = None
    value: Any = field(default=None, repr=False)
    answer: Facts = ()


@dataclass
class Recording:
    """What one run asked and left behind: its state, or the class and the words of its error."""

    questions: list[Question]
    plans: list[Facts]
    state: Facts = ()
    error: str | None = None
    words: list[str] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        """Whether the run ended at the door, before the first question."""
        return self.error is not None and not self.questions


def play(
    run: Callable[[], Any], script: Recording | None = None, absent: Absent | None = None, seed: int = 11
) -> Recording:
    """Run once under a tape; with a script its noisy answers are heard, without a unit that is ``absent``."""
    tape = Tape(script, absent, seed)
    out = Recording(tape.questions, tape.plans)
    shown = io.StringIO()
    with (
        warnings.catch_warnings(record=True) as said,
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(shown),
        seeded_noise_not_private(seed),
        tape.running(),
    ):
        warnings.simplefilter("always")
        try:
            out.state = facts_of(run())
        except HarnessError:
            raise
        except Exception as error:  # an exception is an answer too: neighbours must get the same one
            out.error = f"{type(error).__name__}: {error}"
            if not isinstance(error, SordinoError):
                out.error = f"foreign {out.error}"
    out.words = [f"{w.category.__name__}: {w.message}" for w in said] + shown.getvalue().splitlines()
    return out


class HarnessError(AssertionError):
    """The harness itself cannot do what it was asked to."""


class Tape:
    """Listens at every curator, mechanism and sampling of this process."""

    def __init__(self, script: Recording | None, absent: Absent | None, seed: int) -> None:
        self.script, self.absent, self.seed = script, absent, seed
        self.questions: list[Question] = []
        self.plans: list[Facts] = []
        self.population: int | None = None  # that of the first plan: the absent unit is one of those
        self.batch: int | None = None  # the unit that batches leave out now
        self._noised = threading.local()

    @contextlib.contextmanager
    def running(self) -> Iterator[Tape]:
        """Put the tape under the kernel; one tape at a time."""
        if _running:
            raise HarnessError("a tape is running already")
        with contextlib.ExitStack() as stack:
            stack.callback(_running.clear)
            _running.append(self)
            stack.enter_context(_replaced(Curator, "__init__", _curator))
            stack.enter_context(_replaced(curator, "answer", _answer))
            stack.enter_context(_replaced(parties, "_quantised", _contribution))
            for mechanism in _subclasses(Additive):
                for name in ("privatise", "privatise_on_lattice"):
                    if name in vars(mechanism):
                        stack.enter_context(_replaced(mechanism, name, _mechanism))
            for sampling in _SAMPLINGS:
                for name in ("draw", "shares"):
                    stack.enter_context(_replaced(sampling, name, _sampling))
            yield self

    def source(self, what: int) -> NoiseSource:
        """Return the noise of the question that is asked now: a function of its number alone."""
        return NoiseSource.seeded_not_private((self.seed * 10_007 + len(self.questions)) * 7 + what)

    def noised(self, noise_to: Callable[..., Any], value: Any, spacing: float | None, noise: Any) -> Any:
        """Write down the exact answer; return the noisy one of the script, or of this run without one."""
        question = self.questions[-1]
        question.exact, question.value = read(value, spacing), kept(value)
        answered = question
        if self.script is not None and len(self.questions) <= len(self.script.questions):
            answered = self.script.questions[len(self.questions) - 1]
        heard = value if answered is question or answered.value is None else kept(answered.value)
        source: Any = self.source(1)
        return noise_to(heard, replace(noise, noise=source) if hasattr(noise, "noise") else source)

    def contributed(self, found: Any, multiplier: float) -> Any:
        """Write down a party's integers and the sensitivity its noise is for; return those of the script."""
        question, lattice = self.questions[-1], found.lattice
        question.value = [*(question.value or ()), found]
        question.exact = read(sum(part.values for part in question.value), lattice.spacing)
        question.sensitivity = lattice.std * lattice.spacing / multiplier
        question.facts = (*question.facts, ("lattice", repr(lattice)))
        if self.script is None or len(self.questions) > len(self.script.questions):
            return found
        return self.script.questions[len(self.questions) - 1].value[len(question.value) - 1]


class Listener:
    """An executor as a curator sees it; it writes down what it is asked."""

    def __init__(self, tape: Tape, inner: Any, plan: Plan) -> None:
        tape.population = inner.population if tape.population is None else tape.population
        self._tape, self._plan, self._kind, self._left_out = tape, plan, type(inner).__name__, None
        if tape.absent is not None and inner.population == tape.population:
            found = without(inner, tape.absent)
            self._left_out = tape.absent.unit if found is None else None
            inner = inner if found is None else found
        self._inner = inner
        self._known: dict[str, Facts] = {}
        tape.plans.append(facts_of((sorted(plan.releases), plan.relation, plan.population, plan.unit)))

    @property
    def population(self) -> int:
        return self._inner.population

    @property
    def offer(self) -> Any:
        return self._inner.offer

    def heard(self, asked: Any, original: Callable[..., Any]) -> Any:
        """Write a question down, ask it, and write down what its asker hears."""
        tape, release, sensitivity = self._tape, asked.release, asked.sensitivity
        name = next((n for n, planned in self._plan.releases.items() if planned is release), "?")
        if name not in self._known:
            self._known[name] = facts_of((release, self._plan.relation, self._plan.population))
        facts = (*self._known[name], ("position", asked.position), ("sensitivity", sensitivity))
        found = facts_of(asked.params)
        tape.questions.append(Question(name, self._kind, facts, found, release.query.norm, sensitivity))
        tape.batch = self._left_out
        answer = original(self._inner, asked, tape.source(3))  # for an executor that makes its own noise
        if tape.batch is not None:
            raise HarnessError(f"{self._kind} has no way to leave a unit out; give it one in absent.py")
        tape.questions[-1].answer = () if hasattr(answer, "hard_threshold") else facts_of(answer)
        return answer


@contextlib.contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any, str], Any]) -> Iterator[None]:
    original = vars(owner)[name]
    setattr(owner, name, make(original, name))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _curator(original: Any, name: str) -> Any:
    def opened(self: Any, executor: Any, plan: Plan, *args: Any, **kwargs: Any) -> None:
        original(self, Listener(_running[0], executor, plan), plan, *args, **kwargs)

    return opened


def _answer(original: Any, name: str) -> Any:
    return lambda listener, question, noise: listener.heard(question, original)


def _mechanism(original: Any, name: str) -> Any:
    def privatise(self: Any, value: Any, *rest: Any) -> Any:
        tape, noise = _running[0], rest[-1]
        if getattr(tape._noised, "inside", False) or not tape.questions:  # a mechanism inside of another
            return original(self, value, *rest)
        tape._noised.inside = True
        try:
            spacing = rest[0] if name == "privatise_on_lattice" else None
            return tape.noised(lambda v, source: original(self, v, *rest[:-1], source), value, spacing, noise)
        finally:
            tape._noised.inside = False

    return privatise


def _contribution(original: Any, name: str) -> Any:
    def quantised(local: Any, question: Any, rows: Any) -> Any:
        return _running[0].contributed(original(local, question, rows), question.release.mechanism.multiplier)

    return quantised


def _sampling(original: Any, name: str) -> Any:
    def drawn(self: Any, sizes: Any, position: int, noise: Any) -> Any:
        tape = _running[0]
        left_out, tape.batch = tape.batch, None
        found = original(self, sizes, position, tape.source(2))
        if left_out is None:
            return found
        if name == "draw":
            rows = np.arange(sizes) if found is None else found
            return rows[rows != left_out]
        return _less_one(found, sizes, left_out)

    return drawn


@dataclass(frozen=True)
class LessOne:
    """One part's rows of a batch, all but one."""

    share: Any
    row: int

    def rows(self, count: int) -> Any:
        found = self.share.rows(count)
        rows = np.arange(count) if found is None else found
        return rows[rows != self.row]


def _less_one(shares: list[Any], sizes: Any, row: int) -> list[Any]:
    starts = np.concatenate([[0], np.cumsum(sizes)])
    part = int(np.searchsorted(starts, row, side="right")) - 1
    return [LessOne(s, row - int(starts[part])) if i == part else s for i, s in enumerate(shares)]


def _subclasses(kind: type) -> list[type]:
    return [kind, *(c for sub in kind.__subclasses__() for c in _subclasses(sub))]
