"""Rows in memory, dense or CSR, and the operations that queries may use on them; views through public maps.

``scale`` clips rows to the public norm bound without copying them; the intercept is a constant last
column that is never stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from sordino.execute import csr
from sordino.kernel import SparseVector, clip
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.lazy import TouchMap
from sordino.kernel.query import Point, PublicBall, PublicMap, Pull, shares_of

_CHUNK = 1 << 19  # entries of a dense block that is cast to double precision at a time: it stays in the cache
_BLOCK = 1 << 18  # entries of a block of scaled rows: it stays in the cache
_GRAM = 1 << 21  # most entries of a dense block whose second moments are taken
_ENTRIES = 1 << 16  # entries of a block of mapped rows
_COPIED = 1 << 17, 1 << 23  # entries of dense rows that are kept as a map shows them: fewer are near anyway
# From so many columns for each entry of a row on, products of entries cost less than those of blocks.
_SPARSE = 4


def as_point(w: Point) -> Floats:
    """Return coefficients as an array."""
    return w.to_dense() if isinstance(w, SparseVector) else np.asarray(w, dtype=float)


def multiple_of(before: Floats | None, w: Floats, features: int) -> float | None:
    """Return t where the slopes of w are t times public ones before, up to their rounding; None elsewhere."""
    if before is None or before.shape != w.shape or not before[:features].any():
        return None
    one, other = before[:features], w[:features]
    largest = np.argmax(np.abs(one))
    times = float(other[largest] / one[largest])
    return times if bool((np.abs(other - times * one) <= 2.0**-50 * np.abs(other)).all()) else None


def spread_of(matrix: Floats) -> float:
    """Return how much the rounding of a product with k columns weighs: ``1 + sqrt k``."""
    return 1.0 + float(np.sqrt(matrix.shape[1]))


@dataclass(frozen=True, eq=False)
class LocalRecords:
    """Rows with their targets, norms (after clipping, intercept included) and clip factors.

    ``norms`` and ``row_norms`` (without the intercept) are upper bounds, nan for a record that is not finite.
    ``positions`` say which records of the executor these are, in rising order; None for all of them.
    """

    matrix: Any
    targets: Floats
    norms: Floats
    scale: Floats
    intercept: float
    features: int
    weights: Floats | None = field(default=None, kw_only=True)
    parts: ClassVar[None] = None  # each row is a record of its own
    row_norms: Floats = field(kw_only=True)
    positions: Ints | None = field(default=None, kw_only=True)

    def subset(self, rows: Any) -> LocalRecords:
        """Return some of these records, by position."""
        raise NotImplementedError

    def _within_columns(self, columns: Ints) -> LocalRecords:
        raise NotImplementedError

    def clipped_rows(self, rows: slice, room: Floats) -> Floats:
        """Write clipped rows to the beginning of ``room`` and return it: new memory would cost more."""
        raise NotImplementedError

    def _scale_rows(self, rows: slice, coefficients: Floats) -> Any:
        """Return coefficients times the rows of a block."""
        raise NotImplementedError

    def _products(self, w: Floats) -> Floats:
        """Return the products of the stored rows with a point."""
        raise NotImplementedError

    def _add(self, coefficients: Floats, out: Floats) -> None:
        """Add the sum of coefficients times stored rows to ``out``."""
        raise NotImplementedError

    def _add_all(self, coefficients: Floats, out: Floats) -> None:
        """Add the sums of clipped rows times several coefficients each, one row per output, to ``out``."""
        raise NotImplementedError

    def _add_sizes(self, coefficients: Floats, square: bool, out: Floats) -> None:
        """Add the sum of ``|c_i x_i|``, or of its squares, entry by entry."""
        raise NotImplementedError

    def add_pulls(
        self, w: Floats, at: tuple[float, float], facts: tuple[Floats, ...], pull: Pull, out: Floats
    ) -> tuple[float, float]:
        """Add the clipped gradient to ``out`` in one pass; return the sums of its factors."""
        raise NotImplementedError

    @property
    def columns(self) -> int:
        return self.features + (1 if self.intercept else 0)

    @property
    def count(self) -> int:
        """The number of rows; secret when they were sampled."""
        return len(self.targets)

    def margins(self, w: Point) -> Floats:
        """Return ``x_i . w``, one column per output; one output is kept: the next may be a multiple."""
        w = as_point(w)
        known = self.__dict__.get("_margins", (None, None, None))
        if np.array_equal(known[0], w):
            return known[1]
        times = multiple_of(known[0], w, self.features)
        scale = self.scale if w.ndim == 1 else self.scale[:, None]
        products = self._products(w[..., : self.features]) * scale if times is None else known[2] * times
        out = products + self.intercept * w[..., -1] if self.intercept else products
        if w.ndim == 1:
            if isinstance(out, np.ndarray):  # whoever asks again gets the same array
                out.setflags(write=False)
            object.__setattr__(self, "_margins", (w.copy(), out, products))
        return out

    def clipped_gradient(self, w: Point, pull: Pull) -> Floats:
        """Return ``sum_i clip_C(r_i x_i)``, one output, in one pass over the rows."""
        w = as_point(w)
        out = np.zeros(self.columns)
        at = 0.0, self.intercept * float(w[-1]) if self.intercept else 0.0
        facts = csr.pass_facts(self, self.scale, np.ones(self.count), 1.0)
        total, _ = self.add_pulls(w[: self.features].copy(), at, facts, pull, out[: self.features])
        if self.intercept:
            out[-1] = self.intercept * total
        return out

    def unit_sum(self, coefficients: Floats, bound: float) -> Floats:
        """Return ``sum_i c_i x_i``: a record is a unit, and its coefficient bounds it already."""
        return self.weighted_sum(coefficients)

    def weighted_sum(self, coefficients: Floats) -> Floats:
        """Return ``sum_i c_i x_i``, one row per output for several coefficients per record."""
        out = np.zeros((*coefficients.shape[1:], self.columns))
        if coefficients.ndim == 2:
            self._add_all(coefficients, out[:, : self.features])
        else:
            self._add(clip.scale_down(coefficients, self.scale), out[: self.features])
        if self.intercept:
            out[..., -1] = self.intercept * coefficients.sum(axis=0)
        return out

    def through(self, affine: PublicMap) -> Any:
        """Return these rows through a public affine map; the last two maps are remembered."""
        known = self.__dict__.get("_views", ())
        if not known or known[0][0] is not affine:
            view = next((view for other, view in known if same_map(other, affine)), None)
            view = self._map(affine) if view is None else view
            others = [one for one in known if one[1] is not view]
            known = ((affine, view), *others[:1])
            object.__setattr__(self, "_views", known)
        return known[0][1]

    def _map(self, affine: PublicMap) -> Any:
        if affine.rest is None:
            return LocalView(self.within(affine.columns), affine)
        return LocalView(self, affine.pick(np.arange(self.features)))

    def within(self, columns: Ints | None) -> LocalRecords:
        """Return these records with some columns and the intercept; the last choice is remembered."""
        if columns is None:
            return self
        known = self.__dict__.get("_within")
        if known is None or not np.array_equal(known[0], columns):
            base, chosen = self, columns
            if known is not None and (places := places_of(columns, known[0])) is not None:
                base, chosen = known[1], places
            known = (columns, base._within_columns(chosen))
            object.__setattr__(self, "_within", known)
        return known[1]

    def scaled_rows(self, coefficients: Floats) -> Iterator[tuple[slice, Any]]:
        """Yield ``c_i x_i`` in blocks of rows, intercept included: arrays, or CSR for sparse data."""
        step = max(1, _BLOCK // max(1, self._row_entries()))
        for start in range(0, self.count, step):
            rows = slice(start, min(start + step, self.count))
            block = self._scale_rows(rows, clip.scale_down(coefficients[rows], self.scale[rows]))
            if self.intercept:
                last = (self.intercept * coefficients[rows])[:, None]
                join = sparse.hstack if sparse.issparse(block) else np.hstack
                block = join([block, last])
            if sparse.issparse(block):
                block = block.tocsr()
                block.sum_duplicates()  # entries are bounded one by one: each must be there once
            yield rows, block

    def _row_entries(self) -> int:
        return self.features

    def weighted_norms(self, weights: Floats | float) -> Floats:
        """Return upper bounds of the norms of the rows times column weights, intercept included."""
        each = np.broadcast_to(np.asarray(weights, dtype=float), self.columns)
        norms = clip.weighted_norms(self.matrix, each[: self.features], self._addressed) * self.scale
        if self.intercept:
            norms = clip.joint_norms([norms, abs(self.intercept * float(each[-1]))])
        return np.where(np.isfinite(self.norms), norms, np.nan)

    def centred_norms(self, shift: Floats, weights: Floats, spread: float = 1.0) -> Floats:
        """Return upper bounds of ``|| weights (x_i - shift) ||`` of clipped rows; the last are kept."""
        known, found = self.__dict__.get("_centred"), None
        if known is not None and known[0] == spread and np.array_equal(known[1], shift):
            found = clip.resize_norms(known[3], known[2], weights)
        if found is None:
            found = clip.centred_norms(self.matrix, self.scale, shift, weights, self._addressed, spread)
            found = np.where(np.isfinite(self.norms), found, np.nan)
            object.__setattr__(self, "_centred", (spread, shift.copy(), weights.copy(), found))
        return found

    @property
    def peaks(self) -> Floats:
        """The largest magnitude of each clipped row, intercept included."""
        with np.errstate(invalid="ignore"):
            return np.maximum(clip.row_peaks(self.matrix, self._addressed) * self.scale, abs(self.intercept))

    @property
    def _addressed(self) -> Ints | None:
        """Which rows of the matrix these are; None for all of them."""
        return None

    def part(self, index: int, parts: int) -> LocalRecords:
        """Return block number ``index`` of ``parts`` blocks that are fixed by position."""
        edge = np.linspace(0, self.count, parts + 1).astype(np.int64)
        return self.subset(slice(int(edge[index]), int(edge[index + 1])))

    def by_position(self, size: int) -> list[LocalRecords]:
        """Return the records in blocks of ``size`` positions of the executor: no other record moves them."""
        block = (np.arange(self.count) if self.positions is None else self.positions) // size
        edges = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), self.count]
        return [self.subset(slice(a, b)) for a, b in itertools.pairwise(edges)]

    def column_moments(self, square: bool = False) -> tuple[Floats, Floats]:
        """Return the sums of the columns and of their absolute values (or squares), over clipped rows."""
        shares = shares_of(self)
        return self.parted_moments(square, 1.0 if shares is None else shares)

    def parted_moments(self, square: bool, parts: Floats | float) -> tuple[Floats, Floats]:
        """Return the same of rows that count as parts."""
        usable = np.isfinite(self.norms).astype(float)
        second = np.zeros(self.features)
        self._add_sizes(usable * self.scale * (np.sqrt(parts) if square else parts), square, second)
        return self.weighted_sum(usable * parts)[: self.features], second

    def restrict(self, columns: Ints) -> LocalRecords:
        """Return the same records with some of their columns; a record that is not finite stays so."""
        part = self.matrix[:, columns]
        norms = np.where(np.isfinite(self.norms), clip.row_norms(part, self._addressed) * self.scale, np.nan)
        return replace(self, matrix=part, norms=norms, row_norms=norms, features=len(columns), intercept=0.0)

    def centred_rows(self, ball: PublicBall, spread: float = 1.0) -> Iterator[Floats]:
        """Yield the clipped rows, measured in a ball, block by block, each in the same memory."""
        wide = max(1, self.features)  # a block is longer than wide: its moments are added to a square
        step = max(1, min(_GRAM // wide, max(_BLOCK // wide, 4 * wide)))
        room = np.empty((min(step, self.count), self.features))
        for i in range(0, self.count, step):
            rows = slice(i, min(i + step, self.count))
            block = self.clipped_rows(rows, room)
            if ball.center is not None:
                block -= ball.center
            distances = np.where(np.isfinite(self.norms[rows]), clip.row_norms(block), np.nan)
            factors = self._ball_factors(distances, ball, spread)
            if (factors != 1.0).any():
                block[factors == 0.0] = 0.0
                block *= factors[:, None]
            yield block

    def _ball_factors(self, distances: Floats, ball: PublicBall, spread: float) -> Floats:
        r"""Return ``min(1, radius / distance)``, and 0 for a record that is not finite.

        ``y^T B`` adds up d products, d the number of columns, and errs by ``d 2^-53 sqrt k ||y|| ||B||_op``;
        the radius gives way to that, besides the rounding of the distances.
        """
        return clip.factors_of(distances, clip.limit(ball.radius, int(self.features * spread)))

    def _facts_of(self, rows: Any) -> dict[str, Any]:
        positions = self.positions
        if positions is None and isinstance(rows, slice):
            positions = np.arange(self.count)
        return {
            "targets": self.targets[rows],
            "norms": self.norms[rows],
            "scale": self.scale[rows],
            "intercept": self.intercept,
            "features": self.features,
            "weights": None if self.weights is None else self.weights[rows],
            "row_norms": self.row_norms[rows],
            "positions": rows if positions is None else positions[rows],
        }


def places_of(some: Ints, columns: Ints) -> Ints | None:
    """Return where some columns are among others, which rise; None where one is not."""
    at = np.searchsorted(columns, some)
    inside = at.size and int(at.max()) < columns.size and np.array_equal(columns[at], some)
    return at if inside and bool((np.diff(columns) > 0).all()) else None


class DenseRecords(LocalRecords):
    """Rows of a NumPy array; single precision is cast block by block."""

    @property
    def stored(self) -> tuple[Any, Floats]:
        """The rows, and the factors that clip them: for passes that make no copy."""
        return self.matrix, self.scale

    def _products(self, w: Floats) -> Floats:
        out = np.empty((len(self.matrix), *w.shape[:-1]))
        if w.ndim == 1:
            csr.dots(self.matrix, np.ascontiguousarray(w), out)
            return out
        for rows in self._blocks():
            out[rows] = self._block(rows) @ w.T
        return out

    def add_pulls(
        self, w: Floats, at: tuple[float, float], facts: tuple[Floats, ...], pull: Pull, out: Floats
    ) -> tuple[float, float]:
        return csr.over_dense(self.matrix, w, at, facts, pull.numbers, out)

    def _add(self, coefficients: Floats, out: Floats) -> None:
        csr.add_rows(self.matrix, coefficients, out)

    def _add_all(self, coefficients: Floats, out: Floats) -> None:
        scaled = np.stack([clip.scale_down(c, self.scale) for c in coefficients.T], axis=1)
        for rows in self._blocks():
            out += scaled[rows].T @ self._block(rows)

    def clipped_rows(self, rows: slice, room: Floats) -> Floats:
        return np.multiply(self._block(rows), self.scale[rows, None], out=room[: rows.stop - rows.start])

    def _scale_rows(self, rows: slice, coefficients: Floats) -> Any:
        return coefficients[:, None] * self._block(rows)

    def subset(self, rows: Any) -> LocalRecords:
        return type(self)(self.matrix[rows], **self._facts_of(rows))

    def _add_sizes(self, coefficients: Floats, square: bool, out: Floats) -> None:
        csr.size_rows(self.matrix, coefficients, square, out)

    def gram(self, ball: PublicBall) -> Floats:
        out = np.zeros((self.features, self.features))
        for block in self.centred_rows(ball):
            out += block.T @ block
        return out

    def gram_product(self, matrix: Floats, ball: PublicBall) -> Floats:
        out = np.zeros(matrix.shape)
        for block in self.centred_rows(ball, spread_of(matrix)):
            out += block.T @ (block @ matrix)
        return out

    def moments(self, ball: PublicBall) -> tuple[Floats, float]:
        total, squares = np.zeros(self.features), 0.0
        for block in self.centred_rows(ball):
            total += block.sum(axis=0)
            squares += float(np.vdot(block, block))
        return total, squares

    def squared_columns(self, ball: PublicBall) -> Floats:
        out = np.zeros(self.features)
        for block in self.centred_rows(ball):
            out += np.einsum("ij,ij->j", block, block)
        return out

    def _within_columns(self, columns: Ints) -> LocalRecords:
        return replace(self, matrix=np.take(self.matrix, columns, axis=1), features=len(columns))

    def _blocks(self) -> list[slice]:
        n = len(self.matrix)
        step = n if self.matrix.dtype == np.float64 else max(1, _CHUNK // max(1, self.features))
        return [slice(i, i + step) for i in range(0, n, max(step, 1))]

    def _block(self, rows: slice) -> Floats:
        block: Floats = self.matrix[rows].astype(np.float64, copy=False)
        return block


class RowwiseRecords(DenseRecords):
    """Rows of which each is multiplied by itself: blocks of BLAS may round a row by its place."""

    def _products(self, w: Floats) -> Floats:
        points = w.reshape(-1, self.features)
        products = np.stack([super(RowwiseRecords, self)._products(point) for point in points], axis=-1)
        return products.reshape(-1, *w.shape[:-1])


@dataclass(frozen=True, eq=False)
class CsrRecords(LocalRecords):
    """Some rows of a CSR matrix, addressed in place."""

    rows: Ints

    @property
    def entries(self) -> tuple[Any, Any, Any, Ints]:
        """The arrays of the matrix and which of its rows these are, as the compiled passes take them."""
        return self.matrix.indptr, self.matrix.indices, self.matrix.data, self.rows

    def _products(self, w: Floats) -> Floats:
        out = np.empty(self.rows.size)
        csr.margins(*self.entries, np.ascontiguousarray(w), out)
        return out

    def _add(self, coefficients: Floats, out: Floats) -> None:
        csr.scatter(*self.entries, coefficients, out)

    def add_pulls(
        self, w: Floats, at: tuple[float, float], facts: tuple[Floats, ...], pull: Pull, out: Floats
    ) -> tuple[float, float]:
        return csr.over_csr(*self.entries, w, at, facts, pull.numbers, out)

    def margins(self, w: Point) -> Floats:
        """Return ``x_i . w`` for all outputs in one pass."""
        w = as_point(w)
        if w.ndim == 1:
            return super().margins(w)
        out = self.products(w[:, : self.features].T)
        return out + self.intercept * w[:, -1] if self.intercept else out

    def _add_all(self, coefficients: Floats, out: Floats) -> None:
        out += self.transposed_products(coefficients).T

    @property
    def _addressed(self) -> Ints | None:
        return self.rows

    def _within_columns(self, columns: Ints) -> LocalRecords:
        part = csr.pick(self.matrix, self.rows, columns)
        return replace(self, matrix=part, features=len(columns), rows=np.arange(self.count))

    def touching(self, first: Ints) -> tuple[Ints, CsrRecords]:
        """Return the columns with entries, ``first`` first, and the records on these alone, as wide as
        before: rounding is bounded by the width, which must not depend on other records.
        """
        known = self.__dict__.get("_touching")
        if known is None:
            known = csr.renumber(self.matrix, self.rows)
            object.__setattr__(self, "_touching", known)
        columns, matrix = csr.reorder(known[0], known[1], first)
        return columns, replace(self, matrix=matrix, features=len(columns))

    def subset(self, rows: Any) -> LocalRecords:
        return CsrRecords(self.matrix, **self._facts_of(rows), rows=self.rows[rows])

    def products(self, block: Floats) -> Floats:
        """Return ``X block`` of the clipped rows, without the intercept."""
        out = np.zeros((self.rows.size, block.shape[1]))
        csr.multiply(*self.entries, self.scale, np.ascontiguousarray(block), out)
        return out

    def transposed_products(self, coef: Floats) -> Floats:
        """Return ``X^T coef`` of the clipped rows, without the intercept."""
        out = np.zeros((self.features, coef.shape[1]))
        csr.multiply_transposed(*self.entries, self.scale, np.ascontiguousarray(coef), out)
        return out

    def _add_sizes(self, coefficients: Floats, square: bool, out: Floats) -> None:
        csr.size_scatter(*self.entries, coefficients, square, out)

    def _centred_factors(self, ball: PublicBall, spread: float = 1.0) -> Floats:
        """Return the clip factor of each row measured in a ball; no row is ever made dense."""
        distances = self.row_norms
        if ball.center is not None:
            distances = self.centred_norms(ball.center, np.ones(self.features), spread)
        return self._ball_factors(distances, ball, spread)

    def gram_product(self, matrix: Floats, ball: PublicBall) -> Floats:
        """Return ``sum y (y^T matrix)`` with two passes over the non-zeros."""
        factors = self._centred_factors(ball, spread_of(matrix))
        inner = self.products(matrix)
        if ball.center is not None:
            inner -= ball.center @ matrix
        inner *= np.square(factors)[:, None]
        out = self.transposed_products(inner)
        if ball.center is not None:
            out -= np.outer(ball.center, inner.sum(axis=0))
        return out

    def gram(self, ball: PublicBall) -> Floats:
        """Return ``sum y y^T`` from the non-zero pairs of each row and a correction for the centre."""
        factors = self._centred_factors(ball)
        out = np.zeros((self.features, self.features))
        csr.add_pairs(*self.entries, factors * self.scale, out)
        if ball.center is not None:
            cross = self.transposed_products(np.square(factors)[:, None])[:, 0]
            cross = np.outer(cross, ball.center)
            out += (factors @ factors) * np.outer(ball.center, ball.center) - cross - cross.T
        return out

    def moments(self, ball: PublicBall) -> tuple[Floats, float]:
        factors, distances = self._centred_factors(ball), self.row_norms
        total = self.transposed_products(factors[:, None])[:, 0]
        if ball.center is not None:
            total -= factors.sum() * ball.center
            distances = self.centred_norms(ball.center, np.ones(self.features))
        norms = np.where(factors > 0, distances, 0.0) * factors
        return total, float(norms @ norms)

    def squared_columns(self, ball: PublicBall) -> Floats:
        out = np.zeros(self.features)
        self._add_sizes(self._centred_factors(ball) * self.scale, True, out)
        return out

    def clipped_rows(self, rows: slice, room: Floats) -> Floats:
        x, chosen = self.matrix, self.rows[rows]
        out = room[: chosen.size]
        out.fill(0.0)
        csr.fill(x.indptr, x.indices, x.data, chosen, self.scale[rows], out)
        return out

    def _row_entries(self) -> int:
        return int(self.matrix.nnz // max(1, self.matrix.shape[0])) + 1

    def _scale_rows(self, rows: slice, coefficients: Floats) -> Any:
        return sparse.diags_array(coefficients) @ self.matrix[self.rows[rows]].astype(np.float64)


_NONE = np.empty(0, dtype=np.int64)


class LazyRecords:
    """A mini-batch of a CSR matrix that touches only its own columns, numbered by :meth:`margins`."""

    parts: ClassVar[None] = None

    def __init__(self, base: CsrRecords) -> None:
        self._base = base
        self.targets, self.norms, self.weights = base.targets, base.norms, base.weights

    @property
    def peaks(self) -> Floats:
        return self._base.peaks

    def margins(self, w: SparseVector) -> Floats:
        """Return ``x_i . w`` and lay out the batch."""
        out, constant = self._lay_out(w)
        out *= self._base.scale
        out += constant
        return out

    def clipped_gradient(self, w: SparseVector, pull: Pull) -> SparseVector:
        """Return ``sum_i clip_C(r_i x_i)`` on the touched columns: three compiled passes."""
        base, (factors, constant) = self._base, self._lay_out(w)
        facts = csr.pass_facts(base, base.scale, np.ones(factors.size), 1.0)
        total, _ = csr.pull_block(pull.numbers, factors, np.empty(factors.size), facts, (0.0, constant), 0)
        return self._sum(factors, total)

    def _lay_out(self, w: SparseVector) -> tuple[Floats, float]:
        """Number the touched columns; return the products of the stored rows, and the constant margin."""
        base, x = self._base, self._base.matrix
        self._ends = np.cumsum(x.indptr[base.rows + 1] - x.indptr[base.rows])
        entries = int(self._ends[-1]) if self._ends.size else 0
        head = w.indices.size
        columns = np.empty(entries + head, dtype=np.int64)
        columns[:head] = w.indices
        touched = TouchMap.empty(columns)
        touched.insert(head)
        layout, packed = np.empty(entries, dtype=np.int32), np.empty(entries)
        out = np.empty(base.rows.size)
        count, _ = csr.touch(*base.entries, touched.cells, columns, head, w.values, layout, packed, out)
        self._layout, self._packed = layout, packed
        self._columns, self._touched = columns[:count], touched
        if not base.intercept:
            return out, 0.0
        self._intercept_at = int(np.flatnonzero(w.indices == base.features)[0])
        return out, base.intercept * float(w.values[self._intercept_at])

    def column_moments(self, square: bool = False) -> tuple[SparseVector, SparseVector]:
        """Return the sums of the touched columns and of their absolute values, or squares."""
        columns, part = self._base.touching(_NONE)
        first, second = part.column_moments(square)
        size = self._base.features
        return SparseVector(columns, first, size), SparseVector(columns, second, size)

    def through(self, affine: PublicMap) -> Any:
        """Return these rows through a public affine map; one of many columns on the touched ones only."""
        if affine.rest is None:
            return self._base.through(affine)
        columns, part = self._base.touching(affine.columns[affine.shift != 0.0])  # type: ignore[index]
        view = part.through(affine.pick(columns))
        return TouchedView(view, columns, self._base.features)

    def within(self, columns: Ints | None) -> LocalRecords:
        return self._base.within(columns)

    def unit_sum(self, coefficients: Floats, bound: float) -> SparseVector:
        return self.weighted_sum(coefficients)

    def weighted_sum(self, coefficients: Floats) -> SparseVector:
        return self._sum(clip.scale_down(coefficients, self._base.scale), coefficients.sum())

    def _sum(self, factors: Floats, total: float) -> SparseVector:
        """Return the sum of stored rows times factors, and of the intercept column times ``total``."""
        base, out = self._base, np.zeros(self._columns.size)
        csr.scatter_touched(self._ends, self._layout, self._packed, factors, out)
        if base.intercept:
            out[self._intercept_at] = base.intercept * total
        return SparseVector(self._columns, out, base.columns, self._touched)


class AffineView:
    """The records ``z_i = clip_1(scale * (x_i - shift))`` with an intercept entry.

    The shift is a correction of rank one, so a sparse matrix stays sparse. ``factors`` are those of the clip.
    """

    def __init__(self, base: LocalRecords, affine: PublicMap) -> None:
        self._base, self._affine = base, affine
        self.intercept = affine.intercept
        self._offset = affine.scale * affine.shift
        self.targets, self.weights = base.targets, base.weights
        self.sizes = base.centred_norms(affine.shift, affine.scale)

    @cached_property
    def factors(self) -> Floats:
        return clip.factors_of(self.sizes, 1.0)

    @cached_property
    def norms(self) -> Floats:
        return clip.joint_norms(
            [np.maximum(self.sizes * self.factors, self._affine.floor), abs(self.intercept)]
        )

    def margins(self, w: Point) -> Floats:
        w = w.to_dense() if isinstance(w, SparseVector) else w
        weights = w[..., :-1] if self._affine.intercept else w
        point = weights * self._affine.scale
        if self._base.intercept:
            point = np.concatenate([point, np.zeros((*point.shape[:-1], 1))], axis=-1)
        out = self._base.margins(point) - (weights * self._offset).sum(axis=-1)
        out = out * (self.factors if out.ndim == 1 else self.factors[:, None])
        return out + self._affine.intercept * w[..., -1] if self._affine.intercept else out

    def weighted_sum(self, coefficients: Floats) -> Floats:
        clipped = coefficients * (self.factors if coefficients.ndim == 1 else self.factors[:, None])
        raw = self._base.weighted_sum(clipped)[..., : self._base.features] * self._affine.scale
        out = raw - np.multiply.outer(clipped.sum(axis=0), self._offset)
        if not self._affine.intercept:
            return out
        last = self._affine.intercept * coefficients.sum(axis=0)
        return np.concatenate([out, np.asarray(last)[..., None]], axis=-1)


class LocalView(AffineView):
    """Mapped rows in memory."""

    def clipped_gradient(self, w: Point, pull: Pull) -> Floats:
        """Return ``sum_i clip_C(r_i z_i)``, one output, in one pass over the rows; the last stays known."""
        w = w.to_dense() if isinstance(w, SparseVector) else w
        last = self.__dict__.get("_last")
        if last is not None and last[0] == pull and np.array_equal(last[1], w):
            return last[2].copy()
        affine, d = self._affine, self._affine.scale.size
        constant = affine.intercept * float(w[-1]) if affine.intercept else 0.0
        out = np.zeros(d + bool(affine.intercept))
        rows = out[: 0 if pull.constant and affine.intercept else d]
        kept = self.__dict__.get("_known")
        if kept is None or kept[0] != (pull.longest, pull.constant):
            kept = ((pull.longest, pull.constant), *self._pass_facts(pull))
            self.__dict__["_known"] = kept
        _, blocks, facts = kept
        if blocks is None:
            at = float(w[:d] @ self._offset), constant
            total, shifted = self._base.add_pulls(w[:d] * affine.scale, at, facts, pull, rows)
            out[:d] *= affine.scale
            out[:d] -= shifted * self._offset
        else:
            point, sums = np.zeros(blocks.shape[1]), np.zeros(blocks.shape[1] if rows.size else 0)
            point[:d] = w[:d]
            total = csr.over_blocks(blocks, point, constant, facts, pull.numbers, sums)
            rows += sums[: rows.size]
        if affine.intercept:
            out[-1] = affine.intercept * total
        if 64 * d < self._base.matrix.size:  # a copy is nothing beside the pass
            self.__dict__["_last"] = (pull, np.array(w), out.copy())
        return out

    def _pass_facts(self, pull: Pull) -> tuple[Any, tuple[Floats, ...]]:
        """Return the rows in blocks, if :meth:`gram` wrote them, and what a pass needs of each record.

        Where the constant entry alone is asked rows make margins only: those of a map that is a multiple do.
        """
        facts = csr.pass_facts(self, self._base.scale, self.factors, pull.longest)
        (shift, scale, factors), blocks = self._base.__dict__.get("_mapped", ((None, None, None), None))
        own, constant = self._affine, pull.constant and bool(self._affine.intercept)
        times = multiple_of(scale, own.scale, own.scale.size) if np.array_equal(shift, own.shift) else None
        if times is None or not (constant or (times == 1.0 and np.array_equal(factors, self.factors))):
            return None, facts
        with np.errstate(all="ignore"):  # the clip deals with what is not a number
            longer = times * self.factors / (factors * np.maximum(self.factors, 1.0 / pull.longest))
        return blocks, (*facts[:2], clip.single_norms(self.norms, own.scale.size), longer)

    def gram(self, factors: Floats) -> Floats:
        """Return ``sum_i f_i z_i z_i^T`` from blocks of mapped rows, or from entries where these are few.

        Whoever asks for second moments asks for gradients next: dense rows stay in single precision, at most
        32 MiB of them. Each is rounded by itself, and then counts as what it became.
        """
        base, affine, d = self._base, self._affine, self._base.features
        x, roots, out = base.matrix, np.sqrt(factors), np.zeros((d + -d % 4, d + -d % 4))
        weights, facts = self.factors * roots, (affine.shift, affine.scale)
        space = csr.aligned_zeros((len(out), csr.MAPPED))
        blocks = np.zeros((0, 0, 0), dtype=np.float32)
        if sparse.issparse(x) and x.nnz * _SPARSE < x.shape[0] * d:
            return self._gram_of_entries(weights)
        if not sparse.issparse(x):
            if _COPIED[0] <= x.size <= _COPIED[1]:
                blocks, weights = csr.room_for_blocks(*x.shape), self.factors
                object.__setattr__(base, "_mapped", ((affine.shift, affine.scale, self.factors), blocks))
            csr.add_squares(x, base.scale, facts, weights, roots, blocks, space, out)
        else:
            step = max(1, _ENTRIES // max(1, d))
            room, one = np.empty((step, d)), np.ones(step)
            for start in range(0, base.count, step):
                rows = slice(start, min(start + step, base.count))
                given = base.clipped_rows(rows, room)
                csr.add_squares(given, one, facts, weights[rows], one, blocks, space, out)
        half = np.tril(out[:d, :d])
        return half + np.tril(half, -1).T

    def _gram_of_entries(self, weights: Floats) -> Floats:
        r"""Return ``sum_i (u_i - o_i) (u_i - o_i)^T`` with rows and shift apart; no row is made dense.

        **Rounding.** Eight roundings for a product of entries err by less than ``16 u (X + M)`` for a record,
        in the words of :func:`sordino.kernel.clip.centred_norms`, whose norm has room for more.
        """
        base, x, affine = self._base, self._base.matrix, self._affine
        factors = clip.scale_down(weights, base.scale)
        out, sums = np.zeros((base.features, base.features)), np.zeros(base.features)
        csr.add_pairs(x.indptr, x.indices, x.data, base._addressed, factors, out)
        csr.scatter(x.indptr, x.indices, x.data, base._addressed, weights * factors, sums)
        out *= np.outer(affine.scale, affine.scale)
        cross = np.outer(affine.scale * sums, self._offset)
        out -= cross + cross.T  # symmetric to the last bit, as all parts are
        return out + np.square(weights).sum() * np.outer(self._offset, self._offset)


class TouchedView:
    """Records of few columns through a map of many; ``view`` holds the columns ``touched`` alone."""

    def __init__(self, view: AffineView, touched: Ints, features: int) -> None:
        self._view, self._touched, self._features = view, touched, features
        self.targets, self.weights = view.targets, view.weights
        self.sizes, self.norms, self.factors = view.sizes, view.norms, view.factors

    def margins(self, w: SparseVector) -> Floats:
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
