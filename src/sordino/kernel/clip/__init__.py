"""The norm of a contribution and its clip factor, for everything that is not a neural network.

No other module takes a norm of data. Every norm here is an upper bound of the exact one, every factor keeps
the exact contribution at or below its bound, and each function says by how much it may be off: see
:func:`slack`. Norms of released or public vectors are in :mod:`sordino.kernel.arrays`.

Arrays and CSR are measured here, in double precision; tensors on a device in :mod:`.doubles`, gradients of
networks in :mod:`.tensors`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numba
import numpy as np
from scipy import sparse

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.arrays import Floats, Ints, Rows, compile_with_cache

# Write ``u = 2^-53``. All norms of this package are taken in double precision (single precision is cast
# first, which is exact), over numbers that were scaled by a power of two, which is exact too.

UNIT = 2.0**-53
# Smaller products lose digits to underflow, and a factor this small belongs to a row beyond 1e289: such a
# product is taken for zero, which no record can be harmed by.
TINY = 2.0**-960
# Public bounds outside are refused: their squares, and products with factors, must stay normal numbers.
LOWEST, HIGHEST = 2.0**-400, 2.0**400
NOTHING = 2.0**-500  # a clip below this, of a difference of two points, lets nothing through


def slack(length: int) -> float:
    r"""Return ``(K + 16) u``, the relative error that a norm over ``K = length`` numbers may have.

    K squares added in any order err by at most ``K u / (1 - K u)`` of their sum; the root halves that and
    adds u. Squares that underflow (the largest scaled number is at least 1) lose at most ``K 2^-1074``.
    The sixteen u that are left cover what is done to a number before and after: a product with a column
    weight (two roundings), with a row factor, scaling back, and the product with ``1 + slack`` itself.
    """
    return (length + 16) * UNIT


def limit(bound: float, length: int = 0) -> float:
    r"""Return ``bound (1 - slack(length))``: what a computed norm may reach.

    The sixteen u of length 0 are for the operations between a norm that is an upper bound already and the
    contribution: ``|r| norm``, the quotient, ``r factor``, ``coefficient scale``, the product with an entry.
    """
    return bound * (1.0 - slack(length))


def above(norms: Any, length: int) -> Any:
    """Return ``norms (1 + slack(length))``, and the next number where a subnormal was rounded."""
    with np.errstate(all="ignore"):
        out = np.asarray(norms * (1.0 + slack(length)))
        if np.fmin.reduce(out, axis=None, initial=1.0) < TINY:
            out = np.where((out > 0) & (out < TINY), np.nextafter(out, np.inf), out)
    return out


def single_norms(norms: Floats, length: int) -> Floats:
    r"""Return upper bounds of the norms of rows after each entry was rounded to single precision.

    **Rounding.** An entry errs by at most ``2^-24`` of it, a subnormal one by 2^-150: a row with K =
    ``length`` entries by ``2^-24 ||z|| + 2^-150 sqrt K``. Twice both is added, which covers the sum itself.
    """
    return np.asarray(norms * (1.0 + 2.0**-23) + 2.0**-149 * math.sqrt(length))


def root_above(square: float) -> float:
    """Return a square root that is not below the exact one."""
    root = math.sqrt(square)
    return root if root * root == square and root == int(root) else math.nextafter(root, math.inf)


def _doubles() -> Any:
    """Return the passes over tensors on a device, which hold these bounds too."""
    return import_module("sordino.kernel.clip.doubles")


# Compiled passes over rows. The order of a sum is free: the written bounds hold for any order.

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


@compile_with_cache(nogil=True)
def _exponent(bits: Any) -> Any:
    """Return the biased exponent of the largest magnitude: 2047 if there is an inf or a nan."""
    top = np.int64(0)
    for j in range(bits.size):
        top = max(top, bits[j] & _MAGNITUDE)
    return top >> 52


@compile_with_cache(nogil=True, fastmath=_FREE_ORDER)
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


@compile_with_cache(nogil=True, fastmath=_FREE_ORDER)
def measure_single(pointers: Any, rows: Any, values: Any, out: Any) -> None:
    """Write the norm of each row of single precision: no square of it over- or underflows a double."""
    for i in range(rows.size):
        total = _squares(values[pointers[rows[i]] : pointers[rows[i] + 1]], 1.0)
        out[i] = math.sqrt(total) if total < np.inf else np.nan


@compile_with_cache(nogil=True)
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


@compile_with_cache(nogil=True)
def peaks(pointers: Any, rows: Any, values: Any, out: Any) -> None:
    """Write the largest magnitude of each row."""
    for i in range(rows.size):
        out[i] = _peak(values, pointers[rows[i]], pointers[rows[i] + 1])


@compile_with_cache(nogil=True)
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


@compile_with_cache(nogil=True)
def center_norms(
    pointers: Any, rows: Any, values: Any, columns: Any, factors: Any, at: Any, room: Any, out: Any
) -> None:
    """Write upper bounds of ``|| weights (f x - shift) ||``, see :func:`centred_norms`.

    ``at`` are the shift, the weights and the squared norm of their product; ``room`` are what the squares
    of a row are multiplied by for its rounding, what a norm is, and what is added for underflow.
    """
    shift, weights, whole = at
    rounding, more, least = room
    for i in range(rows.size):
        inside, covered, size = 0.0, 0.0, 0.0
        for p in range(pointers[rows[i]], pointers[rows[i] + 1]):
            column = columns[p]
            entry = factors[i] * np.float64(values[p])
            apart = (entry - shift[column]) * weights[column]
            offset, entry = shift[column] * weights[column], entry * weights[column]
            inside += apart * apart
            covered += offset * offset
            size += entry * entry
        square = inside + max(whole - covered, 0.0) + rounding * (size + whole)
        out[i] = math.sqrt(square) * more + least


@compile_with_cache(nogil=True, fastmath=_FREE_ORDER)
def centred_array(rows: Any, values: Any, factors: Any, at: Any, room: Any, out: Any) -> None:
    """Write what :func:`center_norms` does, of rows that have an entry in every column."""
    shift, weights, whole = at
    rounding, more, least = room
    for i in range(rows.size):
        row = values[rows[i] * shift.size : (rows[i] + 1) * shift.size]
        inside, size = 0.0, 0.0
        for j in range(row.size):
            entry = factors[i] * np.float64(row[j])
            apart = (entry - shift[j]) * weights[j]
            entry *= weights[j]
            inside += apart * apart
            size += entry * entry
        norm = math.sqrt(inside) + rounding * (math.sqrt(size) + math.sqrt(whole))
        out[i] = norm * more + least


@compile_with_cache(nogil=True)
def _roots(one: Any, others: Any, out: Any) -> bool:
    """Write norms of pairs; tell whether all ranges are proven."""
    known = 0
    for i in range(one.size):
        square = one[i] * one[i] + others[i] * others[i]
        known += (square > _LEAST) & (square < _MOST)
        out[i] = math.sqrt(square)
    return known == one.size


# Rows are those of a C-ordered array or of a CSR matrix whose structure was checked. A row that is not
# finite has the norm nan; a finite row beyond 1.8e308 has inf.


@dataclass(frozen=True, eq=False)
class Lengths:
    r"""The norms of rows as ``mantissa 2^exponent``: also of rows whose norm no double can hold.

    **Rounding.** ``norms`` are above the exact ones by at most ``2 slack(length)``, with ``length`` the
    number of columns.
    """

    mantissa: Floats
    exponent: Ints
    length: int

    @cached_property
    def norms(self) -> Floats:
        """Upper bounds of the norms; inf where they overflow, nan for a row that is not finite."""
        with np.errstate(all="ignore"):
            return np.asarray(above(_times_power(self.mantissa, self.exponent), self.length))

    def factors(self, bound: float) -> Floats:
        r"""Return ``f_i <= 1`` with ``f_i ||x_i|| <= bound`` in exact arithmetic; 0 for a row not finite.

        **Rounding.** ``limit(bound) / norm`` with a norm that is an upper bound; a quotient below 2^-960 is
        rounded towards zero.
        """
        norms, most = self.norms, limit(bound)
        if norms.max(initial=0.0) <= HIGHEST:  # every norm is a number
            return factors_of(norms, bound)
        out = np.where(np.isnan(norms), 0.0, 1.0)
        far = np.flatnonzero(norms > most)
        if far.size:
            mantissa = self.mantissa[far] * (1.0 + slack(self.length))
            with np.errstate(all="ignore"):  # whatever the caller has set: an error would tell of a row
                found = _times_power(most / mantissa, -self.exponent[far])
                small = found < TINY
                found[small] = np.nextafter(found[small], 0.0)
                out[far] = found
        return out


def _times_power(values: Floats, exponent: Ints) -> Floats:
    """Return ``values 2^exponent``; few matrices have an exponent that is not 0, and this is slow."""
    return np.ldexp(values, exponent) if exponent.any() else values


def measure_rows(matrix: Any, rows: Rows = None) -> Lengths:
    r"""Return the lengths of rows: ``2^e || x 2^-e ||`` with e the exponent of the largest entry.

    **Rounding.** See :func:`slack`. Single precision needs no scaling: its squares are normal doubles.
    """
    pointers, rows, values, _, width = parts(matrix, rows)
    mantissa, exponent = np.empty(rows.size), np.zeros(rows.size, dtype=np.int64)
    if values.dtype == np.float32:
        measure_single(pointers, rows, values, mantissa)
    else:
        measure(pointers, rows, values, values.view(np.int64), mantissa, exponent)
    return Lengths(mantissa, exponent, width)


def row_norms(matrix: Any, rows: Rows = None) -> Floats:
    """Return upper bounds of the norms of rows, see :func:`measure_rows`."""
    return measure_rows(matrix, rows).norms


def vector_norm(vector: Any) -> float:
    """Return an upper bound of the norm of one vector of data, see :func:`measure_rows`."""
    return float(row_norms(np.asarray(vector, dtype=np.float64).reshape(1, -1))[0])


def joint_norms(norms: list[Any]) -> Floats:
    """Return upper bounds of the norms of vectors whose parts have these norms; some may be one number.

    **Rounding.** The root of a sum of two squares whose range is proven, as in :func:`measure`, errs by at
    most 2 u each time. So does ``hypot``, for other numbers; it over- or underflows only if its result does.
    """
    out = norms[0]
    if hasattr(out, "tensor"):  # on a device
        last = [n.tensor if hasattr(n, "tensor") else n for n in norms[1:]]
        return out.like(_doubles().joint_norms(out.tensor, *last))
    for other in norms[1:]:
        one = np.ascontiguousarray(out)
        others, out = np.ascontiguousarray(np.broadcast_to(other, one.shape), float), np.empty(one.size)
        if not _roots(one, others, out):
            with np.errstate(all="ignore"):
                squares = np.square(one) + np.square(other)
                out = np.where((squares > _LEAST) & (squares < _MOST), out, np.hypot(one, other))
    return np.asarray(above(out, 2 * len(norms)))


def weighted_norms(matrix: Any, weights: Floats, rows: Rows = None) -> Floats:
    r"""Return upper bounds of ``|| (x_ij weights_j)_j ||``; nan where they cannot be measured.

    The row and the weights are scaled by powers of two first. A row whose weighted entries are all below
    2^-450 of the largest entry times the largest weight cannot be told from nothing: it gets nan.

    **Rounding.** Two more roundings per entry (the weight, the product), inside :func:`slack`.
    """
    pointers, rows, values, columns, width = parts(matrix, rows)
    top = float(np.abs(weights).max(initial=0.0))
    if not np.isfinite(top):
        return np.full(rows.size, np.nan)
    shift = int(np.frexp(top)[1])
    mantissa, exponent = np.empty(rows.size), np.zeros(rows.size, dtype=np.int64)
    with np.errstate(all="ignore"):
        even = np.ldexp(np.asarray(weights, dtype=np.float64), -shift)
    measure_weighted(pointers, rows, values, columns, even, mantissa, exponent)
    return Lengths(mantissa, exponent + shift, width).norms


def centred_norms(
    matrix: Any, factors: Floats, shift: Floats, weights: Floats, rows: Rows = None, spread: float = 1.0
) -> Floats:
    r"""Return upper bounds of ``|| weights (f_i x_i - shift) ||``, without making a sparse row dense.

    Over the non-zeros let A be the sum of ``(weights (f x - shift))^2``, B that of ``(weights shift)^2`` and
    X that of ``(weights f x)^2``; M is B over all columns. The squared norm is ``A + (M - B)``.

    **Rounding.** With K columns: an entry of A errs by ``u |weights f x|`` and three relative u, so A by at
    most ``u X + (K + 8) u A``, ``M - B`` by ``2 K u M``, and ``A <= 2 (X + M)``: together less than
    ``6 (K + 4) u (X + M)``, which is added to the square. It also covers the rounding of what is added up
    for the record (``f x`` and ``shift`` apart, so ``4 u (sqrt X + sqrt M)^2 <= 8 u (X + M)``); products with
    a block of k columns err by ``K u sqrt k`` instead: ``spread = 1 + sqrt k`` multiplies it. A dense row is
    subtracted entry by entry, so M - B is not computed; ``8 u (sqrt X + sqrt M)`` is added to its norm.
    Squares of entries below 2^-511 underflow; ``2^-500 sqrt K`` is added for them.
    """
    pointers, rows, values, columns, width = parts(matrix, rows)
    shift, weights = (np.ascontiguousarray(v, dtype=np.float64) for v in (shift, weights))
    out, more, least = np.empty(rows.size), 1.0 + slack(width), 2.0**-500 * math.sqrt(width)
    with np.errstate(all="ignore"):
        at = shift, weights, float(np.square(weights * shift).sum())
    if sparse.issparse(matrix):
        room = 6 * (width + 4) * 2.0**-53 * spread, more, least
        center_norms(pointers, rows, values, columns, factors, at, room, out)
    else:
        centred_array(rows, values, factors, at, (8 * 2.0**-53 * spread, more, least), out)
    out[np.isinf(out)] = np.nan
    return out


def resize_norms(norms: Floats, before: Floats, after: Floats) -> Floats | None:
    r"""Return upper bounds of ``|| after v_i ||`` from those of ``|| before v_i ||``: one factor for all.

    None where weights changed by factors that differ by more than their rounding.

    **Rounding.** With ``f >= |after_j / before_j|`` in every column the norm is at most f times as large,
    and so is all that was added to it; f and its product are rounded up by :func:`above`.
    """
    some = before != 0.0
    with np.errstate(all="ignore"):
        ratios = np.abs(after[some] / before[some])
        most = float(ratios.max(initial=0.0))
        alike = TINY < most < np.inf and bool((ratios >= most * (1.0 - 2.0**-40)).all())
        if not alike or after[~some].any():
            return None
        return norms if most == ratios.min() == 1.0 else np.asarray(above(norms * most, 2))


def row_peaks(matrix: Any, rows: Rows = None) -> Floats:
    """Return the largest magnitude of each row: exact; nan for a row that is not finite."""
    pointers, rows, values, _, _ = parts(matrix, rows)
    out = np.empty(rows.size)
    peaks(pointers, rows, values, out)
    return out


def parts(matrix: Any, rows: Rows) -> tuple[Any, Ints, Any, Any, int]:
    """Return where rows start and end, which are asked, values, columns (none of an array), and the width."""
    count, width = matrix.shape
    rows = np.arange(count) if rows is None else rows
    if sparse.issparse(matrix):
        return matrix.indptr, rows, _floats(matrix.data), matrix.indices, int(width)
    values = _floats(np.ascontiguousarray(matrix)).reshape(-1)
    return np.arange(count + 1) * width, rows, values, np.empty(0, dtype=np.int32), int(width)


def _floats(values: Any) -> Any:
    if values.dtype in (np.float32, np.float64) and values.flags.aligned and values.dtype.isnative:
        return values
    return values.astype(np.float64)


def check_bound(name: str, bound: float, remedy: str) -> float:
    """Refuse a bound that bounds nothing, or that leaves the range in which its products are exact."""
    if not LOWEST <= bound <= HIGHEST:
        raise InvalidInputError(
            f"Expected {name} > 0 (in [{LOWEST:.3g}, {HIGHEST:.3g}]), got {bound}. {remedy}"
        )
    return float(bound)


def clip_scalars(scalars: Floats, norms: Floats, bound: float) -> Floats:
    r"""Scale the scalars of each record (one, or a row of several) so that ``||scalars|| norm <= bound``.

    What is not finite, and a size that overflows, contributes zero; so does everything where the bound is
    below 2^-500 (a difference of two equal points).

    **Rounding.** ``norms`` are upper bounds. The size, the quotient and the product each round once, and the
    caller's products with a row factor and an entry once more: :func:`limit` leaves sixteen u for them. A
    quotient or a clipped scalar below 2^-960 would lose digits to underflow and becomes zero.
    """
    if hasattr(scalars, "tensor"):  # on a device
        near: Any = scalars
        return near.like(_doubles().clipped_scalars(near.tensor, beside(near, norms), bound))
    scalars = np.asarray(scalars, dtype=np.float64)
    if not bound >= NOTHING:
        return np.zeros_like(scalars)
    norms, out = np.ascontiguousarray(norms, dtype=np.float64), np.empty_like(scalars)
    if scalars.ndim == 1:
        _clip_each(scalars, norms, limit(bound), out)
        return out
    with np.errstate(all="ignore"):
        factor = factors_of(row_norms(scalars) * norms, bound)
        np.multiply(scalars, factor[:, None], out=out)
    out[factor == 0.0] = 0.0
    return out


def factors_of(norms: Floats, bound: float) -> Floats:
    """Return ``min(1, bound / norm)`` for norms that are upper bounds, 0 where a norm is not finite.

    **Rounding.** As in :func:`clip_scalars`.
    """
    if hasattr(norms, "tensor"):
        near: Any = norms
        return near.like(_doubles().factors_of(near.tensor, bound))
    out = np.empty(len(norms))
    _factors(norms, limit(bound), out)
    return out


def to_bound(vector: Any, bound: float) -> Floats:
    """Return one vector of data scaled to the norm ``bound``; one that is not finite becomes zero.

    **Rounding.** As in :func:`clip_scalars`; the norm is that of :func:`row_norms`.
    """
    flat = np.asarray(vector, dtype=np.float64).reshape(1, -1)
    factor = float(factors_of(row_norms(flat), bound)[0])
    with np.errstate(all="ignore"):
        return np.zeros(np.shape(vector)) if factor == 0.0 else np.asarray(vector, dtype=np.float64) * factor


def scale_down(coefficients: Floats, factors: Floats) -> Floats:
    r"""Return ``coefficients factors`` for factors of at most 1, without digits lost to underflow.

    **Rounding.** One, counted in :func:`limit`. A product below 2^-960 becomes zero: the row it belongs to
    may be as large as 1.8e308, and half a unit of a subnormal number times that is not small.
    """
    if hasattr(coefficients, "tensor"):
        near: Any = coefficients
        return near.like(_doubles().scale_down(near.tensor, beside(near, factors)))
    out = np.empty(len(coefficients))
    _products(np.ascontiguousarray(coefficients), factors, out)
    return out


def beside(near: Any, values: Any) -> Any:
    """Return the tensor of numbers of records, which lies where ``near`` lies."""
    return values.tensor if hasattr(values, "tensor") else near.tensor.new_tensor(values)


@numba.njit(inline="always", error_model="numpy")
def clip_scalar(scalar: float, norm: float, most: float) -> float:
    """Return the scalar of one record, see :func:`clip_scalars`; ``most`` is the limit of the bound.

    Nothing is decided before everything is computed: then several records can be clipped at a time.
    """
    size = abs(scalar) * norm
    factor = most / size
    value = scalar * factor
    kept = (size < math.inf) & (factor >= TINY) & (abs(value) >= TINY)
    return scalar if size <= most else (value if kept else 0.0)


@numba.njit(inline="always", error_model="numpy")
def times_factor(coefficient: float, factor: float) -> float:
    """Return the product of one record, see :func:`scale_down`."""
    value = coefficient * factor
    return value if (factor == 1.0) | (abs(value) >= TINY) else 0.0


@compile_with_cache(nogil=True, error_model="numpy")
def _clip_each(scalars: Any, norms: Any, most: float, out: Any) -> None:
    for i in range(scalars.size):
        out[i] = clip_scalar(scalars[i], norms[i], most)


@compile_with_cache(nogil=True, error_model="numpy")
def _factors(sizes: Any, most: float, out: Any) -> None:
    for i in range(sizes.size):
        size, factor = sizes[i], most / sizes[i]
        kept = (size < math.inf) & (factor >= TINY)
        out[i] = 1.0 if size <= most else (factor if kept else 0.0)


@compile_with_cache(nogil=True)
def _products(coefficients: Any, factors: Any, out: Any) -> None:
    for i in range(coefficients.size):
        out[i] = times_factor(coefficients[i], factors[i])


def clipped_blocks(parts: list[Any], bound: float, drop: bool = False) -> list[Any]:
    r"""Scale rows, all parts together, to the norm ``bound``; with ``drop`` rows beyond become zero.

    Parts are finite arrays or CSR blocks without duplicates. A row whose norm overflows becomes zero.

    **Rounding.** The norms are upper bounds (:func:`measure_rows`, :func:`joint_norms`); the quotient and the
    product round once each, for which :func:`limit` leaves room. A record's scalar parts may be several
    entries of one row: their products round once more.
    """
    factor = factors_of(joint_norms([row_norms(part) for part in parts]), bound)
    if drop:
        factor = np.where(factor < 1.0, 0.0, factor)
    if (factor == 1.0).all():
        return parts
    return [
        (sparse.diags_array(factor) @ part).tocsr() if sparse.issparse(part) else part * factor[:, None]
        for part in parts
    ]


@compile_with_cache(nogil=True, error_model="numpy")
def _add_clipped(rows: Any, parts: Any, above_one: float, most: float, out: Any) -> bool:
    """Add clipped rows to ``out``; False at a row that can only be measured scaled, or that adds nothing."""
    for i in range(rows.shape[0]):
        total = _squares(rows[i], 1.0)
        norm = math.sqrt(total) * above_one
        if not (total > _LEAST and total < _MOST and most / norm >= TINY):
            return False
        factor = (1.0 if norm <= most else most / norm) * (parts[i] if parts.size else 1.0)
        for j in range(out.size):
            out[j] += factor * rows[i, j]
    return True


def sum_of_rows(rows: Any, bound: float, parts: Floats | None = None) -> Floats:
    """Return the sum of rows, an array or the list of its columns, each clipped to the norm ``bound``.

    A row that is not finite adds nothing; ``parts`` of at most 1 multiply what is clipped.
    **Rounding.** As in :func:`clipped_blocks`.
    """
    if isinstance(rows, list) and any(hasattr(column, "tensor") for column in rows):
        if parts is not None:
            raise UnsupportedError("Rows on a device are records, not parts of persons. Leave groups out.")
        near = next(column for column in rows if hasattr(column, "tensor"))
        return _doubles().sum_of_rows([beside(near, column) for column in rows], bound)
    each = np.stack(rows, axis=1) if isinstance(rows, list) else rows
    out, none = np.zeros(each.shape[1]), np.empty(0)
    if _add_clipped(each, none if parts is None else parts, 1.0 + slack(out.size), limit(bound), out):
        return out
    factors = factors_of(row_norms(each), bound)
    factors = factors if parts is None else factors * parts
    kept = factors > 0.0
    return np.asarray(factors @ each if kept.all() else factors[kept] @ each[kept])


def clipped_matrix(matrix: Any, bound: float) -> Any:
    r"""Return the matrix, array or CSR, with rows of norm at most ``bound`` in exact arithmetic.

    **Rounding.** Factors are those of :meth:`Lengths.factors`, so rows beyond 1.8e308 are scaled too.
    Products are rounded towards zero, in double precision and again when they return to single precision.
    """
    return shorten_rows(matrix, measure_rows(matrix).factors(bound))


def shorten_rows(matrix: Any, factors: Floats) -> Any:
    """Return a copy with each row times its factor, rounded towards zero; 0 makes any row zero."""
    if not sparse.issparse(matrix):
        return _towards_zero(matrix, factors[:, None])
    out = matrix.copy()
    out.data = _towards_zero(matrix.data, np.repeat(factors, np.diff(matrix.indptr)))
    return out


def _towards_zero(values: Any, factors: Floats) -> Any:
    """Return ``values factors`` in the precision of the values, with no magnitude above the exact product."""
    with np.errstate(all="ignore"):
        exact = values.astype(np.float64) * factors
        out = exact.astype(values.dtype)
        # Twice: once for the rounding of the product, once for that of the cast.
        down = np.nextafter(out, values.dtype.type(0))
        down = np.where(np.abs(down) > np.abs(exact), np.nextafter(down, values.dtype.type(0)), down)
    return np.where(factors == 1.0, values, np.where(factors == 0.0, values.dtype.type(0), down))


def person_norms(blocks: Any, owner: Ints, persons: int, sizes: Floats) -> Floats:
    r"""Return upper bounds of ``|| sum_{i of p} c_i x_i ||`` for each person p.

    ``blocks`` yields (slice, rows ``c_i x_i``) in the order of ``owner``, which does not fall; a person
    may straddle blocks; ``sizes`` are upper bounds of ``|c_i| ||x_i||``.

    **Rounding.** The sum of m rows errs by at most ``m u S``, S the sum of their sizes: it may cancel, so
    this does not shrink with the sum. The sum that is released errs likewise, after ``c_i`` was multiplied by
    the person's factor (u S more). ``(2 m + 16) u S`` is added to the norm of the computed sum.
    """
    out, first, carried = np.zeros(persons), 0, None
    for rows, block in blocks:
        sums = person_sums(block, owner[rows] - first)
        if carried is not None:
            sums = sums + sparse.vstack([carried, sparse.csr_matrix((sums.shape[0] - 1, sums.shape[1]))])
        out[first : first + sums.shape[0]] = row_norms(sums)
        carried, first = sums[-1], first + sums.shape[0] - 1
    counts, total = np.bincount(owner, minlength=persons), np.bincount(owner, sizes, minlength=persons)
    with np.errstate(all="ignore"):
        return np.asarray(joint_norms([out + (2 * counts + 16) * UNIT * total]))


def person_sums(block: Any, owner: Ints) -> Any:
    """Return the sum of each person's rows, one sparse row per person."""
    member = sparse.csr_matrix((np.ones(owner.size), (owner, np.arange(owner.size))))
    sums = sparse.csr_matrix(member @ block)
    sums.sum_duplicates()
    return sums
