"""Counts of values that nobody listed: told where they are large, rarely where one unit has them."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from scipy import stats

from sordino.errors import InvalidInputError, PlanError
from sordino.kernel import NoiseSource, Relation, StableCounts
from sordino.kernel.events import RareDpEvent


def noise(seed=0):
    return NoiseSource.seeded_not_private(seed)


def test_the_event_is_a_gaussian_one_and_what_is_told_rarely():
    made = StableCounts(3.0, delta=1e-4, columns=2)
    gaussian, rare = made.event(Relation.ADD_REMOVE).events
    assert gaussian == dp.GaussianDpEvent(3.0)
    assert rare == RareDpEvent(1e-4)
    gaussian, rare = made.event(Relation.REPLACE_ONE).events
    assert gaussian == dp.GaussianDpEvent(6.0)
    assert rare == RareDpEvent(2e-4)
    assert made.rho() == 0.5


def test_without_noise_there_is_no_event():
    with pytest.raises(PlanError, match="Calibrate"):
        StableCounts(delta=1e-6).event(Relation.ADD_REMOVE)


def test_the_multiplier_is_checked_and_delta_has_to_be_given():
    with pytest.raises(InvalidInputError, match="noise multiplier"):
        StableCounts(-1.0, delta=1e-6)
    with pytest.raises(InvalidInputError, match="delta in"):
        StableCounts(1.0)


def test_without_noise_a_value_that_one_unit_has_is_not_told():
    made = StableCounts(0.0, delta=1e-6)
    assert made.privatise([{"a": 1, "b": 2}], 1.0, noise()) == [{"b": 2.0}]


def test_the_noise_is_added_as_it_is_drawn():
    drawn = noise(7).normal((2,))
    told = StableCounts(1.5, delta=1e-3).privatise([{"b": 900, "a": 800}], 2.0, noise(7))
    assert told == [{"a": 800 + 3.0 * drawn[0], "b": 900 + 3.0 * drawn[1]}]


@pytest.mark.parametrize(
    "bad", [{"delta": 0.0}, {"delta": 0.5}, {"delta": 0.1, "columns": 0}, {"delta": math.nan}]
)
def test_parameters_that_mean_nothing_are_refused(bad):
    with pytest.raises(InvalidInputError, match=r"delta in \(0, 0.5\)"):
        StableCounts(1.0, **bad)


@pytest.mark.statistical
def test_a_value_that_one_unit_has_is_told_as_rarely_as_stated():
    made = StableCounts(3.0, delta=0.2, columns=2)
    sensitivity, source = math.sqrt(2), noise(1)
    told = [made.privatise([{"a": 1}, {"b": 1}], sensitivity, source) for _ in range(4000)]
    either = sum(bool(first or second) for first, second in told)
    exact = 1 - (1 - 0.1) ** 2
    assert stats.binomtest(either, 4000, exact).pvalue > 1e-4
    assert either / 4000 <= 0.2 + 4 * math.sqrt(0.2 * 0.8 / 4000)
    assert stats.binomtest(either, 4000, 1 - (1 - 0.05) ** 2).pvalue < 1e-4  # half the delta would be caught


@pytest.mark.statistical
def test_the_noise_of_a_count_has_the_declared_law():
    made = StableCounts(1.7, delta=1e-3, columns=2)
    sensitivity, source = 2.0, noise(2)
    draws = np.array([made.privatise([{"a": 1000}, {}], sensitivity, source)[0]["a"] for _ in range(2000)])
    for factor, accepted in ((1, True), (2 / 3, False), (3 / 2, False)):
        law = stats.norm(1000, 1.7 * sensitivity * factor)
        assert bool(stats.kstest(draws, law.cdf).pvalue > 1e-4) is accepted


def test_values_are_told_in_the_order_of_the_alphabet():
    made = StableCounts(0.5, delta=1e-3)
    for counts in ({"b": 99, "c": 70, "a": 80}, {"c": 70, "a": 80, "b": 99}):
        assert list(made.privatise([counts], 1.0, noise())[0]) == ["a", "b", "c"]


def test_only_counts_above_the_threshold_are_told():
    made = StableCounts(2.0, delta=1e-4, columns=3)
    most = made.threshold(math.sqrt(3))
    assert most == pytest.approx(1 + 2.0 * math.sqrt(3) * stats.norm.isf(1e-4 / 3))
    told = made.privatise([{"a": 5, "b": 10_000}, {}, {"c": 3}], math.sqrt(3), noise(3))
    assert all(count > most for counts in told for count in counts.values())
    assert [list(counts) for counts in told] == [["b"], [], []]


def test_answers_of_another_shape_are_refused():
    made = StableCounts(2.0, delta=1e-6, columns=2)
    with pytest.raises(InvalidInputError, match="counts of 2 columns"):
        made.privatise([{"a": 1}], math.sqrt(2), noise())
    with pytest.raises(InvalidInputError, match="counts of 2 columns"):
        made.privatise([{"a": 1}, {}], 1.0, noise())
