"""Sums and medians of truncated vectors: questions that stay bounded on data without bounds.

Every query here bounds what a record adds by an operation in code, for any finite, huge or infinite
record, so the moment conditions of the theory matter for accuracy and never for privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel import ClippedSum, Norm, Relation
from sordino.kernel.arrays import Bools, Floats, Ints
from sordino.kernel.clip import clip_scalars, clipped_blocks, root_above, row_norms
from sordino.kernel.query import DenseRows, PartedRows, Records
from sordino.problems.affine import SizeCounts
from sordino.problems.losses import Loss
from sordino.problems.problem import Setting

# --------------------------------------------- The public facts of an estimation task on a table of numbers


@dataclass(frozen=True)
class Sample(Setting):
    """The public facts of an estimation task.

    Parameters
    ----------
    population : the public number of records.
    columns : numbers per record.
    relation : the neighbouring relation.
    unit : what a neighbour differs in.
    secure_noise : use noise on a lattice.
    rows : how many records of one unit may change at once, where nobody knows whose they are.
    """

    population: int
    columns: int
    relation: Relation
    unit: str = "record"
    secure_noise: bool = False
    rows: int = 1


_ALL = slice(None)
ABOVE = 1.0 + 2.0**-48  # covers the rounding of the powers, a few units in the last place


@dataclass(frozen=True)
class Truncation:
    r"""How the vector of one record is bounded by a threshold.

    ``by="coordinate"`` bounds each entry by the threshold (clips it, or with ``zero=True`` sets an entry
    beyond it to zero, as in Algorithms 1 and 3 of the paper) and then, if ``joint`` is given, clips the
    vector to the Euclidean norm ``joint * threshold``, which removes the factor sqrt(d).
    ``by="norm"`` bounds the Euclidean norm of the vector by the threshold.
    """

    by: str = "coordinate"
    zero: bool = False
    joint: float | None = None

    def __post_init__(self) -> None:
        if self.by not in ("coordinate", "norm"):
            raise InvalidInputError(f"Expected by in ('coordinate', 'norm'), got {self.by!r}.")
        if self.joint is not None and not 0 < self.joint < math.inf:
            raise InvalidInputError(
                f"Expected joint_clip in (0, inf), got {self.joint}. It is the norm of a truncated "
                "record in units of the threshold; None means no joint clip."
            )

    def bound(self, size: int, threshold: float) -> float:
        """Return the largest Euclidean norm of a truncated vector of ``size`` entries."""
        if self.by == "norm":
            return threshold
        most = math.nextafter(threshold * root_above(size), math.inf)
        return most if self.joint is None else min(most, self.joint * threshold)

    def apply(self, parts: list[Any], threshold: float) -> list[Any]:
        """Truncate blocks of rows; the parts of a row (one per output) are bounded together."""
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [_entrywise(part, _finite) for part in parts]
            if self.by == "coordinate":
                parts = [_entrywise(part, lambda e: self._cut(e, threshold)) for part in parts]
                return parts if self.joint is None else clipped_blocks(parts, self.joint * threshold)
            return clipped_blocks(parts, threshold, self.zero)

    def _cut(self, entries: Floats, threshold: float) -> Floats:
        near = np.clip(entries, -threshold, threshold)
        return np.where(near == entries, entries, 0.0) if self.zero else near


@dataclass(frozen=True)
class RobustSum(ClippedSum):
    r"""The sum, or the median of ``blocks`` block sums, of ``truncate((x_i - center) / scales)``.

    ``params = (center, scales)``: released or public vectors; entries are truncated at 1 in these units.
    ``powers`` are pairs (k, weight): the answer holds ``weight * a**k`` for each of them side by side, so
    that the moments behind an error bar ride along with a mean. ``apart`` are more of them, with even k, each
    in two parts: of the values above the centre, then of those below.

    **Privacy.** A truncated record a has norm at most ``bound = truncation.bound(columns, 1)`` and entries in
    [-1, 1], so ``|a**k| <= |a|`` and all powers together have norm at most ``bound sqrt(sum of weights^2)``.
    Of two parts one is zero, so they count once.
    One record moves one block sum by at most that (two when replaced), and a median moves at most as far as
    the one input that moves, coordinate by coordinate, so the sensitivity of a median of block sums is that
    of a sum. Records belong to blocks by position, which no other record can change.
    """

    columns: int
    truncation: Truncation = Truncation()
    blocks: int = 1
    powers: tuple[tuple[int, float], ...] = ((1, 1.0),)
    apart: tuple[tuple[int, float], ...] = ()

    @property
    def adds_up(self) -> bool:  # type: ignore[override]
        """Whether it is the sum: a median of sums does not add up."""
        return self.blocks == 1

    @property
    def _size(self) -> int:
        return self.columns * (len(self.powers) + 2 * len(self.apart))

    def contribution(self, params: Any) -> float:
        bound = self.truncation.bound(self.columns, 1.0)
        weight = math.fsum(weight**2 for _, weight in (*self.powers, *self.apart))
        return bound if weight == 1.0 else bound * math.sqrt(weight) * ABOVE

    def evaluate(self, records: DenseRows, params: Any) -> Floats:
        """Return the sum, or the median of the block sums, the powers one after the other."""
        n, out = records.count, np.zeros((self.blocks, self._size))
        for rows, block in records.scaled_rows(np.ones(records.count)):
            out += block_sums(self._truncate(records, params, rows, block), rows, n, self.blocks)
        return np.median(out, axis=0)

    def _truncate(self, records: DenseRows, params: Any, rows: slice, block: Floats) -> Floats:
        center, scales = params
        with np.errstate(over="ignore"):
            block = self.truncation.apply([(block - center) / scales], 1.0)[0]
        there = present(records, rows)
        block = block if there.all() else np.where(there[:, None], block, 0.0)
        if self.powers == ((1, 1.0),) and not self.apart:
            return block
        parts = [weight * block**power for power, weight in self.powers]
        for power, weight in self.apart:
            whole = weight * block**power
            parts += [np.where(block > 0, whole, 0.0), np.where(block < 0, whole, 0.0)]
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True, eq=False)
class GradientPoint:
    """Where a gradient is asked, all of it public or released before.

    ``w`` are coefficients of the columns divided by ``scales``; ``threshold`` is in these units. ``center``
    is subtracted from dense rows first (None: nothing is).
    """

    w: Floats
    threshold: float = 1.0
    scales: Floats | float = 1.0
    center: Floats | None = None

    @property
    def size(self) -> int:
        return int(np.size(self.w))


@dataclass(frozen=True)
class RobustGradient(ClippedSum):
    r"""The sum, or the median of ``blocks`` block sums, of truncated gradients ``r_i x_i / scales``.

    ``params`` is a :class:`GradientPoint`. A residual that is not a number contributes zero.

    **Privacy.** As for :class:`RobustSum`, with ``bound = truncation.bound(size, threshold)``.
    """

    loss: Loss
    truncation: Truncation = Truncation(by="norm")
    blocks: int = 1

    @property
    def adds_up(self) -> bool:  # type: ignore[override]
        """Whether it is the sum: a median of sums does not add up."""
        return self.blocks == 1

    def contribution(self, params: GradientPoint) -> float:
        return self.truncation.bound(params.size, params.threshold)

    def evaluate(self, records: PartedRows, params: GradientPoint) -> Floats:
        if self.blocks > 1 and records.parts is not None:
            raise UnsupportedError("Rows of a person may lie in several blocks, and move several block sums.")
        residual = residuals(self.loss, records, params)
        if self.blocks == 1 and self.truncation == Truncation(by="norm") and params.center is None:
            clipped = clip_scalars(residual, scaled_norms(records, params), params.threshold)
            return np.asarray(records.weighted_sum(weigh(clipped, records.parts))) / params.scales
        out = np.zeros((self.blocks, params.size))
        for rows, parts in gradient_blocks(records, residual, params):
            parts = self.truncation.apply(parts, params.threshold)
            shares = None if records.parts is None else records.parts[rows]
            sums = [block_sums(weigh(p, shares), rows, records.count, self.blocks) for p in parts]
            out += np.concatenate(sums, axis=1)
        return np.median(out, axis=0).reshape(np.shape(params.w))


# ------------ Influences: the score of each record or person, its curvature, and squares of both, all clipped


@dataclass(frozen=True, eq=False)
class Part:
    """Some columns of the rows, times a public matrix (or None), in units of ``size``.

    With ``less``, of their number, these columns are first reduced by the product of that vector and the
    curvature of the row: the columns behind them, a square as :class:`PartSum` lists it, or its root.
    """

    columns: slice
    size: float = 1.0
    matrix: Floats | None = None
    less: Floats | None = None

    def of(self, block: Floats) -> Floats:
        """Return the part of each row; what is not finite is left to the clip."""
        own = block[:, self.columns]
        if self.less is not None and self.less.any():
            bent = block[:, self.less.size :]
            if bent.shape[1] == self.less.size:
                own = own - (bent @ self.less)[:, None] * bent
            else:
                own = own - bent @ _product_with(self.less).T
        return (own if self.matrix is None else own @ self.matrix.T) / self.size


@dataclass(frozen=True)
class PartSizes(SizeCounts):
    """How many rows have a :class:`Part` (the params) whose norm lies in each cell of a logarithmic grid."""

    def evaluate(self, records: DenseRows, params: Part) -> Floats:
        sizes = np.zeros(records.count)
        for rows, block in records.scaled_rows(np.ones(records.count)):
            with np.errstate(over="ignore", invalid="ignore"):
                sizes[rows] = row_norms(np.asarray(params.of(block), dtype=float))
        return self.count_sizes(np.where(present(records), sizes, np.nan))


@dataclass(frozen=True)
class PartSum(ClippedSum):
    r"""``sum_i a_i`` for ``a_i = clip_1(A x_i)``, or ``sum_i a_i a_i^T`` with ``squares``.

    ``params`` is a :class:`Part`. A square is a list of the upper triangle, entries off the diagonal times
    root 2, so that the norm of a matrix is that of its list.

    **Privacy.** ``||a|| <= 1`` by the clip and ``||a a^T||_F = ||a||^2 <= 1``, so a record adds a vector of
    norm at most 1, and twice that when it is replaced.
    """

    squares: bool = False

    def contribution(self, params: Any) -> float:
        return ABOVE if self.squares else 1.0

    def evaluate(self, records: DenseRows, params: Part) -> Floats:
        """Return the sum of the clipped parts, or that of their squares."""
        total = np.zeros(1)
        for rows, block in records.scaled_rows(np.ones(records.count)):
            with np.errstate(over="ignore", invalid="ignore"):
                part = Truncation(by="norm").apply([params.of(block)], 1.0)[0]
            part = np.where(present(records, rows)[:, None], part, 0.0)
            if self.squares:
                up, across, weights = triangle(part.shape[1])
                total = total + weights * (part.T @ part)[up, across]
            else:
                total = total + part.sum(axis=0)
        return total


def triangle(size: int) -> tuple[Ints, Ints, Floats]:
    """Return rows, columns and weights of the upper triangle: a list with them has the norm of the matrix."""
    rows, columns = np.triu_indices(size)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2.0))


def _product_with(vector: Floats) -> Floats:
    """Return the matrix that takes the list of a symmetric matrix to its product with the vector."""
    rows, columns, weights = triangle(len(vector))
    out, at = np.zeros((len(vector), len(rows))), np.arange(len(rows))
    out[rows, at] = vector[columns] / weights
    out[columns, at] = vector[rows] / weights
    return out


def symmetric_matrix(values: Floats) -> Floats:
    """Return the matrix of a list of the upper triangle."""
    size = int((math.isqrt(8 * len(values) + 1) - 1) // 2)
    rows, columns, weights = triangle(size)
    out = np.zeros((size, size))
    out[rows, columns] = values / weights
    return out + np.triu(out, 1).T


def weigh(values: Any, parts: Floats | None) -> Any:
    """Return what each row adds, times the part of a unit that it stands for."""
    if parts is None:
        return values
    if sparse.issparse(values):
        return sparse.diags_array(parts) @ values
    return values * (parts if values.ndim == 1 else parts[:, None])


def present(records: Records, rows: slice = _ALL) -> Bools:
    """Return which records count: one that is not finite has no norm and contributes zero."""
    return np.isfinite(records.norms[rows])


def residuals(loss: Loss, records: PartedRows, point: GradientPoint) -> Floats:
    """Return the residuals at the point; zero for a record that is not a number."""
    with np.errstate(over="ignore", invalid="ignore"):
        raw = point.w / point.scales
        margins = records.margins(raw) if point.center is None else records.margins(raw) - raw @ point.center
        out = _finite(loss.residual(margins, records.targets))
    there = present(records)
    return out if there.all() else np.where(there if out.ndim == 1 else there[:, None], out, 0.0)


def scaled_norms(records: PartedRows, point: GradientPoint) -> Floats:
    """Return upper bounds of the norms of the rows, without a centre, divided by the column scales."""
    if np.ndim(point.scales) == 0 and point.scales == 1.0:
        return np.asarray(records.norms)
    return np.asarray(records.weighted_norms(1.0 / np.asarray(point.scales)))


def gradient_blocks(
    records: PartedRows, residual: Floats, point: GradientPoint
) -> Iterator[tuple[slice, list[Any]]]:
    """Yield blocks of gradients ``r_i x_i / scales``, one part per output."""
    columns = residual[:, None] if residual.ndim == 1 else residual
    with np.errstate(over="ignore", invalid="ignore"):
        streams = [records.scaled_rows(c) for c in np.ascontiguousarray(columns.T)]
        for blocks in zip(*streams, strict=True):
            parts = [_center(b, columns[rows, k], point.center) for k, (rows, b) in enumerate(blocks)]
            yield blocks[0][0], [_divide(part, point.scales) for part in parts]


def _center(block: Any, coefficients: Floats, center: Floats | None) -> Any:
    """Return ``c_i (x_i - center)`` from ``c_i x_i``."""
    if center is None:
        return block
    return block - np.where(np.isfinite(coefficients), coefficients, 0.0)[:, None] * center


def _divide(block: Any, scales: Floats | float) -> Any:
    if np.ndim(scales) == 0 and scales == 1.0:
        return block
    if sparse.issparse(block):
        return (block @ sparse.diags_array(1.0 / np.broadcast_to(scales, block.shape[1]))).tocsr()
    return block / scales


def block_sums(block: Any, rows: slice, count: int, blocks: int) -> Floats:
    """Return the sums of the rows by block; row i of ``count`` belongs to block ``i * blocks // count``."""
    if blocks == 1:
        return np.asarray(block.sum(axis=0)).reshape(1, -1)
    owner = np.arange(rows.start, rows.stop) * blocks // max(1, count)
    ones = np.ones(owner.size)
    members = sparse.csr_array((ones, (owner, np.arange(owner.size))), (blocks, owner.size))
    sums = members @ block
    return np.asarray(sums.todense() if sparse.issparse(sums) else sums)


