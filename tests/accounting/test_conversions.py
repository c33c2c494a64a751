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


def test_no_budget_and_no_limit():
    assert gaussian_epsilon(0, 1e-5) == 0
    assert gaussian_multiplier(math.inf, 1e-5) == 0
    assert gaussian_mu(math.inf, 1e-5) == math.inf


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


@pytest.mark.parametrize(("function", "name"), [(gaussian_epsilon, "mu")])
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
