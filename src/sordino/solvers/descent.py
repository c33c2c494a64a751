"""Nesterov descent on noisy gradients, with a step that looks at released numbers only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sordino.kernel.arrays import Bools, Floats

MOMENTUM = 0.9
FIRST_STEP = 4.0


@dataclass(frozen=True)
class Noise:
    """The public standard deviation of each coordinate of a released mean gradient."""

    std: float
    coordinates: int

    @property
    def energy(self) -> float:
        """The expected squared norm of the noise."""
        return self.std**2 * self.coordinates


@dataclass
class NoisyDescent:
    r"""Nesterov steps of size at most ``step`` on noisy gradients.

    The step doubles from a safe one up to ``step``, and is cut to one over the largest curvature seen
    between two released gradients. Both points carry the noise of the earlier gradient, which looks like
    curvature; its expectation is known and subtracted. ``penalty`` returns a gradient that is free.
    """

    gradient: Callable[[Floats], Floats]
    step: float
    noise: Noise
    penalty: Callable[[Floats], Floats] | None = None
    taken: list[float] = field(default_factory=list)

    def path(self, start: Floats, steps: int) -> Iterator[Floats]:
        """Yield the iterates."""
        w, velocity, earlier, curvature = start, np.zeros_like(start), None, 0.0
        for t in range(steps):
            ahead = w + MOMENTUM * velocity
            g = self.gradient(ahead)
            if self.penalty is not None:
                g = g + self.penalty(ahead)
            if earlier is not None:
                moved, changed = ahead - earlier[0], g - earlier[1]
                curvature = max(curvature, _curvature(moved, changed, self.taken[-1], self.noise))
            earlier = (ahead, g)
            h = min(
                self.step, FIRST_STEP * 2.0 ** min(t, 1000), 1.0 / curvature if curvature > 0 else math.inf
            )
            self.taken.append(h)
            velocity = MOMENTUM * velocity - h * g
            w = w + velocity
            yield w

    def spread(self, curvature: Floats, before: Floats) -> Floats:
        """Return the standard deviation of the noise in coordinates of the last point.

        ``before`` is that of the first point. Each step adds noise and, where there is curvature, takes some
        of the earlier noise back: the covariance of point and velocity follows.
        """
        point, velocity, both = np.square(before), np.zeros_like(before), np.zeros_like(before)
        for h in self.taken:
            bent = np.minimum(h * curvature, 1.0)
            kept, pull = MOMENTUM * (1.0 - bent), -bent
            new_velocity = kept**2 * velocity + 2 * kept * pull * both + pull**2 * point
            new_velocity = new_velocity + (h * self.noise.std) ** 2
            crossed = kept * both + pull * point  # of the old point with the new velocity
            point, velocity, both = point + 2 * crossed + new_velocity, new_velocity, crossed + new_velocity
        return np.sqrt(np.maximum(point, 0.0))

    @property
    def travel(self) -> float:
        """How far a constant gradient of norm one would have been followed."""
        left = len(self.taken) - np.arange(len(self.taken))
        return float((np.array(self.taken) * (1 - MOMENTUM**left)).sum() / (1 - MOMENTUM))


def _curvature(moved: Floats, changed: Floats, step: float, noise: Noise) -> float:
    length = float(np.square(moved).sum())  # not vdot: BLAS threads cost more than they save here
    spurious = step * (1 + MOMENTUM) * noise.energy
    return (float((moved * changed).sum()) - spurious) / length if length > 0 else 0.0


def noise_limited_step(budget: float, steps: int, noise: Noise, limit: float = 1e4) -> float:
    """Return the step at which the noise of the last margin has about the std ``budget``.

    ``steps`` Nesterov steps of size h add up noise of about ``h sqrt(steps) std / (1 - momentum)`` in each
    coordinate, and rows have norm at most one.
    """
    if noise.std == 0:
        return limit
    return min(limit, budget * (1 - MOMENTUM) / (math.sqrt(steps) * noise.std))


def masked(gradient: Callable[[Any], Floats], mask: Bools) -> Callable[[Floats], Floats]:
    """Spread a gradient that was released on a mask over the full shape."""

    def full(w: Floats) -> Floats:
        out = np.zeros(mask.shape)
        out[mask] = gradient(w)
        return out

    return full
