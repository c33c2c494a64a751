"""`sordino schema`: draft what the columns of a table mean, check it, and pay for what nobody knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sordino.cli import shared
from sordino.errors import SchemaError

if TYPE_CHECKING:
    from sordino import Schema

PLACE = click.argument("schema", type=click.Path(path_type=Path))


@click.group()
def schema() -> None:
    """Say what the columns of a table mean, before any record is read."""


KINDS = {
    "number": "A column of numbers; may be given often.",
    "category": "A column of categories.",
    "ordinal": "A column of levels in an order.",
    "flag": "A column of yes and no.",
    "date": "A column of dates.",
    "text": "A column of words.",
    "ignored": "A column to leave out.",
}


@schema.command()
@shared.DATA
@shared.all_of(
    *(
        click.option(
            f"--{'ignore' if kind == 'ignored' else kind}", kind, multiple=True, metavar="COLUMN", help=words
        )
        for kind, words in KINDS.items()
    )
)
@click.option("--target", metavar="COLUMN", help="The column to predict.")
@click.option("--person", metavar="COLUMN", help="The column that says whose record it is.")
@click.option("--rest", default="", help="The kind of all other columns; blank by default.")
@click.option("--output", type=shared.OUTPUT, help="A TOML file; else print.")
@shared.FORCE
@shared.JSON
def draft(
    data: str,
    target: str | None,
    person: str | None,
    rest: str,
    output: Path | None,
    **how: Any,
) -> None:
    """Write the names of the columns of DATA, with blanks to fill in.

    Of a CSV file only the first row is read, of Parquet and Arrow files the stored types as well: no record.
    """
    from sordino.tables import draft_schema
    from sordino.tables.files import replace_file

    said = {key: value for key, value in how.items() if key not in KINDS}
    file = shared.data_file(data, how)
    kinds = {column: kind for kind, columns in how.items() for column in columns}
    kinds |= {name: kind for name, kind in ((target, "target"), (person, "person")) if name is not None}
    text = draft_schema(file, kinds=kinds, rest=rest)
    if output is None:
        shared.result({"schema": text}, text.rstrip("\n"))
        return
    replace_file(output, text.encode())
    following = shared.command_line("schema", "check", output, data, **said)
    budget = f" {shared.budget_words(person)}" if person else ""
    words = f"{output} drafted; no record was read. Fill in the blanks.{budget}\nNext: {following}"
    shared.result({"output": output}, words)


@schema.command(name="show")
@PLACE
@shared.JSON
def show_schema(schema: Path) -> None:
    """Show what SCHEMA declares."""
    from sordino import Schema

    found = Schema.read(schema)
    if shared.wants_json():
        shared.document(_summary(found))
        return
    _print(found)


@schema.command()
@PLACE
@click.argument("data", required=False)
@shared.FILE
@click.option("--epsilon", type=float, help="Pay for the shares of values that are clipped, other, missing.")
@shared.TERMS
@shared.LEDGER
@shared.JSON
def check(schema: Path, data: str | None, **how: Any) -> None:
    """Check SCHEMA for blanks and mistakes, and the names of the columns of DATA against it.

    Blanks end with status 3, as mistakes do: a model cannot be fitted yet.
    A text file in which numbers, dates or flags are not spelt as a fit reads them is refused, all columns at
    once. Whether values fit is not told, for that would tell about records. With --epsilon it is told, with
    noise: which share of each column is clipped or "other", and which is missing.
    """
    from sordino import Schema
    from sordino.cli.rows import require_fit, table
    from sordino.tables import value_shares

    found, said = Schema.read(schema), {key: value for key, value in how.items() if key != "epsilon"}
    file = None if data is None else shared.data_file(data, how)
    if file is not None:
        require_fit(file, found)
    _check_unit(found, how)
    shares = None
    if how["epsilon"] is not None and not found.unknown:
        if file is None:
            raise click.UsageError("--epsilon pays for a look at the records: pass DATA.")
        budget = shared.take_budget(how)
        shares = value_shares(found, table(file, found, target=found.target is not None), **budget)
        shared.tell_budget(budget)
    if shared.wants_json():
        told: dict[str, Any] = {}
        if shares is not None:
            told = {"shares": shares._asdict(), "privacy": shares.privacy.to_dict()}
            del told["shares"]["privacy"]
        shared.document({**_summary(found), **told})
    if found.unknown:
        blank = ", ".join(f"{column.name} ({column.unknown})" for column in found.unknown)
        place = f"{schema.stem}-learned.toml"
        asked = {**said, "epsilon": 0.5, "output": place}
        pay = shared.command_line("schema", "learn", schema, data or "DATA", **asked)
        able = any(column.learnable for column in found.unknown)
        remedy = f"Fill in the blanks, or pay for them: {pay}" if able else "Fill in the blanks."
        raise SchemaError(f"Not declared yet: {blank}. {remedy}")
    if not shared.wants_json():
        click.echo(f"{len(found.columns)} columns declared, nothing is blank. Digest {found.digest[:12]}.")
        _warn_of_target(found)
        if shares is not None:
            _tell_shares(shares)
        learns = data or "DATA"
        if data is not None and data != "-" and found.target is not None and "train" not in Path(data).name:
            # a fit of the whole file would leave no records that judge it
            ending, name = shared.split_ending(file), said["dataset"] or Path(data).name.partition(".")[0]
            learns, judges = (f"{name}-{part}.{ending}" for part in ("train", "test"))
            apart = {key: value for key, value in said.items() if key not in _OF_FITS}
            split = shared.command_line("split", data, schema=schema, **apart, train=learns, test=judges)
            click.echo(f"Next: {split}\nThen: {shared.fit_line(learns, schema, found, **said)}")
            return
        click.echo(f"Next: {shared.fit_line(learns, schema, found, **said)}")


def _check_unit(found: Schema, how: dict[str, Any]) -> None:
    """Refuse a budget that protects records where the schema protects persons: fits would be."""
    if how["ledger"] is None or how["dataset"] is None or found.person is None:
        return
    with shared.open_ledger(how["ledger"]) as book:
        budget = book.policy(how["dataset"])
    if budget.unit == "record":
        terms = {"epsilon": f"{budget.epsilon:g}", "delta": f"{budget.delta:g}", "unit": "person"}
        raise SchemaError(
            f"The schema protects persons, the budget of {how['dataset']} records, for ever. A budget of "
            "another name protects persons, and nobody adds up what both cost: "
            + shared.command_line("ledger", "create", how["ledger"], "NAME", **terms)
            + " (`sordino init` asks whose a record is before there is a budget)"
        )


def _tell_shares(shares: Any) -> None:
    """Print which share of each column is clipped or other, and missing, and name those that are lost."""
    lines = [*zip(shares.columns, shares.outside, shares.missing, strict=True)]
    rows = [(name, f"{out:.1%}", f"{gap:.1%}") for name, out, gap in lines]
    shared.show_table(("column", "clipped or other", "missing"), rows)
    click.echo(f"Noise: {shares.noise:.2%} (one deviation). {shared.guarantee(shares.privacy)}.")
    if lost := [name for name, out, gap in lines if out + gap > 0.9]:
        click.echo(
            f"Note: hardly a value of {', '.join(lost)} is within what is declared: a flag is read as yes or "
            "no, a number as a number. Declare another kind, other levels or other bounds."
        )


_OF_FITS = ("delta", "relation", "ledger", "dataset")


def _warn_of_target(found: Schema) -> None:
    """Say how well a score will be known, and what `fit` will refuse or leave out of a target."""
    from sordino.estimators.metrics import outlook

    if found.target is None:
        click.echo('Note: no column has kind = "target": a model that predicts cannot be fitted.')
        return
    click.echo(outlook(found, 1000, 1.0))
    if shared.has_unordered_persons(found):
        click.echo(f"Note: {shared.ORDER_LOST}.")


@schema.command()
@PLACE
@shared.DATA
@shared.BUDGET
@shared.LEDGER
@click.option("--output", type=shared.OUTPUT, required=True, help="Where the completed schema is written.")
@shared.FORCE
@shared.JSON
def learn(schema: Path, data: str, output: Path, **how: Any) -> None:
    """Pay EPSILON for the bounds and levels that SCHEMA leaves blank, and write the completed schema.

    Bounds are private quantiles, levels are values whose noisy count exceeds a threshold. It is the first
    thing to do on a data set: part of it has no Rényi curve, so a ledger admits it first or by plain sums.
    """
    from sordino import Schema
    from sordino.cli.rows import table
    from sordino.tables import learn_schema
    from sordino.tables.files import replace_file
    from sordino.tables.learning import REMEDY

    said = {key: value for key, value in how.items() if key not in ("epsilon", "delta")}
    budget, blank = shared.take_budget(how), Schema.read(schema)
    records = table(shared.data_file(data, how), blank, target=blank.target is not None)
    found, report = learn_schema(blank, records, **budget, tell=lambda words: click.echo(words, err=True))
    replace_file(output, found.to_toml().encode())
    for column in found.columns:
        if REMEDY in (source := getattr(column, "source", "")):
            click.echo(f"Note: column {column.name!r}: {source}.", err=True)
    if shared.wants_json():
        shared.document({**_summary(found), "privacy": report.to_dict(), "output": output})
        return
    _print(found)
    click.echo(f"{output}: {shared.guarantee(report)}. It counts once, on top of what is fitted.")
    shared.tell_budget(budget)
    for column in found.unknown:
        click.echo(f"Still blank: {column.name} ({column.unknown}). Fill it in.")
    click.echo(f"Next: {shared.fit_line(data, output, found, **said)}")


def _summary(found: Schema) -> dict[str, Any]:
    columns = [
        {"name": c.name, "kind": c.word, "declares": c.describe(), "blank": c.unknown} for c in found.columns
    ]
    return {
        "digest": found.digest,
        "data_norm": found.data_norm,
        "learned": [{**price.to_dict(), "status": price.status} for price in found.learned],
        "columns": columns,
    }


def _print(found: Schema) -> None:
    rows = [(c.name, c.word, c.describe(), getattr(c, "source", "")) for c in found.columns]
    shared.show_table(("column", "kind", "declares", "source"), rows)
    if found.learned:
        paid = "; ".join(f"{price} ({price.status})" for price in found.learned)
        click.echo(f"Learned from records: {paid}.")
