"""A ledger in one SQLite file: write-ahead log, full synchronisation, immediate transactions."""

from __future__ import annotations

import os
import shlex
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar

from sordino.errors import (
    InvalidInputError,
    LedgerCorruptError,
    LedgerError,
    LedgerLockedError,
    LedgerReadOnlyError,
)
from sordino.ledger.store import Row, Store, check_version, create_tables

_CODES: dict[int, type[LedgerError]] = {
    sqlite3.SQLITE_BUSY: LedgerLockedError,
    sqlite3.SQLITE_LOCKED: LedgerLockedError,
    sqlite3.SQLITE_READONLY: LedgerReadOnlyError,
    sqlite3.SQLITE_PERM: LedgerReadOnlyError,
    sqlite3.SQLITE_CORRUPT: LedgerCorruptError,
    sqlite3.SQLITE_NOTADB: LedgerCorruptError,
    sqlite3.SQLITE_ERROR: LedgerCorruptError,  # a table or a column is missing
}
_REMEDIES: dict[type[LedgerError], str] = {
    LedgerLockedError: "Another process holds it for longer than the timeout; try again.",
    LedgerReadOnlyError: "Let this user write the file and its folder; SQLite needs both.",
    LedgerCorruptError: "It is damaged or not a ledger; restore it from a backup.",
    LedgerError: "Look at the disk (space, rights, network) and try again.",
}


PATIENCE_MS = 5  # within it SQLite looks after 1, 3 and 5 ms


class SQLiteStore(Store):
    """The ledger file. ``synchronous=FULL`` makes a commit survive the loss of power."""

    begin_write: ClassVar[str] = "BEGIN IMMEDIATE"
    begin_read: ClassVar[str] = "BEGIN"
    for_update: ClassVar[str] = ""

    def __init__(
        self, path: str | os.PathLike[str], timeout: float, create: bool, migrate: bool = False
    ) -> None:
        self.path = _check_path(path)
        super().__init__(str(self.path), timeout)
        self._file: tuple[int, int] | None = None
        if create and not self.path.exists():
            self._create()
        self._require_file()
        with self.transaction(write=migrate):
            check_version(self, migrate)

    @property
    def label(self) -> str:
        return str(self.path)

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The base class of the database's errors, and text of its pages that is no text."""
        return sqlite3.Error, UnicodeDecodeError

    def connect(self) -> sqlite3.Connection:
        """Open the file; it is never created here, so a lost ledger is not a fresh budget."""
        self._require_file()
        connection = _connection(self.path, self.timeout)
        self._file = _identity(self.path)
        return connection

    def execute(self, statement: str, values: Sequence[object] = (), /) -> list[Row]:
        rows: list[Row] = self._connection.execute(statement, values).fetchall()
        return rows

    def back_up(self, version: int) -> None:
        """Copy what is committed to ``NAME.vVERSION.bak``; nobody writes while the transaction is open."""
        self.copy_to(self.path.with_name(f"{self.path.name}.v{version}.bak"))

    def copy_to(self, copy: Path) -> None:
        """Copy what is committed to a new file that only its owner may read; writers go on meanwhile."""
        try:
            os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError as error:
            raise LedgerError(
                f"Cannot make the copy {copy}: {error.strerror}. Move it away, or free the place."
            ) from None
        with closing(_connection(self.path, self.timeout)) as here, closing(sqlite3.connect(copy)) as there:
            here.backup(there)

    def begin(self, write: bool) -> None:
        """Begin a transaction; writers look often whether it is their turn.

        SQLite's own wait sleeps longer and longer, up to 100 ms, which starves those who have
        waited for long and leaves the file idle between two short transactions.
        """
        if not write:
            return super().begin(write)
        if _identity(self.path) != self._file:
            self._drop()
            raise LedgerError(
                f"The ledger {self.label} was removed or replaced while it was open. Nothing was "
                "written. Put the file back, or open the new one."
            )
        self.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")
        deadline = time.monotonic() + self.timeout
        try:
            while True:
                try:
                    return super().begin(write)
                except sqlite3.OperationalError as error:
                    busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                    if not busy or time.monotonic() >= deadline:
                        raise
        finally:
            self.execute(f"PRAGMA busy_timeout = {round(self.timeout * 1000)}")

    def translate(self, error: Exception) -> Exception:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        kind = _CODES.get(code, LedgerError)
        own = os.access in os.supports_effective_ids
        rights = (os.access(place, os.W_OK, effective_ids=own) for place in (self.path, self.path.parent))
        if code == sqlite3.SQLITE_CANTOPEN and not all(rights):
            kind = LedgerReadOnlyError
        elif code == 0 and isinstance(error, (sqlite3.OperationalError, UnicodeDecodeError)):
            kind = LedgerCorruptError  # the binding found text that is no text
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        return kind(f"The ledger {self.label} cannot be used ({name}). {_REMEDIES[kind]}")

    def check_pages(self) -> None:
        """Let SQLite check every page, inside a transaction."""
        if self.execute("PRAGMA integrity_check") != [("ok",)]:
            raise LedgerCorruptError(f"The ledger {self.label} fails SQLite's integrity check.")

    def _require_file(self) -> None:
        if not self.path.exists():
            raise LedgerError(
                f"There is no ledger at {self.label}. Check the path or restore a backup; only if nothing "
                "was ever released, make one: sordino ledger create "
                f"{shlex.quote(self.label)} DATASET --epsilon 3 --delta 1e-5"
            )
        if self.path.stat().st_size == 0:
            raise LedgerCorruptError(
                f"The ledger {self.label} is empty (0 bytes), which a ledger never is. Restore it "
                "from a backup; delete it only if nothing was ever released."
            )

    def _create(self) -> None:
        """Make the file under another name and link it into place, complete or not at all."""
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            draft.unlink(missing_ok=True)
            # Only its owner may read it; -wal and -shm get the same rights.
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with self._translate_errors(), closing(_connection(draft, self.timeout)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                create_tables(connection)
                connection.execute("COMMIT")
            with suppress(FileExistsError):  # another process was faster; its file is the ledger
                os.link(draft, self.path)
            with suppress(OSError, AttributeError):  # the name is made durable where the system can
                folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except OSError as error:
            kind = LedgerReadOnlyError if isinstance(error, PermissionError) else LedgerError
            raise kind(
                f"The ledger {self.label} cannot be created ({type(error).__name__}). Choose a folder on a "
                "local disk that this user may write."
            ) from error
        finally:
            draft.unlink(missing_ok=True)


def _check_path(path: str | os.PathLike[str]) -> Path:
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text or text.startswith(":memory:"):
        raise InvalidInputError(
            f"Expected the path of a file, got {text!r}. A ledger lives on disk: what was "
            "released stays released when the program ends."
        )
    result = Path(text).expanduser().resolve()
    if result.is_dir():
        raise InvalidInputError(f"Expected the path of a file, but {result} is a folder.")
    if not result.parent.is_dir():
        raise LedgerError(f"The folder {result.parent} of the ledger does not exist. Make it first.")
    return result


def _connection(path: Path, timeout: float) -> sqlite3.Connection:
    place = f"{path.as_uri()}?mode=rw"
    connection = sqlite3.connect(
        place, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # on macOS a plain fsync is not enough
        connection.execute("PRAGMA foreign_keys = ON")
        if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            connection.execute("PRAGMA journal_mode = WAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None
