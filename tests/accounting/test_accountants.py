"""Which accountant, and the properties every certificate must have."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from hypothesis import given, settings
from hypothesis import strategies as st
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

from sordino.accounting import calibration as accountants
from sordino.accounting import certify, certify_by, gaussian_epsilon
from sordino.accounting.renyi import rdp_curve as curve_of_renyi
from sordino.accounting.trees import Leaf
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.events import PureDpEvent

RELATIONS = st.sampled_from([ADD, REPLACE])
EVENTS = st.one_of(
    st.builds(poisson, st.floats(1e-3, 0.3), st.floats(0.6, 8), st.integers(1, 60)),
    st.builds(gaussian, st.floats(0.8, 50), st.integers(1, 40)),
    st.builds(laplace, st.floats(1, 40), st.integers(1, 20)),
    st.builds(pure, st.floats(0.01, 0.6), st.integers(1, 20)),
    st.builds(zcdp, st.floats(1e-4, 0.1), st.integers(1, 20)),
)


@pytest.mark.parametrize(
    ("event", "relation", "accountant"),
    [
        (gaussian(2.0, 3), ADD, "gaussian (exact)"),
        (together(gaussian(2.0), gaussian(3.0, 7)), REPLACE, "gaussian (exact)"),
        (dp.NoOpDpEvent(), ADD, "gaussian (exact)"),
        (poisson(0.1, 1.0, 3), ADD, "pld"),
        (poisson(0.1, 1.0, 3), REPLACE, "pld"),
        (together(gaussian(2.0), laplace(3.0), pure(0.1)), REPLACE, "pld"),
        (fixed_size(50, 5, 1.0, 3), REPLACE, "pld"),
        (mixture(1.0, [0.1, 1.0], [0.9, 0.1], 3), ADD, "pld"),
        (together(gaussian(2.0), zcdp(0.1)), ADD, "rdp"),
        (together(poisson(0.1, 2.0, 5), zcdp(0.1)), REPLACE, "rdp"),
        (dp.RepeatAndSelectDpEvent(gaussian(5.0), 3.0, 1.0), ADD, "rdp"),
        (together(gaussian(2.0), dp.NonPrivateDpEvent()), ADD, "none"),
    ],
)
def test_the_tightest_proven_accountant_is_chosen(event, relation, accountant):
    found = certify(event, 1e-5, relation)
    assert found.accountant == accountant
    assert (found.discretisation is not None) == (accountant == "pld")
    assert math.isfinite(found.epsilon) == (accountant != "none")
    assert (found.delta, found.relation) == (1e-5, relation)


def test_nothing_released_costs_nothing_and_no_noise_costs_everything():
    assert certify(dp.NoOpDpEvent(), 1e-5, ADD).epsilon == 0
    assert certify(dp.NonPrivateDpEvent(), 1e-5, ADD).epsilon == math.inf
    assert certify_by("pld", dp.NonPrivateDpEvent(), 1e-5, ADD).epsilon == math.inf


def test_a_delta_too_small_for_floats_falls_back_to_renyi():
    found = certify(poisson(0.01, 1.0, 1000), 1e-16, ADD)
    assert found.accountant == "rdp"
    assert math.isfinite(found.epsilon)


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (fixed_size(50, 5, 1.0), ADD),
        (dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(2.0)), REPLACE),
        (dp.PoissonSampledDpEvent(0.1, dp.ZCDpEvent(0.1)), ADD),
        (mixture(1.0, [0.1, 1.0], [0.9, 0.1]), REPLACE),
        (dp.RandomizedResponseDpEvent(0.5, 2), ADD),
        (dp.UnsupportedDpEvent(), ADD),
    ],
)
def test_a_pair_without_a_proof_is_refused(event, relation):
    with pytest.raises(UnsupportedError, match=r"proven"):
        certify(event, 1e-5, relation)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan, "1e-5"])
def test_delta_outside_its_range_is_refused(delta):
    with pytest.raises(InvalidInputError, match="delta"):
        certify(gaussian(1.0), delta, ADD)


def test_relation_may_be_given_by_name():
    assert certify(gaussian(2.0), 1e-5, "replace-one") == certify(gaussian(2.0), 1e-5, REPLACE)


def test_a_given_grid_is_used():
    assert certify(poisson(0.1, 1.0, 3), 1e-5, ADD, grid=3e-3).discretisation == 3e-3
    assert certify_by("pld", gaussian(1.0), 1e-5, ADD, grid=3e-3).discretisation == 3e-3


def test_rdp_curve_is_public_here():
    assert accountants.rdp_curve is curve_of_renyi


# Properties ----------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.lists(EVENTS, min_size=1, max_size=3), RELATIONS)
def test_renyi_is_an_upper_bound_of_the_chosen_accountant(events, relation):
    tree = together(*events)
    tight, loose = certify(tree, 1e-5, relation), certify_by("rdp", tree, 1e-5, relation)
    assert tight.epsilon <= loose.epsilon * (1 + 1e-9) + (tight.discretisation or 0)


@settings(max_examples=15)
@given(st.lists(EVENTS, min_size=1, max_size=3), RELATIONS, st.integers(2, 5))
def test_stepwise_is_composed(events, relation, times):
    """A tree, the same tree written out step by step, and its parts in another order agree."""
    composed = certify(dp.SelfComposedDpEvent(together(*events), times), 1e-5, relation)
    stepwise = certify(together(*(list(reversed(events)) * times)), 1e-5, relation)
    assert stepwise.epsilon == pytest.approx(composed.epsilon, rel=1e-9)


@settings(max_examples=12)
@given(st.floats(0.4, 30), st.integers(1, 100), RELATIONS)
def test_loss_distribution_agrees_with_the_exact_gaussian(multiplier, times, relation):
    exact = certify(gaussian(multiplier, times), 1e-5, relation).epsilon
    assert certify_by("pld", gaussian(multiplier, times), 1e-5, relation).epsilon == pytest.approx(
        exact, rel=5e-3
    )
    assert exact == pytest.approx(
        gaussian_epsilon(relation.contributions * math.sqrt(times) / multiplier, 1e-5)
    )


@settings(max_examples=10)
@given(st.floats(0.005, 0.2), st.floats(0.7, 5), st.integers(2, 200), st.floats(1e-8, 1e-3), RELATIONS)
def test_epsilon_is_monotone(rate, multiplier, times, delta, relation):
    base = certify(poisson(rate, multiplier, times), delta, relation, grid=2e-4).epsilon

    def epsilon(q=rate, z=multiplier, t=times, d=delta):
        return certify(poisson(q, z, t), d, relation, grid=2e-4).epsilon

    slack = 1e-6
    assert epsilon(z=1.3 * multiplier) <= base + slack
    assert epsilon(t=2 * times) >= base - slack
    assert epsilon(q=1.5 * rate) >= base - slack
    assert epsilon(d=delta / 10) >= base - slack
    assert certify(poisson(rate, multiplier, times), delta, REPLACE, grid=2e-4).epsilon >= base - slack


# Broken twins: each check passes on the real accountant and fails on one that forgets. --------------


def check_every_event_is_paid_for(certify):
    parts = [poisson(0.1, 2.0, 20), laplace(9.0, 2), pure(0.2, 3)]
    total = certify(together(*parts), 1e-5, ADD).epsilon
    for left_out in range(3):
        rest = together(*(p for i, p in enumerate(parts) if i != left_out))
        assert certify(rest, 1e-5, ADD).epsilon < 0.99 * total


def check_every_repetition_is_paid_for(certify):
    for event in (poisson(0.1, 2.0), laplace(9.0), pure(0.2), zcdp(0.01), gaussian(3.0)):
        once, many = event, dp.SelfComposedDpEvent(event, 30)
        assert certify(many, 1e-5, ADD).epsilon > 2.5 * certify(once, 1e-5, ADD).epsilon


def check_replacing_costs_twice_the_shift(certify):
    for multiplier in (1.5, 6.0):
        replaced = certify(gaussian(2 * multiplier, 3), 1e-5, REPLACE).epsilon
        assert replaced == pytest.approx(certify(gaussian(multiplier, 3), 1e-5, ADD).epsilon, rel=1e-6)
    sampled = certify(poisson(0.02, 5.0, 400), 1e-5, REPLACE).epsilon
    assert sampled > 1.7 * certify(poisson(0.02, 5.0, 400), 1e-5, ADD).epsilon


CHECKS = [
    check_every_event_is_paid_for,
    check_every_repetition_is_paid_for,
    check_replacing_costs_twice_the_shift,
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("accountant", ["best", "rdp"])
def test_certificates_pass_every_check(check, accountant):
    check(certify if accountant == "best" else lambda *args: certify_by("rdp", *args))


def test_an_accountant_that_drops_an_event_is_caught():
    def dropping(event, delta, relation):
        parts = event.events if isinstance(event, dp.ComposedDpEvent) else [event]
        return certify(together(*parts[:-1]) if len(parts) == 3 else event, delta, relation)

    with pytest.raises(AssertionError):
        check_every_event_is_paid_for(dropping)


def test_an_accountant_that_drops_a_count_is_caught(monkeypatch):
    real = accountants.flatten
    monkeypatch.setattr(accountants, "flatten", lambda event: [Leaf(leaf.event, 1) for leaf in real(event)])
    with pytest.raises(AssertionError):
        check_every_repetition_is_paid_for(accountants.certify)


def test_an_accountant_that_forgets_the_factor_of_replace_one_is_caught():
    with pytest.raises(AssertionError):
        check_replacing_costs_twice_the_shift(lambda event, delta, _: certify(event, delta, ADD))


def test_results_are_remembered_per_tree(monkeypatch):
    event = poisson(0.123, 1.7, 9)
    first = certify(event, 1e-5, ADD)
    monkeypatch.setattr(accountants, "pld_epsilon", None)  # would fail if it was asked again
    assert certify(event, 1e-5, ADD) is first


def test_numpy_numbers_are_accepted_in_events():
    event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(np.float64(2.0)), np.int64(4))
    assert certify(event, np.float64(1e-5), ADD).epsilon == pytest.approx(4.37718, rel=1e-5)


def test_an_inner_pure_mechanism_is_amplified_by_sampling():
    sampled = dp.PoissonSampledDpEvent(0.1, PureDpEvent(1.0))
    assert certify(sampled, 1e-6, ADD).epsilon < 0.2 < certify(pure(1.0), 1e-6, ADD).epsilon
