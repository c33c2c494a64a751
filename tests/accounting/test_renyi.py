"""Rényi curves: our semantics, our gaps filled, and never below the loss distribution."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event as dp
from dp_accounting import rdp
from dp_accounting.privacy_accountant import NeighboringRelation
from tests.accounting.helpers import (
    ADD,
    REPLACE,
    fixed_size,
    gaussian,
    laplace,
    mixture,
    poisson,
    pure,
    together,
    zcdp,
)

from sordino.accounting.pld import pld_epsilon
from sordino.accounting.renyi import ORDERS, laplace_curve, leaf_curve, rdp_curve, rdp_epsilon, response_curve
from sordino.accounting.trees import flatten
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.events import PureDpEvent


def zcdp_epsilon(rho, delta):
    """Return the best conversion of divergences ``rho alpha`` at all real orders, by a fine search."""
    order = 1.0 + np.geomspace(1e-3, 1e6, 2_000_001)
    spent = (np.log1p(-1.0 / order) * (order - 1.0) - np.log(delta * order)) / (order - 1.0)
    return float((rho * order + spent).min())


WHOLE = (2.0, 3.0, 8.0, 31.0, 63.0)


def library(event, orders=WHOLE, relation=NeighboringRelation.ADD_OR_REMOVE_ONE):
    return rdp.RdpAccountant(orders, relation).compose(event).rdp


@pytest.mark.parametrize(
    "event",
    [
        gaussian(1.5, 3),
        laplace(1.5, 3),
        zcdp(0.2, 3),
        dp.ZCDpEvent(0.2, 0.5),
        poisson(0.01, 1.0, 10),
        poisson(0.3, 4.0, 10),
        together(poisson(0.01, 1.0, 10), gaussian(9.0), laplace(7.0)),
        dp.RepeatAndSelectDpEvent(together(gaussian(2.0), laplace(5.0, 2)), 4.0, 1.0),
    ],
)
def test_add_remove_curves_agree_with_dp_accounting(event):
    np.testing.assert_allclose(rdp_curve(event, ADD, WHOLE), library(event), rtol=1e-6)
    assert np.all(rdp_curve(event, ADD, WHOLE) >= library(event) * (1 - 1e-9))


def test_replace_one_doubles_what_the_library_does_not():
    """GaussianDpEvent(2z) here is std / (two contributions) = z there."""
    np.testing.assert_allclose(rdp_curve(gaussian(3.0), REPLACE, WHOLE), library(gaussian(1.5)))
    replace = NeighboringRelation.REPLACE_ONE
    np.testing.assert_allclose(library(gaussian(1.5), relation=replace), library(gaussian(1.5)))


def test_fixed_size_curve_is_the_published_bound_at_half_the_multiplier():
    event = dp.SampledWithoutReplacementDpEvent(1000, 10, dp.GaussianDpEvent(1.5))
    theirs = library(event, relation=NeighboringRelation.REPLACE_ONE)
    np.testing.assert_allclose(rdp_curve(fixed_size(1000, 10, 1.5), REPLACE, WHOLE), theirs)


def test_fixed_size_orders_above_1024_cost_what_all_records_cost():
    curve = rdp_curve(fixed_size(1000, 10, 50.0), REPLACE, (2.0, 1024.0, 1025.0))
    assert np.isfinite(curve[1])
    assert curve[2] == pytest.approx(1025.0 * (1 / 50.0) ** 2 / 2)  # what all records cost


@pytest.mark.parametrize(
    ("rate", "multiplier", "order", "exact"),
    [  # 30 digits of mpmath, cut
        (0.01, 1.0, 2.5, 0.000572756755560674),
        (0.3, 0.5, 8.0, 14.9807060247109297),
        (0.001, 2.0, 30.0, 1.51534970389120e-05),
    ],
)
def test_poisson_curve_under_replace_one_is_the_divergence_of_its_pair(rate, multiplier, order, exact):
    (found,) = rdp_curve(poisson(rate, multiplier), REPLACE, [order])
    assert found == pytest.approx(exact, rel=1e-6)
    assert found >= exact


def test_poisson_curve_under_replace_one_lies_between_its_neighbours():
    """Between the add-remove curve, and the full-batch curve of replace-one."""
    single, replaced = rdp_curve(poisson(0.05, 1.2), ADD), rdp_curve(poisson(0.05, 1.2), REPLACE)
    full = rdp_curve(gaussian(1.2), REPLACE)
    near = np.array(ORDERS) < 40
    assert np.all(replaced[near] > single[near])
    assert np.all(replaced[near] < full[near])
    assert replaced[0] / single[0] > 2  # small orders see the square of the doubled shift


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (poisson(0.01, 1.0, 1000), ADD),
        (poisson(0.01, 1.0, 1000), REPLACE),
        (poisson(0.2, 3.0, 50), REPLACE),
        (poisson(0.001, 0.5, 300), REPLACE),
        (fixed_size(10000, 100, 1.0, 100), REPLACE),
        (mixture(1.0, [0.001, 1.0], [0.999, 0.001], 100), ADD),
        (mixture(2.0, [0.5, 1.0], [0.4, 0.6], 5), ADD),
        (pure(0.1, 30), ADD),
        (laplace(9.0, 30), REPLACE),
        (dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(2.0)), 9), ADD),
        (dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, PureDpEvent(0.5)), 9), ADD),
        (gaussian(3.0, 4), REPLACE),
    ],
)
def test_renyi_is_never_below_the_loss_distribution(event, relation):
    tight = pld_epsilon(flatten(event), 1e-6, relation).epsilon
    loose = rdp_epsilon(rdp_curve(event, relation), 1e-6)
    assert tight <= loose < 9 * tight  # rare large losses make Rényi loose


def test_mixture_curve_takes_the_larger_direction():
    std, shifts, weights = 0.7, [0.0, 1.0], [0.9, 0.1]
    ours = rdp_curve(mixture(std, shifts, weights), ADD, WHOLE)
    np.testing.assert_allclose(ours, rdp_curve(poisson(0.1, std), ADD, WHOLE), rtol=1e-9)


def test_poisson_laplace_is_bounded_by_its_pure_amplification():
    event = dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(2.0))
    amplified = math.log1p(0.1 * math.expm1(0.5))
    np.testing.assert_allclose(rdp_curve(event, ADD, WHOLE), rdp_curve(pure(amplified), ADD, WHOLE))


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 30.0])
def test_randomised_response_is_the_worst_pure_mechanism(epsilon):
    alpha = np.array(ORDERS)
    response = response_curve(epsilon, alpha)
    assert np.all(response <= np.minimum(epsilon, alpha * epsilon**2 / 2) * (1 + 1e-9) + 1e-13)
    assert np.all(response >= laplace_curve(epsilon, alpha) - 1e-13)
    p = 1 / (1 + math.exp(-epsilon))
    exact = math.log(p**2 / (1 - p) + (1 - p) ** 2 / p) if epsilon < 20 else epsilon
    assert response_curve(epsilon, np.array([2.0]))[0] == pytest.approx(exact, rel=1e-9)


def exact_laplace(e, a):
    return a / (2 * a - 1) * mpmath.exp((a - 1) * e) + (a - 1) / (2 * a - 1) * mpmath.exp(-a * e)


def exact_response(e, a):
    return (mpmath.exp(a * e) + mpmath.exp((1 - a) * e)) / (1 + mpmath.exp(e))


@pytest.mark.parametrize(
    ("curve", "moment"), [(laplace_curve, exact_laplace), (response_curve, exact_response)]
)
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.3, 2.7, 30.0])
def test_pure_curves_are_rounded_up_by_no_more_than_their_margin(curve, moment, epsilon):
    orders = np.array([1.1, 1.7, 2.0, 6.3, 40.0, 1000.0, 65536.0])
    for order, found in zip(orders, curve(epsilon, orders), strict=True):
        with mpmath.workdps(60):
            e, a = mpmath.mpf(epsilon), mpmath.mpf(order)
            exact = mpmath.log(moment(e, a)) / (a - 1)
            assert exact <= found <= exact * (1 + mpmath.mpf(2e-12)) + 3e-15 / (a - 1)


def test_curves_add_up_and_infinite_ones_stay_infinite():
    one, other = poisson(0.01, 1.0, 3), zcdp(0.3, 2)
    total = rdp_curve(together(one, other), REPLACE)
    np.testing.assert_allclose(total, rdp_curve(one, REPLACE) + rdp_curve(other, REPLACE))
    assert np.all(np.isinf(rdp_curve(together(one, dp.NonPrivateDpEvent()), REPLACE)))
    assert np.all(rdp_curve(dp.NoOpDpEvent(), ADD) == 0)


def test_cached_curves_cannot_be_changed_by_a_caller():
    first = rdp_curve(zcdp(0.4), ADD, WHOLE)
    first[:] = 0
    np.testing.assert_allclose(rdp_curve(zcdp(0.4), ADD, WHOLE), 0.4 * np.array(WHOLE))
    with pytest.raises(ValueError, match="read-only"):
        leaf_curve(dp.ZCDpEvent(0.4), ADD, WHOLE)[0] = 0


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1.0)), REPLACE),
        (dp.PoissonSampledDpEvent(0.1, PureDpEvent(1.0)), REPLACE),
        (dp.PoissonSampledDpEvent(0.1, dp.ZCDpEvent(1.0)), ADD),
        (fixed_size(9, 3, 1.0), ADD),
        (dp.SampledWithoutReplacementDpEvent(9, 3, dp.LaplaceDpEvent(1.0)), REPLACE),
        (mixture(1.0, [1.0, 2.0], [0.5, 0.5]), REPLACE),
    ],
)
def test_pairs_without_a_proof_are_refused_by_name(event, relation):
    with pytest.raises(UnsupportedError, match=relation.value):
        rdp_curve(event, relation)


@pytest.mark.parametrize("orders", [(), (1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (2.0, math.inf), (2.0, math.nan)])
def test_orders_must_be_finite_increasing_and_above_one(orders):
    with pytest.raises(InvalidInputError, match="orders"):
        rdp_curve(gaussian(1.0), ADD, orders)


def test_conversion_is_the_tight_one():
    rho = 0.05
    found = rdp_epsilon(rho * np.array(ORDERS), 1e-5)
    assert found == pytest.approx(zcdp_epsilon(rho, 1e-5), rel=1e-3)
    assert found >= zcdp_epsilon(rho, 1e-5) - 1e-12
    assert found < rho + 2 * math.sqrt(rho * math.log(1e5))  # the classical one is looser


def test_a_negative_divergence_is_not_read_as_no_cost():
    """dp-accounting returns epsilon 0 for it; rounding can produce one."""
    assert rdp.compute_epsilon([2.0], [-1e-18], 1e-5)[0] == 0
    assert rdp_epsilon(np.array([-1e-18]), 1e-5, (2.0,)) > 1


def test_epsilon_is_never_negative():
    assert rdp_epsilon(np.array([0.0]), 0.9, (100.0,)) == 0


def test_orders_cover_tiny_budgets():
    assert list(ORDERS[:152]) == rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS[:152]
    assert ORDERS[152:156] == pytest.approx([64, 76.109255, 90.509668, 107.634741])
    assert ORDERS[-1] == 65536
    assert all(a < b for a, b in itertools.pairwise(ORDERS))
    rho = 2e-8
    assert rdp_epsilon(rho * np.array(ORDERS), 1e-5) == pytest.approx(zcdp_epsilon(rho, 1e-5), rel=2e-2)
