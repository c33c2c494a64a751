"""`sordino datasets` and `sordino reproduce`: public data and published tables."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import click

from sordino.cli.shared import JSON, document, show_table, wants_json
from sordino.errors import DataNotFoundError, MissingExtraError


@click.command()
@click.argument("name", required=False)
@JSON
def datasets(name: str | None) -> None:
    """List the public data sets of `sordino.datasets.load`, or describe the one called NAME."""
    from sordino.datasets import REGISTRY

    if name is not None and name not in REGISTRY:
        raise DataNotFoundError(f"There is no data set {name!r}. Known are: {', '.join(REGISTRY)}.")
    chosen = REGISTRY.values() if name is None else [REGISTRY[name]]
    if wants_json():
        keys = ("name", "title", "task", "shapes", "licence")
        document([{key: getattr(d, key) for key in keys} for d in chosen])
    elif name is not None:
        click.echo(REGISTRY[name].describe())
    else:
        rows = [(d.name, " x ".join(f"{n:,}" for n in d.shapes["train"]), d.task) for d in chosen]
        show_table(("name", "training rows x columns", "task"), rows)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="Run every table.")
@click.option("--quick", is_flag=True, help="One run per cell, without tuning.")
@click.option(
    "--jobs",
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="the cores",
    type=click.IntRange(1),
    help="Processes that share the runs.",
)
@click.option(
    "--minutes", default=math.inf, help="Start no run of a table after so many; what is made is kept."
)
@click.option("--list", "listing", is_flag=True, help="List the tables and stop.")
@click.option(
    "--to",
    "folder",
    default="reproduced",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the results; a run that was interrupted goes on there.",
)
def reproduce(names: tuple[str, ...], everything: bool, listing: bool, folder: Path, **how: Any) -> None:
    """Set published tables beside their certified epsilon and ours.

    A NAME is a table of the list (`--list`). Each writes its results (JSON) and a page (Markdown). A table
    whose data are not found is named and left out.
    """
    from sordino.literature.reproduce import TABLES, table_named

    if listing:
        for known in sorted(TABLES):
            try:
                table = table_named(known)
                words = f"{table.source} [data: {', '.join(table.needs) or 'made on the spot'}]"
            except MissingExtraError as error:  # why it cannot be run here
                words = str(error)
            click.echo(f"{known:18} {words}")
        return
    if everything == bool(names):
        raise click.UsageError("Name tables, or say --all; --list names them.")
    absent = [one for one in (sorted(TABLES) if everything else names) if not _run(one, folder, **how)]
    if absent:
        click.echo(f"Left out, because their data or PyTorch are not here: {', '.join(absent)}.", err=True)
        raise click.exceptions.Exit(0 if everything else 1)


def _run(name: str, folder: Path, **how: Any) -> bool:
    """Run one table; tell whether its data and packages were found."""
    from sordino.literature.reproduce import reproduce as run

    def say(key: str, done: int, of: int) -> None:
        click.echo(f"{name} {done + 1}/{of}: {key}", err=True)

    try:
        page = run(name, folder, **how, progress=say)
    except (DataNotFoundError, MissingExtraError) as error:
        click.echo(f"{name}: {error}", err=True)
        return False
    click.echo(str(page))
    return True
