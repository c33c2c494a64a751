r"""What truncation hides at most, as far as the released numbers can tell.

Nobody declared how fast the tail falls, so it is read off the noisy counts of octaves: past the last octave
that stands out (the knot) a tail falls no slower than before, from octave to octave by a factor ``exp(-s)``
at least. All pairs of a height and a slope s that the counts and the released moments of the truncated values
do not speak against are tried; what the worst of them hides is the limit. A slope of ``p ln 2`` or less hides
an infinite ``E|x|^p``, and then there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from sordino.kernel.arrays import Floats, Ints
from sordino.problems.scales import BINS, EDGES
from sordino.solvers.heavy.threshold import LIKELY, far_groups, last_octave

# Deviations by which a tail may be worse than it looks; chosen on lognormal laws with sigma 0.5, 1 and 1.5,
# t(3) and Pareto(2.5) at n = 1,000 and epsilon 1: as many as keep intervals of means within three errors. The
# last step was made with lognormal sigma 2, Pareto(1.5) and zero-inflated columns in view as well.
DOUBT, DOUBT_SQUARES = 1.1, 0.9
_AHEAD = 8  # octaves past the knot that are compared with a tail
_WITHIN = 0.15  # of a moment of smaller values, which depends on how they lie in their octaves
_FAR = 45  # octaves past the knot that are summed
_SLOPES = np.linspace(0.0, 6.0, 121)
_BENDS = np.array([0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.5])  # how much flatter it is before


@dataclass(frozen=True)
class Seen:
    """Released numbers about one tail.

    ``counts`` and their ``noise``: the histogram of magnitudes by octave. ``moments``: for some k, the sum of
    ``min(|x| / cut, 1)^k`` over the tail's records, and its noise. ``count`` is the number of all records,
    ``cut`` the point of truncation, ``zero`` whether values beyond it count as zero, ``slope`` the least that
    is declared.
    """

    counts: Floats
    noise: float
    count: float
    cut: float
    moments: tuple[tuple[int, float, float], ...] = ()
    zero: bool = False
    slope: float = 0.0

    @property
    def knot(self) -> int | None:
        """The last octave from which a tail can be told; None if no octave stands out."""
        last, sure = last_octave(self.counts, self.noise)
        spread = np.hypot(self.noise, np.sqrt(np.maximum(self.counts, 0.0)))
        while sure and self.counts[last] <= LIKELY * spread[last]:
            last -= 1
            sure = last >= 0
        return last if sure else None


def hidden_limit(seen: Seen, power: int, doubt: float, at: int | None = None) -> float:
    r"""Return the most of ``E|x|^p`` that truncation hides, unless a tail is worse than ``doubt`` deviations.

    ``at`` is the knot of a tail in which no octave stands out.
    """
    knot = seen.knot if at is None else at
    if knot is None:
        return math.inf
    before = int(at is None and knot > 0 and seen.counts[knot - 1] >= seen.counts[knot])
    slopes, tails = _profiles(before)
    octaves = np.arange(knot - before, knot + _FAR, dtype=np.int64)
    height, distance, stiff = _fitted(seen, tails, octaves)
    hides: Floats = np.dot(tails, _hidden_by_octave(seen, power, octaves))
    hides[slopes <= power * math.log(2.0)] = math.inf
    declared = slopes >= seen.slope - 1e-9
    room = doubt**2 - (distance - distance[declared].min())
    possible = declared & (room >= 0.0)
    most = np.maximum(height[possible] + np.sqrt(room[possible] / stiff[possible]), 1e-9)
    past = seen.counts[knot + 1 :]
    groups = far_groups(past, seen.noise, float(EDGES[knot]), seen.cut, seen.count, power, seen.zero)
    return float(max(np.max(most * hides[possible]) / seen.count, groups))


def two_sides(above: Seen, below: Seen, index: float, doubt: float = DOUBT) -> tuple[float, float]:
    """Return what truncation hides of the mean below the centre and above it.

    A side on which no octave stands out has a tail no heavier than ``t^-index``, if the other one is seen; if
    neither is, both together are looked at.
    """
    knots = [side.knot for side in (below, above)]
    if knots == [None, None]:
        return (hidden_limit(_together(above, below), 1, doubt),) * 2
    seen = max(knot for knot in knots if knot is not None)
    least = index * math.log(2.0)
    low, high = (
        hidden_limit(side, 1, doubt)
        if knot is not None
        else hidden_limit(replace(side, slope=max(side.slope, least)), 1, doubt, seen)
        for side, knot in zip((below, above), knots, strict=True)
    )
    return low, high


def _together(above: Seen, below: Seen) -> Seen:
    pairs = zip(above.moments, below.moments, strict=True)
    moments = tuple((k, one + other, math.hypot(a, b)) for (k, one, a), (_, other, b) in pairs)
    noise = math.hypot(above.noise, below.noise)
    return replace(above, counts=above.counts + below.counts, noise=noise, moments=moments)


@cache
def _profiles(before: int) -> tuple[Floats, Floats]:
    """Return slopes, and the counts of octaves in units of the knot's for each slope (and bend before it)."""
    slope, bend = (a.ravel() for a in np.meshgrid(_SLOPES, _BENDS if before else [0.0], indexing="ij"))
    step = np.arange(-before, _FAR)
    flatter = np.where(step < 0, bend[:, None] / 2.0, 0.0)
    return slope, np.exp(-slope[:, None] * step - flatter)


