"""The encoder of mixed tables: a scikit-learn transformer that learns nothing."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sordino.elsewhere import where_rows_lie
from sordino.errors import InvalidInputError, SchemaError
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.clip import clipped_matrix
from sordino.tables.basis import KNOTS, Basis, knots_of
from sordino.tables.columns import Category, Column, Date, Flag, Number, Ordinal, Text, refuse
from sordino.tables.schema import Schema
from sordino.tables.values import MISSING, OTHER, Frame, codes_of, days_of, flags_of, numbers_of, words_of

# --------------------------------------------- From the values of one column to entries of the encoded rows
# A column stores a fixed number of entries per row (words apart), so a million rows are two arrays that are
# filled column by column. The entries of one column have Euclidean norm at most one.


Knots = int | tuple[float, ...]


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
    basis : where there is one, a line from -1 to 1 stands before the knots, and lines and knots have weights.
    shares : of the range at each knot, for the line; two equal steps where there are no knots.
    points : the values at the positions 0, 1, 2 and so on: knots, ends of a line, or levels.
    """

    name: str
    labels: tuple[str, ...]
    read: Callable[[Any], Any]
    levels: bool = False
    other: bool = False
    missing: str = "column"
    basis: Basis | None = None
    shares: Floats = field(default_factory=lambda: np.array([0.0, 1.0]))
    points: tuple[Any, ...] = ()

    @property
    def signed(self) -> bool:
        """Whether one column, from -1 to 1, is all of it: a line, a flag or two levels, of a basis."""
        two = len(self.labels) == 2 if self.levels else len(self.labels) == 1
        return self.basis is not None and two

    @property
    def parts(self) -> tuple[str, ...]:
        """What the regular columns stand for."""
        if self.signed:
            return (self.labels[-1],)
        lined = self.basis is not None and not self.levels
        return ("", *self.labels) if lined else self.labels

    @property
    def width(self) -> int:
        """How many entries a row stores."""
        if self.levels or len(self.labels) == 1:
            return 1
        return 2 if self.basis is None else 3

    @property
    def origins(self) -> list[Origin]:
        """Where the encoded columns come from."""
        extra = ["other"] * self.other + ["missing"] * (self.missing == "column")
        return [Origin(self.name, part) for part in (*self.parts, *extra)]

    @property
    def feature_names(self) -> list[str]:
        """The names of the encoded columns."""
        own = [self._named(part) for part in self.parts]
        return own + [f"{self.name} ({origin.part})" for origin in self.origins[len(own) :]]

    def _named(self, part: str) -> str:
        return f"{self.name}{'=' if self.levels else ' '}{part}".rstrip()

    def entries(self, positions: Any) -> Entries:
        """Return the entries of each row, given their positions."""
        absent, strange = self._apart(positions)
        out = self._regular(np.where(absent | strange, 0, positions))
        self._special(out, strange, len(self.parts) if self.other else None)
        place = len(self.parts) + (self.other and self.missing == "column")
        self._special(out, absent, place if self.missing in ("column", "other") else None)
        return out

    def _apart(self, positions: Any) -> tuple[Any, Any]:
        """Return which rows have no value, and which one that is not declared."""
        absent = np.isnan(positions) if positions.dtype.kind == "f" else positions == MISSING
        return absent, positions == OTHER if self.levels or self.other else np.zeros(1, dtype=bool)

    def _regular(self, positions: Any) -> Entries:
        if self.signed:
            return Entries(np.zeros((positions.size, 1), dtype=np.int32), self._weighted_line(positions))
        if self.levels:
            return Entries(positions.astype(np.int32)[:, None], np.ones((positions.size, 1)))
        if len(self.labels) == 1:
            return Entries(np.zeros((positions.size, 1), dtype=np.int32), positions.astype(float)[:, None])
        cell = np.minimum(positions.astype(np.int32), len(self.labels) - 2)
        weight, lined = positions - cell, self.width - 2
        places, values = np.empty((cell.size, self.width), dtype=np.int32), np.empty((cell.size, self.width))
        np.add(cell, lined, out=places[:, -2])
        np.add(cell, lined + 1, out=places[:, -1])
        values[:, -1] = weight
        np.subtract(1.0, weight, out=values[:, -2])
        if self.basis is not None:
            places[:, 0], values[:, :1] = 0, self._weighted_line(positions)
            values[:, 1:] *= self.basis.curve
        return Entries(places, values)

    def _weighted_line(self, positions: Any) -> Floats:
        plain = self.basis is None or self.levels or self.read is flags_of
        return self._line(positions) * (1.0 if plain or self.basis is None else self.basis.line)

    def _line(self, positions: Any) -> Floats:
        """Return the share of the range from -1 to 1, as one column."""
        shares = np.interp(positions, np.arange(float(self.shares.size)), self.shares)
        return np.asarray(2.0 * shares - 1.0)[:, None]

    def _special(self, out: Entries, rows: Any, place: int | None) -> None:
        """Write rows that have no position: one at their place, or nothing at all."""
        if not rows.any():
            return
        out.values[rows] = 0.0
        if place is not None:
            out.places[rows] = np.arange(place - self.width + 1, place + 1)
            out.values[rows, -1] = 1.0

    def grid(self, rest: bool = True) -> tuple[tuple[Any, ...], Any]:
        """Return values between which effects are straight, or all levels, and their positions.

        What has no column among the regular ones, other levels and gaps of a category, counts as ``rest``.
        """
        count = len(self.points)
        if isinstance(self.points[0], float):  # a pair may bend in the middle of the range
            every = np.arange(float(count))
            positions = np.unique(np.append(every, np.interp(0.5, self.shares, every)))
            return tuple(np.interp(positions, every, self.points).tolist()), positions
        if not self.levels:
            return self.points, np.arange(float(count))
        more = {"(other)": OTHER} if self.other and rest else {}
        more |= {"(missing)": MISSING} if self.missing == "column" and rest else {}
        return (*self.points, *more), np.array([*range(count), *more.values()])

    @property
    def contrasts(self) -> tuple[str, ...]:
        """What the column brings into its pairs: a line and a tent, minus or plus one, or its levels."""
        if self.signed and (self.levels or self.read is flags_of):
            return (self._named(self.labels[-1]),)
        return tuple(map(self._named, self.labels)) if self.levels else (self.name, f"{self.name} middle")

    def contrast(self, positions: Any) -> Entries:
        """Return what each row brings into the pairs of the column; undeclared values bring none."""
        absent, strange = self._apart(positions)
        known = ~(absent | strange)
        regular = np.where(known, positions, 0)
        if self.levels and not self.signed:
            return Entries(regular.astype(np.int64)[:, None], known.astype(float)[:, None])
        line = self._line(regular)
        both = [line, 1.0 - 2.0 * np.abs(line)][: len(self.contrasts)]
        values = np.hstack(both) * known[:, None]
        return Entries(np.tile(np.arange(len(both), dtype=np.int64), (len(values), 1)), values)


