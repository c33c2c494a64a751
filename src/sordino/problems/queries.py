"""Clipped queries of linear models: gradients, scores, line searches, residuals, targets, class sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import ClippedSum, FromSum, Norm, Relation, SparseVector
from sordino.kernel.arrays import Bools, Floats, Ints, compile_with_cache, public_norm
from sordino.kernel.clip import clip_scalars, factors_of, row_peaks
from sordino.kernel.query import (
    AffineViews,
    Answer,
    OneCount,
    OnePass,
    Point,
    Pull,
    RecordSums,
    UnitSums,
    shares_of,
    summation_error,
)
from sordino.problems.losses import Loss, Penalty, compiled_form, residual_in
from sordino.values import check_range

# ------------------- Gradients of generalised linear models: one scalar per record clips the whole gradient


@dataclass(frozen=True)
class GlmGradient(ClippedSum):
    r"""``sum_i clip_C(r_i x_i)`` with ``r_i`` the residual at ``w``.

    ``||r_i x_i|| = |r_i| ||x_i||``, so clipping multiplies ``r_i`` by ``min(1, C / (|r_i| ||x_i||))`` and no
    gradient is ever stored per record. A non-finite residual contributes zero.

    **Privacy.** Sensitivity C (add-remove) or 2 C (replace-one) in L2, whatever the data.
    """

    shortcuts: ClassVar[tuple[type, ...]] = (OnePass,)

    loss: Loss
    clip: float

    def evaluate(self, records: UnitSums, params: Point) -> Answer:
        kind, one_pass = compiled_form(self.loss), getattr(records, "clipped_gradient", None)
        if kind is not None and one_pass is not None and getattr(params, "ndim", 1) == 1:
            return one_pass(params, Pull(kind[0], self.clip, threshold=kind[1]))
        return records.unit_sum(self._coefficients(records, params), self.clip)

    def _coefficients(self, records: UnitSums, w: Point) -> Floats:
        residual = residuals(self.loss, records, w)
        return clip_scalars(residual, records.norms, self.clip)


@dataclass(frozen=True)
class _OfTwoPoints(ClippedSum):
    """What sums at two released points, ``params = (w, a)``, share: a multiple of the row for each record."""

    loss: Loss

    def _coefficients(self, records: UnitSums, params: tuple[Point, Point]) -> Floats:
        raise NotImplementedError  # pragma: no cover

    def evaluate(self, records: UnitSums, params: tuple[Point, Point]) -> Answer:
        return records.unit_sum(self._coefficients(records, params), self.contribution(params))


@dataclass(frozen=True)
class GlmDifference(_OfTwoPoints):
    r"""``sum_i clip_{C_t}((r_i(w) - r_i(a)) x_i)`` for two released points, ``params = (w, a)``.

    A record touches both gradients at once, so the difference is one contribution. Its bound shrinks
    with the distance: ``C_t = min(2 clip, curvature * row_bound^2 * ||w - a||)``, which depends on released
    points only.
    """

    clip: float
    row_bound: float

    def contribution(self, params: Any) -> float:
        w, anchor = params
        reach = self.loss.curvature * self.row_bound**2 * distance(w, anchor)
        return float(min(2 * self.clip, reach)) if np.isfinite(reach) else 2 * self.clip

    def _coefficients(self, records: UnitSums, params: tuple[Point, Point]) -> Floats:
        w, anchor = params
        at_anchor = residuals(self.loss, records, anchor)
        at_w = residuals(self.loss, records, w)  # last: it lays out the batch
        with np.errstate(over="ignore", invalid="ignore"):
            difference = at_w - at_anchor
        return clip_scalars(difference, records.norms, self.contribution(params))


def residuals(loss: Loss, records: UnitSums, w: Point) -> Floats:
    """Return the residual of each record; what is not a number is dealt with by the clip."""
    with np.errstate(over="ignore", invalid="ignore"):
        return weigh(loss.residual(records.margins(w), records.targets), records.weights)


def weigh(residual: Floats, weights: Floats | None) -> Floats:
    """Weigh residuals before they are clipped, so that weights leave the sensitivity as it is."""
    if weights is None:
        return residual
    return residual * (weights if residual.ndim == 1 else weights[:, None])


def distance(w: Point, anchor: Point) -> float:
    """Return the Euclidean distance of two released points, dense or sparse."""
    if isinstance(w, SparseVector) and isinstance(anchor, SparseVector):
        _, slots = np.unique(np.concatenate([w.indices, anchor.indices]), return_inverse=True)
        return public_norm(np.bincount(slots, np.concatenate([w.values, -anchor.values])))
    one, other = (p.to_dense() if isinstance(p, SparseVector) else np.asarray(p, float) for p in (w, anchor))
    return public_norm(one - other)


# --------------- What DP-SRM asks: a little of the gradient and the rest of its change, in one contribution


@dataclass(frozen=True)
class RecursiveGradient(_OfTwoPoints):
    r"""``sum_i gamma clip_C1(grad f_i(w)) + (1 - gamma) clip_C2(grad f_i(w) - grad f_i(a))``, params (w, a).

    Gradient and difference are clipped apart, so a record adds at most
    ``Cbar = gamma C1 + (1 - gamma) C2``. With a finite ``row_bound`` R the second clip shrinks with the
    step: ``C2,t = min(C2, curvature R^2 ||w - a||)``, which looks at released points only. Both vectors are
    multiples of the row, so one weighted sum does.

    **Privacy.** Sensitivity Cbar (add-remove) or 2 Cbar (replace-one) in L2, whatever the data.
    """

    gradient_clip: float
    difference_clip: float
    gamma: float
    row_bound: float = np.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("gamma", self.gamma, "[0, 1]")

    def difference_bound(self, params: Any) -> float:
        """Return C2,t at two released points."""
        w, anchor = params
        with np.errstate(invalid="ignore"):
            reach = self.loss.curvature * self.row_bound**2 * distance(w, anchor)
        return float(min(self.difference_clip, reach)) if np.isfinite(reach) else self.difference_clip

    def contribution(self, params: Any) -> float:
        return self.gamma * self.gradient_clip + (1 - self.gamma) * self.difference_bound(params)

    def _coefficients(self, records: UnitSums, params: tuple[Point, Point]) -> Floats:
        w, anchor = params
        at_anchor, at_w = residuals(self.loss, records, anchor), residuals(self.loss, records, w)
        with np.errstate(over="ignore", invalid="ignore"):
            difference = at_w - at_anchor
        change = clip_scalars(difference, records.norms, self.difference_bound(params))
        level = clip_scalars(at_w, records.norms, self.gradient_clip)
        return self.gamma * level + (1 - self.gamma) * change


# ------------------------------ Scores of step sizes: how low the objective gets along a released direction


@dataclass(frozen=True)
class StepSizeScores(FromSum):
    r"""``-sum_i min(loss_i(w - a g), clip) - n penalty(w - a g)`` for each step size a.

    ``params = (w, g)``, both released; the first ``features`` columns are penalised, or all of them.
    A record's loss is cut to [0, clip] and what is not a number counts
    as zero, so a record moves every score by at most ``clip``; an added one moves all of them down.

    **Privacy.** Sensitivity ``clip`` in the largest entry under both relations; monotone under add-remove.
    """

    loss: Loss
    clip: float
    steps: tuple[float, ...]
    penalties: tuple[Penalty, ...] = ()
    population: int = 1
    features: int | None = None

    norm = Norm.LINF
    adds_up: ClassVar[bool] = False  # each answer holds the penalties

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return the clip: a loss in [0, clip] moves by no more when its record is replaced."""
        return self.clip

    def error(self, params: tuple[Floats, Floats], count: int) -> float:
        """Return the rounding of the sums, and of what the penalties add to them."""
        added = np.abs(self.finished(np.zeros(len(self.steps)), params)).max()
        return summation_error(count, self.clip) + 16 * 2.0**-53 * float(added)

    def summed(self, records: RecordSums, params: tuple[Floats, Floats]) -> Floats:
        """Return the sums of losses; margins are linear in the step, so two products serve all of them."""
        w, g = params
        at_w, along = records.margins(w), records.margins(g)
        return np.array([-self._losses(records, at_w - a * along) for a in self.steps])

    def finished(self, total: Floats, params: tuple[Floats, Floats]) -> Floats:
        w, g = params
        w, g = w[..., : self.features], g[..., : self.features]  # the intercept is not penalised
        penalties = [sum(p.value(w - a * g) for p in self.penalties) for a in self.steps]
        return total - self.population * np.array(penalties, dtype=float)

    def _losses(self, records: RecordSums, margins: Floats) -> float:
        with np.errstate(over="ignore", invalid="ignore"):
            losses = weigh(self.loss.value(margins, records.targets), records.weights)
        usable = np.isfinite(records.norms) & ~np.isnan(losses)
        return float(np.where(usable, np.clip(losses, 0.0, self.clip), 0.0).sum())


