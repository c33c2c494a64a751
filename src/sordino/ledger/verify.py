"""Replay of a history: nothing stored is believed but the policy and the events.

The filter is derived from the policy again, the costs and certificates from the events, and the running
sums from the costs, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from sordino.errors import BudgetExceededError, InvalidInputError, UnsupportedError
from sordino.ledger.account import Account
from sordino.ledger.charge import charge_of, check_certificate
from sordino.ledger.records import Dataset, Entry, Status, damaged, require_own_filter

CLOSE = 1e-9  # a new version of an accountant may round differently


@dataclass(frozen=True)
class Verification:
    """What was checked, and the largest relative difference of a cost from its recomputation."""

    datasets: int
    reservations: int
    difference: float


def verified(records: Sequence[tuple[Dataset, Sequence[Entry]]]) -> Verification:
    """Check data sets against their histories; raise ``LedgerCorruptError`` at the first fault."""
    differences = [_checked(dataset, entries) for dataset, entries in records]
    count = sum(len(entries) for _, entries in records)
    return Verification(len(records), count, max(differences, default=0.0))


def replayed(account: Account, entries: Sequence[Entry]) -> Account:
    """Return the account that a history gives, booked step by step on an empty one."""

    def booked(state: Account, entry: Entry) -> Account:
        return state.skip(entry.charge) if entry.status is Status.RETURNED else state.book(entry.charge)

    return reduce(booked, entries, Account(account.policy, account.filter))


def _checked(dataset: Dataset, entries: Sequence[Entry]) -> float:
    account, label = require_own_filter(dataset).account, f"data set {dataset.dataset_id!r}"
    if [entry.sequence for entry in entries] != list(range(1, account.count + 1)):
        raise damaged(f"{label} counts {account.count} reservations, its history differs")
    if any(entry.dataset_id != dataset.dataset_id for entry in entries):
        raise damaged(f"{label} holds the history of another data set")
    try:
        again = replayed(account, entries)
    except (BudgetExceededError, ValueError) as error:
        raise damaged(f"the history of {label} exceeds its budget") from error
    if again != account:
        raise damaged(f"the sums of {label} are not those of its history")
    return max((_difference(account, entry) for entry in entries), default=0.0)


def _difference(account: Account, entry: Entry) -> float:
    """Return how far the stored cost of an entry is from the cost of its event now."""
    certificate = entry.charge.epsilon, entry.charge.delta
    relation, orders = account.policy.relation, account.filter.orders
    again = charge_of(entry.event, relation, orders, certificate)
    pairs = zip(entry.charge.renyi, again.renyi, strict=True)
    largest = max(_apart(stored, new) for stored, new in pairs)
    if largest > CLOSE:
        raise damaged(f"reservation {entry.sequence} does not cost what its event costs")
    _check_certificate(account, entry)
    return largest


def _check_certificate(account: Account, entry: Entry) -> None:
    try:
        check_certificate(entry.event, account.policy.relation, entry.charge)
    except (InvalidInputError, UnsupportedError) as error:
        raise damaged(f"reservation {entry.sequence} claims less than its event costs") from error


def _apart(stored: float, new: float) -> float:
    if stored == new:
        return 0.0
    if math.isinf(stored) or math.isinf(new):
        return math.inf
    return abs(stored - new) / max(stored, new)
