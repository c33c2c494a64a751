"""Vectors whose untouched coordinates are not drawn until they are needed.

A mini-batch touches few of the d columns. The noisy gradient is Gaussian everywhere, but outside the
touched set T its coordinates are i.i.d., and hard thresholding needs only the largest of them. Their
magnitudes are sampled in order by the Renyi representation, their positions are uniform in the
complement of T, their signs fair: exactly the law of the dense step, for work in proportion to T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.special import erfinv

from sordino.errors import InvalidInputError, PlanSpentError
from sordino.kernel.arrays import Bools, Floats, Ints, compile_with_cache
from sordino.kernel.noise import NoiseSource, upper_quantiles

Slots: TypeAlias = NDArray[np.int16] | NDArray[np.int32]
_FREE = -1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MARKS = 1 << 21  # bits that stay in the processor's cache
_FEW = (1 << 15) - 1  # columns whose slots are short numbers: their map stays there at most a sixteenth full


@dataclass(frozen=True, eq=False)
class TouchMap:
    """Open addressing from column to slot.

    ``columns[slot]`` is the column; ``cells`` holds slots, -1 where free. Only cells are searched, so
    they are kept small enough for the processor's cache.
    """

    cells: Slots
    columns: Ints

    @classmethod
    def empty(cls, columns: Ints) -> TouchMap:
        """Return a map without columns, half full at most when it has all of them; few have more room."""
        kind: Any = np.int16 if columns.size <= _FEW else np.int32
        size = max(16, 1 << ((16 if kind is np.int16 else 2) * columns.size - 1).bit_length())
        return cls(np.full(size, _FREE, dtype=kind), columns)

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
        """Return the slots of columns, -1 for those that are not in the map.

        Of many columns few are in the map: marks, a bit for many of them, say of most that they are not.
        """
        out = np.empty(asked.size, dtype=np.int32)
        marks = np.zeros(_MARKS // 64 if asked.size > 8 * self.columns.size else 0, dtype=np.uint64)
        _slots(self.cells, self.columns, marks, asked, out)
        return out

    def collect_absent(self, draws: Ints, taken: TouchMap, start: int) -> int:
        """Append to the ``start`` columns of ``taken``, in order, the draws found in neither map.

        Returns how many columns ``taken`` has then; it never gets more than it has room for.
        """
        return int(_collect_absent(self.cells, self.columns, taken.cells, taken.columns, draws, start))


@numba.njit(inline="always")
def find(cells: Slots, columns: Ints, column: int) -> np.uint64:
    """Return the cell of ``column``, or the free cell where it belongs."""
    mask = np.uint64(cells.size - 1)
    cell = ((np.uint64(column) * _GOLDEN) >> np.uint64(32)) & mask
    while cells[cell] != _FREE and columns[np.uint64(cells[cell])] != column:  # a slot is not below zero
        cell = (cell + np.uint64(1)) & mask
    return cell


@compile_with_cache()
def _insert(cells: Slots, columns: Ints, count: int) -> None:
    for slot in range(count):
        cells[find(cells, columns, columns[slot])] = slot


@compile_with_cache()
def _add(cells: Slots, columns: Ints, new: Ints, terms: Floats, count: int, values: Floats) -> int:
    for i in range(new.size):
        cell = find(cells, columns, new[i])
        if cells[cell] == _FREE:
            cells[cell] = count
            columns[count] = new[i]
            count += 1
        values[cells[cell]] += terms[i]
    return count


@numba.njit(inline="always")
def _mark_of(column: int) -> tuple[np.uint64, np.uint64]:
    """Return the word and the bit that stand for a column and for others."""
    mark = (np.uint64(column) * _GOLDEN >> np.uint64(20)) & np.uint64(_MARKS - 1)
    return mark >> np.uint64(6), np.uint64(1) << (mark & np.uint64(63))


@compile_with_cache()
def _slots(cells: Slots, columns: Ints, marks: Any, asked: Ints, out: NDArray[np.int32]) -> None:
    for i in range(columns.size if marks.size else 0):
        word, bit = _mark_of(columns[i])
        marks[word] |= bit
    for i in range(asked.size):
        out[i] = _FREE
        word, bit = _mark_of(asked[i])
        if not marks.size or marks[word] & bit:
            out[i] = cells[find(cells, columns, asked[i])]


@compile_with_cache()
def _collect_absent(
    cells: Slots,
    columns: Ints,
    taken_cells: Slots,
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


_FIRST_CHUNK = 64
_SAMPLE = 1024


@dataclass(frozen=True, eq=False)
class SparseVector:
    """Values at distinct indices, zero elsewhere; the order of the indices is free."""

    indices: Ints
    values: Floats
    size: int
    touched: TouchMap | None = field(default=None, repr=False)

    __array_ufunc__ = None  # let NumPy scalars defer to our operators

    def to_dense(self) -> Floats:
        out = np.zeros(self.size)
        out[self.indices] = self.values
        return out

    def at(self, columns: Ints) -> Floats:
        """Return the entries at distinct columns."""
        slots = TouchMap.of(self.indices).slots(columns)
        return np.append(self.values, 0.0)[slots]  # slot -1 is the zero

    @classmethod
    def zeros(cls, size: int, kept: int = 0) -> SparseVector:
        """Return the zero vector, with explicit entries at its last ``kept`` indices."""
        return cls(np.arange(size - kept, size), np.zeros(kept), size)

    def __mul__(self, factor: float) -> SparseVector:
        return SparseVector(self.indices, self.values * factor, self.size, self.touched)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> SparseVector:
        return self * (1.0 / divisor)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, LazyVector):
            return other + self
        return self.to_dense() + (other.to_dense() if isinstance(other, SparseVector) else other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, LazyVector):
            return other.__rsub__(self)
        return self.to_dense() - (other.to_dense() if isinstance(other, SparseVector) else other)

    def joined(self, other: SparseVector) -> SparseVector:
        """Return the sum on the touched columns of both, those of this vector first and in its order."""
        columns = np.concatenate([self.indices, other.indices])
        values = np.concatenate([self.values, np.zeros(other.indices.size)])
        touched = TouchMap.empty(columns)
        touched.insert(self.indices.size)
        count = touched.add(other.indices, other.values, self.indices.size, values)
        return SparseVector(columns[:count], values[:count], self.size, touched)

    def followed_by(self, other: SparseVector) -> SparseVector:
        """Return this vector with the entries of another one behind it."""
        indices = np.concatenate([self.indices, other.indices + self.size])
        return SparseVector(indices, np.concatenate([self.values, other.values]), self.size + other.size)

    def sorted(self) -> SparseVector:
        """Return the same vector with increasing indices."""
        order = np.argsort(self.indices)
        return SparseVector(self.indices[order], self.values[order], self.size)


class LazyVector:
    """Known values at touched coordinates, N(0, std^2) not yet drawn at all others.

    Supports what keeps the others i.i.d.: scaling, and adding a sparse vector. Every operation uses it
    up, because asking twice would draw the same coordinate twice. It owns the values of ``known``:
    operations change them in place.
    """

    __array_ufunc__ = None  # let NumPy scalars defer to our operators

    def __init__(self, known: SparseVector, std: float, noise: NoiseSource) -> None:
        self._held, self._std, self._noise = known, std, noise
        self._factor, self._spent = 1.0, False  # what the values, not the deviation, are still multiplied by

    @classmethod
    def noised(cls, value: SparseVector, std: float, noise: NoiseSource) -> LazyVector:
        """Add N(0, std^2) to every coordinate of ``value``, drawing only the touched ones."""
        values = noise.normal_around(value.values, std) if std else value.values.copy()
        return cls(SparseVector(value.indices, values, value.size, value.touched), std, noise)

    @property
    def size(self) -> int:
        return self._held.size

    def __mul__(self, factor: float) -> LazyVector:
        return self._replace(self._held, self._std * abs(factor), self._factor * factor)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> LazyVector:
        return self * (1.0 / divisor)

    def __neg__(self) -> LazyVector:
        return self * -1.0

    def __rsub__(self, other: SparseVector) -> LazyVector:
        return -self + other

    def __add__(self, other: SparseVector) -> LazyVector:
        """Add a sparse vector; coordinates it touches for the first time are drawn now."""
        known = self._known
        head = other.indices.size
        if np.array_equal(known.indices[:head], other.indices):  # how executors lay out iterates
            known.values[:head] += other.values
            return self._replace(known, self._std)
        return self._replace(self._merge(other), self._std)

    def hard_threshold(self, count: int, kept: int = 0) -> SparseVector:
        """Return the ``count`` largest coordinates; the last ``kept`` indices are always returned.

        Exact: the result has the law of thresholding the dense vector.
        """
        if count < 1:
            raise InvalidInputError(f"Expected to keep at least one coordinate, got {count}.")
        self._spend()
        known, free = self._known, self.size - kept
        always = np.flatnonzero(known.indices >= free) if kept else np.empty(0, dtype=np.int64)
        if always.size != kept:
            raise InvalidInputError("Expected the coordinates that are always kept to be touched.")
        untouched = free - (known.indices.size - kept)
        large, floor = candidates(known, free, count)
        wanted, fresh = min(count, untouched), np.empty(0)
        if self._std and wanted > 0:
            likely = math.ceil(wanted * untouched / self.size)  # so many would win among equals
            fresh = self._std * top_abs_normals(untouched, wanted, self._noise, floor / self._std, likely)
        chosen, survivors = merge_largest(np.abs(known.values[large]), fresh, count)
        where = _positions(known, survivors, free, self._noise)
        values = fresh[:survivors] * self._noise.signs(survivors)
        held = np.concatenate([large[chosen], always])
        indices = np.concatenate([known.indices[held], where])
        return SparseVector(indices, np.concatenate([known.values[held], values]), self.size)

    def to_dense(self) -> Floats:
        self._spend()
        out = self._std * self._noise.normal(self.size)
        out[self._known.indices] = self._known.values
        return out

    def _merge(self, other: SparseVector) -> SparseVector:
        known = self._known
        order = np.argsort(known.indices)
        at = np.searchsorted(known.indices[order], other.indices)
        # An index beyond all known ones is sent to one slot more, whose index is nobody's.
        slot = np.append(order, order.size)[at]
        shared = np.append(known.indices, known.size)[slot] == other.indices
        values = known.values.copy()
        values[slot[shared]] += other.values[shared]
        new = ~shared
        drawn = other.values[new]
        if self._std:  # without noise a run draws the same batches, lazy or dense
            drawn = drawn + self._std * self._noise.normal(drawn.size)
        indices = np.concatenate([known.indices, other.indices[new]])
        return SparseVector(indices, np.concatenate([values, drawn]), known.size)

    @property
    def _known(self) -> SparseVector:
        if self._factor != 1.0:
            self._held.values[...] *= self._factor
            self._factor = 1.0
        return self._held

    def _replace(self, known: SparseVector, std: float, factor: float = 1.0) -> LazyVector:
        self._spend()
        out = LazyVector(known, std, self._noise)
        out._factor = factor
        return out

    def _spend(self) -> None:
        if self._spent:
            raise PlanSpentError(
                "A lazy vector can be used once: its undrawn coordinates would be drawn twice."
            )
        self._spent = True


def top_abs_normals(
    total: int, count: int, noise: NoiseSource, floor: float = -math.inf, likely: int = 0
) -> Floats:
    """Return the ``count`` largest of ``total`` i.i.d. ``|N(0,1)|``, decreasing, in O(count).

    Stops early, with fewer, once a value falls below ``floor``: no later one could matter. The first
    ``likely`` ones are drawn at once.
    """
    parts, lowest, log_cdf, start = [np.empty(0)], math.inf, 0.0, 0
    chunk = max(_FIRST_CHUNK, likely)
    while start < count and lowest >= floor:
        stop = start + chunk if 2 * chunk < count - start else count
        steps = noise.exponential(stop - start) / (total - np.arange(start, stop))
        logs = log_cdf - np.cumsum(steps)
        parts.append(_abs_normal_quantile(logs))
        log_cdf, lowest = float(logs[-1]), parts[-1][-1]
        start, chunk = stop, 4 * chunk
    return np.concatenate(parts)


def top_gumbels(total: int, count: int, noise: NoiseSource) -> Floats:
    """Return the ``count`` largest of ``total`` i.i.d. standard Gumbel variables, decreasing."""
    steps = noise.exponential(count) / (total - np.arange(count))
    return np.asarray(-np.log(np.cumsum(steps)))


def lazy_gumbel_top(
    value: SparseVector, scores: Floats, scale: float, count: int, noise: NoiseSource
) -> Ints:
    """Return the ``count`` best of ``scores + Gumbel(scale)``, where untouched scores are zero."""
    untouched = value.size - value.indices.size
    count = min(count, value.size)
    noisy = scores + scale * noise.gumbel(scores.size)
    fresh = scale * top_gumbels(untouched, min(count, untouched), noise)
    both = np.concatenate([noisy, fresh])
    best = np.argsort(-both, kind="stable")[:count]
    survivors = int((best >= noisy.size).sum())  # the first ones of the fresh, which decrease
    where = _positions(value, survivors, value.size, noise)
    return np.concatenate([value.indices, where])[best]


def _positions(known: SparseVector, survivors: int, free: int, noise: NoiseSource) -> Ints:
    """Draw ordered distinct positions outside the touched set, by rejection."""
    if survivors == 0:
        return np.empty(0, dtype=np.int64)
    if free < 2 * (known.indices.size + survivors):  # few are left: rejection would be slow
        untouched = np.ones(free, dtype=bool)
        untouched[known.indices[known.indices < free]] = False
        left = np.flatnonzero(untouched)
        return left[noise.distinct_order(left.size, survivors)]
    taken, start = TouchMap.empty(np.empty(survivors, dtype=np.int64)), 0
    while start < survivors:
        draw, met = noise.integers(free, survivors - start + 8), known.touched
        if met is None:  # a map of the few draws, and then of those of them, is quicker than one of all
            drawn = TouchMap.of(np.unique(draw))
            met = TouchMap.of(known.indices[drawn.contains(known.indices)])
        start = met.collect_absent(draw, taken, start)
    return taken.columns


def merge_largest(magnitudes: Floats, fresh: Floats, count: int) -> tuple[Ints, int]:
    """Return which of ``magnitudes`` and how many of the decreasing ``fresh`` are the ``count`` largest."""
    both = np.concatenate([magnitudes, fresh])
    if count < both.size:
        best = np.argpartition(both, both.size - count)[both.size - count :]
    else:
        best = np.arange(both.size)
    chosen = best[best < magnitudes.size]
    return chosen, best.size - chosen.size


def candidates(known: SparseVector, free: int, count: int) -> tuple[Ints, float]:
    """Return where the ``count`` largest values below index ``free`` are, among few others.

    Also a bound that ``count`` magnitudes reach, or -inf: none below it can be among the largest. A
    sample gives the bound; where it is too high, all values are candidates.
    """
    step = max(1, known.values.size // _SAMPLE)
    sample = np.abs(known.values[::step])
    rank = int(1.3 * count / step) + 8
    if rank < sample.size:
        bound = float(np.partition(sample, sample.size - rank)[sample.size - rank])
        large = _at_least(known.indices, known.values, free, bound)
        if large.size >= count:
            return large, bound
    return _at_least(known.indices, known.values, free, 0.0), -math.inf


@compile_with_cache()
def _at_least(indices: Ints, values: Floats, free: int, bound: float) -> Ints:
    """Return where values of size ``bound`` or more are, indices from ``free`` on left out."""
    out, count = np.empty(values.size, dtype=np.int64), 0
    for i in range(values.size):
        out[count] = i
        count += indices[i] < free and abs(values[i]) >= bound
    return out[:count]


def _abs_normal_quantile(log_cdf: Floats) -> Floats:
    """Return x with ``P(|Z| <= x) = exp(log_cdf)``, precise in both tails."""
    tail = -np.expm1(log_cdf)
    out, near_zero = upper_quantiles(0.5 * tail), tail > 0.5
    if near_zero.any():
        out[near_zero] = math.sqrt(2.0) * erfinv(np.exp(log_cdf[near_zero]))
    return out