# ------------------- How large the gradients of records are, on either side: what a clip would take of them

# Sizes are counted from 2^-24 of the largest possible one on, the smaller ones together.
_OCTAVES = 24


def count_by_octave(values: Any, cells: int, ends: tuple[int, int], parts: Floats | None = None) -> Floats:
    """Return how many values below zero, and how many others, have their size in each cell of a grid.

    An octave has so many cells; what is beyond the ends counts in the cells there, and what is not a finite
    number nowhere. Rows count by their ``parts``, if they are parts of persons.
    """
    out, values = np.zeros((2, cells * (ends[1] - ends[0]) + 1)), np.asarray(values, dtype=np.float64)
    own = np.ones(1) if parts is None else parts
    with np.errstate(all="ignore"):  # that of zero is below all others
        _count_octaves(np.log2(np.abs(values)), values < 0.0, own, cells, float(ends[0]), float(ends[1]), out)
    return out


@compile_with_cache(nogil=True)
def _count_octaves(
    octaves: Floats, below: Bools, parts: Floats, cells: int, low: float, high: float, out: Floats
) -> None:
    last = parts.size - 1
    for i in range(octaves.size):
        if octaves[i] < math.inf:
            cell = math.ceil(cells * (min(max(octaves[i], low), high) - low))
            out[1 - int(below[i]), cell] += parts[min(i, last)]


