"""Record the releases of one run, replay their noisy answers on a neighbour, and tell the two apart.

While a tape runs, each question of every curator gets noise and a batch that depend on the number of the
question alone. A tape with a script adds that noise to the *script's* exact answers: whoever asks hears the
answers on the first data set, whatever the second one holds. What a run does then may differ in the exact
answers only, and in those by at most the sensitivity.

A tape hears the calls of its own thread and context; fits elsewhere in the process keep their own noise.
Nothing that runs under a tape is booked on a ledger, and nothing that it makes is private.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import io
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from types import FunctionType, MethodType
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from sordino.errors import AuditError, SordinoError
from sordino.execute import GroupedExecutor, LocalExecutor
from sordino.execute.local import StreamExecutor, ValueExecutor
from sordino.execute.parties import SimulatedParties
from sordino.execute.parties import executor as parties
from sordino.execute.persons import SharedExecutor
from sordino.kernel import Curator, Norm, Plan, SparseVector, curator
from sordino.kernel import plan as planned
from sordino.kernel.events import Disjoint, FixedSize, InTurn, Poisson
from sordino.kernel.mechanism import Gaussian, Laplace
from sordino.kernel.noise import NoiseSource, seeded_noise_not_private
from sordino.problems.minimiser import Tilted
from sordino.runs.promise import Ask, enclosing

# Anything as a flat list of (path, value): two things are the same if their lists are.

Facts: TypeAlias = tuple[tuple[str, Any], ...]
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_OPAQUE = (NoiseSource, type(threading.Lock()), type(threading.RLock()))


def facts_of(value: Any) -> Facts:
    """Return everything that can be read off a value, down to the bits of its numbers."""
    return tuple(_facts(value, "", []))


def first_difference(one: Facts, other: Facts) -> str | None:
    """Return where two lists of facts differ first; None where they do not."""
    ours, theirs, none = dict(one), dict(other), object()
    apart = (path for path in {**ours, **theirs} if ours.get(path, none) != theirs.get(path, none))
    return next((path or "value" for path in apart), None)


def numbers_of(value: Any, above: tuple[int, ...] = ()) -> np.ndarray:
    """Return all floating-point numbers of a value as one vector."""
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.dtype.kind == "f":
        return array.ravel().astype(float)
    opaque = callable(value) and not hasattr(value, "state_dict")  # a network has its weights
    if isinstance(value, _PLAIN) or array.dtype != object or opaque or id(value) in above:
        return np.zeros(0)
    found = [numbers_of(part, (*above, id(value))) for _, part in _parts(value)]
    return np.concatenate([np.zeros(0), *found])


def _facts(value: Any, path: str, above: list[int]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, _PLAIN):
        yield path, (type(value).__name__, repr(value))  # nan is like nan, 0.0 is unlike -0.0
    elif isinstance(value, Enum | type) or (callable(value) and not hasattr(value, "__dict__")):
        yield path, repr(value)
    elif id(value) in above:
        yield path, ("again", len(above) - above.index(id(value)))
    elif not isinstance(value, _OPAQUE):
        yield path, type(value).__name__
        for key, part in _parts(value):
            yield from _facts(part, f"{path}.{key}", [*above, id(value)])


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, functools.partial):
        value = (value.func, value.args, value.keywords)
    if isinstance(value, MethodType | FunctionType):  # what it has kept of where it was made
        yield "name", value.__qualname__
        kept = [value.__self__] if isinstance(value, MethodType) else inspect.getclosurevars(value).nonlocals
        value = (kept, getattr(value, "__defaults__", None), getattr(value, "__kwdefaults__", None))
    if hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor
        value = (
            value.detach().cpu().numpy() if value.layout.__repr__() == "torch.strided" else value.to_dense()
        )
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        array = np.asarray(value)
        yield "array", (str(array.dtype), array.shape, array.tobytes())
        yield from vars(value).items() if hasattr(value, "__dict__") else ()
    elif sparse.issparse(value):
        yield "sparse", (value.shape, value.toarray().tobytes())
    elif isinstance(value, Mapping):
        yield from sorted(value.items(), key=lambda item: repr(item[0]))
    elif isinstance(value, list | tuple | np.ndarray):
        yield from enumerate(value)
    elif isinstance(value, set | frozenset):
        yield "set", sorted(map(repr, value))
    else:
        yield from _members(value)


def _members(value: Any) -> Iterator[tuple[Any, Any]]:
    if is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "get_params"):
        yield from ((f.name, getattr(value, f.name)) for f in fields(value) if hasattr(value, f.name))
    elif hasattr(value, "__dict__") and (hasattr(value, "get_params") or not callable(value)):
        yield from sorted(vars(value).items())
    elif hasattr(value, "__dict__") and hasattr(value, "state_dict"):  # a network: its numbers
        yield from value.state_dict().items()
    elif hasattr(type(value), "__slots__"):
        yield from ((s, getattr(value, s)) for s in type(value).__slots__ if hasattr(value, s))
    else:
        yield "name", getattr(value, "__qualname__", type(value).__name__)


# ---------------------------------------------------------------- The tape

_SAMPLINGS = (InTurn, FixedSize, Disjoint)  # whose drawing others inherit
_tape: ContextVar[Tape | None] = ContextVar("tape", default=None)
_turn = threading.RLock()  # the kernel is listened to by one tape at a time

Reading: TypeAlias = dict[Any, float] | np.ndarray
"""One vector, by position or by name; an answer may be read at several places, each bounded by itself."""


@dataclass(frozen=True, eq=False)
class Absent:
    """A unit that leaves: its number and, where records have owners, whom the caller knows to own each.

    An executor's own numbers of persons are not asked: it may have merged two of them. Of ``records`` that a
    model asks as several rows each, all of them first once, then again, all rows of one leave.
    """

    unit: int
    owners: np.ndarray | None = None
    records: int = 0

    def rows(self, population: int) -> Any:
        """Return its rows among so many: one, or all records of a person."""
        if self.owners is not None and len(self.owners) == population:
            return np.flatnonzero(self.owners == self.unit)
        return np.arange(min(self.unit, population - 1), population, self.records or population)


class Pull(Absent):
    """A unit that adds a whole sensitivity along the first coordinate to each answer for which it is drawn.

    No record has such gradients, but a guarantee of clipped sums holds for them as well.
    """


@dataclass
class Heard:
    """One release: what was asked, in which plan, and the exact answer, which nobody but the tape sees."""

    name: str
    executor: str
    facts: Facts
    params: Facts
    norm: Norm
    sensitivity: float
    asked: Any = field(default=None, repr=False)
    exact: list[Reading] | None = field(default=None, repr=False)
    value: Any = field(default=None, repr=False)
    answer: Facts = field(default=(), repr=False)
    noisy: Any = field(default=None, repr=False)
    batch: int | None = field(default=None, repr=False)  # how many units were drawn, by a coin for each
    altered: bool = False  # whether its asker got another answer than the mechanism made

    @property
    def vector(self) -> Any:
        """The exact answer, at the first place where it was read."""
        return np.asarray((self.exact or [np.zeros(0)])[0])

    @property
    def is_off_lattice(self) -> bool:
        """Whether an answer is said to have exact noise and is no multiple of the spacing of its lattice."""
        asked, mechanism = self.asked, self.asked.release.mechanism
        if not asked.secure or type(mechanism) not in (Gaussian, Laplace) or isinstance(self.value, list):
            return False
        lines = np.asarray(0.0 if self.noisy is None else self.noisy, dtype=float)
        return bool(np.any(np.mod(lines, asked.spacing or mechanism.lattice(asked.sensitivity))))


@dataclass
class Recording:
    """What one run asked and left behind: its state, or the class and the words of its error.

    ``persons`` has, for each executor whose records have owners, how many records and persons it counts.
    """

    questions: list[Heard]
    plans: list[Plan]
    trials: list[Plan]
    persons: list[tuple[int, int]] = field(default_factory=list)
    state: Facts = ()
    error: str | None = None
    raised: Exception | None = field(default=None, repr=False)
    words: list[str] = field(default_factory=list)
    made: Any = field(default=None, repr=False)


def play(
    run: Callable[[], Any],
    script: Recording | None = None,
    absent: Absent | None = None,
    seed: int | None = 11,
    forced: int | None = None,
) -> Recording:
    """Run once under a tape.

    Parameters
    ----------
    run : what asks a curator, and returns all that it releases.
    script : a recording whose noisy answers are heard; None for a run of its own.
    absent : a unit that contributes nothing.
    seed : of noise and batches, question by question; None listens only, for what no replay is compared with.
    forced : a unit that is in every batch.
    """
    tape, shown = Tape(script, absent, seed, forced), io.StringIO()
    out = tape.heard
    known = contextlib.nullcontext() if seed is None else seeded_noise_not_private(seed)
    with (
        warnings.catch_warnings(record=True) as said,
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(shown),
        known,
        tape.running(),
    ):
        warnings.simplefilter("always")
        try:
            out.made = run()
            out.state = tape.facts(out.made)
        except AuditError:
            raise
        except Exception as error:  # an exception is an answer too: neighbours must get the same one
            out.raised, out.error = error, f"{type(error).__name__}: {error}"
            if not isinstance(error, SordinoError):
                out.error = f"foreign {out.error}"
    out.words = [f"{w.category.__name__}: {w.message}" for w in said] + shown.getvalue().splitlines()
    return out


class Tape:
    """Listens at every curator, question and sampling of this context."""

    def __init__(
        self, script: Recording | None, absent: Absent | None, seed: int | None, forced: int | None
    ) -> None:
        self.script, self.absent, self.seed, self.forced = script, absent, seed, forced
        self.facts: Callable[[Any], Facts] = facts_of if seed is not None else lambda value: ()
        self.heard = Recording([], [], [])
        self.questions = self.heard.questions
        self.population: int | None = None  # that of the first plan: the absent unit is one of those
        self.batch: Any = None  # rows that batches leave out now
        self.drawn = True  # whether the absent unit would be in the batch of now

    @contextlib.contextmanager
    def running(self) -> Iterator[Tape]:
        """Put the tape under the kernel, for the calls of this context."""
        if _tape.get() is not None:
            raise AuditError("An audit cannot run inside of another one.")
        with contextlib.ExitStack() as stack:
            stack.enter_context(_turn)
            stack.callback(_tape.reset, _tape.set(self))
            for owner, name, instead in _HEARD:
                stack.enter_context(_replace_calls(owner, name, instead))
            yield self

    def source(self, what: int, otherwise: Any) -> Any:
        """Return the noise of the question that is asked now: a function of its number alone."""
        if self.seed is None:
            return otherwise
        known = NoiseSource.seeded_not_private((self.seed * 10_007 + len(self.questions)) * 7 + what)
        return replace(otherwise, noise=known) if hasattr(otherwise, "noise") else known

    @property
    def scripted(self) -> Heard | None:
        """The question of the script that has the number of the one that is asked now."""
        asked = [] if self.script is None else self.script.questions
        return asked[len(self.questions) - 1] if len(self.questions) <= len(asked) else None


class Listener:
    """An executor as a curator sees it; it writes down what it is asked."""

    def __init__(self, tape: Tape, inner: Any, plan: Plan) -> None:
        tape.population = inner.population if tape.population is None else tape.population
        self._tape, self._plan, self._kind, self._left_out = tape, plan, type(inner).__name__, None
        if getattr(inner, "groups", None) is not None:
            tape.heard.persons.append((inner.local.population, inner.population))
        elif getattr(inner, "owners", None) is not None:  # of a network
            tape.heard.persons.append((inner.records_held, inner.population))
        if tape.absent is not None and inner.population == tape.population:
            found = without(inner, tape.absent)
            self._left_out = tape.absent.rows(inner.population) if found is None else None
            inner = inner if found is None else found
        self._inner = inner
        self._known: dict[str, Facts] = {}
        tape.heard.plans.append(plan)
        if enclosing() is not None:  # a trial: its number is secret, and its price is that of the search
            tape.heard.trials.append(plan)

    @property
    def population(self) -> int:
        return self._inner.population

    @property
    def offer(self) -> Any:
        return self._inner.offer

    def heard(self, asked: Any, noise: Any, original: Callable[..., Any]) -> Any:
        """Write a question down, ask it, and write down what its asker hears."""
        tape, release, sensitivity = self._tape, asked.release, asked.sensitivity
        name = next((n for n, planned in self._plan.releases.items() if planned is release), "?")
        if name not in self._known:
            self._known[name] = tape.facts((release, self._plan.relation, self._plan.population))
        facts = (*self._known[name], ("position", asked.position), ("sensitivity", sensitivity))
        heard = Heard(
            name, self._kind, facts, tape.facts(asked.params), release.query.norm, sensitivity, asked
        )
        tape.questions.append(heard)
        tape.batch, tape.drawn = self._left_out, True
        answer = original(self._inner, asked, tape.source(3, noise))  # for one that makes its own noise
        if tape.batch is not None:
            raise AuditError(f"{self._kind} has no way to leave a unit out; give it one in auditing/tape.py.")
        if not hasattr(answer, "hard_threshold"):  # one that stays lazy draws noise when it is read
            heard.noisy, heard.answer = answer, tape.facts(answer)
        return answer


@contextlib.contextmanager
def _replace_calls(owner: Any, name: str, instead: Callable[..., Any]) -> Iterator[None]:
    """Let the tape of a context have the calls of a function that are made there."""
    original = vars(owner)[name]

    def listening(*args: Any, **kwargs: Any) -> Any:
        tape = _tape.get()
        return original(*args, **kwargs) if tape is None else instead(original, tape, *args, **kwargs)

    setattr(owner, name, listening)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _record_release(original: Any, tape: Tape, self: Any, name: str, params: Any = None) -> Any:
    """Note where an asker gets another answer than the last one that was heard, or than its mean."""
    found, release = original(self, name, params), self.plan.releases[name]
    heard = tape.questions[-1]
    if heard.noisy is not None and tape.seed is not None:
        mean = release.sampling.expected(self.plan.population) if release.mean else None
        heard.altered = facts_of(found) != facts_of(heard.noisy if mean is None else heard.noisy / mean)
    return found


def _record_answer(original: Any, tape: Tape, executor: Any, question: Any, *rest: Any) -> Any:
    if isinstance(executor, Listener):  # which is not told of batches ahead: a draw is heard where it counts
        return executor.heard(question, rest[0], original)
    return original(executor, question, *rest)


def _record_noise(original: Any, tape: Tape, question: Any, exact: Any, noise: Any) -> Any:
    """Write down the exact answer; return the noisy one of the script, or of this run without one."""
    heard, scripted = tape.questions[-1], tape.scripted
    if isinstance(tape.absent, Pull) and tape.drawn:
        exact = copy_answer(exact)
        exact.reshape(-1)[0] += question.room(exact)
    heard.exact, heard.value = read(exact, question.spacing), copy_answer(exact)
    heard.sensitivity = question.room(exact)
    said = exact if scripted is None or scripted.value is None else copy_answer(scripted.value)
    return original(question, said, tape.source(1, noise))


def _record_contribution(original: Any, tape: Tape, local: Any, question: Any, rows: Any) -> Any:
    """Write down a party's integers and the sensitivity its noise is for; return those of the script."""
    found, heard, scripted = original(local, question, rows), tape.questions[-1], tape.scripted
    lattice, multiplier = found.lattice, question.release.mechanism.multiplier
    heard.value = [*(heard.value or ()), found]
    heard.exact = read(sum(part.values for part in heard.value), lattice.spacing)
    heard.sensitivity = lattice.std * lattice.spacing / multiplier
    heard.facts = (*heard.facts, ("lattice", repr(lattice)))
    return found if scripted is None else scripted.value[len(heard.value) - 1]


