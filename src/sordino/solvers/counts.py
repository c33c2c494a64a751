"""The last correction of a model of counts: Newton steps on the whole gradient, with released curvatures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sordino.kernel.arrays import Floats
from sordino.solvers.descent import NOTHING, along_axes

if TYPE_CHECKING:
    from sordino.solvers.correction import Whole

# The constant entry of a row, in units of a typical row.
CONSTANT = 0.5
# Some margins move by so many times the usual move: a step is as short as if all did.
_FARTHEST = 2.0


@dataclass(frozen=True, eq=False)
class Believed:
    """Weights after a step, the axes of the curvature, and the share of the step believed along each.

    ``added`` is the noise along the axes, ``slope`` the share of the slope that is believed and its noise.
    """

    w: Floats
    axes: Floats
    kept: Floats
    added: Floats
    slope: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Bowl:
    """The curvature of the loss at a point, the constant entry last, and how much of it may be noise."""

    matrix: Floats
    unsure: float
    features: int

    @property
    def last(self) -> float:
        """The curvature along the constant entry; infinite where there is none, so that nothing moves."""
        own = self.matrix[self.features :, self.features :]
        return max(float(own[0, 0]), self.unsure, NOTHING) if own.size else math.inf

    @property
    def cross(self) -> Floats:
        """How far the offset must move with each slope for the same mean, shrunk as far as it is noise."""
        found = self.matrix[: self.features, self.features :].sum(axis=1)
        sure = max(0.0, 1.0 - 0.5 * self.unsure**2 / max(float(found @ found), NOTHING))
        return np.asarray(sure * found / self.last)

    def believed(self, start: Floats, gradient: Floats, noise: float) -> Believed:
        """Return the minimum by a gradient at the start, as far as it is no noise; the offset stays."""
        d, cross = self.features, self.cross
        inner = self.matrix[:d, :d] - (np.outer(cross, cross) * self.last if cross.any() else 0.0)
        sizes, axes = np.linalg.eigh(inner)
        # Axes that noise hides count as bent as the noise is large: steps along them are short.
        bends = np.maximum(sizes, max(self.unsure, 1e-12 * float(sizes.max()), NOTHING))
        seen = axes.T @ (gradient[:d] - cross * gradient[d:].sum())
        louder = noise * math.sqrt(1.0 + float(cross @ cross))
        step, kept, added, slope = along_axes(seen, axes.T @ start[:d], bends, louder)
        w = start.copy()
        w[:d] -= axes @ step
        return Believed(w, axes, kept, added, slope)

    def height(self, gradient: Floats) -> float:
        """Return how far above the minimum a point with this gradient is, twice."""
        sizes, axes = np.linalg.eigh(self.matrix)
        return float(np.square(axes.T @ gradient) @ (1.0 / np.maximum(sizes, max(self.unsure, NOTHING))))

    def shortened(self, moved: Floats, gradient: Floats, longest: float) -> Floats:
        """Return a move of the slopes with that of the offset, no longer than the curvature holds for.

        The curvature of counts grows with what is predicted, by e for each unit of a margin. A column that
        few rows have moves only their margins, by its whole entry: it is shortened by itself.
        """
        d = self.features
        moved = moved * _damping(longest * np.abs(moved))
        moved[d:] = -gradient[d:] / self.last - self.cross @ moved[:d]
        moved[d:] *= _damping(CONSTANT * np.abs(moved[d:]))
        total = np.trace(self.matrix) if math.isinf(self.last) else self.last / CONSTANT**2
        usual = max(float(moved @ self.matrix @ moved), 0.0) / max(float(total), NOTHING)
        return np.asarray(moved * _damping(np.array(_FARTHEST * math.sqrt(usual))))


def _damping(far: Floats) -> Floats:
    """Return by how much a Newton step on an exponential is shortened that moves margins so far."""
    return np.log1p(far) / np.maximum(far, NOTHING) + (far < NOTHING)


def newton_on_counts(whole: Whole, start: Floats, width: float) -> Believed:
    """Return the weights after Newton steps on the whole gradient, as far as these are no noise.

    Earlier gradients are moved to the last point by the curvature. By how much more than noise they miss the
    gradient there says how little they count.
    """
    releases = whole.curator.plan.releases
    units = np.ones_like(start)  # of the weights: the constant entry of whole rows is another
    if whole.own.intercept:
        units[-1] = whole.own.intercept / CONSTANT
    start = start * units
    w = asked = start
    seen, variance, asks = np.zeros_like(start), math.inf, []
    for ask in range(releases["whole"].times):
        if ask < releases["bent"].times:
            bowl = whole.bowl(w / units)
        answer, noise = whole.score(w / units, width)
        answer = answer + whole.penalty(w / units) / units
        asks.append((w, answer))
        if ask == 0:
            seen, variance = answer, noise**2
        else:
            expected = seen + bowl.matrix @ (w - asked)
            missed = float(np.square(answer - expected).mean()) - noise**2 - variance
            doubt = variance + max(missed, NOTHING)
            trust = doubt / (doubt + noise**2)
            seen, variance = expected + trust * (answer - expected), trust * noise**2
        found = bowl.believed(start, seen - bowl.matrix @ (w - start), math.sqrt(variance))
        asked, w = w, w + bowl.shortened(found.w - w, seen, whole.longest)
    best, least = min(((point, bowl.height(g)) for point, g in asks), key=lambda one: one[1])
    if least < 0.5 * bowl.height(answer):  # the last steps went astray
        w = best
    return Believed(w / units, found.axes, found.kept, found.added, found.slope)
