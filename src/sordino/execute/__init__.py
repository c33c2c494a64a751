"""Executors, which hold the data: in memory, by person, in chunks, as tensors, on clusters, by party."""

from sordino.execute.local import (
    Held,
    HeldColumn,
    LocalExecutor,
    apply_by_block,
    executor_of,
    hold,
    hold_columns,
    hold_numbers,
    in_dask,
    is_sparse,
    look_up,
    strip_tensor,
)
from sordino.execute.persons import GroupedExecutor

__all__ = [
    "GroupedExecutor", "Held", "HeldColumn", "LocalExecutor", "apply_by_block", "executor_of", "hold",
    "hold_columns", "hold_numbers", "in_dask", "is_sparse", "look_up", "strip_tensor",
]  # fmt: skip
