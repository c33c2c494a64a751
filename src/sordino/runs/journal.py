"""Runs that outlive their process: what is spent is on disk before it is released.

A :class:`Journal` gets one line *before* each release. :class:`SavedRun` is what a checkpoint keeps about the
promise. Neither is believed: :func:`resumed` certifies the noise again, against what is asked now.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sordino.accounting import canonical
from sordino.errors import PlanError
from sordino.kernel import Plan
from sordino.ledger import Reservation
from sordino.runs.promise import Ask, Promise, Run, at_multipliers, digest_of


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


def latest(counts: Mapping[str, int], saved: Mapping[str, int]) -> dict[str, int]:
    """Return the larger of two counts of each release."""
    return {name: max(counts.get(name, 0), saved.get(name, 0)) for name in {*counts, *saved}}
