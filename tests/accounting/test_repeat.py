"""Private tuning against dp-accounting."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event as dp
from dp_accounting import rdp

from sordino.accounting.renyi import _gamma, repeat_and_select
from sordino.errors import InvalidInputError

ORDERS = np.array([1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("mean", [1.0, 1.5, 10.0, 300.0])
def test_curve_agrees_with_dp_accounting(mean, shape):
    event = dp.RepeatAndSelectDpEvent(dp.GaussianDpEvent(4.0), mean, shape)
    theirs = rdp.RdpAccountant(ORDERS).compose(event).rdp
    ours = repeat_and_select(ORDERS, ORDERS / 32, mean, shape)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)
    assert np.all(ours >= theirs - 1e-8)  # both round the law of the number of runs


def test_a_curve_that_costs_nothing_still_pays_for_the_choice():
    bound = repeat_and_select(ORDERS, np.zeros(ORDERS.size), 10.0, 1.0)
    assert np.all(bound > 0)


@pytest.mark.parametrize("shape", [0.0, 1.0, 2.0, math.inf])
def test_more_runs_cost_more(shape):
    few = repeat_and_select(ORDERS, ORDERS / 32, 2.0, shape)
    many = repeat_and_select(ORDERS, ORDERS / 32, 20.0, shape)
    assert np.all(many > few)


@pytest.mark.parametrize(
    ("mean", "shape"), [(0.5, 1.0), (math.inf, 1.0), (math.nan, 1.0), (2.0, -1.0), (2.0, math.nan)]
)
def test_impossible_laws_of_the_number_of_runs_are_refused(mean, shape):
    with pytest.raises(InvalidInputError, match="mean number of runs"):
        repeat_and_select(ORDERS, ORDERS, mean, shape)


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("mean", [1.0, 1.5, 2.0, 10.0, 1e6])
def test_the_halting_parameter_never_runs_shorter_than_the_mean(mean, shape):
    """The mean is ``shape (1 - g) / (g (1 - g^shape))``, and ``(1 - g) / (g ln(1/g))`` for shape 0."""
    if mean == 1:
        assert _gamma(mean, shape) == 1
        return
    with mpmath.workdps(40):
        g = mpmath.mpf(_gamma(mean, shape))
        runs = (1 - g) / g * (shape / (1 - g**shape) if shape else -1 / mpmath.log(g))
        assert mean * (1 - 1e-15) <= runs <= mean * (1 + 1e-8)


def test_runs_that_tell_nearly_nothing_are_bounded_by_the_distance_of_their_laws():
    """Poisson: the total variation is at most sqrt(1 - e^-D) with the smallest divergence of the curve."""
    (*_, last) = repeat_and_select(ORDERS, 1e-8 * ORDERS, 10.0, math.inf)
    distance = math.sqrt(-math.expm1(-1.5e-8))
    assert last == pytest.approx(64e-8 + 10 * distance + math.log(10) / 63, rel=1e-12)
