"""The budget of a data set before and after a run, replayed from the ledger."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from sordino.errors import SordinoError
from sordino.ledger import Entry, Ledger
from sordino.ledger.account import Account, FilterMode
from sordino.ledger.records import encode_event
from sordino.ledger.spending import remaining_of, spent_of
from sordino.runs import PrivacyReport


@dataclass(frozen=True)
class Step:
    """An account after a reservation: the part that is spent, and what one more plan may cost."""

    entry: Entry | None
    person: str
    fraction: float
    epsilon_left: float

    @property
    def share(self) -> float:
        """The part that is spent, within [0, 1]."""
        return min(max(self.fraction, 0.0), 1.0)


@dataclass(frozen=True)
class History:
    """All of a data set's account; in basic mode (``adds_up``) the ledger adds certificates plainly."""

    dataset_id: str
    epsilon: float
    delta: float
    unit: str
    relation: str
    adds_up: bool
    steps: tuple[Step, ...]

    @classmethod
    def read(cls, ledger: Ledger, dataset_id: str) -> History:
        """Replay the reservations of a data set."""
        policy, people = ledger.policy(dataset_id), ledger.people(dataset_id)
        account = Account.opened(policy)
        steps = [_step(None, "", account)]
        for entry in ledger.history(dataset_id):
            account = account.book(entry.charge)
            steps.append(_step(entry, people.get(entry.sequence, ""), account))
        facts = (policy.epsilon, policy.delta, policy.unit, policy.relation.value)
        return cls(dataset_id, *facts, account.mode is FilterMode.BASIC, tuple(steps))

    def booked(self, report: PrivacyReport) -> list[int]:
        """Return the numbers of the reservations for just these events."""
        line = encode_event(report.event)
        return [s.entry.sequence for s in self.steps if s.entry and s.entry.event_json == line]


@dataclass(frozen=True)
class Booking:
    """The account just before and just after the last of the reservations that are alike, and now."""

    history: History
    before: Step
    after: Step
    now: Step
    alike: int


def booking_of(report: PrivacyReport, ledger: Any, dataset_id: str | None) -> Booking | str:
    """Return the booking of a run, or why there is none to show."""
    if ledger is None or dataset_id is None:
        return "This run was not booked on a ledger: nobody has counted what else was released."
    try:
        book = Ledger.open(ledger, create=False) if isinstance(ledger, (str, os.PathLike)) else ledger
        history = History.read(book, dataset_id)
    except SordinoError as error:
        return f"The ledger could not be read ({type(error).__name__})."
    numbers = history.booked(report)
    if not numbers:
        return f"The ledger has no reservation of {dataset_id!r} for just these releases."
    before, after = history.steps[numbers[-1] - 1 : numbers[-1] + 1]
    return Booking(history, before, after, history.steps[-1], len(numbers))


def _step(entry: Entry | None, person: str, account: Account) -> Step:
    return Step(entry, person, spent_of(account).fraction, remaining_of(account).epsilon)
