"""How large the gradients of records are, on either side: what a clip would take of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import ClippedSum, Relation
from sordino.kernel.arrays import Floats
from sordino.kernel.contracts import AffineViews
from sordino.problems.glm import weighted
from sordino.problems.losses import Loss

# Sizes are counted from 2^-24 of the largest possible one on, the smaller ones together.
_OCTAVES = 24


@dataclass(frozen=True)
class GradientCounts(ClippedSum):
    """How many records have the size of their gradient in each cell of a grid, by the sign of the residual.

    ``params = (w, affine, unit)``: gradients of the mapped rows are measured in ``unit``, and those beyond it
    are counted in the last cell. An octave has ``cells`` cells.

    **Privacy.** A record adds one to one count: 1 in L2, and sqrt 2 when it is replaced.
    """

    needs: ClassVar[tuple[type, ...]] = (AffineViews,)

    loss: Loss
    cells: int = 4

    def contribution(self, params: Any) -> float:
        """Return 1."""
        return 1.0

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return 1, or sqrt 2 when a record moves from one count to another."""
        return math.sqrt(relation.contributions)

    @property
    def sizes(self) -> Floats:
        """The middle of each cell, in units."""
        return np.exp2((np.arange(self._cells) - 0.5) / self.cells - _OCTAVES)

    @property
    def _cells(self) -> int:
        return self.cells * _OCTAVES + 1

    def evaluate(self, records: AffineViews, params: Any) -> Floats:
        """Return the counts of those below zero and of the others, shape (2, cells)."""
        w, affine, unit = params
        view = records.through(affine)
        with np.errstate(all="ignore"):  # what is not a number is counted nowhere
            margins = view.margins(w) * (unit if self.loss.targets == "numbers" else 1.0)
            residual = weighted(self.loss.residual(margins, view.targets) / unit, view.weights)
            signed = np.asarray(residual * view.norms)
            signed = signed[np.isfinite(signed)]
            octaves = np.clip(np.log2(np.abs(signed)), -_OCTAVES, 0.0)
        cell = np.ceil(self.cells * (octaves + _OCTAVES)).astype(int) + self._cells * (signed >= 0.0)
        return np.bincount(cell, minlength=2 * self._cells).reshape(2, -1).astype(float)
