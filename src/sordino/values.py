"""What a user types, checked: numbers, ranges, choices and flags; foreign refusals.

Every room may import it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from html import escape
from numbers import Integral, Real
from typing import Any

import numpy as np

from sordino.errors import InvalidInputError, InvalidTypeError, SordinoError

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
        raise InvalidInputError(f"Expected {name} in {interval}, got {_show(value)}. {remedy}")
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
        raise InvalidInputError(f"Expected {name} {bound}, got {_show(number)}. {remedy}")
    return number


def check_whole(name: str, value: Any, most: int | None = None, least: int = 1) -> int:
    """Return ``value`` as a whole number >= ``least`` (and at most ``most``); 3.0 will do."""
    if not is_number(value) or not float(value).is_integer() or value < least or (most or value) < value:
        bound = f">= {least}" if most is None else f"in [{least}, {most}]"
        raise InvalidInputError(f"Expected {name} to be a whole number {bound}, got {_show(value)}.")
    return int(value)


def check_flag(name: str, value: Any) -> bool:
    """Return ``value`` as True or False; 0 and 1 will do."""
    if isinstance(value, (Integral, np.bool_)) and value in (0, 1):
        return bool(value)
    raise InvalidInputError(f"Expected {name} to be True or False, got {type(value).__name__}.")


def among(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """Return a value that is one of the allowed words or flags."""
    if not (value is None or isinstance(value, (str, bool))) or value not in allowed:
        raise InvalidInputError(f"Expected {name} in {allowed}, got {_show(value)}.")
    return value


def check_mapping(name: str, value: Any) -> dict[str, Any]:
    """Return ``value`` as a dictionary with names as keys; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidInputError(f"Expected {name} to be a dictionary of names, got {type(value).__name__}.")
    return dict(value)


def _show(value: Any) -> str:
    """Return a parameter as it may stand in a message: words and numbers, nothing long."""
    plain = (
        value is None or isinstance(value, (str, float)) or (isinstance(value, int) and abs(value) < 10**18)
    )
    return repr(value) if plain else f"a value of type {type(value).__name__}"


def at_most(value: float, digits: int = 4, rounding: str = ROUND_CEILING) -> str:
    """Return a bound in so many digits, rounded up: to nearest it would promise more than holds."""
    if not math.isfinite(value):
        return f"{value:g}"
    with localcontext(prec=digits, rounding=rounding):
        return f"{float(+Decimal(repr(float(value)))):.{digits}g}"


def at_least(value: float, digits: int = 4) -> str:
    """Return what is left of a bound, rounded down: to nearest it could be more than there is."""
    return at_most(value, digits, ROUND_FLOOR)


def plain_number(value: float, digits: int = 10, sign: str = "") -> str:
    """Return a number as people write it: 0.00001, 0.25, 1, 5,000; powers of ten far beyond."""
    if 1e-3 <= abs(value) < 1e12:
        return f"{float(f'{value:.{digits}g}'):{sign},.12g}"
    if 1e-7 <= abs(value) < 1e-3:
        return np.format_float_positional(float(f"{value:.{min(digits, 4)}g}"), trim="-", sign=sign == "+")
    return f"{value:{sign}.3g}"


def html_table(heads: Iterable[str], rows: Iterable[Iterable[str]], caption: str = "") -> str:
    """Return a table that a notebook shows; every text is escaped."""
    top = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" * bool(caption)
    return f"<table>{title}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


# Our own words for what scikit-learn and NumPy refuse: their messages quote the data, ours never do.

CAUGHT = (ValueError, TypeError, ArithmeticError, AttributeError)

