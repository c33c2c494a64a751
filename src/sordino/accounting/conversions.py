"""Exact conversions between (epsilon, delta), mu, sigma and rho, and the default delta."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
from scipy import special

from sordino.errors import InvalidInputError
from sordino.values import is_number

SMALLEST_DELTA = 1e-290
"""Below it floats lose digits, and a certificate would be a guess."""

SMALLEST_MU = 1e-8
"""A smaller mu counts as this one: an epsilon below 4e-7 would be lost in the search for it."""

MU_ROUNDING = 2.0**-49
"""Added to a mu: a root, a quotient and a product in floats made it."""

LARGEST = 1e8
"""A Gaussian for a larger epsilon gets the noise of this one."""


def gaussian_epsilon(mu: float, delta: float) -> float:
    r"""Return the epsilon of mu-Gaussian DP, exact (Balle and Wang 2018), and never below it.

    ``delta = Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2)``. A root found in floats lies on
    either side; it is raised until 60 digits say that delta is kept. mu is raised by its own rounding first.
    """
    if not mu >= 0:
        raise InvalidInputError(f"Expected mu >= 0, got {mu!r}.")
    delta = check_delta(delta)
    if mu == 0:
        return 0.0
    mu = max(mu, SMALLEST_MU) * (1 + MU_ROUNDING)
    wanted, sigma, low, high = np.log(delta), 1 / mu, 0.0, 1.0
    if _log_delta(sigma, 0.0) < wanted:
        epsilon = 0.0
    else:
        while _log_delta(sigma, high) > wanted:
            low, high = high, 10 * high
        epsilon = _first_below(lambda e: _log_delta(sigma, e), wanted, low, high)
    step = max(epsilon, 1e-3) * 2.0**-50
    while math.isfinite(epsilon) and _gaussian_delta(mu, epsilon) > delta:
        epsilon, step = epsilon + step, 2 * step
    return epsilon


def _first_below(falling: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """Return where a falling function has come down to a value, by halves; SciPy's loads 200 modules."""
    for _ in range(64):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > wanted else (low, middle)
    return high


def _log_delta(sigma: float, epsilon: float) -> float:
    """Return ln(delta) of a Gaussian with this noise multiplier at an epsilon, in floats."""
    middle = epsilon * sigma + 1 / (2 * sigma)
    x, y = special.log_ndtr(1 / sigma - middle), epsilon + special.log_ndtr(-middle)
    with np.errstate(divide="ignore"):  # delta may be 0
        return x + np.log1p(-np.exp(y - x)) if y <= x else -np.inf


def _gaussian_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Return delta of mu-Gaussian DP at an epsilon, to 60 digits."""
    with mpmath.workdps(60):
        shift, half = mpmath.mpf(epsilon) / mu, mpmath.mpf(mu) / 2
        return mpmath.ncdf(half - shift) - mpmath.exp(epsilon) * mpmath.ncdf(-half - shift)


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """Return std / sensitivity of the Gaussian mechanism that is (epsilon, delta)-DP: exact, rounded up."""
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    if math.isinf(epsilon):
        return 0.0
    wanted, low, high = np.log(delta), 0.1, 1.0
    bounded = min(epsilon, LARGEST)  # beyond it the formula leaves the floats: more noise is sound
    while _log_delta(low, bounded) < wanted:
        low, high = low / 10, low
    while _log_delta(high, bounded) > wanted:
        low, high = high, 10 * high
    multiplier = _first_below(lambda s: _log_delta(s, bounded), wanted, low, high)
    step = 2.0**-48
    while multiplier * SMALLEST_MU < 1 and gaussian_epsilon(1 / multiplier, delta) > epsilon:
        multiplier, step = multiplier * (1 + step), 2 * step
    return multiplier


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the mu whose Gaussian DP is exactly (epsilon, delta): 1 / multiplier."""
    multiplier = gaussian_multiplier(epsilon, delta)
    return 1 / multiplier if multiplier else math.inf


def default_delta(population: int) -> float:
    """Return min(1e-5, 1/(10 n)) for a public number of records n."""
    if not population >= 1:
        raise InvalidInputError(f"Expected a public number of records >= 1, got {population!r}.")
    return min(1e-5, 1 / (10 * population))


def check_epsilon(epsilon: float) -> float:
    """Return epsilon as a float, or say what is wrong with it."""
    if not is_number(epsilon) or not epsilon > 0:
        raise InvalidInputError(f"Expected epsilon > 0 (inf for no privacy), got {epsilon!r}.")
    return float(epsilon)


def check_delta(delta: float) -> float:
    """Return delta as a float, or say what is wrong with it."""
    if is_number(delta) and 0 < delta < SMALLEST_DELTA:
        raise InvalidInputError(
            f"Expected delta >= {SMALLEST_DELTA:g}, got {delta!r}: smaller numbers lose their digits. "
            "Use a pure mechanism for delta = 0."
        )
    if not is_number(delta) or not 0 < delta < 1:
        raise InvalidInputError(
            f"Expected delta strictly between 0 and 1, got {delta!r}. Use delta=None for min(1e-5, 1/(10 n))."
        )
    return float(delta)
