"""The values of one column as numbers, levels, flags, days or words: each by itself, none in a message."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from sordino.errors import InvalidTypeError, SchemaError, import_extra
from sordino.kernel.arrays import Floats, Ints
from sordino.values import as_float, refuse_unreadable

_WANTED = (
    "Expected a table with named columns: a pandas or polars DataFrame, an Arrow table, a list of records "
    "(dictionaries) or a dictionary of columns"
)


def require_pandas() -> Any:
    """Return pandas, or say which extra brings it."""
    return import_extra("pandas", "tables")


@dataclass(frozen=True)
class Frame:
    """A table: its names, its length, a function from a name and two row numbers to a Series or an array."""

    names: tuple[str, ...]
    rows: int
    part: Callable[[str, int, int], Any]

    def column(self, name: str) -> Any:
        """Return a whole column."""
        return self.part(name, 0, self.rows)

    def take(self, rows: Ints) -> Frame:
        """Return some of the rows."""
        return Frame(self.names, len(rows), lambda name, a, b: self.column(name).take(rows[a:b]))


def frame_of(table: Any) -> Frame:
    """Return any kind of table as a :class:`Frame`; no column is read yet."""
    home = type(table).__module__.partition(".")[0]
    if home == "pyarrow" and hasattr(table, "column_names"):
        names, column = _check_names(table.column_names), table.column
        return Frame(names, table.num_rows, lambda name, a, b: _of_arrow(column(name).slice(a, b - a)))
    records = isinstance(table, (list, tuple)) and all(isinstance(record, Mapping) for record in table)
    if isinstance(table, Mapping) or records:
        table = _build(table)
    if isinstance(table, require_pandas().DataFrame):
        names = _check_names(list(table.columns))
        return Frame(names, len(table), lambda name, start, stop: table[name].iloc[start:stop])
    if home == "polars" and hasattr(table, "get_column"):
        names, whole = _check_names(table.columns), table.get_column
        return Frame(names, table.height, lambda name, a, b: _of_polars(whole(name).slice(a, b - a)))
    if home == "polars" and hasattr(table, "collect"):
        raise InvalidTypeError("Expected a table in memory, got a lazy polars frame. Call collect() on it.")
    raise InvalidTypeError(f"{_WANTED}, got {type(table).__name__}.")


def _of_polars(series: Any) -> Any:
    refuse_unreadable(series)
    return series.to_pandas()


def _of_arrow(column: Any) -> Any:
    """Return texts and doubles without gaps as arrays; pandas takes longer to load than a small fit."""
    if str(column.type) == "string":
        coded = column.dictionary_encode("encode").combine_chunks()  # Arrow's own to_numpy would load pandas
        return np.array([*coded.dictionary.to_pylist(), None], dtype=object)[np.from_dlpack(coded.indices)]
    if str(column.type) == "double" and not column.null_count:
        return np.from_dlpack(column.combine_chunks())
    return column.to_pandas()


def _build(table: Any) -> Any:
    """Return a frame of objects: a guess of types would depend on all records together."""
    pandas = require_pandas()

    def column(values: Any) -> Any:
        array = isinstance(values, np.ndarray) and values.dtype.kind in "OU"
        return pandas.Series(values, dtype=object) if array or isinstance(values, (list, tuple)) else values

    try:
        if not isinstance(table, Mapping):
            return pandas.DataFrame(list(table), dtype=object)
        if len({len(values) for values in table.values()}) == 1 or not table:
            return pandas.DataFrame({name: column(values) for name, values in table.items()})
    except (ValueError, TypeError):
        pass  # its message would quote the data
    raise SchemaError(f"{_WANTED}, got columns of unequal length or of other kinds.")


def _check_names(names: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(name, str) for name in names):
        raise SchemaError("Expected the names of all columns as texts, got others. Read the file's header.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise SchemaError(f"Column {twice[0]!r} is in the table twice. Rename or drop one of them.")
    return tuple(names)


def is_unicode(text: str) -> bool:
    """Tell whether a file can hold a text: half a character (a surrogate) has no encoding."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


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


OTHER, MISSING = -1, -2
YES = frozenset({"true", "yes", "y", "t", "1", "1.0", "on"})
NO = frozenset({"false", "no", "n", "f", "0", "0.0", "off"})
_NANOSECONDS = re.compile(r"([.,][0-9]{6})[0-9]+")


def numbers_of(name: str, series: Any, markers: Iterable[str] = ()) -> Floats:
    """Return doubles; what is not a number, or marks a missing one (-9 in many files), is nan."""
    values = _doubles(name, series)
    gaps = [gap for gap in map(number_of, markers) if np.isfinite(gap)]
    return np.where(np.isin(values, gaps), np.nan, values) if gaps else values


def _doubles(name: str, series: Any) -> Floats:
    kind = _kind(series)
    if kind == "category":
        known = _doubles(name, require_pandas().Series(series.cat.categories))
        codes = np.asarray(series.cat.codes)
        return np.where(codes < 0, np.nan, np.append(known, np.nan)[codes])
    if kind in "mMc":
        raise _unfit(name, "numbers", "dates, durations or complex numbers")
    with np.errstate(all="ignore"):
        if kind in "biuf":
            array = isinstance(series, np.ndarray)
            return np.asarray(series if array else series.to_numpy(dtype=np.float64, na_value=np.nan))
        # Texts and objects one by one: a value that pandas refuses must not change how others are read.
        values, texts = _objects(series)
        out, pandas = np.empty(len(values)), require_pandas()
        found = pandas.to_numeric(pandas.Series(values[texts], dtype=object), errors="coerce")
        out[texts] = found.to_numpy(dtype=np.float64, na_value=np.nan)
        out[~texts] = [number_of(value) for value in values[~texts]]
        return out


