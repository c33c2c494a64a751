"""Checks of what a schema declares; messages name the column, the rule and the remedy."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from sordino.checks import as_float
from sordino.errors import SchemaError

MOST_LEVELS = 100_000
MISSING = ("column", "zero")


def refuse(column: str, rule: str, remedy: str) -> SchemaError:
    """Return the error of one column."""
    return SchemaError(f"Column {column!r}: {rule}. {remedy}")


def check_name(name: Any) -> None:
    """Refuse a name that no table can have."""
    if not isinstance(name, str) or not name or len(name) > 1000 or not is_unicode(name):
        raise SchemaError(
            "Expected the name of a column as a Unicode text of 1 to 1000 characters, got another."
        )


def is_unicode(text: str) -> bool:
    """Tell whether a file can hold a text: half a character (a surrogate) has no encoding."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def check_text(column: str, field: str, value: Any) -> None:
    """Refuse a field of words that holds something else."""
    if not isinstance(value, str) or not is_unicode(value):
        raise refuse(column, f"{field} is {type(value).__name__}, not a Unicode text", "Write it in quotes.")


def check_bounds(column: str, low: Any, high: Any) -> tuple[float | None, float | None]:
    """Return both bounds as floats, or None for both where they are not known yet."""
    if low is None and high is None:
        return None, None
    low, high = check_number(column, "low", low), check_number(column, "high", high)
    if low > high:
        raise refuse(column, f"low = {low:g} is above high = {high:g}", "Swap them.")
    closest = 1e-9 * max(abs(low), abs(high))
    if not max(closest, 1e-300) < high - low < math.inf:
        raise refuse(column, "low and high are too close or too far apart", "Declare other bounds or units.")
    return low, high


def check_number(column: str, field: str, value: Any) -> float:
    """Return a finite number as a float."""
    number = as_float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number):
        raise refuse(
            column,
            f"{field} is not a finite number, got {type(value).__name__}",
            "Declare it from what the column means, not from the data.",
        )
    return number


def check_levels(column: str, levels: Any, least: int, learnable: bool = True) -> tuple[str, ...] | None:
    """Return levels as texts, each once; None where they are not known yet."""
    if levels is None:
        return None
    if isinstance(levels, str) or not isinstance(levels, Iterable):
        raise refuse(column, "levels are not a list", 'Write them as a list: levels = ["a", "b"].')
    found = tuple(level_text(level) for level in levels)
    if any(level is None for level in found):
        raise refuse(column, "a level is not a text, a number or a flag", "Write levels as Unicode text.")
    if not least <= len(found) <= MOST_LEVELS:
        bound = f"expected {least} to {MOST_LEVELS} levels, got {len(found)}"
        if len(found) > MOST_LEVELS:
            raise refuse(column, bound, "Use Text for values without a fixed list.")
        pay = ", or leave out levels and pay for them with `sordino schema learn`" if learnable else ""
        raise refuse(column, bound, f"List them{pay}.")
    if len(set(found)) < len(found):
        raise refuse(column, "a level is declared twice", "Declare each level once.")
    return tuple(str(level) for level in found)


def whole_levels(levels: Any, texts: tuple[str, ...] | None) -> tuple[Any, ...] | None:
    """Return checked levels as whole numbers where all of them were declared as such, else as texts."""
    found = () if texts is None else tuple(levels)
    whole = all(isinstance(level, Integral) and str(level) == text for level, text in zip(found, texts or ()))
    flags = any(isinstance(level, bool) for level in found)
    return tuple(map(int, found)) if found and whole and not flags else texts


def check_missing(column: str, rule: Any, allowed: tuple[str, ...]) -> None:
    """Refuse a rule for missing values that is not known."""
    if not isinstance(rule, str) or rule not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        raise refuse(column, f"the rule for missing values is not one of {words}", f"Use {allowed[0]!r}.")


def check_other(column: str, rule: Any) -> None:
    """Refuse a rule for levels that are not declared, if it is not known."""
    if not isinstance(rule, str) or rule not in MISSING:
        raise refuse(column, "the rule for other levels is not one of 'column', 'zero'", "Use 'column'.")


def check_flag(column: str, field: str, value: Any) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool):
        raise refuse(column, f"{field} is {type(value).__name__}, not true or false", "Write true or false.")


def check_whole(column: str, field: str, value: Any, low: int, high: int) -> int:
    """Return a whole number between two bounds."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not low <= int(value) <= high:
        raise refuse(column, f"{field} is not a whole number in [{low}, {high}]", "Change it.")
    return int(value)


def check_day(column: str, field: str, value: Any) -> datetime.date | None:
    """Return a declared date, given as one or as ISO text."""
    if value is None or (isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)):
        return value
    if isinstance(value, str):
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            pass
    raise refuse(column, f"{field} is not a date", "Write it as YYYY-MM-DD.")


def level_text(value: Any) -> str | None:
    """Return a level, or a value of a table, as the text that levels are compared by; None for others.

    A text with half a character (a surrogate) is none: no file could hold it, nor a schema that learned it.
    Whole numbers read alike whether a file holds 1 or 1.0: a column with gaps turns one into the other.
    """
    if isinstance(value, str):
        return value.strip() if is_unicode(value) else None
    if isinstance(value, (bool, datetime.date)):
        return str(value)
    if not isinstance(value, (Real, Decimal)) or (isinstance(value, Decimal) and value.is_nan()):
        return None
    number = as_float(value)
    return str(int(number)) if abs(number) < 2**53 and number == int(number) else str(number)
