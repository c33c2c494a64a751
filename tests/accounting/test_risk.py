"""Noise for a risk: against riskcal and gdpnum, by the plan's own curve, and never above what was asked."""

import math

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import norm

import sordino
from sordino import Risk
from sordino.accounting.trade_off import calibrate_to_risk, gaussian_trade_off, trade_off, worst_trade_off
from sordino.cli.program import main
from sordino.errors import CalibrationError, InvalidInputError, UnsupportedError
from sordino.kernel import Full, Gaussian, Plan, Poisson, Relation, Release
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmGradient
from sordino.runs import Price
from sordino.runs.training import Training

# riskcal 1.5.1 (get_advantage_for_dpsgd, get_beta_for_dpsgd at alpha = .01) and gdpnum 0.1.2 (get_beta, which
# agrees in all digits; mu): (noise multiplier, sampling rate, steps) -> advantage, beta, mu.
ANCHORS = {
    (4.0, 1.0, 1): (0.09947644966023313, 0.9810691124460539, 0.2499999940604666),
    (1.0, 0.01, 1000): (0.16101842080506576, 0.9709002789031983, 0.4393596052561093),
    (1.5, 0.05, 200): (0.20394090891794067, 0.962445623407433, 0.5658799884326919),
    (2.0, 1.0, 10): (0.5708047022928813, 0.7719278327323038, 1.5811384467732859),
}
# riskcal 1.5.1, find_noise_multiplier_for_advantage(advantage_tol=1e-7).
MULTIPLIERS = {(0.1, 1.0, 1): 3.97895, (0.1, 0.01, 1000): 1.42246, (0.3, 0.05, 200): 1.08668}


def plan_of(rate, steps, relation=Relation.ADD_REMOVE):
    sampling = Full() if rate == 1.0 else Poisson(rate)
    release = Release(GlmGradient(LOSSES["logistic"], 0.7), Gaussian(), sampling, steps)
    return Plan({"gradient": release}, relation, 10_000)


@pytest.mark.parametrize("facts", ANCHORS, ids=str)
def test_the_curve_agrees_with_riskcal_and_gdpnum(facts):
    multiplier, rate, steps = facts
    advantage, beta, mu = ANCHORS[facts]
    curve = trade_off(plan_of(rate, steps).at(multiplier).event(), 1e-5, Relation.ADD_REMOVE)
    assert curve.advantage == pytest.approx(advantage, rel=2e-3)
    assert 1.0 - curve.true_positive_rate(0.01) == pytest.approx(beta, abs=2e-4)
    # gdpnum's mu is that of the best Gaussian curve below: never an easier target for the attacker.
    assert curve.advantage <= gaussian_trade_off(mu).advantage * (1 + 2e-3)


@pytest.mark.parametrize("facts", MULTIPLIERS, ids=str)
def test_noise_for_an_advantage_agrees_with_riskcal(facts):
    advantage, rate, steps = facts
    ready = calibrate_to_risk(plan_of(rate, steps), Risk(max_advantage=advantage), 1e-5)
    found = ready.releases["gradient"].mechanism.multiplier
    assert found == pytest.approx(MULTIPLIERS[facts], rel=2e-3)
    attained = trade_off(ready.event(), 1e-5, Relation.ADD_REMOVE).advantage
    assert 0.998 * advantage < attained <= advantage


def test_a_gaussian_plan_has_the_closed_form():
    ready = calibrate_to_risk(plan_of(1.0, 1), Risk(max_advantage=0.1), 1e-6)
    mu = 2 * norm.ppf(0.55)
    assert 1 / ready.releases["gradient"].mechanism.multiplier == pytest.approx(mu, rel=2e-4)
    guess = calibrate_to_risk(plan_of(1.0, 1), Risk(max_posterior=0.55), 1e-6)
    assert guess.releases["gradient"].mechanism.multiplier == pytest.approx(1 / mu, rel=2e-4)
    rates = Risk(max_true_positive_rate=0.05, false_positive_rate=0.01)
    found = calibrate_to_risk(plan_of(1.0, 1), rates, 1e-6).releases["gradient"].mechanism.multiplier
    assert 1 / found == pytest.approx(norm.ppf(0.99) - norm.ppf(0.95), rel=1e-3)


