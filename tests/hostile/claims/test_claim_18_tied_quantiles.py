"""Claim 18: the interval of a quantile covers it as often as it says, on integers and ties too."""

import numpy as np
import pytest

import sordino
from sordino.testing import seeded_noise_not_private

PUBLIC = np.random.default_rng(0)
COLUMNS = {
    "hours": np.where(PUBLIC.random(5000) < 0.5, 40, PUBLIC.integers(1, 99, 5000)),
    "age": PUBLIC.integers(17, 90, 5000),
    "education": PUBLIC.choice([9, 10, 13], 5000),
}


@pytest.mark.parametrize("bounds", [None, (0.0, 100.0)])
@pytest.mark.parametrize("column", COLUMNS)
def test_integer_columns_are_covered(column, bounds):
    x, q = COLUMNS[column], [0.25, 0.5, 0.75]
    hits = np.zeros(3)
    for seed in range(40):
        with seeded_noise_not_private(seed):
            low, high = sordino.quantiles(x, q, epsilon=1.0, bounds=bounds).interval
        hits += (low <= np.quantile(x, q)) & (np.quantile(x, q) <= high)
    assert hits.min() >= 32  # a coverage of 95 % falls below this once in a million


def test_bounds_at_the_ends_of_the_number_line_do_not_overflow():
    found = sordino.quantiles(np.arange(100.0), 0.5, bounds=(-1.7e308, 1.7e308))
    assert found.interval[0] <= 49.5 <= found.interval[1]
