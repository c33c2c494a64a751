"""A reservation in the hands of whoever is about to release something."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from sordino.ledger.records import Entry, Status


class _Book(Protocol):
    def finish(self, dataset_id: str, sequence: int, status: Status, reason: str = "") -> Entry: ...


@dataclass(frozen=True)
class Reservation:
    """Budget that is spent and may now be used, once.

    As a context manager it settles at the end of the block and fails on an error. Either way the
    budget stays spent: what was released cannot be taken back.
    """

    ledger: _Book
    entry: Entry

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
        self.ledger.finish(self.dataset_id, self.sequence, Status.SETTLED)

    def fail(self, reason: str) -> None:
        """Write that the run failed. The reason must not contain anything from the data."""
        self.ledger.finish(self.dataset_id, self.sequence, Status.FAILED, reason)

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