def _record_draw(original: Any, tape: Tape, self: Any, population: int, position: int, noise: Any) -> Any:
    left_out, tape.batch = tape.batch, None
    found = original(self, population, position, tape.source(2, noise))
    if isinstance(self, Poisson | FixedSize) and found is not None and population == tape.population:
        if tape.forced is not None and tape.forced not in found:
            found = np.append(found[:-1] if isinstance(self, FixedSize) else found, tape.forced)
        tape.drawn = tape.absent is None or bool(np.isin(tape.absent.rows(population), found).any())
        if isinstance(self, Poisson) and self.rate < 1.0 and tape.questions:
            tape.questions[-1].batch = len(found)
    return found if left_out is None else _left(found, population, left_out)


def _record_share(original: Any, tape: Tape, self: Any, sizes: Any, position: int, noise: Any) -> Any:
    left_out, tape.batch = tape.batch, None
    shares = original(self, sizes, position, tape.source(2, noise))
    if left_out is None:
        return shares
    starts = np.cumsum([0, *sizes])
    return [Fewer(share, left_out - start) for share, start in zip(shares, starts, strict=False)]


@dataclass(frozen=True, eq=False)
class Fewer:
    """One part's rows of a batch, without some."""

    share: Any
    gone: Any

    def rows(self, count: int) -> Any:
        return _left(self.share.rows(count), count, self.gone)


