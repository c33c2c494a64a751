"""The ledger: budgets on disk, reserved before the first release, never refunded."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from dp_accounting import dp_event as dp

from sordino.errors import DatasetExistsError, InvalidInputError, LedgerError, ReservationEndedError
from sordino.kernel.relation import Relation
from sordino.ledger import export, owner, tables
from sordino.ledger.account import Account
from sordino.ledger.address import Address, hidden
from sordino.ledger.charge import charge_of, check_certificate
from sordino.ledger.policy import BudgetPolicy, name, text
from sordino.ledger.postgres import PostgresStore
from sordino.ledger.reader import LedgerReader
from sordino.ledger.records import Dataset, Entry, Status, damaged, encode_event
from sordino.ledger.reservation import Reservation
from sordino.ledger.sqlite import SQLiteStore
from sordino.ledger.verify import replayed, verified

DEFAULT_TIMEOUT = 30.0


class Ledger(LedgerReader):
    """Budgets of data sets and the history of what was asked of them.

    Open one with :meth:`open`. A handle may be used by several threads, survives a fork and can
    be pickled: each process then has its own connection.

    **Privacy**: :mod:`sordino.ledger.filter` proves that what was admitted keeps the policy, even
    if each question depends on all earlier answers. The ledger itself holds public numbers only.

    Examples
    --------
    >>> import tempfile
    >>> from sordino.kernel.events import gaussian_event
    >>> from sordino.kernel.relation import Relation
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

    @classmethod
    def open(
        cls,
        address: str | os.PathLike[str],
        *,
        create: bool = True,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> Ledger:
        """Open a ledger, and bring its tables up to date.

        Parameters
        ----------
        address : path or str
            A file, or ``postgresql://user@host/database`` (extra ``postgres``).
        create : bool
            Whether to make the ledger if there is none.
        timeout : float
            How many seconds to wait for others before ``LedgerLockedError``.
        """
        place = hidden(os.fspath(address)) if isinstance(address, str | os.PathLike) else None
        if not isinstance(place, str):
            raise InvalidInputError(
                f"Expected a path or a postgresql:// URL, got a {type(address).__name__}."
            )
        if place.startswith(("postgresql://", "postgres://")):
            return cls(PostgresStore(Address(place), timeout, create))
        if "://" in place:
            raise InvalidInputError(
                f"Expected a path or a postgresql:// URL, got the scheme {place.partition('://')[0]!r}."
            )
        return cls(SQLiteStore(place, timeout, create))

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
            if tables.insert_dataset(store, fresh):
                return
            old = tables.read_dataset(store, dataset_id).account.policy
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
        dataset_id = name(dataset_id, "dataset_id")
        words = text(description, "description"), text(plan_digest, "plan_digest")
        account = self._account(dataset_id)
        account.policy.require(relation, unit)
        stated = account.policy.relation
        line = encode_event(event)
        # Outside of the transaction: the accountant may take a second, others need the file.
        charge = charge_of(event, stated, account.filter.orders, certificate)
        charge = check_certificate(event, stated, charge)
        draft = Entry(dataset_id, 0, Status.RESERVED, line, charge, *words, "", now(), "")
        return Reservation(self, self._book(draft, account))

    def _book(self, draft: Entry, known: Account) -> Entry:
        """Book in one transaction, all or nothing."""
        with self._store.transaction(write=True) as store:
            dataset = tables.read_dataset(store, draft.dataset_id, lock=True)
            account = dataset.account
            if (account.policy, account.filter) != (known.policy, known.filter):
                raise damaged(f"the budget of {draft.dataset_id!r} was exchanged")
            booked = replace(dataset, account=account.book(draft.charge))
            entry = replace(draft, sequence=booked.account.count)
            tables.insert_entry(store, entry, owner.this_process())
            tables.update_account(store, booked)
        return entry

    def finish(self, dataset_id: str, sequence: int, status: Status, reason: str = "") -> Entry:
        """Write what became of a reservation; it stays spent. See :class:`Reservation`."""
        reason = text(reason, "reason")
        with self._store.transaction(write=True) as store:
            entry = tables.read_entry(store, dataset_id, sequence, lock=True)
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
            tables.update_status(store, entry)
        return entry

    def give_back(self, dataset_id: str, sequence: int) -> Entry:
        """Take a reservation off the budget under which nothing was asked of a record.

        That nothing was asked only the process that made it can know (:meth:`sordino.runs.Run.give_back`),
        so everybody else is refused, and so is a run that has ended or may go on elsewhere. The line stays in
        the history. **Privacy.** What happened under it is a function of no record, so its cost is zero: the
        sums of the others are those of a history without it. The filter it chose stays.
        """
        with self._store.transaction(write=True) as store:
            dataset = tables.read_dataset(store, dataset_id, lock=True)
            entry = tables.read_entry(store, dataset_id, sequence, lock=True)
            mine = tables.owners_of(store, dataset_id).get(sequence) == owner.this_process()
            if entry.status is not Status.RESERVED or entry.reason or not mine:
                raise LedgerError(
                    f"Reservation {sequence} of {dataset_id!r} cannot be given back: it is "
                    f"{entry.status.value}, has gone on, or belongs to another process. It stays spent."
                )
            entry = replace(entry, status=Status.RETURNED, reason="nothing was asked", finished_at=now())
            tables.update_status(store, entry)
            account = replayed(dataset.account, tables.read_entries(store, dataset_id))
            tables.update_account(store, replace(dataset, account=account))
        return entry

    def take_turn(self, dataset_id: str, sequence: int, turn: int) -> None:
        """Hand a run that outlives its process to whoever holds its last turn; a copy of it comes too late.

        The number of turns stands in the reason of a reservation that has not ended. Whoever goes on says the
        number it knows, and everybody else's number is old from then on.
        """
        with self._store.transaction(write=True) as store:
            entry = tables.read_entry(store, dataset_id, sequence, lock=True)
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
            tables.update_status(store, replace(entry, status=Status.RESERVED, reason=f"turn {turn + 1}"))

    def mark_crashed(self) -> int:
        """Label reservations whose process on this machine is gone; return how many."""
        with self._store.transaction(write=False) as store:
            rows = tables.owners(store, Status.RESERVED.value)
        gone = [row for row in rows if owner.is_gone(row[2])]
        for dataset_id, sequence, _ in gone:
            self.finish(dataset_id, sequence, Status.CRASHED, "the process ended")
        return len(gone)

    def import_json(self, document: str) -> list[str]:
        """Add the data sets of an export, for example to move to PostgreSQL; return their names.

        All or nothing. Filters, costs and certificates are computed again from the budgets and the
        events first, and a data set that is already here is an error. The budgets themselves are taken
        from the document, as :meth:`create` takes them from its caller: look at them.
        """
        records = export.from_json(document)
        verified(records)
        with self._store.transaction(write=True) as store:
            for dataset, entries in records:
                if not tables.insert_dataset(store, dataset):
                    raise DatasetExistsError(
                        f"The data set {dataset.dataset_id!r} is already in {store.label}. "
                        "Nothing was imported."
                    )
                for entry in entries:
                    tables.insert_entry(store, entry, "")
        return [dataset.dataset_id for dataset, _ in records]

    def __reduce__(self) -> tuple[Callable[..., Ledger], tuple[str, float]]:
        return _reopen, (self._store.address, self._store.timeout)


def _reopen(address: str, timeout: float) -> Ledger:
    return Ledger.open(address, create=False, timeout=timeout)


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
