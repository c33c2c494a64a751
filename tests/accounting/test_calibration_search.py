"""The search for a scale, step by step: where it starts, how far it goes, what it remembers."""

import math

import pytest
from dp_accounting import dp_event as dp
from tests.accounting.helpers import ADD, REPLACE, fixed_size, gaussian, laplace, mixture, poisson, pure, zcdp

from sordino.accounting import certify
from sordino.accounting.calibration import Search, _guess, _limit_variance, _total_variance
from sordino.accounting.conversions import gaussian_mu
from sordino.accounting.trees import flatten

AIM = (1 + 0.9995) / 2
"""The middle of what is accepted, for a target of 1."""


def search():
    return Search(lambda scale: certify(gaussian(scale), 1e-5, ADD).epsilon, 1.0, "epsilon")


def guess(event_at, epsilon=1.0, relation=ADD):
    return _guess(event_at, epsilon, 1e-5, relation)


def test_the_bracket_is_made_of_the_nearest_scales():
    found = search()
    for x, epsilon in ((0.0, 4.0), (-1.0, 9.0), (2.0, 0.5), (3.0, 0.2)):
        found._narrow(x, epsilon)
    assert (found.too_little, found.enough) == (0.0, 2.0)
    assert [x for x, _ in found.points] == [0.0, -1.0, 2.0, 3.0]
    assert found.points[-1][1] == pytest.approx(math.log(0.2))


def test_a_scale_that_costs_exactly_the_target_is_enough():
    found = search()
    found._narrow(1.5, 1.0)
    assert (found.too_little, found.enough) == (-math.inf, 1.5)


@pytest.mark.parametrize("useless", [0.0, math.inf])
def test_only_epsilons_with_a_logarithm_are_points_of_the_secant(useless):
    found = search()
    found._narrow(1.5, useless)
    assert found.points == []


def test_the_first_step_takes_epsilon_as_inverse_to_the_scale():
    found = search()
    found._narrow(0.25, 3.0)
    assert found._next(0.25, 3.0) == pytest.approx(0.25 + math.log(3.0 / AIM), rel=1e-12)


def test_the_second_step_is_a_secant():
    found = search()
    found._narrow(0.25, 4.0)
    found._narrow(1.25, 2.0)
    slope = -math.log(2)
    assert found._slope() == pytest.approx(slope)
    assert found._next(1.25, 2.0) == pytest.approx(1.25 + math.log(AIM / 2.0) / slope, rel=1e-12)


def test_the_secant_uses_the_last_two_points_and_never_rises():
    found = search()
    found.points = [(0.0, 9.0), (0.5, 1.0), (2.5, -2.0)]
    assert found._slope() == pytest.approx(-1.5)
    found.points = [(0.0, 1.0), (1.0, 1.2)]
    assert found._slope() == pytest.approx(-1e-4)


@pytest.mark.parametrize("floor", [0.9996, 0.99999])
def test_costs_that_hardly_fall_any_more_near_the_target_are_found(floor):
    """What was spent before is most of a budget: a second plan, with whatever noise, adds little to it."""
    found = Search(lambda scale: math.hypot(floor, 160.0 / scale), 1.0, "epsilon").run(lambda: 600.0)
    assert 0.9995 < math.hypot(floor, 160.0 / found) <= 1.0


@pytest.mark.parametrize(("epsilon", "step"), [(1e9, math.log(8)), (1e-9, -math.log(8))])
def test_a_step_is_at_most_a_factor_of_eight(epsilon, step):
    found = search()
    found._narrow(0.0, epsilon)
    assert found._next(0.0, epsilon) == pytest.approx(step, rel=1e-12)


@pytest.mark.parametrize(("epsilon", "step"), [(math.inf, math.log(8)), (0.0, -math.log(8))])
def test_without_a_logarithm_the_search_jumps_by_a_factor_of_eight(epsilon, step):
    found = search()
    found.points = [(1.0, 0.3)]  # of an earlier scale
    assert found._next(2.0, epsilon) == pytest.approx(2.0 + step, rel=1e-12)


@pytest.mark.parametrize("edge", ["too_little", "enough"])
def test_a_proposal_on_the_edge_of_the_bracket_is_replaced_by_the_middle(edge):
    found = search()
    found.too_little, found.enough = 0.0, 4 * math.log(8)
    start = {"too_little": math.log(8), "enough": 3 * math.log(8)}[edge]
    epsilon = {"too_little": 0.0, "enough": math.inf}[edge]
    assert found._next(start, epsilon) == pytest.approx(2 * math.log(8))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 20.0])
def test_the_search_starts_where_the_gaussian_limit_has_the_budget(epsilon):
    """The loss of a pure event has at most the variance of 1/scale squared; the limit has mu^2."""
    expected = 1 / gaussian_mu(epsilon, 1e-5)
    assert guess(lambda s: pure(1 / s), epsilon) == pytest.approx(expected, rel=3e-4)
    expected = math.sqrt(6) / gaussian_mu(epsilon, 1e-5)
    assert guess(lambda s: laplace(s, 6), epsilon) == pytest.approx(expected, rel=3e-4)


def test_the_start_of_gaussians_is_their_solution_in_the_middle_of_what_is_accepted():
    expected = math.sqrt(7) / gaussian_mu(AIM, 1e-5)
    assert guess(lambda s: gaussian(s, 7)) == pytest.approx(expected, rel=1e-9)
    assert guess(lambda s: gaussian(s, 7), relation=REPLACE) == pytest.approx(2 * expected, rel=1e-9)


def test_what_does_not_depend_on_the_scale_starts_at_one():
    assert guess(lambda _: dp.ZCDpEvent(1.0)) == 1.0


VARIANCES = [
    (gaussian(4.0), ADD, 1 / 16),
    (gaussian(4.0), REPLACE, 4 / 16),
    (laplace(5.0), REPLACE, 1 / 25),
    (pure(0.7), ADD, 0.49),
    (zcdp(0.3), ADD, 0.6),
    (mixture(2.0, [0.5, 1.0], [0.4, 0.6]), ADD, 0.16),
    (poisson(0.1, 2.0), ADD, 0.01 * math.expm1(1 / 4)),
    (poisson(0.1, 2.0), REPLACE, 0.04 * math.expm1(1 / 4)),
    (poisson(0.1, 1e-3), ADD, 0.01 * math.expm1(500)),
    (fixed_size(100, 20, 2.0), REPLACE, 4 * 0.04 * math.expm1(1 / 16)),
    (dp.RepeatAndSelectDpEvent(gaussian(4.0, 3), 10.0, 1.0), ADD, 9 * 3 / 16),
]


@pytest.mark.parametrize(("event", "relation", "variance"), VARIANCES)
def test_the_rough_variance_of_the_loss_is_that_of_its_limit(event, relation, variance):
    (leaf,) = flatten(event)
    assert _limit_variance(leaf.event, relation) == pytest.approx(variance, rel=1e-12)


def test_variances_of_independent_releases_add_up():
    leaves = [*flatten(pure(0.7, 5)), *flatten(laplace(5.0, 2))]
    assert _total_variance(leaves, ADD) == pytest.approx(5 * 0.49 + 2 / 25)
