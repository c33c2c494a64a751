"""The secret number of trials of a search: its law is what the accountant was told."""

import math

import numpy as np
import pytest
from scipy import stats
from tests.kernel.toys import source
from tests.statistical.laws import assert_counts

from sordino.kernel.noise import halting_probability


def truncated(shape, p):
    law = stats.nbinom(shape, p)
    return lambda k: np.where(k > 0, law.pmf(k) / law.sf(0), 0.0)


# The mean of the truncated law is shape (1 - p) / (p (1 - p^shape)).
LAWS = {
    "poisson": (6.0, math.inf, stats.poisson(6).pmf),
    "geometric": (6.0, 1.0, stats.geom(1 / 6).pmf),
    "truncated, shape 1/2": (6.0, 0.5, truncated(0.5, 1 / 9)),
    "truncated, shape 3/2": (36 / 7, 1.5, truncated(1.5, 1 / 4)),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", LAWS)
def test_the_number_of_trials_has_the_declared_law_and_not_that_of_another_mean(name):
    mean, shape, pmf = LAWS[name]
    noise, expected = source(51), 6000 * pmf(np.arange(600))

    def counts(mean):
        return np.bincount([noise.trials(mean, shape) for _ in range(6000)], minlength=600)

    assert_counts(counts(mean), expected, tests=len(LAWS))
    for wrong in (2 / 3, 3 / 2):
        with pytest.raises(AssertionError):
            assert_counts(counts(wrong * mean), expected)


def test_a_law_without_zero_never_draws_it():
    noise = source(52)
    assert min(noise.trials(1.05, 0.5) for _ in range(500)) == 1
    assert min(noise.trials(1.05, 1.0) for _ in range(500)) == 1


@pytest.mark.parametrize("mean", [1.0, 1.0 + 1e-9])
@pytest.mark.parametrize("shape", [0.5, 1.0, 1.5])
def test_a_mean_of_one_is_one_trial_at_once(mean, shape):
    assert {source(seed).trials(mean, shape) for seed in range(20)} == {1}


@pytest.mark.parametrize("mean", [1.5, 6.0, 1000.0])
def test_the_halting_probability_is_the_root_in_closed_form(mean):
    root = (1 + math.sqrt(1 + 8 * mean)) / (4 * mean)
    assert halting_probability(mean, 0.5) == pytest.approx(root**2, rel=1e-9)
    assert halting_probability(mean, 1.0) == pytest.approx(1 / mean, rel=1e-9)


def test_a_mean_of_one_halts_at_once():
    assert 1 - 1e-6 < halting_probability(1.0, 0.5) < 1
