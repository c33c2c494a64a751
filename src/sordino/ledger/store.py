"""What a database has to do for a ledger: short transactions that are durable when they end."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Protocol

from sordino.errors import InvalidInputError, LedgerError
from sordino.ledger.policy import number

Row = tuple[Any, ...]

# Connections that a fork inherited. Closing one in the child would disturb the parent's, so they
# are kept from the garbage collector instead.
_INHERITED: list[object] = []


class Statements(Protocol):
    """Whatever runs a statement."""

    def execute(self, statement: str, values: Sequence[object] = ..., /) -> Any:
        """Run one statement."""


class Store(ABC):
    """One connection behind one lock, opened again after a fork.

    Statements are written with ``?`` for values. Everything a transaction wrote is on disk when
    its block ends, or nothing is.
    """

    begin_write: ClassVar[str]
    begin_read: ClassVar[str]
    for_update: ClassVar[str]

    def __init__(self, address: str, timeout: float) -> None:
        timeout = number(timeout, "timeout")
        if not 0 <= timeout <= 86_400:
            raise InvalidInputError(f"Expected a timeout of 0 to 86400 seconds, got {timeout}.")
        self.address = address
        self.timeout = timeout
        self._connection: Any = None
        self._closed = False
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    @abstractmethod
    def label(self) -> str:
        """Where the ledger is, in words that may be printed: without a password."""

    @abstractmethod
    def connect(self) -> Any:
        """Open a connection."""

    @abstractmethod
    def execute(self, statement: str, values: Sequence[object] = (), /) -> list[Row]:
        """Run one statement inside a transaction."""

    @abstractmethod
    def translate(self, error: Exception) -> Exception:
        """Return the typed error for what the database said."""

    @property
    @abstractmethod
    def errors(self) -> type[Exception]:
        """The base class of the database's errors."""

    def begin(self, write: bool) -> None:
        """Begin a transaction; wait for other writers, but not longer than the timeout."""
        self.execute(self.begin_write if write else self.begin_read)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Store]:
        """Run a block all or nothing; it is durable when the block has ended."""
        self._after_fork()
        with self._lock, self._translated():
            if self._closed:
                raise LedgerError(f"The ledger {self.label} was closed. Open it again.")
            if self._connection is None:
                self._connection = self.connect()
            yield from self._block(write)

    def _block(self, write: bool) -> Iterator[Store]:
        self.begin(write)
        try:
            yield self
            self.execute("COMMIT")
        except BaseException:
            # If even this fails the connection is lost, and the database rolls back by itself.
            try:
                self.execute("ROLLBACK")
            except Exception:
                self._drop()
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self.errors as error:
            raise self.translate(error) from error

    def close(self) -> None:
        """Close the connection. Reservations that were made stay spent."""
        self._after_fork()
        with self._lock:
            self._closed = True
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _after_fork(self) -> None:
        if self._process != os.getpid():
            _INHERITED.append(self._connection)
            self._connection, self._lock = None, threading.Lock()
            self._process = os.getpid()

    def __del__(self) -> None:
        with suppress(Exception):
            if self._process == os.getpid():
                self._drop()
            else:
                _INHERITED.append(self._connection)
