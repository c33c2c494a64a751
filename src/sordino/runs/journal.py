"""Runs that outlive their process: what is spent is on disk before it is released.

A :class:`Journal` gets one line *before* each release. :class:`SavedRun` is what a checkpoint keeps about the
promise. Neither is believed: :func:`resumed` certifies the noise again, against what is asked now.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from sordino.accounting import canonical
from sordino.errors import PlanError, PlanSpentError
from sordino.execute.local import LocalExecutor, StreamExecutor
from sordino.kernel import Curator, Executor, NoisyExecutor, Plan, check_offer
from sordino.ledger import Reservation
from sordino.runs.promise import Ask, Promise, Run, at_multipliers, digest_of
from sordino.runs.report import PrivacyReport


class Journal:
    """Counts releases on disk; only one process may hold it.

    The lock is on the file and not on its name. So before each release the file must still be the one that is
    found under the name: else another process may hold what was put in its place.

    Parameters
    ----------
    path : the file; made, readable by its owner alone, if there is none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._file = os.fdopen(handle, "a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise PlanError(
                f"Another process is at work with the journal {path.name!r}. Wait for it."
            ) from None
        self._file.seek(0)
        # A line without its end was cut off by a crash, before what it says was released.
        self._file.truncate(self._file.read().rfind(b"\n") + 1)

    def begin(self, digest: str) -> None:
        """Write whose releases are counted here; once, at the start of a run."""
        self.append(f"# {digest}")

    def require(self, digest: str) -> None:
        """Refuse a journal that was begun for another plan."""
        if self.lines()[:1] != [f"# {digest}"]:
            raise PlanError("The journal belongs to another plan: what it counts is not what was paid for.")

    def counts(self) -> dict[str, int]:
        """Return the highest count of each release."""
        found: dict[str, int] = {}
        for line in self.lines():
            name, _, count = line.rpartition(" ")
            if count.isdigit():
                found[name] = max(found.get(name, 0), int(count))
        return found

    def note(self, name: str, count: int) -> None:
        """Write that release ``name`` is about to be asked for the ``count``-th time."""
        self.append(f"{name} {count}")

    def close(self) -> None:
        """Give up the file and its lock."""
        self._file.close()

    def lines(self) -> list[str]:
        """Return the lines."""
        self._file.seek(0)
        return self._file.read().decode("utf-8").split("\n")[:-1]

    def append(self, line: str) -> None:
        """Write a line; it is on disk when this returns."""
        try:
            here = os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            here = False
        if not here:
            raise PlanError(
                f"{self._path.name!r} was removed or replaced while this run was at work: another one may "
                "count there what this one releases. Put it back, or start a new run."
            )
        self._file.write(f"{line}\n".encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def clear(self) -> None:
        """Begin anew: what was counted belongs to a run that has ended."""
        self._file.truncate(0)
        os.fsync(self._file.fileno())


def replace_durably(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace a file as a whole, readable by its owner alone, on disk when this returns."""
    draft = path.with_name(f"{path.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)  # a draft may have been there before
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too
    finally:
        os.close(folder)


@dataclass(frozen=True)
class SavedRun:
    """What a file holds about a run that is to be resumed; public numbers only.

    Parameters
    ----------
    recipe : words for everything that decides what is asked.
    multipliers : the noise of each release.
    digest : of the plan's event.
    place : where it is booked: the data set and the sequence number.
    seeded : the noise so far can be reproduced.
    turn : how often the run went on in another process; the ledger counts too, so that a copy is refused.
    """

    recipe: str
    multipliers: dict[str, float]
    digest: str
    place: tuple[str, int] | None
    seeded: bool
    turn: int = 0

    @classmethod
    def of(cls, run: Run, recipe: str) -> SavedRun:
        """Return what to save about an open run."""
        promise = run.promise
        seeded = not promise.noise.is_private
        return cls(recipe, promise.multipliers, promise.digest, run.place, seeded, run.turn)


def resumed(ask: Ask, plan: Plan, saved: SavedRun, recipe: str, *, slack: float = 0.0) -> Run:
    """Go on with a saved run: the same plan, noise level, ledger and data set, or a refusal.

    ``slack`` is the part of delta that pays for something else than the plan's events.

    The noise that the file states is certified now: above what is asked it is refused, and so is noise for
    another epsilon, because then what was released before is not what the file says. On a ledger each turn is
    taken once: a copy of the files that was resumed elsewhere is too late. Save the run before its first
    release: a crash before that loses the run, never a release.
    """
    if saved.recipe != recipe:
        raise PlanError("The saved run belongs to another recipe. Resume it with its own settings.")
    plan = at_multipliers(plan, saved.multipliers)
    if saved.digest != digest_of(plan):
        raise PlanError(
            "The saved run belongs to another plan: the number of records or the relation differ."
        )
    promise = Promise.given(ask, plan, slack=slack)
    if math.isfinite(ask.epsilon) and not promise.certificate.epsilon > 0.99 * ask.epsilon:
        raise PlanError(
            f"The saved run certifies epsilon = {promise.certificate.epsilon:.4g}, asked for is "
            f"{ask.epsilon:g}. Resume it with the epsilon and delta it was started with."
        )
    if saved.seeded != (not promise.noise.is_private):
        raise PlanError("The saved run was begun with another kind of noise. Start a new run.")
    return Run(promise, _reopen(ask, promise, saved), resumable=True, turn=saved.turn + 1)


def _reopen(ask: Ask, promise: Promise, saved: SavedRun) -> Reservation | None:
    """Take the next turn of a saved run, on the ledger and the data set that are asked for now."""
    ledger, place = ask.open_ledger(), saved.place
    if place is None and ledger is None:
        return None
    if place is None or ledger is None:
        where = "no ledger" if place is None else "a ledger"
        raise PlanError(f"The saved run was booked on {where}. Resume it with the ledger it began with.")
    dataset_id, sequence = place
    if dataset_id != ask.dataset_id:
        raise PlanError(
            f"The saved run was booked on the data set {dataset_id!r}, not on {ask.dataset_id!r}: what it "
            "would release now was not paid for there. Start a new run."
        )
    entry = next((e for e in ledger.history(dataset_id) if e.sequence == sequence), None)
    if entry is None or entry.event_json != canonical(promise.plan.event()):
        raise PlanError("The ledger has no reservation for the saved run. Pass its own ledger.")
    if entry.status.is_final:
        raise PlanError(f"The reservation of the saved run is {entry.status.value}. It cannot be resumed.")
    ledger.take_turn(dataset_id, sequence, saved.turn)
    return Reservation(ledger, entry)


# ------------ One promise over the rounds of a federation, on disk: what was paid, and which rounds are spent
# A client's process may end between two rounds, and usually does: Flower starts a new one for each message.
# So the run and the number of rounds that were begun live in a folder. A round is written down *before* its
# first release: after a crash it counts as spent, whatever of it was released.

FORMAT = 3
_CLOSED = "closed"


class Recipe(Protocol):
    """What the parties of a federation have agreed on."""

    @property
    def digest(self) -> str:
        """A hash of everything that decides what is asked."""

    @property
    def rounds(self) -> int:
        """The number of rounds that are paid for."""


@dataclass(frozen=True, eq=False)
class Turn:
    """A round that was written down and may now be computed, once."""

    report: PrivacyReport
    attempt: int
    _run: Run

    def curate(self, executor: Executor | NoisyExecutor, per_round: int) -> Curator:
        """Open the curator at this round's place; each release is asked ``per_round`` times a round."""
        plan = self._run.promise.plan
        used = dict.fromkeys(plan.releases, self.attempt * per_round)
        return self._run.curate(executor, used=used)


class RoundBook:
    """The rounds of one client.

    Parameters
    ----------
    folder : a folder of this client alone. It holds one run; with a ledger it may hold one after the other,
        because the ledger bounds them together.
    ask : what the run may spend, and the client's own ledger.
    recipe, plan : what was agreed on, and what it asks of this client's records in all rounds together.
    public, notes, description : words for the report and the ledger.
    slack : the part of delta that pays for something else than the plan's events.

    **Privacy.** The whole plan is reserved before the first round. Losing the folder loses no privacy: a run
    that is not in it is planned and reserved anew, and noise never comes from the folder. A copy of
    it is refused once the other one has gone on, if there is a ledger; without one nobody can tell.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        ask: Ask,
        recipe: Recipe,
        plan: Plan,
        *,
        public: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
        description: str = "federated run",
        slack: float = 0.0,
    ) -> None:
        self.folder, self.ask, self.recipe, self.plan = Path(folder), ask, recipe, plan
        self.public, self.notes, self.description, self.slack = public, notes, description, slack

    @contextmanager
    def turn(self, run: str) -> Iterator[Turn]:
        """Write down the next round and hand it out; at the end of the last one the ledger is settled."""
        with self._open() as journal:
            saved = self._text()
            if saved.get("run") != run:
                saved = self._begin(journal, saved.get("run"), run)
            attempt = self._next(journal.lines())
            opened = self._resume_run(saved)
            self._save(run, opened)  # the turn is taken: a copy of the folder is too late from here on
            journal.append(str(attempt + 1))
            with opened:  # resumable: an error leaves it reserved, and this round spent
                yield Turn(opened.promise.report(self.public, self.notes), attempt, opened)
                if attempt + 1 < self.recipe.rounds:
                    opened.pause()

    def close(self, run: str) -> None:
        """End the run early: no more rounds, and the ledger is settled. What was reserved stays spent."""
        if not self.folder.exists():
            return
        with self._open() as journal:
            saved, lines = self._text(), journal.lines()
            if saved.get("run") == run and _CLOSED not in lines and _last_begun(lines) < self.recipe.rounds:
                journal.append(_CLOSED)
                self._resume_run(saved).settle()

    @property
    def rounds_begun(self) -> int:
        """How many rounds of the run in the folder are spent."""
        path = self.folder / "rounds"
        return _last_begun(path.read_text("utf-8").split("\n")[:-1]) if path.exists() else 0

    def _begin(self, journal: Journal, old: str | None, run: str) -> dict[str, Any]:
        if old is not None and self.ask.ledger is None:
            raise PlanError(
                f"The folder {self.folder.name!r} belongs to another run, and without a ledger nothing "
                "bounds their sum. Pass a ledger, or decide for a new run with a new folder."
            )
        promise = Promise.made(self.ask, self.plan, slack=self.slack)
        booked = promise.reserved(f"{self.description} {run}")
        saved = self._save(run, booked)
        journal.clear()  # after the run is saved: a crash between both costs it rounds, and gives none back
        booked.pause()
        return saved

    def _next(self, lines: list[str]) -> int:
        if _CLOSED in lines:
            raise PlanSpentError("The run was closed on this client. Start a new run.")
        if _last_begun(lines) >= self.recipe.rounds:
            raise PlanSpentError(
                f"This client has paid for {self.recipe.rounds} rounds and all of them are spent. For more, "
                "agree on a recipe with more rounds and start a new run."
            )
        return _last_begun(lines)

    def _resume_run(self, data: dict[str, Any]) -> Run:
        kept = {one.name: data[one.name] for one in fields(SavedRun)}
        saved = SavedRun(**{**kept, "place": data["place"] and tuple(data["place"])})
        return resumed(self.ask, self.plan, saved, self.recipe.digest, slack=self.slack)

    @contextmanager
    def _open(self) -> Iterator[Journal]:
        """Open the journal of the folder, which holds the lock of this client."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (self.folder / "run.json").exists() and not (self.folder / "rounds").exists():
            raise PlanError("The folder has a run but no journal: nobody knows which rounds are spent.")
        with closing(Journal(self.folder / "rounds")) as journal:
            yield journal

    def _text(self) -> dict[str, Any]:
        """Return what is saved of the run in the folder; nothing where there is none."""
        if not (self.folder / "run.json").exists():
            return {}
        data = json.loads((self.folder / "run.json").read_text("utf-8"))
        if data.get("format") != FORMAT:
            raise PlanError(f"Expected a folder of format {FORMAT}. Use the version that began the run.")
        return dict(data)

    def _save(self, run: str, opened: Run) -> dict[str, Any]:
        """Replace what is saved."""
        data = {"format": FORMAT, "run": run, **asdict(SavedRun.of(opened, self.recipe.digest))}
        replace_durably(self.folder / "run.json", lambda file: file.write(json.dumps(data).encode()))
        return data


def _last_begun(lines: list[str]) -> int:
    return max((int(line) for line in lines if line.isdigit()), default=0)


class Stream:
    """A plan whose release number t sees chunk number t, paid for as a whole when it is opened.

    Parameters
    ----------
    ask, plan : what is wanted, and what will be asked of all ``parts`` chunks together.
    parts : the number of chunks; those that never come are not refunded.
    public, description : words for the report and for the ledger.
    """

    def __init__(self, ask: Ask, plan: Plan, parts: int, public: tuple[str, ...], description: str) -> None:
        promise = Promise.made(ask, plan)
        facts = (*public, f"number of chunks: {parts}, no record in two of them")
        self.report: PrivacyReport = promise.report(facts)
        self._executor = StreamExecutor(promise.plan.population)
        check_offer(promise.plan, self._executor.offer)
        self._run = promise.reserved(description)
        self.curator: Curator = self._run.curate(self._executor)
        self._parts, self.chunks = parts, 0

    def feed(self, rows: Any, data_norm: float) -> Curator:
        """Take the next chunk and return the curator that may be asked about it."""
        if self.chunks >= self._parts:
            raise PlanSpentError(
                f"The stream was planned for {self._parts} chunks, all are spent. "
                "Set n_chunks higher and start again."
            )
        self._executor.feed(LocalExecutor(rows, None, data_norm))
        self.chunks += 1
        return self.curator

    def done(self) -> None:
        """Settle after the answers about the last chunk."""
        if self.chunks == self._parts:
            self._run.settle()
