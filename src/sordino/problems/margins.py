"""The last question of a linear model: by how much are its margins too long, and how far are they off?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import softmax

from sordino.kernel import ClippedSum
from sordino.kernel.arrays import Floats, compile_with_cache
from sordino.kernel.clip import clip_scalars, joint_norms, sum_of_rows
from sordino.kernel.query import LOGISTIC, AffineViews, Pull, as_weights, clip_residuals, write_residuals
from sordino.problems.affine import Affine, fair_weights
from sordino.problems.losses import LabelModel, Loss, compiled_form, sigmoid
from sordino.problems.queries import check_clip, weigh


ROOT = math.sqrt(2.0)
_BLOCK = 1 << 14  # records whose vectors stay in the cache


@compile_with_cache(nogil=True, error_model="numpy")
def margin_rows(margins: Any, records: Any, pull: Any, own: Any, point: Any, units: Any, out: Any) -> None:
    """Write gradient and curvature of each record in the slope, and in the offset where there is one.

    ``pull`` are the numbers of the gradient that was followed (:class:`~sordino.kernel.query.Pull`), ``own``
    (start, end, travel), ``point`` (slope, offset), ``units`` (of margins, of curvatures, the constant, the
    clip): all public. A record was followed by half its clipped residual at the start and at the end.
    """
    targets, weights, sizes, norms = records
    margin_unit, bend_unit, constant, bound = units
    n, (start, end, travel) = margins.size, own
    z, values, largest = margins + end, np.full(n, start), np.empty(n)
    clip_residuals(pull, values, largest, targets, weights, norms)
    clip_residuals(pull, z, largest, targets, weights, norms)
    for i in range(n):
        seen = -0.5 * values[i] - 0.5 * z[i]
        s = margins[i] - seen * travel * min(sizes[i], 1.0) * sizes[i]
        z[i], values[i] = s / margin_unit, point[0] * s + point[1]
    write_residuals(pull, values, targets, largest)
    fair, bends = np.ones(n), np.full(n, bend_unit)
    if weights.size:
        fair *= weights
    if pull[0] == LOGISTIC:
        for i in range(n):
            bends[i] *= largest[i] * (1.0 - largest[i])
            square = z[i] * z[i] + constant * constant  # for a weight; the clip takes its own norm
            length = largest[i] * largest[i] * square + bends[i] * bends[i] * square * square
            fair[i] *= min(1.0, bound / math.sqrt(length))
    for i in range(n):
        value, bend = fair[i] * values[i], fair[i] * bends[i]
        out[i, 0] = value * z[i]
        if constant == 0.0:
            out[i, 1] = bend * z[i] * z[i]
        else:
            out[i, 1] = value * constant
            out[i, 2] = bend * z[i] * z[i]
            out[i, 3] = bend * ROOT * z[i] * constant
            out[i, 4] = bend * constant * constant


# Margins of this size count twice as much as the constant; curvatures are made as large as gradients.
_MARGIN = {"signs": 1.5, "labels": 1.5, "numbers": 1.0}
_BEND = {"signs": 4.0, "labels": 2.0, "numbers": 0.5}
_CONSTANT = 0.5
# From this clip on the constant grows with it, up to a factor, and the units of curvatures become smaller:
# a wide clip is for long margins, and should not be noise for the offset.
_NARROW, _WIDEST, _BEND_POWER = 0.8, 32.0, 0.75


@dataclass(frozen=True, eq=False)
class OwnPart:
    """How a record got into the margins: how far its share of a gradient was followed, through which map.

    ``start`` and ``end`` are the offsets before and after the descent, ``clip`` and ``fair`` those of its
    gradient. Records are weighed for a clip ``narrow`` times that of the question and enlarged to fill it.
    All of it is public.
    """

    affine: Affine
    travel: float
    start: Any
    end: Any
    clip: float
    fair: bool
    narrow: float = 1.0


@dataclass(frozen=True)
class MarginFit(ClippedSum):
    r"""The sum of clipped gradients and curvatures of the loss in a slope and an offset of given margins.

    ``params = (w, offset, slope, unit, own)``: the margins are ``slope s_i + offset`` in the unit of the
    targets, with ``s_i = x_i . w`` less the part that the record itself put into it when w was fitted: a
    model is too sure of the records it has seen. Records are weighed by what does not depend on their labels,
    so that no label would be clipped: the root of the gradient is the right slope, however small the clip.

    **Privacy.** A record adds one vector, clipped to the norm ``clip``.

    Parameters
    ----------
    loss : of log odds or of numbers.
    clip : the norm of a record's vector.
    offset : whether the offset is asked for too; of one margin only.
    """

    needs: ClassVar[tuple[type, ...]] = (AffineViews,)

    loss: Loss
    clip: float
    offset: bool

    def __post_init__(self) -> None:
        check_clip(self.clip)

    @property
    def size(self) -> int:
        return 5 if self.offset else 2

    def units(self, narrow: float = 1.0) -> tuple[float, float, float]:
        """Return the units of margins and of curvatures, and the constant of the offset."""
        targets, wide = self.loss.targets, 1.0
        if isinstance(self.loss, LabelModel):
            wide = min(max(1.0, narrow * self.clip / _NARROW), _WIDEST)
        constant = _CONSTANT * wide if self.offset else 0.0
        return _MARGIN[targets], _BEND[targets] / wide**_BEND_POWER, constant

    def contribution(self, params: Any) -> float:
        return self.clip

    def evaluate(self, records: Any, params: Any) -> Floats:
        """Return the sum over records: gradients, then curvatures."""
        w, offset, slope, unit, own = params
        with np.errstate(all="ignore"):  # the clip deals with what is not a number
            s = records.within(own.affine.columns).margins(w)
            view = records.through(own.affine)
            if isinstance(s, np.ndarray) and s.ndim == 1 and compiled_form(self.loss) is not None:
                blocks = [slice(i, i + _BLOCK) for i in range(0, s.size, _BLOCK)]
                return sum(
                    (self._in_one_pass((view, records.parts), s, params, rows) for rows in blocks),
                    np.zeros(self.size),
                )
            s = s - self._own_part(view, s, own, unit)
            z = s / self.units()[0]
            of = self._of_classes if s.ndim == 2 else self._of_one
            parts = of(z, slope * s + offset, records.targets, unit, own.narrow)
            parts = [weigh(part, records.weights) / own.narrow for part in parts]
            return sum_of_rows(parts, self.clip, records.parts)

    def _in_one_pass(self, seen: Any, s: Floats, params: Any, rows: slice) -> Floats:
        """Return the sum of the clipped vectors of some records; what :meth:`_of_one` does."""
        (_, offset, slope, unit, own), (view, parts) = params, seen
        kind, threshold = compiled_form(self.loss) or (0, 0.0)
        weights = as_weights(view.weights if view.weights is None else view.weights[rows])
        records = (view.targets[rows], weights, view.sizes[rows], view.norms[rows])
        units = (*self.units(own.narrow), own.narrow * self.clip)
        pull = Pull(kind, own.clip, own.fair, unit=unit, threshold=threshold).numbers
        before, point, s = (float(own.start), float(own.end), own.travel), (slope, float(offset)), s[rows]
        out = np.empty((s.size, self.size))
        margin_rows(s, records, pull, before, point, units, out)
        parts = None if parts is None else parts[rows]
        return sum_of_rows(out if own.narrow == 1.0 else out / own.narrow, self.clip, parts)

    def unpack(self, answer: Floats, narrow: float = 1.0) -> tuple[Floats, Floats]:
        """Return gradient and curvature in the slope (and the offset) from an answer."""
        (margin, bend, constant), answer = self.units(narrow), answer * narrow
        if not self.offset:
            return answer[:1] * margin, answer[1:, None] * margin**2 / bend
        units = np.array([margin, 1.0 / constant])
        cross = answer[3] / math.sqrt(2.0)
        curvature = np.array([[answer[2], cross], [cross, answer[4]]])
        return answer[:2] * units, curvature * np.outer(units, units) / bend

    def _own_part(self, view: Any, s: Floats, own: OwnPart, unit: float) -> Floats:
        """Return what the record itself put into its margin, by its residuals at the start and at the end."""
        reach = own.travel * np.minimum(view.sizes, 1.0) * view.sizes
        followed = 0.0 * s
        for margins in (followed + own.start, s + own.end):
            residual = weigh(self._residual(margins, view.targets, unit), view.weights)
            if own.fair:
                residual = weigh(residual, fair_weights(self.loss, margins, view.norms, own.clip))
            followed = followed - 0.5 * clip_scalars(residual, view.norms, own.clip)
        return weigh(followed, reach)

    def _residual(self, margins: Floats, y: Floats, unit: float) -> Floats:
        return self.loss.residual(margins * (unit if self.loss.targets == "numbers" else 1.0), y) / unit

    def _of_one(self, z: Floats, margins: Floats, y: Floats, unit: float, narrow: float) -> list[Floats]:
        _, unit_of_bends, constant = self.units(narrow)
        length = joint_norms([np.abs(z), constant])
        residual = self._residual(margins, y, unit)
        label = isinstance(self.loss, LabelModel)
        bend = unit_of_bends * (sigmoid(margins) * sigmoid(-margins) if label else 1.0)
        parts = [residual * z, bend * z * z]
        if self.offset:
            parts = [residual * z, residual * constant, bend * z * z]
            parts += [bend * math.sqrt(2.0) * z * constant, bend * constant**2 + 0.0 * z]
        if not isinstance(self.loss, LabelModel):
            return parts
        fair = self._fair(self.loss.largest_residual(margins) * length, bend * length * length, narrow)
        return [weigh(part, fair) for part in parts]

    def _of_classes(self, z: Floats, margins: Floats, y: Floats, unit: float, narrow: float) -> list[Floats]:
        p: Floats = softmax(margins, axis=1)
        away = z - (p * z).sum(axis=1, keepdims=True)
        bend = self.units(narrow)[1] * (p * np.square(away)).sum(axis=1)
        gradient = (self._residual(margins, y, unit) * z).sum(axis=1)
        fair = self._fair(np.abs(away).max(axis=1), bend, narrow)
        return [weigh(part, fair) for part in (gradient, bend)]

    def _fair(self, gradient: Floats, curvature: Floats, narrow: float) -> Floats:
        """Return the weight at which no label would be clipped."""
        return np.minimum(1.0, narrow * self.clip / joint_norms([gradient, curvature]))
