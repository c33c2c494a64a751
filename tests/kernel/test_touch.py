"""The hash set of touched columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.kernel.lazy import TouchMap

columns = st.lists(st.one_of(st.integers(0, 40), st.integers(0, 2**62)), max_size=60)


@given(inside=columns, asked=columns)
def test_a_map_holds_what_was_put_in_and_nothing_else(inside, asked):
    inside = list(dict.fromkeys(inside))
    touched = TouchMap.of(np.array(inside, dtype=np.int64))
    probe = np.array(inside + asked, dtype=np.int64)
    assert touched.contains(probe).tolist() == [int(c) in inside for c in probe]


@given(seed=st.integers(0, 100), stride=st.sampled_from([1, 64, 2**21, 2**40]))
def test_a_map_that_is_asked_for_many_columns_finds_the_same_ones(seed, stride):
    every = stride * np.arange(4000)
    inside = np.random.default_rng(seed).choice(every, 400, replace=False)
    touched = TouchMap.of(inside)
    one_by_one = np.concatenate([touched.slots(part) for part in np.array_split(every, 40)])
    np.testing.assert_array_equal(touched.slots(every), one_by_one)
    np.testing.assert_array_equal(touched.slots(inside), np.arange(400))


@given(inside=columns)
def test_slots_number_the_columns_in_their_order(inside):
    inside = list(dict.fromkeys(inside))
    touched = TouchMap.of(np.array(inside, dtype=np.int64))
    for slot, column in enumerate(inside):
        assert (touched.cells == slot).sum() == 1
        assert touched.columns[slot] == column


@pytest.mark.parametrize(
    ("entries", "size"),
    [
        (0, 16),
        (1, 16),
        (2, 32),
        (3, 64),
        (8, 128),
        (9, 256),
        (2**15 - 1, 2**19),
        (2**15, 2**16),
        (2**16, 2**17),
    ],
)
def test_a_map_is_the_smallest_that_stays_half_full_and_of_few_columns_a_sixteenth(entries, size):
    touched = TouchMap.empty(np.arange(entries))
    assert touched.cells.size == size
    assert (touched.cells == -1).all()


@pytest.mark.parametrize("entries", [2**15 - 1, 2**15])
def test_the_slots_of_a_full_map_fit_into_its_cells(entries):
    columns = np.arange(entries, dtype=np.int64) * 3
    assert TouchMap.of(columns).slots(columns).tolist() == list(range(entries))


@pytest.mark.parametrize("stride", [1, 2, 7, 1024, 4_000_000])
def test_columns_are_spread_over_the_map(stride):
    touched = TouchMap.of(np.arange(1000, dtype=np.int64) * stride)
    free = np.flatnonzero(touched.cells == -1)
    around = np.append(free, free[0] + touched.cells.size)  # the first cell follows the last one
    assert np.diff(around).max() < 200  # a search ends after a few cells


def test_a_search_ends_at_a_free_cell_when_all_columns_belong_to_few_cells():
    golden = 0x9E3779B97F4A7C15
    crowd = [c for c in range(8000) if (c * golden % 2**64 >> 32) % 64 >= 62]
    touched = TouchMap.of(np.array(crowd[:4], dtype=np.int64))
    assert touched.cells.size == 64
    assert touched.contains(np.array(crowd[:12], dtype=np.int64)).tolist() == [True] * 4 + [False] * 8


def test_columns_that_fall_into_one_cell_are_told_apart():
    # Cells are bits 32 and up of a product: multiples of 2^36 leave the lowest ones unchanged.
    crowd = np.arange(20, dtype=np.int64) << 36
    touched = TouchMap.of(crowd)
    assert touched.contains(crowd).all()
    assert not touched.contains(crowd + 1).any()


@given(inside=columns, draws=columns, wanted=st.integers(0, 12))
def test_fresh_draws_are_collected_in_order_without_what_is_touched_or_taken(inside, draws, wanted):
    inside = list(dict.fromkeys(inside))
    touched = TouchMap.of(np.array(inside, dtype=np.int64))
    taken = TouchMap.empty(np.full(wanted, -7, dtype=np.int64))
    half = len(draws) // 2
    start = touched.collect_absent(np.array(draws[:half], dtype=np.int64), taken, 0)
    start = touched.collect_absent(np.array(draws[half:], dtype=np.int64), taken, start)
    fresh = [d for d in dict.fromkeys(draws) if d not in inside][:wanted]
    assert taken.columns[:start].tolist() == fresh
    assert (taken.columns[start:] == -7).all()
