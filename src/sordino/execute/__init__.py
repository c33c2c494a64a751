"""Executors, which hold the data: in memory, by person, in chunks, as tensors, between parties."""

from sordino.execute.grouped import GroupedExecutor
from sordino.execute.local import LocalExecutor

__all__ = ["GroupedExecutor", "LocalExecutor"]
