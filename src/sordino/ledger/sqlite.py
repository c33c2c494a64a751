"""A ledger in one SQLite file: write-ahead log, full synchronisation, immediate transactions."""

from __future__ import annotations

import os
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
        self.path = _checked(path)
        super().__init__(str(self.path), timeout)
        self._file: tuple[int, int] | None = None
        if create and not self.path.exists():
            self._create()
        self._require_file()
        with self.transaction(write=migrate):
            check_version(self, migrate)

    @property
    def label(self) -> str:
        """The path of the file."""
        return str(self.path)

    @property
    def errors(self) -> type[Exception]:
        """The base class of the database's errors."""
        return sqlite3.Error

    def connect(self) -> sqlite3.Connection:
        """Open the file; it is never created here, so a lost ledger is not a fresh budget."""
        self._require_file()
        connection = _connection(self.path, self.timeout)
        self._file = _identity(self.path)
        return connection

    def execute(self, statement: str, values: Sequence[object] = (), /) -> list[Row]:
        """Run one statement inside a transaction."""
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
        self._require_same_file()
        self.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")
        deadline = time.monotonic() + self.timeout
        try:
            while not self._began():
                if time.monotonic() >= deadline:
                    super().begin(write)
                    break
        finally:
            self.execute(f"PRAGMA busy_timeout = {round(self.timeout * 1000)}")
        return None

    def _began(self) -> bool:
        try:
            self.execute(self.begin_write)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    def _require_same_file(self) -> None:
        """Refuse to write into a file that was removed or exchanged since it was opened."""
        if _identity(self.path) != self._file:
            self._drop()
            raise LedgerError(
                f"The ledger {self.label} was removed or replaced while it was open. Nothing was "
                "written. Put the file back, or open the new one."
            )

    def translate(self, error: Exception) -> Exception:
        """Return the typed error for SQLite's code."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        kind = _CODES.get(code, LedgerError)
        if code == sqlite3.SQLITE_CANTOPEN and not _writable(self.path):
            kind = LedgerReadOnlyError
        elif code == 0 and isinstance(error, sqlite3.OperationalError):
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
                f"There is no ledger at {self.label}. Check the path, or make one with "
                "`sordino ledger create`."
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
            with self._translate_errors():
                _write_empty(draft, self.timeout)
            with suppress(FileExistsError):  # another process was faster; its file is the ledger
                os.link(draft, self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise _cannot_create(self.label, error) from error
        finally:
            draft.unlink(missing_ok=True)


def _checked(path: str | os.PathLike[str]) -> Path:
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


def _connection(path: Path, timeout: float, mode: str = "rw") -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
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


def _write_empty(path: Path, timeout: float) -> None:
    """Write a ledger without data sets that only its owner may read; -wal and -shm get the same rights."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    connection = _connection(path, timeout, mode="rwc")
    try:
        connection.execute("BEGIN IMMEDIATE")
        create_tables(connection)
        connection.execute("COMMIT")
    finally:
        connection.close()


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def _writable(path: Path) -> bool:
    effective = os.access in os.supports_effective_ids
    places = (path, path.parent)
    return all(os.access(place, os.W_OK, effective_ids=effective) for place in places)


def _sync_folder(folder: Path) -> None:
    """Make the name of a new file durable, where the system can."""
    with suppress(OSError, AttributeError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _cannot_create(label: str, error: OSError) -> LedgerError:
    kind = LedgerReadOnlyError if isinstance(error, PermissionError) else LedgerError
    return kind(
        f"The ledger {label} cannot be created ({type(error).__name__}). Choose a folder on a "
        "local disk that this user may write."
    )
