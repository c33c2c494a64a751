"""A ledger in PostgreSQL, for a team: a booking holds the row lock of its data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from sordino.errors import (
    LedgerCorruptError,
    LedgerError,
    LedgerLockedError,
    LedgerReadOnlyError,
    require_extra,
)
from sordino.ledger.address import Address
from sordino.ledger.schema import VERSION, create_tables, migrate, read_version
from sordino.ledger.store import Row, Store

_ONE_AT_A_TIME = 0x50_4D_55_54_45  # an arbitrary key: who holds it may change the tables

_STATES: dict[str, type[LedgerError]] = {
    "55P03": LedgerLockedError,  # lock_not_available
    "57014": LedgerLockedError,  # query_canceled, by a timeout of the server
    "40001": LedgerLockedError,  # serialization_failure
    "40P01": LedgerLockedError,  # deadlock_detected
    "25006": LedgerReadOnlyError,  # read_only_sql_transaction
    "42501": LedgerReadOnlyError,  # insufficient_privilege
    "42P01": LedgerCorruptError,  # undefined_table
    "42703": LedgerCorruptError,  # undefined_column
    "XX001": LedgerCorruptError,  # data_corrupted
    "XX002": LedgerCorruptError,  # index_corrupted
}
_REMEDIES: dict[type[LedgerError], str] = {
    LedgerLockedError: "Another process holds it for longer than the timeout; try again.",
    LedgerReadOnlyError: "Grant this role INSERT and UPDATE on the ledger's tables.",
    LedgerCorruptError: "Tables are damaged or missing; restore them from a backup.",
    LedgerError: "Check that the server can be reached and the URL is right.",
}


class PostgresStore(Store):
    """The ledger tables of one database, in the first schema of the search path."""

    begin_write: ClassVar[str] = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    begin_read: ClassVar[str] = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    for_update: ClassVar[str] = " FOR UPDATE"

    def __init__(self, url: Address, timeout: float, create: bool) -> None:
        self._psycopg = _driver()
        super().__init__(url, timeout)
        self._url = url
        self._prepare(create)

    @property
    def label(self) -> str:
        """The URL without user and password."""
        place = self.address.partition("://")[2].partition("?")[0]
        return f"postgresql://{place.rpartition('@')[2]}"

    @property
    def errors(self) -> type[Exception]:
        """The base class of the database's errors."""
        kind: type[Exception] = self._psycopg.Error
        return kind

    def connect(self) -> Any:
        """Open a session whose commits are durable and whose waits end."""
        connection = self._psycopg.connect(self._url.revealed(), autocommit=True, connect_timeout=10)
        milliseconds = max(1, round(self.timeout * 1000))  # 0 would mean to wait for ever
        connection.execute("SELECT set_config('lock_timeout', %s, false)", (f"{milliseconds}ms",))
        if connection.execute("SHOW synchronous_commit").fetchone() == ("off",):
            connection.execute("SET synchronous_commit = on")
        return connection

    def execute(self, statement: str, values: Sequence[object] = (), /) -> list[Row]:
        """Run one statement inside a transaction."""
        query = statement.replace("?", "%s").encode()
        cursor = self._connection.execute(query, values or None)
        rows: list[Row] = cursor.fetchall() if cursor.description else []
        return rows

    def translate(self, error: Exception) -> Exception:
        """Return the typed error for PostgreSQL's state."""
        if self._connection is not None and self._connection.closed:
            self._connection = None
        state = getattr(error, "sqlstate", None) or ""
        kind = _STATES.get(state, LedgerError)
        name = f"{type(error).__name__} {state}".strip()
        if self._url.revealed() != self._url:
            error.args = ("(the words of the server are left out: they may quote the URL)",)
        return kind(f"The ledger {self.label} cannot be used ({name}). {_REMEDIES[kind]}")

    def _prepare(self, create: bool) -> None:
        """Make the tables if there are none, and bring them up to date."""
        with self.transaction(write=False):
            version = read_version(self) if self._has_tables() else 0
        if version == VERSION:
            return
        if not version and not create:
            raise LedgerError(
                f"There is no ledger in {self.label}. Check the URL, or make one with "
                "`sordino ledger create`."
            )
        with self.transaction(write=True):
            self.execute(f"SELECT pg_advisory_xact_lock({_ONE_AT_A_TIME})")
            if self._has_tables():
                migrate(self)
            else:
                create_tables(self)

    def _has_tables(self) -> bool:
        # A query, not to_regclass: a session remembers for a while that there was no such table.
        query = (
            "SELECT count(*) FROM pg_catalog.pg_class"
            " WHERE relname = 'sordino_meta' AND pg_catalog.pg_table_is_visible(oid)"
        )
        return self.execute(query) != [(0,)]


def _driver() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise require_extra("psycopg", "postgres") from error
    return psycopg
