r"""Dominating pairs: the two worst laws of a release, seen through their privacy loss.

A pair (P, Q) enters accounting only through the law of ``loss = ln dP/dQ`` under P and under Q.
Each function below returns the log probabilities that the loss lies above or not above given
edges, in closed form, so that the cells of a grid get their exact masses. Rates lie strictly between 0
and 1: a batch of all records is no batch (``leaves.flatten``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from sordino.kernel.arrays import Floats

STANDARD_DEVIATIONS = 9.9
"""Gaussian losses farther out have probability 2e-23; they are rounded up, not cut off."""


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
    """Return Laplace(1) noise shifted by ``epsilon`` against none.

    A vector query with Laplace noise and an L1 sensitivity is dominated by this scalar pair.
    """

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


def removed(base: Pair, rate: float) -> Pair:
    """Return ((1-rate) Q + rate P, Q): a record that enters a Poisson batch against its absence."""

    def tails(edges: Floats) -> Tails:
        b = base.tails(_undiluted(edges, rate))
        return Tails(_mix(b.q_above, b.p_above, rate), _mix(b.q_below, b.p_below, rate), b.q_above, b.q_below)

    return Pair(tails, diluted(base.low, rate), diluted(base.high, rate))


def added(base: Pair, rate: float) -> Pair:
    """Return (Q, (1-rate) Q + rate P): the reverse of :func:`removed`."""
    return reverse(removed(base, rate))


def replaced(rate: float, multiplier: float) -> Pair:
    """Return ((1-rate) N(0) + rate N(1), (1-rate) N(0) + rate N(-1)) with std ``multiplier``.

    The pair of a Poisson batch under replace-one (proof in the privacy notes). The loss increases in
    x and is ``ln (1-rate + rate e^(u - c)) - ln (1-rate + rate e^(-u - c))`` with u = x/z^2, c = 1/2z^2.
    """
    z = multiplier

    def tails(edges: Floats) -> Tails:
        x = _replaced_inverse(edges, rate, z)
        p, q = [log_ndtr(np.multiply.outer((-1, 1), x - s) / z) for s in (1, -1)]
        none = log_ndtr(np.multiply.outer((-1, 1), x) / z)
        return Tails(*_mix(none, p, rate), *_mix(none, q, rate))

    high = diluted(gaussian_pair(1 / z).high, rate) - math.log1p(-rate)
    return Pair(tails, -high, high)


def fixed_size(rate: float, mu: float) -> Pair:
    """Return the envelope for batches of a fixed size under replace-one.

    Its profile is that of :func:`removed` for losses >= 0 and of :func:`added` below; what is left
    is an atom at 0, which is not negative because ``2 Phi(-mu/2) (1-rate) + rate <= 1``.
    """
    up, down = removed(gaussian_pair(mu), rate), added(gaussian_pair(mu), rate)

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

    def loss(x: Floats) -> Floats:
        return _log_sum([w + s * (x - s / 2) / std**2 for s, w in parts])

    low, high = -STANDARD_DEVIATIONS * std, max(shifts) + STANDARD_DEVIATIONS * std

    def tails(edges: Floats) -> Tails:
        x = _bisect(loss, edges, low - std, high + std)
        above = _log_sum([w + log_ndtr((s - x) / std) for s, w in parts])
        below = _log_sum([w + log_ndtr((x - s) / std) for s, w in parts])
        return Tails(above, below, log_ndtr(-x / std), log_ndtr(x / std))

    ends = loss(np.array([low, high]))
    return Pair(tails, float(ends[0]), float(ends[1]))


def reverse(pair: Pair) -> Pair:
    """Return (Q, P), whose loss is the negative one."""

    def tails(edges: Floats) -> Tails:
        # An atom on an edge changes sides here; its cell puts it back on that edge.
        t = pair.tails(-edges)
        return Tails(t.q_below, t.q_above, t.p_below, t.p_above)

    return Pair(tails, -pair.high, -pair.low)


def diluted(loss: float, rate: float) -> float:
    """Return ``ln(1 - rate + rate e^loss)``: what sampling leaves of a loss."""
    return float(np.logaddexp(math.log1p(-rate), math.log(rate) + loss))


def _undiluted(edges: Floats, rate: float) -> Floats:
    """Invert :func:`diluted`; losses below ``ln(1 - rate)`` do not occur and give -inf."""
    large = edges > 1
    with np.errstate(divide="ignore", over="ignore"):
        near = np.log1p(np.maximum(np.expm1(np.where(large, 0.0, edges)) / rate, -1.0))
        far = edges - math.log(rate) + np.log1p(-(1 - rate) * np.exp(-np.abs(edges)))
    return np.where(large, far, near)


def _replaced_inverse(edges: Floats, rate: float, z: float) -> Floats:
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


def _bisect(loss: Callable[[Floats], Floats], edges: Floats, low: float, high: float) -> Floats:
    """Invert an increasing loss on a grid of edges."""
    left, right = np.full_like(edges, low), np.full_like(edges, high)
    for _ in range(60):
        middle = (left + right) / 2
        up = loss(middle) <= edges
        left, right = np.where(up, middle, left), np.where(up, right, middle)
    return left
