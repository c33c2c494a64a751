"""Everything that can be read from a ledger."""

from __future__ import annotations

from html import escape
from types import TracebackType
from typing import Self

from sordino.accounting.accountants import Certificate
from sordino.ledger import export, owner, tables
from sordino.ledger.account import Account
from sordino.ledger.policy import BudgetPolicy, name
from sordino.ledger.records import Dataset, Entry
from sordino.ledger.spending import Remaining, Spent, nonadaptive, remaining_of, spent_of
from sordino.ledger.sqlite import SQLiteStore
from sordino.ledger.store import Store
from sordino.ledger.verify import Verification, verified


class LedgerReader:
    """The reading half of :class:`~sordino.ledger.Ledger`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._accounts: dict[str, Account] = {}

    def datasets(self) -> list[str]:
        """Return the names of all data sets."""
        with self._store.transaction(write=False) as store:
            return tables.dataset_ids(store)

    def policy(self, dataset_id: str) -> BudgetPolicy:
        """Return the budget of a data set."""
        return self._account(name(dataset_id, "dataset_id")).policy

    def account(self, dataset_id: str) -> Account:
        """Return the present state of a data set's filter."""
        with self._store.transaction(write=False) as store:
            return tables.read_dataset(store, name(dataset_id, "dataset_id")).account

    def history(self, dataset_id: str) -> list[Entry]:
        """Return all reservations of a data set, oldest first."""
        return self._records(dataset_id)[1]

    def people(self, dataset_id: str) -> dict[int, str]:
        """Return who made each reservation, by its number; "" where that was not written down.

        It is the account, or ``SORDINO_PERSON``, of the process that booked: what it says of itself.
        """
        with self._store.transaction(write=False) as store:
            found = tables.owners_of(store, name(dataset_id, "dataset_id"))
        return {sequence: owner.person_of(one) for sequence, one in found.items()}

    def spent(self, dataset_id: str) -> Spent:
        """Return what is booked, as the filter counts it."""
        return spent_of(self.account(dataset_id))

    def remaining(self, dataset_id: str) -> Remaining:
        """Return what can still be booked."""
        return remaining_of(self.account(dataset_id))

    def nonadaptive(self, dataset_id: str, delta: float | None = None) -> Certificate:
        """Return the tight figure of everything booked, as if it had been planned in one go.

        It is smaller than what the filter counts, and it is *not* what the filter enforces: it
        would be a guarantee only had no plan depended on an earlier result. Takes seconds.
        """
        dataset, entries = self._records(dataset_id)
        return nonadaptive(dataset.account.policy, entries, delta)

    def verify(self, dataset_id: str | None = None) -> Verification:
        """Replay the history and compare it with the running sums.

        Raises
        ------
        LedgerCorruptError
            The first thing that does not agree.
        """
        with self._store.transaction(write=False) as store:
            if isinstance(store, SQLiteStore):
                store.check_pages()
            chosen = tables.dataset_ids(store) if dataset_id is None else [dataset_id]
            records = [
                (tables.read_dataset(store, name(one, "dataset_id")), tables.read_entries(store, one))
                for one in chosen
            ]
        return verified(records)

    def to_json(self, dataset_id: str | None = None) -> str:
        """Return data sets with their histories as strict JSON."""
        chosen = self.datasets() if dataset_id is None else [dataset_id]
        return export.to_json([self._records(one) for one in chosen])

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
            return tables.read_dataset(store, dataset_id), tables.read_entries(store, dataset_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        """Return the budgets as a table; notebooks show it."""
        rows = []
        for one in self.datasets():
            account = self.account(one)
            policy, spent, left = account.policy, spent_of(account), remaining_of(account)
            budget = (one, f"{policy.epsilon:g}", f"{policy.delta:g}", policy.unit)
            cells = (*budget, f"{spent.fraction:.1%}", f"{left.epsilon:.4g}")
            rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
        titles = ("data set", "epsilon", "delta", "per", "spent", "one more plan may cost epsilon")
        head = "".join(f'<th scope="col">{title}</th>' for title in titles)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store.label!r})"
