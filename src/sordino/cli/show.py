"""What commands print: tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from sordino.errors import InvalidInputError


def document(values: Any) -> None:
    """Print one JSON document."""
    click.echo(text(values))


def result(as_json: bool, values: dict[str, Any], words: str) -> None:
    """Print what a command did: a document for programs, or a sentence for people."""
    if as_json:
        document(values)
    else:
        click.echo(words)


def text(values: Any) -> str:
    """Return values as one JSON document."""
    return json.dumps(plain(values), indent=2, allow_nan=False)


def plain(value: Any) -> Any:
    """Return what JSON can hold; numbers that are not finite become texts."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; without titles, of names and values."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    out = Table(*titles, box=box.SIMPLE_HEAD, show_header=any(titles))
    for row in rows:
        out.add_row(*row)
    Console(markup=False, emoji=False, highlight=False).print(out)


def bound(found: Any) -> str:
    """Return epsilon and delta of a report or a certificate, rounded up as all that is guaranteed."""
    from sordino.runs.meaning import at_most

    return f"epsilon {at_most(found.epsilon)}, delta {at_most(found.delta, 3)}"


def guarantee(report: Any) -> str:
    """Return a report in one line, with the warning that a large epsilon needs."""
    text = f"{bound(report)} per {report.unit} ({report.relation.value}); {report.status}"
    return text if report.warning is None else f"{text}; {report.warning}"


def told_schema(report: Any) -> None:
    """Say what the schema of a run cost, where that was learned from records."""
    if report.on_top is not None:
        click.echo(report.on_top)


def require_model_place(path: Path, force: bool, page: Path | None = None) -> None:
    """Refuse where a model, or a page about it, could not be saved, before it is paid for."""
    from sordino.saving.files import require_saving

    require_saving()
    for place in (path,) if page is None else (path, page):
        require_writable(place, force)


def require_writable(path: Path, force: bool) -> None:
    """Refuse a result's place before anything is paid for the result."""
    folder = path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InvalidInputError(f"Cannot write {path.name!r}: {str(folder)!r} is no folder one can write to.")
    if path.is_dir():
        raise InvalidInputError(f"Cannot write {str(path)!r}: it is a folder.")
    if path.exists() and not force:
        raise InvalidInputError(f"{str(path)!r} exists. Choose another place, or pass --force.")
