"""Tables of mixed types, encoded by a declared schema: levels and bounds never come from the data.

A column of numbers is clipped to its declared bounds and mapped to [0, 1]; a category becomes one
column per declared level. A value that is missing or not declared leaves its columns at zero. Each
row of the result depends on that record alone, so the encoding costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

_MISSING = (b"", b"?", b".", b"NA")


def _is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.logical_or.reduce([values == marker for marker in _MISSING])


def _numbers(values: NDArray[Any]) -> NDArray[np.float64]:
    """Parse a column of bytes; what is missing becomes NaN."""
    try:
        return values.astype(np.float64)
    except ValueError:
        return np.where(_is_missing(values), b"nan", values).astype(np.float64)


@dataclass(frozen=True)
class Number:
    """A column of numbers with public bounds.

    ``x -> (clip(x) - low) / (high - low)``, or with ``log`` the same of ``log(1 + x - low)``.
    """

    name: str
    low: float
    high: float
    log: bool = False
    missing_column: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        return (self.name, f"{self.name} missing") if self.missing_column else (self.name,)

    def encode(self, values: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield (column, entries) over the distinct rows."""
        numbers = _numbers(values)
        clipped = np.clip(numbers, self.low, self.high) - self.low
        span = self.high - self.low
        scaled = np.log1p(clipped) / math.log1p(span) if self.log else clipped / span
        yield 0, np.nan_to_num(scaled, nan=0.0)
        if self.missing_column:
            yield 1, np.isnan(numbers).astype(np.float64)


@dataclass(frozen=True)
class Category:
    """A column of categories with a public list of levels."""

    name: str
    levels: tuple[str, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        return tuple(f"{self.name}={level}" for level in self.levels)

    def encode(self, values: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield (column, entries) over the distinct rows."""
        for column, level in enumerate(self.levels):
            yield column, (values == level.encode()).astype(np.float64)


@dataclass(frozen=True)
class Schema:
    """The declared columns of a table. Everything in it is public and fixed before any data."""

    columns: tuple[Number | Category, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def n_features(self) -> int:
        """The number of encoded columns."""
        return len(self.feature_names)

    @property
    def norm_bound(self) -> float:
        """A bound on the Euclidean norm of every encoded row: each column adds at most one."""
        return math.sqrt(len(self.columns))


@dataclass(frozen=True, eq=False)
class Table:
    """The distinct records of a text file, and which of them each record is.

    ``columns`` holds the distinct records by column as bytes; ``rows[i]`` says which is record i.
    """

    columns: dict[str, NDArray[Any]]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> NDArray[Any]:
        """Return a column as bytes, one entry per record."""
        return self.columns[name][self.rows]

    def complete(self) -> NDArray[np.bool_]:
        """Return which records have no missing value."""
        whole = [~_is_missing(values) for values in self.columns.values()]
        return np.logical_and.reduce(whole)[self.rows]

    def take(self, rows: Any) -> Table:
        """Return some of the records."""
        return Table(self.columns, self.rows[rows])


def read_table(text: bytes, names: tuple[str, ...], separator: bytes = b",") -> Table:
    """Read delimited text without quoting; each distinct line is split once.

    Comment lines (``|``) and empty lines are left out.
    """
    first: dict[bytes, int] = {}
    text = text.replace(separator + b" ", separator).replace(b"\r", b"")
    kept = (line for line in text.split(b"\n") if line and line[:1] != b"|")
    rows = np.fromiter((first.setdefault(line, len(first)) for line in kept), dtype=np.int64)
    if any(line.count(separator) != len(names) - 1 for line in first):
        raise ValueError("the lines do not all have the declared columns")
    # One flat list is several times faster than a list of lists.
    cells = np.array(separator.join(first).split(separator)).reshape(len(first), len(names))
    return Table({name: cells[:, j] for j, name in enumerate(names)}, rows)


def encode_table(table: Table, schema: Schema, dtype: DTypeLike = np.float64) -> sparse.csr_matrix:
    """Encode a table into a sparse matrix with ``schema.n_features`` columns in [0, 1]."""
    rows, cols, values = [], [], []
    offset = 0
    for column in schema.columns:
        for j, entries in column.encode(table.columns[column.name]):
            touched = np.flatnonzero(entries)
            rows.append(touched)
            cols.append(np.full(touched.size, offset + j))
            values.append(entries[touched])
        offset += len(column.feature_names)
    n_distinct = len(next(iter(table.columns.values())))
    triplets = (np.concatenate(values), (np.concatenate(rows), np.concatenate(cols)))
    distinct = sparse.csr_matrix(triplets, shape=(n_distinct, schema.n_features), dtype=dtype)
    return distinct[table.rows]


def raw_records(table: Table, schema: Schema) -> NDArray[Any]:
    """Return the table as a structured array: floats (NaN where missing) and strings."""
    kinds = {c.name: isinstance(c, Number) for c in schema.columns}
    width = f"U{max(values.dtype.itemsize for values in table.columns.values())}"
    fields = [(name, np.float64 if number else width) for name, number in kinds.items()]
    out = np.empty(len(table), dtype=fields)
    for name, number in kinds.items():
        values = table.columns[name]
        out[name] = (_numbers(values) if number else values)[table.rows]
    return out
