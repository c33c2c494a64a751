"""A party believes nothing that a plan says about its own privacy."""

import copy
import math

import pytest
from dp_accounting import dp_event as dp
from tests.parties.helpers import linear_task

from sordino.accounting import certify
from sordino.accounting.trees import encode
from sordino.errors import CalibrationError, InvalidInputError, SordinoError
from sordino.kernel import Relation
from sordino.parties.mpc.config import Policy, check_plan
from sordino.parties.mpc.plan import JointPlan, make_plan
from sordino.parties.words import PlanRefusedError

POLICY = Policy(max_epsilon=1.0, max_delta=1e-5)
TASK = linear_task(5, max_iter=4)


def _members(count=3):
    return [
        {"name": f"m{i}", "host": "h", "port": 1, "records": 100 + i, "fingerprint": f"{i:064d}"}
        for i in range(count)
    ]


def _plan(epsilon=0.8, **more):
    budget = {"epsilon": epsilon, "delta": 1e-6, "relation": "add-remove", "unit": "record"}
    return make_plan("tests", _members(), TASK, budget, **more)


def _changed(plan, change):
    text = copy.deepcopy(dict(plan.text))
    change(text)
    return JointPlan.read(text)


def test_an_honest_plan_is_certified_at_its_own_epsilon():
    plan = _plan()
    found = check_plan(plan, POLICY, 0.0).certificate
    assert 0.99 * 0.8 < found.epsilon <= 0.8
    multiplier = plan.text["noise"]["multipliers"]["gradient"]
    event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(multiplier), 4)
    assert certify(event, 1e-6 - plan.slack, Relation.ADD_REMOVE).epsilon == found.epsilon


def test_the_distance_of_the_noise_is_paid_from_delta():
    plan = _plan()
    expected = (1 + math.exp(0.8)) * 5 * 4 * plan.share.distance
    assert plan.slack == pytest.approx(expected)
    coarse = certify(plan.kernel_plan.event(), 1e-6 - 1e-7, Relation.ADD_REMOVE).epsilon
    assert coarse > plan.certificate.epsilon  # less delta costs epsilon


def _less_noise(text):
    text["noise"]["multipliers"]["gradient"] *= 0.5


def _less_noise_and_its_event(text):
    _less_noise(text)
    multiplier = text["noise"]["multipliers"]["gradient"]
    event = dp.ComposedDpEvent([dp.SelfComposedDpEvent(dp.GaussianDpEvent(multiplier), 4)])
    text["noise"]["event"] = encode(event)


def _more_steps(text):
    text["task"]["params"]["max_iter"] = 400


def _two_members(text):
    del text["members"][2]


def _too_many_colluders(text):
    text["threshold"] = 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_less_noise, "not the one of its task"),
        (_less_noise_and_its_event, "what the plan claims"),
        (_more_steps, "not the one of its task"),
        (_two_members, "at least 3 parties"),
        (_too_many_colluders, "threshold"),
    ],
)
def test_a_bent_plan_is_refused(change, words):
    with pytest.raises(SordinoError, match=words):
        check_plan(_changed(_plan(), change), POLICY, 0.0)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Policy(0.5, 1e-5), "max_epsilon"),
        (Policy(1.0, 1e-7), "max_delta"),
        (Policy(1.0, 1e-5, min_parties=4), "parties >= 4"),
        (Policy(1.0, 1e-5, min_threshold=2), "threshold >= 2"),
        (Policy(1.0, 1e-5, modes=("secure-aggregation",)), "mode"),
        (Policy(1.0, 1e-5, slack_delta=1e-20), "slack_delta"),
    ],
)
def test_a_policy_that_is_stricter_refuses(policy, words):
    with pytest.raises(PlanRefusedError, match=words):
        check_plan(_plan(), policy, 0.0)


def test_slack_of_earlier_runs_counts():
    plan = _plan()
    policy = Policy(1.0, 1e-5, slack_delta=2.5 * plan.slack)
    check_plan(plan, policy, plan.slack)
    with pytest.raises(PlanRefusedError, match="slack_delta"):
        check_plan(plan, policy, 2 * plan.slack)


def test_two_plans_of_the_same_task_have_different_names():
    assert _plan().digest != _plan().digest


@pytest.mark.parametrize("epsilon", [math.inf, 0.0])
def test_a_plan_without_noise_or_budget_cannot_be_made(epsilon):
    with pytest.raises((CalibrationError, InvalidInputError)):
        _plan(epsilon=epsilon)


@pytest.mark.parametrize("text", [{}, [], None, {"format": 9}])
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(InvalidInputError, match="Expected a plan"):
        JointPlan.read(text)


@pytest.mark.parametrize("old", [1, 2])
def test_a_plan_of_version_0_1_is_refused_with_the_reason_and_the_way_on(old):
    with pytest.raises(InvalidInputError, match=r"never converted.*walk-through"):
        _changed(_plan(), lambda text: text.update(format=old))
    budget = {"epsilon": 0.8, "delta": 1e-6, "relation": "add-remove", "unit": "record"}
    with pytest.raises(InvalidInputError, match="names an estimator"):
        make_plan("tests", _members(), {"kind": "gradient", "loss": "logistic", "features": 4}, budget)