def _fitted(seen: Seen, tails: Floats, octaves: Ints) -> tuple[Floats, Floats, Floats]:
    """Return the best height of each tail, its squared distance in deviations, and how sharp it is."""
    there = octaves[octaves < BINS][: _AHEAD + 2]
    shown, shapes = seen.counts[there], tails[:, : there.size]
    weight = 1.0 / (seen.noise**2 + np.maximum(shown, 0.0) + 1.0)
    for k, moment, noise in seen.moments:
        smaller = np.arange(octaves[0], dtype=np.int64)
        body = float(np.maximum(seen.counts[smaller], 0.0) @ _truncated(seen, k, smaller))
        shown = np.append(shown, moment - body)
        shapes = np.column_stack([shapes, tails @ _truncated(seen, k, octaves)])
        error = noise**2 + max(moment - body, 0.0) + (_WITHIN * body) ** 2 + 1.0
        weight = np.append(weight, 1.0 / error)
    stiff = shapes**2 @ weight
    height = np.maximum(shapes @ (weight * shown) / stiff, 0.0)
    distance = np.square(shown - height[:, None] * shapes) @ weight
    return height, distance, stiff


def _octave(octaves: Ints, cut: float) -> tuple[Floats, Floats]:
    """Return the ends of octaves in units of the cut."""
    high = np.exp2(octaves - (BINS - 1.0) / 2.0) / cut
    return high / 2.0, high


def _truncated(seen: Seen, k: int, octaves: Ints) -> Floats:
    """Return the mean of ``min(|x| / cut, 1)^k`` in each octave, of values spread evenly in logarithm."""
    low, high = _octave(octaves, seen.cut)
    inside = np.minimum(high, 1.0)
    part = (inside**k - np.minimum(low, 1.0) ** k) / k
    beyond = 0.0 if seen.zero else np.log(high / np.clip(1.0, low, high))
    return (part + beyond) / math.log(2.0)


def _hidden_by_octave(seen: Seen, power: int, octaves: Ints) -> Floats:
    """Return the mean of ``|x|^p`` less its truncated value in each octave, spread in the same way."""
    low, high = _octave(octaves, seen.cut)
    start = np.clip(1.0, low, high)
    kept = 0.0 if seen.zero else np.log(high / start)
    return seen.cut**power * ((high**power - start**power) / power - kept) / math.log(2.0)
