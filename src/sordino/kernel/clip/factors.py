"""Clip factors from norms that are upper bounds already."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import clip_doubles
from sordino.kernel.arrays import Floats
from sordino.kernel.clip.norms import row_norms
from sordino.kernel.clip.rounding import HIGHEST, LOWEST, NOTHING, TINY, limit
from sordino.kernel.machine_code import compiled


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
        return near.like(clip_doubles.clipped_scalars(near.tensor, beside(near, norms), bound))
    scalars = np.asarray(scalars, dtype=np.float64)
    if not bound >= NOTHING:
        return np.zeros_like(scalars)
    norms, out = np.ascontiguousarray(norms, dtype=np.float64), np.empty_like(scalars)
    if scalars.ndim == 1:
        _clip_each(scalars, norms, limit(bound), out)
        return out
    factor = np.empty(len(scalars))
    _factors(row_norms(scalars), norms, limit(bound), factor)
    with np.errstate(all="ignore"):
        np.multiply(scalars, factor[:, None], out=out)
    out[factor == 0.0] = 0.0
    return out


def factors_of(norms: Floats, bound: float) -> Floats:
    """Return ``min(1, bound / norm)`` for norms that are upper bounds, 0 where a norm is not finite.

    **Rounding.** As in :func:`clip_scalars`.
    """
    if hasattr(norms, "tensor"):
        near: Any = norms
        return near.like(clip_doubles.factors_of(near.tensor, bound))
    out = np.empty(len(norms))
    _factors(norms, np.ones(len(norms)), limit(bound), out)
    return out


def to_bound(vector: Any, bound: float) -> Floats:
    """Return one vector of data scaled to the norm ``bound``; one that is not finite becomes zero.

    **Rounding.** As in :func:`clip_scalars`; the norm is that of :func:`row_norms`.
    """
    flat = np.asarray(vector, dtype=np.float64).reshape(1, -1)
    factor = float(factors_of(row_norms(flat), bound)[0])
    with np.errstate(all="ignore"):
        return np.zeros(np.shape(vector)) if factor == 0.0 else np.asarray(vector, dtype=np.float64) * factor


def scaled(coefficients: Floats, factors: Floats) -> Floats:
    r"""Return ``coefficients factors`` for factors of at most 1, without digits lost to underflow.

    **Rounding.** One, counted in :func:`limit`. A product below 2^-960 becomes zero: the row it belongs to
    may be as large as 1.8e308, and half a unit of a subnormal number times that is not small.
    """
    if hasattr(coefficients, "tensor"):
        near: Any = coefficients
        return near.like(clip_doubles.scaled(near.tensor, beside(near, factors)))
    out = np.empty(len(coefficients))
    _products(np.ascontiguousarray(coefficients), factors, out)
    return out


def beside(near: Any, values: Any) -> Any:
    """Return the tensor of numbers of records, which lies where ``near`` lies."""
    return values.tensor if hasattr(values, "tensor") else near.tensor.new_tensor(values)


@numba.njit(inline="always", error_model="numpy")
def clipped(scalar: float, norm: float, most: float) -> float:
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
    """Return the product of one record, see :func:`scaled`."""
    value = coefficient * factor
    return value if (factor == 1.0) | (abs(value) >= TINY) else 0.0


@compiled(nogil=True, error_model="numpy")
def _clip_each(scalars: Any, norms: Any, most: float, out: Any) -> None:
    for i in range(scalars.size):
        out[i] = clipped(scalars[i], norms[i], most)


@compiled(nogil=True)
def _factors(sizes: Any, norms: Any, most: float, out: Any) -> None:
    for i in range(sizes.size):
        size = sizes[i] * norms[i]
        if size <= most:
            out[i] = 1.0
        elif size < math.inf and most / size >= TINY:
            out[i] = most / size
        else:
            out[i] = 0.0


@compiled(nogil=True)
def _products(coefficients: Any, factors: Any, out: Any) -> None:
    for i in range(coefficients.size):
        out[i] = times_factor(coefficients[i], factors[i])
