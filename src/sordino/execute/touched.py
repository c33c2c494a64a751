"""Records of a CSR matrix that only ever touch the columns they hold: their cost does not grow with d."""

from __future__ import annotations

from typing import Any

import numpy as np

from sordino.execute import csr
from sordino.execute.affine_view import TouchedView
from sordino.execute.csr_records import CsrRecords
from sordino.execute.records import LocalRecords
from sordino.kernel import SparseVector, clip
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.contracts import PublicMap
from sordino.kernel.pull import Pull, as_weights, pull_rows
from sordino.kernel.touch import TouchMap

_NONE = np.empty(0, dtype=np.int64)


class LazyRecords:
    """A mini-batch of a CSR matrix that only ever touches the columns it holds.

    :meth:`margins` numbers the touched columns, those of the iterate first; :meth:`weighted_sum` then
    returns a sparse vector in that numbering.
    """

    def __init__(self, base: CsrRecords) -> None:
        self._base = base
        self.targets, self.norms, self.weights = base.targets, base.norms, base.weights

    @property
    def peaks(self) -> Floats:
        """The largest magnitude of each clipped row, intercept included."""
        return self._base.peaks

    def margins(self, w: SparseVector) -> Floats:
        """Return ``x_i . w`` and lay out the batch."""
        out, constant = self._laid_out(w)
        out *= self._base.scale
        out += constant
        return out

    def clipped_gradient(self, w: SparseVector, pull: Pull) -> SparseVector:
        """Return ``sum_i clip_C(r_i x_i)`` on the touched columns: three compiled passes."""
        base, (factors, constant) = self._base, self._laid_out(w)
        factors *= base.scale
        factors += constant
        ones = np.ones(factors.size)
        facts = (self.targets, as_weights(self.weights), self.norms, ones, base.scale)
        total, _ = pull_rows(pull.numbers, factors, np.empty(factors.size), *facts)
        out = np.zeros(self._columns.size)
        csr.scatter_touched(self._ends, self._layout, self._packed, factors, out)
        if base.intercept:
            out[self._intercept_at] = base.intercept * total
        return SparseVector(self._columns, out, base.columns, self._touched)

    def _laid_out(self, w: SparseVector) -> tuple[Floats, float]:
        """Number the touched columns; return the products of the stored rows, and the constant margin."""
        base, x = self._base, self._base.matrix
        self._ends = np.cumsum(x.indptr[base.rows + 1] - x.indptr[base.rows])
        entries = int(self._ends[-1]) if self._ends.size else 0
        head = w.indices.size
        columns = np.empty(entries + head, dtype=np.int64)
        columns[:head] = w.indices
        touched = TouchMap.empty(columns)
        touched.insert(head)
        layout, packed = np.empty(entries, dtype=np.int32), np.empty(entries)
        out = np.empty(base.rows.size)
        count, _ = csr.touch(
            x.indptr,
            x.indices,
            x.data,
            base.rows,
            touched.cells,
            columns,
            head,
            w.values,
            layout,
            packed,
            out,
        )
        self._layout, self._packed = layout, packed
        self._columns, self._touched = columns[:count], touched
        if not base.intercept:
            return out, 0.0
        self._intercept_at = int(np.flatnonzero(w.indices == base.features)[0])
        return out, base.intercept * float(w.values[self._intercept_at])

    def column_moments(self, square: bool = False) -> tuple[SparseVector, SparseVector]:
        """Return the sums of the touched columns and of their absolute values, or squares."""
        columns, part = self._base.touching(_NONE)
        first, second = part.column_moments(square)
        size = self._base.features
        return SparseVector(columns, first, size), SparseVector(columns, second, size)

    def through(self, affine: PublicMap) -> Any:
        """Return these rows through a public affine map; one of many columns on the touched ones only."""
        if affine.rest is None:
            return self._base.through(affine)
        columns, part = self._base.touching(affine.columns[affine.shift != 0.0])  # type: ignore[index]
        view = part.through(affine.picked(columns))
        return TouchedView(view, columns, self._base.features)

    def within(self, columns: Ints | None) -> LocalRecords:
        """Return these records with some columns and the intercept."""
        return self._base.within(columns)

    def unit_sum(self, coefficients: Floats, bound: float) -> SparseVector:
        """Return ``sum_i c_i x_i``: a record is a unit, and its coefficient bounds it already."""
        return self.weighted_sum(coefficients)

    def weighted_sum(self, coefficients: Floats) -> SparseVector:
        """Return ``sum_i c_i x_i`` on the touched columns."""
        base = self._base
        out = np.zeros(self._columns.size)
        factors = clip.scaled(coefficients, base.scale)
        csr.scatter_touched(self._ends, self._layout, self._packed, factors, out)
        if base.intercept:
            out[self._intercept_at] = base.intercept * coefficients.sum()
        return SparseVector(self._columns, out, base.columns, self._touched)
