"""The command line, `sordino`."""

from sordino.cli.program import main

__all__ = ["main"]
