"""Executors, which hold the data: in memory, by person, in chunks, as tensors, on clusters, by party."""

from sordino.execute.grouped import GroupedExecutor
from sordino.execute.held import (
    Held,
    HeldColumn,
    executor_of,
    held,
    held_numbers,
    is_sparse,
    taken,
    untensored,
)
from sordino.execute.local import LocalExecutor

__all__ = [
    "GroupedExecutor",
    "Held",
    "HeldColumn",
    "LocalExecutor",
    "executor_of",
    "held",
    "held_numbers",
    "is_sparse",
    "taken",
    "untensored",
]
