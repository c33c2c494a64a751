"""The ledger: budgets on disk, reserved before the first release, never refunded."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

from dp_accounting import dp_event as dp

from sordino.accounting.calibration import Certificate, certify
from sordino.errors import (
    BudgetExceededError,
    DatasetExistsError,
    InvalidInputError,
    LedgerCorruptError,
    LedgerError,
    LedgerWarning,
    ReservationEndedError,
    RoleError,
    SordinoError,
    UnsupportedError,
)
from sordino.kernel.events import Relation, compose_events
from sordino.kernel.noise import public_generator
from sordino.ledger.account import Account, Charge, FilterMode, charge_of, check_certificate, pure_epsilon
from sordino.ledger.address import Address, hide, is_gone, is_mine, person, person_of, sign_owner
from sordino.ledger.policy import MOST_TEXT, BudgetPolicy, name, text
from sordino.ledger.postgres import PostgresStore
from sordino.ledger.sqlite import SQLiteStore
from sordino.ledger.store import (
    Dataset,
    Entry,
    Status,
    Store,
    damage_error,
    encode_event,
    from_json,
    seal,
    to_json,
)
from sordino.ledger.team import Terms, fingerprint, read_terms, use_approval, write_approval, write_terms
from sordino.values import at_least, check_number, html_table

# -------------------------------------- A reservation in the hands of whoever is about to release something


class Ending:
    """What is settled at the end of a ``with`` block, and fails on an error."""

    settle: Callable[[], None]
    fail: Callable[[str], None]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.settle()
        else:
            self.fail(kind.__name__)  # the message of an error may quote the data, its class not


@dataclass(frozen=True)
class Reservation(Ending):
    """Budget that is spent and may now be used, once.

    As a context manager it settles at the end of the block and fails on an error. Either way the
    budget stays spent: what was released cannot be taken back. It ends once, and in the process that
    made it: a copy in a fork or a pickle cannot say what became of the run. How it ended is a label: where
    the ledger is out of reach by then a warning says so, and what was released and paid for is not lost.
    """

    ledger: Ledger
    entry: Entry
    beside: tuple[Entry, ...] = ()
    process: int = field(default_factory=os.getpid, repr=False, compare=False)

    @property
    def dataset_id(self) -> str:
        """The data set it is booked on."""
        return self.entry.dataset_id

    @property
    def sequence(self) -> int:
        """Its place in the history, from one."""
        return self.entry.sequence

    def settle(self) -> None:
        """Write that everything planned was released."""
        self._end(Status.SETTLED)

    def fail(self, reason: str) -> None:
        """Write that the run failed. The reason must not contain anything from the data."""
        self._end(Status.FAILED, reason)

    def give_back(self, turn: int = 0) -> None:
        """Take it off the budget again: nothing was asked of a record under it, and nothing will be."""
        for entry in (self.entry, *self.beside):
            self.ledger.give_back(entry.dataset_id, entry.sequence, turn)

    def _end(self, status: Status, reason: str = "") -> None:
        if os.getpid() != self.process:
            raise ReservationEndedError(
                f"Reservation {self.sequence} of {self.dataset_id!r} belongs to another process, it cannot "
                f"become {status.value} here. End it where it was made; it stays spent in any case."
            )
        try:
            for entry in (self.entry, *self.beside):
                self.ledger.finish(entry.dataset_id, entry.sequence, status, reason)
        except ReservationEndedError:
            raise
        except LedgerError as error:
            warnings.warn(
                f"Reservation {self.sequence} of {self.dataset_id!r} is {status.value}, and the ledger could "
                f"not be told, so it stays spent there as it was booked. {error}",
                LedgerWarning,
                stacklevel=3,
            )


BOOKED: list[Entry] = []
"""What this process has reserved; of number 0 where it was stopped before the ledger had answered."""

# ---------------------------- Replay of a history: nothing stored is believed but the policy and the events
# The filter is derived from the policy again, the costs and certificates from the events, and the running
# sums from the costs, one after the other.

CLOSE = 1e-9  # a new version of an accountant may round differently
_NOTHING = encode_event(dp.NoOpDpEvent())


@dataclass(frozen=True)
class Verification:
    """What was checked, the largest relative difference of a cost from its recomputation, and receipts.

    A receipt is "name:reservations:head", the head of the chain of a history, and ":" with the numbers of
    those that are pending; keep it elsewhere.
    """

    datasets: int
    reservations: int
    difference: float
    receipts: tuple[str, ...] = ()


def verify_records(
    records: Sequence[tuple[Dataset, Sequence[Entry]]],
    receipts: Sequence[str] = (),
    signatures: Mapping[str, Mapping[int, str]] | None = None,
) -> Verification:
    """Check data sets against their histories and receipts; raise ``LedgerCorruptError`` at a fault."""
    differences = [_check_history(dataset, entries) for dataset, entries in records]
    histories = {
        dataset.dataset_id: (entries, chain_heads(entries, (signatures or {}).get(dataset.dataset_id, {})))
        for dataset, entries in records
    }
    for receipt in receipts:
        label, number, pending = check_receipt(receipt)
        entries, heads = histories.get(label, ([], []))
        if receipt != _receipt(label, entries[:number], heads[:number], pending):
            raise LedgerCorruptError(
                f"Data set {label!r} has no history with this receipt. Either it is one of another ledger: "
                "compare its name and where it was kept. Or a reservation was edited, deleted, moved "
                "or cut off since: then restore the ledger from a backup, and book what was released since. "
                "Nothing was written."
            )
    count = sum(entry.event_json != _NOTHING for _, entries in records for entry in entries)
    kept = [_receipt(label, entries, heads) for label, (entries, heads) in histories.items() if heads]
    return Verification(len(records), count, max(differences, default=0.0), tuple(kept))


def check_import(document: str) -> list[tuple[Dataset, list[Entry]]]:
    """Return the data sets of an export with their histories, all checked."""
    records = from_json(document)
    verify_records(records)
    return records


def check_receipt(receipt: str) -> tuple[str, int, list[int]]:
    """Return name and number of reservations of a receipt, and those then pending; refuse other texts."""
    found = re.fullmatch(
        r"(.+):([0-9]{1,18}):[0-9a-f]{64}(?::([0-9]{1,18}(?:,[0-9]{1,18})*))?", receipt, re.S
    )
    if found is None:
        raise InvalidInputError(
            "Expected a receipt, NAME:NUMBER:DIGEST as `sordino ledger verify` prints it (64 digits 0-9a-f), "
            f"got a text of {len(receipt)} characters."
        )
    return found[1], int(found[2]), [int(one) for one in (found[3] or "").split(",") if one]


def chain_heads(entries: Sequence[Entry], owners: Mapping[int, str] | None = None) -> list[str]:
    """Return the head of a hash chain after each reservation, over what never changes of it.

    ``owners`` say who booked each, from where, with which version and code; they are in the chain where all
    of this was written down.

    A seal without a key can be made anew by whoever edits a row, and so can this chain. But its head, kept
    elsewhere, is then another one: a kept head shows what was edited, deleted, moved or cut off before it.
    """
    heads = [""]
    for entry in entries:
        ended = replace(entry, status=Status.RESERVED, reason="", finished_at="")
        owner = (owners or {}).get(entry.sequence, "")
        signature = [owner] if owner.count("|") == 7 else []
        heads.append(seal([heads[-1], *ended.row, *signature]))
    return heads[1:]


def _receipt(
    label: str, entries: Sequence[Entry], heads: Sequence[str], pending: Sequence[int] | None = None
) -> str:
    """Return what to keep of a history: name, number of reservations, a digest, the pending ones.

    The digest is the head of the chain, sealed with the reservations that were given back.
    """
    if pending is None:
        pending = [entry.sequence for entry in entries if entry.status is Status.RESERVED]
    ended = (entry for entry in entries if entry.sequence not in pending)
    back = [entry.sequence for entry in ended if entry.status is Status.RETURNED]
    head = seal([*heads[-1:], *back]) if back else "".join(heads[-1:])
    return ":".join([label, str(len(heads)), head, *([",".join(map(str, pending))] if pending else [])])


def booked_for(event: dp.DpEvent, entries: Sequence[Entry], later: Sequence[int] = ()) -> list[int]:
    """Return the last reservations whose events together are this one; none if one of its parts has none.

    A pipeline books its parts one after the other. ``later`` are the reservations of parts that come after
    this one.
    """
    line = encode_event(event)
    if found := [e.sequence for e in entries if e.event_json == line and e.sequence not in later]:
        return [max([number for number in found if number < min(later, default=math.inf)] or found)]
    numbers: list[int] = []
    for part in reversed(event.events if isinstance(event, dp.ComposedDpEvent) else ()):
        own = booked_for(part, entries, (*later, *numbers))
        if not own:
            return []
        numbers = own + numbers
    return numbers


def attested(kind: str, entries: Sequence[Entry], owners: Mapping[int, str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of reservations by the digests of the models, or files, that were made of them.

    They are lines that cost nothing (:meth:`Ledger.attest`); only the process that booked is believed.
    """
    found: dict[str, tuple[int, ...]] = {}
    for entry in entries:
        words = entry.description.partition(", schema ")[0]
        said = re.fullmatch(rf"{kind} of reservation ((?:[0-9]{{1,18}}, )*[0-9]{{1,18}})", words)
        numbers = tuple(map(int, said[1].split(", "))) if said and entry.event_json == _NOTHING else ()
        makers = {
            owners.get(number, "").split("|")[:5] == owners.get(entry.sequence, "").split("|")[:5]
            for number in numbers
        }
        if makers == {True}:
            found.setdefault(entry.plan_digest, numbers)
    return found