def _left(found: Any, count: int, gone: Any) -> Any:
    """Return the rows that were drawn, all where that is None, without those that are gone."""
    rows = np.arange(count) if found is None else found
    return rows[~np.isin(rows, gone)]


_HEARD: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (Curator, "__init__", lambda original, tape, self, executor, plan, *rest, **known: original(
        self, Listener(tape, executor, plan), plan, *rest, **known)),
    (Curator, "release", _record_release),
    (curator, "answer", _record_answer),
    (planned.Question, "privatised", _record_noise),
    (parties, "_quantise", _record_contribution),
    (Ask, "open_ledger", lambda original, tape, ask: None),
    *((sampling, "draw", _record_draw) for sampling in _SAMPLINGS),
    *((sampling, "shares", _record_share) for sampling in _SAMPLINGS),
)  # fmt: skip
"""The calls of the kernel that a tape listens to, and what is called in their place."""


# ------------- Exact answers as vectors whose distance a sensitivity bounds, whatever kind of answer it is


def read(value: Any, spacing: float | None = None) -> list[Reading]:
    """Return the vectors of an exact answer; ``spacing`` is that of a lattice of integers."""
    if isinstance(value, Tilted):  # an objective: the sensitivity bounds its gradient, wherever it is taken
        points = [np.zeros(value.size), np.ones(value.size), np.linspace(-3.0, 2.0, value.size)]
        inner = value.minimiser
        return [inner.population * inner._gradient(value.records, t, value.at) for t in points]
    if isinstance(value, SparseVector):
        return [np.asarray(value.to_dense())]
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return [{(i, text): float(count) for i, part in enumerate(value) for text, count in part.items()}]
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise AuditError(f"No way to read an exact answer of type {type(value).__name__}.")
    return [array.astype(float).ravel() * (1.0 if spacing is None else spacing)]


