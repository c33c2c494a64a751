"""No attack proves more than the certified epsilon, and the same attack convicts broken twins."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.solver_table import CASES, IDS
from tests.statistical.auditing import MULTIPLIER, RUNS, Attack, lower_bound

from sordino.accounting import certify, gaussian_epsilon
from sordino.kernel import ClippedSum, Gaussian, Laplace, NormGamma, Plan, SymmetricGaussian

ADDITIVE = (Gaussian, Laplace, NormGamma, SymmetricGaussian)
pytestmark = pytest.mark.statistical


@cache
def attacks(name: str) -> list[Attack]:
    """Return one attack on each release that adds noise to a vector, the strongest first."""
    case = CASES[IDS.index(name)]
    asked = [q for q in case.run(seed=5).asked if isinstance(q.release.mechanism, ADDITIVE)]
    names = dict.fromkeys(q.name for q in asked)
    found = [Attack.on(case, [q for q in asked if q.name == name]) for name in names]
    return sorted(found, key=lambda attack: -attack.reach)


def _kind(case) -> frozenset:
    """Return what an attack on a solver sees: its queries, its batches, its noise."""
    return frozenset(
        (type(r.query), type(r.sampling), type(r.mechanism), getattr(r.mechanism, "secure", False))
        for r in case.plan().releases.values()
    )


# One row of each kind is enough to show that the attack would convict a twin.
DISTINCT = list({_kind(case): case for case in reversed(CASES)}.values())[::-1]
every_case = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.id, marks=() if any(case is one for one in DISTINCT) else pytest.mark.long)
        for case in CASES
    ],
)
every_kind = pytest.mark.parametrize("case", DISTINCT, ids=[case.id for case in DISTINCT])


@dataclass(frozen=True)
class ThreeTimes(ClippedSum):
    """A query that clips at three times the bound it declares; ``origin`` is its answer without records."""

    inner: Any
    origin: Any

    @property
    def needs(self):
        return self.inner.needs

    def contribution(self, params):
        return self.inner.contribution(params)

    def evaluate(self, records, params):
        tripled = self.inner.evaluate(records, params) * 3
        return tripled - 2 * self.origin.reshape(np.shape(tripled)) if np.any(self.origin) else tripled


@every_case
def test_an_attack_proves_no_more_than_is_claimed(case):
    for attack in attacks(case.id):
        assert attack.proven() <= attack.claim()


@every_kind
def test_half_the_noise_is_caught(case):
    for attack in attacks(case.id)[:1]:
        half = replace(attack.release, mechanism=attack.release.mechanism.at(MULTIPLIER / 2))
        assert attack.proven(half) > attack.claim()


@every_kind
def test_a_clip_three_times_too_wide_is_caught(case):
    for attack in attacks(case.id)[:1]:
        wide = ThreeTimes(attack.release.query, attack.origin)
        assert attack.proven(replace(attack.release, query=wide)) > attack.claim()


@pytest.mark.parametrize("name", ["ight-logistic", "ight-squared-intercept-replace"])
def test_a_run_of_several_releases_proves_no_more_than_its_plan_and_more_than_one_of_them(name):
    attack, steps = attacks(name)[0], 4
    problem = attack.case.problem

    def plan(times=steps):
        return Plan({"audited": replace(attack.release, times=times)}, problem.relation, problem.population)

    proven = attack.proven_of_a_run(plan, steps)
    claims = [certify(plan(t).event(), attack.delta, problem.relation).epsilon for t in (1, steps)]
    assert claims[0] < proven <= claims[1]


def test_the_bound_is_close_to_the_truth_and_below_it():
    rng = np.random.default_rng(2)
    runs = 100 * RUNS
    proven = lower_bound(rng.normal(1.0, 1.0, runs), rng.normal(size=runs), 0.1)
    truth = gaussian_epsilon(1.0, 0.1)
    assert 0.8 * truth < proven <= truth


def test_the_bound_proves_nothing_from_equal_laws():
    rng = np.random.default_rng(3)
    assert lower_bound(rng.normal(size=RUNS), rng.normal(size=RUNS), 0.0) < 0.2


def test_the_claim_is_that_of_one_use():
    attack = attacks("ight-logistic")[0]
    assert attack.claim() == pytest.approx(
        certify(attack.release.mechanism.event(attack.case.problem.relation), 0.1, "add-remove").epsilon
    )
