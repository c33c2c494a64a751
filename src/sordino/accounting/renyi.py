"""Rényi curves: for every order alpha a bound on the Rényi divergence of neighbours.

Looser than privacy loss distributions, but they cover selections (zCDP) and private tuning, add up
over adaptively chosen runs (the ledger's filter), and cost little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from dp_accounting import dp_event as dp
from dp_accounting import rdp
from dp_accounting.privacy_accountant import NeighboringRelation
from scipy import optimize, special

from sordino.accounting.conversions import check_delta
from sordino.accounting.pld import dilute, mixture_divergence, tilt_log_moments
from sordino.accounting.trees import Leaf, flatten, gaussian_mu, unsupported_error
from sordino.errors import InvalidInputError
from sordino.kernel.arrays import Floats
from sordino.kernel.events import PureDpEvent, Relation, TiltDpEvent


def repeat_and_select(orders: Floats, curve: Floats, mean: float, shape: float) -> Floats:
    """Return the curve of the best of K runs (Papernot and Steinke 2022).

    K is Poisson for ``shape = inf``, geometric for 1, logarithmic for 0, else truncated negative
    binomial, with the given mean. Only the best run may be released.
    """
    if not (mean >= 1 and math.isfinite(mean)) or not shape >= 0:
        raise InvalidInputError(
            f"Expected a mean number of runs >= 1 and a shape >= 0, got {mean!r} and {shape!r}."
        )
    growth = math.log(mean) / (orders - 1)
    if math.isinf(shape):
        # Theorem 6: curve + mean * delta, where each run is (ln(1 + 1/(order-1)), delta)-DP.
        slack = [renyi_delta(orders, curve, math.log1p(1 / (order - 1))) for order in orders]
        return np.asarray(curve + mean * np.array(slack) + growth)
    extra = (1 + shape) * np.min((1 - 1 / orders) * curve - math.log(_gamma(mean, shape)) / orders)
    bound = curve + growth + extra
    # Rényi divergence increases in the order: a later bound also holds earlier.
    return np.asarray(np.minimum.accumulate(bound[::-1])[::-1])


def renyi_delta(orders: Floats, curve: Floats, epsilon: float) -> float:
    """Return the smallest delta that a Rényi curve proves at an ``epsilon >= 0``."""
    by_order = (orders - 1) * (curve - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    with np.errstate(divide="ignore"):
        by_distance = np.log(-np.expm1(-curve)) / 2  # total variation <= sqrt(1 - e^-divergence)
    return math.exp(min(float(np.min(by_order)), float(np.min(by_distance))))


def _gamma(mean: float, shape: float) -> float:
    """Return the halting parameter with this mean, rounded down (a longer run costs more)."""
    if mean == 1:
        return 1.0
    if shape == 1:
        return 1 / mean
    log_gamma = optimize.brentq(lambda t: _log_mean(t, shape) - math.log(mean), -200.0, 0.0)
    return math.exp(log_gamma) * (1 - 1e-9)


def _log_mean(log_gamma: float, shape: float) -> float:
    """Return the log mean number of runs; exprel(t) = (e^t - 1)/t keeps it smooth at gamma = 1."""
    ratio = math.log(special.exprel(log_gamma)) - log_gamma  # ln of (1/gamma - 1)/(-ln gamma)
    return float(ratio - math.log(special.exprel(shape * log_gamma)))


ORDERS: tuple[float, ...] = (
    *(1 + x / 10 for x in range(1, 100)),
    *(float(x) for x in range(11, 64)),
    *(64 * 2 ** (x / 4) for x in range(41)),
)
"""dp-accounting's orders up to 63, then four per octave up to 65536 for very small epsilons."""

ROUNDING = 2.0**-44
"""Of each term of an epsilon: more than hundreds of sums and products of floats lose."""

LARGE = 1e6
"""A pure epsilon beyond this bounds its own curve; there is nothing to gain below it."""