def copy_answer(value: Any) -> Any:
    """Return a copy of an exact answer that no later change of the original reaches."""
    if hasattr(value, "clone"):
        return value.clone()
    return value if isinstance(value, Tilted) else copy.deepcopy(value)


def distance(one: list[Reading], other: list[Reading], norm: Norm) -> float:
    """Return how far two exact answers are apart; infinite where their shapes differ."""
    if len(one) != len(other):
        return np.inf
    return max((_distance(a, b, norm) for a, b in zip(one, other, strict=True)), default=0.0)


def _distance(one: Reading, other: Reading, norm: Norm) -> float:
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted({**one, **other})
        one, other = (np.array([part.get(name, 0.0) for name in names]) for part in (one, other))
    a, b = np.asarray(one), np.asarray(other)
    if a.shape != b.shape:
        return np.inf
    away = a - b
    if not np.isfinite(away).all():
        return np.inf
    order = {Norm.L1: 1, Norm.L2: 2, Norm.LINF: np.inf}[norm]
    return float(np.linalg.norm(away, order)) if away.size else 0.0


# ---------------- Data without one of their units: it is not there, or all of its records are not numbers
# Executors that are not listed are asked for batches that leave the unit out.


def without(executor: Any, absent: Absent) -> Any:
    """Return an executor to which the unit contributes nothing; None for one that only has batches."""
    if isinstance(executor, GroupedExecutor | SharedExecutor):
        if executor.groups is not None and absent.owners is None:
            raise AuditError("The fit protects persons. Pass groups=, the owner of each record.")
        return replace(executor, local=_rows(executor.local, absent.rows(executor.local.population)))
    make = ABSENT.get(type(executor))
    return None if make is None else make(executor, absent.rows(executor.population))


