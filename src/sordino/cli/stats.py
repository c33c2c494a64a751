"""`sordino stats`: counts, histograms, sums, means and quantiles of columns, by declared groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from sordino.cli.shared import (
    BUDGET,
    DATA,
    JSON,
    LEDGER,
    SCHEMA,
    UNBOOKED,
    check_booking,
    config_option,
    data_file,
    document,
    guarantee,
    numbers,
    pair,
    show_table,
    tell_schema_price,
    values,
)
from sordino.errors import InvalidInputError

STATISTICS = ("count", "histogram", "sum", "mean", "quantile")
_ALL = {"record": "all records", "person": "all rows of all persons"}


@click.command()
@click.argument("statistic", type=click.Choice(STATISTICS))
@DATA
@SCHEMA
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
@BUDGET
@LEDGER
@JSON
@config_option
def stats(statistic: str, data: str, as_json: bool, **chosen: Any) -> None:
    """Release a STATISTIC (count, histogram, sum, mean, quantile) of DATA, with intervals, for a price.

    Groups, bounds and edges are declared, by a schema or here: taken from the data they would leak. All
    groups together cost what one does.
    """
    from sordino.cli.rows import read_schema

    file, schema = data_file(data, chosen), read_schema(chosen.pop("schema"))
    ledger, dataset = check_booking(chosen.pop("ledger"), chosen.pop("dataset"))
    wanted = _Wanted.checked(statistic, schema, chosen)
    budget = {name: chosen[name] for name in ("epsilon", "delta", "relation")}
    table = wanted.asked(wanted.read(file), {**budget, "ledger": ledger, "dataset_id": dataset})
    if ledger is None:
        click.echo(UNBOOKED, err=True)
    _tell(table, as_json)


class _Wanted:
    """What is asked: the column of numbers, its bounds, and the keys with their levels or edges."""

    def __init__(self, statistic: str, schema: Any) -> None:
        self.statistic, self.schema = statistic, schema
        self.column: str | None = None
        self.bounds: Any = None
        self.q: list[float] = []
        self.levels: dict[str, Any] = {}
        self.edges: dict[str, Any] = {}
        self.person = getattr(schema, "person", None)
        self.most: int | None = None

    @classmethod
    def checked(cls, statistic: str, schema: Any, chosen: Mapping[str, Any]) -> _Wanted:
        """Complete what was typed from the schema; refuse what nobody declared, before data is read."""
        out, column = cls(statistic, schema), chosen["column"]
        out.most = chosen["rows_per_person"]
        typed = values(chosen["levels"], "--levels")
        keys = list(chosen["by"])
        if statistic in ("count", "histogram"):
            keys += [] if column is None else [column]
        elif column is None:
            raise click.UsageError(f"A {statistic} needs --column, a column of numbers.")
        else:
            bounds = pair("--bounds", chosen["bounds"])
            out.column, out.bounds = column, bounds or _bounds(schema, column)
        for key in keys:
            if statistic == "histogram" and key == column:
                out.edges[key] = numbers("--edges", chosen["edges"])
            else:
                out.levels[key] = _spelt(key, typed[key]) if typed.get(key) else _levels(schema, key)
        if statistic == "histogram" and not out.edges:
            raise click.UsageError("A histogram needs --column and --edges.")
        typed_q = (q for text in chosen["q"] for q in numbers("--q", str(text)))
        out.q = list(typed_q) or [0.25, 0.5, 0.75]
        return out

    def read(self, file: Any) -> Any:
        """Return the columns that are needed, as a frame."""
        from sordino.tables.files import AS_IS, MARKERS, NUMBER, TEXT, read_frame, read_names
        from sordino.tables.values import numbers_of

        kinds = dict.fromkeys(self.levels, TEXT) | dict.fromkeys(self.edges, NUMBER)
        kinds |= {} if self.column is None else {self.column: NUMBER}
        kinds |= {} if self.person is None else {self.person.name: AS_IS}
        if not kinds:
            raise click.UsageError("Say what to count: --column or --by, or both.")
        names = None if self.schema is None or file.header else [c.name for c in self.schema.columns]
        if self.schema is None and not file.header:
            names = read_names(file)
        markers = MARKERS if self.schema is None else (*self.schema.markers, "")
        frame = read_frame(file, kinds, names=names, markers=markers)
        for name in (name for name, kind in kinds.items() if kind == NUMBER):
            frame[name] = numbers_of(name, frame[name], () if self.schema is None else markers)
        return frame

    def asked(self, frame: Any, terms: dict[str, Any]) -> Any:
        """Ask the question; one plan, one reservation."""
        import numpy as np

        import sordino
        from sordino.tables.values import framed

        keys, levels = {name: frame[name] for name in (*self.levels, *self.edges)}, dict(self.levels)
        values = None
        if self.column is not None:
            values, gaps = self._values(frame[self.column])
            if not keys:
                every = _ALL["record" if self.person is None else "person"]
                keys, levels = {"group": np.full(len(frame), every, dtype=object)}, {"group": [every]}
            first = next(iter(keys))  # a record without the number is in no group
            keys[first] = np.array(keys[first], dtype=object)
            keys[first][gaps] = None
        owners = None if self.person is None else self.schema.persons(framed(frame))
        owned = {"groups": owners, "rows_per_person": self.most}
        grouped = sordino.group_by(keys, levels=levels, edges=self.edges or None, **owned)
        if self.statistic in ("count", "histogram"):
            return grouped.count(**terms)
        if self.statistic == "quantile":
            return grouped.quantile(values, self.q, bounds=self.bounds, **terms)
        return getattr(grouped, self.statistic)(values, bounds=self.bounds, **terms)

    def _values(self, series: Any) -> tuple[Any, Any]:
        import numpy as np

        from sordino.estimators.statistics import check_bounds

        low, high = check_bounds(self.bounds) or (0.0, 0.0)
        numbers = series.to_numpy(dtype=float)
        gaps = np.isnan(numbers)
        return np.clip(np.where(gaps, low, numbers), low, high), gaps


def _column(schema: Any, name: str, rule: str) -> Any:
    found = [] if schema is None else [column for column in schema.columns if column.name == name]
    if not found:
        where = "no schema was given" if schema is None else "the schema has no such column"
        remedy = "--bounds LOW,HIGH" if rule == "bounds" else f"--levels {name}=[...]"
        raise InvalidInputError(
            f"Column {name!r}: {rule} are not declared, {where}. Pass {remedy}, or a --schema that has them."
        )
    return found[0]


def _spelt(name: str, levels: Any) -> list[str]:
    """Return typed levels as texts, as which files are read; how a file spells true, nobody can know."""
    from sordino.tables.columns import check_levels

    if any(isinstance(level, bool) for level in (levels if isinstance(levels, list) else ())):
        raise click.UsageError(f'--levels {name}: write flags as the file spells them: ["true", "false"].')
    return list(check_levels(name, levels, 1) or ())


def _levels(schema: Any, name: str) -> Any:
    """Return the column that declares the levels, with the price that was paid for them."""
    column = _column(schema, name, "levels")
    if not getattr(column, "levels", None):
        raise InvalidInputError(f"Column {name!r}: it has no declared levels. Pass --levels {name}=[...].")
    return column


def _bounds(schema: Any, name: str) -> Any:
    """Return the column that declares the bounds, with the price that was paid for them."""
    column = _column(schema, name, "bounds")
    low, high = getattr(column, "low", None), getattr(column, "high", None)
    if not isinstance(low, float) or not isinstance(high, float):
        raise InvalidInputError(f"Column {name!r}: it has no declared bounds of numbers. Pass --bounds.")
    return column


def _tell(table: Any, as_json: bool) -> None:
    records = table.records()
    if as_json:
        document(
            {
                "statistic": table.statistic,
                "confidence": table.confidence,
                "rows": records,
                "privacy": table.privacy.to_dict(),
            }
        )
        return
    titles = (*table.keys, table.statistic, f"{table.confidence:.0%} interval")
    rows = [
        (*(str(record[key]) for key in table.keys), f"{record[table.statistic]:.6g}",
         f"{record['low']:.6g} to {record['high']:.6g}")
        for record in records
    ]  # fmt: skip
    show_table(titles, rows)
    click.echo(f"{guarantee(table.privacy)}.")
    tell_schema_price(table.privacy)
