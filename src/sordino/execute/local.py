"""The data in this process: NumPy arrays and SciPy CSR matrices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, overload

import numpy as np
from scipy import sparse

from sordino.errors import InvalidInputError, PlanError
from sordino.execute.csr import as_rows
from sordino.execute.records import CsrRecords, DenseRecords, LazyRecords, LocalRecords
from sordino.kernel import Batch, Disjoint, Full, Offer, Question, clip
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.query import AffineViews, ColumnSums, DenseRows, GramSums, Parts, RowBlocks, ValueColumns

_DATA_NORM = "Pass a public bound on the row norms (rows are clipped to it); computing it from X would leak."
# A lazy step costs about as much per touched column as a dense one per 2 columns (benchmarks/lazy.py).
LAZY_RATIO = 2.0
_BOTH = (AffineViews, ColumnSums, GramSums, Parts)
CSR = Offer("sparse rows", (RowBlocks, *_BOTH), lattice=True, remedy="Pass a dense array.")
DENSE = Offer("rows in memory", (DenseRows, *_BOTH), lattice=True)


@dataclass(frozen=True, eq=False)
class LocalExecutor:
    """Records held in memory.

    Parameters
    ----------
    matrix : an array or a sparse matrix; a sparse matrix is never made dense.
    targets : one number per row; None when there is nothing to predict.
    data_norm : rows are clipped to this Euclidean norm; None when the query bounds rows itself.
    intercept : the constant of the intercept column, 0 for none.
    weights : of the records' losses, applied before the clip, so they do not change the sensitivity.
    """

    matrix: Any = field(repr=False)
    targets: Floats | None = field(repr=False, default=None)
    data_norm: float | None = 1.0
    intercept: float = 0.0
    weights: Floats | None = field(repr=False, default=None)
    _norms: Any = field(init=False, repr=False)
    _lengths: Any = field(init=False, repr=False)
    _scale: Any = field(init=False, repr=False)
    _all: Any = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        if self.data_norm is not None:
            clip.check_bound("data_norm", self.data_norm, _DATA_NORM)
        matrix = as_rows(self.matrix)
        stored, scale, lengths = _clip_factors(matrix, self.data_norm)
        targets = np.zeros(len(lengths)) if self.targets is None else np.asarray(self.targets, dtype=float)
        if targets.shape != lengths.shape:
            raise InvalidInputError(
                f"Expected one target per record, {len(lengths)} of them, got shape {targets.shape}."
            )
        # A record that is not finite becomes a zero row, norm and target nan: it contributes zero.
        good = np.isfinite(lengths) & np.isfinite(targets)
        stored, lengths = np.where(good, stored, 0.0), np.where(good, lengths, np.nan)
        kept = (stored == 1.0).all()
        object.__setattr__(self, "matrix", matrix if kept else clip.shortened(matrix, stored))
        object.__setattr__(self, "targets", np.where(good, targets, np.nan))
        object.__setattr__(self, "_scale", scale)
        object.__setattr__(self, "_lengths", lengths)
        last = np.full(len(lengths), abs(self.intercept))
        object.__setattr__(self, "_norms", clip.joint_norms([lengths, last]) if self.intercept else lengths)

    @property
    def population(self) -> int:
        """The number of records, declared public."""
        return int(self.matrix.shape[0])

    @property
    def offer(self) -> Offer:
        return CSR if sparse.issparse(self.matrix) else DENSE

    def total(self, question: Question, batch: Batch) -> Any:
        """Return the exact sum over the rows of a batch; for whoever adds the noise."""
        return question.summed(self.records(batch.rows(self.population), lazy=question.lazy))

    @overload
    def records(self, rows: Ints | None) -> LocalRecords: ...

    @overload
    def records(self, rows: Ints | None, lazy: bool) -> LocalRecords | LazyRecords: ...

    def records(self, rows: Ints | None, lazy: bool = False) -> LocalRecords | LazyRecords:
        """Return the rows with the operations of queries; for queries only."""
        if rows is None and self._all is None:
            object.__setattr__(self, "_all", self._records(None))
        base: LocalRecords = self._all if rows is None else self._records(rows)
        if not lazy or not isinstance(base, CsrRecords):
            return base
        # Both paths have the same law, so this may look at the batch: only the run time tells.
        x = self.matrix
        entries = x.nnz if rows is None else rows.size * (x.nnz / max(1, x.shape[0]))
        ratio = LAZY_RATIO / 2 if rows is None else LAZY_RATIO  # all rows are laid out once, not at each step
        return LazyRecords(base) if x.shape[1] > ratio * entries else base

    def _records(self, rows: Ints | None) -> LocalRecords:
        pick = slice(None) if rows is None else rows
        targets: Any = self.targets  # never None once the executor is made
        facts: dict[str, Any] = {
            "targets": targets[pick],
            "norms": self._norms[pick],
            "scale": self._scale[pick],
            "intercept": self.intercept,
            "features": int(self.matrix.shape[1]),
            "weights": None if self.weights is None else self.weights[pick],
            "row_norms": self._lengths[pick],
            "positions": rows,
        }
        if not sparse.issparse(self.matrix):
            return DenseRecords(self.matrix[pick], **facts)
        return CsrRecords(self.matrix, **facts, rows=np.arange(self.population) if rows is None else rows)


def _clip_factors(matrix: Any, bound: float | None) -> tuple[Floats, Floats, Floats]:
    """Return two factors per row, together its clip, and an upper bound of its norm after them.

    The first is for the stored row: 1, but for rows so long that products with them would overflow. The
    second is applied on the fly.
    """
    found = clip.measured(matrix)
    norms, one = found.norms, np.ones(len(found.mantissa))
    if bound is None:  # the queries bound what a record adds
        return one, one, norms
    factors, far = found.factors(bound), norms > clip.HIGHEST
    after = np.where(norms < bound, norms, np.where(np.isnan(norms), np.nan, bound))
    return np.where(far, factors, 1.0), np.where(far | np.isnan(norms), 1.0, factors), after


@dataclass(frozen=True, eq=False)
class ValueExecutor:
    """Columns held in memory.

    Parameters
    ----------
    population : the public number of records; every column has so many.
    number_columns : arrays of doubles, nan where a record has no number.
    text_columns : pairs of an array of numbers, -1 for none, and the texts that they number.
    """

    offer: ClassVar[Offer] = Offer("columns of a table", (ValueColumns,), samplings=(Full,))

    population: int
    number_columns: tuple[Floats, ...] = field(repr=False, default=())
    text_columns: tuple[tuple[Ints, list[str | None]], ...] = field(repr=False, default=())

    def __post_init__(self) -> None:
        lengths = {len(c) for c in self.number_columns} | {len(codes) for codes, _ in self.text_columns}
        if lengths - {self.population}:
            raise InvalidInputError(f"Expected {self.population} records in every column.")

    def numbers(self, column: int) -> Floats:
        return self.number_columns[column]

    def counts(self, column: int) -> dict[str, int]:
        """Return how many records have each text; several numbers may stand for one text."""
        codes, texts = self.text_columns[column]
        out: dict[str, int] = {}
        counts = np.bincount(codes[codes >= 0], minlength=len(texts))
        for code in np.flatnonzero(counts):
            text = texts[code]
            if text is not None:
                out[text] = out.get(text, 0) + int(counts[code])
        return out

    def total(self, question: Question, batch: Batch) -> Any:
        return question.summed(self)


class StreamExecutor:
    """Answers release number t from chunk number t, and forgets each chunk when the next one comes.

    Parameters
    ----------
    population : the public number of records that the plan was made for.

    **Privacy.** The plan's sampling is ``Disjoint``: the chunks compose in parallel, provided that no
    record is fed in two of them, which only the caller can know.
    """

    offer: ClassVar[Offer] = Offer("data that arrive in chunks", CSR.operations, samplings=(Disjoint,))

    def __init__(self, population: int) -> None:
        self._population, self._number = population, -1
        self._chunk: LocalExecutor | None = None

    @property
    def population(self) -> int:
        """The public number of records of the whole stream."""
        return self._population

    def feed(self, chunk: LocalExecutor) -> None:
        """Put the next chunk in place of the last one."""
        self._number, self._chunk = self._number + 1, chunk

    def total(self, question: Question, batch: Batch) -> Any:
        """Return the exact answer on the chunk whose turn it is, which is the batch."""
        position = question.position
        if self._chunk is None or position != self._number:
            raise PlanError(f"Release number {position} belongs to another chunk than {self._number}.")
        return question.summed(self._chunk.records(None))
