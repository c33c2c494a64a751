"""Scores of coordinates for private selection: gradients whose largest entry is bounded per record.

A record's gradient is ``r_i x_i``, so one factor per record bounds ``|r_i| max_j |x_ij|`` by the clip.
``params`` are released points. Coordinates are numbered through the flattened coefficients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import ClippedSum, FromSum, Norm, Relation, SparseVector
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.clip import clip_scalars, factors_of, row_peaks
from sordino.kernel.contracts import Answer, Point, RecordSums
from sordino.problems.glm import check_clip, residuals
from sordino.problems.losses import Loss


@dataclass(frozen=True)
class _Scores(FromSum):
    """What the score queries share: the clip, and terms that depend on released points only.

    **Privacy.** Every score moves by at most ``clip`` (add-remove) or twice that (replace-one).
    """

    loss: Loss
    clip: float
    ridge_sum: float = 0.0  # ridge times the public number of records

    needs: ClassVar[tuple[type, ...]] = (RecordSums,)
    norm = Norm.LINF
    adds_up: ClassVar[bool] = False  # each answer holds the penalty

    def __post_init__(self) -> None:
        check_clip(self.clip)

    def contribution(self, params: Any) -> float:
        """Return how far one record moves a score."""
        return self.clip

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return one contribution, or two when a record is replaced."""
        return relation.contributions * self.clip

    def summed(self, records: RecordSums, params: Any) -> Answer:
        """Return the sum of the records' gradients at the point."""
        w = params[0] if isinstance(params, tuple) else params
        return records.weighted_sum(peak_clipped(self.loss, records, w, self.clip))

    def _penalised(self, gradient: Answer, w: Any, factor: float) -> Answer:
        """Return the sum plus ``factor * w``."""
        if isinstance(gradient, SparseVector):  # the executor lists the coordinates of w first
            values = gradient.values.copy()
            values[: w.indices.size] += factor * w.values
            return SparseVector(gradient.indices, values, gradient.size, gradient.touched)
        return gradient + factor * (w.to_dense() if isinstance(w, SparseVector) else w)


@dataclass(frozen=True)
class VertexScores(_Scores):
    """Scores of the vertices of an L1 ball: entry i is that of ``+e_i``, entry ``size + i`` of ``-e_i``.

    The score is minus the derivative along the vertex. The two signs are vertices of their own: choosing
    a coordinate by its magnitude would leave the sign to be released separately.
    """

    def finished(self, total: Answer, params: Any) -> Answer:
        """Return the scores at the point ``params``."""
        g = self._penalised(total, params, self.ridge_sum)
        if isinstance(g, SparseVector):
            indices = np.concatenate([g.indices, g.indices + g.size])
            return SparseVector(indices, np.concatenate([-g.values, g.values]), 2 * g.size)
        return np.concatenate([-g.reshape(-1), g.reshape(-1)])


@dataclass(frozen=True)
class CoordinateScores(_Scores):
    """Gradient entries of the features (``params = w``) or of some (``params = (w, flat coordinates)``)."""

    features: int = 0

    def finished(self, total: Answer, params: Any) -> Answer:
        """Return the entries; the selection takes their magnitudes."""
        w, candidates = params if isinstance(params, tuple) else (params, None)
        g = self._penalised(total, w, self.ridge_sum)
        return without_intercept(g, self.features) if candidates is None else pick(g, candidates)


@dataclass(frozen=True)
class MovedScores(_Scores):
    r"""``(weight - ridge_sum) w - sum_i clip(r_i x_i)`` on the features: a gradient step in units of the sum.

    ``weight`` is the public number of records over the step size, so the largest entries are those of the
    vector after a gradient step from the released point ``params``.
    """

    features: int = 0
    weight: float = 1.0

    def finished(self, total: Answer, params: Any) -> Answer:
        """Return the moved vector."""
        moved = -1.0 * self._penalised(total, params, self.ridge_sum - self.weight)
        return without_intercept(moved, self.features)


@dataclass(frozen=True)
class RestrictedGradient(ClippedSum):
    r"""Entries of the clipped gradient sum at released coordinates, ``params = (w, coordinates)``.

    **Privacy.** A record's entries are at most ``peak_clip`` each and ``clip`` in norm, so m of them have
    norm at most ``min(sqrt(m) peak_clip, clip)``.
    """

    needs: ClassVar[tuple[type, ...]] = (RecordSums,)

    loss: Loss
    peak_clip: float
    clip: float

    def __post_init__(self) -> None:
        check_clip(self.peak_clip)
        check_clip(self.clip)

    def contribution(self, params: Any) -> float:
        """Return the bound for this many coordinates."""
        return min(math.sqrt(len(params[1])) * self.peak_clip, self.clip)

    def evaluate(self, records: RecordSums, params: Any) -> Floats:
        """Return the entries."""
        w, coordinates = params
        coefficients = peak_clipped(self.loss, records, w, self.peak_clip)
        coefficients = clip_scalars(coefficients, records.norms, self.clip)
        return pick(records.weighted_sum(coefficients), coordinates)


def peak_clipped(loss: Loss, records: RecordSums, w: Point, clip: float) -> Floats:
    """Return residuals scaled so that no entry of a record's gradient exceeds ``clip``."""
    residual = residuals(loss, records, w)
    peaks = np.where(np.isfinite(records.norms), records.peaks, np.nan)  # a record that is no number counts 0
    if residual.ndim == 1:
        return clip_scalars(residual, peaks, clip)
    with np.errstate(over="ignore", invalid="ignore"):
        factor = factors_of(row_peaks(residual) * peaks, clip)
    return np.where(factor[:, None] > 0, residual, 0.0) * factor[:, None]


def pick(vector: Any, coordinates: Ints) -> Floats:
    """Return the entries of a dense or sparse vector at flat coordinates."""
    if not isinstance(vector, SparseVector):
        return np.asarray(vector).reshape(-1)[coordinates]
    if not vector.indices.size:
        return np.zeros(len(coordinates))
    order = np.argsort(vector.indices)
    indices, values = vector.indices[order], vector.values[order]
    at = np.minimum(np.searchsorted(indices, coordinates), indices.size - 1)
    return np.where(indices[at] == coordinates, values[at], 0.0)


def without_intercept(vector: Any, features: int) -> Any:
    """Return the entries of the features only, flattened."""
    if not isinstance(vector, SparseVector):
        return vector[..., :features].reshape(-1)
    inside = vector.indices < features
    return SparseVector(vector.indices[inside], vector.values[inside], features)


def flat_coordinates(chosen: Ints, features: int, columns: int) -> Ints:
    """Number coordinates of the features through the flattened coefficients with their intercepts."""
    return np.asarray((chosen // features) * columns + chosen % features, dtype=np.int64)


def intercept_coordinates(shape: tuple[int, ...], kept: int) -> Ints:
    """Return the flat coordinates of the intercepts."""
    if not kept:
        return np.empty(0, dtype=np.int64)
    return np.arange(1, math.prod(shape[:-1]) + 1, dtype=np.int64) * shape[-1] - 1
