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

from sordino.errors import InvalidInputError, require_extra

Entries = tuple[NDArray[Any], Any, Any]  # rows, columns, values


def require_pandas() -> Any:
    """Return pandas, or say which extra brings it."""
    try:
        import pandas
    except ImportError as error:
        raise require_extra("pandas", "datasets") from error
    return pandas


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

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise InvalidInputError(
                f"Expected finite low < high for the column {self.name!r}, got {self.low!r} and "
                f"{self.high!r}. Declare bounds from what the column means, not from the data."
            )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        return (self.name, f"{self.name} missing") if self.missing_column else (self.name,)

    def encode(self, values: Any) -> Iterator[Entries]:
        """Yield the nonzero entries of the encoded columns."""
        numbers = np.asarray(require_pandas().to_numeric(values, errors="coerce"), dtype=np.float64)
        clipped = np.clip(numbers, self.low, self.high) - self.low
        span = self.high - self.low
        scaled = np.nan_to_num(np.log1p(clipped) / np.log1p(span) if self.log else clipped / span)
        rows = np.flatnonzero(scaled)
        yield rows, 0, scaled[rows]
        if self.missing_column:
            yield np.flatnonzero(np.isnan(numbers)), 1, 1.0


@dataclass(frozen=True)
class Category:
    """A column of categories with a public list of levels."""

    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(set(self.levels)) < len(self.levels):
            raise InvalidInputError(f"Expected each level of the column {self.name!r} once.")

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        return tuple(f"{self.name}={level}" for level in self.levels)

    def encode(self, values: Any) -> Iterator[Entries]:
        """Yield the nonzero entries of the encoded columns."""
        pandas = require_pandas()
        # Not pandas.Categorical, which warns where it meets an undeclared level: that would leak one.
        codes = pandas.Index(self.levels).get_indexer(pandas.Series(values).astype(str))
        rows = np.flatnonzero(codes >= 0)
        yield rows, codes[rows], 1.0


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


def encode_table(table: Any, schema: Schema, dtype: DTypeLike = np.float64) -> sparse.csr_matrix:
    """Encode a table into a sparse matrix with ``schema.n_features`` columns in [0, 1].

    Parameters
    ----------
    table : DataFrame or mapping of columns
        Has the columns of the schema; others are left out.
    schema : Schema
        The declared levels and bounds.
    dtype : dtype
        The floating type of the result.

    Notes
    -----
    **Privacy.** Row i of the result depends on record i alone, and its norm is at most
    ``schema.norm_bound`` whatever the record holds.

    Examples
    --------
    >>> schema = Schema((Number("age", 0, 100), Category("town", ("Bonn", "Rome"))))
    >>> encode_table({"age": [34, 71], "town": ["Rome", "Oslo"]}, schema).toarray()
    array([[0.34, 0.  , 1.  ],
           [0.71, 0.  , 0.  ]])
    """
    absent = [column.name for column in schema.columns if column.name not in table]
    if absent:
        raise InvalidInputError(f"The table lacks the declared columns {', '.join(absent)}.")
    found: list[Entries] = []
    offset = 0
    for column in schema.columns:
        for rows, places, values in column.encode(table[column.name]):
            at = np.broadcast_to(places + offset, rows.shape)
            found.append((rows, at, np.broadcast_to(values, rows.shape)))
        offset += len(column.feature_names)
    rows, places, values = (np.concatenate(parts) for parts in zip(*found))
    shape = (len(table[schema.columns[0].name]), schema.n_features)
    return sparse.csr_matrix((values, (rows, places)), shape=shape, dtype=dtype)
