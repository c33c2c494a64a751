"""Epsilon by privacy loss distributions: tight, and always from above.

A dominating pair (P, Q), the two worst laws of a release, enters accounting only through the law of
``loss = ln dP/dQ`` under P and under Q. Functions of pairs return the log probabilities that the loss lies
above or not above given edges, in closed form, so that the cells of a grid get their exact masses. Rates lie
strictly between 0 and 1: a batch of all records is no batch (``leaves.flatten``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from dp_accounting import dp_event as dp
from scipy import fft
from scipy.special import erfcx, log_ndtr, ndtr

from sordino.accounting.trees import Leaf, gaussian_mu, unsupported_error
from sordino.errors import UnsupportedError
from sordino.kernel.arrays import Floats
from sordino.kernel.events import PureDpEvent, Relation, TiltDpEvent
from sordino.values import check_range

STANDARD_DEVIATIONS = 9.9
"""Gaussian losses farther out have probability 2e-23; they are rounded up, not cut off."""

RARE = math.log(1e-17)
"""Nor are the losses of a shift whose logarithm of a probability is smaller."""


class Tails(NamedTuple):
    """Log probabilities of loss > edge (``above``) and loss <= edge, under P and under Q."""

    p_above: Floats
    p_below: Floats
    q_above: Floats
    q_below: Floats


class Pair(NamedTuple):
    """The tails of a dominating pair, and the losses between which nearly all mass lies."""

    tails: Callable[[Floats], Tails]
    low: float
    high: float


def gaussian_pair(mu: float) -> Pair:
    """Return N(mu, 1) against N(0, 1): the loss is N(mu^2/2, mu^2) under P, N(-mu^2/2, mu^2) under Q."""

    def tails(edges: Floats) -> Tails:
        centre = edges / mu
        p, q = centre - mu / 2, centre + mu / 2
        return Tails(log_ndtr(-p), log_ndtr(p), log_ndtr(-q), log_ndtr(q))

    high = mu * mu / 2 + STANDARD_DEVIATIONS * mu
    return Pair(tails, -high, high)


def laplace_pair(epsilon: float) -> Pair:
    """Return Laplace(1) noise shifted by ``epsilon`` against none, which dominates vectors in L1."""

    def tails(edges: Floats) -> Tails:
        below, beyond = edges < -epsilon, edges >= epsilon
        p_below = np.where(below, -np.inf, np.where(beyond, 0.0, (edges - epsilon) / 2 - math.log(2)))
        q_above = np.where(beyond, -np.inf, np.where(below, 0.0, -(edges + epsilon) / 2 - math.log(2)))
        return Tails(complement(p_below), p_below, q_above, complement(q_above))

    return Pair(tails, -epsilon, epsilon)


def response_pair(epsilon: float) -> Pair:
    """Return randomised response, which dominates every epsilon-DP mechanism: the loss is +-epsilon."""

    def tails(edges: Floats) -> Tails:
        rare = -np.logaddexp(0.0, epsilon)
        below, beyond = edges < -epsilon, edges >= epsilon
        p_below = np.where(below, -np.inf, np.where(beyond, 0.0, rare))
        q_above = np.where(beyond, -np.inf, np.where(below, 0.0, rare))
        return Tails(complement(p_below), p_below, q_above, complement(q_above))

    return Pair(tails, -epsilon, epsilon)


def removal_pair(base: Pair, rate: float) -> Pair:
    """Return ((1-rate) Q + rate P, Q): a record that enters a Poisson batch against its absence."""

    def tails(edges: Floats) -> Tails:
        b = base.tails(_invert_dilution(edges, rate))
        return Tails(_mix(b.q_above, b.p_above, rate), _mix(b.q_below, b.p_below, rate), b.q_above, b.q_below)

    return Pair(tails, dilute(base.low, rate), dilute(base.high, rate))


def addition_pair(base: Pair, rate: float) -> Pair:
    """Return (Q, (1-rate) Q + rate P): the reverse of :func:`removal_pair`."""
    return reverse(removal_pair(base, rate))


def replacement_pair(rate: float, multiplier: float) -> Pair:
    """Return ((1-rate) N(0) + rate N(1), (1-rate) N(0) + rate N(-1)) with std ``multiplier``.

    The pair of a Poisson batch under replace-one (proof in the privacy notes). The loss increases in
    x and is ``ln (1-rate + rate e^(u - c)) - ln (1-rate + rate e^(-u - c))`` with u = x/z^2, c = 1/2z^2.
    """
    z = multiplier

    def tails(edges: Floats) -> Tails:
        x = _replacement_inverse(edges, rate, z)
        p, q = [log_ndtr(np.multiply.outer((-1, 1), x - s) / z) for s in (1, -1)]
        none = log_ndtr(np.multiply.outer((-1, 1), x) / z)
        return Tails(*_mix(none, p, rate), *_mix(none, q, rate))

    high = dilute(gaussian_pair(1 / z).high, rate) - math.log1p(-rate)
    return Pair(tails, -high, high)


def fixed_size_pair(rate: float, mu: float) -> Pair:
    """Return the envelope for batches of a fixed size under replace-one.

    Its profile is that of :func:`removal_pair` for losses >= 0 and of :func:`addition_pair` below; what is
    left is an atom at 0, which is not negative because ``2 Phi(-mu/2) (1-rate) + rate <= 1``.
    """
    up, down = removal_pair(gaussian_pair(mu), rate), addition_pair(gaussian_pair(mu), rate)

    def tails(edges: Floats) -> Tails:
        a, b, positive = up.tails(edges), down.tails(edges), edges >= 0
        p_above = np.where(positive, a.p_above, complement(b.p_below))
        q_above = np.where(positive, a.q_above, complement(b.q_below))
        p_below = np.where(positive, complement(a.p_above), b.p_below)
        return Tails(p_above, p_below, q_above, np.where(positive, complement(a.q_above), b.q_below))

    return Pair(tails, down.low, up.high)


def mixture(shifts: tuple[float, ...], weights: tuple[float, ...], std: float) -> Pair:
    """Return sum_i weights_i N(shifts_i) against N(0), all with standard deviation ``std``."""
    parts = [(s, math.log(w)) for s, w in zip(shifts, weights) if w > 0]
    moved, still = [(s, w) for s, w in parts if s > 0], sum(w for s, w in zip(shifts, weights) if s == 0)

    def tails(edges: Floats) -> Tails:
        x = _mixture_inverse(edges, moved, still, std)
        above = _log_sum([w + log_ndtr((s - x) / std) for s, w in parts])
        below = _log_sum([w + log_ndtr((x - s) / std) for s, w in parts])
        return Tails(above, below, log_ndtr(-x / std), log_ndtr(x / std))

    low, farthest = -STANDARD_DEVIATIONS * std, max(s for s, w in parts if w > RARE)
    ends = _log_ratio(list(zip(shifts, weights)), np.array([low, farthest + STANDARD_DEVIATIONS * std]), std)
    return Pair(tails, float(ends[0]), float(ends[1]))


def _mixture_inverse(edges: Floats, moved: list[tuple[float, float]], still: float, std: float) -> Floats:
    """Return x where the loss of a mixture is an edge, by Newton's method from above; -inf below all losses.

    Without its part that does not move, the loss is a logarithm of a sum of exponentials: convex, and no
    steeper than its largest term, from whose root the iterates fall to the one that is sought.
    """
    with np.errstate(divide="ignore"):
        goal = edges + np.log(-np.expm1(np.minimum(np.log(still) - edges, 0.0)))
    reached, shifts = np.isfinite(goal), np.array([s for s, _ in moved])
    goal = np.where(reached, goal, 0.0)
    x = np.min([(goal - w) * std**2 / s + s / 2 for s, w in moved], axis=0)
    for _ in range(60):
        terms = np.array([w + s * (x - s / 2) / std**2 for s, w in moved])
        top = terms.max(axis=0)
        terms = np.exp(terms - top)
        step = (top + np.log(terms.sum(axis=0)) - goal) * terms.sum(axis=0) * std**2 / (shifts @ terms)
        x = x - step
        if np.max(np.abs(step)) <= 1e-14 * std:
            break
    return np.where(reached, x, -np.inf)


def reverse(pair: Pair) -> Pair:
    """Return (Q, P), whose loss is the negative one."""

    def tails(edges: Floats) -> Tails:
        # An atom on an edge changes sides here; its cell puts it back on that edge.
        t = pair.tails(-edges)
        return Tails(t.q_below, t.q_above, t.p_below, t.p_above)

    return Pair(tails, -pair.high, -pair.low)


def dilute(loss: float, rate: float) -> float:
    """Return ``ln(1 - rate + rate e^loss)``: what sampling leaves of a loss."""
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + loss))


def _invert_dilution(edges: Floats, rate: float) -> Floats:
    """Invert :func:`dilute`; losses below ``ln(1 - rate)`` do not occur and give -inf."""
    large = edges > 1
    with np.errstate(divide="ignore", over="ignore"):
        near = np.log1p(np.maximum(np.expm1(np.where(large, 0.0, edges)) / rate, -1.0))
        far = edges - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-np.abs(edges)))
    return np.where(large, far, near)


def _replacement_inverse(edges: Floats, rate: float, z: float) -> Floats:
    """Return x with loss(x) = edge: ``z^2 (l/2 + asinh(e^c (1-rate)/rate sinh(l/2)))``, c = 1/2z^2."""
    half = np.abs(edges) / 2
    with np.errstate(divide="ignore"):
        log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
    log_arg = 0.5 / z**2 + math.log1p(-rate) - math.log(rate) + log_sinh
    asinh = np.logaddexp(log_arg, np.logaddexp(0.0, 2 * log_arg) / 2)
    return z**2 * np.sign(edges) * (half + asinh)


def _mix(absent: Floats, present: Floats, rate: float) -> Floats:
    return np.logaddexp(math.log1p(-rate) + absent, math.log(rate) + present)


def _log_sum(terms: list[Floats]) -> Floats:
    return np.asarray(np.logaddexp.reduce(terms))


def complement(log_probability: Floats) -> Floats:
    """Return ``ln(1 - e^log_probability)``."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(-np.expm1(np.minimum(log_probability, 0.0))))  # rounding can pass 1