def _rows(executor: LocalExecutor, rows: Any) -> LocalExecutor:
    matrix = executor.matrix
    facts = (executor.targets, executor.data_norm, executor.intercept, executor.weights)
    if not sparse.issparse(matrix):
        gone = np.array(matrix, dtype=float)
        gone[rows] = np.nan
        return LocalExecutor(gone, *facts)
    keep = np.ones(matrix.shape[0])
    keep[rows] = 0.0
    nothing = np.full(np.size(rows), np.nan), (np.ravel(rows), np.zeros(np.size(rows), int))
    mark = sparse.csr_matrix(nothing, shape=matrix.shape)
    return LocalExecutor(sparse.csr_matrix(sparse.diags(keep) @ matrix + mark), *facts)


def _value(executor: ValueExecutor, rows: Any) -> ValueExecutor:
    keep = ~np.isin(np.arange(executor.population), rows)
    numbers = tuple(np.where(keep, column, np.nan) for column in executor.number_columns)
    texts = tuple((np.where(keep, codes, -1), words) for codes, words in executor.text_columns)
    return ValueExecutor(executor.population, numbers, texts)


def _parties(executor: SimulatedParties, rows: Any) -> SimulatedParties:
    """Return members of whom one has lost a record; the numbers of their records are public and stay."""
    members, start = [], 0
    for member in executor.members:
        gone = rows[(rows >= start) & (rows < start + member.population)] - start
        members.append(_rows(member, gone) if gone.size else member)
        start += member.population
    return SimulatedParties(members, executor.share)


