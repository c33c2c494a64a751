"""Rows through a public affine map, without storing the mapped rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from sordino.execute import csr, one_pass
from sordino.execute.gram import add_pairs
from sordino.kernel import SparseVector, clip
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.contracts import Point, PublicMap
from sordino.kernel.pull import Pull

if TYPE_CHECKING:
    from sordino.execute.records import LocalRecords

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
        out = self._products(weights * self._affine.scale) - (weights * self._offset).sum(axis=-1)
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

    def _products(self, weights: Floats) -> Floats:
        if self._base.intercept:
            weights = np.concatenate([weights, np.zeros((*weights.shape[:-1], 1))], axis=-1)
        return self._base.margins(weights)


class LocalView(AffineView):
    """Mapped rows in memory."""

    def clipped_gradient(self, w: Point, pull: Pull) -> Floats:
        """Return ``sum_i clip_C(r_i z_i)``, one output, in one pass over the rows."""
        w = w.to_dense() if isinstance(w, SparseVector) else w
        affine, d = self._affine, self._affine.scale.size
        constant = affine.intercept * float(w[-1]) if affine.intercept else 0.0
        weights, offset = one_pass.point_on_rows(np.ascontiguousarray(w), affine.scale, self._offset)
        out = np.zeros(d + bool(affine.intercept))
        total, shifted = self._base.pulled(weights, (offset, constant), self._facts(pull), pull, out[:d])
        one_pass.mapped(out, affine.scale, self._offset, shifted)
        if affine.intercept:
            out[-1] = affine.intercept * total
        return out

    def _facts(self, pull: Pull) -> one_pass.MappedFacts:
        known = self.__dict__.get("_known")
        if known is None or known[0] != pull.longest:
            facts = one_pass.MappedFacts.of(self, self._base.scale, self._clip, pull.longest)
            known = self.__dict__["_known"] = (pull.longest, facts)
        return known[1]

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
    start = 0
    for block in _blocks(base):
        sizes = np.abs(block) * coefficients[start : start + len(block), None]
        second += (np.square(sizes) if square else sizes).sum(axis=0)
        start += len(block)
    return first, second


def _blocks(base: LocalRecords) -> Iterator[Floats]:
    step = max(1, (1 << 20) // max(1, base.features))
    for start in range(0, base.count, step):
        yield base.matrix[start : start + step].astype(np.float64, copy=False)
