"""What statistics are asked with: numbers, probabilities, bounds and moments, checked at the door."""

from __future__ import annotations

from typing import Any

import numpy as np

from sordino.checks import among, check_positive
from sordino.errors import InvalidInputError
from sordino.execute import held_numbers
from sordino.refusals import refusing
from sordino.runs import Price
from sordino.runs.price import each_once
from sordino.tables.columns import Column


def checked_numbers(x: Any, least: int = 1) -> tuple[np.ndarray, bool]:
    """Return the rows as doubles, and whether they were plain numbers."""
    elsewhere = held_numbers(x)
    if elsewhere is not None:
        return _enough(*elsewhere, least)
    data = refusing(lambda: _doubles(x), x)
    if data.ndim not in (1, 2) or data.shape[0] < least or data.size == 0:
        raise InvalidInputError(
            f"Expected {least} or more numbers or rows of numbers, got shape {data.shape}."
        )
    if not np.isfinite(data).all():
        raise InvalidInputError(
            "Expected finite numbers, got NaN or inf. Drop or replace them by a public rule."
        )
    return (data[:, None], True) if data.ndim == 1 else (data, False)


def _enough(data: Any, flat: bool, least: int) -> tuple[Any, bool]:
    if len(data) < least:
        raise InvalidInputError(f"Expected {least} or more records, got {len(data)}.")
    return data, flat


def _doubles(x: Any) -> np.ndarray:
    """Return real numbers as doubles; the caller refuses what raises."""
    raw = np.asarray(x)
    if raw.dtype.kind == "c":
        raise ValueError("complex data")
    if raw.dtype.kind in "SUMmV":
        raise TypeError("could not convert")
    with np.errstate(all="ignore"):
        return raw.astype(float)


def moment_order_of(value: Any) -> float:
    """Return v, checked."""
    number = check_positive("moment_order", value, "It is v: a moment of order 1 + v exists.")
    if number > 1:
        raise InvalidInputError(
            f"Expected moment_order in (0, 1], got {number:g}. Use 1 where the variance is finite."
        )
    return number


def moment_bound_of(value: Any) -> float | None:
    """Return u, checked; None for "auto"."""
    if isinstance(value, str):
        among("moment_bound", value, ("auto",))
        return None
    return check_positive("moment_bound", value, "Pass 'auto' to learn the scale privately.")


def joint_clip_of(value: Any) -> float | None:
    """Return the joint clip, checked; None clips coordinates only."""
    return None if value is None else check_positive("joint_clip", value, "It is in units of the threshold.")


def checked_share(name: str, value: Any) -> float:
    """Return a probability strictly between 0 and 1."""
    number = check_positive(name, value, "Pass a probability.")
    if not number < 1:
        raise InvalidInputError(f"Expected {name} in (0, 1), got {number:g}.")
    return number


def checked_probabilities(q: Any) -> np.ndarray:
    """Return the probabilities of quantiles, one or several."""
    try:
        wanted = np.atleast_1d(np.asarray(q, dtype=float))
    except (TypeError, ValueError, OverflowError):
        wanted = np.empty(0)
    if wanted.ndim != 1 or wanted.size == 0 or not ((wanted >= 0) & (wanted <= 1)).all():
        raise InvalidInputError("Expected q in [0, 1], one number or a list, got others.")
    return wanted


def checked_bounds(bounds: Any) -> tuple[float, float] | None:
    """Return public limits low < high, of a column of a schema too; None for none."""
    if bounds is None:
        return None
    if isinstance(bounds, Column):
        bounds = (getattr(bounds, "low", None), getattr(bounds, "high", None))
    try:
        low, high = (float(b) for b in bounds)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError("Expected bounds as two numbers low < high, got something else.") from None
    if not -np.inf < low < high < np.inf:
        raise InvalidInputError(f"Expected finite bounds low < high, got {low:g} and {high:g}.")
    if not high / 2.0 - low / 2.0 > 0.0:  # it is a unit that numbers are divided by
        raise InvalidInputError(f"Expected bounds farther apart than {low:g} and {high:g}. Change the unit.")
    return low, high


def prices_of(*declared: Any) -> tuple[Price, ...]:
    """Return what was paid for the columns of a schema that stand among bounds or levels."""
    return each_once(p for item in declared if isinstance(item, Column) for p in item.learned)


def said_bounds(limits: tuple[float, float]) -> str:
    """Return the line of a report for public limits of numbers."""
    return f"bounds = [{limits[0]:g}, {limits[1]:g}] (numbers are clipped to them)"
