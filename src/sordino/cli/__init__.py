"""The command line, `sordino`."""

from sordino.cli.main import main

__all__ = ["main"]
