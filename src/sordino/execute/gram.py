"""Sums over records of ``y y^T`` with ``y = clip_radius(x - center)``: dense in blocks, CSR never dense.

Everything is accumulated in double precision. ``records.scale`` clips the stored rows first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_CHUNK = 1 << 21  # entries of a dense block
# Distances are rounded, and those of sparse rows are differences of squares: stay below the radius.
_SAFETY = 1.0 - 2.0**-30


def clip_factors(distances: Floats, radius: float) -> Floats:
    """Return ``min(1, radius / distance)``, and 0 for a record that is not finite."""
    finite = np.isfinite(distances)
    out = finite.astype(float)
    np.divide(radius * _SAFETY, distances, out=out, where=finite & (distances > radius * _SAFETY))
    return out


# ------------------------------------------------------------------------------------------- dense


def dense_rows(records: Any, ball: Any) -> Iterator[Floats]:
    """Yield the clipped, centred rows block by block."""
    step = max(1, _CHUNK // max(1, records.features))
    for i in range(0, len(records.matrix), step):
        rows = slice(i, i + step)
        block = records.matrix[rows] * records.scale[rows, None]
        if ball.center is not None:
            block -= ball.center
        factors = clip_factors(np.linalg.norm(block, axis=1), ball.radius)
        if (factors != 1.0).any():
            block[factors == 0.0] = 0.0
            block *= factors[:, None]
        yield block


def dense_gram(records: Any, ball: Any) -> Floats:
    """Return ``sum y y^T``."""
    out = np.zeros((records.features, records.features))
    for block in dense_rows(records, ball):
        out += block.T @ block
    return out


def dense_product(records: Any, matrix: Floats, ball: Any) -> Floats:
    """Return ``sum y (y^T matrix)``."""
    out = np.zeros(matrix.shape)
    for block in dense_rows(records, ball):
        out += block.T @ (block @ matrix)
    return out


def dense_moments(records: Any, ball: Any) -> tuple[Floats, float]:
    """Return ``sum y`` and ``sum ||y||^2``."""
    total, squares = np.zeros(records.features), 0.0
    for block in dense_rows(records, ball):
        total += block.sum(axis=0)
        squares += float(np.vdot(block, block))
    return total, squares


# ------------------------------------------------------------------------------------------ sparse


def csr_factors(records: Any, ball: Any) -> tuple[Floats, Floats]:
    """Return the clip factor of each centred row and its product with the row's own scale.

    ``||x - m||^2 = ||x||^2 - 2 x.m + ||m||^2``, so no row is ever made dense.
    """
    squares = np.square(records.row_norms)
    if ball.center is not None:
        inner = records.products(ball.center[:, None])[:, 0] * records.scale
        squares = squares - 2 * inner + ball.center @ ball.center
    with np.errstate(invalid="ignore"):
        factors = clip_factors(np.sqrt(np.maximum(squares, 0.0)), ball.radius)
    return factors, factors * records.scale


def csr_product(records: Any, matrix: Floats, ball: Any) -> Floats:
    """Return ``sum y (y^T matrix)`` with two passes over the non-zeros."""
    factors, scaled = csr_factors(records, ball)
    inner = scaled[:, None] * records.products(matrix)
    inner[factors == 0.0] = 0.0
    if ball.center is not None:
        inner -= np.outer(factors, ball.center @ matrix)
    out = records.transposed_products(scaled[:, None] * inner)
    if ball.center is not None:
        out -= np.outer(ball.center, factors @ inner)
    return out


def csr_gram(records: Any, ball: Any) -> Floats:
    """Return ``sum y y^T`` from the non-zero pairs of each row and rank-two corrections."""
    factors, scaled = csr_factors(records, ball)
    out = np.zeros((records.features, records.features))
    x = records.matrix
    add_pairs(x.indptr, x.indices, x.data, records.rows, scaled, out)
    if ball.center is not None:
        cross = records.transposed_products((factors * scaled)[:, None])[:, 0]
        cross = np.outer(cross, ball.center)
        out += (factors @ factors) * np.outer(ball.center, ball.center) - cross - cross.T
    return out


def csr_moments(records: Any, ball: Any) -> tuple[Floats, float]:
    """Return ``sum y`` and ``sum ||y||^2`` about the origin."""
    factors, scaled = csr_factors(records, ball)
    total = records.transposed_products(scaled[:, None])[:, 0]
    norms = np.where(factors > 0, records.row_norms, 0.0) * factors
    return total, float(norms @ norms)


@numba.njit(cache=True, nogil=True)
def multiply(indptr: Any, indices: Any, data: Any, rows: Any, block: Any, out: Any) -> None:
    """Write ``x_i^T block`` for the given rows."""
    for i in range(rows.size):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            value, column = data[p], indices[p]
            for j in range(block.shape[1]):
                out[i, j] += value * block[column, j]


@numba.njit(cache=True, nogil=True)
def multiply_transposed(indptr: Any, indices: Any, data: Any, rows: Any, coef: Any, out: Any) -> None:
    """Add ``x_i coef_i^T`` for the given rows; a row whose coefficients are all zero is not read."""
    for i in range(rows.size):
        used = False
        for j in range(coef.shape[1]):
            used = used or coef[i, j] != 0.0
        if used:
            for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
                value, column = data[p], indices[p]
                for j in range(coef.shape[1]):
                    out[column, j] += value * coef[i, j]


@numba.njit(cache=True, nogil=True)
def add_pairs(indptr: Any, indices: Any, data: Any, rows: Any, scaled: Any, out: Any) -> None:
    """Add ``scaled_i^2 x_i x_i^T`` over the non-zero pairs of each row."""
    for i in range(rows.size):
        weight = scaled[i] * scaled[i]
        if weight != 0.0:
            for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
                value, row = weight * data[p], indices[p]
                for q in range(indptr[rows[i]], indptr[rows[i] + 1]):
                    out[row, indices[q]] += value * data[q]
