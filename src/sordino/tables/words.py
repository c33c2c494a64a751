"""A column in words, for reports and for `sordino schema show`."""

from __future__ import annotations

import re
from typing import Any

from sordino.tables.columns import Category, Column, Date, Flag, Number, Ordinal, Target, Text

_NAMED_LEVELS = 6
_LEARNED = "the schema was learned from records: "
_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_PRICE = re.compile(rf"epsilon = {_NUMBER}, delta = {_NUMBER}, ([a-z-]+) one ([a-z]+)")


def learned_fact(learned: str) -> str:
    """Return the line of a report that says what was paid for a schema."""
    return _LEARNED + learned


def with_schema(report: Any) -> tuple[float, float] | None:
    """Return the epsilon and delta of a run together with those of the schema that it used.

    None where nothing was learned for it, or where it protects somebody else, so that they do not add up.
    """
    lines = [line for line in report.public if line.startswith(_LEARNED)]
    prices = [price for line in lines for price in _PRICE.findall(line)]
    alike = {(relation, unit) for *_, relation, unit in prices} == {(report.relation.value, report.unit)}
    if not alike:
        return None
    return (
        report.epsilon + sum(float(epsilon) for epsilon, *_ in prices),
        report.delta + sum(float(delta) for _, delta, *_ in prices),
    )


def schema_price(report: Any) -> str | None:
    """Return in a sentence what a schema cost before a run; None where nothing was learned for it."""
    if not any(line.startswith(_LEARNED) for line in report.public):
        return None
    whole = with_schema(report)
    if whole is None:
        return "The schema was learned from records, and its price comes on top."
    return (
        "The schema was learned from records, and its price comes on top: together at most epsilon "
        f"{whole[0]:.4g}, delta {whole[1]:.3g}."
    )


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


def _levels(levels: tuple[str, ...]) -> str:
    shown = ", ".join(levels[:_NAMED_LEVELS])
    rest = ", ..." if len(levels) > _NAMED_LEVELS else ""
    return f"{len(levels)} levels: {shown}{rest}" if levels else "no levels"
