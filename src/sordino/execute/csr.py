"""Compiled passes over the rows of a CSR matrix."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from sordino.kernel.touch import find

Floats = NDArray[np.float64]
_AHEAD = 256  # rows


@numba.njit(cache=True, nogil=True)
def _squares(data: Any, start: int, stop: int, unit: float) -> float:
    """Return the sum of squares in multiples of ``unit``, compensated.

    A plain sum loses many small squares beside a large one, and with them the bound of the clip.
    """
    total, lost = 0.0, 0.0
    for p in range(start, stop):
        value = float(data[p]) / unit
        step = value * value - lost
        more = total + step
        lost = (more - total) - step
        total = more
    return total


@numba.njit(cache=True, nogil=True)
def row_norms(indptr: Any, data: Any) -> Floats:
    """Return the Euclidean norm of each row; it never underflows, since a norm of 0 clips nothing."""
    out = np.empty(indptr.size - 1)
    for i in range(out.size):
        out[i] = np.sqrt(_squares(data, indptr[i], indptr[i + 1], 1.0))
        if out[i] < 1e-140:
            largest = 0.0
            for p in range(indptr[i], indptr[i + 1]):
                largest = max(largest, abs(float(data[p])))
            if largest > 0.0:
                out[i] = largest * np.sqrt(_squares(data, indptr[i], indptr[i + 1], largest))
    return out


@numba.njit(cache=True, nogil=True)
def row_peaks(indptr: Any, data: Any, rows: Any) -> Floats:
    """Return the largest magnitude of each of the given rows."""
    out = np.zeros(rows.size)
    for i in range(rows.size):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            out[i] = max(out[i], abs(float(data[p])))
    return out


@numba.njit(cache=True, nogil=True)
def margins(indptr: Any, indices: Any, data: Any, rows: Any, w: Floats, out: Floats) -> None:
    """Write ``x_i . w`` for the given rows."""
    for i in range(rows.size):
        total = 0.0
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            total += data[p] * w[indices[p]]
        out[i] = total


@numba.njit(cache=True, nogil=True)
def scatter(indptr: Any, indices: Any, data: Any, rows: Any, coef: Floats, out: Floats) -> None:
    """Add ``coef_i x_i`` to ``out``; a row of coefficient zero is not read."""
    for i in range(rows.size):
        c = coef[i]
        if c != 0.0:
            for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
                out[indices[p]] += c * data[p]


@numba.njit(cache=True, nogil=True)
def scatter_integers(
    indptr: Any, indices: Any, data: Any, rows: Any, coef: Floats, spacing: float, out: Any
) -> None:
    """Add ``coef_i x_i / spacing``, truncated towards zero entry by entry, to integers ``out``."""
    for i in range(rows.size):
        c = coef[i] / spacing
        if c != 0.0:
            for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
                out[indices[p]] += np.int64(c * data[p])


@numba.njit(cache=True, nogil=True)
def touch(
    indptr: Any,
    indices: Any,
    data: Any,
    rows: Any,
    cells: Any,
    columns: Any,
    start: int,
    w: Floats,
    layout: Any,
    packed: Floats,
    out: Floats,
) -> tuple[int, int]:
    """Lay out a batch: number the columns it touches and compute its margins in one pass.

    ``columns[:start]`` (the support of the iterate, values ``w``) are in the map already. ``layout`` gets
    the number of each non-zero's column, ``packed`` its value. Returns how many columns are touched,
    and a number without meaning, without which the reading ahead would be optimised away.
    """
    count, at, ahead = start, 0, 0
    for i in range(rows.size):
        if i % _AHEAD == 0:
            ahead += _read_ahead(indptr, indices, data, rows[i : i + _AHEAD])
        total = 0.0
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            column = np.int64(indices[p])
            cell = find(cells, columns, column)
            slot = np.int64(cells[cell])
            if slot < 0:
                slot = count
                cells[cell] = slot
                columns[count] = column
                count += 1
            layout[at] = slot
            packed[at] = data[p]
            at += 1
            if slot < start:
                total += data[p] * w[slot]
        out[i] = total
    return count, ahead


@numba.njit(inline="always")
def _read_ahead(indptr: Any, indices: Any, data: Any, rows: Any) -> int:
    """Read one entry of each cache line of some rows, so that they are near when their turn comes."""
    seen = 0
    for i in range(rows.size):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1], 8):
            seen += np.int64(indices[p]) + np.int64(data[p] > 0)
    return seen


@numba.njit(cache=True, nogil=True)
def scatter_touched(ends: Any, layout: Any, packed: Floats, coef: Floats, out: Floats) -> None:
    """Add ``coef_i x_i`` to the slots of a batch that was laid out by :func:`touch`."""
    at = 0
    for i in range(ends.size):
        if coef[i] != 0.0:
            for p in range(at, ends[i]):
                out[layout[p]] += coef[i] * packed[p]
        at = ends[i]


@numba.njit(cache=True, nogil=True)
def square_margins(
    indptr: Any, indices: Any, data: Any, rows: Any, coef: Floats, weights: Floats, out: Floats
) -> None:
    """Write ``sum_j weights_j (coef_i x_ij)^2``; scaled first, so that huge rows do not overflow."""
    for i in range(rows.size):
        total = 0.0
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            value = coef[i] * np.float64(data[p])
            total += value * value * weights[indices[p]]
        out[i] = total


@numba.njit(cache=True, nogil=True)
def size_scatter(
    indptr: Any, indices: Any, data: Any, rows: Any, coef: Floats, square: bool, out: Floats
) -> None:
    """Add ``|coef_i x_i|``, or its square, to ``out``."""
    for i in range(rows.size):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            size = abs(coef[i] * np.float64(data[p])) if coef[i] != 0.0 else 0.0
            out[indices[p]] += size * size if square else size
