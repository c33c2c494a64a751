"""The tables of a ledger, their versions, and the way from an old version to the present one.

Version 1 had no seals, no running sums of the certificates, no plan digest and no owner.
"""

from __future__ import annotations

from decimal import Decimal

from sordino.errors import LedgerVersionError
from sordino.ledger.account import added
from sordino.ledger.records import (
    DATASET_COLUMNS,
    ENTRY_COLUMNS,
    damaged,
    dataset_from_row,
    dataset_row,
    entry_from_row,
    entry_row,
    seal,
)
from sordino.ledger.store import Session, Store

VERSION = 2

TABLES = (
    "CREATE TABLE sordino_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE sordino_datasets (
        dataset_id TEXT PRIMARY KEY,
        epsilon DOUBLE PRECISION NOT NULL,
        delta DOUBLE PRECISION NOT NULL,
        relation TEXT NOT NULL,
        unit TEXT NOT NULL,
        orders TEXT NOT NULL,
        shares TEXT NOT NULL,
        mode TEXT NOT NULL,
        reservations BIGINT NOT NULL,
        spent_renyi TEXT NOT NULL,
        spent_epsilon TEXT NOT NULL,
        spent_delta TEXT NOT NULL,
        created_at TEXT NOT NULL,
        seal TEXT NOT NULL
    )""",
    """CREATE TABLE sordino_reservations (
        dataset_id TEXT NOT NULL REFERENCES sordino_datasets (dataset_id),
        sequence BIGINT NOT NULL,
        status TEXT NOT NULL,
        event TEXT NOT NULL,
        charges TEXT NOT NULL,
        epsilon DOUBLE PRECISION NOT NULL,
        delta DOUBLE PRECISION NOT NULL,
        description TEXT NOT NULL,
        plan_digest TEXT NOT NULL,
        reason TEXT NOT NULL,
        reserved_at TEXT NOT NULL,
        finished_at TEXT NOT NULL,
        owner TEXT NOT NULL,
        seal TEXT NOT NULL,
        PRIMARY KEY (dataset_id, sequence)
    )""",
)


def create_tables(store: Session) -> None:
    """Make an empty ledger of the present version, inside a transaction."""
    for statement in TABLES:
        store.execute(statement)
    values = ("schema", str(VERSION))
    store.execute("INSERT INTO sordino_meta (name, value) VALUES (?, ?)", values)


def read_version(store: Store) -> int:
    """Return the version of the tables, inside a transaction; refuse a newer one."""
    rows = store.execute("SELECT value FROM sordino_meta WHERE name = ?", ("schema",))
    if len(rows) != 1 or not str(rows[0][0]).isdigit() or int(rows[0][0]) < 1:
        raise damaged("it does not say which version it is")
    version = int(rows[0][0])
    if version > VERSION:
        raise LedgerVersionError(
            f"The ledger {store.label} has version {version}, this Sordino reads up to {VERSION}. "
            "Upgrade Sordino: pip install --upgrade sordino."
        )
    return version


def migrate(store: Store) -> None:
    """Bring the tables to the present version, inside one write transaction.

    The version is read again here: another process may have migrated while this one waited.
    """
    version = read_version(store)
    if version < 2:
        _from_1_to_2(store)
    values = (str(VERSION), "schema")
    store.execute("UPDATE sordino_meta SET value = ? WHERE name = ?", values)


def _from_1_to_2(store: Store) -> None:
    for column in ("spent_epsilon", "spent_delta", "seal"):
        _add_column(store, "sordino_datasets", column)
    for column in ("plan_digest", "owner", "seal"):
        _add_column(store, "sordino_reservations", column)
    for (dataset_id,) in store.execute("SELECT dataset_id FROM sordino_datasets"):
        _add_up_certificates(store, dataset_id)
    for row in store.execute(f"SELECT {DATASET_COLUMNS} FROM sordino_datasets"):
        _rewrite(store, "sordino_datasets", DATASET_COLUMNS, dataset_row(dataset_from_row(row)), 1)
    for row in store.execute(f"SELECT {ENTRY_COLUMNS} FROM sordino_reservations"):
        _rewrite(store, "sordino_reservations", ENTRY_COLUMNS, entry_row(entry_from_row(row)), 2)


def _add_column(store: Store, table: str, column: str) -> None:
    store.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")


def _add_up_certificates(store: Store, dataset_id: str) -> None:
    query = "SELECT epsilon, delta FROM sordino_reservations WHERE dataset_id = ? ORDER BY sequence"
    epsilon, delta = Decimal(0), Decimal(0)
    for row in store.execute(query, (dataset_id,)):
        if not all(isinstance(value, float) for value in row):
            raise damaged("a certificate is not a number")
        epsilon, delta = added(epsilon, row[0]), added(delta, row[1])
    store.execute(
        "UPDATE sordino_datasets SET spent_epsilon = ?, spent_delta = ? WHERE dataset_id = ?",
        (str(epsilon), str(delta), dataset_id),
    )


def _rewrite(store: Store, table: str, columns: str, values: list[object], keys: int) -> None:
    """Write a row as the present version would have written it, with its seal."""
    names = columns.split(", ")
    assignments = ", ".join(f"{name} = ?" for name in (*names, "seal"))
    condition = " AND ".join(f"{name} = ?" for name in names[:keys])
    store.execute(
        f"UPDATE {table} SET {assignments} WHERE {condition}",
        [*values, seal(values), *values[:keys]],
    )
