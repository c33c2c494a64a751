"""Blocks of rows clipped to a norm: robust rows of several parts, and whole matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from sordino.kernel import clip_doubles
from sordino.kernel.arrays import Floats
from sordino.kernel.clip.factors import beside, factors_of
from sordino.kernel.clip.norms import joint_norms, measured, row_norms


def clipped_blocks(parts: list[Any], bound: float, drop: bool = False) -> list[Any]:
    r"""Scale rows, all parts together, to the norm ``bound``; with ``drop`` rows beyond become zero.

    Parts are finite arrays or CSR blocks without duplicates. A row whose norm overflows becomes zero.

    **Rounding.** The norms are upper bounds (:func:`measured`, :func:`joint_norms`); the quotient and the
    product round once each, for which :func:`limit` leaves room. A record's scalar parts may be several
    entries of one row: their products round once more.
    """
    factor = factors_of(joint_norms([row_norms(part) for part in parts]), bound)
    if drop:
        factor = np.where(factor < 1.0, 0.0, factor)
    if (factor == 1.0).all():
        return parts
    return [_times(part, factor) for part in parts]


def sum_of_rows(rows: Any, bound: float) -> Floats:
    """Return the sum of rows, an array or the list of its columns, each clipped to the norm ``bound``.

    A row that is not finite adds nothing. **Rounding.** As in :func:`clipped_blocks`.
    """
    if isinstance(rows, list) and any(hasattr(column, "tensor") for column in rows):
        near = next(column for column in rows if hasattr(column, "tensor"))
        return clip_doubles.sum_of_rows([beside(near, column) for column in rows], bound)
    each = np.stack(rows, axis=1) if isinstance(rows, list) else rows
    factors = factors_of(row_norms(each), bound)
    kept = factors > 0.0
    return np.asarray(factors @ each if kept.all() else factors[kept] @ each[kept])


def clipped_matrix(matrix: Any, bound: float) -> Any:
    r"""Return the matrix, array or CSR, with rows of norm at most ``bound`` in exact arithmetic.

    **Rounding.** Factors are those of :meth:`Lengths.factors`, so rows beyond 1.8e308 are scaled too.
    Products are rounded towards zero, in double precision and again when they return to single precision.
    """
    return shortened(matrix, measured(matrix).factors(bound))


def shortened(matrix: Any, factors: Floats) -> Any:
    """Return a copy with each row times its factor, rounded towards zero; 0 makes any row zero."""
    if not sparse.issparse(matrix):
        return _towards_zero(matrix, factors[:, None])
    out = matrix.copy()
    out.data = _towards_zero(matrix.data, np.repeat(factors, np.diff(matrix.indptr)))
    return out


def _times(part: Any, factor: Floats) -> Any:
    if sparse.issparse(part):
        return (sparse.diags_array(factor) @ part).tocsr()
    return part * factor[:, None]


def _towards_zero(values: Any, factors: Floats) -> Any:
    """Return ``values factors`` in the precision of the values, with no magnitude above the exact product."""
    with np.errstate(all="ignore"):
        exact = values.astype(np.float64) * factors
        out = exact.astype(values.dtype)
        # Twice: once for the rounding of the product, once for that of the cast.
        down = np.nextafter(out, values.dtype.type(0))
        down = np.where(np.abs(down) > np.abs(exact), np.nextafter(down, values.dtype.type(0)), down)
    return np.where(factors == 1.0, values, np.where(factors == 0.0, values.dtype.type(0), down))
