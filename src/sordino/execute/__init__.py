"""Where the data lives."""

from sordino.execute.local import LocalExecutor

__all__ = ["LocalExecutor"]