def rdp_curve(event: dp.DpEvent, relation: Relation, orders: Sequence[float] = ORDERS) -> Floats:
    """Return the Rényi divergence bound of an event at each order.

    Curves of events add up under adaptive composition, and a filter on their sum stays valid when
    the events themselves are chosen adaptively.

    Parameters
    ----------
    event : a tree in the semantics of ``kernel.events``.
    relation : the neighbouring relation of the tree.
    orders : Rényi orders, each > 1.

    Raises
    ------
    UnsupportedError
        If a leaf has no proven bound under this relation.
    """
    checked = tuple(float(order) for order in orders)
    rising = all(a < b for a, b in zip((1.0, *checked), (*checked, math.inf)))
    if not checked or not rising:
        raise InvalidInputError("Expected finite, increasing Rényi orders > 1, at least one.")
    return total_curve(flatten(event), relation, checked)


def total_curve(leaves: Sequence[Leaf], relation: Relation, orders: tuple[float, ...] = ORDERS) -> Floats:
    """Return the sum of the curves of leaves, each as often as it happens."""
    total = np.zeros(len(orders))
    with np.errstate(over="ignore"):
        for leaf in leaves:
            total += leaf.count * leaf_curve(leaf.event, relation, orders)
    return total


def rdp_epsilon(curve: Floats, delta: float, orders: Sequence[float] = ORDERS) -> float:
    r"""Return the smallest epsilon a Rényi curve proves (Canonne, Kamath, Steinke 2020).

    ``min over a of curve(a) + ln(1 - 1/a) - ln(a delta)/(a - 1)``, never below it: each term, and a curve
    that is a sum of hundreds, is raised by its rounding.
    """
    a = np.array(orders)
    shrunk, tail = np.log1p(-1 / a), np.log(a * check_delta(delta)) / (a - 1)
    cost = np.maximum(curve, 0.0)
    bounds = cost + shrunk - tail + ROUNDING * (cost - shrunk + np.abs(tail))
    return max(float(bounds.min()), 0.0)


@lru_cache(maxsize=512)
def leaf_curve(event: dp.DpEvent, relation: Relation, orders: tuple[float, ...]) -> Floats:
    """Return the curve of one leaf of :func:`flatten`."""
    with np.errstate(over="ignore"):  # a cost beyond the floats is infinite
        alpha = np.array(orders)
        if isinstance(event, dp.NonPrivateDpEvent):
            curve = np.full(alpha.shape, np.inf)
        elif isinstance(event, dp.GaussianDpEvent):
            curve = alpha * gaussian_mu(Leaf(event, 1), relation) ** 2 / 2
        elif isinstance(event, dp.ZCDpEvent):
            curve = event.xi + event.rho * alpha
        elif isinstance(event, dp.LaplaceDpEvent):
            curve = laplace_curve(1 / event.noise_multiplier, alpha)
        elif isinstance(event, PureDpEvent):
            curve = response_curve(event.epsilon, alpha)
        elif isinstance(event, TiltDpEvent):
            mu = gaussian_mu(Leaf(event, 1), relation)
            curve = _round_up(tilt_log_moments(event.jacobian, mu, relation, alpha - 1), alpha)
        elif isinstance(event, dp.RepeatAndSelectDpEvent):
            inner = rdp_curve(event.event, relation, tuple(alpha))
            curve = repeat_and_select(alpha, inner, event.mean, event.shape)
        else:
            curve = _mixture_curve(event, relation, alpha)
    curve.setflags(write=False)  # shared by the cache
    return curve


def _mixture_curve(event: dp.DpEvent, relation: Relation, alpha: Floats) -> Floats:
    if isinstance(event, dp.PoissonSampledDpEvent):
        return _poisson_curve(event, relation, alpha)
    replace = relation is Relation.REPLACE_ONE
    fixed_size = isinstance(event, dp.SampledWithoutReplacementDpEvent)
    if replace and fixed_size and isinstance(event.event, dp.GaussianDpEvent):
        # dp-accounting's bound (Wang, Balle, Kasiviswanathan 2019), infinite above order 1024. It wants
        # std / two contributions, so the multiplier of our events is halved.
        half = dp.GaussianDpEvent(event.event.noise_multiplier / 2)
        sized = dp.SampledWithoutReplacementDpEvent(event.source_dataset_size, event.sample_size, half)
        near = alpha <= 1024

        def fixed_size_curve() -> Floats:
            curve = np.full(alpha.shape, np.inf)
            accountant = rdp.RdpAccountant(alpha[near], NeighboringRelation.REPLACE_ONE)
            curve[near] = accountant.compose(sized).rdp
            return curve

        return _at_most_whole(1 / half.noise_multiplier, alpha, fixed_size_curve)
    if isinstance(event, dp.MixtureOfGaussiansDpEvent) and not replace:
        parts = list(zip(event.sensitivities, event.sampling_probs))
        both = [(parts, [(0.0, 1.0)]), ([(0.0, 1.0)], parts)]
        std, whole = event.standard_deviation, max(event.sensitivities)
        return _at_most_whole(
            whole / std, alpha, lambda: np.maximum(*(mixture_divergence(p, q, std, alpha) for p, q in both))
        )
    raise unsupported_error(event, relation, "Rényi")


