"""A reservation in the hands of whoever is about to release something."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from sordino.errors import LedgerError, LedgerWarning, ReservationEndedError
from sordino.ledger.records import Entry, Status


class _Book(Protocol):
    def finish(self, dataset_id: str, sequence: int, status: Status, reason: str = "") -> Entry: ...

    def give_back(self, dataset_id: str, sequence: int) -> Entry: ...


@dataclass(frozen=True)
class Reservation:
    """Budget that is spent and may now be used, once.

    As a context manager it settles at the end of the block and fails on an error. Either way the
    budget stays spent: what was released cannot be taken back. It ends once, and in the process that
    made it: a copy in a fork or a pickle cannot say what became of the run. How it ended is a label: where
    the ledger is out of reach by then a warning says so, and what was released and paid for is not lost.
    """

    ledger: _Book
    entry: Entry
    process: int = field(default_factory=os.getpid, repr=False, compare=False)

    @property
    def dataset_id(self) -> str:
        """The data set it is booked on."""
        return self.entry.dataset_id

    @property
    def sequence(self) -> int:
        """Its place in the history, from one."""
        return self.entry.sequence

    def settle(self) -> None:
        """Write that everything planned was released."""
        self._end(Status.SETTLED)

    def fail(self, reason: str) -> None:
        """Write that the run failed. The reason must not contain anything from the data."""
        self._end(Status.FAILED, reason)

    def give_back(self) -> None:
        """Take it off the budget again: nothing was asked of a record under it, and nothing will be."""
        self.ledger.give_back(self.dataset_id, self.sequence)

    def _end(self, status: Status, reason: str = "") -> None:
        if os.getpid() != self.process:
            raise ReservationEndedError(
                f"Reservation {self.sequence} of {self.dataset_id!r} belongs to another process, it cannot "
                f"become {status.value} here. End it where it was made; it stays spent in any case."
            )
        try:
            self.ledger.finish(self.dataset_id, self.sequence, status, reason)
        except ReservationEndedError:
            raise
        except LedgerError as error:
            warnings.warn(
                f"Reservation {self.sequence} of {self.dataset_id!r} is {status.value}, and the ledger could "
                f"not be told, so it stays spent there as it was booked. {error}",
                LedgerWarning,
                stacklevel=3,
            )

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.settle()
        else:
            self.fail(kind.__name__)  # the message of an error may quote the data, its class not
