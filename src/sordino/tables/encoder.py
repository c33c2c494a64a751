"""The encoder of mixed tables: a scikit-learn transformer that learns nothing."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sordino.elsewhere import where_rows_lie
from sordino.errors import InvalidInputError, SchemaError
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.clip import clipped_matrix
from sordino.tables.columns import KNOTS, Category, Column, Date, Flag, Number, Ordinal, Text, refuse
from sordino.tables.schema import Schema
from sordino.tables.values import MISSING, OTHER, Frame, codes_of, days_of, flags_of, numbers_of, words_of

# --------------------------------------------- From the values of one column to entries of the encoded rows
# A column stores a fixed number of entries per row (words apart), so a million rows are two arrays that are
# filled column by column. The entries of one column have Euclidean norm at most one.


class Origin(NamedTuple):
    """The column that an encoded one comes from, and what of it: a level, a knot, "other", "missing"."""

    column: str
    part: str


class Entries(NamedTuple):
    """Places within a block, rising along a row, and values; shape (rows, width)."""

    places: Ints
    values: Floats


@dataclass(frozen=True, eq=False)
class Block:
    """The encoded columns of one column of the table.

    Parameters
    ----------
    name : of the column.
    labels : what the regular ones stand for: levels, knots, or nothing for the value itself.
    read : from a pandas Series to positions: level numbers (width 1), or places between knots, nan or a
        negative code for what is missing or not declared.
    levels : positions are level numbers; else a row has weights at the two knots around its position, or
        the position itself where there is one label only.
    other : there is a column for values that are not declared.
    missing : the rule for missing values.
    """

    name: str
    labels: tuple[str, ...]
    read: Callable[[Any], Any]
    levels: bool = False
    other: bool = False
    missing: str = "column"

    @property
    def width(self) -> int:
        """How many entries a row stores."""
        return 1 if self.levels or len(self.labels) == 1 else 2

    @property
    def origins(self) -> list[Origin]:
        """Where the encoded columns come from."""
        extra = ["other"] * self.other + ["missing"] * (self.missing == "column")
        return [Origin(self.name, part) for part in (*self.labels, *extra)]

    @property
    def feature_names(self) -> list[str]:
        """The names of the encoded columns."""
        join = "=" if self.levels else " "
        own = [f"{self.name}{join}{label}".rstrip() for label in self.labels]
        return own + [f"{self.name} {origin.part}" for origin in self.origins[len(own) :]]

    def entries(self, series: Any) -> Entries:
        """Return the entries of each row."""
        positions = self.read(series)
        absent = np.isnan(positions) if positions.dtype.kind == "f" else positions == MISSING
        strange = positions == OTHER if self.levels or self.other else np.zeros(1, dtype=bool)
        regular = np.where(absent | strange, 0, positions)
        out = self._regular(regular)
        self._special(out, strange, len(self.labels) if self.other else None)
        place = len(self.labels) + (self.other and self.missing == "column")
        self._special(out, absent, place if self.missing in ("column", "other") else None)
        return out

    def _regular(self, positions: Any) -> Entries:
        if self.levels:
            return Entries(positions.astype(np.int32)[:, None], np.ones((positions.size, 1)))
        if len(self.labels) == 1:
            return Entries(np.zeros((positions.size, 1), dtype=np.int32), positions.astype(float)[:, None])
        cell = np.minimum(positions.astype(np.int32), len(self.labels) - 2)
        weight = positions - cell
        places, values = np.empty((cell.size, 2), dtype=np.int32), np.empty((cell.size, 2))
        places[:, 0], values[:, 1] = cell, weight
        np.add(cell, 1, out=places[:, 1])
        np.subtract(1.0, weight, out=values[:, 0])
        return Entries(places, values)

    def _special(self, out: Entries, rows: Any, place: int | None) -> None:
        """Write rows that have no position: one at their place, or nothing at all."""
        if not rows.any():
            return
        out.values[rows] = 0.0
        if place is not None:
            out.places[rows] = np.arange(place - self.width + 1, place + 1)
            out.values[rows, -1] = 1.0


@dataclass(frozen=True, eq=False)
class WordBlock:
    """The hashed words of a text, clipped to norm one together."""

    column: Text

    @property
    def origins(self) -> list[Origin]:
        """Where the encoded columns come from."""
        parts = [f"words {bucket}" for bucket in range(self.column.buckets)]
        return [Origin(self.column.name, part) for part in parts]

    @property
    def feature_names(self) -> list[str]:
        """The names of the encoded columns."""
        return [f"{origin.column} {origin.part}" for origin in self.origins]

    def matrix(self, series: Any, dtype: Any) -> sparse.csr_matrix:
        """Return the words of each row, each counted once."""
        from sklearn.feature_extraction.text import HashingVectorizer

        hashing = HashingVectorizer(
            n_features=self.column.buckets, norm=None, binary=True, token_pattern=r"(?u)\w+", dtype=dtype
        )
        return clipped_matrix(hashing.transform(words_of(series)), 1.0)


def block_of(column: Column, markers: frozenset[str]) -> Block | WordBlock:
    """Return the block of a column whose bounds and levels are known."""
    name = column.name
    if isinstance(column, Text):
        return WordBlock(column)
    if isinstance(column, Flag):
        return Block(name, ("",), flags_of, missing=column.missing)
    if isinstance(column, Number):
        return _number_block(column, markers)
    if isinstance(column, Date):
        return _date_block(column)
    assert isinstance(column, (Category, Ordinal))
    levels = column.levels or ()
    if isinstance(column, Ordinal):
        return _ordinal_block(column, levels, markers)
    read = _codes_reader(levels, markers)
    return Block(name, levels, read, levels=True, other=column.other == "column", missing=column.missing)


def _codes_reader(levels: tuple[str, ...], markers: frozenset[str]) -> Callable[[Any], Ints]:
    return lambda series: codes_of(series, levels, markers)


def knots_of(column: Number) -> Floats:
    """Return the knots of a column with bounds; the two ends where the effect is a line."""
    low, high = column.low or 0.0, column.high or 0.0
    if isinstance(column.knots, tuple):
        return np.array([low, *column.knots, high])
    if not column.log:
        return np.linspace(low, high, max(column.knots, 2))
    inner = low + np.expm1(np.linspace(0.0, np.log1p(high - low), max(column.knots, 2)))
    return np.array([low, *inner[1:-1], high])


def _number_block(column: Number, markers: frozenset[str]) -> Block:
    knots, fill = knots_of(column), np.nan
    missing = "zero"
    if isinstance(column.missing, str):
        missing = column.missing
    else:
        fill = float(column.missing)

    def read(series: Any) -> Floats:
        values = numbers_of(column.name, series, markers)
        values = np.where(np.isnan(values), fill, values)
        if not column.log:
            return _between(values, knots)
        above = np.clip(values, knots[0], knots[-1]) - knots[0]
        return _between(np.log1p(above), np.log1p(knots - knots[0]))

    labels = ("",) if column.knots == 1 else tuple(f"at {knot:.12g}" for knot in knots)
    return Block(column.name, labels, read, missing=missing)


def _date_block(column: Date) -> Block:
    low, high = (day.toordinal() for day in (column.low, column.high) if isinstance(day, datetime.date))
    knots = np.unique(np.linspace(low, high, max(column.knots, 2)).round())  # whole days, each once
    days = [datetime.date.fromordinal(int(knot)).isoformat() for knot in knots]
    labels = ("",) if column.knots == 1 else tuple(f"at {day}" for day in days)

    def read(series: Any) -> Floats:
        return _between(days_of(column.name, series), knots)

    return Block(column.name, labels, read, missing=column.missing)


def _ordinal_block(column: Ordinal, levels: tuple[str, ...], markers: frozenset[str]) -> Block:
    places = np.linspace(0, len(levels) - 1, min(KNOTS, len(levels))).round()
    read = _codes_reader(levels, markers)

    def positions(series: Any) -> Floats:
        codes = read(series)
        found = np.where(codes == OTHER, float(OTHER), _between(codes.astype(float), places))
        return np.where(codes == MISSING, np.nan, found)

    labels = tuple(f"at {levels[int(place)]}" for place in places)
    return Block(column.name, labels, positions, other=True, missing=column.missing)


def _between(values: Floats, knots: Floats) -> Floats:
    """Return places among the knots, from 0; nan stays nan, what is outside is clipped."""
    return np.asarray(np.interp(values, knots, np.arange(float(knots.size))))


# A stored entry of a sparse row takes 12 bytes, one of a dense row 8.
SPARSE_PAYS = 1.5
MOST_FEATURES = 10_000_000
ROWS = 1 << 15


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode a table of numbers, categories, flags, dates and texts into rows of bounded norm.

    Numbers are clipped to their declared bounds and become weights of the two knots around them, so that an
    effect may bend; categories become one column per level, with "other" for levels that are not declared;
    missing values have a column of their own. Tables are pandas or polars frames, Arrow tables, lists of
    records or dictionaries of columns.

    Parameters
    ----------
    schema : the declared :class:`~sordino.tables.schema.Schema`.
    sparse_output : "auto" returns a CSR matrix where it takes less memory, True always, False never.
    dtype : of the result, float64 or float32.

    Attributes
    ----------
    data_norm_ : a bound on the norm of every encoded row: the root of the number of columns.
    feature_names_in_, n_features_in_ : the columns of the table that are used.

    **Privacy.** Free: row i of the result depends on record i and on declared constants alone.

    Examples
    --------
    >>> from sordino import Schema, TableEncoder
    >>> from sordino.tables import Category, Number
    >>> schema = Schema([Number("age", 0, 100, knots=1), Category("town", ["Bonn", "Rome"])])
    >>> encoder = TableEncoder(schema, sparse_output=False).fit()
    >>> encoder.transform([{"age": 34, "town": "Rome"}, {"age": 170, "town": "Oslo"}])
    array([[0.34, 0.  , 0.  , 1.  , 0.  , 0.  ],
           [1.  , 0.  , 0.  , 0.  , 1.  , 0.  ]])
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'age missing', 'town=Bonn', 'town=Rome', 'town other', 'town missing']
    """

    data_norm_: float
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    schema: Schema
    schema_: Schema

    def __init__(self, schema: Schema, *, sparse_output: bool | str = "auto", dtype: Any = "float64") -> None:
        self.schema = schema
        self.sparse_output = sparse_output
        self.dtype = dtype

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any = None, y: Any = None) -> TableEncoder:
        """Check the schema, and the names of the table's columns if there is one; nothing is learnt.

        A table whose schema has a person column is refused here: encoded rows, as a later step of a pipeline
        sees them, have no owners, and that step would protect records.
        """
        if not isinstance(self.schema, Schema):
            raise SchemaError(f"Expected a sordino.Schema, got {type(self.schema).__name__}.")
        self.schema.require_known()
        if not isinstance(self.sparse_output, bool) and self.sparse_output != "auto":
            raise InvalidInputError("Expected sparse_output to be 'auto', True or False.")
        if str(getattr(self.dtype, "__name__", self.dtype)) not in ("float64", "float32"):
            raise InvalidInputError("Expected dtype float64 or float32.")
        if X is not None:
            self._refuse_persons(self.schema)
            self.schema.checked(X)
        self.schema_ = self.schema
        if len(self.origins) > MOST_FEATURES:
            raise SchemaError(f"The schema makes more than {MOST_FEATURES} columns. Declare fewer levels.")
        self.feature_names_in_ = np.array([c.name for c in self.schema.features], dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        self.data_norm_ = self.schema.data_norm
        return self

    @staticmethod
    def _refuse_persons(schema: Schema) -> None:
        if schema.person is not None:
            raise refuse(
                schema.person.name,
                "it says whose record each one is, and encoded rows have no owners",
                "Give the schema to the model itself (schema=), or declare the column as ignored and pass "
                "the owners to the model: pipeline.fit(table, y, model__groups=owners).",
            )

    def _blocks(self) -> list[Block | WordBlock]:
        """Return the blocks of the columns; made when needed, so that a fitted encoder is plain data."""
        markers = frozenset(self.schema_.markers)
        return [block_of(column, markers) for column in self.schema_.features]

    @property
    def origins(self) -> list[Origin]:
        """For each encoded column, the column it comes from and what of it."""
        return [origin for block in self._blocks() for origin in block.origins]

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the encoded columns: the column and its level, knot, "other" or "missing"."""
        check_is_fitted(self)
        return np.array([name for block in self._blocks() for name in block.feature_names], dtype=object)

    @where_rows_lie
    def transform(self, X: Any) -> Any:
        """Return the encoded rows: a CSR matrix or an array."""
        check_is_fitted(self)
        return self.encoded(self.schema_.checked(X))

    def encoded(self, frame: Frame) -> Any:
        """Return the encoded rows of a table whose names were checked."""
        blocks = self._blocks()
        fixed = [block for block in blocks if isinstance(block, Block)]
        if len(fixed) < len(blocks) or self._is_sparse(fixed):
            parts = self._parts(frame, blocks)
            out = parts[0] if len(parts) == 1 else sparse.hstack(parts, format="csr", dtype=self.dtype)
            return out if self.sparse_output is not False else out.toarray()
        return self._dense(frame, fixed)

    def _is_sparse(self, blocks: list[Block]) -> bool:
        if self.sparse_output != "auto":
            return bool(self.sparse_output)
        stored = sum(block.width for block in blocks)
        return SPARSE_PAYS * stored < sum(len(block.origins) for block in blocks)

    def _parts(self, frame: Frame, blocks: list[Block | WordBlock]) -> list[Any]:
        """Return neighbouring columns of fixed width as one matrix, texts as their own."""
        parts: list[Any] = []
        run: list[Block] = []
        for block in blocks:
            if isinstance(block, Block):
                run.append(block)
                continue
            parts += [self._csr(frame, run)] if run else []
            parts.append(block.matrix(frame.column(block.column.name), self.dtype))
            run = []
        return [*parts, self._csr(frame, run)] if run else parts

    def _csr(self, frame: Frame, blocks: list[Block]) -> sparse.csr_matrix:
        width, n = sum(block.width for block in blocks), frame.rows
        index = np.int32 if n * width < 2**31 else np.int64
        places, values = np.empty((n, width), dtype=index), np.empty((n, width), dtype=self.dtype)
        # Some rows at a time: a block of them stays in the cache while column after column is written.
        for start in range(0, n, ROWS):
            rows = slice(start, min(start + ROWS, n))
            _fill(places[rows], values[rows], frame, blocks, rows)
        columns = sum(len(block.origins) for block in blocks)
        ends = np.arange(0, n * width + 1, width, dtype=index)
        parts = (values.reshape(-1), places.reshape(-1), ends)
        out = sparse.csr_matrix(parts, shape=(n, columns), copy=False)
        out.has_sorted_indices = out.has_canonical_format = True
        return out

    def _dense(self, frame: Frame, blocks: list[Block]) -> NDArray[Any]:
        out = np.zeros((frame.rows, len(self.origins)), dtype=self.dtype)
        rows, offset = np.arange(frame.rows), 0
        for block in blocks:
            entries = block.entries(frame.column(block.name))
            for places, values in zip(entries.places.T, entries.values.T):
                out[rows, places + offset] = values
            offset += len(block.origins)
        return out


def _fill(places: NDArray[Any], values: NDArray[Any], frame: Frame, blocks: list[Block], rows: slice) -> None:
    """Write the entries of some rows, column after column."""
    at = offset = 0
    for block in blocks:
        entries = block.entries(frame.part(block.name, rows.start, rows.stop))
        here = slice(at, at + block.width)
        np.add(entries.places, offset, out=places[:, here], casting="unsafe")
        values[:, here] = entries.values
        at, offset = at + block.width, offset + len(block.origins)
