"""What a linear model sees of a table: lines, curves and pairs by a public rule, and their encoder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sordino.elsewhere import where_rows_lie
from sordino.errors import InvalidInputError, SchemaError
from sordino.kernel.arrays import compile_with_cache
from sordino.runs.report import Fact, Source
from sordino.tables.columns import Block, Column, Entries, Origin, Text, WordBlock, refuse
from sordino.tables.schema import Schema
from sordino.tables.values import Frame
from sordino.values import check_count

# Chosen on Computers, SLID, BudgetFood, OFP, VietNamI, flchain and Adult, judged on others (docs/tables.md).
# An epsilon beyond this one does not make room for more columns: then the records themselves are too few.
FULL = 4.0
# Records times epsilon for each column: of curves with nine knots, instead of five (an epsilon beyond 1 does
# not count), and of pairs, of labels twice as many.
FINE, PAIRED = 80.0, 20.0
KNOTS, FINE_KNOTS = 5, 9
# Hats weigh as much as lines at so many records times epsilon. Below it they weigh more, up to a limit: a
# line needs the middle of its column, which few records do not tell. Beyond it they weigh less in models of
# numbers.
EVEN, CURVE_POWER, CURVE_LIMITS = 1000.0, 0.3, (0.5, 1.5)
# All pairs together have weight 1 at so many records times epsilon, and a weight in proportion to them
# between two limits; below the first there are none.
PAIR_EVEN, PAIR_LIMITS = 6000.0, (0.25, 2.0)
# The ridge of a model of numbers, and the share of it for labels. It falls as records times epsilon grow
# beyond the second number, so that a model converges to the plain one.
RIDGE, SETTLED, OF_LABELS = 7e-4, 5e4, 1 / 16


@dataclass(frozen=True)
class Basis:
    """The columns that a linear model gets beside one line per column of the table.

    Parameters
    ----------
    knots : of each number, date and ordinal whose schema declares none; 1 for lines alone.
    pairs : the names of two columns each, whose products are columns of the model too.
    curve : the weight of hats; lines, levels, flags and gaps have weight one.
    pair : the weight of all pairs together: each has this one over the root of their number.
    ridge : the penalty of a model that was given none.

    **Privacy.** It follows from the schema, the number of records (or persons) and epsilon.
    """

    knots: int = KNOTS
    pairs: tuple[tuple[str, str], ...] = ()
    curve: float = 1.0
    pair: float = 2.0
    ridge: float = 0.0

    @property
    def fact(self) -> Fact:
        """What a report says of it."""
        curves = f"curves with {self.knots} knots" if self.knots > 1 else "straight lines"
        words = f"{curves} for columns that declare none, {len(self.pairs)} pairs of columns"
        return Fact(words, Source.RULE)

    def squared_norm(self, columns: Sequence[Column]) -> float:
        """Return a bound on the squared norm of every encoded row: the sum of what each block adds.

        A level, a flag, a gap and the words of a text add at most one; what a column brings into its pairs
        has a squared norm of at most two, its line and its tent, or one.
        """
        tops = {column.name: 1.0 + column.curved for column in columns}
        alone = sum(1.0 + self.curve**2 * (c.curved and c.knots_or(self.knots) != 1) for c in columns)
        paired = sum(tops[a] * tops[b] for a, b in self.pairs) / max(len(self.pairs), 1)
        return alone + self.pair**2 * paired


def choose_basis(
    schema: Schema, units: int, epsilon: float, *, knots: Any = None, pairs: Any = None
) -> Basis:
    """Return the basis for so many records or persons and an epsilon.

    ``knots`` and ``pairs`` are the user's: a number, and True, False or a list of pairs of names; None leaves
    the choice to the rule.
    """
    features = schema.features
    labels = () if schema.target is None else schema.target.levels or ()
    signal = units * min(float(epsilon), FULL) / (len(labels) if len(labels) > 2 else 1)
    each = check_count("knots", knots, 1, 1000, "1 is a straight line.")
    sizes = {c.name: c.contrast_size for c in features if not isinstance(c, Text)}

    def room(pairs: Sequence[tuple[str, str]], knots: int) -> float:
        columns = sum(c.size(knots) for c in features) + sum(sizes[a] * sizes[b] for a, b in pairs)
        return signal / max(columns, 1)

    every = tuple(combinations(sizes, 2))
    if pairs is None:
        enough = PAIRED * (2.0 if labels else 1.0)
        known = signal >= PAIR_LIMITS[0] * PAIR_EVEN and room(every, each or KNOTS) >= enough
        found = every if known else ()
    else:
        found = _name_pairs(pairs, every)
    if each is None:
        each = FINE_KNOTS if room((), FINE_KNOTS) >= FINE * max(1.0, min(float(epsilon), FULL)) else KNOTS
    if each == 1 and not found:
        return Basis(1)
    least, most = 1.0 if labels else CURVE_LIMITS[0], CURVE_LIMITS[1]
    curve = min(max((EVEN / max(signal, 1.0)) ** CURVE_POWER, least), most)
    pair = min(max(signal / PAIR_EVEN, PAIR_LIMITS[0]), PAIR_LIMITS[1])
    ridge = RIDGE * (OF_LABELS if labels else 1.0) * min(1.0, SETTLED / max(signal, 1.0))
    return Basis(each, found, curve=curve, pair=pair, ridge=ridge)


def _name_pairs(pairs: Any, every: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the user's pairs; refuse what is no pair of two columns of the schema."""
    if isinstance(pairs, bool):
        return every if pairs else ()
    known = {frozenset(pair): pair for pair in every}
    listed = isinstance(pairs, Iterable) and not isinstance(pairs, (str, bytes))
    found = [
        frozenset(pair) if isinstance(pair, (list, tuple)) else frozenset()
        for pair in (pairs if listed else [()])
    ]
    if not all(pair in known for pair in found):
        names = sorted({name for pair in every for name in pair})
        raise InvalidInputError(
            "Expected pairs as True, False or a list of pairs of two different columns, such as "
            f"[('age', 'income')], got another. Columns that can be paired: {', '.join(map(repr, names))}."
        )
    return tuple(known[pair] for pair in dict.fromkeys(found))


