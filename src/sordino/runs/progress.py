"""Progress on long work: silent unless asked for and standard error is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any


def track(steps: Iterator[Any], total: int, description: str, verbose: int | bool) -> Iterator[Any]:
    """Pass the steps on and show how far the run is; never a loss, which would leak."""
    if not verbose or not sys.stderr.isatty():
        yield from steps
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description or "fitting", total=total)
        for step in steps:
            bar.advance(task)
            yield step
