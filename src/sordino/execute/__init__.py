"""Where the data lives."""

from sordino.execute.grouped import GroupedExecutor
from sordino.execute.local import LocalExecutor

__all__ = ["GroupedExecutor", "LocalExecutor"]