# ------------------------------------------------------------------------------- From a table to encoded rows


@dataclass(frozen=True, eq=False)
class PairBlock:
    """The products of what two columns bring into their pair, with one weight."""

    first: Block
    second: Block
    weight: float

    @cached_property
    def origins(self) -> list[Origin]:
        """Where the encoded columns come from."""
        return [Origin(f"{self.first.name} x {self.second.name}", name) for name in self.feature_names]

    @cached_property
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
        places = a.places[:, :, None] * np.int32(len(self.second.contrasts)) + b.places[:, None, :]
        values = (self.weight * a.values)[:, :, None] * b.values[:, None, :]
        return Entries(places.reshape(len(places), -1), values.reshape(len(values), -1))


Fixed = Block | PairBlock
AnyBlock = Fixed | WordBlock

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
        default = KNOTS if basis is None else basis.knots
        blocks = [column.block(column.knots_or(default), markers) for column in self.schema_.features]
        if basis is None:
            return [*blocks]
        named = {b.name: replace(b, basis=basis) for b in blocks if isinstance(b, Block)}
        weight = basis.pair / math.sqrt(max(len(basis.pairs), 1))
        words = [block for block in blocks if isinstance(block, WordBlock)]
        return [*named.values(), *(PairBlock(named[a], named[b], weight) for a, b in basis.pairs), *words]

    @property
    def alone(self) -> NDArray[np.intp]:
        """Which encoded columns stand for single columns of the table, not for pairs."""
        paired = [isinstance(block, PairBlock) for block in self.blocks() for _ in block.origins]
        return np.flatnonzero(~np.array(paired))

    @property
    def lines(self) -> tuple[int, ...]:
        """Which encoded columns are lines of numbers, dates and ordinals, where there is a basis."""
        curved = {column.name for column in self.schema_.features if column.curved}
        return tuple(at for at, one in enumerate(self.origins) if one.column in curved and not one.part)

    @property
    def free(self) -> tuple[int, ...]:
        """Which encoded columns no default ridge weighs on: lines, and levels and flags outside pairs.

        A ridge on levels would shrink those that few records have, however many records there are.
        """
        flat = [isinstance(b, Block) and not b.curved for b in self.blocks() for _ in b.origins]
        return tuple(sorted({*map(int, np.flatnonzero(flat)), *self.lines}))

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
        for words, run in groupby(blocks, lambda block: isinstance(block, WordBlock)):
            some: list[Any] = list(run)
            if words:
                parts += [block.matrix(frame.column(block.name), self.dtype) for block in some]
            else:
                parts.append(self._csr(frame, some))
        return parts

    def _csr(self, frame: Frame, blocks: Sequence[Fixed]) -> sparse.csr_matrix:
        width, n = sum(block.width for block in blocks), frame.rows
        index = np.int32 if n * width < 2**31 else np.int64
        places, values = np.empty((n, width), dtype=index), np.empty((n, width), dtype=self.dtype)
        for rows in _chunks(n):
            _write(frame, rows, blocks, places[rows], values[rows])
        columns = sum(len(block.origins) for block in blocks)
        ends = np.arange(0, n * width + 1, width, dtype=index)
        parts = (values.reshape(-1), places.reshape(-1), ends)
        out = sparse.csr_matrix(parts, shape=(n, columns), copy=False)
        out.has_sorted_indices = out.has_canonical_format = True
        return out

    def _dense(self, frame: Frame, blocks: Sequence[Fixed]) -> NDArray[Any]:
        width = sum(block.width for block in blocks)
        out = np.zeros((frame.rows, sum(len(block.origins) for block in blocks)), dtype=self.dtype)
        for rows in _chunks(frame.rows):
            size = rows.stop - rows.start, width
            places, values = np.empty(size, dtype=np.intp), np.empty(size, dtype=self.dtype)
            _write(frame, rows, blocks, places, values)
            np.put_along_axis(out[rows], places, values, axis=1)
        return out


