"""What is told with a small probability takes that off delta.

The proofs: docs/proofs.md.
"""

import math

import pytest
from dp_accounting import dp_event as dp

from sordino.accounting import calibrate, certify, certify_by, decode, encode
from sordino.accounting.trees import flatten, without_rare
from sordino.errors import InvalidInputError, PlanError, UnsupportedError
from sordino.kernel import Plan, Relation, Release, StableCounts
from sordino.kernel.events import RareDpEvent, check_event, compose_events, rare_event
from sordino.ledger.account import charge_of, pure_epsilon
from sordino.problems.scales import FrequentValues

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
GAUSSIAN = dp.GaussianDpEvent(4.0)


def test_the_rest_is_certified_at_what_is_left_of_delta():
    both = compose_events([GAUSSIAN, RareDpEvent(4e-6)])
    found = certify(both, 1e-5, ADD)
    alone = certify(GAUSSIAN, 6e-6, ADD)
    assert found.epsilon == pytest.approx(alone.epsilon, rel=1e-9)
    assert found.epsilon >= alone.epsilon
    assert found.delta == 1e-5
    assert found.accountant == alone.accountant


def test_rare_events_add_up():
    many = compose_events([GAUSSIAN, dp.SelfComposedDpEvent(RareDpEvent(1e-6), 3), RareDpEvent(2e-6)])
    assert certify(many, 1e-5, ADD).epsilon == pytest.approx(certify(GAUSSIAN, 5e-6, ADD).epsilon, rel=1e-9)
    assert without_rare(flatten(many))[1] == pytest.approx(5e-6)


@pytest.mark.parametrize("rare", [1e-5, 2e-5, 1.0])
def test_nothing_is_guaranteed_where_delta_does_not_cover_it(rare):
    found = certify(compose_events([GAUSSIAN, RareDpEvent(rare)]), 1e-5, ADD)
    assert found.epsilon == math.inf


def test_alone_it_costs_delta_only():
    assert certify(RareDpEvent(1e-6), 1e-5, ADD).epsilon == 0.0
    assert certify(RareDpEvent(1e-6), 1e-7, ADD).epsilon == math.inf


def test_it_composes_with_what_privacy_loss_distributions_account_for():
    sampled = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.0)), 50)
    found = certify(compose_events([sampled, RareDpEvent(5e-6)]), 1e-5, ADD)
    assert found.epsilon == pytest.approx(certify(sampled, 5e-6, ADD).epsilon, rel=1e-6)


def test_a_replaced_unit_pays_twice():
    assert rare_event(1e-6, ADD) == RareDpEvent(1e-6)
    assert rare_event(1e-6, REPLACE) == RareDpEvent(2e-6)
    assert rare_event(0.7, REPLACE) == RareDpEvent(1.0)


def test_it_survives_its_text_and_a_free_one_is_refused():
    event = compose_events([GAUSSIAN, RareDpEvent(1e-6)])
    assert decode(encode(event)) == event
    with pytest.raises(InvalidInputError, match=r"\[0, 1\]"):
        decode({"type": "rare", "delta": 2.0})
    with pytest.raises(PlanError, match="nothing is released for free"):
        check_event(RareDpEvent(0.0))
    with pytest.raises(InvalidInputError):
        certify(RareDpEvent(1.5), 1e-5, ADD)


def test_it_has_no_renyi_curve_and_is_not_sampled():
    event = compose_events([GAUSSIAN, RareDpEvent(1e-6)])
    with pytest.raises(UnsupportedError, match="RareDpEvent"):
        certify_by("rdp", event, 1e-5, ADD)
    with pytest.raises(UnsupportedError):
        certify(dp.PoissonSampledDpEvent(0.1, RareDpEvent(1e-6)), 1e-5, ADD)
    assert pure_epsilon(event, ADD) == math.inf
    assert set(charge_of(event, ADD, [2.0, 8.0], (1.0, 1e-5)).renyi) == {math.inf}


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 9.0])
def test_a_plan_with_a_threshold_is_calibrated_to_its_budget(relation, epsilon):
    release = Release(FrequentValues(3), StableCounts(delta=2e-6, columns=3), mean=False)
    plan = calibrate(Plan({"levels": release}, relation, 1000), epsilon, 1e-5)
    found = certify(plan.event(), 1e-5, relation).epsilon
    assert 0.99 * epsilon < found <= epsilon
