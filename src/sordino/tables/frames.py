"""One way to look at tables of any make: names of columns, number of rows, one column at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.errors import InvalidTypeError, SchemaError, require_extra

_WANTED = (
    "Expected a table with named columns: a pandas or polars DataFrame, an Arrow table, a list of records "
    "(dictionaries) or a dictionary of columns"
)


def require_pandas() -> Any:
    """Return pandas, or say which extra brings it."""
    try:
        import pandas
    except ImportError as error:
        raise require_extra("pandas", "tables") from error
    return pandas


@dataclass(frozen=True)
class Frame:
    """A table: its names, its length, and a function from a name and two row numbers to a pandas Series."""

    names: tuple[str, ...]
    rows: int
    part: Callable[[str, int, int], Any]

    def column(self, name: str) -> Any:
        """Return a whole column."""
        return self.part(name, 0, self.rows)


def framed(table: Any) -> Frame:
    """Return any kind of table as a :class:`Frame`; no column is read yet."""
    pandas = require_pandas()
    if isinstance(table, Mapping) or _is_records(table):
        table = _built(table)
    if isinstance(table, pandas.DataFrame):
        names = _names(list(table.columns))
        return Frame(names, len(table), lambda name, start, stop: table[name].iloc[start:stop])
    home = type(table).__module__.partition(".")[0]
    if home == "polars" and hasattr(table, "get_column"):
        return Frame(
            _names(table.columns),
            table.height,
            lambda name, start, stop: table.get_column(name).slice(start, stop - start).to_pandas(),
        )
    if home == "polars" and hasattr(table, "collect"):
        raise InvalidTypeError("Expected a table in memory, got a lazy polars frame. Call collect() on it.")
    if home == "pyarrow" and hasattr(table, "column_names"):
        return Frame(
            _names(table.column_names),
            table.num_rows,
            lambda name, start, stop: table.column(name).slice(start, stop - start).to_pandas(),
        )
    raise InvalidTypeError(f"{_WANTED}, got {type(table).__name__}.")


def _is_records(table: Any) -> bool:
    return isinstance(table, (list, tuple)) and all(isinstance(record, Mapping) for record in table)


def _is_loose(values: Any) -> bool:
    """Tell whether pandas would guess a type: that of texts fails for all where it cannot hold one."""
    return isinstance(values, (list, tuple)) or (isinstance(values, np.ndarray) and values.dtype.kind in "OU")


def _built(table: Any) -> Any:
    pandas = require_pandas()
    try:
        # Objects, not a guess of their type: that would depend on all records together.
        if not isinstance(table, Mapping):
            return pandas.DataFrame(list(table), dtype=object)
        if len({len(values) for values in table.values()}) > 1:
            raise ValueError("lengths")
        columns = {
            name: pandas.Series(values, dtype=object) if _is_loose(values) else values
            for name, values in table.items()
        }
        return pandas.DataFrame(columns)
    except (ValueError, TypeError):
        pass  # its message would quote the data
    raise SchemaError(f"{_WANTED}, got columns of unequal length or of other kinds.")


def _names(names: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(name, str) for name in names):
        raise SchemaError("Expected the names of all columns as texts, got others. Read the file's header.")
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise SchemaError(f"Column {twice!r} is in the table twice. Rename or drop one of them.")
    return tuple(names)


def check_names(names: tuple[str, ...], needed: tuple[str, ...], declared: frozenset[str]) -> None:
    """Refuse a table that lacks a needed column or has one that is not declared."""
    present = frozenset(names)
    absent = [name for name in needed if name not in present]
    if absent:
        raise SchemaError(
            f"The table lacks {listed(absent)}. The schema declares {len(absent)} column(s) that are not "
            "there: compare the spelling with the header of the file."
        )
    others = [name for name in names if name not in declared]
    if others:
        raise SchemaError(
            f"The table has {listed(others)}, which the schema does not declare. Declare each as "
            'Ignored (kind = "ignored") or drop it.'
        )


def listed(names: list[str] | tuple[str, ...], most: int = 5) -> str:
    """Return a short list of column names for a message."""
    shown = ", ".join(repr(name[:80]) for name in names[:most])
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return f"the column{'s' if len(names) > 1 else ''} {shown}{rest}"