class _Stream(StreamExecutor):
    """Loses one record of the chunk it is in: that of a number, counted over all chunks."""

    def __init__(self, inner: StreamExecutor, rows: Any) -> None:
        self._inner, self._row, self._past, self._seen = inner, int(rows[0]), 0, -1
        self.population = inner.population

    def total(self, *asked: Any) -> Any:
        inner = self._inner
        if inner._number != self._seen and inner._chunk is not None:
            self._seen, chunk = inner._number, inner._chunk
            if self._past <= self._row < self._past + chunk.population:
                inner._chunk = _rows(chunk, self._row - self._past)
            self._past += chunk.population
        return inner.total(*asked)


ABSENT: dict[type, Callable[[Any, Any], Any]] = {
    LocalExecutor: _rows,
    ValueExecutor: _value,
    StreamExecutor: _Stream,
    SimulatedParties: _parties,
}


# --------------- What a replay may not show: anything but exact answers that are at most a sensitivity apart

# The rounding of sums of few dozen bounded doubles and of the norm of their difference, in sensitivities.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Neighbour:
    """A data set that differs in one unit: other data, or the same without a unit that is ``absent``.

    Answers may move by ``steps`` sensitivities: two where a unit is replaced and the relation is
    add-remove, for one leaves and another comes.
    """

    name: str
    run: Callable[[], Any]
    absent: Absent | None = None
    steps: int = 1


@dataclass(frozen=True)
class Leak:
    """A way in which two neighbours are told apart."""

    kind: str
    neighbour: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.neighbour}): {self.what}"


@dataclass(frozen=True)
class Verdict:
    """The recording, what gave neighbours away, and how near a sensitivity their answers came."""

    recording: Recording
    leaks: list[Leak]
    nearest: dict[str, float]


def compare_neighbour(
    verdict: Verdict, neighbour: Neighbour, rounding: float = ROUNDING, forced: int | None = None
) -> Recording:
    """Replay the recording of a verdict on one neighbour, and add to the verdict what tells the two apart."""
    recorded, most = verdict.recording, neighbour.steps * (1.0 + rounding)
    replayed = play(neighbour.run, recorded, neighbour.absent, forced=forced)
    verdict.leaks.extend(
        Leak(kind, neighbour.name, what) for kind, what in _differences(recorded, replayed, most)
    )
    for ours, theirs in zip(recorded.questions, replayed.questions, strict=False):
        near = share(ours, theirs) / max(neighbour.steps, 1)
        verdict.nearest[ours.name] = max(verdict.nearest.get(ours.name, 0.0), near)
    return replayed


