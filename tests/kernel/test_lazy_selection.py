"""A lazy selection has exactly the law of the dense one, whatever it does not draw."""

import numpy as np
import pytest
from scipy.special import softmax
from tests.kernel.toys import source
from tests.statistical.laws import assert_counts

from sordino.kernel import SparseVector
from sordino.kernel.lazy import lazy_gumbel_top, top_gumbels

SCALE = 1.7
VALUE = SparseVector(np.array([4, 1]), np.array([-3.0, 2.0]), 7)  # five scores are zero


def best_of(value, count, seed=91, scale=SCALE):
    return lazy_gumbel_top(value, value.values, scale, count, source(seed))


def test_known_scores_and_the_best_untouched_ones_compete():
    for seed in range(40):
        noise = source(seed)
        noisy = VALUE.values + SCALE * noise.gumbel(2)
        fresh = SCALE * top_gumbels(5, 3, noise)
        order = np.argsort(-np.concatenate([noisy, fresh]))[:3]
        out = best_of(VALUE, 3, seed)
        assert [c for c in out.tolist() if c in (1, 4)] == [[4, 1][i] for i in order if i < 2]
        assert [c in (1, 4) for c in out.tolist()] == [i < 2 for i in order]
        assert np.unique(out).size == 3


@pytest.mark.statistical
def test_the_first_choice_is_a_softmax_and_the_second_one_is_that_of_the_rest():
    noise = source(92)
    drawn = np.array([lazy_gumbel_top(VALUE, VALUE.values, SCALE, 2, noise) for _ in range(6000)])
    first, second = (np.bincount(drawn[:, place], minlength=7) for place in (0, 1))
    chance = softmax(VALUE.to_dense() / SCALE)
    assert_counts(first, 6000 * chance, tests=2)
    rest = chance * ((chance / (1 - chance)).sum() - chance / (1 - chance))
    assert_counts(second, 6000 * rest, tests=2)
    for wrong in (2 / 3, 3 / 2):
        with pytest.raises(AssertionError):
            assert_counts(first, 6000 * softmax(VALUE.to_dense() / (wrong * SCALE)))


@pytest.mark.parametrize("count", [7, 50])
def test_everything_is_chosen_once_when_all_is_asked(count):
    assert sorted(best_of(VALUE, count)) == list(range(7))


def test_without_untouched_scores_only_known_ones_compete():
    value = SparseVector(np.array([2, 0, 1]), np.array([1.0, 9.0, 5.0]), 3)
    assert best_of(value, 2, scale=0.0).tolist() == [0, 1]
    assert sorted(best_of(value, 3)) == [0, 1, 2]


def test_giants_leave_nothing_to_the_untouched():
    value = SparseVector(np.array([70, 3, 20]), np.array([1e6, 3e6, 2e6]), 10**5)
    assert best_of(value, 3).tolist() == [3, 20, 70]
