"""Maps of released vectors: thresholds and sums of dense, sparse and lazy vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.toys import source

from sordino.kernel import LazyVector, SparseVector
from sordino.solvers.steps import as_sparse, dense, hard_threshold, starting_point, vector_sum

numbers = st.lists(st.floats(-9, 9), min_size=1, max_size=20)


def largest(vector, count):
    """Return the sorted magnitudes of the ``count`` largest entries."""
    return np.sort(np.abs(vector))[::-1][:count]


@given(numbers, st.integers(1, 25), st.integers(0, 1))
def test_the_largest_magnitudes_are_kept_in_place(values, count, kept):
    vector = np.array([*values, 0.3])
    out = hard_threshold(vector, count, kept)
    free = vector.size - kept
    np.testing.assert_array_equal(largest(out[:free], count), largest(vector[:free], count))
    assert np.count_nonzero(out[:free]) <= count
    assert (out == vector)[out != 0].all()
    np.testing.assert_array_equal(out[free:], vector[free:])


@given(numbers, st.integers(1, 25), st.integers(0, 1))
def test_a_sparse_vector_is_thresholded_as_a_dense_one(values, count, kept):
    vector = np.array([*values, 0.3])
    order = np.random.default_rng(len(values)).permutation(vector.size)
    out = hard_threshold(SparseVector(order, vector[order], vector.size), count, kept)
    free = vector.size - kept
    np.testing.assert_array_equal(largest(out.to_dense()[:free], count), largest(vector[:free], count))
    np.testing.assert_array_equal(out.to_dense()[free:], vector[free:])


def test_a_matrix_is_thresholded_as_a_whole_without_its_last_column():
    w = np.array([[1.0, -8.0, 9.0], [7.0, 2.0, 0.1]])
    np.testing.assert_array_equal(hard_threshold(w, 2, kept=1), [[0, -8, 9], [7, 0, 0.1]])
    np.testing.assert_array_equal(hard_threshold(w, 2), [[0, -8, 9], [0, 0, 0]])


@pytest.mark.parametrize("count", [None, 3, 99])
def test_keeping_everything_changes_nothing(count):
    w = np.array([1.0, -8.0, 9.0])
    np.testing.assert_array_equal(hard_threshold(w, count), w)
    sparse_w = SparseVector(np.array([2, 0]), np.array([9.0, 1.0]), 3)
    assert hard_threshold(sparse_w, count) is sparse_w
    lazy = LazyVector(SparseVector(np.arange(3), w, 3), 1.3, source())
    np.testing.assert_array_equal(hard_threshold(lazy, count).to_dense(), w)


def test_the_callers_vector_is_left_alone():
    w = np.array([1.0, -8.0, 9.0])
    hard_threshold(w, 1)
    assert w.tolist() == [1.0, -8.0, 9.0]


def test_a_run_starts_at_zero():
    np.testing.assert_array_equal(starting_point((2, 3), 1, sparse=True), np.zeros((2, 3)))
    np.testing.assert_array_equal(starting_point((3,), 1, sparse=False), np.zeros(3))
    start = starting_point((3,), 1, sparse=True)
    assert (start.size, start.indices.tolist()) == (3, [2])


@pytest.mark.parametrize("left", ["dense", "sparse"])
@pytest.mark.parametrize("right", ["dense", "sparse"])
def test_vectors_of_any_kind_are_added(left, right):
    a, b = np.array([1.0, 0.0, 2.0]), np.array([0.0, 0.0, 5.0])
    make = {"dense": lambda v: v, "sparse": as_sparse}
    np.testing.assert_array_equal(dense(vector_sum(make[left](a), make[right](b))), a + b)


def test_lazy_vectors_are_added_from_both_sides():
    known = SparseVector(np.array([2]), np.array([4.0]), 3)
    for other in (np.array([0.0, 1.0, 1.0]), SparseVector(np.array([1, 2]), np.ones(2), 3)):
        for flip in (False, True):
            lazy = LazyVector(known, 0.0, source())
            total = vector_sum(other, lazy) if flip else vector_sum(lazy, other)
            np.testing.assert_array_equal(total.to_dense(), [0.0, 1.0, 5.0])


def test_non_zeros_and_the_kept_end_make_a_sparse_vector():
    out = as_sparse(np.array([0.0, 3.0, 0.0]), kept=1)
    assert out.indices.tolist() == [1, 2]
    assert out.values.tolist() == [3.0, 0.0]
    assert as_sparse(out) is out