# ----- The price of noise inside an objective: laws that the privacy loss of a tilted minimiser stays below
# A record present against absent loses at most ``J + max(0, N(m^2/2, m^2))``, absent against present at most
# ``m |N(0,1)| + m^2/2``, and a replaced one at most ``J + m R + m^2/2``, where ``P[R > t]`` is ``e^(-t^2/2)``
# for t < sqrt(3) and ``2 Phi(-t)`` from there. docs/privacy-notes.md ("Noise inside an objective") proves
# this, and that the pairs dominate whatever was answered before.

BEND = math.sqrt(3.0)
"""From here the tail of a replaced record is that of one normal instead of two."""


def tilt_pairs(jacobian: float, mu: float, relation: Relation) -> tuple[Pair, ...]:
    """Return the pairs of a tilt: present against absent and back, or one for a replaced record."""
    if relation is Relation.REPLACE_ONE:
        return (_replacement_moments(jacobian, mu),)
    return _present(jacobian, mu), _absent(mu)


def tilt_log_moments(jacobian: float, mu: float, relation: Relation, t: Floats) -> Floats:
    """Return ``ln E e^(t U)`` of the larger of the two laws, for t > 0."""
    a, gaussian = t * mu, t * (t + 1) * mu**2 / 2
    if relation is Relation.REPLACE_ONE:
        return np.asarray(t * (jacobian + mu**2 / 2) + a**2 / 2 + np.log(_replacement_moment(a)))
    present = np.logaddexp(log_ndtr(-mu / 2), gaussian + log_ndtr(mu / 2 + a))
    return np.asarray(np.maximum(t * jacobian + present, math.log(2) + gaussian + log_ndtr(a)))


