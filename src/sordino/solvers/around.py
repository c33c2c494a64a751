"""The loss around a released model, as far as its run has released it: other penalties and sparsities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sordino.kernel.arrays import Floats
from sordino.problems.affine import Affine
from sordino.problems.losses import LabelModel
from sordino.problems.problem import Problem
from sordino.solvers.descent import Moments, top_mask


@dataclass(frozen=True, eq=False)
class Around:
    r"""``bend (v - w)^T M (v - w) / 2 + ridge ||w||^2 / 2`` around the coefficients w of a model.

    M are the released second moments of the rows, mapped by ``affine`` as in the last descent. Where none
    were asked, columns are taken to be alike there and independent. ``bend`` is the second derivative of the
    loss, of labels at even odds. Another ridge and a smaller support have a minimum of their own in it: the
    model that the same answers lead to, for squared errors, moments without noise and a descent that arrived.

    **Privacy.** Released numbers and public ones; what is made of them is post-processing.
    """

    affine: Affine
    moments: Moments | None
    bend: float
    ridge: float
    factor: Floats | None = None

    @classmethod
    def of(
        cls, problem: Problem, affine: Affine, moments: Moments | None, factor: Floats | None = None
    ) -> Around:
        """Return what a run has released at its end, and a factor of the covariance of its noise."""
        even = 1.0 / max(problem.outputs, 2)
        bend = even * (1.0 - even) if isinstance(problem.loss, LabelModel) else problem.curvature
        return cls(affine, moments, bend, problem.ridge, factor)

    def minimum(
        self, coef: Floats, intercept: Floats | float, ridge: float, count: int | None
    ) -> tuple[Floats, Floats]:
        """Return the coefficients with another ridge, on the ``count`` largest of these; None keeps all.

        Sizes are compared by what they do to margins. The margin of the centre of the data stays.
        """
        columns = slice(None) if self.affine.columns is None else self.affine.columns
        w = np.atleast_2d(coef)[:, columns]
        bends = self.bend * self.second_moments()
        felt = w * np.sqrt(bends if bends.ndim == 1 else np.diag(bends))
        kept = np.full(w.shape, True) if count is None else top_mask(felt, min(count, w.size), 0)
        found = np.zeros_like(w)
        for row, own in enumerate(kept):
            if bends.ndim == 1:
                found[row, own] = (w[row] * (bends + self.ridge) / (bends + ridge))[own]
                continue
            pull = bends @ w[row] + self.ridge * w[row]
            inner = bends[np.ix_(own, own)] + ridge * np.eye(int(own.sum()))
            found[row, own] = np.linalg.solve(inner, pull[own])
        out = np.zeros_like(np.atleast_2d(coef))
        out[:, columns] = found
        moved = intercept + ((w - found) @ self.affine.shift).reshape(np.shape(intercept))
        return out.reshape(coef.shape), moved

    def second_moments(self) -> Floats:
        """Return a matrix, or its diagonal, on the original columns; what is unsure of it counts as there."""
        d, scale = self.affine.scale.size, np.maximum(self.affine.scale, 1e-300)
        if self.moments is None:  # typical rows have length 1 in the map
            return 1.0 / (d * np.square(scale))
        sizes, axes = np.linalg.eigh(self.moments.stretch * self.moments.matrix[:d, :d])
        sizes = np.maximum(sizes, 0.0) + self.moments.stretch * self.moments.unsure
        found: Floats = (axes * sizes) @ axes.T / np.outer(scale, scale)
        return found
