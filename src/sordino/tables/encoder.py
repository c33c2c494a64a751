"""The encoder of mixed tables: a scikit-learn transformer that learns nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sordino.elsewhere import where_rows_lie
from sordino.errors import InvalidInputError, SchemaError
from sordino.tables import rules
from sordino.tables.blocks import Block, Origin, WordBlock, block_of
from sordino.tables.frames import Frame
from sordino.tables.schema import Schema

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
            raise rules.refuse(
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
