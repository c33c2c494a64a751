"""Schemas as TOML text."""

from __future__ import annotations

import datetime
import tomllib
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

import tomli_w

from sordino.errors import InvalidInputError, SchemaError
from sordino.execute.grouped import MARKERS
from sordino.runs import Price
from sordino.runs.price import priced_in
from sordino.tables import rules
from sordino.tables.columns import KINDS, Blank, Column, Target

if TYPE_CHECKING:
    from sordino.tables.schema import Schema

FORMAT = 1
_TARGET_KIND = "of"  # a target is a category or a number; "kind" says that it is a target


def written(schema: Schema) -> str:
    """Return a schema as text; what has its default value is left out."""
    out: dict[str, Any] = {"format": FORMAT}
    if schema.markers != MARKERS:
        out["markers"] = list(schema.markers)
    if schema.learned:
        out["learned"] = [price.to_dict() for price in schema.learned]
    out["columns"] = {column.name: _table(column) for column in schema.columns}
    return tomli_w.dumps(out)


def _table(column: Column) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": column.word}
    for field in fields(column):
        value = getattr(column, field.name)
        if field.name == "name" or value is None or (value == field.default and field.default is not MISSING):
            continue
        key = _TARGET_KIND if isinstance(column, Target) and field.name == "kind" else field.name
        value = [price.receipt for price in value] if key == "learned" else value
        out[key] = list(value) if isinstance(value, tuple) else value
    return out


def parsed(text: str) -> Schema:
    """Return the schema of a text; errors name the column and the key."""
    from sordino.tables.schema import Schema

    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, TypeError, RecursionError) as error:
        where = str(error)[:200] if isinstance(error, tomllib.TOMLDecodeError) else type(error).__name__
        raise SchemaError(f"The schema is not TOML: {where}. Mend it or draft a new one.") from None
    if data.get("format") != FORMAT:
        raise SchemaError(f"Expected a schema with format = {FORMAT}. Add the line or upgrade sordino.")
    unknown = sorted(set(data) - {"format", "markers", "learned", "columns"})
    columns = data.get("columns")
    if unknown or not isinstance(columns, dict):
        raise SchemaError(
            "Expected format, columns and perhaps markers and learned in a schema, got "
            f"{', '.join(unknown) or 'no columns'}."
        )
    markers = data.get("markers", MARKERS)
    if isinstance(markers, str):
        raise SchemaError('Expected markers as a list of texts, for example markers = ["", "?"].')
    prices = _learned(data.get("learned", []))
    made = [_column(name, table, prices) for name, table in columns.items()]
    return Schema(made, markers=markers, learned=prices)


def _learned(said: Any) -> tuple[Price, ...]:
    if isinstance(said, str):  # files of earlier versions say it in words
        return priced_in(said) if said else ()
    if not isinstance(said, list):
        raise SchemaError("Expected learned as tables, each with epsilon, delta, relation and unit.")
    try:
        return tuple(map(Price.from_dict, said))
    except InvalidInputError as error:
        raise SchemaError(f"learned: {error}") from None


def _column(name: str, table: Any, prices: tuple[Price, ...]) -> Column:
    if not isinstance(table, dict):
        raise rules.refuse(name, "it is not a table", 'Write [columns.NAME] and kind = "..." below it.')
    values = dict(table)
    word = values.pop("kind", None)
    kind = Blank if word == "" else KINDS.get(str(word))
    if kind is None:
        raise rules.refuse(name, "its kind is not known", f"Write one of {', '.join(KINDS)}.")
    if kind is Target and _TARGET_KIND in values:
        values["kind"] = values.pop(_TARGET_KIND)
    known = {field.name for field in fields(kind)} - {"name"}
    for key in values:
        if key not in known:
            raise rules.refuse(name, f"{key!r} is not known for a {kind.word}", f"Known are {sorted(known)}.")
    receipts = values.pop("learned", [])
    paid = tuple(p for p in prices if isinstance(receipts, list) and p.receipt and p.receipt in receipts)
    if not isinstance(receipts, list) or len(paid) < len(receipts):
        raise rules.refuse(
            name,
            "it was learned from records, and the schema does not say for which price",
            "Copy the [[learned]] table of that schema too, with the receipts that stand here.",
        )
    made = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    made["learned"] = paid
    for key, value in made.items():
        if isinstance(value, datetime.datetime):
            raise rules.refuse(name, f"{key} is a time", "Write a date, YYYY-MM-DD.")
    return kind(name, **made)
