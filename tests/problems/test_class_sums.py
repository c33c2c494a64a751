"""The frequencies of classes: centred sums of the norm they claim, log odds that noise does not move far."""

import math

import numpy as np
import pytest

from sordino.execute import LocalExecutor
from sordino.kernel import Relation
from sordino.problems.queries import ClassSums, expected_mean, log_shares


def sums(query, targets, weights=None):
    return query.evaluate(
        LocalExecutor(np.zeros((len(targets), 2)), targets, 1.0, 0.0, weights).records(None), None
    )


def test_sums_say_by_how_much_a_class_is_more_frequent_than_its_share():
    np.testing.assert_allclose(sums(ClassSums(1), np.array([1.0, 1.0, 1.0, -1.0])), [-1.0, 1.0])
    np.testing.assert_allclose(sums(ClassSums(3), np.array([0.0, 2.0, 2.0])), [0.0, -1.0, 1.0])


def test_a_target_that_is_no_class_adds_nothing():
    np.testing.assert_array_equal(sums(ClassSums(3), np.array([3.0, -1.0, 0.5, 1e300])), np.zeros(3))


def test_weights_count_and_none_counts_more_than_one():
    found = sums(ClassSums(1), np.array([1.0, -1.0]), np.array([0.25, 7.0]))
    np.testing.assert_allclose(found, [0.375, -0.375])


@pytest.mark.parametrize("outputs", [1, 3, 7])
def test_the_sensitivity_is_reached_and_never_passed(outputs):
    query = ClassSums(outputs)
    classes = [-1.0, 1.0] if outputs == 1 else np.arange(float(outputs))
    one = [sums(query, np.array([y])) for y in classes]
    assert max(map(np.linalg.norm, one)) == pytest.approx(query.sensitivity(Relation.ADD_REMOVE, None))
    halves = [sums(query, np.array([y]), np.array([a])) for y in classes for a in (0.0, 0.5, 1.0)]
    moved = max(float(np.linalg.norm(a - b)) for a in halves for b in halves)
    assert moved == pytest.approx(query.sensitivity(Relation.REPLACE_ONE, None))


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.98])
def test_log_odds_without_noise_are_those_of_the_shares(share):
    assert log_shares(np.array([0.5 - share, share - 0.5]), 0.0) == pytest.approx(
        math.log(share / (1 - share)), abs=0.02
    )
    found = log_shares(np.array([share, 1 - share, 0.0]) / 2 + np.array([-1 / 3, -1 / 3, 1 / 6]), 0.0)
    assert found.sum() == pytest.approx(0.0, abs=1e-9)
    assert found[0] - found[1] == pytest.approx(math.log(share / (1 - share)), abs=0.02)


def test_a_share_below_zero_becomes_small_and_noise_alone_becomes_alike():
    assert -8 < log_shares(np.array([0.51, -0.51]), 0.01) < -4
    assert abs(log_shares(np.array([2.0, -2.0]), 20.0)) < 0.01
    assert abs(log_shares(np.array([0.2, -0.2]), 5.0)) < 0.01


@pytest.mark.parametrize("counts", [False, True])
def test_a_mean_is_kept_where_it_is_clear_and_next_to_nothing_where_it_is_noise(counts):
    assert expected_mean(37.0, 0.0, 100.0, counts) == 37.0
    assert expected_mean(37.0, 2.0, 100.0, counts) == pytest.approx(37.0, rel=0.01)
    assert expected_mean(130.0, 0.1, 100.0, counts) == 100.0
    assert abs(expected_mean(20.0, 300.0, 100.0)) < 1.0
    assert 0.0 < expected_mean(-50.0, 20.0, 100.0, counts=True) < 10.0
    assert expected_mean(1e-9, 1e-12, 100.0) == 1e-9


def test_a_mean_seen_with_laplace_noise_alone_is_about_zero():
    """One in twelve was followed by .7 deviations of its noise or more, one in twenty is."""
    seen = np.random.default_rng(0).laplace(size=1000) / np.sqrt(2.0)
    found = np.array([expected_mean(one, 1.0, 10.0, laplace=True) for one in seen])
    assert np.sqrt(np.mean(found**2)) < 0.45
    moved = np.array([expected_mean(4.0 + one, 1.0, 10.0, laplace=True) for one in seen[:300]])
    assert np.sqrt(np.mean(np.square(moved - 4.0))) < 2.0  # of the noise


def test_the_error_of_an_expected_mean_is_at_most_one_and_a_half_of_its_noise():
    noise = np.random.default_rng(0).normal(size=300)
    for mean in (0.0, 1.0, 2.0, 3.0, 4.0, 6.0):
        found = np.array([expected_mean(mean + z, 1.0, 30.0) for z in noise])
        assert np.sqrt(np.mean((found - mean) ** 2)) < (0.6 if mean == 0.0 else 1.5)
