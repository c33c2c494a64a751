"""The data in this process: NumPy arrays and SciPy CSR matrices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
from scipy import sparse

from sordino.errors import InvalidInputError
from sordino.execute.csr import as_rows
from sordino.execute.csr_records import CsrRecords
from sordino.execute.records import DenseRecords, LocalRecords
from sordino.execute.touched import LazyRecords
from sordino.kernel import Batch, Offer, Question, clip, contracts
from sordino.kernel.arrays import Floats, Ints

_DATA_NORM = "Pass a public bound on the row norms (rows are clipped to it); computing it from X would leak."
# A lazy step costs about as much per touched column as a dense one per 2 columns (benchmarks/lazy.py).
LAZY_RATIO = 2.0
_BOTH = (contracts.AffineViews, contracts.ColumnSums, contracts.GramSums, contracts.Parts)
CSR = Offer("sparse rows", (contracts.RowBlocks, *_BOTH), lattice=True, remedy="Pass a dense array.")
DENSE = Offer("rows in memory", (contracts.DenseRows, *_BOTH), lattice=True)


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
        targets = _as_targets(self.targets, len(lengths))
        # A record that is not finite becomes a zero row, norm and target nan: it contributes zero.
        good = np.isfinite(lengths) & np.isfinite(targets)
        stored, lengths = np.where(good, stored, 0.0), np.where(good, lengths, np.nan)
        kept = (stored == 1.0).all()
        object.__setattr__(self, "matrix", matrix if kept else clip.shortened(matrix, stored))
        object.__setattr__(self, "targets", np.where(good, targets, np.nan))
        object.__setattr__(self, "_scale", scale)
        object.__setattr__(self, "_lengths", lengths)
        object.__setattr__(self, "_norms", _with_intercept(lengths, self.intercept))

    @property
    def population(self) -> int:
        """The number of records, declared public."""
        return int(self.matrix.shape[0])

    @property
    def offer(self) -> Offer:
        """What queries can ask of these rows."""
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
        base = self._all_records() if rows is None else self._records(rows)
        return LazyRecords(base) if lazy and isinstance(base, CsrRecords) and self._lazy_pays(rows) else base

    def _all_records(self) -> LocalRecords:
        if self._all is None:
            object.__setattr__(self, "_all", self._records(None))
        all_of_them: LocalRecords = self._all
        return all_of_them

    def _records(self, rows: Ints | None) -> LocalRecords:
        pick = slice(None) if rows is None else rows
        if not sparse.issparse(self.matrix):
            return DenseRecords(self.matrix[pick], *self._select(pick), **self._facts(pick))
        chosen = np.arange(self.population) if rows is None else rows
        return CsrRecords(self.matrix, *self._select(pick), **self._facts(pick), rows=chosen)

    def _select(self, pick: Any) -> tuple[Floats, Floats, Floats, float, int]:
        targets: Any = self.targets  # never None once the executor is made
        facts = (targets[pick], self._norms[pick], self._scale[pick])
        return *facts, self.intercept, int(self.matrix.shape[1])

    def _facts(self, pick: Any) -> dict[str, Any]:
        return {
            "weights": None if self.weights is None else self.weights[pick],
            "row_norms": self._lengths[pick],
            "positions": pick if isinstance(pick, np.ndarray) else None,
        }

    def _lazy_pays(self, rows: Ints | None) -> bool:
        # Both paths have the same law, so this may look at the batch: only the run time tells.
        x = self.matrix
        entries = x.nnz if rows is None else rows.size * (x.nnz / max(1, x.shape[0]))
        ratio = LAZY_RATIO / 2 if rows is None else LAZY_RATIO  # all rows are laid out once, not at each step
        return bool(x.shape[1] > ratio * entries)


def _as_targets(targets: Any, count: int) -> Floats:
    if targets is None:
        return np.zeros(count)
    out = np.asarray(targets, dtype=float)
    if out.shape != (count,):
        raise InvalidInputError(f"Expected one target per record, {count} of them, got shape {out.shape}.")
    return out


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


def _with_intercept(lengths: Floats, intercept: float) -> Floats:
    return clip.joint_norms([lengths, np.full(len(lengths), abs(intercept))]) if intercept else lengths
