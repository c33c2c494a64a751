"""Executors, which hold the data: in memory, by person, in chunks, as tensors, on clusters, by party."""

from sordino.execute.local import (
    Held,
    HeldColumn,
    LocalExecutor,
    applied,
    executor_of,
    held,
    held_columns,
    held_numbers,
    in_dask,
    is_sparse,
    look_up,
    untensored,
)
from sordino.execute.persons import GroupedExecutor

__all__ = [
    "GroupedExecutor",
    "Held",
    "HeldColumn",
    "LocalExecutor",
    "applied",
    "executor_of",
    "held",
    "held_columns",
    "held_numbers",
    "in_dask",
    "is_sparse",
    "look_up",
    "untensored",
]