def replay(account: Account, entries: Sequence[Entry]) -> Account:
    """Return the account that a history gives, booked step by step on an empty one."""
    again = Account(account.policy, account.filter)
    for entry in entries:
        again = again.skip(entry.charge) if entry.status is Status.RETURNED else again.book(entry.charge)
    return again


def _check_history(dataset: Dataset, entries: Sequence[Entry]) -> float:
    """Check a data set against its history; return the largest relative difference of a cost."""
    account, label = dataset.require_own_filter().account, f"data set {dataset.dataset_id!r}"
    if [entry.sequence for entry in entries] != list(range(1, account.count + 1)):
        raise damage_error(f"{label} counts {account.count} reservations, its history differs")
    if any(entry.dataset_id != dataset.dataset_id for entry in entries):
        raise damage_error(f"{label} holds the history of another data set")
    try:
        again = replay(account, entries)
    except (BudgetExceededError, ValueError) as error:
        raise damage_error(f"the history of {label} exceeds its budget") from error
    if again != account:
        raise damage_error(f"the sums of {label} are not those of its history")
    return max((_difference(account, entry) for entry in entries), default=0.0)


def _difference(account: Account, entry: Entry) -> float:
    """Return how far the stored cost of an entry is from the cost of its event now."""
    relation, charge = account.policy.relation, entry.charge
    again = charge_of(entry.event, relation, account.filter.orders, (charge.epsilon, charge.delta))
    largest = max(_apart(*pair) for pair in zip(charge.renyi, again.renyi, strict=True))
    if largest > CLOSE:
        raise damage_error(f"reservation {entry.sequence} does not cost what its event costs")
    try:
        check_certificate(entry.event, relation, charge)
    except (InvalidInputError, UnsupportedError) as error:
        raise damage_error(f"reservation {entry.sequence} claims less than its event costs") from error
    return largest