def _chunks(count: int) -> list[slice]:
    return [slice(start, min(start + ROWS, count)) for start in range(0, count, ROWS)]


def _write(frame: Frame, rows: slice, blocks: Sequence[Fixed], places: Any, values: Any) -> None:
    """Write the columns and the values of the entries of some rows, those of pairs last."""
    pairs = [block for block in blocks if isinstance(block, PairBlock)]
    paired = {one.name for block in pairs for one in (block.first, block.second)}
    found: dict[str, tuple[int, Entries]] = {}
    at = offset = inside = 0
    for block in (block for block in blocks if isinstance(block, Block)):
        positions = block.read(frame.part(block.name, rows.start, rows.stop))
        entries, here = block.entries(positions), slice(at, at + block.width)
        np.add(entries.places, offset, out=places[:, here], casting="unsafe")
        values[:, here] = entries.values
        at, offset = at + block.width, offset + len(block.origins)
        if block.name in paired:
            found[block.name] = inside, block.contrast(positions)
            inside += found[block.name][1].values.shape[1]
    if pairs:
        law = []
        for pair in pairs:
            (first, one), (second, other) = found[pair.first.name], found[pair.second.name]
            ends = first, first + one.values.shape[1], second, second + other.values.shape[1]
            law.append((*ends, len(pair.second.contrasts), offset))
            offset += len(pair.origins)
        own = [np.hstack(parts) for parts in zip(*(entries for _, entries in found.values()))]
        _write_products(np.array(law), pairs[0].weight, *own, places[:, at:], values[:, at:])


@compile_with_cache(nogil=True)
def _write_products(law: Any, weight: float, parts: Any, sizes: Any, places: Any, values: Any) -> None:
    """Write the products of all pairs, row by row, from the ``parts`` that columns bring and their ``sizes``.

    A pair has in ``law`` where the parts of its two columns start and end, how many the second column may
    have, and how many encoded columns are before it.
    """
    for i in range(parts.shape[0]):
        at = 0
        for p in range(law.shape[0]):
            for a in range(law[p, 0], law[p, 1]):
                for b in range(law[p, 2], law[p, 3]):
                    places[i, at] = parts[i, a] * law[p, 4] + parts[i, b] + law[p, 5]
                    values[i, at] = weight * sizes[i, a] * sizes[i, b]
                    at += 1
