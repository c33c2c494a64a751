"""Intervals of counts, sums, means and quantiles by group hold what they say."""

import numpy as np
import pytest
from scipy import stats

import sordino
from sordino.solvers.heavy import ranks as groups
from sordino.testing import seeded_noise_not_private

pytestmark = pytest.mark.statistical
LEVELS, SHARES = ("large", "small"), (0.85, 0.15)
COLUMNS = {  # how to draw, public bounds, a law to take the truth from
    "continuous": (stats.norm(50, 20), (-50.0, 150.0)),
    "integer": (stats.poisson(4), (0.0, 30.0)),
    "tied": (stats.rv_discrete(values=([0, 10, 20], [0.5, 0.3, 0.2])), (0.0, 40.0)),
    "heavy": (stats.t(2.2, loc=5), (-200.0, 200.0)),
}


def clipped_mean(law, bounds):
    """Return the mean of the law after the clip, by a fine grid of its quantiles."""
    return float(np.clip(law.ppf((np.arange(200_000) + 0.5) / 200_000), *bounds).mean())


def covered(kind, column, repeats, n=1500, epsilon=1.0):
    """Return how often the intervals of both groups hold the truth."""
    law, bounds = COLUMNS[column]
    rng, hits, truth = np.random.default_rng(3), np.zeros(2), clipped_mean(law, bounds)
    middle = float(np.clip(law.ppf(0.5), *bounds))
    with seeded_noise_not_private(11):
        for _ in range(repeats):
            x = np.asarray(law.rvs(size=n, random_state=rng), dtype=float)
            owner = rng.choice(LEVELS, n, p=SHARES)
            by = sordino.group_by(owner, levels=LEVELS)
            if kind == "count":
                table, right = by.count(epsilon), [(owner == g).sum() for g in LEVELS]
            elif kind == "sum":
                table = by.sum(x, epsilon, bounds=bounds)
                right = [np.clip(x[owner == g], *bounds).sum() for g in LEVELS]
            elif kind == "mean":
                table, right = by.mean(x, epsilon, bounds=bounds), [truth, truth]
            else:
                table, right = by.quantile(x, 0.5, epsilon, bounds=bounds), [middle, middle]
            hits += (table.low <= right) & (right <= table.high)
    return hits


KINDS = ["count", "sum", "mean", "quantile"]


@pytest.mark.parametrize(
    ("kind", "column"),
    [("count", "integer"), *((kind, column) for kind in KINDS[1:] for column in COLUMNS)],  # counts read none
)
def test_intervals_cover(kind, column):
    repeats = 40
    assert covered(kind, column, repeats).min() >= stats.binom.ppf(1e-4, repeats, 0.95)


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("kind", KINDS)
def test_intervals_cover_within_two_points_in_a_thousand_repeats(kind, column, epsilon):
    assert covered(kind, column, 1000, epsilon=epsilon).min() >= 930


@pytest.mark.parametrize("kind", ["count", "mean"])
def test_a_twin_with_half_the_noise_in_its_interval_is_caught(kind, monkeypatch):
    honest = groups.noise_std
    monkeypatch.setattr(groups, "noise_std", lambda *a: honest(*a) / 2)
    assert covered(kind, "tied", 60, epsilon=0.3).min() < stats.binom.ppf(1e-4, 60, 0.95)


def test_an_interval_of_a_mean_is_at_most_three_times_its_error_wide():
    law, bounds = COLUMNS["continuous"]
    rng, errors, halves = np.random.default_rng(3), [], []
    with seeded_noise_not_private(11):
        for _ in range(60):
            x = law.rvs(size=1500, random_state=rng)
            table = sordino.group_by(rng.choice(LEVELS, 1500, p=SHARES), levels=LEVELS).mean(
                x, 1.0, bounds=bounds
            )
            errors.append(table.value - 50.0)
            halves.append((table.high - table.low) / 2)
    assert (np.median(halves, axis=0) <= 3.0 * 1.2 * np.sqrt(np.mean(np.square(errors), axis=0))).all()
