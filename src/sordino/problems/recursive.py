"""What DP-SRM asks: a little of the gradient and the rest of its change, in one contribution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import ClippedSum, OnLattice
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.clip import clip_scalars
from sordino.kernel.contracts import Answer, IntegerSums, Point, UnitSums
from sordino.problems.glm import check_clip, distance, residuals
from sordino.problems.losses import Loss


@dataclass(frozen=True)
class RecursiveGradient(ClippedSum, OnLattice):
    r"""``sum_i gamma clip_C1(grad f_i(w)) + (1 - gamma) clip_C2(grad f_i(w) - grad f_i(a))``, params (w, a).

    Gradient and difference are clipped apart, so a record adds at most
    ``Cbar = gamma C1 + (1 - gamma) C2``. With a finite ``row_bound`` R the second clip shrinks with the
    step: ``C2,t = min(C2, curvature R^2 ||w - a||)``, which looks at released points only. Both vectors are
    multiples of the row, so one weighted sum does.

    **Privacy.** Sensitivity Cbar (add-remove) or 2 Cbar (replace-one) in L2, whatever the data.
    """

    needs: ClassVar[tuple[type, ...]] = (UnitSums,)

    loss: Loss
    gradient_clip: float
    difference_clip: float
    gamma: float
    row_bound: float = np.inf

    def __post_init__(self) -> None:
        check_clip(self.gradient_clip)
        check_clip(self.difference_clip)
        if not 0 <= self.gamma <= 1:
            raise InvalidInputError(f"Expected gamma in [0, 1], got {self.gamma}. It is a public constant.")

    def difference_bound(self, params: Any) -> float:
        """Return C2,t at two released points."""
        w, anchor = params
        with np.errstate(invalid="ignore"):
            reach = self.loss.curvature * self.row_bound**2 * distance(w, anchor)
        return float(min(self.difference_clip, reach)) if np.isfinite(reach) else self.difference_clip

    def contribution(self, params: Any) -> float:
        """Return Cbar at two released points."""
        return self.gamma * self.gradient_clip + (1 - self.gamma) * self.difference_bound(params)

    def evaluate(self, records: UnitSums, params: tuple[Point, Point]) -> Answer:
        """Return the sum."""
        return records.unit_sum(self._coefficients(records, params), self.contribution(params))

    def evaluate_on_lattice(self, records: IntegerSums, params: tuple[Point, Point], spacing: float) -> Ints:
        """Return the sum of contributions truncated towards zero to multiples of ``spacing``."""
        return records.weighted_integer_sum(self._coefficients(records, params), spacing)

    def _coefficients(self, records: UnitSums | IntegerSums, params: tuple[Point, Point]) -> Floats:
        w, anchor = params
        at_anchor, at_w = residuals(self.loss, records, anchor), residuals(self.loss, records, w)
        with np.errstate(over="ignore", invalid="ignore"):
            difference = at_w - at_anchor
        change = clip_scalars(difference, records.norms, self.difference_bound(params))
        level = clip_scalars(at_w, records.norms, self.gradient_clip)
        return self.gamma * level + (1 - self.gamma) * change
