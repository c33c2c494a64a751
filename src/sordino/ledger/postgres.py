"""A ledger in PostgreSQL, for a team: a booking holds the row lock of its data set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from sordino.errors import (
    LedgerCorruptError,
    LedgerError,
    LedgerLockedError,
    LedgerReadOnlyError,
    import_extra,
)
from sordino.ledger.address import Address
from sordino.ledger.store import Row, Store, check_version, create_tables

_ONE_AT_A_TIME = 0x50_4D_55_54_45  # an arbitrary key: who holds it may change the tables

_TABLE = re.compile(r"\bsordino_(?:meta|datasets|reservations)\b")

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
    """The one ledger of a database, in whichever schema it was made: by default the first one of the
    search path of the role that made it. Its tables are always named with that schema.
    """

    begin_write: ClassVar[str] = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    begin_read: ClassVar[str] = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    for_update: ClassVar[str] = " FOR UPDATE"

    def __init__(self, url: Address, timeout: float, create: bool, migrate: bool = False) -> None:
        self._psycopg = import_extra("psycopg", "postgres")
        super().__init__(url, timeout)
        self._url = url
        self._schema: str | None = None
        self._prepare(create, migrate)

    @property
    def label(self) -> str:
        """The URL without user and password."""
        place = self.address.partition("://")[2].partition("?")[0]
        return f"postgresql://{place.rpartition('@')[2]}"

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        return (self._psycopg.Error,)

    def connect(self) -> Any:
        """Open a session whose commits are durable and whose waits end."""
        connection = self._psycopg.connect(self._url.reveal(), autocommit=True, connect_timeout=10)
        milliseconds = max(1, round(self.timeout * 1000))  # 0 would mean to wait for ever
        connection.execute("SELECT set_config('lock_timeout', %s, false)", (f"{milliseconds}ms",))
        if connection.execute("SHOW synchronous_commit").fetchone() == ("off",):
            connection.execute("SET synchronous_commit = on")
        return connection

    def execute(self, statement: str, values: Sequence[object] = (), /) -> list[Row]:
        if self._schema is not None:  # every table of the ledger is named by its schema
            quoted = '"' + self._schema.replace('"', '""').replace("%", "%%") + '".'
            statement = _TABLE.sub(lambda table: quoted + table[0], statement)
        cursor = self._connection.execute(statement.replace("?", "%s").encode(), values)
        rows: list[Row] = cursor.fetchall() if cursor.description else []
        return rows

    def translate(self, error: Exception) -> Exception:
        if self._connection is not None and self._connection.closed:
            self._connection = None
        state = getattr(error, "sqlstate", None) or ""
        kind = _STATES.get(state, LedgerError)
        name = f"{type(error).__name__} {state}".strip()
        if self._url.reveal() != self._url:
            error.args = ("(the words of the server are left out: they may quote the URL)",)
        return kind(f"The ledger {self.label} cannot be used ({name}). {_REMEDIES[kind]}")

    def _prepare(self, create: bool, migrate: bool) -> None:
        """Find the ledger of this database, or make it."""
        with self.transaction(write=migrate):
            found = self._find()
            if found:
                check_version(self, migrate)
        if found:
            return
        if not create:
            raise LedgerError(
                f"There is no ledger in {self.label}. Check the URL, or make one with "
                "`sordino ledger create`."
            )
        with self.transaction(write=True):
            self.execute(f"SELECT pg_advisory_xact_lock({_ONE_AT_A_TIME})")  # the whole database
            if self._find():
                check_version(self)
            else:
                (self._schema,) = self.execute("SELECT pg_catalog.current_schema()")[0]
                if self._schema is None:
                    raise LedgerError(
                        f"The role has no schema in {self.label} to make a ledger in. Let it use one, for "
                        "example `CREATE SCHEMA sordino`, and name it in the role's search_path."
                    )
                create_tables(self)

    def _find(self) -> bool:
        """Look for a ledger in every schema: a role that sees only its own must not get a second budget."""
        # A query, not to_regclass: a session remembers for a while that there was no such table.
        query = (
            "SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n"
            " ON n.oid = c.relnamespace WHERE c.relname = 'sordino_meta' AND c.relkind <> 'i'"
            " ORDER BY n.nspname"
        )
        schemas = [str(row[0]) for row in self.execute(query)]
        if len(schemas) > 1:
            raise LedgerError(
                f"The database {self.label} holds {len(schemas)} ledgers, in the schemas "
                f"{', '.join(schemas)}. Together they would admit more than either budget. Export them, "
                "import them into a database of one ledger, and drop the others."
            )
        self._schema = schemas[0] if schemas else None
        return bool(schemas)
