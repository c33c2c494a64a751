"""Reading and writing rows; every function runs inside a transaction of the caller."""

from __future__ import annotations

from collections.abc import Sequence

from sordino.errors import UnknownDatasetError
from sordino.ledger.records import (
    DATASET_COLUMNS,
    ENTRY_COLUMNS,
    Dataset,
    Entry,
    check_seal,
    damaged,
    dataset_from_row,
    dataset_row,
    entry_from_row,
    entry_row,
    require_own_filter,
    seal,
)
from sordino.ledger.store import Store


def dataset_ids(store: Store) -> list[str]:
    """Return the names of all data sets, in order."""
    rows = store.execute("SELECT dataset_id FROM sordino_datasets ORDER BY dataset_id")
    return sorted(str(row[0]) for row in rows)


def find_dataset(store: Store, dataset_id: str, *, lock: bool = False) -> Dataset | None:
    """Return a data set, locked until the transaction ends if asked, or None."""
    rows = store.execute(
        f"SELECT {DATASET_COLUMNS}, seal FROM sordino_datasets WHERE dataset_id = ?"
        + (store.for_update if lock else ""),
        (dataset_id,),
    )
    if not rows:
        return None
    check_seal(rows[0][:-1], rows[0][-1])
    return require_own_filter(dataset_from_row(rows[0][:-1]))


def read_dataset(store: Store, dataset_id: str, *, lock: bool = False) -> Dataset:
    """Return a data set, or say that there is none of this name."""
    dataset = find_dataset(store, dataset_id, lock=lock)
    if dataset is None:
        raise UnknownDatasetError(
            f"The ledger {store.label} has no data set {dataset_id!r}. Check the name, or set its "
            "budget once with `ledger.create` or `sordino ledger create`."
        )
    return dataset


def insert_dataset(store: Store, dataset: Dataset) -> bool:
    """Add a data set; return whether it is new. An existing one is left as it is."""
    values = dataset_row(dataset)
    rows = store.execute(
        f"INSERT INTO sordino_datasets ({DATASET_COLUMNS}, seal) VALUES ({_marks(len(values) + 1)})"
        " ON CONFLICT (dataset_id) DO NOTHING RETURNING dataset_id",
        [*values, seal(values)],
    )
    return bool(rows)


def update_account(store: Store, dataset: Dataset) -> None:
    """Write the running state of a data set."""
    values = dataset_row(dataset)
    columns = DATASET_COLUMNS.split(", ")
    changed = ("mode", "reservations", "spent_renyi", "spent_epsilon", "spent_delta")
    assignments = ", ".join(f"{column} = ?" for column in (*changed, "seal"))
    store.execute(
        f"UPDATE sordino_datasets SET {assignments} WHERE dataset_id = ?",
        [*(values[columns.index(c)] for c in changed), seal(values), dataset.dataset_id],
    )


def insert_entry(store: Store, entry: Entry, owner: str) -> None:
    """Add a reservation to the history."""
    values = entry_row(entry)
    store.execute(
        f"INSERT INTO sordino_reservations ({ENTRY_COLUMNS}, owner, seal) VALUES ({_marks(len(values) + 2)})",
        [*values, owner, seal(values)],
    )


def read_entries(store: Store, dataset_id: str) -> list[Entry]:
    """Return the history of a data set, oldest first."""
    rows = store.execute(
        f"SELECT {ENTRY_COLUMNS}, seal FROM sordino_reservations WHERE dataset_id = ? ORDER BY sequence",
        (dataset_id,),
    )
    return [_entry(row) for row in rows]


def read_entry(store: Store, dataset_id: str, sequence: int, *, lock: bool = False) -> Entry:
    """Return one reservation."""
    rows = store.execute(
        f"SELECT {ENTRY_COLUMNS}, seal FROM sordino_reservations"
        f" WHERE dataset_id = ? AND sequence = ?{store.for_update if lock else ''}",
        (dataset_id, sequence),
    )
    if not rows:
        raise damaged(f"reservation {sequence} of {dataset_id!r} is gone")
    return _entry(rows[0])


def update_status(store: Store, entry: Entry) -> None:
    """Write what became of a reservation."""
    values = (entry.status.value, entry.reason, entry.finished_at, seal(entry_row(entry)))
    store.execute(
        "UPDATE sordino_reservations SET status = ?, reason = ?, finished_at = ?, seal = ?"
        " WHERE dataset_id = ? AND sequence = ?",
        (*values, entry.dataset_id, entry.sequence),
    )


def owners(store: Store, status: str) -> list[tuple[str, int, str]]:
    """Return which process owns each reservation of a status."""
    rows = store.execute(
        "SELECT dataset_id, sequence, owner FROM sordino_reservations WHERE status = ?", (status,)
    )
    return [(str(name), int(sequence), str(owner)) for name, sequence, owner in rows]


def owners_of(store: Store, dataset_id: str) -> dict[int, str]:
    """Return which process owns each reservation of a data set."""
    rows = store.execute(
        "SELECT sequence, owner FROM sordino_reservations WHERE dataset_id = ?", (dataset_id,)
    )
    return {int(sequence): str(owner) for sequence, owner in rows}


def _entry(row: Sequence[object]) -> Entry:
    check_seal(row[:-1], row[-1])
    return entry_from_row(row[:-1])


def _marks(count: int) -> str:
    return ", ".join("?" * count)
