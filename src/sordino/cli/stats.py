"""`sordino stats`: counts, histograms, sums, means and quantiles of columns, by declared groups."""

from __future__ import annotations

from typing import Any

import click

from sordino.cli import shared
from sordino.errors import InvalidInputError

STATISTICS = ("count", "histogram", "sum", "mean", "quantile")


@click.command()
@click.argument("statistic", type=click.Choice(STATISTICS))
@shared.DATA
@shared.SCHEMA
@click.option("--column", help="The column of numbers; of count, one whose levels are counted.")
@click.option("--by", multiple=True, help="A column whose declared levels are the groups.")
@click.option("--levels", multiple=True, metavar="COLUMN=[LEVELS]", help="Where no schema declares them.")
@click.option("--edges", help="Of the bars of a histogram: 0,18,65,100.")
@click.option("--bounds", help="Of the numbers, which are clipped to them: 0,100. Else those of the schema.")
@click.option(
    "--rows-per-person",
    type=click.IntRange(1),
    help="So many rows of each person count, one by one; without a person column, nobody has more.",
)
@click.option("--q", multiple=True, help="Probabilities of quantiles: .5,.9; else .25, .5 and .75.")
@shared.BUDGET
@shared.LEDGER
@shared.JSON
@shared.config_option
def stats(statistic: str, data: str, **chosen: Any) -> None:
    """Release a STATISTIC (count, histogram, sum, mean, quantile) of DATA, with intervals, for a price.

    Groups, bounds and edges are declared, by a schema or here: taken from the data they would leak. All
    groups together cost what one does.
    """
    from sordino.cli.rows import read_schema

    file, schema = shared.data_file(data, chosen), read_schema(chosen.pop("schema"))
    budget = shared.take_budget(chosen)
    column, bounds, edges = chosen["column"], None, {}
    keys = dict.fromkeys([*chosen["by"], *([column] if column and statistic == "count" else [])])
    if column is None and statistic != "count":
        what = "--column and --edges" if statistic == "histogram" else "--column, a column of numbers"
        raise click.UsageError(f"A {statistic} needs {what}.")
    if statistic == "histogram":
        keys.pop(column, None)
        edges = {column: shared.numbers("--edges", chosen["edges"])}
    elif statistic != "count":
        bounds = shared.pair("--bounds", chosen["bounds"]) or _declared_column(schema, column, "bounds")
    typed = shared.values(chosen["levels"], "--levels")
    levels = {
        key: _spell(key, typed[key]) if typed.get(key) else _declared_column(schema, key, "levels")
        for key in keys
    }
    q = [q for text in chosen["q"] for q in shared.numbers("--q", str(text))] or [0.25, 0.5, 0.75]
    frame = _read(file, schema, [*levels], [*edges] if bounds is None else [column])
    asked = {"levels": levels, "edges": edges, "rows_per_person": chosen["rows_per_person"]}
    table = _ask(statistic, frame, schema, column, bounds, asked, q, budget)
    shared.tell_budget(budget)
    _tell(table, bounds if statistic == "mean" else None)


def _declared_column(schema: Any, name: str, what: str) -> Any:
    """Return the column that declares levels or bounds, with the price that was paid for them."""
    column = next((c for c in (schema.columns if schema is not None else ()) if c.name == name), None)
    remedy = "--bounds LOW,HIGH" if what == "bounds" else f"--levels '{name}=[...]'"
    if column is None:
        where = "no schema was given" if schema is None else "the schema has no such column"
        raise InvalidInputError(
            f"Column {name!r}: {what} are not declared, {where}. Pass {remedy}, or a --schema that has them."
        )
    ends = (getattr(column, end, None) for end in ("low", "high"))
    if what == "bounds" and not all(isinstance(end, float) for end in ends):
        raise InvalidInputError(f"Column {name!r}: it has no declared bounds of numbers. Pass {remedy}.")
    if what == "levels" and column.word != "flag" and not getattr(column, "levels", None):
        raise InvalidInputError(f"Column {name!r}: it has no declared levels. Pass {remedy}.")
    return column


