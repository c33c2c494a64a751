"""Rows seen through an affine map or as second moments, without a copy of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from sordino.execute import csr
from sordino.execute.csr import At, MappedFacts, mapped, point_on_rows
from sordino.kernel import SparseVector, clip
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.machine_code import compiled
from sordino.kernel.pull import Pull
from sordino.kernel.query import Point, PublicBall, PublicMap

if TYPE_CHECKING:
    from sordino.execute.records import CsrRecords, DenseRecords, LocalRecords

# Sums over records of ``y y^T`` with ``y = clip_radius(x - center)``: dense in blocks, CSR never dense.
# Everything is accumulated in double precision. ``records.scale`` clips the stored rows first.

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
    add_pairs(*records.entries, factors * records.scale, out)
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
    out = np.zeros(records.features)
    add_squares(*records.entries, csr_factors(records, ball) * records.scale, out)
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


# Columns at a time where mapped rows are never stored; entries of a block of them where they are.
_COLUMNS, _ENTRIES = 16, 1 << 16
# From so many columns for each entry of a row on, products of entries cost less than those of blocks.
_SPARSE = 4


class AffineView:
    r"""The records ``z_i = clip_1(scale * (x_i - shift))`` with an intercept entry.

    ``z_i . w = c_i (x_i . (scale w) - (scale shift) . w)``, so a sparse matrix stays sparse: the shift is a
    correction of rank one.
    """

    def __init__(self, base: LocalRecords, affine: PublicMap) -> None:
        self._base, self._affine = base, affine
        self.intercept = affine.intercept
        self._offset = affine.scale * affine.shift
        self.targets, self.weights = base.targets, base.weights
        self.sizes = base.centred_norms(affine.shift, affine.scale)
        self._clip = clip.factors_of(self.sizes, 1.0)
        last = np.full(len(self.sizes), abs(affine.intercept))
        self.norms = clip.joint_norms([np.maximum(self.sizes * self._clip, affine.floor), last])

    @property
    def factors(self) -> Floats:
        """The clip factors of the mapped rows, 0 for one that is not a number."""
        return self._clip

    def margins(self, w: Point) -> Floats:
        """Return ``z_i . w``, one column per output."""
        w = w.to_dense() if isinstance(w, SparseVector) else w
        weights = w[..., :-1] if self._affine.intercept else w
        point = weights * self._affine.scale
        if self._base.intercept:
            point = np.concatenate([point, np.zeros((*point.shape[:-1], 1))], axis=-1)
        out = self._base.margins(point) - (weights * self._offset).sum(axis=-1)
        out = out * (self._clip if out.ndim == 1 else self._clip[:, None])
        return out + self._affine.intercept * w[..., -1] if self._affine.intercept else out

    def weighted_sum(self, coefficients: Floats) -> Floats:
        """Return ``sum_i c_i z_i``, one row per output."""
        clipped = coefficients * (self._clip if coefficients.ndim == 1 else self._clip[:, None])
        raw = self._base.weighted_sum(clipped)[..., : self._base.features] * self._affine.scale
        out = raw - np.multiply.outer(clipped.sum(axis=0), self._offset)
        if not self._affine.intercept:
            return out
        last = self._affine.intercept * coefficients.sum(axis=0)
        return np.concatenate([out, np.asarray(last)[..., None]], axis=-1)

    def gram(self, factors: Floats) -> Floats:
        """Return ``sum_i f_i z_i z_i^T``, some columns at a time."""
        d = self._affine.scale.size
        every, out = np.eye(d, d + bool(self._affine.intercept)), np.empty((d, d))
        for start in range(0, d, _COLUMNS):
            block = slice(start, min(start + _COLUMNS, d))
            entries = np.where(factors[:, None] > 0.0, self.margins(every[block]), 0.0)
            out[block] = self.weighted_sum(entries * factors[:, None])[:, :d]
        return (out + out.T) / 2.0


class LocalView(AffineView):
    """Mapped rows in memory."""

    def clipped_gradient(self, w: Point, pull: Pull) -> Floats:
        """Return ``sum_i clip_C(r_i z_i)``, one output, in one pass over the rows."""
        w = w.to_dense() if isinstance(w, SparseVector) else w
        affine, d = self._affine, self._affine.scale.size
        constant = affine.intercept * float(w[-1]) if affine.intercept else 0.0
        weights, offset = point_on_rows(np.ascontiguousarray(w), affine.scale, self._offset)
        out = np.zeros(d + bool(affine.intercept))
        kept = self.__dict__.get("_known")
        if kept is None or kept[0] != pull.longest:
            facts = MappedFacts.of(self, self._base.scale, self._clip, pull.longest)
            kept = self.__dict__["_known"] = (pull.longest, facts)
        total, shifted = self._base.pulled(weights, (offset, constant), kept[1], pull, out[:d])
        mapped(out, affine.scale, self._offset, shifted)
        if affine.intercept:
            out[-1] = affine.intercept * total
        return out

    def gram(self, factors: Floats) -> Floats:
        """Return ``sum_i f_i z_i z_i^T`` from blocks of mapped rows, or from entries where these are few."""
        base, affine = self._base, self._affine
        step, out = max(1, _ENTRIES // max(1, base.features)), np.zeros((base.features, base.features))
        weights = self._clip * np.sqrt(factors)
        if sparse.issparse(base.matrix) and base.matrix.nnz * _SPARSE < base.matrix.shape[0] * base.features:
            return self._gram_of_entries(weights)
        for start in range(0, base.count, step):
            rows = slice(start, min(start + step, base.count))
            block = base.clipped_rows(rows)
            block -= affine.shift
            block *= affine.scale
            block *= weights[rows, None]
            block[weights[rows] == 0.0] = 0.0
            out += block.T @ block
        return (out + out.T) / 2.0

    def _gram_of_entries(self, weights: Floats) -> Floats:
        r"""Return ``sum_i (u_i - o_i) (u_i - o_i)^T`` with rows and shift apart; no row is made dense.

        **Rounding.** Eight roundings for a product of entries err by less than ``16 u (X + M)`` for a record,
        in the words of :func:`sordino.kernel.clip.centred_norms`, whose norm has room for more.
        """
        base, x, affine = self._base, self._base.matrix, self._affine
        factors = clip.scaled(weights, base.scale)
        out, sums = np.zeros((base.features, base.features)), np.zeros(base.features)
        add_pairs(x.indptr, x.indices, x.data, base._addressed, factors, out)
        csr.scatter(x.indptr, x.indices, x.data, base._addressed, weights * factors, sums)
        out *= np.outer(affine.scale, affine.scale)
        cross = np.outer(affine.scale * sums, self._offset)
        out -= cross + cross.T  # symmetric to the last bit, as all parts are
        return out + np.square(weights).sum() * np.outer(self._offset, self._offset)


class TouchedView:
    """Records of few columns through a map of many: sums are sparse vectors on the touched columns.

    ``view`` holds the columns ``touched`` alone, in this order; the others have no entry in any record.
    """

    def __init__(self, view: AffineView, touched: Ints, features: int) -> None:
        self._view, self._touched, self._features = view, touched, features
        self.targets, self.weights = view.targets, view.weights
        self.sizes, self.norms, self.factors = view.sizes, view.norms, view.factors

    def margins(self, w: SparseVector) -> Floats:
        """Return ``z_i . w``."""
        return self._view.margins(w.at(self._columns))

    def weighted_sum(self, coefficients: Floats) -> SparseVector:
        """Return ``sum_i c_i z_i`` on the touched columns and the intercept."""
        found = self._view.weighted_sum(coefficients)
        return SparseVector(self._columns, found, self._features + len(found) - len(self._touched))

    @property
    def _columns(self) -> Ints:
        return np.append(self._touched, self._features) if self._view.intercept else self._touched


def same_map(one: PublicMap, other: PublicMap) -> bool:
    """Tell whether two maps are one, or copies: what was sent to a worker comes as a copy each time."""
    if one is other:
        return True
    constants = (one.intercept, one.floor, one.rest) == (other.intercept, other.floor, other.rest)
    pairs = ((one.scale, other.scale), (one.shift, other.shift), (one.columns, other.columns))
    return constants and all(np.array_equal(a, b) for a, b in pairs)  # type: ignore[arg-type]


def column_moments(base: LocalRecords, square: bool = False) -> tuple[Floats, Floats]:
    """Return the sums of the columns and of their absolute values (or squares), over clipped rows."""
    usable = np.isfinite(base.norms).astype(float)
    first = base.weighted_sum(usable)[: base.features]
    x, coefficients = base.matrix, usable * base.scale
    second = np.zeros(base.features)
    if sparse.issparse(x):
        csr.size_scatter(x.indptr, x.indices, x.data, base._addressed, coefficients, square, second)
        return first, second
    step = max(1, (1 << 20) // max(1, base.features))
    for start in range(0, base.count, step):
        rows = slice(start, start + step)
        sizes = np.abs(x[rows].astype(np.float64, copy=False)) * coefficients[rows, None]
        second += (np.square(sizes) if square else sizes).sum(axis=0)
    return first, second
