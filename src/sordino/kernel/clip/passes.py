"""Compiled passes over rows. The order of a sum is free: the written bounds hold for any order."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from sordino.kernel.machine_code import compiled

_FREE_ORDER = {"reassoc", "contract", "nsz"}
_MAGNITUDE = 0x7FFFFFFFFFFFFFFF
_LEAST, _MOST = 2.0**-800, 2.0**1000  # sums of squares that prove their own range
_LOST = 2.0**-450  # a weighted row below this, in units of its largest entry, cannot be measured


@numba.njit(inline="always")
def _squares(row: Any, unit: float) -> float:
    total = 0.0
    for j in range(row.size):
        value = np.float64(row[j]) * unit
        total += value * value
    return total


@compiled(nogil=True)
def _exponent(bits: Any) -> Any:
    """Return the biased exponent of the largest magnitude: 2047 if there is an inf or a nan."""
    top = np.int64(0)
    for j in range(bits.size):
        top = max(top, bits[j] & _MAGNITUDE)
    return top >> 52


@compiled(nogil=True, fastmath=_FREE_ORDER)
def measure(pointers: Any, rows: Any, values: Any, bits: Any, mantissa: Any, exponent: Any) -> None:
    """Write the norm of each row of doubles as a mantissa and an exponent.

    A sum of squares inside a wide range is proof that no square overflowed and that those which underflowed
    are nothing beside it; any other row is scaled by the exponent of its largest entry first.
    """
    for i in range(rows.size):
        start, stop = pointers[rows[i]], pointers[rows[i] + 1]
        total = _squares(values[start:stop], 1.0)
        if total > _LEAST and total < _MOST:
            mantissa[i], exponent[i] = math.sqrt(total), 0
            continue
        biased = _exponent(bits[start:stop])
        if biased == 2047:
            mantissa[i], exponent[i] = np.nan, 0
        else:
            mantissa[i] = math.sqrt(_squares(values[start:stop], math.ldexp(1.0, 1023 - biased)))
            exponent[i] = biased - 1023


@compiled(nogil=True, fastmath=_FREE_ORDER)
def measure_single(pointers: Any, rows: Any, values: Any, out: Any) -> None:
    """Write the norm of each row of single precision: no square of it over- or underflows a double."""
    for i in range(rows.size):
        total = _squares(values[pointers[rows[i]] : pointers[rows[i] + 1]], 1.0)
        out[i] = math.sqrt(total) if total < np.inf else np.nan


@compiled(nogil=True)
def _peak(values: Any, start: int, stop: int) -> float:
    """Return the largest magnitude, nan if any entry is not finite."""
    top = 0.0
    for p in range(start, stop):
        size = abs(np.float64(values[p]))
        if not size <= top:
            if not size < np.inf:
                return np.nan
            top = size
    return top


@compiled(nogil=True)
def peaks(pointers: Any, rows: Any, values: Any, out: Any) -> None:
    """Write the largest magnitude of each row."""
    for i in range(rows.size):
        out[i] = _peak(values, pointers[rows[i]], pointers[rows[i] + 1])


@compiled(nogil=True)
def measure_weighted(
    pointers: Any, rows: Any, values: Any, columns: Any, weights: Any, mantissa: Any, exponent: Any
) -> None:
    """Write the norm of each row times column weights of at most 1."""
    for i in range(rows.size):
        start, stop = pointers[rows[i]], pointers[rows[i] + 1]
        top = _peak(values, start, stop)
        shift = max(math.frexp(top)[1], -1000) if top > 0.0 else 0
        unit, total, touched = math.ldexp(1.0, -shift), 0.0, False
        for p in range(start, stop):
            column = columns[p] if columns.size else p - start
            value = np.float64(values[p]) * unit * weights[column]
            touched = touched or (values[p] != 0.0 and weights[column] != 0.0)
            total += value * value
        mantissa[i] = math.sqrt(total)
        if (touched and mantissa[i] < _LOST) or not top < np.inf:
            mantissa[i] = np.nan
        exponent[i] = shift


@compiled(nogil=True)
def centred(
    pointers: Any,
    rows: Any,
    values: Any,
    columns: Any,
    factors: Any,
    shift: Any,
    weights: Any,
    whole: float,
    dense: bool,
    near: Any,
    away: Any,
) -> None:
    """Write ``|| weights (f x - shift) ||^2`` to ``near`` and ``|| weights f x ||^2`` to ``away``."""
    for i in range(rows.size):
        start, stop = pointers[rows[i]], pointers[rows[i] + 1]
        inside, covered, size = 0.0, 0.0, 0.0
        for p in range(start, stop):
            column = p - start if dense else columns[p]
            entry = factors[i] * np.float64(values[p])
            apart = (entry - shift[column]) * weights[column]
            offset, entry = shift[column] * weights[column], entry * weights[column]
            inside += apart * apart
            covered += offset * offset
            size += entry * entry
        rest = 0.0 if dense else whole - covered
        near[i], away[i] = inside + max(rest, 0.0), size
