"""Secret batches: every row as often as declared, and on its own."""

import numpy as np
import pytest
from scipy import stats
from tests.kernel.toys import source
from tests.statistical.laws import LEVEL, assert_counts


@pytest.mark.statistical
@pytest.mark.parametrize("rate", [0.03, 0.4, 0.97])
def test_each_row_enters_a_poisson_batch_with_the_rate_and_on_its_own(rate):
    noise, population, batches = source(15), 60, 6000
    drawn = np.zeros((batches, population))
    for batch in drawn:
        rows = noise.bernoulli_rows(population, rate)
        assert (np.diff(rows) > 0).all()
        batch[rows] = 1
    z = (drawn.sum(axis=0) - batches * rate) / np.sqrt(batches * rate * (1 - rate))
    assert stats.chi2.sf((z**2).sum(), population) > LEVEL
    assert_counts(
        np.bincount(drawn.sum(axis=1).astype(int), minlength=population + 1),
        batches * stats.binom.pmf(np.arange(population + 1), population, rate),
    )
    pairs = np.corrcoef(drawn.T)[np.triu_indices(population, 1)] * np.sqrt(batches)
    assert 2 * stats.norm.sf(np.abs(pairs).max()) * pairs.size > LEVEL


def test_a_poisson_batch_costs_as_much_as_it_holds():
    rows = source().bernoulli_rows(10**15, 1e-13)  # an array of the population would not fit anywhere
    assert 40 < rows.size < 200
    assert rows.min() >= 0
    assert rows.max() < 10**15


@pytest.mark.parametrize("rate", [1e-18, 1e-300])
def test_a_rate_near_zero_gives_empty_batches(rate):
    assert all(source(s).bernoulli_rows(1000, rate).size == 0 for s in range(20))


def test_a_rate_near_one_gives_all_rows():
    rows = source().bernoulli_rows(1000, 1 - 1e-12)
    assert np.array_equal(rows, np.arange(1000))


def test_a_batch_far_larger_than_expected_is_still_found():
    class LuckyGenerator:
        def geometric(self, rate, size):
            return np.ones(size, dtype=np.int64)

    noise = source()
    noise._gen = LuckyGenerator()
    assert np.array_equal(noise.bernoulli_rows(300, 0.01), np.arange(300))


def test_the_last_and_the_first_row_can_enter():
    seen = np.concatenate([source(s).bernoulli_rows(3, 0.5) for s in range(60)])
    assert set(seen) == {0, 1, 2}


@pytest.mark.statistical
@pytest.mark.parametrize("draw", ["distinct_rows", "distinct_order"])
def test_fixed_size_rows_are_distinct_and_uniform(draw):
    noise, counts, pairs = source(16), np.zeros(12), np.zeros((12, 12))
    for _ in range(6000):
        rows = getattr(noise, draw)(12, 5)
        assert np.unique(rows).size == 5
        counts[rows] += 1
        pairs[np.ix_(rows, rows)] += 1
    assert_counts(counts, np.full(12, 6000 * 5 / 12))
    off = pairs[np.triu_indices(12, 1)]
    assert_counts(off, np.full(66, 6000 * 5 * 4 / (12 * 11)))


@pytest.mark.statistical
def test_an_ordered_draw_is_uniform_in_its_order():
    noise = source(17)
    first = np.bincount([noise.distinct_order(6, 3)[0] for _ in range(6000)], minlength=6)
    last = np.bincount([noise.distinct_order(6, 3)[-1] for _ in range(6000)], minlength=6)
    for counts in (first, last):
        assert_counts(counts, np.full(6, 1000.0), tests=2)