def number_of(value: Any) -> float:
    """Return a value as a double, nan for what is none."""
    if not isinstance(value, (str, bytes, Real, Decimal, np.bool_)):
        return np.nan
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf  # type: ignore[operator]
    except (ValueError, TypeError, ArithmeticError):
        return np.nan


def codes_of(series: Any, levels: tuple[str, ...], markers: frozenset[str]) -> Ints:
    """Return the number of each value's level; OTHER for a value without one, MISSING for none."""
    places = {level: number for number, level in enumerate(levels)}

    def code(text: str | None) -> int:
        return OTHER if text is None else places.get(text, MISSING if text in markers else OTHER)

    return _by_value(series, code)


def flag_of(text: str | None) -> int:
    """Return 1 for a word that says yes, 0 for a word that says no, and MISSING for another word."""
    word = "" if text is None else text.lower()
    return 1 if word in YES else 0 if word in NO else MISSING


def flags_of(series: Any) -> Ints:
    """Return 1 for each yes, 0 for each no, and MISSING for another value."""
    return _by_value(series, flag_of)


def _by_value(series: Any, code: Callable[[str | None], int]) -> Ints:
    """Map each distinct value once."""
    codes, distinct = factorise(series)
    table = np.array([*(code(text) for text in distinct), MISSING], dtype=np.int64)
    return table[codes]  # the code of a missing value is -1, the last entry


def factorise(series: Any) -> tuple[Ints, list[str | None]]:
    """Return for each record the number of its value (-1 for none) and the texts of the distinct values."""
    kind = _kind(series)
    if kind == "category":
        return np.asarray(series.cat.codes, dtype=np.int64), [level_text(v) for v in series.cat.categories]
    if kind in "mM":
        series = series.astype(str).where(series.notna())
    if kind == "O":
        return _number_texts(series)
    codes, distinct = require_pandas().factorize(series)
    return np.asarray(codes, dtype=np.int64), [level_text(plain(value)) for value in distinct]


def _number_texts(series: Any) -> tuple[Ints, list[str | None]]:
    """Number objects by their texts: True equals 1, and the first of them would give both its text."""
    values, texts = _objects(series)
    codes = np.full(len(values), -1, dtype=np.int64)
    distinct: dict[str, int] = {}
    codes[texts] = [distinct.setdefault(text, len(distinct)) for text in values[texts]]
    numbers: dict[str | None, int] = {}
    for place in np.flatnonzero(~texts):
        value = plain(values[place])
        if not _is_gap(value):
            codes[place] = len(distinct) + numbers.setdefault(level_text(value), len(numbers))
    return codes, [*map(level_text, distinct), *numbers]


def _objects(series: Any) -> tuple[Any, Any]:
    """Return the values as they are, and which of them are texts."""
    values = np.asarray(series.astype(object), dtype=object)
    return values, np.fromiter((isinstance(value, str) for value in values), dtype=bool, count=len(values))


def _is_gap(value: Any) -> bool:
    """Tell whether a value is missing; a signalling nan must not be compared, not even with itself."""
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, (float, np.floating)):
        return bool(np.isnan(value))
    return value is None or value is require_pandas().NA or value is require_pandas().NaT


def days_of(name: str, series: Any) -> Floats:
    """Return days since the year 1, as ``date.toordinal`` counts them; nan for a value that is no date.

    A time with a zone belongs to its day in UTC, whether a column, an object or a text holds it.
    """
    pandas = require_pandas()
    kind = _kind(series)
    if kind in ("category", "O", "T"):
        series, kind = pandas.Series(map(_as_dates, series.astype(object)), dtype=object), "O"
    if kind in "biumc" or (kind == "f" and series.notna().any()):
        raise _unfit(name, "dates", "numbers, flags or durations")
    try:
        series = pandas.to_datetime(series, errors="coerce", format="ISO8601", utc=True)
        stamps = pandas.DatetimeIndex(series).tz_localize(None).to_numpy().astype("datetime64[D]")
    except (ValueError, TypeError, OverflowError, AttributeError):
        stamps = None
    if stamps is None:
        raise _unfit(name, "dates", "something that cannot be read as dates")
    days = stamps.astype(np.int64).astype(np.float64) + 719163.0  # 1970-01-01
    return np.where(np.isnat(stamps), np.nan, days)


def _kind(series: Any) -> str:
    """Return a letter for the kind of a column: NumPy's, "T" for texts, or "category"."""
    dtype = series.dtype
    if str(dtype) == "category":
        return "category"
    if str(dtype) in ("str", "string") or str(dtype).startswith("string"):
        return "T"
    kind = getattr(dtype, "kind", "O")
    return str(kind) if kind in "biufcmMO" else "O"


def _as_dates(value: Any) -> Any:
    """Return dates to the microsecond: with nanoseconds pandas ends at the year 2262."""
    if isinstance(value, str):  # what is not ASCII is no date, and pandas may raise for the whole column
        return _NANOSECONDS.sub(r"\1", value) if value.isascii() else None
    if isinstance(value, datetime.date):
        return value.as_unit("us") if isinstance(value, require_pandas().Timestamp) else value
    return None


def plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _unfit(name: str, wanted: str, got: str) -> SchemaError:
    return SchemaError(
        f"Column {name!r}: the schema declares {wanted}, the table holds {got}. Change the kind in the "
        "schema or convert the column."
    )
