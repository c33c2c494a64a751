"""Conversions between budgets."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from sordino.accounting.conversions import (
    check_delta,
    check_epsilon,
    default_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_multiplier,
    zcdp_epsilon,
    zcdp_rho,
)
from sordino.errors import InvalidInputError

EPSILONS = st.floats(1e-3, 100)
DELTAS = st.floats(1e-12, 0.1)


@given(EPSILONS, DELTAS)
def test_multiplier_and_epsilon_are_inverse(epsilon, delta):
    assert gaussian_epsilon(1 / gaussian_multiplier(epsilon, delta), delta) == pytest.approx(
        epsilon, rel=1e-5, abs=1e-9
    )
    assert gaussian_mu(epsilon, delta) == pytest.approx(1 / gaussian_multiplier(epsilon, delta))


@given(st.floats(0.05, 5), st.floats(1e-8, 0.01))
def test_gaussian_epsilon_solves_the_exact_equation(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    exact = norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
    assert exact == pytest.approx(delta, rel=1e-4) or (epsilon == 0 and exact <= delta)


@given(EPSILONS, DELTAS)
def test_rho_is_the_largest_that_fits(epsilon, delta):
    rho = zcdp_rho(epsilon, delta)
    assert zcdp_epsilon(rho, delta) <= epsilon
    assert zcdp_epsilon(rho * (1 + 1e-6), delta) > epsilon * (1 - 1e-12)


@given(st.floats(1e-6, 50), DELTAS)
def test_zcdp_costs_at_least_the_gaussian_it_describes_and_less_than_the_classical_bound(rho, delta):
    found = zcdp_epsilon(rho, delta)
    assert found >= gaussian_epsilon(math.sqrt(2 * rho), delta) - 1e-9
    assert found <= rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-9


def test_zcdp_minimises_over_all_orders():
    for rho, delta in ((1e-13, 1e-12), (1e-4, 1e-6), (0.1, 1e-5), (5.0, 0.01)):
        a = 1 + np.geomspace(1e-3, 1e9, 200001)
        brute = (rho * a + np.log1p(-1 / a) - np.log(a * delta) / (a - 1)).min()
        assert zcdp_epsilon(rho, delta) == pytest.approx(max(brute, 0), rel=1e-6)


def test_no_budget_and_no_limit():
    assert gaussian_epsilon(0, 1e-5) == 0
    assert zcdp_epsilon(0, 1e-5) == 0
    assert zcdp_epsilon(math.inf, 1e-5) == math.inf
    assert gaussian_multiplier(math.inf, 1e-5) == 0
    assert gaussian_mu(math.inf, 1e-5) == math.inf
    assert zcdp_rho(math.inf, 1e-5) == math.inf


@pytest.mark.parametrize("value", [0, -1, math.nan, "1", None, True, [1.0]])
def test_epsilon_must_be_a_positive_number(value):
    with pytest.raises(InvalidInputError, match="epsilon > 0"):
        check_epsilon(value)


@pytest.mark.parametrize("value", [0, 1, -1e-5, math.nan, math.inf, "1e-5", True])
def test_delta_must_lie_strictly_between_zero_and_one(value):
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        check_delta(value)


@pytest.mark.parametrize("number", [np.float32(0.5), np.float64(0.5), 0.5])
def test_numpy_numbers_are_numbers(number):
    assert check_epsilon(number) == 0.5
    assert check_delta(number) == 0.5
    assert type(check_epsilon(number)) is float
    assert check_epsilon(np.int64(3)) == 3
    assert check_epsilon(math.inf) == math.inf


@pytest.mark.parametrize(("function", "name"), [(gaussian_epsilon, "mu"), (zcdp_epsilon, "rho")])
@pytest.mark.parametrize("value", [-1e-9, math.nan])
def test_negative_costs_are_refused(function, name, value):
    with pytest.raises(InvalidInputError, match=f"{name} >= 0"):
        function(value, 1e-5)


def test_default_delta_stays_below_one_over_ten_n():
    assert default_delta(1) == 1e-5
    assert default_delta(100) == 1e-5
    assert default_delta(10**6) == 1e-7
    with pytest.raises(InvalidInputError, match="records >= 1"):
        default_delta(0)
