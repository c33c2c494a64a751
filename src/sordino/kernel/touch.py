"""A small hash set of touched columns: its cost depends on what a batch touches, not on d."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

_EMPTY = -1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class TouchMap:
    """Open addressing from column to slot: ``keys`` is -1 where free, ``slots`` counts insertions."""

    keys: NDArray[np.int64]
    slots: NDArray[np.int32]

    @classmethod
    def with_capacity(cls, entries: int) -> TouchMap:
        """Return an empty map that stays at most half full."""
        size = 1 << max(4, int(2 * max(entries, 1) - 1).bit_length())
        return cls(np.full(size, _EMPTY, dtype=np.int64), np.empty(size, dtype=np.int32))

    @classmethod
    def of(cls, indices: NDArray[np.int64]) -> TouchMap:
        """Return the map of distinct ``indices``."""
        touched = cls.with_capacity(indices.size)
        touched.insert(indices)
        return touched

    def insert(self, indices: NDArray[np.int64]) -> None:
        """Put distinct ``indices`` into an empty map, numbered in their order."""
        _insert_all(self.keys, self.slots, indices)

    def contains(self, indices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which indices are in the map."""
        out = np.empty(indices.size, dtype=np.bool_)
        _contains(self.keys, indices, out)
        return out

    def collect_absent(
        self, draws: NDArray[np.int64], taken: TouchMap, found: NDArray[np.int64], start: int
    ) -> int:
        """Append to ``found[start:]``, in order, the draws found neither here nor in ``taken``."""
        return int(_collect_absent(self.keys, taken.keys, draws, found, start))


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def find(keys: NDArray[np.int64], key: int) -> np.uint64:
    """Return the cell of ``key``, or the free cell where it belongs."""
    mask = np.uint64(keys.size - 1)
    cell = ((np.uint64(key) * _GOLDEN) >> np.uint64(32)) & mask
    while keys[cell] != key and keys[cell] != -1:
        cell = (cell + np.uint64(1)) & mask
    return cell


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _insert_all(keys: NDArray[np.int64], slots: NDArray[np.int32], indices: NDArray[np.int64]) -> None:
    for i in range(indices.size):
        cell = find(keys, indices[i])
        keys[cell] = indices[i]
        slots[cell] = i


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _contains(keys: NDArray[np.int64], indices: NDArray[np.int64], out: NDArray[np.bool_]) -> None:
    for i in range(indices.size):
        out[i] = keys[find(keys, indices[i])] == indices[i]


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _collect_absent(
    keys: NDArray[np.int64],
    taken: NDArray[np.int64],
    draws: NDArray[np.int64],
    found: NDArray[np.int64],
    start: int,
) -> int:
    for i in range(draws.size):
        if start == found.size:
            break
        draw = draws[i]
        cell = find(taken, draw)
        if taken[cell] == -1 and keys[find(keys, draw)] != draw:
            taken[cell] = draw
            found[start] = draw
            start += 1
    return start