@dataclass(frozen=True)
class GradientCounts(OneCount):
    """How many records have the size of their gradient in each cell of a grid, by the sign of the residual.

    ``params = (w, affine, unit)``: gradients of the mapped rows are measured in ``unit``, and those beyond it
    are counted in the last cell. An octave has ``cells`` cells. The weight of a record makes its gradient
    smaller, or with ``apart`` its count.

    **Privacy.** A record adds one to one count: 1 in L2, and sqrt 2 when it is replaced.
    """

    loss: Loss
    cells: int = 4
    apart: bool = False

    @property
    def sizes(self) -> Floats:
        """The middle of each cell, in units."""
        return np.exp2((np.arange(self.cells * _OCTAVES + 1) - 0.5) / self.cells - _OCTAVES)

    def evaluate(self, records: AffineViews, params: Any) -> Floats:
        """Return the counts of those below zero and of the others, shape (2, cells)."""
        w, affine, unit = params
        view = records.through(affine)
        with np.errstate(all="ignore"):  # what is not a number is counted nowhere
            residual = residual_in(self.loss, view.margins(w), view.targets, unit)
            residual = residual if self.apart else weigh(residual, view.weights)
            own = shares_of(records) if self.apart else records.parts
            return count_by_octave(residual * view.norms, self.cells, (-_OCTAVES, 0), own)


# -------------------------- How much all records weigh


