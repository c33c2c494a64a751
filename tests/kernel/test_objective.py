"""Noise inside an objective: its law, its price, and an attack on it."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from scipy import stats
from tests.statistical.auditing import lower_bound

from sordino.accounting import certify
from sordino.errors import InvalidInputError, PlanError
from sordino.kernel import NoiseSource, Relation, TiltedObjective
from sordino.kernel.events import TiltDpEvent
from sordino.kernel.mechanism import OUTPUT_MULTIPLE


@dataclass
class Quadratic:
    """``(a/2) theta^2 - c theta``, minimised exactly under a tilt."""

    a: float
    c: float
    output_sensitivity: float = 0.0
    size: int = 1

    def minimise(self, tilt):
        return (self.c - tilt) / self.a


def drawn(mechanism, task, sensitivity, count=4000, seed=0):
    noise = NoiseSource.seeded_not_private(seed)
    return np.array([mechanism.privatise(task, sensitivity, noise)[0] for _ in range(count)])


@pytest.mark.statistical
def test_the_minimiser_of_a_quadratic_is_gaussian_with_the_noise_of_the_tilt():
    found = drawn(TiltedObjective(1.7, jacobian=0.1), Quadratic(2.5, 0.8), 0.6)
    std = 1.7 * 0.6 / 2.5
    assert stats.kstest(found, stats.norm(0.8 / 2.5, std).cdf).pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(found, stats.norm(0.8 / 2.5, wrong * std).cdf).pvalue < 1e-4


@pytest.mark.statistical
def test_the_error_of_the_minimiser_is_covered_by_output_noise():
    found = drawn(TiltedObjective(1.7, jacobian=0.0), Quadratic(1e12, 0.0, 0.4), 0.6)
    std = OUTPUT_MULTIPLE * 1.7 * 0.4
    assert stats.kstest(found, stats.norm(0, std).cdf).pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(found, stats.norm(0, wrong * std).cdf).pvalue < 1e-4


@pytest.mark.parametrize("relation", list(Relation))
def test_the_event_is_a_tilt_and_a_little_gaussian(relation):
    tilt, output = TiltedObjective(4.0, jacobian=0.3).event(relation).events
    assert tilt == TiltDpEvent(4.0 * relation.contributions, 0.3)
    assert output == dp.GaussianDpEvent(4.0 * OUTPUT_MULTIPLE * relation.contributions)
    assert TiltedObjective(4.0, jacobian=0.3).rho() == 0.5


def test_vector_b2_the_tail_bounds_of_the_notes_are_above_what_is_certified():
    jacobian = math.log(1 + 0.25 / 5)
    assert jacobian == pytest.approx(0.0487902, rel=1e-5)
    left, s = 0.5 - jacobian, 9.90154
    assert 2 * stats.norm.cdf(-left * s + 1 / (2 * s)) == pytest.approx(1e-5, rel=1e-3)
    s2 = 21.4760
    assert math.exp(-((left * s2 / 2 - 1 / s2) ** 2) / 2) == pytest.approx(1e-5, rel=1e-3)
    for multiplier, relation in ((s, Relation.ADD_REMOVE), (s2 / 2, Relation.REPLACE_ONE)):
        event = TiltedObjective(multiplier, jacobian=jacobian).event(relation)
        assert 0.36 < certify(event, 1e-5, relation).epsilon < 0.5


@pytest.mark.statistical
def test_an_attack_on_the_tilt_stays_below_the_claim_and_convicts_a_third_of_the_noise():
    """Neighbours: one record with gradient 0.6 everywhere (a linear loss), present or not."""

    def proven(multiplier):
        mechanism = TiltedObjective(multiplier, jacobian=0.0)
        pair = [drawn(mechanism, Quadratic(2.5, c), 0.6, seed=seed) for c, seed in ((0.6, 1), (0.0, 2))]
        return lower_bound(*pair, 0.1)

    event = TiltedObjective(1.5, jacobian=0.0).event(Relation.ADD_REMOVE)
    claim = certify(event, 0.1, Relation.ADD_REMOVE).epsilon
    assert 0 < proven(1.5) <= claim
    assert proven(0.5) > claim


def test_the_output_noise_costs_a_900th_of_the_tilt():
    tilt, output = TiltedObjective(1.7, jacobian=0.0).event(Relation.ADD_REMOVE).events
    assert (tilt.noise_multiplier / output.noise_multiplier) ** 2 == pytest.approx(1 / 900)


def test_both_draws_are_added_one_after_the_other():
    task, noise = Quadratic(2.5, 0.8, 0.4, size=3), NoiseSource.seeded_not_private(3)
    tilt, error = 1.7 * 0.6 * noise.normal(3), 30 * 1.7 * 0.4 * noise.normal(3)
    found = TiltedObjective(1.7, jacobian=0.1).privatise(task, 0.6, NoiseSource.seeded_not_private(3))
    np.testing.assert_allclose(found, (0.8 - tilt) / 2.5 + error)


def test_no_noise_is_not_private():
    assert TiltedObjective(0.0, jacobian=0.3).event(Relation.ADD_REMOVE) == dp.NonPrivateDpEvent()
    with pytest.raises(PlanError):
        TiltedObjective(jacobian=0.3).event(Relation.ADD_REMOVE)


def test_the_bound_on_the_determinants_is_declared_and_finite():
    with pytest.raises(TypeError, match="jacobian"):
        TiltedObjective(1.7)
    for bound in (-0.1, math.inf, math.nan):
        with pytest.raises(InvalidInputError, match="log determinants"):
            TiltedObjective(jacobian=bound)
    assert TiltedObjective(jacobian=0.0).jacobian == 0.0


@pytest.mark.parametrize("facts", [{"multiplier": -0.1}, {"multiplier": math.inf}, {"relative": 0.0}])
def test_a_tilt_that_is_no_noise_level_is_refused(facts):
    with pytest.raises(InvalidInputError, match="noise"):
        TiltedObjective(jacobian=0.3, **facts)
