"""Every solver's plan can be calibrated, and what is certified lands just below the target."""

import pytest
from tests.solver_table import CASES, IDS

from sordino.accounting import calibrate, certify

every_case = pytest.mark.parametrize("case", CASES, ids=IDS)
EPSILON, DELTA = 1.7, 1e-5


@every_case
def test_a_calibrated_plan_is_certified_just_below_its_target(case):
    plan = calibrate(case.plan(), EPSILON, DELTA)
    certified = certify(plan.event(), DELTA, plan.relation).epsilon
    assert 0.99 * EPSILON < certified <= EPSILON


@every_case
def test_less_noise_than_calibrated_is_not_certified(case):
    plan = calibrate(case.plan(), EPSILON, DELTA)
    release = next(iter(plan.releases.values()))
    scale = release.mechanism.multiplier / release.mechanism.relative
    assert certify(case.plan().at(0.9 * scale).event(), DELTA, plan.relation).epsilon > EPSILON


@every_case
def test_no_budget_limit_means_no_noise(case):
    plan = calibrate(case.plan(), float("inf"), DELTA)
    assert all(r.mechanism.multiplier == 0 for r in plan.releases.values())
    assert certify(plan.event(), DELTA, plan.relation).epsilon == float("inf")
