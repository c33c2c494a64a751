"""What descents leave in coefficients: how far gradients were followed, and how much noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from sordino.kernel.arrays import Bools, Floats, Ints
from sordino.problems.affine import Affine
from sordino.solvers.descent import NoisyDescent
from sordino.solvers.metric import Metric

# Mapped rows have about this mean squared norm. A coordinate that others resemble is bent less than its own
# column says: its curvature counts by this share.
_ENERGY, _ALONE = 0.8, 0.25


@dataclass(frozen=True, eq=False)
class Leg:
    """A finished descent: the scales of its columns, the coordinates that were open, all columns' energy.

    ``places`` are the columns that are left of those it had; None stands for all.
    """

    descent: NoisyDescent
    scale: Floats
    mask: Bools | None
    energy: float
    places: Ints | None = None

    @classmethod
    def of(cls, descent: NoisyDescent, affine: Affine, mask: Bools | None, features: int) -> Leg:
        """Return the leg of a descent on the mapped columns, of which there are so many."""
        rest = 0.0 if affine.rest is None else (features - affine.scale.size) * affine.rest**-0.5
        return cls(descent, affine.scale, mask, float(_shares(affine.scale).sum()) + rest)

    def narrowed(self, kept: Bools) -> Leg:
        """Return what is known of some of the columns, the intercept among them."""
        mask = None if self.mask is None else self.mask[..., kept]
        columns = kept[: self.scale.size]
        places = np.arange(self.scale.size) if self.places is None else self.places
        return replace(self, scale=self.scale[columns], mask=mask, places=places[columns])

    def open(self, shape: tuple[int, ...]) -> Bools:
        """Return which coefficients, intercepts left out, were open."""
        return np.ones(shape, dtype=bool) if self.mask is None else self.mask[..., : shape[-1]]

    def resized(self, later: Leg) -> float:
        """Return by how much weights grew when the columns of a later leg were scaled anew."""
        kept = later.scale > 0
        return float(self.scale[kept][0] / later.scale[kept][0])


def _shares(scale: Floats) -> Floats:
    return np.where(scale > 0, np.maximum(scale, 1e-300) ** -0.5, 0.0)


def travelled(legs: Sequence[Leg]) -> float:
    """Return how far a constant gradient would have been followed, in units of the last leg."""
    total = legs[0].descent.travel
    for before, leg in pairwise(legs):
        total = total * before.resized(leg) ** 2 + leg.descent.travel
    return total


def coefficient_noise(
    legs: Sequence[Leg], bend: float, shape: tuple[int, ...], after: Floats | None
) -> Floats:
    """Return the standard deviation of the noise in each coefficient, on the original columns.

    ``bend`` is the mean second derivative of the loss. Columns share the curvature by the size that their
    scales give away: divided by a power of their mean absolute value, they keep the rest of it. In a metric
    the curvature along its axes is known. ``after`` is what the last weights were multiplied by.
    """
    noise = np.zeros(shape)
    for i, leg in enumerate(legs):
        before = noise * legs[i - 1].resized(leg) if i else noise
        noise = np.where(leg.open(shape), _spread(leg, bend, before, after), 0.0)
    return noise * legs[-1].scale


def _spread(leg: Leg, bend: float, before: Floats, after: Floats | None) -> Floats:
    """Return the noise of the mapped coefficients after a leg."""
    metric = leg.descent.metric
    if metric is not None:  # earlier noise is taken as alike along all axes
        start = math.sqrt(float(np.square(before).mean()))
        parts = _parts(leg.descent, metric, bend, start)
        found = np.linalg.norm(parts if after is None or leg.places is not None else after @ parts, axis=1)
        places = np.arange(before.shape[-1]) if leg.places is None else leg.places
        return np.broadcast_to(found[places], before.shape)
    share = _shares(leg.scale) / max(leg.energy, 1e-300)
    curvature = np.broadcast_to(_ALONE * bend * _ENERGY * share, before.shape)
    return leg.descent.spread(curvature, before)


def _parts(descent: NoisyDescent, metric: Metric, bend: float, start: float) -> Floats:
    """Return the noise of each column along each axis; nothing bends columns that no record has."""
    along = np.sqrt(_axis_noise(descent, metric, bend, start))
    free = metric.columns(descent.spread(np.zeros_like(along), np.full_like(along, start)))
    more = np.where(metric.empty, free / np.maximum(metric.columns(along), 1e-300), 1.0)
    return more[:, None] * metric.axes.T * along


def _axis_noise(descent: NoisyDescent, metric: Metric, bend: float, start: float) -> Floats:
    """Return the variances of the noise along the axes of a metric.

    Noise along axes of little curvature is in the others too, as far as these are tilted.
    """
    first = np.full(len(metric.sizes), start)
    variances = np.square(descent.spread(bend * metric.expected, first))
    return variances + np.square(metric.tilt) * float(variances.sum())
