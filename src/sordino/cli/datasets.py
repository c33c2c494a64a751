"""`sordino datasets`: the public data sets that can be loaded by name."""

from __future__ import annotations

import click

from sordino.cli import options, show


@click.command()
@click.argument("name", required=False)
@options.JSON
def datasets(name: str | None, as_json: bool) -> None:
    """List the public data sets of `sordino.datasets.load`, or describe the one called NAME."""
    from sordino.datasets import REGISTRY
    from sordino.errors import DataNotFoundError

    if name is not None and name not in REGISTRY:
        raise DataNotFoundError(f"There is no data set {name!r}. Known are: {', '.join(REGISTRY)}.")
    chosen = REGISTRY.values() if name is None else [REGISTRY[name]]
    if as_json:
        show.document(
            [
                {
                    "name": d.name,
                    "title": d.title,
                    "task": d.task,
                    "shapes": dict(d.shapes),
                    "licence": d.licence,
                }
                for d in chosen
            ]
        )
    elif name is not None:
        click.echo(REGISTRY[name].describe())
    else:
        rows = [(d.name, " x ".join(f"{n:,}" for n in d.shapes["train"]), d.task) for d in chosen]
        show.table(("name", "training rows x columns", "task"), rows)
