"""What may be said of a guarantee, from best to worst."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Status(StrEnum):
    """Whether a guarantee holds, or why it does not; the order is from best to worst.

    A composition, and a run that reads a learned schema, has the worst status of its parts.
    """

    PRIVATE = "private"
    COPY = "unverified copy"
    SEEDED = "seeded (not private)"
    APART = "not private (a schema was learned for another unit or relation)"
    UNPROVEN = "not private (parts of it are not proven)"
    UNPAID = "not private (a step reads the records and paid nothing)"
    NO_NOISE = "not private (no noise)"

    @classmethod
    def worst(cls, parts: Iterable[Status]) -> Status:
        """Return the worst of some statuses; without any, the best one there is."""
        order = list(cls)
        return max(parts, key=order.index, default=cls.PRIVATE)

    def __repr__(self) -> str:
        return repr(self.value)

    @property
    def holds(self) -> bool:
        """Whether numbers of this status are a guarantee, certified here or copied."""
        return self in (Status.PRIVATE, Status.COPY)
