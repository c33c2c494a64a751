"""A small hash set of touched columns: its cost depends on what a batch touches, not on d."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from sordino.kernel.arrays import Bools, Floats, Ints
from sordino.kernel.machine_code import compiled

_FREE = -1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class TouchMap:
    """Open addressing from column to slot.

    ``columns[slot]`` is the column; ``cells`` holds slots, -1 where free. Only cells are searched, so
    they are kept small enough for the processor's cache.
    """

    cells: NDArray[np.int32]
    columns: Ints

    @classmethod
    def empty(cls, columns: Ints) -> TouchMap:
        """Return a map without columns that stays at most half full when ``columns`` is filled."""
        size = max(16, 1 << (2 * columns.size - 1).bit_length())
        return cls(np.full(size, _FREE, dtype=np.int32), columns)

    @classmethod
    def of(cls, columns: Ints) -> TouchMap:
        """Return the map of distinct ``columns``, numbered in their order."""
        touched = cls.empty(columns)
        touched.insert(columns.size)
        return touched

    def insert(self, count: int) -> None:
        """Put the first ``count`` of the columns, which are distinct, into an empty map."""
        _insert(self.cells, self.columns, count)

    def add(self, columns: Ints, terms: Floats, count: int, values: Floats) -> int:
        """Add ``terms`` to the values of distinct columns; new columns go behind the first ``count``.

        Returns how many columns the map has then. ``columns`` must not share memory with the map's.
        """
        return int(_add(self.cells, self.columns, columns, terms, count, values))

    def contains(self, asked: Ints) -> Bools:
        """Tell which columns are in the map."""
        return self.slots(asked) >= 0

    def slots(self, asked: Ints) -> NDArray[np.int32]:
        """Return the slots of columns, -1 for those that are not in the map."""
        out = np.empty(asked.size, dtype=np.int32)
        _slots(self.cells, self.columns, asked, out)
        return out

    def collect_absent(self, draws: Ints, taken: TouchMap, start: int) -> int:
        """Append to the ``start`` columns of ``taken``, in order, the draws found in neither map.

        Returns how many columns ``taken`` has then; it never gets more than it has room for.
        """
        return int(_collect_absent(self.cells, self.columns, taken.cells, taken.columns, draws, start))


@numba.njit(inline="always")
def find(cells: NDArray[np.int32], columns: Ints, column: int) -> np.uint64:
    """Return the cell of ``column``, or the free cell where it belongs."""
    mask = np.uint64(cells.size - 1)
    cell = ((np.uint64(column) * _GOLDEN) >> np.uint64(32)) & mask
    while cells[cell] != _FREE and columns[cells[cell]] != column:
        cell = (cell + np.uint64(1)) & mask
    return cell


@compiled()
def _insert(cells: NDArray[np.int32], columns: Ints, count: int) -> None:
    for slot in range(count):
        cells[find(cells, columns, columns[slot])] = slot


@compiled()
def _add(
    cells: NDArray[np.int32], columns: Ints, new: Ints, terms: Floats, count: int, values: Floats
) -> int:
    for i in range(new.size):
        cell = find(cells, columns, new[i])
        if cells[cell] == _FREE:
            cells[cell] = count
            columns[count] = new[i]
            count += 1
        values[cells[cell]] += terms[i]
    return count


@compiled()
def _slots(cells: NDArray[np.int32], columns: Ints, asked: Ints, out: NDArray[np.int32]) -> None:
    for i in range(asked.size):
        out[i] = cells[find(cells, columns, asked[i])]


@compiled()
def _collect_absent(
    cells: NDArray[np.int32],
    columns: Ints,
    taken_cells: NDArray[np.int32],
    taken: Ints,
    draws: Ints,
    start: int,
) -> int:
    for i in range(draws.size):
        if start == taken.size:
            break
        draw = draws[i]
        cell = find(taken_cells, taken, draw)
        if taken_cells[cell] == _FREE and cells[find(cells, columns, draw)] == _FREE:
            taken[start] = draw
            taken_cells[cell] = start
            start += 1
    return start
