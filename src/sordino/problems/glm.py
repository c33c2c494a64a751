"""Gradients of generalised linear models: one scalar per record clips the whole gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import ClippedSum, OnLattice, SparseVector
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.clip import check_bound, clip_scalars
from sordino.kernel.contracts import Answer, IntegerSums, OnePass, Point, UnitSums
from sordino.kernel.lengths import public_distance, public_norm
from sordino.kernel.pull import Pull
from sordino.problems.losses import Loss, compiled


@dataclass(frozen=True)
class GlmGradient(ClippedSum, OnLattice):
    r"""``sum_i clip_C(r_i x_i)`` with ``r_i`` the residual at ``w``.

    ``||r_i x_i|| = |r_i| ||x_i||``, so clipping multiplies ``r_i`` by ``min(1, C / (|r_i| ||x_i||))`` and no
    gradient is ever stored per record. A non-finite residual contributes zero.

    **Privacy.** Sensitivity C (add-remove) or 2 C (replace-one) in L2, whatever the data.
    """

    needs: ClassVar[tuple[type, ...]] = (UnitSums,)
    shortcuts: ClassVar[tuple[type, ...]] = (OnePass,)

    loss: Loss
    clip: float

    def __post_init__(self) -> None:
        check_clip(self.clip)

    def contribution(self, params: Any) -> float:
        """Return the clip norm."""
        return self.clip

    def evaluate(self, records: UnitSums, params: Point) -> Answer:
        """Return the clipped sum at the point ``params``."""
        kind, one_pass = compiled(self.loss), getattr(records, "clipped_gradient", None)
        if kind is not None and one_pass is not None and getattr(params, "ndim", 1) == 1:
            return one_pass(params, Pull(kind[0], self.clip, threshold=kind[1]))
        return records.unit_sum(self._coefficients(records, params), self.clip)

    def evaluate_on_lattice(self, records: IntegerSums, params: Point, spacing: float) -> Ints:
        """Return the sum of contributions truncated towards zero to multiples of ``spacing``."""
        return records.weighted_integer_sum(self._coefficients(records, params), spacing)

    def _coefficients(self, records: UnitSums | IntegerSums, w: Point) -> Floats:
        residual = residuals(self.loss, records, w)
        return clip_scalars(residual, records.norms, self.clip)


@dataclass(frozen=True)
class GlmDifference(ClippedSum, OnLattice):
    r"""``sum_i clip_{C_t}((r_i(w) - r_i(a)) x_i)`` for two released points, ``params = (w, a)``.

    A record touches both gradients at once, so the difference is one contribution. Its bound shrinks
    with the distance: ``C_t = min(2 clip, curvature * row_bound^2 * ||w - a||)``, which depends on released
    points only.
    """

    needs: ClassVar[tuple[type, ...]] = (UnitSums,)

    loss: Loss
    clip: float
    row_bound: float

    def __post_init__(self) -> None:
        check_clip(self.clip)

    def contribution(self, params: Any) -> float:
        """Return the bound at these two points."""
        w, anchor = params
        reach = self.loss.curvature * self.row_bound**2 * distance(w, anchor)
        return float(min(2 * self.clip, reach)) if np.isfinite(reach) else 2 * self.clip

    def evaluate(self, records: UnitSums, params: tuple[Point, Point]) -> Answer:
        """Return the clipped sum of differences."""
        return records.unit_sum(self._coefficients(records, params), self.contribution(params))

    def evaluate_on_lattice(self, records: IntegerSums, params: tuple[Point, Point], spacing: float) -> Ints:
        """Return the sum of differences truncated towards zero to multiples of ``spacing``."""
        return records.weighted_integer_sum(self._coefficients(records, params), spacing)

    def _coefficients(self, records: UnitSums | IntegerSums, params: tuple[Point, Point]) -> Floats:
        w, anchor = params
        at_anchor = residuals(self.loss, records, anchor)
        at_w = residuals(self.loss, records, w)  # last: it lays out the batch
        with np.errstate(over="ignore", invalid="ignore"):
            difference = at_w - at_anchor
        return clip_scalars(difference, records.norms, self.contribution(params))


def residuals(loss: Loss, records: UnitSums | IntegerSums, w: Point) -> Floats:
    """Return the residual of each record; what is not a number is dealt with by the clip."""
    with np.errstate(over="ignore", invalid="ignore"):
        return weighted(loss.residual(records.margins(w), records.targets), records.weights)


def weighted(residual: Floats, weights: Floats | None) -> Floats:
    """Weigh residuals before they are clipped, so that weights leave the sensitivity as it is."""
    if weights is None:
        return residual
    return residual * (weights if residual.ndim == 1 else weights[:, None])


def distance(w: Point, anchor: Point) -> float:
    """Return the Euclidean distance of two released points, dense or sparse."""
    if isinstance(w, SparseVector) and isinstance(anchor, SparseVector):
        _, slots = np.unique(np.concatenate([w.indices, anchor.indices]), return_inverse=True)
        return public_norm(np.bincount(slots, np.concatenate([w.values, -anchor.values])))
    return public_distance(*(p.to_dense() if isinstance(p, SparseVector) else p for p in (w, anchor)))


def check_clip(clip: float) -> None:
    """Refuse a clip norm that bounds nothing."""
    check_bound("clip_norm", clip, "Pass a public bound on a record's gradient norm.")