@dataclass(frozen=True, eq=False)
class PairBlock:
    """The products of what two columns bring into their pair, with one weight."""

    first: Block
    second: Block
    weight: float

    @property
    def origins(self) -> list[Origin]:
        """Where the encoded columns come from."""
        return [Origin(f"{self.first.name} x {self.second.name}", name) for name in self.feature_names]

    @property
    def feature_names(self) -> list[str]:
        """The names of the encoded columns."""
        return [f"{a} x {b}" for a in self.first.contrasts for b in self.second.contrasts]

    @property
    def width(self) -> int:
        """How many entries a row stores."""
        return math.prod(1 if b.levels else len(b.contrasts) for b in (self.first, self.second))

    def entries(self, contrasts: dict[str, Entries]) -> Entries:
        """Return the entries of each row, given what its columns bring into their pairs."""
        a, b = contrasts[self.first.name], contrasts[self.second.name]
        places = a.places[:, :, None] * len(self.second.contrasts) + b.places[:, None, :]
        values = (self.weight * a.values)[:, :, None] * b.values[:, None, :]
        return Entries(places.reshape(len(places), -1), values.reshape(len(values), -1))


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


Fixed = Block | PairBlock
AnyBlock = Fixed | WordBlock


def block_of(column: Column, markers: frozenset[str], basis: Basis | None = None) -> Block | WordBlock:
    """Return the block of a column whose bounds and levels are known."""
    name, knots = column.name, knots_of(column, KNOTS if basis is None else basis.knots)
    if isinstance(column, Text):
        return WordBlock(column)
    if isinstance(column, Flag):
        block = Block(name, ("",), flags_of, missing=column.missing, points=("no", "yes"))
    elif isinstance(column, Number):
        block = _number_block(column, knots, markers)
    elif isinstance(column, Date):
        block = _date_block(column, knots)
    elif isinstance(column, Ordinal):
        block = _ordinal_block(column, knots, markers)
    else:
        assert isinstance(column, Category)
        levels, other = column.levels or (), column.other == "column"
        read = _codes_reader(levels, markers)
        block = Block(name, levels, read, True, other, column.missing, points=levels)
    return block if basis is None else replace(block, basis=basis)


