"""The `sordino` command; every subcommand imports what it needs only when it runs."""

import click

from sordino import __version__
from sordino.cli.account import account
from sordino.cli.answers import evaluate, predict
from sordino.cli.exits import Program
from sordino.cli.fit import audit, fit, pca, tune
from sordino.cli.ledger import ledger
from sordino.cli.look import inspect, report
from sordino.cli.migrate import migrate
from sordino.cli.parties import consortium, party
from sordino.cli.published import datasets, reproduce
from sordino.cli.schema import schema
from sordino.cli.shared import JSON, result
from sordino.cli.split import split
from sordino.cli.start import completion, doctor, init
from sordino.cli.stats import stats


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def main() -> None:
    """Learn from sensitive data with privacy guarantees that are true."""


@main.command()
@JSON
def version(as_json: bool) -> None:
    """Print the installed version."""
    result(as_json, {"version": __version__}, __version__)


@main.command()
@click.option(
    "--report",
    default="demo-report.html",
    show_default=True,
    type=click.Path(dir_okay=False, writable=True),
    help="Where to write the HTML report.",
)
@JSON
def demo(report: str, as_json: bool) -> None:
    """Compare private with non-private learning on data made on the spot."""
    from sordino.cli.demo import run

    run(report, as_json)


for command in (
    init, doctor, completion, schema, split, fit, predict, inspect, evaluate, report, stats, pca, tune,
    account, audit, ledger, migrate, party, consortium, datasets, reproduce,
):  # fmt: skip
    main.add_command(command)
