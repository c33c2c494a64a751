"""`sordino reproduce`: the published tables beside ours."""

from __future__ import annotations

from pathlib import Path

import click

from sordino.errors import SordinoError


@click.command()
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Run every table.")
@click.option("--quick", is_flag=True, help="One run per cell, without tuning.")
@click.option("--list", "listing", is_flag=True, help="List the tables and stop.")
@click.option(
    "--to",
    "folder",
    default="reproduced",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of the results; a run that was interrupted goes on there.",
)
def reproduce(name: str | None, everything: bool, quick: bool, listing: bool, folder: Path) -> None:
    """Set a published table beside its certified epsilon and ours.

    NAME is a table of the list (`--list`). Each writes its results (JSON), a page (Markdown) and a
    figure. A table whose data are not found is named and left out.
    """
    from sordino.reproduce import TABLES, table_named

    if listing:
        for known in sorted(TABLES):
            click.echo(f"{known:18} {table_named(known).source}")
        return
    if everything == (name is not None):
        raise click.UsageError("Name one table, or say --all; --list names them.")
    absent = [one for one in (sorted(TABLES) if everything else [str(name)]) if not _run(one, folder, quick)]
    if absent:
        click.echo(f"Left out, because their data are not here: {', '.join(absent)}.", err=True)
        raise click.exceptions.Exit(0 if everything else 1)


def _run(name: str, folder: Path, quick: bool) -> bool:
    """Run one table; tell whether its data were found."""
    from sordino.errors import DataNotFoundError
    from sordino.reproduce import reproduce as run

    def say(key: str, done: int, of: int) -> None:
        click.echo(f"{name} {done + 1}/{of}: {key}", err=True)

    try:
        page = run(name, folder, quick=quick, progress=say)
    except DataNotFoundError as error:
        click.echo(f"{name}: {error}", err=True)
        return False
    except SordinoError as error:
        raise click.ClickException(str(error)) from error
    click.echo(str(page))
    return True