# The first kind of problem one of whose marks, split by "|", is in the foreign message gives ours. The marks
# only choose among these texts: a message that is not known gets the last one.
_REASONS = {
    "could not convert|invalid literal|argument must be|arrays of bytes|int too large": "Expected a numeric "
    "matrix X and numeric targets, got entries that are not numbers: argument must be a string or a number. "
    "Encode them with a public vocabulary first.",
    "complex data": "Complex data not supported: expected real numbers.",
    "contains nan|contains infinity": "Expected finite numbers, got NaN or inf. Drop or replace them by a "
    "public rule.",
    "requires y to be passed|got none|y cannot be none": "This estimator requires y to be passed, but the "
    "target y is None.",
    "feature names": "The feature names should match those that were passed during fit, in the same order "
    "and all of them strings; they do not. Compare X.columns with feature_names_in_.",
    "expecting": "X has {features} features, but {estimator} is expecting {fitted} features as input.",
    "reshape your data|dim|1d array instead|0d|scalar array": "Expected a matrix X with one row per record, "
    "got shape {shape}. Reshape your data: X.reshape(-1, 1) if it is one column, X.reshape(1, -1) if it is "
    "one record.",
    "sample(s)": "Found array with {rows} sample(s) (shape={shape}) while a minimum of {least} is required.",
    "feature(s)": "Found array with {features} feature(s) (shape={shape}) while a minimum of 1 is required.",
    "inconsistent numbers of samples|inconsistent length": "Expected one target per row, got X of shape "
    "{shape} and y of shape {targets}.",
    "should be a 1d array|bad input shape|multi-output": "Expected y with one value per row (y should be a "
    "1d array), got shape {targets}.",
    "sparse": "Expected dense data here, got a sparse matrix. Sparse input is not supported for it.",
    "": "Expected a numeric matrix X with one row per record (and one target per row), got something that "
    "could not be read as one. Its values are not shown.",
}
_OF_TYPES = ("could not convert", "sparse")  # how the marks of reasons begin that are about types


def refusing(call: Callable[[], Any], X: Any, y: Any = None, estimator: Any = None, least: int = 1) -> Any:
    """Return ``call()``; what it refuses is refused in our words, without its message and its chain."""
    from sklearn.exceptions import NotFittedError  # commands that need no model start without it

    refuse_unreadable(X, y)
    try:
        return call()
    except (SordinoError, NotFittedError):
        raise
    except CAUGHT as error:
        refusal = _refusal(str(error).lower(), X, y, estimator, least)
    raise refusal  # outside of the handler: the foreign error would be its context


def refuse_unreadable(*arrays: Any) -> None:
    """Refuse masked arrays, of which conversion would read what was taken out, and integers of 128 bits."""
    if any(isinstance(array, np.ma.MaskedArray) for array in arrays):
        raise InvalidInputError(
            "Expected a plain array, got a masked one, whose hidden values would be used. Fill them with a "
            "public constant (filled) or leave the records out (compressed)."
        )
    frames = [a.dtypes for a in arrays if isinstance(getattr(a, "dtypes", None), list)]  # those of polars
    types = [getattr(a, "dtype", None) for a in arrays] + [kind for kinds in frames for kind in kinds]
    if any(str(kind) in ("Int128", "UInt128") for kind in types):
        raise InvalidTypeError(
            "Expected numbers of at most 64 bits, got a column of 128, which NumPy has not. Cast it: numbers "
            "to Float64, identifiers to String."
        )


def _refusal(text: str, X: Any, y: Any, estimator: Any, least: int) -> InvalidInputError:
    marks = next(marks for marks in _REASONS if any(mark in text for mark in marks.split("|")))
    kind = InvalidTypeError if marks.startswith(_OF_TYPES) else InvalidInputError
    shape = _shape(X)
    return kind(
        _REASONS[marks].format(
            shape=shape,
            rows=shape[0] if shape else 0,
            features=shape[1] if len(shape) > 1 else 1,
            targets=_shape(y),
            least=least,
            estimator=type(estimator).__name__,
            fitted=getattr(estimator, "n_features_in_", "other"),
        )
    )


def _shape(values: Any) -> tuple[int, ...]:
    """Return the shape, which is public; that of a list by its lengths."""
    shape = getattr(values, "shape", None)
    if isinstance(shape, tuple):
        return shape
    if not isinstance(values, (list, tuple)):
        return ()
    inner = {len(row) for row in values if isinstance(row, (list, tuple))}
    return (len(values), *inner) if len(inner) == 1 else (len(values),)
