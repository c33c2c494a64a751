"""A column in words, for reports and for `sordino schema show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sordino.runs import Price
from sordino.runs.price import LEARNED
from sordino.tables.columns import Category, Column, Date, Flag, Number, Ordinal, Target, Text

_NAMED_LEVELS = 6


def learned_fact(prices: Sequence[Price]) -> str:
    """Return the line of a report that says what was paid for a schema."""
    return f"{LEARNED}{'; '.join(map(str, prices))}; it comes on top of every fit"


def column_fact(column: Column) -> str:
    """Return what a column declares and where that comes from."""
    source = getattr(column, "source", "")
    return f"column {column.name!r}: {described(column)} ({source or 'source not stated'})"


def described(column: Column) -> str:
    """Return what a column declares."""
    if column.unknown is not None:
        return f"{column.word or 'blank'}, {column.unknown} not declared"
    if isinstance(column, Number):
        return f"number in {_range(column)}{', on a logarithmic scale' if column.log else ''}"
    if isinstance(column, Date):
        return f"date from {column.low} to {column.high}"
    if isinstance(column, (Category, Ordinal)):
        alone = isinstance(column, Category) and column.other == "zero"
        return f"{column.word}, {_levels(column.levels or ())}{'; others count as none' if alone else ''}"
    if isinstance(column, Text):
        return f"words hashed into {column.buckets} columns"
    if isinstance(column, Target):
        return f"target, {_range(column) if column.kind == 'number' else _levels(column.levels or ())}"
    return "yes or no" if isinstance(column, Flag) else column.word


def _range(column: Any) -> str:
    return f"[{column.low:g}, {column.high:g}]{' ' + column.unit if column.unit else ''}"


def _levels(levels: tuple[Any, ...]) -> str:
    shown = ", ".join(map(str, levels[:_NAMED_LEVELS]))
    rest = ", ..." if len(levels) > _NAMED_LEVELS else ""
    return f"{len(levels)} levels: {shown}{rest}"