def _apart(stored: float, new: float) -> float:
    if stored == new:
        return 0.0
    return math.inf if math.isinf(stored + new) else abs(stored - new) / max(stored, new)


# ----------------------------------- What an account means to a person: how much is spent, how much is left


@dataclass(frozen=True)
class Spent:
    """What the filter has booked.

    Parameters
    ----------
    epsilon, delta : in basic mode the sums of the certificates; else the reading of the Rényi sums at the
        policy's delta. The guarantee is the policy's: this says how much of it is used up.
    fraction : the part of the budget that is gone. It grows evenly with equal plans, unlike epsilon.
    mode : which filter guards the data set.
    reservations : how many were booked, those included that were given back unused.
    """

    epsilon: float
    delta: float
    fraction: float
    mode: FilterMode
    reservations: int


@dataclass(frozen=True)
class Remaining:
    """What can still be booked.

    Parameters
    ----------
    epsilon, delta : the largest certificate of one more plan that fits: any plan on an untouched data set
        and in basic mode; under the Rényi filter a plan of full-batch Gaussian noise (others fit about as
        much).
    fraction : the part of the budget that is left.
    """

    epsilon: float
    delta: float
    fraction: float


class Ledger:
    """Budgets of data sets and the history of what was asked of them.

    Open one with :meth:`open`. A handle may be used by several threads, survives a fork and can
    be pickled: each process then has its own connection.

    **Privacy**: docs/ledger.md proves that what was admitted keeps the policy, even
    if each question depends on all earlier answers. The ledger itself holds public numbers only.

    Examples
    --------
    >>> import tempfile
    >>> from sordino.kernel.events import gaussian_event
    >>> from sordino.kernel.events import Relation
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.open(folder.name + "/ledger.sqlite")
    >>> ledger.create("survey", BudgetPolicy(epsilon=2.0, delta=1e-6))
    >>> event = gaussian_event(20.0, Relation.ADD_REMOVE)
    >>> with ledger.reserve("survey", event, relation="add-remove", unit="record",
    ...                     certificate=(0.25, 1e-6)):
    ...     pass  # draw noise and release
    >>> [entry.status.value for entry in ledger.history("survey")]
    ['settled']
    >>> ledger.close(); folder.cleanup()
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._accounts: dict[str, Account] = {}

    @classmethod
    def open(
        cls,
        address: str | os.PathLike[str],
        *,
        create: bool = True,
        timeout: float = 30.0,
        migrate: bool = False,
    ) -> Ledger:
        """Open a ledger.

        Parameters
        ----------
        address : path or str
            A file, or ``postgresql://user@host/database`` (extra ``postgres``).
        create : bool
            Whether to make the ledger if there is none.
        timeout : float
            How many seconds to wait for others before ``LedgerLockedError``.
        migrate : bool
            Whether to bring the tables of an older version up to date, all or nothing; a file is copied to
            ``NAME.vVERSION.bak`` before. Else they are refused.
        """
        place = hide(os.fspath(address)) if isinstance(address, str | os.PathLike) else None
        if not isinstance(place, str):
            raise InvalidInputError(
                f"Expected a path or a postgresql:// URL, got a {type(address).__name__}."
            )
        if place.startswith(("postgresql://", "postgres://")):
            return cls(PostgresStore(Address(place), timeout, create, migrate))
        if "://" in place:
            raise InvalidInputError(
                f"Expected a path or a postgresql:// URL, got the scheme {place.partition('://')[0]!r}."
            )
        return cls(SQLiteStore(place, timeout, create, migrate))

    def create(self, dataset_id: str, policy: BudgetPolicy, *, exist_ok: bool = False) -> None:
        """Give a data set its budget, once and for all.

        Parameters
        ----------
        dataset_id : str
            The name of the data set. Its budget is as good as this name: the same records under
            two names have two budgets.
        policy : BudgetPolicy
            The budget. It fixes the filter before anything is released.
        exist_ok : bool
            Whether a data set that has exactly this budget already is fine.
        """
        dataset_id = name(dataset_id, "dataset_id")
        if not isinstance(policy, BudgetPolicy):
            raise InvalidInputError(f"Expected a BudgetPolicy, got a {type(policy).__name__}.")
        fresh = Dataset(dataset_id, Account.opened(policy), now())
        with self._store.transaction(write=True) as store:
            _require_apart(store, dataset_id)
            if store.insert_dataset(fresh):
                return
            old = store.dataset(dataset_id).account.policy
        if not exist_ok or old != policy:
            raise DatasetExistsError(
                f"The data set {dataset_id!r} has the budget ({old.epsilon:.4g}, {old.delta:.4g}) "
                f"per {old.unit}, {old.relation.value}. A budget is set once; book on it, or "
                "name other data."
            )

    def reserve(
        self,
        dataset_id: str,
        event: dp.DpEvent,
        *,
        relation: Relation | str,
        unit: str,
        certificate: tuple[float, float],
        description: str = "",
        plan_digest: str = "",
    ) -> Reservation:
        """Spend budget for a plan; it is on disk when this returns, and never comes back.

        Parameters
        ----------
        dataset_id : str
            The data set to book on.
        event : DpEvent
            What will be released, as the plan says it.
        relation, unit
            The neighbours for which the plan is private. They have to be the budget's.
        certificate : (epsilon, delta)
            What the accountant certifies for the event alone. It is certified again here, before it is
            booked; what claims too little is refused.
        description, plan_digest : str
            Words for the history. They must not contain anything computed from the data.

        Raises
        ------
        BudgetExceededError, PolicyMismatchError, UnknownDatasetError, LedgerError
            Nothing was reserved, and nothing may be released.
        """
        words = text(description, "description"), text(plan_digest, "plan_digest")
        whole, line, drafts = name(dataset_id, "dataset_id"), encode_event(event), []
        for one in self.parts(whole):
            account = self._account(one)
            account.policy.require(relation, unit)
            stated = account.policy.relation
            # Outside of the transaction: the accountant may take a second, others need the file.
            charge = charge_of(event, stated, account.filter.orders, certificate)
            charge = check_certificate(event, stated, charge)
            drafts.append((Entry(one, 0, Status.RESERVED, line, charge, *words, "", now(), ""), account))
        public = public_generator()  # a name for this call, nothing secret
        BOOKED.append(drafts[0][0])  # before it is on disk: whoever stops the process here has to look there
        try:
            first, *others = self._book(whole, drafts, public.bytes(8).hex())
        except SordinoError:
            BOOKED.pop()
            raise
        BOOKED[-1] = first
        return Reservation(self, first, tuple(others))

    def parts(self, dataset_id: str) -> list[str]:
        """Return the data sets that a name stands for: itself, or its parts ``NAME/PART`` where it has none.

        Parts hold the records of disjoint sets of units, as whoever creates them declares: sites, or the
        windows in which records of a growing table arrive. **Privacy.** A unit is in one part, so what is
        booked on other parts is a function of records that are not its own, and its loss is what is booked
        on its part: parts compose in parallel. What is asked of the whole is booked on every part, all or
        nothing. Under replace-one a unit is replaced within its part.
        """
        with self._store.transaction(write=False) as store:
            return _parts(store, dataset_id)

    def _book(self, whole: str, drafts: Sequence[tuple[Entry, Account]], key: str) -> list[Entry]:
        """Book in one transaction; where a connection is lost, the key tells whether it was written."""
        try:
            with self._store.transaction(write=True) as store:
                if _parts(store, whole) != [draft.dataset_id for draft, _ in drafts]:
                    raise LedgerError(f"Parts of {whole!r} came meanwhile. Nothing was reserved: ask again.")
                return [self._booked(store, draft, known, key) for draft, known in drafts]
        except LedgerError as error:
            if type(error) is not LedgerError:  # refused, or damaged: nothing was written
                raise
            found = [self._find(draft.dataset_id, key) for draft, _ in drafts]
            if None in found:
                raise
            return [entry for entry in found if entry is not None]

    def _booked(self, store: Store, draft: Entry, known: Account, key: str) -> Entry:
        dataset, terms = store.dataset(draft.dataset_id, lock=True), read_terms(store, draft.dataset_id)
        terms.require("spend", person())
        second = use_approval(store, terms, draft, person())
        account = dataset.account
        if (account.policy, account.filter) != (known.policy, known.filter):
            raise damage_error(f"the budget of {draft.dataset_id!r} was exchanged")
        booked = replace(dataset, account=account.book(draft.charge))
        words = f"approved by {second}: {draft.description}"[:MOST_TEXT] if second else draft.description
        entry = replace(draft, sequence=booked.account.count, description=words)
        store.insert_entry(entry, sign_owner(key))
        store.update_account(booked)
        return entry

    def _find(self, dataset_id: str, key: str) -> Entry | None:
        """Return the reservation that was written under a key, None if there is none."""
        with suppress(LedgerError), self._store.transaction(write=False) as store:
            owners = store.owners_of(dataset_id)
            mine = (e for e in store.entries(dataset_id) if owners[e.sequence].endswith(f"|{key}"))
            return next(mine, None)
        return None

    def terms(self, dataset_id: str) -> Terms:
        """Return who may do what with a data set, and from which size on a second person has to approve."""
        with self._store.transaction(write=False) as store:
            return read_terms(store, name(dataset_id, "dataset_id"))

    def set_terms(self, dataset_id: str, terms: Terms) -> None:
        """Write the terms of a data set; whoever may ``create`` there now may change them.

        Where nobody is named for that, those who approve may: who spends must not lift what approval asks.
        """
        dataset_id = name(dataset_id, "dataset_id")
        with self._store.transaction(write=True) as store:
            store.dataset(dataset_id, lock=True)
            old = read_terms(store, dataset_id)
            old.require("create" if old.roles.get("create") else "approve", person())
            write_terms(store, dataset_id, terms)

    def approve(self, dataset_id: str, request: str) -> None:
        """Approve what another person asked for: the request that ``ApprovalNeededError`` names, once."""
        dataset_id = name(dataset_id, "dataset_id")
        with self._store.transaction(write=True) as store:
            store.dataset(dataset_id, lock=True)
            read_terms(store, dataset_id).require("approve", person())
            write_approval(store, dataset_id, text(request, "request"), person())

    def recognise(self, dataset_id: str, data: Any, key: bytes) -> bool:
        """Return whether these are the records that the name stood for before; warn where they are not.

        The first call keeps their keyed fingerprint. It is for whoever holds the data and the key: what it
        says is exact, not private.
        """
        found = fingerprint(data, key)
        with self._store.transaction(write=True) as store:
            store.dataset(name(dataset_id, "dataset_id"), lock=True)
            terms = read_terms(store, dataset_id)
            if not terms.fingerprint:
                write_terms(store, dataset_id, replace(terms, fingerprint=found))
        same = terms.fingerprint in ("", found)
        if not same:
            warnings.warn(
                f"Other records come under the name {dataset_id!r} than before. If they hold other units, "
                "name another data set or a part of it; the same units in a new version share one budget.",
                LedgerWarning,
                stacklevel=2,
            )
        return same

    def back_up(self, path: str | os.PathLike[str]) -> None:
        """Write a copy of a ledger in a file, as it is at one moment, while others go on booking."""
        if not isinstance(self._store, SQLiteStore):
            raise UnsupportedError("A server has its own backups: pg_dump, or `sordino ledger export`.")
        self._store.copy_to(Path(path))

    def finish(self, dataset_id: str, sequence: int, status: Status, reason: str = "") -> Entry:
        """Write what became of a reservation; it stays spent. See :class:`Reservation`."""
        reason = text(reason, "reason")
        with self._store.transaction(write=True) as store:
            entry = store.entry(dataset_id, sequence)
            if status is Status.CRASHED and entry.status is not Status.RESERVED:
                return entry
            if entry.status.is_final:
                raise ReservationEndedError(
                    f"Reservation {sequence} of {dataset_id!r} is {entry.status.value}, it cannot "
                    f"become {status.value}. It ended once; reserve again for another run."
                )
            if status is Status.CRASHED and entry.reason:  # it may go on, and its turn must stay known
                reason = f"{entry.reason}; {reason}"
            entry = replace(entry, status=status, reason=reason, finished_at=now())
            store.update_status(entry)
        return entry

    def give_back(self, dataset_id: str, sequence: int, turn: int = 0) -> Entry:
        """Take a reservation off the budget under which nothing was asked of a record.

        That nothing was asked only the process that made it can know (:meth:`sordino.runs.Run.give_back`), or
        the one that took its last turn and has its journal; everybody else is refused, and so is a run
        that has ended or may go on elsewhere. The line stays in
        the history. **Privacy.** What happened under it is a function of no record, so its cost is zero: the
        sums of the others are those of a history without it. The filter it chose stays.
        """
        with self._store.transaction(write=True) as store:
            dataset = store.dataset(dataset_id, lock=True)
            entry = store.entry(dataset_id, sequence)
            mine = is_mine(store.owners_of(dataset_id).get(sequence, "")) and not entry.reason
            heir = turn > 0 and entry.reason == f"turn {turn}"
            if entry.status is not Status.RESERVED or not (mine or heir):
                raise LedgerError(
                    f"Reservation {sequence} of {dataset_id!r} cannot be given back: it is "
                    f"{entry.status.value}, has gone on, or belongs to another process. It stays spent."
                )
            entry = replace(entry, status=Status.RETURNED, reason="nothing was asked", finished_at=now())
            store.update_status(entry)
            account = replay(dataset.account, store.entries(dataset_id))
            store.update_account(replace(dataset, account=account))
        return entry

    def attest(
        self, dataset_id: str, event: dp.DpEvent, digests: Sequence[str], file: str = "", schema: str = ""
    ) -> None:
        """Write down which model this process released under its settled reservations for an event.

        Each of ``digests``, of the private parts of a model and their reports, is a line of its own at the
        end of the history, in the chain of all others, for nothing. It is written once, when a fit ends:
        who edits the model later finds them there. A process that ends before leaves none, and then nobody
        can say which model it was. ``file`` is the digest of a file with this model, or of a score, with what
        it says of the run; the digest of the ``schema`` tells other names of the same table (:meth:`alike`).
        **Privacy.** A digest is a function of released and declared facts.
        """
        said = [(kind, text(d, kind)) for kind, ds in (("model", digests), ("file", [file])) for d in ds if d]
        for one in self.parts(name(dataset_id, "dataset_id")):
            with self._store.transaction(write=True) as store:
                dataset, owners = store.dataset(one, lock=True), store.owners_of(one)
                entries = store.entries(one)
                known = {kind: attested(kind, entries, owners) for kind in ("model", "file")}
                told = known["model" if digests else "file"]
                mine = [e for e in entries if e.status is Status.SETTLED and is_mine(owners[e.sequence])]
                free = [e for e in mine if (e.sequence,) not in told.values()]
                runs = [tuple(booked_for(event, found)) for found in (free, mine)]
                new = (numbers for numbers in runs if numbers and numbers not in told.values())
                parts = [told.get(one, ()) for one in digests or (file,)]  # a pipeline fits them one by one
                run = tuple(sorted({*chain(*parts)})) if all(parts) else () if any(parts) else next(new, ())
                charge = Charge((0.0,) * len(dataset.account.filter.orders), 0.0, 0.0)
                for kind, found in said:
                    if not run or found in known[kind]:
                        continue
                    dataset = replace(dataset, account=dataset.account.book(charge))
                    table = f", schema {schema}" * (kind == "model" and bool(schema))
                    words = f"{kind} of reservation {', '.join(map(str, run))}{table}", found, ""
                    number = dataset.account.count
                    entry = Entry(one, number, Status.SETTLED, _NOTHING, charge, *words, now(), now())
                    store.insert_entry(entry, sign_owner(""))
                    store.update_account(dataset)

    def models(self, dataset_id: str) -> dict[str, tuple[int, ...]]:
        """Return the reservations of each part of a model that :meth:`attest` wrote down, by its digest."""
        return self._attested("model", dataset_id)

    def files(self, dataset_id: str) -> dict[str, tuple[int, ...]]:
        """Return the reservations of each file that :meth:`attest` wrote down, by its digest."""
        return self._attested("file", dataset_id)

    def alike(self, dataset_id: str, schema: str) -> list[str]:
        """Return the other data sets, of those that may be read, on which models with a schema were booked.

        Parts of one whole hold other people, as whoever created them declared: they are left out.
        """
        whole, found = dataset_id.partition("/")[0], []
        for other in self.datasets():
            with suppress(RoleError):
                lines = () if other.partition("/")[0] == whole else self.history(other)
                found += [other] * any(e.description.endswith(f", schema {schema}") for e in lines)
        return found

    def _attested(self, kind: str, dataset_id: str) -> dict[str, tuple[int, ...]]:
        with self._store.transaction(write=False) as store:
            read_terms(store, dataset_id).require("read", person())
            return attested(kind, store.entries(dataset_id), store.owners_of(dataset_id))

    def take_turn(self, dataset_id: str, sequence: int, turn: int) -> None:
        """Hand a run that outlives its process to whoever holds its last turn; a copy of it comes too late.

        The number of turns stands in the reason of a reservation that has not ended. Whoever goes on says the
        number it knows, and everybody else's number is old from then on.
        """
        with self._store.transaction(write=True) as store:
            entry = store.entry(dataset_id, sequence)
            if entry.status.is_final:
                raise LedgerError(
                    f"Reservation {sequence} of {dataset_id!r} is {entry.status.value}. It cannot go on."
                )
            found = re.match(r"turn (\d+)", entry.reason)
            taken = int(found.group(1)) if found else 0
            if turn != taken:
                raise LedgerError(
                    f"Reservation {sequence} of {dataset_id!r} went on {taken} times, this copy of the run "
                    f"knows {turn}. A copy would release twice what was paid for once: start a new run."
                )
            store.update_status(replace(entry, status=Status.RESERVED, reason=f"turn {turn + 1}"))

    def mark_crashed(self) -> int:
        """Label reservations whose process on this machine is gone; return how many."""
        with self._store.transaction(write=False) as store:
            query = "SELECT dataset_id, sequence, owner FROM sordino_reservations WHERE status = ?"
            rows = store.execute(query, (Status.RESERVED.value,))
        gone = [row for row in rows if is_gone(str(row[2]))]
        for dataset_id, sequence, _ in gone:
            self.finish(str(dataset_id), int(sequence), Status.CRASHED, "the process ended")
        return len(gone)

    def import_json(self, document: str) -> list[str]:
        """Add the data sets of an export, for example to move to PostgreSQL; return their names.

        All or nothing. Filters, costs and certificates are computed again from the budgets and the
        events first, and a data set that is already here is an error. The budgets themselves are taken
        from the document, as :meth:`create` takes them from its caller: look at them.
        """
        records = check_import(document)
        with self._store.transaction(write=True) as store:
            for dataset, entries in records:
                _require_apart(store, dataset.dataset_id)
                if not store.insert_dataset(dataset):
                    raise DatasetExistsError(
                        f"The data set {dataset.dataset_id!r} is already in {store.label}. "
                        "Nothing was imported."
                    )
                for entry in entries:
                    store.insert_entry(entry, "")
        return [dataset.dataset_id for dataset, _ in records]

    # ---------------------------------------------------- Everything that can be read from a ledger

    def datasets(self) -> list[str]:
        """Return the names of all data sets."""
        with self._store.transaction(write=False) as store:
            return store.dataset_ids()

    def policy(self, dataset_id: str) -> BudgetPolicy:
        """Return the budget of a data set."""
        return self._account(name(dataset_id, "dataset_id")).policy

    def account(self, dataset_id: str) -> Account:
        """Return the present state of a data set's filter."""
        with self._store.transaction(write=False) as store:
            return store.dataset(name(dataset_id, "dataset_id")).account

    def history(self, dataset_id: str) -> list[Entry]:
        """Return all reservations of a data set, oldest first."""
        return self._records(dataset_id)[1]

    def people(self, dataset_id: str) -> dict[int, str]:
        """Return who made each reservation, as the process said, by its number; "" where unknown."""
        with self._store.transaction(write=False) as store:
            read_terms(store, dataset_id).require("read", person())
            found = store.owners_of(name(dataset_id, "dataset_id"))
        return {sequence: person_of(one) for sequence, one in found.items()}

    @property
    def label(self) -> str:
        """Where it lies: a path, or host and database without user and password."""
        return self._store.label

    def spent(self, dataset_id: str) -> Spent:
        """Return what is booked, as the filter counts it."""
        query = "SELECT count(*) FROM sordino_reservations WHERE dataset_id = ? AND event = ?"
        with self._store.transaction(write=False) as store:
            account = store.dataset(name(dataset_id, "dataset_id")).account
            ((lines,),) = store.execute(query, (name(dataset_id, "dataset_id"), _NOTHING))
        if account.mode is FilterMode.RENYI:
            booked = account.filter.reading(account.renyi), account.policy.delta
        else:
            booked = float(account.epsilon), float(account.delta)
        return Spent(*booked, account.fraction, account.mode, account.count - int(lines))

    def remaining(self, dataset_id: str) -> Remaining:
        """Return what can still be booked."""
        account = self.account(dataset_id)
        return Remaining(*account.left(account.policy.delta), 1 - account.fraction)

    def nonadaptive(self, dataset_id: str, delta: float | None = None) -> Certificate:
        """Return the tight figure of everything booked, as if it had been planned in one go.

        It is smaller than what the filter counts, and it is *not* what the filter enforces: it
        would be a guarantee only had no plan depended on an earlier result. Takes seconds.
        """
        dataset, entries = self._records(dataset_id)
        policy = dataset.account.policy
        event = compose_events([entry.event for entry in entries if entry.status is not Status.RETURNED])
        chosen = policy.delta if delta is None else check_number("delta", delta)
        if chosen == 0:
            return Certificate(pure_epsilon(event, policy.relation), 0.0, policy.relation, "pure (sum)")
        return certify(event, chosen, policy.relation)

    def verify(self, dataset_id: str | None = None, *, receipts: Sequence[str] = ()) -> Verification:
        """Replay the history and compare it with the running sums, and with receipts of earlier checks.

        Raises
        ------
        LedgerCorruptError
            The first thing that does not agree.
        """
        with self._store.transaction(write=False) as store:
            if isinstance(store, SQLiteStore):
                store.check_pages()
            chosen = store.dataset_ids() if dataset_id is None else [name(dataset_id, "dataset_id")]
            records = [(store.dataset(one), store.entries(one)) for one in chosen]
            signatures = {one: store.owners_of(one) for one in chosen}
        return verify_records(records, receipts, signatures)

    def to_json(self, dataset_id: str | None = None) -> str:
        """Return data sets with their histories as strict JSON."""
        chosen = self.datasets() if dataset_id is None else [dataset_id]
        return to_json([self._records(one) for one in chosen])

    def close(self) -> None:
        """Close the connection. What was reserved stays spent."""
        self._store.close()

    def _account(self, dataset_id: str) -> Account:
        """Return an account for its policy and filter, which never change; the sums are old."""
        if dataset_id not in self._accounts:
            self._accounts[dataset_id] = self.account(dataset_id)
        return self._accounts[dataset_id]

    def _records(self, dataset_id: str) -> tuple[Dataset, list[Entry]]:
        dataset_id = name(dataset_id, "dataset_id")
        with self._store.transaction(write=False) as store:
            read_terms(store, dataset_id).require("read", person())
            return store.dataset(dataset_id), store.entries(dataset_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """Return the budgets as a table; notebooks show it."""
        rows = []
        for one in self.datasets():
            account = self.account(one)
            policy, (left, _) = account.policy, account.left(account.policy.delta)
            budget = (one, f"{policy.epsilon:g}", f"{policy.delta:g}", policy.unit)
            rows.append((*budget, f"{account.fraction:.1%}", at_least(left)))
        titles = ("data set", "epsilon", "delta", "per", "spent", "one more plan may cost epsilon")
        return html_table(titles, rows)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store.label!r})"

    def __reduce__(self) -> tuple[Callable[..., Ledger], tuple[str]]:
        return partial(Ledger.open, create=False, timeout=self._store.timeout), (self._store.address,)


def _parts(store: Store, dataset_id: str) -> list[str]:
    known = store.dataset_ids()
    inside = [one for one in known if one.startswith(f"{dataset_id}/")]
    return [dataset_id] if dataset_id in known or not inside else inside


def _require_apart(store: Store, dataset_id: str) -> None:
    """Refuse a budget for a whole with parts, or for a part of what has one: units would have two."""
    for other in store.dataset_ids():
        if f"{other}/".startswith(f"{dataset_id}/") is not f"{dataset_id}/".startswith(f"{other}/"):
            raise DatasetExistsError(
                f"Expected names of which none is a part of another, got {dataset_id!r} beside {other!r}: "
                "the same units would have two budgets. Book on the name that is there, or name other data."
            )


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