def compare_others(
    recorded: Recording, left: Recording, again: Callable[..., Recording], gone: Absent, rounding: float
) -> Iterable[str]:
    """Yield where others count otherwise because of a unit that is left out.

    It leaves the recorded data set, and ``again`` one that differs in this unit alone: the same records are
    left, whatever a program did to them before it asked. Where a program has moved records about, another
    unit leaves both, and what that one adds is the same.
    """
    there = again(gone, forced=gone.unit)
    yield from (f"{kind}: {what}" for kind, what in _differences(left, there, float("inf")))
    pairs = [*zip(left.questions, there.questions, strict=False)]
    apart = [number for number, pair in enumerate(pairs) if not share(*pair) <= rounding]
    other = again(forced=gone.unit) if apart else there
    for number in apart:
        ours, theirs = pairs[number]
        added = [_added(one.questions[number:], side) for one, side in ((recorded, ours), (other, theirs))]
        if not distance(added[0], added[1], ours.norm) <= 4 * rounding * ours.sensitivity:
            yield f"what others add to {ours.name} depends on one unit"


def _added(asked: list[Heard], left: Heard) -> list[Any]:
    """Return what the unit that left had added to a sum; nan where no number tells."""
    known = asked and asked[0].vector.shape == left.vector.shape and left.vector.dtype != object
    return [asked[0].vector - left.vector if known else np.array([np.nan])]


def _differences(recorded: Recording, replayed: Recording, most: float) -> Iterable[tuple[str, str]]:
    if recorded.error != replayed.error:
        yield "error", f"{_class(recorded.error)} became {_class(replayed.error)}, or other words of it"
    if recorded.words != replayed.words:
        counts = f"{len(recorded.words)} and {len(replayed.words)} lines"
        yield "words", f"what is printed or warned of differs: {counts}"
    plans = [
        [facts_of((sorted(p.releases), p.relation, p.population, p.unit)) for p in one.plans]
        for one in (recorded, replayed)
    ]
    if plans[0] != plans[1]:
        yield "plans", f"{len(recorded.plans)} plans and {len(replayed.plans)}, or not the same ones"
    names = [[question.name for question in one.questions] for one in (recorded, replayed)]
    if names[0] != names[1]:
        yield "questions", f"{names[0]} became {names[1]}"
    for ours, theirs in zip(recorded.questions, replayed.questions, strict=False):
        yield from _differences_of_one(ours, theirs, most)
    if (away := first_difference(recorded.state, replayed.state)) is not None:
        yield "state", f"differs at {_place(away)}"


def _differences_of_one(ours: Heard, theirs: Heard, most: float) -> Iterable[tuple[str, str]]:
    for kind, name in (("questions", "facts"), ("parameters", "params"), ("answers", "answer")):
        if (away := first_difference(getattr(ours, name), getattr(theirs, name))) is not None:
            yield kind, f"{ours.name} differs at {_place(away)}"
    if ours.exact is None or theirs.exact is None:
        yield "exact answer", f"that of {ours.name} passed no mechanism"
    elif not share(ours, theirs) <= most:
        yield "sensitivity", f"{ours.name} moved by {share(ours, theirs):.6g} of its sensitivity"


def share(ours: Heard, theirs: Heard) -> float:
    """Return how far the exact answers are apart, in sensitivities."""
    moved = distance(ours.exact or [], theirs.exact or [], ours.norm)
    if ours.sensitivity == 0:
        return 0.0 if moved == 0 else float("inf")
    return moved / ours.sensitivity


def _place(path: str) -> str:
    """Return the first attribute of a path: names further down may be values of a record."""
    return path.lstrip(".").partition(".")[0]


def _class(error: str | None) -> str:
    """Return the class of an error: its words may quote a record."""
    return "no error" if error is None else error.partition(":")[0]