def _codes_reader(levels: tuple[str, ...], markers: frozenset[str]) -> Callable[[Any], Ints]:
    return lambda series: codes_of(series, levels, markers)


def knot_values(column: Number, knots: Knots) -> Floats:
    """Return the knots of a column with bounds; the two ends where the effect is a line."""
    low, high = column.low or 0.0, column.high or 0.0
    if isinstance(knots, tuple):
        return np.array([low, *knots, high])
    if not column.log:
        return np.linspace(low, high, max(knots, 2))
    inner = low + np.expm1(np.linspace(0.0, np.log1p(high - low), max(knots, 2)))
    return np.array([low, *inner[1:-1], high])


def _number_block(column: Number, given: Knots, markers: frozenset[str]) -> Block:
    knots, fill = knot_values(column, given), np.nan
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

    labels = ("",) if given == 1 else tuple(f"at {knot:.12g}" for knot in knots)
    scale = np.log1p(knots - knots[0]) if column.log else knots
    points = tuple(knots.tolist())
    return Block(column.name, labels, read, missing=missing, shares=_shares(scale), points=points)


def _shares(knots: Floats) -> Floats:
    """Return the share of the range at each knot."""
    return np.asarray((knots - knots[0]) / (knots[-1] - knots[0]))


def _date_block(column: Date, given: Knots) -> Block:
    low, high = (day.toordinal() for day in (column.low, column.high) if isinstance(day, datetime.date))
    assert isinstance(given, int)
    knots = np.unique(np.linspace(low, high, max(given, 2)).round())  # whole days, each once
    days = [datetime.date.fromordinal(int(knot)).isoformat() for knot in knots]
    labels = ("",) if given == 1 else tuple(f"at {day}" for day in days)

    def read(series: Any) -> Floats:
        return _between(days_of(column.name, series), knots)

    return Block(column.name, labels, read, missing=column.missing, shares=_shares(knots), points=tuple(days))


