"""Lazy vectors: arithmetic, thresholds, single use, and the pieces they are made of."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.toys import source

from sordino.errors import InvalidInputError, PlanSpentError
from sordino.kernel import LazyVector, SparseVector
from sordino.kernel.lazy import TouchMap, candidates, merge_largest, top_abs_normals

KNOWN = SparseVector(np.array([7, 2, 5]), np.array([3.0, -4.0, 0.5]), 9)


def lazy(std=1.3, known=KNOWN, seed=71):
    own = SparseVector(known.indices, known.values.copy(), known.size, known.touched)
    return LazyVector(own, std, source(seed))


def exact(known=KNOWN):
    """Return a lazy vector whose undrawn coordinates are zero."""
    return lazy(0.0, known)


# ------------------------------------------------------------------------------------ sparse vectors


def test_a_sparse_vector_is_zero_where_it_says_nothing():
    np.testing.assert_array_equal(KNOWN.to_dense(), [0, 0, -4, 0, 0, 0.5, 0, 3, 0])


def test_sparse_arithmetic_is_dense_arithmetic():
    other, row = SparseVector(np.array([2, 0]), np.array([1.0, 1.0]), 9), np.arange(9.0)
    dense = KNOWN.to_dense()
    np.testing.assert_array_equal((2 * KNOWN).to_dense(), 2 * dense)
    np.testing.assert_array_equal((np.float64(2) * KNOWN).to_dense(), 2 * dense)
    np.testing.assert_array_equal((KNOWN * 2).to_dense(), 2 * dense)
    np.testing.assert_array_equal((KNOWN / 4).to_dense(), dense / 4)
    np.testing.assert_array_equal(KNOWN - row, dense - row)
    np.testing.assert_array_equal(KNOWN - other, dense - other.to_dense())
    np.testing.assert_array_equal(KNOWN + row, dense + row)
    np.testing.assert_array_equal(row + KNOWN, dense + row)
    np.testing.assert_array_equal(KNOWN + other, dense + other.to_dense())


def test_sparse_vectors_meet_lazy_ones():
    np.testing.assert_array_equal((KNOWN + exact()).to_dense(), 2 * KNOWN.to_dense())
    np.testing.assert_array_equal((KNOWN - exact()).to_dense(), np.zeros(9))
    np.testing.assert_array_equal((exact() + KNOWN).to_dense(), 2 * KNOWN.to_dense())


def test_zeros_can_hold_their_last_entries():
    zero = SparseVector.zeros(6, kept=2)
    assert zero.indices.tolist() == [4, 5]
    assert zero.values.tolist() == [0, 0]
    assert SparseVector.zeros(6).indices.size == 0
    np.testing.assert_array_equal(zero.to_dense(), np.zeros(6))


def test_a_map_is_not_printed_with_its_vector():
    assert "cells" not in repr(SparseVector(np.arange(2), np.ones(2), 4, TouchMap.of(np.arange(2))))


def test_sorting_keeps_the_vector():
    ordered = KNOWN.sorted()
    assert ordered.indices.tolist() == [2, 5, 7]
    np.testing.assert_array_equal(ordered.to_dense(), KNOWN.to_dense())
    assert ordered.size == 9


# -------------------------------------------------------------------------------------- lazy vectors


def test_noise_is_drawn_for_the_touched_coordinates_only():
    out = LazyVector.noised(KNOWN, 1.3, source(72))
    np.testing.assert_allclose(out._known.values, KNOWN.values + 1.3 * source(72).normal(3))
    assert out._std == 1.3
    assert out.size == 9
    np.testing.assert_array_equal(LazyVector.noised(KNOWN, 0.0, source(72)).to_dense(), KNOWN.to_dense())


def test_scaling_scales_the_known_and_the_unknown():
    for scaled in (lazy() * -2.0, -2.0 * lazy(), lazy() / -0.5, np.float64(-2.0) * lazy()):
        np.testing.assert_allclose(scaled._known.values, -2.0 * KNOWN.values)
        assert scaled._std == pytest.approx(2.6)
    negated = -lazy()
    np.testing.assert_array_equal(negated._known.values, -KNOWN.values)
    assert negated._std == 1.3


def test_drawing_everything_keeps_what_is_known():
    out = lazy().to_dense()
    np.testing.assert_array_equal(out[KNOWN.indices], KNOWN.values)
    untouched = np.setdiff1d(np.arange(9), KNOWN.indices)
    np.testing.assert_allclose(out[untouched], (1.3 * source(71).normal(9))[untouched])


def test_adding_at_known_coordinates_draws_nothing():
    head = SparseVector(np.array([7, 2]), np.array([10.0, 20.0]), 9)  # as executors lay it out
    other = SparseVector(np.array([5, 7]), np.array([10.0, 20.0]), 9)
    out = lazy() + head
    np.testing.assert_array_equal(out._known.values, [13.0, 16.0, 0.5])
    assert out._std == 1.3
    np.testing.assert_array_equal((lazy() + other)._known.values, [23.0, -4.0, 10.5])
    np.testing.assert_array_equal(KNOWN.values, [3.0, -4.0, 0.5])


def test_adding_at_an_unknown_coordinate_draws_it_first():
    other = SparseVector(np.array([2, 0, 8]), np.array([10.0, 20.0, 30.0]), 9)
    out = lazy() + other
    known = dict(zip(out._known.indices.tolist(), out._known.values.tolist()))
    drawn = 1.3 * source(71).normal(2)
    assert known == pytest.approx({7: 3.0, 2: 6.0, 5: 0.5, 0: 20.0 + drawn[0], 8: 30.0 + drawn[1]})
    assert out._std == 1.3


def test_adding_beyond_all_known_coordinates_draws_them_first():
    known = SparseVector(np.array([1, 0]), np.array([5.0, 6.0]), 4)
    out = lazy(known=known) + SparseVector(np.array([3, 1, 2]), np.array([10.0, 20.0, 30.0]), 4)
    assert out._known.indices.tolist() == [1, 0, 3, 2]
    drawn = 1.3 * source(71).normal(2)
    np.testing.assert_allclose(out._known.values, [25.0, 6.0, 10.0 + drawn[0], 30.0 + drawn[1]])


def test_adding_to_nothing_known():
    out = LazyVector(SparseVector.zeros(9), 0.0, source()) + KNOWN
    np.testing.assert_array_equal(out.to_dense(), KNOWN.to_dense())
    same = exact() + SparseVector.zeros(9)
    np.testing.assert_array_equal(same.to_dense(), KNOWN.to_dense())


USES = {
    "scaled": lambda v: v * 2,
    "negated": lambda v: -v,
    "added": lambda v: v + KNOWN,
    "subtracted": lambda v: KNOWN - v,
    "thresholded": lambda v: v.hard_threshold(2),
    "drawn": lambda v: v.to_dense(),
}


@pytest.mark.parametrize("first", USES)
@pytest.mark.parametrize("second", USES)
def test_a_lazy_vector_can_be_used_once(first, second):
    vector = lazy()
    USES[first](vector)
    with pytest.raises(PlanSpentError, match="drawn twice"):
        USES[second](vector)


# --------------------------------------------------------------------------------- hard thresholding


@given(
    values=st.lists(st.floats(-9, 9), min_size=1, max_size=30),
    count=st.integers(1, 40),
    kept=st.integers(0, 2),
)
def test_without_noise_the_largest_are_kept(values, count, kept):
    size = len(values) + 5
    order = np.random.default_rng(len(values)).permutation(size)[: len(values)]
    order = np.unique(np.concatenate([order, np.arange(size - kept, size)]))
    known = SparseVector(order, np.resize(np.array(values), order.size), size)
    out = exact(known).hard_threshold(count, kept)
    free, dense = size - kept, known.to_dense()
    largest = np.sort(np.abs(dense[:free]))[::-1][:count]
    mine = out.to_dense()
    np.testing.assert_array_equal(np.sort(np.abs(mine[:free]))[::-1][: largest.size], largest)
    np.testing.assert_array_equal(mine[free:], dense[free:])
    assert (mine[:free][mine[:free] != 0] == dense[:free][mine[:free] != 0]).all()
    assert (out.indices < free).sum() <= count


def test_what_is_always_kept_does_not_count_and_has_to_be_known():
    known = SparseVector(np.array([1, 8, 4]), np.array([3.0, 50.0, 0.1]), 9)
    out = exact(known).hard_threshold(1, kept=1)
    assert sorted(out.indices) == [1, 8]
    with pytest.raises(InvalidInputError, match="always kept to be touched"):
        lazy(known=KNOWN).hard_threshold(1, kept=1)


@pytest.mark.parametrize("count", [0, -2])
def test_keeping_nothing_is_refused(count):
    with pytest.raises(InvalidInputError, match="at least one coordinate"):
        lazy().hard_threshold(count)


def test_a_single_coordinate_may_be_an_untouched_one():
    for size in (500, 4):  # many are untouched, or just one
        known = SparseVector(np.arange(3), np.full(3, 1e-9), size)
        out = LazyVector(known, 1.3, source(77)).hard_threshold(1)
        assert out.indices.tolist() == [3] if size == 4 else out.indices[0] >= 3


@pytest.mark.parametrize("std", [0.2, 1.0, 5.0])
def test_the_untouched_compete_at_their_own_scale(std):
    values = std * np.linspace(2.0, 4.0, 400)
    known, count, size = SparseVector(np.arange(400), values, 100_400), 300, 100_000
    out = LazyVector(known, std, source(78)).hard_threshold(count)
    everything = np.append(values, std * top_abs_normals(size, count, source(78)))
    best = np.sort(everything)[::-1][:count]
    np.testing.assert_allclose(np.sort(np.abs(out.values))[::-1], best)
    assert 50 < (out.indices >= 400).sum() < count


@pytest.mark.parametrize("std", [1e-4, 1.3, 1e4])
def test_the_search_among_the_untouched_ends_at_the_scale_of_the_noise(std):
    # All untouched ones are larger than all known ones, and more are wanted than are drawn at first.
    known, count = SparseVector(np.arange(4000), 1e-3 * std * np.linspace(1, 2, 4000), 6000), 180
    out = LazyVector(known, std, source(79)).hard_threshold(count)
    assert (out.indices >= 4000).all()
    np.testing.assert_allclose(np.abs(out.values), std * top_abs_normals(2000, count, source(79)))


def test_as_many_untouched_coordinates_survive_as_are_large():
    known = SparseVector(np.array([0]), np.array([1e9]), 500)
    out = LazyVector(known, 1.3, source(73)).hard_threshold(20)
    assert out.indices.size == np.unique(out.indices).size == 20
    assert out.indices[0] == 0
    assert (np.diff(np.abs(out.values[1:])) <= 0).all()
    assert (np.abs(out.values[1:]) > 1.0).all()


def test_no_untouched_coordinate_survives_among_giants():
    known = SparseVector(np.arange(30), np.full(30, 1e9), 500)
    assert sorted(LazyVector(known, 1.3, source(74)).hard_threshold(30).indices) == list(range(30))


@pytest.mark.parametrize(("size", "touched", "count"), [(500, 3, 40), (12, 3, 5), (12, 3, 12), (4, 3, 2)])
def test_survivors_are_distinct_and_untouched(size, touched, count):
    known = SparseVector(np.arange(touched)[::-1] + 1, np.full(touched, 1e-9), size)
    for seed in range(20):
        out = LazyVector(known, 1.3, source(seed)).hard_threshold(count)
        assert np.unique(out.indices).size == out.indices.size == min(count, size)
        assert out.indices.min() >= 0
        assert out.indices.max() < size


def test_everything_is_drawn_when_nothing_is_thresholded():
    out = lazy().hard_threshold(50)
    assert sorted(out.indices) == list(range(9))
    np.testing.assert_array_equal(out.to_dense()[KNOWN.indices], KNOWN.values)
    assert (out.to_dense() != 0).all()


def test_no_untouched_coordinates_need_no_draw():
    known = SparseVector(np.arange(9), np.arange(9.0), 9)
    out = LazyVector(known, 1.3, source()).hard_threshold(2)
    assert sorted(out.indices) == [7, 8]


def test_a_map_that_came_with_the_vector_is_used():
    known = SparseVector(np.array([3]), np.array([9.0]), 400, TouchMap.of(np.arange(200)))
    for seed in range(10):
        out = LazyVector(known, 1.3, source(seed)).hard_threshold(9)
        assert (out.indices[1:] >= 200).all()


# ------------------------------------------------------------------------------------------- pieces


def _check_candidates(values, free, count):
    known = SparseVector(np.random.default_rng(1).permutation(values.size), values, values.size)
    large, bound = candidates(known, free, count)
    competing = np.flatnonzero(known.indices < free)
    best = np.sort(np.abs(values[competing]))[::-1][:count]
    np.testing.assert_array_equal(np.sort(np.abs(values[large]))[::-1][:count], best)
    assert set(large) <= set(competing)
    assert bound <= (best[-1] if best.size == count else -math.inf)
    return large


@given(values=st.lists(st.floats(-5, 5), max_size=80), count=st.integers(1, 90), kept=st.integers(0, 3))
def test_the_largest_are_among_the_candidates(values, count, kept):
    _check_candidates(np.array(values), len(values) - kept, count)


@pytest.mark.parametrize("shape", ["random", "increasing", "constant", "few", "striped"])
@pytest.mark.parametrize("count", [1, 40, 900, 4999, 20_000])
@pytest.mark.parametrize("kept", [0, 1, 300])
def test_the_largest_of_many_are_among_the_candidates(shape, count, kept):
    rng = np.random.default_rng(0)
    values = {
        "random": rng.normal(size=20_000),
        "increasing": np.arange(20_000.0),
        "constant": np.ones(20_000),
        "few": np.repeat([0.0, 7.0], [19_990, 10]),
        "striped": np.where(np.arange(20_000) % 19 == 0, 5.0, rng.normal(size=20_000)),
    }[shape]
    large = _check_candidates(values, values.size - kept, count)
    if shape == "random" and count < 5000:
        assert large.size < 2 * count + 800  # few others


def test_merging_takes_the_largest_of_both():
    magnitudes = np.array([5.0, 1.5, 2.0, 0.5])
    chosen, survivors = merge_largest(magnitudes, np.array([3.0, 1.0]), 2)
    assert (sorted(chosen), survivors) == ([0], 1)
    chosen, survivors = merge_largest(magnitudes, np.array([3.0, 1.0]), 5)
    assert (sorted(chosen), survivors) == ([0, 1, 2], 2)
    chosen, survivors = merge_largest(magnitudes, np.array([3.0]), 10)
    assert (sorted(chosen), survivors) == ([0, 1, 2, 3], 1)
    chosen, survivors = merge_largest(magnitudes, np.empty(0), 3)
    assert (sorted(chosen), survivors) == ([0, 1, 2], 0)
    chosen, survivors = merge_largest(np.array([0.0, 0.0]), np.array([0.0]), 2)
    assert len(chosen) + survivors == 2


def test_order_statistics_stop_at_the_floor():
    everything = top_abs_normals(10**6, 2000, source(75))
    some = top_abs_normals(10**6, 2000, source(75), floor=4.0)
    assert everything.size == 2000
    assert some.size < 400
    assert some[-1] < 4.0
    np.testing.assert_array_equal(some, everything[: some.size])
    assert top_abs_normals(50, 0, source()).size == 0


def test_order_statistics_decrease_and_are_positive():
    for total, count in ((5, 5), (1000, 700), (10**12, 50)):
        drawn = top_abs_normals(total, count, source(76))
        assert (np.diff(drawn) < 0).all()
        assert (drawn > 0).all()
