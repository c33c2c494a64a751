"""Private tuning: the Rényi curve of running a mechanism a random number of times, keeping the best."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special

from sordino.errors import InvalidInputError
from sordino.kernel.arrays import Floats


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
        return _poisson(orders, curve, mean) + growth
    extra = (1 + shape) * np.min((1 - 1 / orders) * curve - math.log(_gamma(mean, shape)) / orders)
    bound = curve + growth + extra
    # Rényi divergence increases in the order: a later bound also holds earlier.
    return np.asarray(np.minimum.accumulate(bound[::-1])[::-1])


def _poisson(orders: Floats, curve: Floats, mean: float) -> Floats:
    """Theorem 6: ``curve + mean * delta`` where each run is (ln(1 + 1/(order-1)), delta)-DP."""
    slack = [renyi_delta(orders, curve, math.log1p(1 / (order - 1))) for order in orders]
    return np.asarray(curve + mean * np.array(slack))


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