def _ordinal_block(column: Ordinal, knots: Knots, markers: frozenset[str]) -> Block:
    levels = column.levels
    assert isinstance(knots, int)
    places = np.linspace(0, len(levels) - 1, min(max(knots, 2), len(levels))).round()
    read = _codes_reader(levels, markers)

    def positions(series: Any) -> Floats:
        codes = read(series)
        found = np.where(codes == OTHER, float(OTHER), _between(codes.astype(float), places))
        return np.where(codes == MISSING, np.nan, found)

    labels = ("",) if knots == 1 else tuple(f"at {levels[int(place)]}" for place in places)
    points = tuple(levels[int(place)] for place in places)
    block = Block(column.name, labels, positions, False, True, column.missing, points=points)
    return replace(block, shares=_shares(places))


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
    basis : a :class:`Basis`, as a fitted linear model has one (``model.encoder_.basis``): lines beside the
        curves, and products of pairs of columns. None encodes each column once, with five knots.
    sparse_output : "auto" returns a CSR matrix where it takes less memory, True always, False never.
    dtype : of the result, float64 or float32.

    Attributes
    ----------
    data_norm_ : a bound on the norm of every encoded row: the root of the number of columns, or of what the
        blocks of a basis add.
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
    ['age', 'age (missing)', 'town=Bonn', 'town=Rome', 'town (other)', 'town (missing)']
    """

    data_norm_: float
    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    schema: Schema
    schema_: Schema

    def __init__(
        self,
        schema: Schema,
        *,
        basis: Basis | None = None,
        sparse_output: bool | str = "auto",
        dtype: Any = "float64",
    ) -> None:
        self.schema = schema
        self.basis = basis
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
        schema = Schema.of(self.schema)
        if not isinstance(schema, Schema):
            raise SchemaError(f"Expected a sordino.Schema or its path, got {type(self.schema).__name__}.")
        schema.require_known()
        if self.basis is not None and not isinstance(self.basis, Basis):
            raise InvalidInputError(f"Expected basis as a Basis or None, got {type(self.basis).__name__}.")
        if not isinstance(self.sparse_output, bool) and self.sparse_output != "auto":
            raise InvalidInputError("Expected sparse_output to be 'auto', True or False.")
        if str(getattr(self.dtype, "__name__", self.dtype)) not in ("float64", "float32"):
            raise InvalidInputError("Expected dtype float64 or float32.")
        if X is not None:
            self._refuse_persons(schema)
            schema.checked(X)
        self.schema_ = schema
        if len(self.origins) > MOST_FEATURES:
            raise SchemaError(f"The schema makes more than {MOST_FEATURES} columns. Declare fewer levels.")
        self.feature_names_in_ = np.array([c.name for c in schema.features], dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        self.data_norm_ = schema.data_norm
        if self.basis is not None:
            self.data_norm_ = math.sqrt(self.basis.squared_norm(schema.features))
        return self

    @staticmethod
    def _refuse_persons(schema: Schema) -> None:
        if schema.weighing:
            raise refuse(
                schema.weighing[0].name,
                "it says how much a record counts, and encoded rows have no weights",
                "Give the schema to a linear model itself (schema=), or declare the column as ignored.",
            )
        if schema.person is not None:
            raise refuse(
                schema.person.name,
                "it says whose record each one is, and encoded rows have no owners",
                "Give the schema to the model itself (schema=), or declare the column as ignored and pass "
                "the owners to the model: pipeline.fit(table, y, model__groups=owners).",
            )

    def blocks(self) -> list[AnyBlock]:
        """Return the blocks of the columns; made when needed, so that a fitted encoder is plain data.

        With a basis pairs stand behind their columns, and texts last.
        """
        markers, basis = frozenset(self.schema_.markers), self.basis
        blocks: list[AnyBlock] = [block_of(column, markers, basis) for column in self.schema_.features]
        if basis is None:
            return blocks
        named = {block.name: block for block in blocks if isinstance(block, Block)}
        weight = basis.pair / math.sqrt(max(len(basis.pairs), 1))
        words = [block for block in blocks if isinstance(block, WordBlock)]
        return [*named.values(), *(PairBlock(named[a], named[b], weight) for a, b in basis.pairs), *words]

    @property
    def origins(self) -> list[Origin]:
        """For each encoded column, the column it comes from and what of it."""
        return [origin for block in self.blocks() for origin in block.origins]

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the encoded columns: the column and its level, knot, "other" or "missing"."""
        check_is_fitted(self)
        return np.array([name for block in self.blocks() for name in block.feature_names], dtype=object)

    @where_rows_lie
    def transform(self, X: Any) -> Any:
        """Return the encoded rows: a CSR matrix or an array."""
        check_is_fitted(self)
        found = self.encoded(self.schema_.checked(X))
        config = {
            "transform": get_config()["transform_output"],
            **getattr(self, "_sklearn_output_config", {}),
        }
        wanted = config["transform"] not in (None, "default") and self.sparse_output == "auto"
        return found.toarray() if wanted and sparse.issparse(found) else found  # frames hold dense columns

    def encoded(self, frame: Frame) -> Any:
        """Return the encoded rows of a table whose names were checked."""
        blocks = self.blocks()
        fixed = [block for block in blocks if not isinstance(block, WordBlock)]
        if len(fixed) < len(blocks) or self._is_sparse(fixed):
            parts = self._parts(frame, blocks)
            out = parts[0] if len(parts) == 1 else sparse.hstack(parts, format="csr", dtype=self.dtype)
            return out if self.sparse_output is not False else out.toarray()
        return self._dense(frame, fixed)

    def _is_sparse(self, blocks: Sequence[Fixed]) -> bool:
        if self.sparse_output != "auto":
            return bool(self.sparse_output)
        stored = sum(block.width for block in blocks)
        return SPARSE_PAYS * stored < sum(len(block.origins) for block in blocks)

    def _parts(self, frame: Frame, blocks: Sequence[AnyBlock]) -> list[Any]:
        """Return neighbouring columns of fixed width as one matrix, texts as their own."""
        parts: list[Any] = []
        run: list[Fixed] = []
        for block in blocks:
            if not isinstance(block, WordBlock):
                run.append(block)
                continue
            parts += [self._csr(frame, run)] if run else []
            parts.append(block.matrix(frame.column(block.column.name), self.dtype))
            run = []
        return [*parts, self._csr(frame, run)] if run else parts

    def _csr(self, frame: Frame, blocks: Sequence[Fixed]) -> sparse.csr_matrix:
        width, n = sum(block.width for block in blocks), frame.rows
        index = np.int32 if n * width < 2**31 else np.int64
        places, values = np.empty((n, width), dtype=index), np.empty((n, width), dtype=self.dtype)
        for rows, at, offset, entries in _entries(frame, blocks):
            here = slice(at, at + entries.values.shape[1])
            np.add(entries.places, offset, out=places[rows, here], casting="unsafe")
            values[rows, here] = entries.values
        columns = sum(len(block.origins) for block in blocks)
        ends = np.arange(0, n * width + 1, width, dtype=index)
        parts = (values.reshape(-1), places.reshape(-1), ends)
        out = sparse.csr_matrix(parts, shape=(n, columns), copy=False)
        out.has_sorted_indices = out.has_canonical_format = True
        return out

    def _dense(self, frame: Frame, blocks: Sequence[Fixed]) -> NDArray[Any]:
        out = np.zeros((frame.rows, sum(len(block.origins) for block in blocks)), dtype=self.dtype)
        for rows, _, offset, entries in _entries(frame, blocks):
            part = out[rows]
            every = np.arange(len(part))
            for places, values in zip(entries.places.T, entries.values.T):
                part[every, places + offset] = values
        return out


def _entries(frame: Frame, blocks: Sequence[Fixed]) -> Iterator[tuple[slice, int, int, Entries]]:
    """Yield the entries of some rows, column after column, with how many entries and columns are before them.

    Some rows at a time: a block of them stays in the cache while column after column is written.
    """
    paired = {
        one.name for block in blocks if isinstance(block, PairBlock) for one in (block.first, block.second)
    }
    sizes = [len(block.origins) for block in blocks]
    for start in range(0, frame.rows, ROWS):
        rows = slice(start, min(start + ROWS, frame.rows))
        contrasts: dict[str, Entries] = {}
        at = offset = 0
        for block, size in zip(blocks, sizes):
            if isinstance(block, PairBlock):
                entries = block.entries(contrasts)
            else:
                positions = block.read(frame.part(block.name, rows.start, rows.stop))
                entries = block.entries(positions)
                if block.name in paired:
                    contrasts[block.name] = block.contrast(positions)
            yield rows, at, offset, entries
            at, offset = at + block.width, offset + size
