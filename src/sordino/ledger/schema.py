"""The tables of a ledger and their version."""

from __future__ import annotations

import re

from sordino.errors import LedgerVersionError
from sordino.ledger.records import damaged
from sordino.ledger.store import Statements, Store

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


def create_tables(store: Statements) -> None:
    """Make an empty ledger of the present version, inside a transaction."""
    for statement in TABLES:
        store.execute(statement)
    values = ("schema", str(VERSION))
    store.execute("INSERT INTO sordino_meta (name, value) VALUES (?, ?)", values)


def check_version(store: Store) -> None:
    """Refuse tables of another version, inside a transaction."""
    rows = store.execute("SELECT value FROM sordino_meta WHERE name = ?", ("schema",))
    if len(rows) != 1 or re.fullmatch("[1-9][0-9]{0,8}", str(rows[0][0])) is None:
        raise damaged("it does not say which version it is")
    version = int(rows[0][0])
    if version > VERSION:
        raise LedgerVersionError(
            f"The ledger {store.label} has version {version}, this Sordino reads version {VERSION}. "
            "Upgrade Sordino: pip install --upgrade sordino."
        )
    if version < VERSION:
        raise LedgerVersionError(
            f"The ledger {store.label} has version {version}, which no release wrote; this Sordino reads "
            f"version {VERSION}. Export it with the program that made it."
        )
