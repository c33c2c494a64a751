"""Newton steps on the whole gradient, by released curvatures: the last correction of slopes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sordino.kernel.arrays import Floats
from sordino.solvers.descent import NOTHING, SLOPE, along_axes, believe

# The constant entry of a row, in units of a typical row.
CONSTANT = 0.5
# Some margins move by so many times the usual move: a step is as short as if all did.
_FARTHEST = 2.0
# A point is worse than another if it is higher by so many times what noise adds.
_SURE = 3.0
# A gradient of so many deviations of noise is followed as far as the curvature says.
_SURELY = 5.0


@dataclass(frozen=True, eq=False)
class Believed:
    """Weights after a step, the axes of the curvature, and the share of the step believed along each.

    ``added`` stays unsure along them, ``slope`` is the share of the slope that is believed and its noise.
    """

    w: Floats
    axes: Floats
    kept: Floats
    added: Floats
    slope: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Bowl:
    """The curvature of a loss at a point, that of its constant entry last, and how much of it may be noise.

    ``far`` is the part of it that only whole rows show. ``grows`` says that it grows with what is predicted,
    by e for each unit of a margin, as that of counts. Without a constant entry the offset stays. Few, long
    rows that noise hides may bend axes by ``hidden``; they may not move predictions by more than ``most``
    unless a gradient surely says so. Steps along all axes together are expected to move them by ``spread``.
    """

    matrix: Floats
    unsure: float
    features: int
    far: Floats | float = 0.0
    grows: bool = False
    hidden: float = 0.0
    most: float = math.inf
    spread: float = math.inf

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

    @property
    def slopes(self) -> Floats:
        """The curvature in the slopes alone, with the offset that is best for each."""
        cross, d = self.cross, self.features
        return self.matrix[:d, :d] - (np.outer(cross, cross) * self.last if cross.any() else 0.0)

    def eigen(self, matrix: Floats) -> tuple[Floats, Floats]:
        """Return eigenvalues and eigenvectors; those of the last two matrices stay known."""
        known = self.__dict__.get("_eigen", ())
        found = next((one for one in known if np.array_equal(one[0], matrix)), None)
        if found is None:
            found = (matrix, *np.linalg.eigh(matrix))
            object.__setattr__(self, "_eigen", (found, *known[:1]))
        return found[1], found[2]

    def _axes(self, matrix: Floats) -> tuple[Floats, Floats]:
        """Return curvatures and axes; an axis that noise hides counts as bent as the noise is large."""
        sizes, axes = self.eigen(matrix)
        return np.maximum(sizes, max(self.unsure, 1e-12 * float(sizes.max()), NOTHING)), axes

    def believe(self, start: Floats, gradient: Floats, noise: Floats) -> Believed:
        """Return the minimum by a gradient at the start, as far as it is no noise; the offset stays."""
        d, cross = self.features, self.cross
        bends, axes = self._axes(self.slopes)
        seen = axes.T @ (gradient[:d] - cross * gradient[d:].sum())
        louder = noise_along(axes, noise[:d]) * math.sqrt(1.0 + float(cross @ cross))
        each = self.spread**2 / max(d, 1)
        step, kept, added, slope = along_axes(seen, axes.T @ start[:d], bends, louder, each)
        far = np.where(np.abs(seen) > _SURELY * louder, math.inf, self.most / np.sqrt(bends + self.hidden))
        step = np.clip(step, -far, far)
        w = start.copy()
        w[:d] -= axes @ step
        if self.grows:  # answers that are not followed say no more about the weights than their noise
            added, slope = louder / bends, (1.0, 0.0)
        return Believed(w, axes, kept, added, slope)

    def height(self, gradient: Floats, noise: Floats | float) -> tuple[float, float]:
        """Return how far above the minimum a point with this gradient is, twice, and what noise adds."""
        bends, axes = self._axes(self.matrix)
        high = np.square(axes.T @ gradient), np.square(noise_along(axes, noise))
        return float((high[0] / bends).sum()), float((high[1] / bends).sum())

    def stiffen(self, pull: Floats, moved: Floats, noise: Floats | float) -> Bowl:
        """Return the bowl, more bent along axes where two gradients, a move apart, differ by more.

        A column that few, long rows have is bent far more than released moments may show, and a step that
        does not know it goes far beyond the minimum.
        """
        bends, axes = self._axes(self.matrix)
        far = np.abs(along := axes.T @ moved)
        chance = _SURE * noise_along(axes, noise)
        seen = (np.sign(along) * (axes.T @ pull) - chance) / np.maximum(far, NOTHING)
        more = np.maximum(np.minimum(seen, 1e6 * bends) - bends, 0.0)
        return replace(self, matrix=self.matrix + (axes * more) @ axes.T) if more.any() else self

    def shorten(self, moved: Floats, gradient: Floats, variance: Floats, longest: Floats | float) -> Floats:
        """Return a move of the slopes with that of the offset, no longer than the curvature holds for.

        A column that few rows have moves only their margins, by its whole entry: it is shortened by itself,
        by the ``longest`` entry that it may have.
        What noise of this variance could cause moves no offset.
        """
        if not self.grows:
            return moved
        d = self.features
        moved = moved * _damping(longest * np.abs(moved))
        for last in range(d, moved.size):
            own = believe(gradient[last] / self.last, variance[last] / self.last**2, SLOPE**2)
            moved[last] = -own - self.cross @ moved[:d]
        moved[d:] *= _damping(CONSTANT * np.abs(moved[d:]))
        total = np.trace(self.matrix) if math.isinf(self.last) else self.last / CONSTANT**2
        usual = max(float(moved @ self.matrix @ moved), 0.0) / max(float(total), NOTHING)
        return np.asarray(moved * _damping(np.array(_FARTHEST * math.sqrt(usual))))


def _damping(far: Floats) -> Floats:
    """Return by how much a Newton step on an exponential is shortened that moves margins so far."""
    return np.log1p(far) / np.maximum(far, NOTHING) + (far < NOTHING)


def noise_along(axes: Floats, noise: Floats | float) -> Floats | float:
    """Return the deviation of noise along axes, from that of each column or of all alike."""
    return np.sqrt(np.square(axes.T) @ np.square(noise)) if isinstance(noise, np.ndarray) else noise


def newton_steps(
    score: Callable[[Floats], tuple[list[Floats], Any]],
    bowl_at: Callable[[Floats, Bowl | None], Bowl],
    start: Floats,
    asks: int,
    longest: Floats | float = 0.0,
) -> Believed:
    """Return the point after Newton steps on gradients with noise, as far as these are no noise.

    ``score`` releases the gradient at a point; it returns those at all points, as they are known then, and
    their noise. ``bowl_at`` releases a curvature there, or returns the last one.

    **Privacy.** Post-processing of what the two release.
    """
    w, points = start, list[Floats]()
    bowl: Any = None
    for ask in range(asks):
        points.append(w)
        gradients, noise = score(w)
        bowl = bowl_at(w, bowl)
        for k in range(max(ask, 1) if bowl.grows else 1, ask + 1):  # a curvature that grows holds here
            pull, moved = gradients[k] - gradients[k - 1], points[k] - points[k - 1]
            bowl = bowl.stiffen(pull, moved, math.sqrt(2.0) * noise)
        seen, variance = _advance(points, gradients, bowl, noise)
        found = bowl.believe(start, seen - bowl.matrix @ (w - start), np.sqrt(variance))
        w = w + bowl.shorten(found.w - w, seen, variance, longest)
    heights = [bowl.height(gradient, noise) for gradient in gradients]
    best = int(np.argmin([high for high, _ in heights]))
    if heights[best][0] + _SURE * heights[-1][1] < 0.5 * heights[-1][0]:  # the last steps went astray
        w = points[best]
    return replace(found, w=w)


def _advance(
    points: list[Floats], gradients: list[Floats], bowl: Bowl, noise: Floats | float
) -> tuple[Floats, Floats]:
    """Return the gradient at the last point by all of them, and its variance.

    Earlier gradients are moved to the last point by the curvature. By how much more than noise they miss the
    gradient there says how little they count.
    """
    own = np.square(noise) * np.ones_like(gradients[0])
    seen, variance = gradients[0], own
    for k in range(1, len(points)):
        missed = gradients[k] - seen - bowl.matrix @ (points[k] - points[k - 1])
        chance = np.maximum(own + variance, NOTHING)
        more = float((np.square(missed) / chance).mean()) - 1.0 - _SURE * math.sqrt(2.0 / seen.size)
        doubt = variance + max(more, 0.0) * chance + NOTHING
        trust = doubt / (doubt + own)
        seen, variance = gradients[k] - (1.0 - trust) * missed, trust * own
    return seen, variance