def _entrywise(block: Any, function: Any) -> Any:
    """Apply a function with f(0) = 0 to each entry; a sparse block keeps its zeros."""
    if not sparse.issparse(block):
        return function(block)
    block.data = function(block.data)
    return block


def _finite(entries: Floats) -> Floats:
    good = np.isfinite(entries)
    return entries if good.all() else np.where(good, entries, 0.0)


@dataclass(frozen=True)
class BoundedMoments(ClippedSum):
    r"""The sums of ``first * a`` and of ``second * (a^2 - 1/2)``, ``a = (x - center) / radius`` in [-1, 1].

    ``params = (center, radius)``: public or released, one of each per column. The answer has two rows. The
    number of records is public, so a half less per record costs nothing and halves what a square can add.

    **Privacy.** In one column a record adds at most ``first`` and ``second / 2``: their sum in L1, their
    hypotenuse in L2, and for all columns that times ``columns``, or its root.
    """

    columns: int
    first: float
    second: float
    norm: Norm = Norm.L2

    def contribution(self, params: Any) -> float:
        if self.norm is Norm.L1:
            return self.columns * (self.first + self.second / 2.0) * ABOVE
        return root_above(self.columns) * math.hypot(self.first, self.second / 2.0) * ABOVE

    def evaluate(self, records: DenseRows, params: Any) -> Floats:
        """Return the sums, shape (2, columns)."""
        out = np.zeros((2, self.columns))
        for rows, block in records.scaled_rows(np.ones(records.count)):
            out += self._parts(records, params, rows, block).sum(axis=1)
        return out

    def _parts(self, records: DenseRows, params: Any, rows: slice, block: Floats) -> Floats:
        center, radius = params
        with np.errstate(over="ignore", invalid="ignore"):
            a = np.clip((block - center) / radius, -1.0, 1.0)
        there = present(records, rows)[:, None] & ~np.isnan(a)
        parts = np.stack([self.first * a, self.second * (a**2 - 0.5)])
        return np.where(there, parts, 0.0)