def _present(jacobian: float, mu: float) -> Pair:
    """Return the pair of ``J + max(0, N(mu^2/2, mu^2))``; half of its mass lies on J."""

    def tails(edges: Floats) -> Tails:
        x = (edges - jacobian) / mu
        inside, most = x >= 0, math.log(2) + log_ndtr(-mu / 2)
        p_above = np.where(inside, log_ndtr(mu / 2 - x), 0.0)
        p_below = np.where(inside, log_ndtr(x - mu / 2), -np.inf)
        return _tails(p_above, p_below, np.where(inside, log_ndtr(-x - mu / 2), most) - jacobian)

    return Pair(tails, jacobian, jacobian + mu**2 / 2 + STANDARD_DEVIATIONS * mu)


def _absent(mu: float) -> Pair:
    """Return the pair of ``mu |N(0,1)| + mu^2/2``."""

    def tails(edges: Floats) -> Tails:
        t = np.maximum(edges / mu - mu / 2, 0.0)
        p_above = math.log(2) + log_ndtr(-t)
        return _tails(p_above, complement(p_above), math.log(2) + log_ndtr(-t - mu))

    return Pair(tails, mu**2 / 2, mu**2 / 2 + STANDARD_DEVIATIONS * mu)


def _replacement_moments(jacobian: float, mu: float) -> Pair:
    """Return the pair of ``J + mu R + mu^2/2``."""

    def tails(edges: Floats) -> Tails:
        t = np.maximum((edges - jacobian) / mu - mu / 2, 0.0)
        p_above = np.where(t < BEND, -(t**2) / 2, math.log(2) + log_ndtr(-t))
        return _tails(p_above, complement(p_above), _replacement_q(t, mu) - jacobian)

    return Pair(tails, jacobian + mu**2 / 2, jacobian + mu**2 / 2 + STANDARD_DEVIATIONS * mu)


