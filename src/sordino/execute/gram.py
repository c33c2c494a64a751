"""Sums over records of ``y y^T`` with ``y = clip_radius(x - center)``: dense in blocks, CSR never dense.

Everything is accumulated in double precision. ``records.scale`` clips the stored rows first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from sordino.execute.csr import row_norms

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
        distances = np.where(np.isfinite(records.norms[rows]), np.linalg.norm(block, axis=1), np.nan)
        factors = clip_factors(distances, ball.radius)
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


def dense_squares(records: Any, ball: Any) -> Floats:
    """Return ``sum y_j^2`` for each column."""
    out = np.zeros(records.features)
    for block in dense_rows(records, ball):
        out += np.einsum("ij,ij->j", block, block)
    return out


# ------------------------------------------------------------------------------------------ sparse


def csr_factors(records: Any, ball: Any) -> Floats:
    """Return the clip factor of each centred row.

    ``||x - m||^2 = ||x||^2 - 2 x.m + ||m||^2``, so no row is ever made dense.
    """
    squares = np.square(records.row_norms)
    if ball.center is not None:
        squares -= 2 * records.products(ball.center[:, None])[:, 0]
        squares += ball.center @ ball.center
    return clip_factors(np.sqrt(np.maximum(squares, 0.0)), ball.radius)


def csr_product(records: Any, matrix: Floats, ball: Any) -> Floats:
    """Return ``sum y (y^T matrix)`` with two passes over the non-zeros."""
    factors = csr_factors(records, ball)
    inner = records.products(matrix)
    if ball.center is not None:
        inner -= ball.center @ matrix
    inner *= np.square(factors)[:, None]
    out = records.transposed_products(inner)
    if ball.center is not None:
        out -= np.outer(ball.center, inner.sum(axis=0))
    return out


def csr_gram(records: Any, ball: Any) -> Floats:
    """Return ``sum y y^T`` from the non-zero pairs of each row and a correction for the centre."""
    factors = csr_factors(records, ball)
    out = np.zeros((records.features, records.features))
    x = records.matrix
    add_pairs(x.indptr, x.indices, x.data, records.rows, factors * records.scale, out)
    if ball.center is not None:
        cross = records.transposed_products(np.square(factors)[:, None])[:, 0]
        cross = np.outer(cross, ball.center)
        out += (factors @ factors) * np.outer(ball.center, ball.center) - cross - cross.T
    return out


def csr_moments(records: Any, ball: Any) -> tuple[Floats, float]:
    """Return ``sum y`` and ``sum ||y||^2`` for a ball about the origin."""
    factors = csr_factors(records, ball)
    total = records.transposed_products(factors[:, None])[:, 0]
    norms = np.where(factors > 0, records.row_norms, 0.0) * factors
    return total, float(norms @ norms)


def csr_squares(records: Any, ball: Any) -> Floats:
    """Return ``sum y_j^2`` for each column, for a ball about the origin."""
    out, x = np.zeros(records.features), records.matrix
    factors = csr_factors(records, ball) * records.scale
    add_squares(x.indptr, x.indices, x.data, records.rows, factors, out)
    return out


def restricted(records: Any, columns: NDArray[np.int64]) -> Any:
    """Return the same records with some of their columns; a record that is not finite stays so."""
    part = records.matrix[:, columns]
    kept = np.isfinite(records.norms)
    if hasattr(records, "rows"):
        norms = row_norms(part.indptr, part.data)[records.rows]
    else:
        norms = np.linalg.norm(part.astype(np.float64, copy=False), axis=1)
    norms = np.where(kept, norms * records.scale, np.nan)
    return replace(records, matrix=part, norms=norms, features=len(columns), intercept=0.0)


@numba.njit(cache=True, nogil=True)
def add_squares(indptr: Any, indices: Any, data: Any, rows: Any, scale: Floats, out: Floats) -> None:
    """Add the squared entries of ``scale_i x_i`` to their columns."""
    for i in range(rows.size):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            value = scale[i] * data[p]
            out[indices[p]] += value * value


@numba.njit(cache=True, nogil=True)
def multiply(
    indptr: Any, indices: Any, data: Any, rows: Any, scale: Floats, block: Floats, out: Floats
) -> None:
    """Write ``scale_i x_i^T block`` for the given rows."""
    for i in range(rows.size):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            value, column = scale[i] * data[p], indices[p]
            for j in range(block.shape[1]):
                out[i, j] += value * block[column, j]


@numba.njit(cache=True, nogil=True)
def multiply_transposed(
    indptr: Any, indices: Any, data: Any, rows: Any, scale: Floats, coef: Floats, out: Floats
) -> None:
    """Add ``scale_i x_i coef_i^T`` for the given rows."""
    for i in range(rows.size):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            value, column = scale[i] * data[p], indices[p]
            for j in range(coef.shape[1]):
                out[column, j] += value * coef[i, j]


@numba.njit(cache=True, nogil=True)
def add_pairs(indptr: Any, indices: Any, data: Any, rows: Any, scale: Floats, out: Floats) -> None:
    """Add ``(scale_i x_i)(scale_i x_i)^T`` over the non-zero pairs of each row."""
    for i in range(rows.size):
        if scale[i] != 0.0:
            for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
                value, row = scale[i] * data[p], indices[p]
                for q in range(indptr[rows[i]], indptr[rows[i] + 1]):
                    out[row, indices[q]] += value * (scale[i] * data[q])
