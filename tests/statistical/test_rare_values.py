"""Intervals hold where a few records carry all of the answer, or none was drawn, and where nothing varies."""

import numpy as np
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin

import sordino
from sordino.testing import seeded_noise_not_private

pytestmark = pytest.mark.statistical
REPEATS = 200
ENOUGH = stats.binom.ppf(1e-3, REPEATS, 0.95)


class Zero(RegressorMixin, BaseEstimator):
    """A model that always says zero."""

    def predict(self, X):
        return np.zeros(len(X))


def group_mean(x):
    table = sordino.group_by(["a"] * len(x), levels=["a"]).mean(x, 50.0, bounds=(0.0, 1.0))
    return table.low[0], table.high[0]


def squared_error(x):
    found = sordino.private_score(
        Zero(), np.zeros((len(x), 1)), x, metric="mse", bounds=(-1.0, 1.0), epsilon=50.0
    )
    return found.interval


def held(interval_of, draw, truth):
    """Return how many intervals of fresh samples hold the truth."""
    with seeded_noise_not_private(5):
        ends = np.array([interval_of(draw()) for _ in range(REPEATS)])
    return int(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).sum())


@pytest.mark.parametrize("interval_of", [group_mean, squared_error])
@pytest.mark.parametrize("share", [0.01, 0.05])
def test_a_mean_that_few_records_carry_is_inside_its_interval(interval_of, share):
    rng = np.random.default_rng(7)
    assert held(interval_of, lambda: (rng.random(60) < share).astype(float), share) >= ENOUGH


def test_the_variance_of_a_constant_is_inside_its_interval():
    assert held(lambda x: sordino.variance(x, 1.0).interval, lambda: np.full(3000, 7.3), 0.0) >= ENOUGH
