"""First and second moments of numbers between declared limits: nothing is clipped that is inside them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import ClippedSum, Norm, OnLattice
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.clip import root_above
from sordino.kernel.contracts import DenseRows
from sordino.problems.robust import present

_ABOVE = 1.0 + 2.0**-48  # covers the rounding of the square and of the root


@dataclass(frozen=True)
class BoundedMoments(ClippedSum, OnLattice):
    r"""The sums of ``first * a`` and of ``second * (a^2 - 1/2)``, ``a = (x - center) / radius`` in [-1, 1].

    ``params = (center, radius)``: public or released, one of each per column. The answer has two rows. The
    number of records is public, so a half less per record costs nothing and halves what a square can add.

    **Privacy.** In one column a record adds at most ``first`` and ``second / 2``: their sum in L1, their
    hypotenuse in L2, and for all columns that times ``columns``, or its root.
    """

    needs: ClassVar[tuple[type, ...]] = (DenseRows,)

    columns: int
    first: float
    second: float
    norm: Norm = Norm.L2

    def contribution(self, params: Any) -> float:
        """Return the bound of what a record adds."""
        if self.norm is Norm.L1:
            return self.columns * (self.first + self.second / 2.0) * _ABOVE
        return root_above(self.columns) * math.hypot(self.first, self.second / 2.0) * _ABOVE

    def evaluate(self, records: DenseRows, params: Any) -> Floats:
        """Return the sums, shape (2, columns)."""
        out = np.zeros((2, self.columns))
        for rows, block in records.scaled_rows(np.ones(records.count)):
            out += self._parts(records, params, rows, block).sum(axis=1)
        return out

    def evaluate_on_lattice(self, records: DenseRows, params: Any, spacing: float) -> Ints:
        """Return the sums of contributions truncated towards zero to multiples of ``spacing``."""
        out = np.zeros((2, self.columns), dtype=np.int64)
        for rows, block in records.scaled_rows(np.ones(records.count)):
            parts = self._parts(records, params, rows, block)
            out += np.trunc(parts / spacing).astype(np.int64).sum(axis=1)
        return out

    def _parts(self, records: DenseRows, params: Any, rows: slice, block: Floats) -> Floats:
        center, radius = params
        with np.errstate(over="ignore", invalid="ignore"):
            a = np.clip((block - center) / radius, -1.0, 1.0)
        there = present(records, rows)[:, None] & ~np.isnan(a)
        parts = np.stack([self.first * a, self.second * (a**2 - 0.5)])
        return np.where(there, parts, 0.0)