@dataclass(frozen=True)
class TotalWeight(OneCount):
    """The sum of the weights of all records.

    **Privacy.** A record adds a number between 0 and 1, and a replaced one moves the sum by at most 1. All
    norms of one number are alike.
    """

    norm: Norm = Norm.L2

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return 1 under both relations."""
        return 1.0

    def evaluate(self, records: AffineViews, params: Any) -> Floats:
        shares, there = shares_of(records), np.isfinite(np.asarray(records.norms, dtype=float))
        return np.array([there.sum() if shares is None else there @ shares], dtype=float)


# -------------------------- Where targets lie: counts in equal cells, asked again in ever smaller intervals

CELLS = 32
# So many deviations of the sum of all cells leave quartiles where they are.
_ALL = 8.0


@dataclass(frozen=True)
class TargetCounts(OneCount):
    """How many targets lie in each of 32 equal cells of the public interval ``params = (low, high)``.

    **Privacy.** A record adds one to one count or to none: 1 in L2, sqrt 2 when it is replaced.
    """

    def evaluate(self, records: AffineViews, params: Any) -> Floats:
        low, high = params
        out, shares = np.zeros(CELLS), shares_of(records)
        own = np.ones(1) if shares is None else shares
        _count_cells(np.asarray(records.targets, dtype=float), own, float(low), float(high), out)
        return out


@compile_with_cache(nogil=True, error_model="numpy")
def _count_cells(values: Floats, parts: Floats, low: float, high: float, out: Floats) -> None:
    last, found, at = parts.size - 1, np.zeros(out.size + 1), np.empty(values.size, dtype=np.int32)
    for i in range(values.size):  # without branches: targets lie on either side of an end as they like
        cell = min(math.floor(out.size * ((values[i] - low) / (high - low))), out.size - 1)
        at[i] = cell if (low < high) & (low <= values[i]) & (values[i] <= high) else out.size
    for i in range(values.size):
        found[at[i]] += parts[min(i, last)]
    out += found[:-1]


def narrow(
    counts: Floats, noise: float, interval: tuple[float, float], together: tuple[int, ...] = (1,)
) -> tuple[float, float] | None:
    """Return an interval around the mean of the cells with the middle of the noisy counts, if any stands out.

    Where no cell does, so many neighbours ``together`` may. Free: it reads released counts only.
    """
    for near in together:
        sums = np.convolve(counts, np.ones(near), "valid")
        kept = np.where(sums > sure(CELLS) * noise * math.sqrt(near), sums, 0.0)
        if kept.any():
            break
    else:
        return None
    if counts.sum() > _ALL * math.sqrt(CELLS) * noise:  # of many alike those that stand out are any
        near, kept = 1, counts
    below = np.cumsum(kept) / kept.sum()
    first, last = (int(np.argmax(below >= share)) for share in (0.25, 0.75))
    last += near - 1
    cells = np.arange(max(first - 1, 0), min(last + 2, CELLS))
    weights, width = np.maximum(counts[cells], 0.0), (interval[1] - interval[0]) / CELLS
    middle = interval[0] + width * (0.5 + float(weights @ cells / weights.sum()))
    half = width * (last - first + 3) / 2
    return middle - half, middle + half


def sure(cells: int) -> float:
    """Return how many standard deviations the largest of so many noises exceeds once in some 5,000 times."""
    return math.sqrt(2.0 * math.log(1000.0 * cells))


# ------------ How often each class is: the constant model of labels, and where a descent on log odds starts

# The grid of log odds on which the share of a class is guessed, and the odds that all classes are alike: what
# three deviations of noise may cause starts no descent.
_FARTHEST, _POINTS, ALIKE = 12.0, 961, 20.0
# The least mean, in bounds; one with less noise than the last part of it is clear.
_SMALLEST, _CLEAR = 1e-4, 0.03


@dataclass(frozen=True)
class ClassSums(ClippedSum):
    r"""``sum_i a_i (e_{y_i} - 1 / K)``: by how much each of K classes is more frequent than 1 / K.

    ``outputs`` is K, or 1 for two classes with the targets -1 and 1. ``a_i`` is the weight of a record, at
    most one. A target that is no class adds zero.

    **Privacy.** ``||e_y - 1 / K||^2 = 1 - 1 / K``. Replacing a record by one of another class moves the sum
    by a vector of the squared norm ``(a^2 + b^2) (1 - 1 / K) + 2 a b / K <= 2``.
    """

    outputs: int

    @property
    def classes(self) -> int:
        return max(self.outputs, 2)

    def contribution(self, params: Any) -> float:
        return math.sqrt(1.0 - 1.0 / self.classes)

    def sensitivity(self, relation: Relation, params: Any) -> float:
        return math.sqrt(2.0) if relation.contributions == 2 else self.contribution(params)

    def evaluate(self, records: AffineViews, params: Any) -> Floats:
        y = np.asarray(records.targets, dtype=float)
        label = np.where(y == -1.0, 0.0, y) if self.outputs == 1 else y
        known = np.isin(label, np.arange(self.classes))
        shares = shares_of(records)
        own = None if shares is None else shares[known]
        counts = np.bincount(label[known].astype(int), own, minlength=self.classes).astype(float)
        return counts - counts.sum() / self.classes


def log_shares(means: Floats, noise: float, alike: float = ALIKE) -> Any:
    """Return the log odds of the constant model from released mean :class:`ClassSums`.

    ``noise`` is the standard deviation of each mean. A share is the mean of what is expected of it: classes
    are alike, with the odds ``alike``, or Jeffreys' law holds, and noise is normal. So what noise could cause
    leaves classes alike, and what it could not is believed. For two classes there is one number, for more
    one for each class, with the mean zero.
    Free: it reads released numbers only.
    """
    if means.size == 2:
        share = _expected_share(0.5 + 0.5 * (means[1] - means[0]), noise * math.sqrt(0.5), 2, alike)
        return math.log(share / (1.0 - share))
    logs = np.log([_expected_share(1.0 / means.size + m, noise, means.size, alike) for m in means])
    return logs - logs.mean()


def _expected_share(seen: float, noise: float, classes: int, alike: float) -> float:
    """Return the mean of the share of one of so many classes that was seen with normal noise."""
    share = 1.0 / (1.0 + np.exp(-np.linspace(-_FARTHEST, _FARTHEST, _POINTS)))
    law = 0.5 * (np.log(share) + (classes - 1) * np.log1p(-share))
    law = np.append(law, np.logaddexp.reduce(law) + math.log(max(alike, 1e-300)))
    return _expect(np.append(share, 1.0 / classes), law, seen, max(noise, 1e-6))


def expected_mean(
    seen: float, noise: float, bound: float, counts: bool = False, laplace: bool = False
) -> float:
    """Return what is expected of a mean of targets with this bound seen with normal or Laplace noise.

    Before, all sizes of a number up to the bound are as likely, on either side of zero: so a mean that is
    mostly noise is next to nothing. Laplace noise has longer tails: it is zero with even odds there.
    Counts have Jeffreys' law. Free: it reads released numbers only.
    """
    if noise < max(_SMALLEST * bound, _CLEAR * abs(seen)) and not (counts and seen < noise / _CLEAR):
        return min(max(seen, -bound), bound)  # no grid is so fine
    sizes = bound * np.geomspace(_SMALLEST, 1.0, _POINTS)
    if counts:
        return _expect(sizes, 0.5 * np.log(sizes), seen, max(noise, _SMALLEST * bound))
    zero = math.log(2 * _POINTS) if laplace else -math.inf
    return _expect(
        np.append([-sizes, sizes], 0.0), np.append(np.zeros(2 * _POINTS), zero), seen, noise, laplace
    )


def _expect(points: Floats, law: Floats, seen: float, noise: float, laplace: bool = False) -> float:
    """Return the mean of these points by their law, the logarithm of a density, and one seen with noise."""
    away = np.abs(seen - points) / noise
    law = law - (math.sqrt(2.0) * away if laplace else 0.5 * np.square(away))
    weights = np.exp(law - law.max())
    return float(weights @ points / weights.sum())


# --------- Scores of coordinates for private selection: gradients whose largest entry is bounded per record
# A record's gradient is ``r_i x_i``, so one factor per record bounds ``|r_i| max_j |x_ij|`` by the clip.
# ``params`` are released points. Coordinates are numbered through the flattened coefficients.


@dataclass(frozen=True)
class _Scores(FromSum):
    """What the score queries share: the clip, and terms that depend on released points only.

    **Privacy.** Every score moves by at most ``clip`` (add-remove) or twice that (replace-one).
    """

    loss: Loss
    clip: float
    ridge_sum: float = 0.0  # ridge times the public number of records

    norm = Norm.LINF
    adds_up: ClassVar[bool] = False  # each answer holds the penalty

    def error(self, params: Any, count: int) -> float:
        """Return the rounding of the sum, and of what the penalty adds to it."""
        w = params[0] if isinstance(params, tuple) else params
        entries = w.values if isinstance(w, SparseVector) else w
        added = (abs(self.ridge_sum) + getattr(self, "weight", 0.0)) * float(np.abs(entries).max(initial=0.0))
        return summation_error(count, self.clip) + 16 * 2.0**-53 * added

    def summed(self, records: RecordSums, params: Any) -> Answer:
        """Return the sum of the records' gradients at the point."""
        w = params[0] if isinstance(params, tuple) else params
        return records.weighted_sum(clip_peaks(self.loss, records, w, self.clip))

    def _add_penalty(self, gradient: Answer, w: Any, factor: float) -> Answer:
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
        g = self._add_penalty(total, params, self.ridge_sum)
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
        g = self._add_penalty(total, w, self.ridge_sum)
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
        moved = -1.0 * self._add_penalty(total, params, self.ridge_sum - self.weight)
        return without_intercept(moved, self.features)


@dataclass(frozen=True)
class RestrictedGradient(ClippedSum):
    r"""Entries of the clipped gradient sum at released coordinates, ``params = (w, coordinates)``.

    **Privacy.** A record's entries are at most ``peak_clip`` each and ``clip`` in norm, so m of them have
    norm at most ``min(sqrt(m) peak_clip, clip)``.
    """

    loss: Loss
    peak_clip: float
    clip: float

    def contribution(self, params: Any) -> float:
        return min(math.sqrt(len(params[1])) * self.peak_clip, self.clip)

    def evaluate(self, records: RecordSums, params: Any) -> Floats:
        w, coordinates = params
        coefficients = clip_peaks(self.loss, records, w, self.peak_clip)
        coefficients = clip_scalars(coefficients, records.norms, self.clip)
        return pick(records.weighted_sum(coefficients), coordinates)


def clip_peaks(loss: Loss, records: RecordSums, w: Point, clip: float) -> Floats:
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
