r"""Where to truncate: from a known moment, or from a noisy histogram of scales.

Raising the threshold t costs noise, ``z t / n`` per unit of t (z: the noise of the mean in units of t / n),
and saves bias, ``P(|x| > t)`` per unit of t. Both balance where about z records lie beyond t. With
``E|x|^(1+v) <= u`` Markov's inequality puts that point at ``t = (u n / z)^(1/(1+v))``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.kernel.arrays import Floats
from sordino.problems.scales import BINS, EDGES

LARGEST = 2.0**250  # stands for "no truncation": far beyond any data, and its fourth power is finite
SURE = 5.5  # noise alone lifts one of 129 bins this many widths above zero once in 400,000 runs
_WINDOW = 3  # octaves that are looked at together as well: smooth laws are spread over several
_LOOK = 4  # octaves past the last one that tell how heavy the tail is
_GUESS = 5.0 * math.sqrt(_WINDOW)  # for a window: enough to guess, not to be sure
# For an octave more than ``_LOOK`` past all others that are seen: noise alone does it once in 3e9 runs. If it
# opens a cell far out, the threshold goes there, and the noise of the answer with it.
_LONELY = 7.0
_DOUBT = 1.2  # noise widths that the values beyond may be more than they look, where squares are hidden
LIKELY = 2.5  # enough for a bin next to one that is seen: a mistake costs a factor of two
_MAYBE = 1.5  # enough for a bin past the edge to count in an interval, which a mistake makes only wider,
_GROUP = 0.02  # if it is that part of all records: the declared tail speaks for less


def moment_threshold(bound: float, order: float, count: float, noise: float, log: float) -> float:
    r"""Return ``(u n / (ln(1/xi) z))^(1/(1+v))``, the paper's threshold with the exact constant z.

    Parameters: ``bound`` is u, ``order`` is v, ``count`` is n, ``noise`` is z (the std of the mean's noise in
    units of threshold / n), ``log`` is ln(1/xi).
    """
    if noise <= 0:
        return LARGEST
    return float(min((bound * count / (log * noise)) ** (1.0 / (1.0 + order)), LARGEST))


@dataclass(frozen=True)
class Tail:
    """What a noisy histogram of magnitudes tells.

    ``edge`` is the end of the last octave that stands out of the noise, ``beyond`` the number of values
    past it at most, if the tail falls like ``t^-index`` from there on, ``counts`` the histogram up to the
    edge, ``at_most`` is ``beyond`` with some doubt added. Where no octave stands out (too few records), the
    edge is a guess, ``sure`` is False and the bias unknown. ``after`` are the counts of the next octaves that
    may hold records, though not surely enough to be cut at.
    """

    edge: float
    beyond: float
    counts: Floats
    noise: float
    index: float
    sure: bool = True
    at_most: float = math.inf
    after: tuple[float, ...] = ()

    @classmethod
    def read(cls, counts: Floats, noise: float, index: float) -> Tail:
        """Find the last octave that is seen and extrapolate from it with the declared tail index."""
        last, sure = last_octave(counts, noise)
        inside = np.where(np.arange(BINS) <= last, np.maximum(counts, 0.0), 0.0)
        continued = float(inside[last]) / (2.0**index - 1.0)
        least, most = _counted(counts, last, noise, index)
        beyond = float(np.clip(continued, least, most))
        at_most = min(beyond + _DOUBT * noise, most)
        after = tuple(_perhaps(counts[last + 1 :], noise).tolist())
        return cls(float(EDGES[last]), beyond, inside, noise, index, sure, at_most, after)

    def threshold(self, noise: float, power: int = 1) -> float:
        """Return the point, at least the edge, with so many values beyond it that bias and noise balance.

        About ``noise`` of them, and fewer where the tail of ``|x|^p`` is so heavy that they hide more.
        """
        if noise <= 0:  # without noise the histogram is exact, and nothing lies beyond its edge
            return self.edge
        if power > 1:
            noise *= min(1.0, self.index / power - 1.0)
        return float(self.edge * max(1.0, self.beyond / noise) ** (1.0 / self.index))

    def bias(self, threshold: float, count: float, power: int = 1, zero: bool = False) -> float:
        r"""Return what truncation at t hides of ``E|x|^p`` if the tail falls like ``t^-a`` beyond the edge.

        Clipping hides ``P(|x| > t) t^p / (a/p - 1)``; setting to zero hides ``P(|x| > t) t^p`` more. If the
        next octaves hold more than that, a group of records far away, it is what they hide.
        """
        if not self.sure:
            return math.inf
        beyond = self.beyond if power == 1 else self.at_most  # squares forgive less
        share = beyond / count * (self.edge / threshold) ** self.index
        falling = share * threshold**power * (power / (self.index - power) + zero)
        groups = far_groups(self.after, 0.0, self.edge, threshold, count, power, zero)
        return float(max(falling, groups))

    def moment(self, threshold: float, count: float, power: int) -> float:
        """Return a bound of ``E min(|x|, t)^p``: upper edges, two noise widths, the tail."""
        sizes = np.minimum(EDGES, threshold) ** power
        body = float(self.counts @ sizes)
        width = self.noise * float(np.sqrt(np.sum(sizes[self.edge >= EDGES] ** 2)))
        return (body + 2.0 * width + self.beyond * self._tail_moment(threshold, power)) / count

    def typical(self, count: float) -> float:
        """Return the root mean square of the octaves that are likely there, from their middles."""
        likely = np.where(self.counts > max(LIKELY * self.noise, 0.5), self.counts, 0.0)
        return float(np.sqrt(likely @ (0.75 * EDGES) ** 2 / count))

    def _tail_moment(self, threshold: float, power: int) -> float:
        # E[min(x, t)^p | x > edge] for a Pareto tail of index a.
        a, top = self.index, max(threshold, self.edge)
        if abs(power - a) < 1e-9:
            return float(self.edge**a * (1.0 + a * math.log(top / self.edge)))
        at_top = self.edge**a * top ** (power - a)
        return float(at_top + a / (power - a) * (at_top - self.edge**power))


def last_octave(counts: Floats, noise: float) -> tuple[int, bool]:
    """Return the last octave that stands out of the noise, and whether any does."""
    together = np.convolve(counts, np.ones(_WINDOW), mode="same")
    best = int(np.argmax(together))
    shown = np.maximum(
        counts, np.append(together[1:], 0.0) / math.sqrt(_WINDOW)
    )  # alone, or with the next two
    seen = np.flatnonzero(shown > max(SURE * noise, 0.5))
    if not seen.size:
        # A wrong guess upwards is noise without bound; downwards the answer is the centre, no worse.
        return (min(best + 1, BINS - 1) if together[best] > _GUESS * noise else 0), False
    last = int(seen[seen <= best][-1]) if (seen <= best).any() else int(seen[0])
    for octave in seen[seen > last]:
        if octave - last <= _LOOK or shown[octave] > _LONELY * noise:
            last = int(octave)
    while last + 1 < BINS and counts[last + 1] > max(LIKELY * noise, 0.5):
        last += 1
    return last, True


def _counted(counts: Floats, last: int, noise: float, index: float) -> tuple[float, float]:
    """Return the values past an octave that the next ones show, as they are and two noise widths up."""
    after = counts[last + 1 : last + 1 + _LOOK]
    shown = max(float(after.sum()), 0.0)
    seen = 1.0 - 2.0 ** (-index * _LOOK)
    return shown / seen, (shown + 2.0 * noise * math.sqrt(_LOOK)) / seen


def _perhaps(past: Floats, noise: float) -> Floats:
    """Return the next counts that may be records; zero for the others."""
    near = np.asarray(past[:_LOOK], dtype=float)
    return np.where(near > _MAYBE * noise, near, 0.0)


def far_groups(
    past: Any, noise: float, edge: float, threshold: float, count: float, power: int, zero: bool
) -> float:
    """Return what truncation hides of a group of records far away, which octaves past an edge may show."""
    near = _perhaps(past, noise)
    far = edge * np.exp2(np.arange(1.0, near.size + 1.0))
    cut = np.where(far > threshold, 0.0 if zero else threshold, far) ** power
    return float(np.where(near > _GROUP * count, near, 0.0) @ (far**power - cut) / count)


def known_bias(bound: float, order: float, threshold: float, zero: bool) -> float:
    r"""Return the largest bias of truncation at t when ``E|x|^(1+v) <= u``.

    ``u t^-v`` for setting to zero; clipping hides at most
    ``(|x| - t)_+ <= |x|^(1+v) t^-v v^v / (1+v)^(1+v)``.
    """
    worst = 1.0 if zero else order**order / (1.0 + order) ** (1.0 + order)
    return bound * worst * threshold**-order
