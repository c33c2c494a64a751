r"""The price of noise inside an objective: laws that the privacy loss of a tilted minimiser stays below.

Theta minimises ``F(theta) + b . theta`` with ``b ~ N(0, s^2 I)``, F a sum of convex losses of linear
predictors plus ``(Lam/2) ||theta||^2``. The density of theta is ``det(F'') phi_s(b)`` at ``b =
-F'(theta)``. A record with features x, in direction k of length 1, adds ``s g k`` to F', with g in [-m, m]
and not decreasing in ``x . theta`` (convexity), and multiplies the determinant by a factor between 1 and
``e^J``.

*Record present against absent.* Under the law with the record the loss is at most ``J + g r + g^2/2`` with
``r = b . k / s``, a standard normal given the rest of b. With that rest fixed, ``x . theta`` does not
increase in r (F' is monotone), so neither does g. If g >= 0 at r = 0, then g is in [0, m] for r < 0; a
convex function is largest at an end, so the loss is at most ``J + max(0, m r + m^2/2)``, and for r >= 0
too. If g < 0 there, put -r for r. So the loss is stochastically below **J + max(0, N(m^2/2, m^2))**: for
epsilon >= J, delta is that of a Gaussian of mu = m at epsilon - J.

*Absent against present.* The determinants only help, g changes its sign: at most **m |N(0,1)| + m^2/2**.

*Replace-one.* Two records move F' by s v, ``v = g k - g' k'`` with g, g' in [-m/2, m/2], m now for both.
The loss is at most ``J + v . z + ||v||^2/2`` with z standard normal. It is convex in (g, g'), so it is
largest at one of four fixed vectors, ``+-m (k + k')/2`` and ``+-m (k - k')/2``, whose squared lengths w and
m^2 - w add up to m^2. So it exceeds J + y with probability at most ``h(w) + h(m^2 - w)``, ``h(w) = 2
Phi(-(y/sqrt(w) - sqrt(w)/2))``. Let ``t = y/m - m/2``. With a = sqrt(w) and u = y/a - a/2 >= t, h is convex
where ``u (u+a)^2 >= 3u + 2a``, so on all of [0, m^2] if ``t >= sqrt(3)``, and then the sum is at most
``h(0) + h(m^2) = 2 Phi(-t)``. For every t >= 0 the probability is at most ``e^(-t^2/2)``, the tail of chi
with 2 degrees of freedom, since v lies in a plane. So the loss is stochastically below **J + m R + m^2/2**,
where ``P[R > t]`` is ``e^(-t^2/2)`` for t < sqrt(3) and ``2 Phi(-t)`` from there.

*Composition.* Let U be such a law. ``E (1 - e^(epsilon - L))_+`` increases with the loss L, so it is at
most ``E (1 - e^(epsilon - U))_+``, for every real epsilon. That is the profile of a pair: P the law of U, Q
with density ``e^-U``, and where that adds up to less than one, the rest of Q on a point that P never hits.
So the pair dominates, given all earlier answers, and dominating pairs compose adaptively (Zhu, Dong, Wang
2022). Likewise ``E e^((a-1) L) <= E e^((a-1) U)`` bounds the Renyi divergence of order a.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from sordino.accounting.pairs import STANDARD_DEVIATIONS, Pair, Tails, complement
from sordino.kernel.arrays import Floats
from sordino.kernel.relation import Relation

BEND = math.sqrt(3.0)
"""From here the tail of a replaced record is that of one normal instead of two."""


def tilt_pairs(jacobian: float, mu: float, relation: Relation) -> tuple[Pair, ...]:
    """Return the pairs of a tilt: present against absent and back, or one for a replaced record."""
    if relation is Relation.REPLACE_ONE:
        return (_replaced(jacobian, mu),)
    return _present(jacobian, mu), _absent(mu)


def tilt_log_moments(jacobian: float, mu: float, relation: Relation, t: Floats) -> Floats:
    """Return ``ln E e^(t U)`` of the larger of the two laws, for t > 0."""
    a, gaussian = t * mu, t * (t + 1) * mu**2 / 2
    if relation is Relation.REPLACE_ONE:
        return np.asarray(t * (jacobian + mu**2 / 2) + a**2 / 2 + np.log(_replaced_moment(a)))
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


def _replaced(jacobian: float, mu: float) -> Pair:
    """Return the pair of ``J + mu R + mu^2/2``."""

    def tails(edges: Floats) -> Tails:
        t = np.maximum((edges - jacobian) / mu - mu / 2, 0.0)
        p_above = np.where(t < BEND, -(t**2) / 2, math.log(2) + log_ndtr(-t))
        return _tails(p_above, complement(p_above), _replaced_q(t, mu) - jacobian)

    return Pair(tails, jacobian + mu**2 / 2, jacobian + mu**2 / 2 + STANDARD_DEVIATIONS * mu)


def _replaced_q(t: Floats, mu: float) -> Floats:
    """Return ``ln E[e^(-mu R - mu^2/2); R > t]``: below the bend by parts, with Mills ratios."""
    y, end = np.minimum(t, BEND) + mu, BEND + mu
    bend = (mu + math.sqrt(2 / math.pi)) * _mills(end) - 2 * ndtr(-BEND) * math.exp(BEND**2 / 2)
    inner = 1 - mu * _mills(y) + np.exp((y - end) * (y + end) / 2) * bend
    return np.asarray(np.where(t < BEND, np.log(inner) - y**2 / 2, math.log(2) + log_ndtr(-t - mu)))


def _replaced_moment(a: Floats) -> Floats:
    """Return ``E e^(a R - a^2/2)``, by parts: ``E e^(aR) = 1 + a int e^(ar) P[R > r] dr``."""
    rest = np.exp(-(a**2) / 2) - 2 * ndtr(-BEND) * np.exp(a * (BEND - a / 2))
    middle = a * math.sqrt(2 * math.pi) * (ndtr(BEND - a) - ndtr(-a))
    return np.asarray(rest + middle + 2 * ndtr(a - BEND))


def _mills(y: Floats | float) -> Floats:
    """Return ``sqrt(2 pi) Phi(-y) e^(y^2/2)``."""
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(np.asarray(y) / math.sqrt(2)))


def _tails(p_above: Floats, p_below: Floats, q_above: Floats) -> Tails:
    return Tails(p_above, p_below, q_above, complement(q_above))