def _poisson_curve(event: dp.PoissonSampledDpEvent, relation: Relation, alpha: Floats) -> Floats:
    """Return the curve of a Poisson batch.

    Gaussian, add-remove: ((1-q) N(0) + q N(1), N(0)), the larger direction at every order (Mironov,
    Talwar, Zhang 2019). Gaussian, replace-one: ((1-q) N(0) + q N(-1), (1-q) N(0) + q N(1)), which
    dp-accounting does not offer. A pure mechanism, add-remove: amplified as pure.
    """
    q, inner = event.sampling_probability, event.event
    if isinstance(inner, dp.GaussianDpEvent):
        z, absent = inner.noise_multiplier, (0.0, 1 - q)
        p, other = [absent, (1.0, q)], [(0.0, 1.0)]
        if relation is Relation.REPLACE_ONE:
            p, other = [absent, (-1.0, q)], [absent, (1.0, q)]
        whole = gaussian_mu(Leaf(inner, 1), relation)
        return _at_most_whole(whole, alpha, lambda: mixture_divergence(p, other, z, alpha))
    if relation is Relation.ADD_REMOVE and isinstance(inner, (dp.LaplaceDpEvent, PureDpEvent)):
        pure = inner.epsilon if isinstance(inner, PureDpEvent) else 1 / inner.noise_multiplier
        return response_curve(dilute(pure, q), alpha)
    raise unsupported_error(event, relation, "Rényi")


def _at_most_whole(mu: float, alpha: Floats, sampled: Callable[[], Floats]) -> Floats:
    """Return the curve of a batch, at most that of all records: divergences are jointly quasi-convex.

    Where noise is so small or so large that squares leave the floats the second is all there is.
    """
    whole = alpha * mu**2 / 2
    if not 1e-9 < mu < 1e4:
        return whole
    curve = sampled()
    return np.minimum(np.where(np.isnan(curve), np.inf, curve), whole)


def laplace_curve(epsilon: float, alpha: Floats) -> Floats:
    r"""Return the divergence of Laplace noise of scale 1 and shift ``epsilon`` (Mironov 2017).

    ``ln( a/(2a-1) e^((a-1) eps) + (a-1)/(2a-1) e^(-a eps) ) / (a-1)``.
    """
    if epsilon > LARGE:
        return np.full(alpha.shape, epsilon)
    weight = 2 * alpha - 1
    up = np.log(alpha / weight) + (alpha - 1) * epsilon
    down = np.log((alpha - 1) / weight) - alpha * epsilon
    return _round_up(np.logaddexp(up, down), alpha)


def response_curve(epsilon: float, alpha: Floats) -> Floats:
    r"""Return the divergence of randomised response, the worst epsilon-DP mechanism.

    ``ln( (e^(a eps) + e^((1-a) eps)) / (1 + e^eps) ) / (a-1)``, at most ``a eps^2 / 2``.
    """
    if epsilon > LARGE:
        return np.full(alpha.shape, epsilon)
    log_moment = np.logaddexp(alpha * epsilon, (1 - alpha) * epsilon) - np.logaddexp(0.0, epsilon)
    return _round_up(log_moment, alpha)


def _round_up(log_moment: Floats, alpha: Floats) -> Floats:
    """Divide by alpha - 1 after a margin for the rounding of ``log_moment``."""
    return (np.maximum(log_moment, 0.0) * (1 + 1e-12) + 1e-15) / (alpha - 1)
