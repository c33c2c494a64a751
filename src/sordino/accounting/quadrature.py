r"""Rényi divergences of mixtures of Gaussians by quadrature with a proven error.

For ``P = sum_i p_i N(c_i, s^2)`` and ``Q = sum_j q_j N(d_j, s^2)`` the moment is

    I = int P^a Q^(1-a) dx = int phi(x) g_P(x)^a g_Q(x)^(1-a) dx,
    g_P(x) = sum_i p_i e^((c_i x - c_i^2/2)/s^2),   phi the density of N(0, s^2).

*Quadrature.* The trapezoidal rule with step h on a function that is analytic in the strip ``|Im x| <= y``
errs by at most ``2 M / (e^(2 pi y/h) - 1)``, M the integral of the modulus along the edge of the strip.
There ``|phi| = phi e^(y^2/2s^2)``, ``|g_P| <= g_P``, and ``|g_Q| >= g_Q cos(w y/2s^2)``, w the width of Q's
shifts, because the arguments of the summands differ by at most ``w y/s^2``. So
``M <= I e^(y^2/2s^2) cos(w y/2s^2)^(1-a)``, and ``_step`` takes h with a relative error below e^-37. The
strip also keeps the arguments of the summands of g_P within 2 radians, so that g_P has no zero in it and
its power is analytic.

*Tails.* ``d/dx ln(integrand) = (a m_P(x) - (a-1) m_Q(x) - x)/s^2`` with m_P, m_Q between the smallest and
the largest shift. So beyond ``high = a max c - (a-1) min d`` it decays at least like a Gaussian, and below
``high`` it grows at most like one: what lies above ``high + 12 s`` is less than ``2 Phi(-12) I``; likewise
on the other side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sordino.kernel.arrays import Floats

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
    terms = [math.log(w) + c * (x - c / 2) / std**2 for c, w in parts if w > 0]
    return np.asarray(np.logaddexp.reduce(terms))


def _range(parts: Parts) -> tuple[float, float]:
    shifts = [c for c, w in parts if w > 0]
    return min(shifts), max(shifts)