def _replacement_q(t: Floats, mu: float) -> Floats:
    """Return ``ln E[e^(-mu R - mu^2/2); R > t]``: below the bend by parts, with Mills ratios."""
    y, end = np.minimum(t, BEND) + mu, BEND + mu
    bend = (mu + math.sqrt(2 / math.pi)) * _mills(end) - 2 * ndtr(-BEND) * math.exp(BEND**2 / 2)
    inner = 1 - mu * _mills(y) + np.exp((y - end) * (y + end) / 2) * bend
    return np.asarray(np.where(t < BEND, np.log(inner) - y**2 / 2, math.log(2) + log_ndtr(-t - mu)))


def _replacement_moment(a: Floats) -> Floats:
    """Return ``E e^(a R - a^2/2)``, by parts: ``E e^(aR) = 1 + a int e^(ar) P[R > r] dr``."""
    rest = np.exp(-(a**2) / 2) - 2 * ndtr(-BEND) * np.exp(a * (BEND - a / 2))
    middle = a * math.sqrt(2 * math.pi) * (ndtr(BEND - a) - ndtr(-a))
    return np.asarray(rest + middle + 2 * ndtr(a - BEND))


def _mills(y: Floats | float) -> Floats:
    """Return ``sqrt(2 pi) Phi(-y) e^(y^2/2)``."""
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(np.asarray(y) / math.sqrt(2)))


def _tails(p_above: Floats, p_below: Floats, q_above: Floats) -> Tails:
    return Tails(p_above, p_below, q_above, complement(q_above))