def _spell(name: str, levels: Any) -> list[str]:
    """Return typed levels as texts, as which files are read; how a file spells true, nobody can know."""
    from sordino.tables.columns import check_levels

    if any(isinstance(level, bool) for level in (levels if isinstance(levels, list) else ())):
        raise click.UsageError(f'--levels {name}: write flags as the file spells them: ["true", "false"].')
    return list(check_levels(name, levels, 1) or ())


def _read(file: Any, schema: Any, texts: list[str], measured: list[str]) -> Any:
    """Return the columns that are needed, as a frame."""
    from sordino.tables.files import AS_IS, MARKERS, NUMBER, TEXT, read_names, read_table
    from sordino.tables.values import numbers_of

    person = getattr(schema, "person", None)
    kinds = dict.fromkeys(texts, TEXT) | dict.fromkeys(measured, NUMBER)
    kinds |= {} if person is None else {person.name: AS_IS}
    if not kinds:
        raise click.UsageError("Say what to count: --column or --by, or both.")
    names, markers = None, MARKERS if schema is None else (*schema.markers, "")
    if not file.header:
        names = read_names(file) if schema is None else [column.name for column in schema.columns]
    frame = read_table(file, kinds, names=names, markers=markers).to_pandas()
    for name in measured:
        frame[name] = numbers_of(name, frame[name], () if schema is None else markers)
    return frame


def _ask(
    statistic: str, frame: Any, schema: Any, column: str, bounds: Any, asked: dict[str, Any],
    q: list[float], budget: dict[str, Any],
) -> Any:  # fmt: skip
    """Ask the question; one plan, one reservation."""
    import numpy as np

    import sordino
    from sordino.estimators.statistics import check_bounds
    from sordino.tables.values import frame_of

    person = getattr(schema, "person", None)
    keys: dict[str, Any] = {name: frame[name] for name in (*asked["levels"], *asked["edges"])}
    found: Any = None
    if bounds is not None:
        low, high = check_bounds(bounds) or (0.0, 0.0)
        numbers = frame[column].to_numpy(dtype=float)
        gaps = np.isnan(numbers)
        found = np.clip(np.where(gaps, low, numbers), low, high)
        if not keys:
            every = "all records" if person is None else "all persons"
            keys = {"group": np.full(len(frame), every, dtype=object)}
            asked = {**asked, "levels": {"group": [every]}}
        first = next(iter(keys))  # a record without the number is in no group
        keys[first] = np.array(keys[first], dtype=object)
        keys[first][gaps] = None
    owners = None if person is None else schema.persons(frame_of(frame))
    grouped = sordino.group_by(keys, **{**asked, "edges": asked["edges"] or None}, groups=owners)
    if bounds is None:
        return grouped.count(**budget)
    more = (q,) if statistic == "quantile" else ()
    return getattr(grouped, statistic)(found, *more, bounds=bounds, **budget)


def _tell(table: Any, bounds: Any) -> None:
    from sordino.estimators.statistics import check_bounds

    records = table.records()
    if shared.wants_json():
        facts = {"statistic": table.statistic, "confidence": table.confidence, "rows": records}
        shared.document({**facts, "privacy": table.privacy.to_dict()})
        return
    ends = check_bounds(bounds)
    rows = [
        (*(str(record[key]) for key in table.keys),
         "not known" if (record["low"], record["high"]) == ends else f"{record[table.statistic]:.6g}",
         f"{record['low']:.6g} to {record['high']:.6g}")
        for record in records
    ]  # fmt: skip
    shared.show_table((*table.keys, table.statistic, f"{table.confidence:.0%} interval"), rows)
    click.echo(f"{shared.guarantee(table.privacy)}.")
    for note in table.privacy.notes:
        click.echo(f"Note: {note}.")
    shared.tell_schema_price(table.privacy)
