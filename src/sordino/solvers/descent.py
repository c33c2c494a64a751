"""Nesterov descent on noisy gradients, with a step that looks at released numbers only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sordino.kernel.arrays import Bools, Floats
from sordino.kernel.machine_code import compiled
from sordino.solvers.metric import Metric

MOMENTUM, STEADY = 0.9, 0.7
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
    r"""Nesterov steps of size at most ``step`` on noisy gradients, in a ``metric`` or without one.

    The step doubles from a safe one up to ``step``, and is cut to one over the largest curvature seen
    between two released gradients. Both points carry the noise of the earlier gradient, which looks like
    curvature; its expectation is known and subtracted. ``penalty`` returns a gradient that is free.

    In a metric no direction is slow: less momentum does, the safe step is known, and the last half of the
    points, whose noises differ, is averaged.
    """

    gradient: Callable[[Floats], Floats]
    step: float
    noise: Noise
    penalty: Callable[[Floats], Floats] | None = None
    metric: Metric | None = None
    taken: list[float] = field(default_factory=list)

    @property
    def momentum(self) -> float:
        """How much of a step the next one keeps."""
        return momentum_in(self.metric)

    def path(self, start: Floats, steps: int) -> Iterator[Floats]:
        """Yield the iterates, in a metric the means of those behind the middle."""
        mean = np.zeros_like(start)
        for t, w in enumerate(self._points(start, steps)):
            late = t - steps // 2
            if self.metric is not None and late >= 0:
                mean = mean + (w - mean) / (late + 1)
                yield mean
            else:
                yield w

    def _points(self, start: Floats, steps: int) -> Iterator[Floats]:
        w, velocity, earlier, curvature = start, np.zeros_like(start), None, 0.0
        for t in range(steps):
            ahead = _ahead(w, velocity, self.momentum)
            g = self.gradient(ahead)
            if self.penalty is not None:
                g = g + self.penalty(ahead)
            if earlier is not None:
                curvature = max(curvature, self._curvature((ahead, g), earlier, self.taken[-1]))
            earlier = (ahead, g)
            safe = FIRST_STEP * 2.0 ** min(t, 1000) if self.metric is None else self.metric.longest
            h = min(self.step, safe, 1.0 / curvature if curvature > 0 else math.inf)
            self.taken.append(h)
            w, velocity = _moved(w, velocity, g if self.metric is None else self.metric(g), self.momentum, h)
            yield w

    def _curvature(self, later: tuple[Floats, Floats], earlier: tuple[Floats, Floats], step: float) -> float:
        spurious = step * (1 + self.momentum) * self.noise.energy
        length, along = _changes(*later, *earlier)
        if self.metric is not None:
            length, spurious = self.metric.squared(later[0] - earlier[0]), spurious * self.metric.noise
        return (along - spurious) / length if length > 0 else 0.0

    def spread(self, curvature: Floats, before: Floats) -> Floats:
        """Return the standard deviation of the noise in coordinates of the last point.

        ``before`` is that of the first point; with a metric, coordinates are those along its axes. Each step
        adds noise and, where there is curvature, takes some of the earlier noise back: the covariance of
        point, velocity and mean follows.
        """
        shape = np.shape(before)
        pace = np.ones(shape) if self.metric is None else np.broadcast_to(self.metric.pace, shape)
        bends = np.ascontiguousarray(pace * curvature).reshape(-1)
        stds = np.ascontiguousarray(pace * self.noise.std).reshape(-1)
        law = _followed(
            np.square(before).reshape(-1), bends, np.square(stds), np.array(self.taken), self.momentum
        )
        return np.sqrt(np.maximum(law[0 if self.metric is None else 1], 0.0)).reshape(shape)

    @property
    def travel(self) -> float:
        """How far a constant gradient of norm one would have been followed."""
        left = len(self.taken) - np.arange(len(self.taken))
        total = float((np.array(self.taken) * (1 - self.momentum**left)).sum() / (1 - self.momentum))
        return total if self.metric is None else 0.75 * total * self.metric.own


@compiled()
def _ahead(w: Floats, velocity: Floats, momentum: float) -> Floats:
    """Return the point that the velocity leads to."""
    return w + momentum * velocity


@compiled()
def _moved(w: Floats, velocity: Floats, g: Floats, momentum: float, step: float) -> tuple[Floats, Floats]:
    """Return the next point and the next velocity."""
    faster = momentum * velocity - step * g
    return w + faster, faster


@compiled(fastmath={"reassoc", "contract", "nsz"})
def _changes(w: Floats, g: Floats, w_before: Floats, g_before: Floats) -> tuple[float, float]:
    """Return the squared length of a move, and its product with that of the gradients."""
    a, b, c, d = w.ravel(), g.ravel(), w_before.ravel(), g_before.ravel()
    length = along = 0.0
    for j in range(a.size):
        moved = a[j] - c[j]
        length += moved * moved
        along += moved * (b[j] - d[j])
    return length, along


@compiled()
def _followed(
    before: Floats, bends: Floats, entering: Floats, taken: Floats, momentum: float
) -> tuple[Floats, Floats]:
    """Return the variances of each coordinate of the last point, and of the mean of the last half of them.

    ``before`` is that of the first point, ``entering`` what a step of length one adds. A step of length h is
    ``velocity' = momentum (1 - b) velocity - b point + noise``, ``point' = point + velocity'`` with
    ``b = min(h bend, 1)``; the covariances of point p, velocity v and mean m follow.
    """
    n, middle = before.size, taken.size // 2
    pp, pv, vv = before.copy(), np.zeros(n), np.zeros(n)
    pm, vm, mm = np.zeros(n), np.zeros(n), np.zeros(n)
    for t in range(taken.size):
        share = 1.0 / (t - middle + 1) if t >= middle else 1.0
        for j in range(n):
            bent = min(taken[t] * bends[j], 1.0)
            kept = momentum * (1.0 - bent)
            point, mean = kept * pv[j] - bent * pp[j], kept * vm[j] - bent * pm[j]  # with velocity'
            vv[j] = kept * (kept * vv[j] - bent * pv[j]) - bent * point + taken[t] * taken[t] * entering[j]
            moved = pm[j] + mean  # point' with the mean so far
            pp[j] += 2.0 * point + vv[j]
            pv[j] = point + vv[j]
            mm[j] = (1.0 - share) * ((1.0 - share) * mm[j] + 2.0 * share * moved) + share * share * pp[j]
            pm[j] = (1.0 - share) * moved + share * pp[j]
            vm[j] = (1.0 - share) * mean + share * pv[j]
    return pp, mm


def momentum_in(metric: Metric | None) -> float:
    """Return the momentum of steps in a metric, or without one."""
    return MOMENTUM if metric is None else STEADY


def noise_limited_step(budget: float, steps: int, noise: Noise, momentum: float, limit: float = 1e4) -> float:
    """Return the step at which the noise of the last margin has about the std ``budget``.

    ``steps`` Nesterov steps of size h add up noise of about ``h sqrt(steps) std / (1 - momentum)`` in each
    coordinate, and rows have norm at most one.
    """
    if noise.std == 0:
        return limit
    return min(limit, budget * (1 - momentum) / (math.sqrt(steps) * noise.std))


def masked(gradient: Callable[[Any], Floats], mask: Bools) -> Callable[[Floats], Floats]:
    """Spread a gradient that was released on a mask over the full shape."""

    def full(w: Floats) -> Floats:
        out = np.zeros(mask.shape)
        out[mask] = gradient(w)
        return out

    return full