# ----------------------------- Rényi divergences of mixtures of Gaussians by quadrature with a proven error
# ``int P^a Q^(1-a) dx`` by the trapezoidal rule, with a relative error below e^-37; docs/privacy-notes.md
# ("Poisson batches") bounds it, and the tails that are left out.

Parts = Sequence[tuple[float, float]]

MAX_POINTS = 2**18
"""An order that needs more points is given up: an infinite bound is sound."""

MARGIN = 1e-12
"""Relative margin on the moment, far above what rounding and quadrature lose."""


def mixture_divergence(p: Parts, q: Parts, std: float, orders: Floats) -> Floats:
    """Return the Rényi divergences of P from Q, each given as (shift, weight) pairs."""
    return np.array([_divergence(p, q, std, float(order)) for order in orders])


def _divergence(p: Parts, q: Parts, std: float, order: float) -> float:
    (p_low, p_high), (q_low, q_high) = _range(p), _range(q)
    low = order * p_low - (order - 1) * q_high - 12 * std
    high = order * p_high - (order - 1) * q_low + 12 * std
    step = _step(order, std, p_high - p_low, q_high - q_low)
    if (high - low) / step > MAX_POINTS:
        return math.inf
    x = np.arange(low, high, step)
    up, down = order * _log_ratio(p, x, std), (order - 1) * _log_ratio(q, x, std)
    terms = up - down - (x / std) ** 2 / 2
    top = float(terms.max())
    scale = step / (std * math.sqrt(2 * math.pi))
    log_moment = top + math.log(scale * float(np.exp(terms - top).sum()))
    # Large terms of opposite sign lose digits: their size times the unit roundoff, generously.
    size = float(np.max(np.abs(up) + np.abs(down) + (x / std) ** 2))
    return (max(log_moment, 0.0) + MARGIN + 1e-15 * size) / (order - 1)


def _step(order: float, std: float, p_width: float, q_width: float) -> float:
    """Return a step whose relative quadrature error is below e^-37; see the module."""
    variance = std**2
    curvature = 1 / (2 * variance) + (order - 1) * (q_width / variance) ** 2 / 8
    height, width = math.sqrt(37 / curvature), max(p_width, q_width)
    if width > 0:
        height = min(height, 2 * variance / width)
    angle = q_width * height / (2 * variance)  # at most 1
    growth = height**2 / (2 * variance) - (order - 1) * math.log(math.cos(angle))
    return 2 * math.pi * height / (37 + math.log(4) + growth)


def _log_ratio(parts: Parts, x: Floats, std: float) -> Floats:
    return _log_sum([math.log(w) + c * (x - c / 2) / std**2 for c, w in parts if w > 0])


def _range(parts: Parts) -> tuple[float, float]:
    shifts = [c for c, w in parts if w > 0]
    return min(shifts), max(shifts)


# ----------------- The privacy loss of a release on a grid: discretised pessimistically, composed, read off
# The discretisation is "connect the dots" (Doroshenko et al. 2022) written cell by cell: a cell keeps
# its exact masses under P and under Q, moved to its two ends. The grid pair dominates the true one.
# Composition multiplies Fourier transforms; what lies outside the window is counted as infinite loss.
# The same numbers as dp-accounting's PLD (tests compare them) at a tenth of the time, without its
# second differences, whose rounding adds mass when steps are many and small.

TAIL = 1e-15
"""Probability outside the window of a composition; it is charged as infinite loss."""

ROUNDING = 2.0**-52
"""Charged per composed release: Fourier transforms of floats lose about a tenth of it."""


