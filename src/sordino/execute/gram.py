"""Sums over records of ``y y^T`` with ``y = clip_radius(x - center)``: dense in blocks, CSR never dense.

Everything is accumulated in double precision. ``records.scale`` clips the stored rows first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.execute.csr import At
from sordino.kernel import clip
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.contracts import PublicBall
from sordino.kernel.machine_code import compiled

if TYPE_CHECKING:
    from sordino.execute.csr_records import CsrRecords
    from sordino.execute.records import DenseRecords, LocalRecords

_CHUNK = 1 << 21  # entries of a dense block


def spread_of(matrix: Floats | None) -> float:
    """Return how much the rounding of a product with k columns weighs: ``1 + sqrt k``."""
    return 1.0 if matrix is None else 1.0 + float(np.sqrt(matrix.shape[1]))


def clip_factors(distances: Floats, radius: float, length: int, spread: float) -> Floats:
    r"""Return ``min(1, radius / distance)``, and 0 for a record that is not finite.

    ``y^T B`` adds up ``length`` products and errs by ``length 2^-53 sqrt k ||y|| ||B||_op``; the radius
    gives way to that, besides the rounding of the distances.
    """
    return clip.factors_of(distances, clip.limit(radius, int(length * spread)))


# ------------------------------------------------------------------------------------------- dense


def dense_rows(records: DenseRecords, ball: PublicBall, spread: float = 1.0) -> Iterator[Floats]:
    """Yield the clipped, centred rows block by block."""
    step = max(1, _CHUNK // max(1, records.features))
    for i in range(0, len(records.matrix), step):
        rows = slice(i, i + step)
        block = records.matrix[rows] * records.scale[rows, None]
        if ball.center is not None:
            block -= ball.center
        distances = np.where(np.isfinite(records.norms[rows]), clip.row_norms(block), np.nan)
        factors = clip_factors(distances, ball.radius, records.features, spread)
        if (factors != 1.0).any():
            block[factors == 0.0] = 0.0
            block *= factors[:, None]
        yield block


def dense_gram(records: DenseRecords, ball: PublicBall) -> Floats:
    """Return ``sum y y^T``."""
    out = np.zeros((records.features, records.features))
    for block in dense_rows(records, ball):
        out += block.T @ block
    return out


def dense_product(records: DenseRecords, matrix: Floats, ball: PublicBall) -> Floats:
    """Return ``sum y (y^T matrix)``."""
    out = np.zeros(matrix.shape)
    for block in dense_rows(records, ball, spread_of(matrix)):
        out += block.T @ (block @ matrix)
    return out


def dense_moments(records: DenseRecords, ball: PublicBall) -> tuple[Floats, float]:
    """Return ``sum y`` and ``sum ||y||^2``."""
    total, squares = np.zeros(records.features), 0.0
    for block in dense_rows(records, ball):
        total += block.sum(axis=0)
        squares += float(np.vdot(block, block))
    return total, squares


def dense_squares(records: DenseRecords, ball: PublicBall) -> Floats:
    """Return ``sum y_j^2`` for each column."""
    out = np.zeros(records.features)
    for block in dense_rows(records, ball):
        out += np.einsum("ij,ij->j", block, block)
    return out


# ------------------------------------------------------------------------------------------ sparse


def csr_factors(records: CsrRecords, ball: PublicBall, spread: float = 1.0) -> Floats:
    """Return the clip factor of each centred row; no row is ever made dense."""
    distances = records.row_norms
    if ball.center is not None:
        distances = records.centred_norms(ball.center, np.ones(records.features), spread)
    return clip_factors(distances, ball.radius, records.features, spread)


def csr_product(records: CsrRecords, matrix: Floats, ball: PublicBall) -> Floats:
    """Return ``sum y (y^T matrix)`` with two passes over the non-zeros."""
    factors = csr_factors(records, ball, spread_of(matrix))
    inner = records.products(matrix)
    if ball.center is not None:
        inner -= ball.center @ matrix
    inner *= np.square(factors)[:, None]
    out = records.transposed_products(inner)
    if ball.center is not None:
        out -= np.outer(ball.center, inner.sum(axis=0))
    return out


def csr_gram(records: CsrRecords, ball: PublicBall) -> Floats:
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


def csr_moments(records: CsrRecords, ball: PublicBall) -> tuple[Floats, float]:
    """Return ``sum y`` and ``sum ||y||^2`` for a ball about the origin."""
    factors = csr_factors(records, ball)
    total = records.transposed_products(factors[:, None])[:, 0]
    norms = np.where(factors > 0, records.row_norms, 0.0) * factors
    return total, float(norms @ norms)


def csr_squares(records: CsrRecords, ball: PublicBall) -> Floats:
    """Return ``sum y_j^2`` for each column, for a ball about the origin."""
    out, x = np.zeros(records.features), records.matrix
    factors = csr_factors(records, ball) * records.scale
    add_squares(x.indptr, x.indices, x.data, records.rows, factors, out)
    return out


def restricted(records: LocalRecords, columns: Ints) -> LocalRecords:
    """Return the same records with some of their columns; a record that is not finite stays so."""
    part = records.matrix[:, columns]
    norms = clip.row_norms(part, records._addressed) * records.scale
    norms = np.where(np.isfinite(records.norms), norms, np.nan)
    return replace(records, matrix=part, norms=norms, row_norms=norms, features=len(columns), intercept=0.0)


@compiled(nogil=True)
def add_squares(indptr: Any, indices: Any, data: Any, rows: Any, scale: Floats, out: Floats) -> None:
    """Add the squared entries of ``scale_i x_i`` to their columns."""
    for i in range(rows.size):
        for p in range(At(indptr[rows[i]]), At(indptr[rows[i] + 1])):
            value = scale[i] * data[p]
            out[At(indices[p])] += value * value


@compiled(nogil=True)
def multiply(
    indptr: Any, indices: Any, data: Any, rows: Any, scale: Floats, block: Floats, out: Floats
) -> None:
    """Write ``scale_i x_i^T block`` for the given rows."""
    for i in range(rows.size):
        for p in range(At(indptr[rows[i]]), At(indptr[rows[i] + 1])):
            value, column = scale[i] * data[p], At(indices[p])
            for j in range(block.shape[1]):
                out[i, j] += value * block[column, j]


@compiled(nogil=True)
def multiply_transposed(
    indptr: Any, indices: Any, data: Any, rows: Any, scale: Floats, coef: Floats, out: Floats
) -> None:
    """Add ``scale_i x_i coef_i^T`` for the given rows."""
    for i in range(rows.size):
        for p in range(At(indptr[rows[i]]), At(indptr[rows[i] + 1])):
            value, column = scale[i] * data[p], At(indices[p])
            for j in range(coef.shape[1]):
                out[column, j] += value * coef[i, j]


@compiled(nogil=True)
def add_pairs(indptr: Any, indices: Any, data: Any, rows: Any, scale: Floats, out: Floats) -> None:
    """Add ``(scale_i x_i)(scale_i x_i)^T`` over the non-zero pairs of each row to a symmetric matrix.

    Columns rise in a row (:func:`~sordino.execute.csr.checked`), so one half gets all of it.
    """
    for i in range(rows.size):
        f, start, stop = scale[i], At(indptr[rows[i]]), At(indptr[rows[i] + 1])
        if f != 0.0:
            for p in range(start, stop):
                value, row = f * data[p], At(indices[p])
                for q in range(start, p + At(1)):
                    out[row, At(indices[q])] += value * (f * data[q])
    for j in range(out.shape[0]):
        for k in range(j):
            out[k, j] = out[j, k]