@pytest.mark.parametrize("prior", [0.1, 0.5, 0.8])
def test_a_posterior_is_that_of_the_best_guess(prior):
    """By simulation of the likelihood ratio test on N(0, 1) and N(mu, 1)."""
    mu, public = 1.3, np.random.default_rng(0)
    there = public.random(400_000) < prior
    seen = public.normal(size=there.size) + mu * there
    says = mu * seen - mu**2 / 2 > math.log((1 - prior) / prior)
    risk = Risk(max_posterior=0.99, prior=prior)
    assert risk.of(gaussian_trade_off(mu)) == pytest.approx((says == there).mean(), abs=3e-3)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_estimators_and_statistics_take_a_risk(relation, tmp_path):
    X = np.linspace(-1, 1, 2000)[:, None]
    risk = Risk(max_advantage=0.2)
    model = sordino.LinearRegression(risk, 1e-6, data_norm=1.0, target_bound=1.0, relation=relation)
    report = model.fit(X, X[:, 0]).privacy_
    assert 0.1995 < report.trade_off.advantage <= 0.2
    assert "noise calibrated to max_advantage=0.2" in report.notes
    assert sordino.load(model.save(tmp_path / "m.sordino")).epsilon == risk
    count = sordino.count(X[:, 0] > 0, risk, 1e-6, relation=relation)
    assert 0.1995 < count.privacy.trade_off.advantage <= 0.2
    with pytest.raises(UnsupportedError, match="takes epsilon as a number"):
        sordino.PrivateSearchCV(model, {"alpha": [0.1, 1.0]}, epsilon=risk).fit(X, X[:, 0])


def test_a_risk_counts_what_was_paid_before():
    price = Price(0.05, 1e-7, Relation.ADD_REMOVE, "record")
    alone = calibrate_to_risk(plan_of(1.0, 1), Risk(max_advantage=0.1), 1e-6)
    both = calibrate_to_risk(plan_of(1.0, 1), Risk(max_advantage=0.1), 1e-6, (price.epsilon, price.delta))
    first, second = (p.releases["gradient"].mechanism.multiplier for p in (alone, both))
    assert second > 1.02 * first
    curve = gaussian_trade_off(1.0 / second).after(price.epsilon, price.delta)
    assert 0.0999 < curve.advantage <= 0.1
    with pytest.raises(CalibrationError, match="No noise keeps"):
        calibrate_to_risk(plan_of(1.0, 1), Risk(max_advantage=0.1), 1e-6, (1.0, 1e-6))


@pytest.mark.parametrize("epsilon", [-0.8, 0.0, 0.3, 1.0, 1.3])
def test_what_came_before_counts_as_randomised_response(epsilon):
    def outcomes(e, delta):  # chances under both neighbours
        up = (1 - delta) / (1 + math.exp(-e))
        return np.array([[up, 1 - delta - up, delta, 0.0], [1 - delta - up, up, 0.0, delta]])

    (p, q), (r, s) = outcomes(0.5, 1e-3), outcomes(0.7, 1e-2)
    exact = np.maximum(np.outer(p, r) - math.exp(epsilon) * np.outer(q, s), 0.0).sum()
    found = worst_trade_off(0.7, 1e-2).after(0.5, 1e-3).delta(epsilon)
    assert exact <= found < exact + 1e-12


@pytest.mark.parametrize(
    "given",
    [{}, {"max_advantage": 0.1, "max_posterior": 0.6}, {"max_advantage": 0.0}, {"max_advantage": 1.0},
     {"max_posterior": 0.5}, {"max_posterior": 0.7, "prior": 0.8}, {"max_advantage": "a"},
     {"max_true_positive_rate": 0.01}],
    ids=str,
)  # fmt: skip
def test_odd_risks_are_refused(given):
    with pytest.raises(InvalidInputError):
        Risk(**given)


def test_a_promise_that_does_not_keep_its_risk_cannot_be_made():
    from sordino.runs import Ask
    from sordino.runs.promise import Promise

    ask = Ask.checked(Risk(max_advantage=0.1), 1e-6, 1000)
    loud = Promise.made(ask, plan_of(1.0, 1)).plan
    half = loud.at(0.5 * loud.releases["gradient"].mechanism.multiplier)
    with pytest.raises(CalibrationError, match="does not keep"):
        Promise.given(Ask(50.0, 1e-6, risk=ask.risk), half)


def test_the_commands_take_a_risk():
    words = ["account", "noise", "--epsilon", "max_advantage=.1", "--rows", "1000", "--steps", "1"]
    told = CliRunner().invoke(main, [*words, "--json"])
    assert told.exit_code == 0, told.output
    assert '"noise_multiplier": 3.97' in told.output
    found, _ = Training(1000, 1000, 1).least_noise(Risk(max_advantage=0.1))
    assert found == pytest.approx(3.979, rel=1e-3)
    odd = CliRunner().invoke(main, [*words[:3], "max_advantage=2", *words[4:]])
    assert odd.exit_code == 2
    assert "neither a number nor a risk" in odd.output