@dataclass(frozen=True)
class GridLoss:
    """Probabilities of the losses ``interval * (start + i)`` under P, and of an infinite loss."""

    interval: float
    start: int
    probabilities: Floats
    infinite: float

    def losses(self, first: int = 0) -> Floats:
        """Return the losses from the bin ``first`` on."""
        end = self.start + self.probabilities.size
        return self.interval * np.arange(min(self.start + first, end), end, dtype=float)

    def delta(self, epsilon: float) -> float:
        """Return the hockey-stick divergence, ``infinite + sum_i p_i (1 - e^(epsilon - loss_i))_+``."""
        first = max(math.floor(epsilon / self.interval) + 1 - self.start, 0)
        gap = epsilon - self.losses(first)
        return self.infinite + float(np.dot(self.probabilities[first:], -np.expm1(gap)))

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 whose divergence is at most ``delta``."""
        if self.infinite > delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0, self.start + self.probabilities.size  # bins: delta(low) > delta >= delta(high)
        while high - low > 1:
            middle = (low + high) // 2
            if self.delta(middle * self.interval) > delta:
                low = middle
            else:
                high = middle
        # in the cell that starts at ``left``: mass - e^(epsilon - left) * tilted = delta
        left, first = low * self.interval, max(low + 1 - self.start, 0)
        tail, gap = self.probabilities[first:], left - self.losses(first)
        mass, tilted = self.infinite + float(tail.sum()), float(np.dot(tail, np.exp(gap)))
        if not (mass > delta and tilted > 0):  # rounding, or a tail below the smallest float
            return left + self.interval
        return left + min(max(math.log((mass - delta) / tilted), 0.0), self.interval)


def discretise(pair: Pair, interval: float) -> GridLoss:
    """Return a pessimistic grid version of a pair.

    A cell (a, a+d] with masses u under P and v under Q becomes two atoms that keep both masses:
    ``(u - e^a v) / (1 - e^-d)`` at a+d and the rest at a. Losses below the grid are rounded up to its
    first point; above it, ``e^top v`` stays at the top and the rest is infinite.
    """
    index = np.arange(math.floor(pair.low / interval), math.ceil(pair.high / interval) + 1)
    edges = interval * index.astype(float)
    tails = pair.tails(edges)
    p = np.exp(_cell_log_mass(tails.p_above, tails.p_below))
    q = np.exp(np.minimum(edges[:-1] + _cell_log_mass(tails.q_above, tails.q_below), 0.0))
    right = np.clip((p - q) / -math.expm1(-interval), 0.0, p)
    atoms = np.zeros(index.size)
    atoms[1:] += right
    atoms[:-1] += p - right
    atoms[0] += math.exp(tails.p_below[0])
    above = math.exp(tails.p_above[-1])
    finite = min(above, math.exp(min(edges[-1] + tails.q_above[-1], 0.0)))
    atoms[-1] += finite
    return GridLoss(interval, int(index[0]), atoms, above - finite)


def compose(parts: Sequence[tuple[GridLoss, int]], max_bins: int) -> GridLoss | None:
    """Return the loss of all parts together, each ``count`` times; None if it needs more bins."""
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    interval = parts[0][0].interval
    low, high = _window(parts)
    size = max(high - low + 1, *(part.probabilities.size for part, _ in parts))
    if size > max_bins:
        return None
    length = fft.next_fast_len(size, real=True)
    spectrum = np.ones(length // 2 + 1, dtype=complex)
    for part, count in parts:
        spectrum *= fft.rfft(part.probabilities, length) ** count
    start = sum(part.start * count for part, count in parts)
    values = np.roll(fft.irfft(spectrum, length), start - low)[: high - low + 1]
    survive = sum(count * math.log1p(-part.infinite) for part, count in parts)
    rounding = ROUNDING * sum(count for _, count in parts)
    return GridLoss(interval, low, values, TAIL + rounding - math.expm1(survive))


def _cell_log_mass(above: Floats, below: Floats) -> Floats:
    """Return the log mass between successive edges, from the side whose tail is smaller."""
    with np.errstate(divide="ignore", invalid="ignore"):
        from_right = above[:-1] + np.log(-np.expm1(above[1:] - above[:-1]))
        from_left = below[1:] + np.log(-np.expm1(below[:-1] - below[1:]))
    mass = np.where(below[1:] < above[1:], from_left, from_right)
    return np.where(np.isnan(mass), -np.inf, mass)


def _window(parts: Sequence[tuple[GridLoss, int]]) -> tuple[int, int]:
    """Return the bins outside of which the composed loss has mass at most ``TAIL`` (Chernoff)."""
    low = sum(part.start * count for part, count in parts)
    high = sum((part.start + part.probabilities.size - 1) * count for part, count in parts)
    variance = sum(count * _variance(part) for part, count in parts)
    if variance == 0:
        return low, high
    room = math.log(2 / TAIL)
    centre = math.sqrt(2 * room / variance)  # the best order of a Gaussian, in bins
    with np.errstate(divide="ignore"):
        logs = [(np.log(part.probabilities), part.start, count) for part, count in parts]
    for order in centre * 2.0 ** np.arange(-10, 2):  # rare large losses call for small orders
        high = min(high, math.ceil((_log_moment(logs, order) + room) / order))
        low = max(low, math.floor((_log_moment(logs, -order) + room) / -order))
    return low, high


def _variance(part: GridLoss) -> float:
    """Return the variance of the finite loss in bins."""
    index = np.arange(part.probabilities.size)
    mean = float(np.dot(part.probabilities, index))
    return float(np.dot(part.probabilities, (index - mean) ** 2))


def _log_moment(logs: Sequence[tuple[Floats, int, int]], order: float) -> float:
    """Return ``ln E e^(order * bin)`` of the composed loss."""
    total = 0.0
    for log_probabilities, start, count in logs:
        exponents = log_probabilities + order * np.arange(log_probabilities.size)
        top = exponents.max()
        total += count * (top + math.log(np.exp(exponents - top).sum()) + order * start)
    return total


MAX_BINS = 2**22
"""Bins of a composed loss; at 2^22 a Fourier transform takes about half a second."""

MAX_LOSS = 5e3
"""Larger losses (an epsilon of thousands) are left to Rényi divergences."""

FINEST = 1e-11
"""No finer grid is tried: the masses of its cells would be rounding errors."""


class GridEpsilon(NamedTuple):
    """An epsilon and the grid interval it was computed on."""

    epsilon: float
    interval: float


def supports(leaf: Leaf, relation: Relation) -> bool:
    """Return whether a leaf has a dominating pair here, with losses that a grid can hold."""
    try:
        pairs = leaf_pairs(leaf, relation)
    except UnsupportedError:
        return False
    return all(pair.low >= -MAX_LOSS and pair.high <= MAX_LOSS for pair in pairs)


def pld_epsilon(
    leaves: Sequence[Leaf], delta: float, relation: Relation, grid: float | None = None
) -> GridEpsilon:
    """Return the epsilon of a composition.

    Without ``grid`` the interval starts at 4e-4 (4e-3 where noise is small and losses are large) and is
    divided by 4 until epsilon moves by less than 1 % and spans 100 intervals. Coarse is sound, only loose.
    """
    pairs = [(leaf_pairs(leaf, relation), leaf.count) for leaf in leaves]
    if grid is not None:
        return _on_grid(pairs, delta, check_range("a grid interval", grid, "(0, 1]")) or GridEpsilon(
            math.inf, grid
        )
    widest = max(pair.high - pair.low for both, _ in pairs for pair in both)
    largest = max(pair.high for both, _ in pairs for pair in both)
    interval = max(4e-3 if largest > 30 else 4e-4, widest / MAX_BINS)
    best = _on_grid(pairs, delta, interval)
    while best is None:
        interval *= 4
        if interval > 1:  # so many releases that no grid is both fine and small enough
            return GridEpsilon(math.inf, interval)
        best = _on_grid(pairs, delta, interval)
    while True:
        finer = _on_grid(pairs, delta, best.interval / 4) if best.interval > FINEST else None
        if finer is None:
            return best
        settled = finer.epsilon >= 0.99 * best.epsilon and finer.interval <= finer.epsilon / 100
        if settled or finer.epsilon in (0.0, math.inf):
            return finer
        best = finer


def leaf_pairs(leaf: Leaf, relation: Relation) -> tuple[Pair, ...]:
    """Return the dominating pair of a leaf, in both directions where they differ."""
    event, replace = leaf.event, relation is Relation.REPLACE_ONE
    if isinstance(event, dp.PoissonSampledDpEvent):
        return _poisson_pairs(event, relation)
    if isinstance(event, dp.SampledWithoutReplacementDpEvent) and replace:
        inner = event.event
        if isinstance(inner, dp.GaussianDpEvent):
            mu = gaussian_mu(Leaf(inner, 1), relation)
            return (fixed_size_pair(event.sample_size / event.source_dataset_size, mu),)
    if isinstance(event, dp.MixtureOfGaussiansDpEvent) and not replace:
        pair = mixture(event.sensitivities, event.sampling_probs, event.standard_deviation)
        return pair, reverse(pair)
    if isinstance(event, TiltDpEvent):
        return tilt_pairs(event.jacobian, gaussian_mu(Leaf(event, 1), relation), relation)
    return (_base_pair(event, event, relation),)


def _poisson_pairs(event: dp.PoissonSampledDpEvent, relation: Relation) -> tuple[Pair, ...]:
    rate, inner = event.sampling_probability, event.event
    if relation is Relation.REPLACE_ONE:
        if not isinstance(inner, dp.GaussianDpEvent):
            raise unsupported_error(event, relation, "PLD")
        return (replacement_pair(rate, inner.noise_multiplier),)
    if isinstance(inner, PureDpEvent):
        return (response_pair(dilute(inner.epsilon, rate)),)
    base = _base_pair(inner, event, relation)
    return removal_pair(base, rate), addition_pair(base, rate)


def _base_pair(event: dp.DpEvent, whole: dp.DpEvent, relation: Relation) -> Pair:
    """Return the pair of a release on all records, a part of the leaf ``whole``; it is symmetric."""
    if isinstance(event, dp.GaussianDpEvent):
        return gaussian_pair(gaussian_mu(Leaf(event, 1), relation))
    if isinstance(event, dp.LaplaceDpEvent):
        return laplace_pair(1 / event.noise_multiplier)
    if isinstance(event, PureDpEvent):
        return response_pair(event.epsilon)
    raise unsupported_error(whole, relation, "PLD")


def grid_losses(leaves: Sequence[Leaf], relation: Relation, interval: float) -> tuple[GridLoss, ...]:
    """Return the composed losses on a grid, one for each order of neighbours that differs."""
    found = _compose([(leaf_pairs(leaf, relation), leaf.count) for leaf in leaves], interval)
    if found is None:
        raise UnsupportedError(f"A grid of {interval:g} is too fine for this many releases.")
    # The cells of a single release are rounded too, and compositions have their own margin.
    return tuple(replace(loss, infinite=loss.infinite + TAIL) for loss in found)


def _on_grid(
    pairs: Sequence[tuple[tuple[Pair, ...], int]], delta: float, interval: float
) -> GridEpsilon | None:
    """Return epsilon on one grid, the larger of both directions; None if it has too many bins."""
    found = _compose(pairs, interval)
    if found is None:
        return None
    # cells of one release are rounded too
    return GridEpsilon(max([0.0, *(total.epsilon(delta - TAIL) for total in found)]), interval)


def _compose(pairs: Sequence[tuple[tuple[Pair, ...], int]], interval: float) -> list[GridLoss] | None:
    found = []
    for direction in range(max(len(both) for both, _ in pairs)):
        ways = [(both[min(direction, len(both) - 1)], count) for both, count in pairs]
        total = compose([(discretise(pair, interval), count) for pair, count in ways], MAX_BINS)
        if total is None:
            return None
        found.append(total)
    return found
