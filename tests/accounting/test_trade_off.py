"""Trade-off curves are exact where a closed form is known, sound elsewhere, and below the worst case."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

import sordino
from sordino.accounting import certify, gaussian_mu
from sordino.accounting.trade_off import NO_BOUND, gaussian_trade_off, trade_off, worst_trade_off
from sordino.kernel.events import RareDpEvent, Relation
from sordino.runs.report import Price

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
SAMPLED = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(1.1)), 50)
TREES = {
    "gaussian": dp.GaussianDpEvent(2.5),
    "laplace": dp.SelfComposedDpEvent(dp.LaplaceDpEvent(4.0), 6),
    "sampled": SAMPLED,
    "selection": dp.ZCDpEvent(0.08),
    "mixed": dp.ComposedDpEvent([dp.GaussianDpEvent(3.0), dp.LaplaceDpEvent(5.0), dp.ZCDpEvent(0.01)]),
}
RATES = (1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9)


@pytest.mark.parametrize(("epsilon", "bet"), [(1.0, 0.54710), (4.0, 0.66236), (8.0, 0.77809)])
def test_a_gaussian_plan_is_a_bet_far_below_the_worst_case(epsilon, bet):
    curve = gaussian_trade_off(gaussian_mu(epsilon, 1e-6))
    assert 0.5 + curve.advantage / 2 == pytest.approx(bet, abs=1e-4)
    assert 0.5 + worst_trade_off(epsilon, 0.0).advantage / 2 == pytest.approx(1 / (1 + math.exp(-epsilon)))


@pytest.mark.parametrize("mu", [1e-3, 0.2, 1.0, 5.0])
def test_true_positive_rates_of_a_gaussian_are_those_of_neyman_and_pearson(mu):
    curve = gaussian_trade_off(mu)
    for rate in RATES:
        best = stats.norm.cdf(stats.norm.ppf(rate) + mu)
        assert best - 1e-12 <= curve.true_positive_rate(rate) <= best + 1e-6
    assert curve.advantage == pytest.approx(2 * stats.norm.cdf(mu / 2) - 1, rel=1e-9)


@pytest.mark.parametrize("name", TREES)
def test_a_curve_passes_through_the_certificate_and_below_the_worst_case(name):
    event = TREES[name]
    curve = trade_off(event, 1e-6, ADD)
    for delta in (1e-6, 1e-3):
        certificate = certify(event, delta, ADD)
        worst = worst_trade_off(certificate.epsilon, delta)
        assert curve.delta(certificate.epsilon) <= delta * (1 + 1e-6) + 1e-14
        assert curve.advantage <= worst.advantage + 1e-9
        for rate in RATES:
            assert curve.true_positive_rate(rate) <= worst.true_positive_rate(rate) + 1e-9


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_sampled_releases_agree_with_another_implementation(relation):
    curve = trade_off(SAMPLED, 1e-6, relation)
    if relation is REPLACE:  # nothing elsewhere to compare with: at least the other relation
        assert curve.advantage > trade_off(SAMPLED, 1e-6, ADD).advantage
        return
    theirs = pld.from_gaussian_mechanism(1.1, sampling_prob=0.05, value_discretization_interval=1e-4)
    theirs = theirs.self_compose(50)
    for epsilon in (0.0, 0.3, 1.0):
        assert curve.delta(epsilon) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=2e-3)


def test_a_test_by_hand_on_laplace_noise_is_never_better_than_the_curve():
    curve = trade_off(dp.LaplaceDpEvent(1.0), 1e-6, ADD)
    assert curve.advantage == pytest.approx(1 - math.exp(-0.5), rel=1e-3)
    for threshold in np.linspace(-4, 5, 40):
        rate, found = stats.laplace.sf(threshold), stats.laplace.sf(threshold - 1)
        assert found <= curve.true_positive_rate(rate) + 1e-12


def test_curves_fall_in_epsilon_and_rise_in_the_rate_and_stay_probabilities():
    for event in TREES.values():
        curve = trade_off(event, 1e-6, ADD)
        values = [curve.delta(e) for e in np.linspace(-5, 5, 41)]
        assert values == sorted(values, reverse=True)
        rates = [curve.true_positive_rate(rate) for rate in RATES]
        assert rates == sorted(rates)
        assert all(0 <= v <= 1 for v in [*values, *rates])
        assert all(found >= rate for found, rate in zip(rates, RATES, strict=True))


def test_what_is_told_rarely_adds_its_chance():
    with_rare = dp.ComposedDpEvent([dp.GaussianDpEvent(2.0), RareDpEvent(1e-4)])
    plain = trade_off(dp.GaussianDpEvent(2.0), 1e-3, ADD)
    assert trade_off(with_rare, 1e-3, ADD).advantage == pytest.approx(plain.advantage + 1e-4, rel=1e-6)


def test_without_noise_nothing_is_bounded():
    assert trade_off(dp.NonPrivateDpEvent(), 1e-6, ADD).advantage == 1.0
    assert NO_BOUND.true_positive_rate(0.01) == 1.0
    assert worst_trade_off(math.inf, 1e-6).advantage == 1.0


def test_a_run_after_another_is_bounded_by_their_composition():
    first, second = dp.LaplaceDpEvent(1.25), dp.GaussianDpEvent(2.0)
    both = trade_off(dp.ComposedDpEvent([first, second]), 1e-6, ADD)
    known = trade_off(second, 1e-6, ADD).after(0.8, 0.0)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        assert known.delta(epsilon) >= both.delta(epsilon) - 1e-9
    assert known.delta(0.0) < 1 - math.exp(-0.8) + 0.25


def test_a_report_that_states_more_than_its_events_is_taken_at_its_word():
    report = sordino.mean(np.arange(9.0), epsilon=1.0, delta=1e-6).privacy
    assert 0.04 < report.trade_off.advantage < 0.12
    stated = replace(report, epsilon=1.5)
    assert stated.trade_off.advantage == pytest.approx(worst_trade_off(1.5, 1e-6).advantage)


def test_a_learned_schema_counts_and_one_of_unknown_price_leaves_no_bound():
    report = sordino.mean(np.arange(9.0), epsilon=1.0, delta=1e-6).privacy
    price = Price(0.5, 1e-6, report.relation, report.unit)
    counted = replace(report, learned=(price,)).trade_off.advantage
    assert report.trade_off.advantage < counted < worst_trade_off(1.5, 2e-6).advantage
    unknown = replace(report, learned=(Price(math.inf, 1.0, report.relation, report.unit),))
    assert unknown.trade_off.advantage == 1.0
