"""The rows of a ledger as values: reservations, data sets, and the seal that shows damage."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from dp_accounting import dp_event as dp

from sordino.accounting.trees import canonical, decode
from sordino.errors import LedgerCorruptError, SordinoError
from sordino.kernel.events import Relation
from sordino.ledger.account import Account, Charge, FilterMode
from sordino.ledger.policy import BudgetPolicy, RenyiFilter, name, text


class Status(str, Enum):
    """What became of a reservation. All of them count as spent, but for one that was never used."""

    RESERVED = "reserved"
    SETTLED = "settled"
    FAILED = "failed"
    CRASHED = "crashed"
    RETURNED = "returned"

    @property
    def is_final(self) -> bool:
        """Whether nothing can go on under the reservation."""
        return self in (Status.SETTLED, Status.FAILED, Status.RETURNED)


ENTRY_COLUMNS = (
    "dataset_id, sequence, status, event, charges, epsilon, delta, description, plan_digest, "
    "reason, reserved_at, finished_at"
)
DATASET_COLUMNS = (
    "dataset_id, epsilon, delta, relation, unit, orders, shares, mode, reservations, spent_renyi, "
    "spent_epsilon, spent_delta, created_at"
)
UNREADABLE = (SordinoError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError)
"""What a reader of rows meets in a file that somebody else wrote."""


@dataclass(frozen=True)
class Entry:
    """One reservation in the history of a data set; ``sequence`` counts from one."""

    dataset_id: str
    sequence: int
    status: Status
    event_json: str
    charge: Charge
    description: str
    plan_digest: str
    reason: str
    reserved_at: str
    finished_at: str

    @property
    def event(self) -> dp.DpEvent:
        """The privacy event, decoded from an allow-list of classes."""
        return decode_event(self.event_json)

    @property
    def epsilon(self) -> float:
        """The certified epsilon of this reservation alone."""
        return self.charge.epsilon

    @property
    def delta(self) -> float:
        """The delta that goes with ``epsilon``."""
        return self.charge.delta

    @property
    def row(self) -> list[object]:
        """The values of ``ENTRY_COLUMNS``."""
        charge, words = self.charge, (self.description, self.plan_digest, self.reason)
        row: list[object] = [self.dataset_id, self.sequence, self.status.value, self.event_json]
        row += [dump(charge.renyi), charge.epsilon, charge.delta, *words]
        return [*row, self.reserved_at, self.finished_at]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Entry:
        """Build an entry from ``ENTRY_COLUMNS``, or say that the row is damaged."""
        try:
            dataset_id, sequence, status, event, renyi, epsilon, delta, *texts = row
            charge = Charge(load(renyi), float(epsilon), float(delta))
            words = [text(one, "a text") for one in texts]
            return cls(_name(dataset_id), _whole(sequence), Status(status), str(event), charge, *words)
        except UNREADABLE as error:
            raise damage_error("a reservation cannot be read") from error


@dataclass(frozen=True)
class Dataset:
    """A data set: its budget and the running state of the filter."""

    dataset_id: str
    account: Account
    created_at: str

    @property
    def row(self) -> list[object]:
        """The values of ``DATASET_COLUMNS``."""
        account, policy = self.account, self.account.policy
        row: list[object] = [self.dataset_id, policy.epsilon, policy.delta, policy.relation.value]
        row += [policy.unit, dump(account.filter.orders), dump(account.filter.deltas)]
        row += [account.mode.value, account.count, dump(account.renyi)]
        return [*row, str(account.epsilon), str(account.delta), self.created_at]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Dataset:
        """Build a data set from ``DATASET_COLUMNS``, or say that the row is damaged."""
        try:
            dataset_id, epsilon, delta, relation, unit, orders, shares, mode, count, renyi, *rest = row
            policy = BudgetPolicy(float(epsilon), float(delta), Relation(relation), unit)
            total_epsilon, total_delta, created = rest
            chosen, sums = RenyiFilter(load(orders), load(shares)), map(Decimal, (total_epsilon, total_delta))
            account = Account(policy, chosen, FilterMode(mode), _whole(count), load(renyi), *sums)
            return cls(_name(dataset_id), account, text(created, "a time"))
        except UNREADABLE as error:
            raise damage_error("the account of a data set cannot be read") from error

    def require_own_filter(self) -> Dataset:
        """Return this, if its stored filter is the one of its policy; another one was never proven."""
        if not self.account.filter.belongs_to(self.account.policy):
            raise damage_error(f"the filter of data set {self.dataset_id!r} is not the one of its budget")
        return self


def _name(value: object) -> str:
    """Return a name as the ledger would have written it; another spelling would be a second budget."""
    if name(value, "dataset_id") != value:
        raise damage_error("a data set has a name that is not in its normal form")
    return str(value)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise damage_error("a count is not a whole number")
    return value


def seal(values: Sequence[object]) -> str:
    """Return a digest of a row. It shows accidents, not forgery: there is no key."""
    line = json.dumps(list(values), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(line.encode("ascii")).hexdigest()


def check_seal(row: Sequence[object]) -> Sequence[object]:
    """Return a row without the seal at its end, or refuse one whose content is not what was written."""
    if seal(row[:-1]) != row[-1]:
        raise damage_error("a row does not match its seal")
    return row[:-1]


def damage_error(what: str) -> LedgerCorruptError:
    """Return the error for a damaged ledger."""
    return LedgerCorruptError(
        f"The ledger is damaged: {what}. Nothing was written. Restore it from a backup, and book "
        "what was released since then."
    )


def encode_event(event: dp.DpEvent) -> str:
    """Return an event as canonical JSON that :func:`decode_event` will read."""
    line = canonical(event)
    decode(json.loads(line))  # it refuses trees that are too large; better now than when spent
    return line


def decode_event(line: str) -> dp.DpEvent:
    """Return the event of a JSON text; only classes from the allow-list are built."""
    try:
        return decode(json.loads(line))
    except UNREADABLE as error:
        raise damage_error("an event cannot be decoded") from error


def dump(values: Sequence[float]) -> str:
    """Return numbers as JSON, infinity as a string: strict JSON has none."""
    return json.dumps([jsonable(value) for value in values], separators=(",", ":"))


def load(line: str) -> tuple[float, ...]:
    """Return the numbers of ``dump``."""
    return tuple(float(value) for value in json.loads(line))


def jsonable(value: Any) -> Any:
    """Return a value that strict JSON can hold; infinity becomes a text."""
    return "inf" if value == math.inf else value
