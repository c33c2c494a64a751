"""What a user types, checked: numbers, ranges, choices and flags. Every room may import it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from sordino.errors import InvalidInputError

# Parameters are used squared, multiplied and divided; within these limits nothing over- or underflows.
SMALLEST, LARGEST = 1e-100, 1e100
# More steps, records in a batch or levels than this are a mistake.
MOST = 10**8


def is_number(value: object) -> bool:
    """Tell whether this is a real number; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def as_float(value: Any) -> float:
    """Return a real number as a double; whole numbers beyond the largest double are infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_number(name: str, value: Any) -> float:
    """Return what has a value as a double; refuse texts, flags and nan. The sign of -0.0 is dropped."""
    try:
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(f"Expected {name} to be a number, got {type(value).__name__}.") from None
    if math.isnan(number):
        raise InvalidInputError(f"Expected {name} to be a number, got nan.")
    return number + 0.0


def check_range(name: str, value: Any, interval: str, remedy: str = "It is a public constant.") -> float:
    """Return a number in an interval that is written as in a book: ``"(0, 1]"`` has its upper end.

    Examples
    --------
    >>> check_range("momentum", 0.9, "[0, 1)")
    0.9
    """
    low, high = (float(end) for end in interval[1:-1].split(","))
    number = as_float(value) if is_number(value) else math.nan
    above = number >= low if interval[0] == "[" else number > low
    below = number <= high if interval[-1] == "]" else number < high
    tiny = 0 < abs(number) < SMALLEST and high < math.inf  # a share or a rate whose inverse has no square
    if not (above and below) or tiny:
        raise InvalidInputError(f"Expected {name} in {interval}, got {_shown(value)}. {remedy}")
    return number


def check_positive(name: str, value: Any, remedy: str) -> float:
    """Return ``value`` as a positive float whose square is neither zero nor infinite."""
    if not is_number(value):
        raise InvalidInputError(f"Expected {name} > 0, got {type(value).__name__}. {remedy}")
    number = as_float(value)
    if not 0 < number < math.inf:
        raise InvalidInputError(f"Expected {name} > 0, got {number:g}. {remedy}")
    if not SMALLEST <= number <= LARGEST:
        raise InvalidInputError(
            f"Expected {name} in [{SMALLEST:g}, {LARGEST:g}], got {number:g}. Change the units. {remedy}"
        )
    return number


def check_not_negative(name: str, value: Any, remedy: str) -> float:
    """Return ``value`` as a float that is zero or positive."""
    number = check_range(name, value, "[0, inf)", remedy)
    return check_positive(name, value, remedy) if number else 0.0


def check_count(name: str, value: Any, low: int, high: int | None, remedy: str) -> int | None:
    """Return ``value`` as an integer in [low, high]; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidInputError(f"Expected {name} to be an integer, got {type(value).__name__}. {remedy}")
    number = int(value)
    if high is None and number > MOST:
        raise InvalidInputError(f"Expected {name} <= {MOST}, got more. {remedy}")
    if number < low or (high is not None and number > high):
        bound = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise InvalidInputError(f"Expected {name} {bound}, got {_shown(number)}. {remedy}")
    return number


def check_whole(name: str, value: Any, most: int | None = None, least: int = 1) -> int:
    """Return ``value`` as a whole number >= ``least`` (and at most ``most``); 3.0 will do."""
    if not is_number(value) or not float(value).is_integer() or value < least or (most or value) < value:
        bound = f">= {least}" if most is None else f"in [{least}, {most}]"
        raise InvalidInputError(f"Expected {name} to be a whole number {bound}, got {_shown(value)}.")
    return int(value)


def check_flag(name: str, value: Any) -> bool:
    """Return ``value`` as True or False; 0 and 1 will do."""
    if isinstance(value, (Integral, np.bool_)) and value in (0, 1):
        return bool(value)
    raise InvalidInputError(f"Expected {name} to be True or False, got {type(value).__name__}.")


def among(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """Return a value that is one of the allowed words or flags."""
    if not (value is None or isinstance(value, (str, bool))) or value not in allowed:
        raise InvalidInputError(f"Expected {name} in {allowed}, got {_shown(value)}.")
    return value


def check_mapping(name: str, value: Any) -> dict[str, Any]:
    """Return ``value`` as a dictionary with names as keys; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidInputError(f"Expected {name} to be a dictionary of names, got {type(value).__name__}.")
    return dict(value)


def _shown(value: Any) -> str:
    """Return a parameter as it may stand in a message: words and numbers, nothing long."""
    plain = (
        value is None or isinstance(value, (str, float)) or (isinstance(value, int) and abs(value) < 10**18)
    )
    return repr(value) if plain else f"a value of type {type(value).__name__}"
