"""Sums of parts: one order whoever adds up which, each part once, sparse parts on their columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.errors import PlanError
from sordino.execute.local import add_answers, fold, total
from sordino.kernel import SparseVector


def leaves(count, seed=0):
    rng = np.random.default_rng(seed)
    return {(0, i): rng.normal(size=5) * 10.0 ** rng.integers(-8, 8) for i in range(count)}


@given(st.integers(1, 40), st.integers(1, 6), st.randoms(use_true_random=False))
def test_the_total_is_the_same_to_the_last_bit_however_parts_are_spread(count, workers, spread):
    parts = leaves(count)
    owner = [spread.randrange(workers) for _ in range(count)]
    branches = [
        fold({at: v for at, v in parts.items() if owner[at[1]] == worker}, count) for worker in range(workers)
    ]
    assert np.array_equal(total(branches, count), total([parts], count))
    np.testing.assert_allclose(total([parts], count), sum(parts.values()), rtol=1e-12, atol=1e-6)


def test_neighbours_on_one_worker_are_sent_as_few_sums():
    assert len(fold({at: v for at, v in leaves(64).items() if at[1] < 32}, 64)) == 1
    assert len(fold({at: v for at, v in leaves(64).items() if 1 <= at[1] < 32}, 64)) == 5


@pytest.mark.parametrize("numbers", [[0, 1], [0, 1, 2, 2], [0, 1, 1, 2], []])
def test_a_part_that_is_missing_or_enters_twice_is_refused(numbers):
    with pytest.raises(PlanError, match="each of 3 parts once"):
        total([{(0, i): np.ones(2)} for i in numbers], 3)


def test_a_part_hidden_in_a_branch_of_another_is_found():
    parts = leaves(4)
    with pytest.raises(PlanError, match="0 missing and 1 repeated"):
        total([fold(parts, 4), {(0, 2): parts[0, 2]}], 4)


def test_sparse_parts_are_joined_on_their_columns_with_the_first_ones_in_front():
    one = SparseVector(np.array([7, 2]), np.array([1.0, 2.0]), 10)
    other = SparseVector(np.array([7, 5, 2, 9]), np.array([10.0, 20.0, 30.0, 40.0]), 10)
    both = add_answers(one, other)
    assert isinstance(both, SparseVector)
    assert both.indices.tolist() == [7, 2, 5, 9]
    assert both.values.tolist() == [11.0, 32.0, 20.0, 40.0]
    assert both.touched.contains(np.array([7, 9, 0])).tolist() == [True, True, False]
    assert np.array_equal(add_answers(one, other.to_dense()), both.to_dense())
    assert np.array_equal(add_answers(other.to_dense(), one), both.to_dense())


@given(st.lists(st.lists(st.integers(0, 30), unique=True, max_size=12), min_size=1, max_size=6))
def test_joined_sums_are_dense_sums(columns):
    parts = {
        (0, i): SparseVector(np.array(c, dtype=np.int64), np.arange(1.0, len(c) + 1), 31)
        for i, c in enumerate(columns)
    }
    dense = sum(part.to_dense() for part in parts.values())
    assert np.array_equal(total([parts], len(parts)).to_dense(), dense)
