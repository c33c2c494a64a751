"""Rows of a CSR matrix in memory, and the operations that queries may use on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from sordino.execute import csr, gram
from sordino.execute.one_pass import MappedFacts, over_csr
from sordino.execute.records import LocalRecords
from sordino.kernel import SparseVector
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.contracts import Point
from sordino.kernel.pull import Pull


@dataclass(frozen=True, eq=False)
class CsrRecords(LocalRecords):
    """Some rows of a CSR matrix, addressed in place."""

    rows: Ints

    gram_product = gram.csr_product
    moments = gram.csr_moments
    squared_columns = gram.csr_squares
    gram = gram.csr_gram  # last: it hides the module

    def _products(self, w: Floats) -> Floats:
        x, out = self.matrix, np.empty(self.rows.size)
        csr.margins(x.indptr, x.indices, x.data, self.rows, np.ascontiguousarray(w), out)
        return out

    def _add(self, coefficients: Floats, out: Floats) -> None:
        x = self.matrix
        csr.scatter(x.indptr, x.indices, x.data, self.rows, coefficients, out)

    def _add_integers(self, coefficients: Floats, spacing: float, out: Ints) -> None:
        x = self.matrix
        csr.scatter_integers(x.indptr, x.indices, x.data, self.rows, coefficients, spacing, out)

    def pulled(
        self, w: Floats, at: tuple[float, float], facts: MappedFacts, pull: Pull, out: Floats
    ) -> tuple[float, float]:
        """Add a clipped gradient of mapped rows to ``out`` in one pass."""
        return over_csr(self.matrix, self.rows, w, at, facts, pull, out)

    def margins(self, w: Point) -> Floats:
        """Return ``x_i . w`` for all outputs in one pass."""
        w = w.to_dense() if isinstance(w, SparseVector) else np.asarray(w, dtype=float)
        if w.ndim == 1:
            return super().margins(w)
        out = self.products(w[:, : self.features].T)
        return out + self.intercept * w[:, -1] if self.intercept else out

    def weighted_sum(self, coefficients: Floats) -> Floats:
        """Return ``sum_i c_i x_i`` for all outputs in one pass."""
        if coefficients.ndim == 1:
            return super().weighted_sum(coefficients)
        out = np.empty((coefficients.shape[1], self.columns))
        out[:, : self.features] = self.transposed_products(coefficients).T
        if self.intercept:
            out[:, -1] = self.intercept * coefficients.sum(axis=0)
        return out

    @property
    def _addressed(self) -> Ints | None:
        return self.rows

    def _within_columns(self, columns: Ints) -> LocalRecords:
        part = csr.picked(self.matrix, self.rows, columns)
        return replace(self, matrix=part, features=len(columns), rows=np.arange(self.count))

    def touching(self, first: Ints) -> tuple[Ints, CsrRecords]:
        """Return the columns with entries, ``first`` before all others, and the records on these alone.

        The matrix keeps its width: rounding is bounded by it, and what other records touch must not change
        the bound of a record.
        """
        known = self.__dict__.get("_touching")
        if known is None:
            known = csr.renumbered(self.matrix, self.rows)
            object.__setattr__(self, "_touching", known)
        columns, matrix = csr.reordered(known[0], known[1], first)
        return columns, replace(self, matrix=matrix, features=len(columns))

    def _sliced(self, rows: Any) -> LocalRecords:
        picked = (self.matrix, self.targets[rows], self.norms[rows], self.scale[rows])
        return CsrRecords(*picked, self.intercept, self.features, **self._picked(rows), rows=self.rows[rows])

    def products(self, block: Floats) -> Floats:
        """Return ``X block`` of the clipped rows, without the intercept."""
        x, out = self.matrix, np.zeros((self.rows.size, block.shape[1]))
        block = np.ascontiguousarray(block)
        gram.multiply(x.indptr, x.indices, x.data, self.rows, self.scale, block, out)
        return out

    def transposed_products(self, coef: Floats) -> Floats:
        """Return ``X^T coef`` of the clipped rows, without the intercept."""
        x, out = self.matrix, np.zeros((self.features, coef.shape[1]))
        coef = np.ascontiguousarray(coef)
        gram.multiply_transposed(x.indptr, x.indices, x.data, self.rows, self.scale, coef, out)
        return out

    def clipped_rows(self, rows: slice) -> Floats:
        """Return a block of clipped rows as an array."""
        x, chosen = self.matrix, self.rows[rows]
        out = np.zeros((chosen.size, self.features))
        csr.fill(x.indptr, x.indices, x.data, chosen, self.scale[rows], out)
        return out

    def _row_entries(self) -> int:
        return int(self.matrix.nnz // max(1, self.matrix.shape[0])) + 1

    def _scaled(self, rows: slice, coefficients: Floats) -> Any:
        return sparse.diags_array(coefficients) @ self.matrix[self.rows[rows]].astype(np.float64)
