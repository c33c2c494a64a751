"""Intervals of quantiles cover what they say: ties, constants, zeros, and continuous columns."""

import numpy as np
import pytest
from scipy import stats

import sordino
from sordino.solvers.heavy import ranks as intervals
from sordino.solvers.heavy.location import border_variances, counts_below
from sordino.testing import seeded_noise_not_private

pytestmark = pytest.mark.statistical
REPEATS, N, Q = 110, 400, np.array([0.1, 0.5, 0.8])  # half of the margins would pass 3 times in a million
FEWEST = stats.binom.ppf(1e-4, REPEATS, 0.95)

DRAWS = {
    "continuous": (lambda r: r.normal(50, 20, N), stats.norm(50, 20).ppf(Q)),
    "integer": (lambda r: r.integers(0, 12, N), stats.randint(0, 12).ppf(Q)),
    "constant": (lambda r: np.full(N, 40.0), np.full(3, 40.0)),
    "zero-inflated": (
        lambda r: np.where(r.random(N) < 0.6, 0.0, r.exponential(9.0, N)),
        np.array([0.0, 0.0, -9.0 * np.log(0.5)]),
    ),
}


def covered(draw, truth, bounds):
    """Return how often the sample's and the population's quantiles are covered."""
    hits = np.zeros((2, len(Q)))
    for seed in range(REPEATS):
        x = np.asarray(draw(np.random.default_rng(seed)), dtype=float)
        with seeded_noise_not_private(seed + 10_000):
            low, high = sordino.quantiles(x, Q, epsilon=2.0, bounds=bounds, resolution=10).interval
        upper = np.quantile(x, Q, method="higher")
        hits[0] += (low <= np.quantile(x, Q, method="lower")) & (upper <= high)
        hits[1] += (low <= truth) & (truth <= high)
    return hits


@pytest.mark.parametrize("bounds", [None, (0.0, 100.0)], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("kind", DRAWS)
def test_intervals_cover_the_sample_and_the_population_as_often_as_they_say(kind, bounds):
    assert covered(*DRAWS[kind], bounds).min() >= FEWEST


def test_a_twin_with_a_fifth_of_the_margin_is_caught(monkeypatch):
    honest = intervals.rank_margins
    monkeypatch.setattr(intervals, "rank_margins", lambda *a: honest(*a) / 5)
    assert covered(*DRAWS["continuous"], (0.0, 100.0)).min() < FEWEST


@pytest.mark.parametrize("depth", [2, 3, 7])
def test_the_noise_of_a_rank_is_what_the_margins_take_it_for(depth):
    each = np.array([counts_below(node, depth, 0.0) for node in np.eye(2 ** (depth + 1) - 2)])
    np.testing.assert_allclose((each**2).sum(axis=0)[:-1], border_variances(depth)[1:])


def test_without_noise_the_interval_is_a_few_records_wide():
    x = np.arange(1000.0)
    low, high = sordino.quantiles(x, [0.0, 1.0], epsilon=float("inf"), bounds=(0.0, 1024.0)).interval
    np.testing.assert_allclose([low, high], [[0, 998], [2, 1000]], atol=1.1)


@pytest.mark.parametrize("bounds", [None, (0.0, 100.0)])
def test_a_wide_integer_column_is_covered(bounds):
    x, q, hits = np.random.default_rng(0).integers(17, 90, 5000), [0.25, 0.5, 0.75], np.zeros(3)
    for seed in range(20):
        with seeded_noise_not_private(seed):
            low, high = sordino.quantiles(x, q, epsilon=1.0, bounds=bounds).interval
        hits += (low <= np.quantile(x, q)) & (np.quantile(x, q) <= high)
    assert hits.min() >= 13
