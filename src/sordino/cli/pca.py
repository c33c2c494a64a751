"""`sordino pca`: private principal components of a data file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sordino.cli import config, options, show
from sordino.cli.fit import finish, now, run_facts
from sordino.cli.look import write_page


@click.command()
@options.DATA
@options.SCHEMA
@click.option("--components", type=click.IntRange(1), default=2, show_default=True, help="How many axes.")
@click.option("--data-norm", type=float, help="Rows are clipped to this norm; a schema has one of its own.")
@options.BUDGET
@options.LEDGER
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="Any parameter of PCA.")
@click.option("--output", type=options.OUTPUT, required=True, help="Where the model goes.")
@options.REPORT
@options.FORCE
@options.JSON
@config.config_option
def pca(
    data: str,
    components: int,
    data_norm: float | None,
    output: Path,
    report: Path | None,
    force: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Find the axes along which the rows of DATA vary most, privately, and save them."""
    from sordino import PCA
    from sordino.cli.rows import known_schema, to_project

    settings, started = config.settings(click.get_current_context()), now()
    show.require_model_place(output, force, report)
    schema = known_schema(chosen["schema"])
    ledger, dataset = options.check_booking(chosen["ledger"], chosen["dataset"])
    params = {name: chosen[name] for name in ("epsilon", "delta", "relation")}
    params |= {"ledger": ledger, "dataset_id": dataset, "data_norm": data_norm, "verbose": 1}
    params |= options.parameters(chosen["given"], "--set")
    options.known_parameters(PCA, params)
    rows = to_project(options.data_file(data, chosen), schema)
    model = PCA(components, **params, schema=schema).fit(rows)
    run = finish(model, output, as_json, run_facts("pca", settings, started, data, rows.shape[0]))
    if report is not None:
        write_page(model, report, run, ledger=ledger)
