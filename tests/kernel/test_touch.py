"""The hash set of touched columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.kernel.touch import TouchMap

columns = st.lists(st.one_of(st.integers(0, 40), st.integers(0, 2**62)), max_size=60)


@given(inside=columns, asked=columns)
def test_a_map_holds_what_was_put_in_and_nothing_else(inside, asked):
    inside = list(dict.fromkeys(inside))
    touched = TouchMap.of(np.array(inside, dtype=np.int64))
    probe = np.array(inside + asked, dtype=np.int64)
    assert touched.contains(probe).tolist() == [int(c) in inside for c in probe]


@given(inside=columns)
def test_slots_number_the_columns_in_their_order(inside):
    inside = list(dict.fromkeys(inside))
    touched = TouchMap.of(np.array(inside, dtype=np.int64))
    for slot, column in enumerate(inside):
        assert touched.slots[touched.keys == column].tolist() == [slot]


@pytest.mark.parametrize("entries", [0, 1, 7, 8, 9, 1000])
def test_a_map_is_at_most_half_full(entries):
    touched = TouchMap.with_capacity(entries)
    size = touched.keys.size
    assert size >= max(16, 2 * entries)
    assert size & (size - 1) == 0
    assert (touched.keys == -1).all()
    assert size <= max(16, 4 * entries)


def test_columns_that_fall_into_one_cell_are_told_apart():
    # Cells are bits 32 and up of a product: multiples of 2^36 leave the lowest ones unchanged.
    crowd = np.arange(20, dtype=np.int64) << 36
    touched = TouchMap.of(crowd)
    assert touched.contains(crowd).all()
    assert not touched.contains(crowd + 1).any()


@given(inside=columns, draws=columns, wanted=st.integers(0, 12))
def test_fresh_draws_are_collected_in_order_without_what_is_touched_or_taken(inside, draws, wanted):
    inside = list(dict.fromkeys(inside))
    touched, taken = TouchMap.of(np.array(inside, dtype=np.int64)), TouchMap.with_capacity(wanted)
    found = np.full(wanted, -7, dtype=np.int64)
    half = len(draws) // 2
    start = touched.collect_absent(np.array(draws[:half], dtype=np.int64), taken, found, 0)
    start = touched.collect_absent(np.array(draws[half:], dtype=np.int64), taken, found, start)
    fresh = [d for d in dict.fromkeys(draws) if d not in inside][:wanted]
    assert found[:start].tolist() == fresh
    assert (found[start:] == -7).all()
