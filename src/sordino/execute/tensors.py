"""Rows in a tensor on a device: storage, views of it, and the executor that adds them up there."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from torch import Tensor

from sordino.errors import InvalidInputError, InvalidTypeError
from sordino.execute.local import Held
from sordino.execute.records import AffineView, LocalRecords, spread_of
from sordino.kernel import Batch, Offer, Question, SparseVector, clip
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.clip.doubles import (
    centred_norms,
    centred_rows,
    factors_of,
    joint_norms,
    norms_of,
    row_norms,
    scale_down,
)
from sordino.kernel.query import (
    AffineViews,
    ColumnSums,
    GramSums,
    Point,
    PublicBall,
    PublicMap,
    Pull,
    RecordSums,
    pull_scalars,
)

_CHUNK = 1 << 26  # entries of a block that is cast to double precision at a time


class DenseStore:
    """A dense tensor of rows, summed in doubles block by block; ``short`` if a sum is few operations."""

    short = False

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self.device = tensor, tensor.device
        self.shape = (tensor.shape[0], tensor.shape[1])

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the rows as dense blocks of doubles."""
        step = max(1, _CHUNK // max(1, self.shape[1]))
        for start in range(0, self.shape[0], step):
            rows = slice(start, min(start + step, self.shape[0]))
            yield rows, self._tensor[rows].double()

    def products(self, w: Tensor) -> Tensor:
        """Return ``x_i . w`` of each row."""
        return self._each(lambda block, _: block @ w)

    def sum_rows(self, coefficients: Tensor) -> Tensor:
        """Return ``sum_i c_i x_i``."""
        out = coefficients.new_zeros(self.shape[1])
        for rows, block in self.blocks():
            out += coefficients[rows] @ block
        return out

    def sum_sizes(self, coefficients: Tensor, square: bool) -> Tensor:
        """Return ``sum_i |c_i x_i|``, or that of the squares, entry by entry."""
        out = coefficients.new_zeros(self.shape[1])
        for rows, block in self.blocks():
            sizes = block.abs() * coefficients[rows, None]
            out += (sizes.square() if square else sizes).sum(0)
        return out

    def norms(self) -> Tensor:
        """Return upper bounds of the norms of rows."""
        return self._each(lambda block, _: row_norms(block))

    def peaks(self) -> Tensor:
        """Return the largest magnitude of each row."""
        return self._each(lambda block, _: block.abs().amax(1))

    def center(self, factors: Tensor, shift: Tensor, weights: Tensor, spread: float) -> Tensor:
        """Return upper bounds of ``|| weights (f_i x_i - shift) ||``."""

        def each(block: Tensor, rows: slice) -> Tensor:
            return centred_rows(block * factors[rows, None], shift, weights, spread)

        return self._each(each)

    def pick(self, rows: Tensor) -> DenseStore:
        return DenseStore(self._tensor[rows])

    def zero_rows(self, marked: Tensor) -> DenseStore:
        """Return a copy with zeros in the marked rows."""
        return DenseStore(self._tensor.masked_fill(marked[:, None], 0.0))

    def _each(self, function: Any) -> Tensor:
        parts = [function(block, rows) for rows, block in self.blocks()]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64, device=self.device)


class CsrStore:
    """The rows of a CSR tensor, as :class:`DenseStore`; a sum over them is a product with its transpose."""

    short = True

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.device = (tensor.shape[0], tensor.shape[1]), tensor.device
        self._values = tensor.values().double()
        # Short numbers of places where they hold all: a product reads a number for each entry.
        kind = torch.int32 if max(len(self._values), *self.shape) < 2**31 else torch.int64
        self._pointers, self._columns = tensor.crow_indices().to(kind), tensor.col_indices().to(kind)
        counts = self._pointers.diff()
        self._rows = torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), counts)
        self._order = torch.argsort(self._columns, stable=True)
        ends = torch.bincount(self._columns, minlength=self.shape[1]).cumsum(0)
        self._ends = torch.cat([ends.new_zeros(1), ends]).to(kind)
        self._turned_rows = self._rows[self._order].to(kind)
        self._matrix = _csr(self._pointers, self._columns, self._values, self.shape)
        self._turned = self._transpose(self._values)

    def products(self, w: Tensor) -> Tensor:
        return self._matrix.mv(w)

    def sum_rows(self, coefficients: Tensor) -> Tensor:
        return self._turned.mv(coefficients)

    def sum_sizes(self, coefficients: Tensor, square: bool) -> Tensor:
        sizes = self._values.abs() * coefficients[self._rows]  # before: the square of a factor underflows
        ones = coefficients.new_ones(self.shape[0])
        return self._transpose(sizes.square() if square else sizes).mv(ones)

    def _transpose(self, values: Tensor) -> Tensor:
        turned = (self.shape[1], self.shape[0])
        return _csr(self._ends, self._turned_rows, values[self._order], turned)

    def norms(self) -> Tensor:
        return norms_of(
            self._values, self.peaks(), lambda each: each[self._rows], self._by_row, self.shape[1]
        )

    def peaks(self) -> Tensor:
        out = self._values.new_zeros(self.shape[0])
        return out.scatter_reduce(0, self._rows, self._values.abs(), "amax")

    def center(self, factors: Tensor, shift: Tensor, weights: Tensor, spread: float) -> Tensor:
        """Return upper bounds of the norms of centred rows; no row is made dense."""
        entries, there = self._values * factors[self._rows], weights[self._columns]
        offset = shift[self._columns] * there
        whole = float((weights * shift).square().sum())
        inside = self._by_row(((entries - shift[self._columns]) * there).square())
        rest = (whole - self._by_row(offset.square())).clamp(min=0.0)
        away = self._by_row((entries * there).square())
        return centred_norms(inside + rest, away, whole, self.shape[1], spread, False)

    def pick(self, rows: Tensor) -> CsrStore:
        counts = self._pointers.diff()[rows]
        pointers = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        starts = torch.repeat_interleave(self._pointers[:-1][rows] - pointers[:-1], counts)
        entries = starts + torch.arange(len(starts), device=self.device)
        shape = (len(rows), self.shape[1])
        return CsrStore(_csr(pointers, self._columns[entries], self._values[entries], shape))

    def zero_rows(self, marked: Tensor) -> CsrStore:
        values = self._values.masked_fill(marked[self._rows], 0.0)
        return CsrStore(_csr(self._pointers, self._columns, values, self.shape))

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        step = max(1, _CHUNK // max(1, self.shape[1]))
        for start in range(0, self.shape[0], step):
            rows = slice(start, min(start + step, self.shape[0]))
            entries = slice(int(self._pointers[rows.start]), int(self._pointers[rows.stop]))
            block = self._values.new_zeros(rows.stop - start, self.shape[1])
            block[self._rows[entries] - start, self._columns[entries]] = self._values[entries]
            yield rows, block

    def _by_row(self, values: Tensor) -> Tensor:
        matrix = _csr(self._pointers, self._columns, values, self.shape)
        return matrix.mv(values.new_ones(self.shape[1]))


Store: TypeAlias = DenseStore | CsrStore


def store_of(tensor: Tensor) -> Store:
    return DenseStore(tensor) if tensor.layout == torch.strided else CsrStore(tensor)


def _csr(pointers: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_csr_tensor(pointers, columns, values, shape, check_invariants=False)


class DeviceView(AffineView):
    """The records of :class:`AffineView`; of a gradient only the sum comes to the processor."""

    _base: Any

    def __init__(self, base: Any, affine: PublicMap) -> None:
        self._base, self._affine, self.intercept = base, affine, affine.intercept
        self._offset = affine.scale * affine.shift
        self.targets, self.weights = base.targets, base.weights
        self._near = base.near(affine.scale), base.near(self._offset)
        sizes = base.centred_sizes(affine.shift, affine.scale)
        factors = factors_of(sizes, 1.0)
        norms = joint_norms((sizes * factors).clamp(min=affine.floor), abs(affine.intercept))
        near: Any = (DeviceVector(sizes), DeviceVector(factors), DeviceVector(norms))
        self.sizes, self.factors, self.norms = near

    def clipped_gradient(self, w: Point, pull: Pull) -> Any:
        """Return ``sum_i clip_C(r_i z_i)`` of one output for the processor; recorded for sparse rows."""
        point = np.asarray(w.to_dense() if isinstance(w, SparseVector) else w, dtype=np.float64)
        known = self.__dict__.get("_played")
        if known is None or known[0] != pull:
            here = weakref.proxy(self)  # not a circle: it would keep the rows on the device
            known = pull, record_graph(lambda near: here._gradient(near, pull), point.size, self._base.matrix)
            self.__dict__["_played"] = known
        return Arriving(known[1](point))

    def _gradient(self, point: Tensor, pull: Pull) -> Tensor:
        base, (scale, offset), constant = self._base, self._near, self._affine.intercept
        weights, rows = point[: len(scale)], base.tensor(base.scale)
        factors = base.tensor(self.factors)
        margins = base.near_products(weights * scale) * rows - (weights * offset).sum()
        margins = margins * (factors / factors.clamp(min=1.0 / pull.longest))
        margins = margins + constant * point[-1] if constant else margins
        given = None if self.weights is None else base.tensor(self.weights)
        scalars = pull_scalars(pull, margins, base.tensor(self.targets), given, base.tensor(self.norms))
        shorter = scalars * factors
        out = base.near_sum(scale_down(shorter, rows)) * scale - shorter.sum() * offset
        return torch.cat([out, (constant * scalars.sum())[None]]) if constant else out

    def gram(self, factors: Any) -> Floats:
        """Return ``sum_i f_i z_i z_i^T`` from blocks of mapped rows."""
        base, (scale, _) = self._base, self._near
        shift, rows_scale = base.near(self._affine.shift), base.tensor(base.scale)
        weights = base.tensor(self.factors) * base.tensor(factors).sqrt()
        total = scale.new_zeros(len(scale), len(scale))
        for rows, block in base.near_blocks():
            kept: Tensor = weights[rows, None]
            z = (block * rows_scale[rows, None] - shift) * scale
            z = z.where(kept > 0.0, 0.0) * kept
            total += z.T @ z
        found: Floats = ((total + total.T) / 2.0).cpu().numpy()
        return found


_LAYOUTS = (torch.strided, torch.sparse_csr)


class TensorRows(Held):
    """A tensor of rows with its public facts; its numbers are checked where they lie."""

    def __init__(self, tensor: Tensor) -> None:
        tensor = tensor.detach()
        if tensor.ndim != 2:
            raise InvalidInputError(f"Expected a matrix, one row per record, got {tensor.ndim} dimensions.")
        if tensor.is_complex():
            raise InvalidTypeError("Expected a tensor of real numbers, got complex ones.")
        tensor = tensor if tensor.layout in _LAYOUTS else tensor.to_sparse_csr()
        kind = torch.float32 if tensor.dtype == torch.float32 else torch.float64
        self._tensor = tensor.to(kind)
        self.shape, self.sparse = (tensor.shape[0], tensor.shape[1]), tensor.layout != torch.strided
        self.dtype = np.dtype("float32" if kind == torch.float32 else "float64")
        if self.sparse:
            self._tensor = _canonical(self._tensor)
        values = self._tensor.values() if self.sparse else self._tensor
        if not all(bool(torch.isfinite(part).all()) for part in values.split(1 << 20)):
            raise InvalidInputError(
                "Expected finite numbers, got NaN or inf. Drop or replace them by a public rule."
            )

    def column(self, values: Any) -> Any:
        return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)

    def executor(
        self, targets: Any, data_norm: float | None, intercept: float, weights: Any
    ) -> TensorExecutor:
        return TensorExecutor(store_of(self._tensor), targets, data_norm, intercept, weights)


@dataclass(frozen=True, eq=False)
class TensorExecutor:
    """Rows on a device; parameters as of :class:`~sordino.execute.local.LocalExecutor`.

    **Privacy.** The passes are those of arrays, in the same precision. A row longer than 2^400 contributes
    zero. Noise is drawn and added in this process: only sums leave the device.
    """

    offer: ClassVar[Offer] = Offer(
        "rows on a device",
        (RecordSums, AffineViews, ColumnSums, GramSums),
        doubles=False,
        remedy="Pass X.cpu().",
    )

    store: Store = field(repr=False)
    targets: Any = field(repr=False)
    data_norm: float | None
    intercept: float = 0.0
    weights: Any = field(repr=False, default=None)
    _all: TensorRecords = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n, device = self.store.shape[0], self.store.device
        if self.data_norm is not None:
            clip.check_bound("data_norm", self.data_norm, "Pass a public bound on the row norms.")
        targets = np.zeros(n) if self.targets is None else np.asarray(self.targets, dtype=float)
        if targets.shape != (n,):
            raise InvalidInputError(f"Expected one target per record, {n} of them, got {targets.shape}.")
        near, lengths = DeviceVector.of(targets, device), self.store.norms()
        lengths = lengths.where(near.tensor.isfinite(), float("nan"))
        if not bool(lengths.isfinite().all()):  # such records contribute zero, whatever is asked
            object.__setattr__(self, "store", self.store.zero_rows(lengths.isnan()))
            near = DeviceVector(near.tensor.masked_fill(lengths.isnan(), float("nan")))
        scale = lengths.isfinite().double()
        if self.data_norm is not None:
            scale = factors_of(lengths, self.data_norm)
            lengths = lengths.clamp(max=self.data_norm)  # which leaves nan
        norms = joint_norms(lengths, abs(self.intercept)) if self.intercept else lengths
        records = TensorRecords(
            self.store,
            near,  # type: ignore[arg-type]
            DeviceVector(norms),  # type: ignore[arg-type]
            DeviceVector(scale),  # type: ignore[arg-type]
            self.intercept,
            self.store.shape[1],
            row_norms=DeviceVector(lengths),  # type: ignore[arg-type]
            weights=None if self.weights is None else DeviceVector.of(self.weights, device),  # type: ignore[arg-type]
        )
        object.__setattr__(self, "_all", records)

    @property
    def population(self) -> int:
        """The number of records, declared public."""
        return self.store.shape[0]

    def total(self, question: Question, batch: Batch) -> Any:
        """Return the exact sum over the rows of a batch, which may still be on its way."""
        rows = batch.rows(self.population)
        found = question.summed(self._all if rows is None else self._all.subset(rows))
        bare = not (question.release.mechanism.multiplier and question.sensitivity)  # no noise will be added
        return np.array(found) if bare and isinstance(found, Arriving) else found


@dataclass(frozen=True, eq=False)
class TensorRecords(LocalRecords):
    """Rows of a store (of ``chosen`` columns), and one number for each on the device during a query."""

    matrix: Store
    chosen: Ints | None = field(default=None, kw_only=True)

    def margins(self, w: Point) -> Floats:
        """Return ``x_i . w``; on the device where there is one output."""
        w = w.to_dense() if isinstance(w, SparseVector) else np.asarray(w, dtype=float)
        if w.ndim == 2:
            return np.stack([np.asarray(self.margins(row)) for row in w], axis=1)
        return super().margins(w)

    def clipped_gradient(self, w: Point, pull: Pull) -> Any:
        """Return ``sum_i clip_C(r_i x_i)``, one output, on its way to the processor."""
        point = self.near(w.to_dense() if isinstance(w, SparseVector) else np.asarray(w, dtype=float))
        scale, given = self.tensor(self.scale), None if self.weights is None else self.tensor(self.weights)
        margins = self.near_products(point[: self.features]) * scale
        margins = margins + self.intercept * point[-1] if self.intercept else margins
        scalars = pull_scalars(pull, margins, self.tensor(self.targets), given, self.tensor(self.norms))
        out = self.near_sum(scale_down(scalars, scale))
        last = (self.intercept * scalars.sum())[None]
        return Arriving(torch.cat([out, last]) if self.intercept else out)

    def weighted_sum(self, coefficients: Floats) -> Floats:
        if coefficients.ndim == 2:
            return np.stack([self.weighted_sum(c) for c in coefficients.T])
        near: Any = coefficients
        if not isinstance(near, DeviceVector):
            near = DeviceVector.of(near, self.matrix.device)
        return super().weighted_sum(near)

    def column_moments(self, square: bool = False) -> tuple[Floats, Floats]:
        own = self.tensor(self.norms).isfinite().double()
        if self.weights is not None:
            own = own * self.tensor(self.weights).clamp(0.0, 1.0)
        first = self.weighted_sum(DeviceVector(own))[: self.features]  # type: ignore[arg-type]
        factors = (own.sqrt() if square else own) * self.tensor(self.scale)
        found: Floats = self.matrix.sum_sizes(factors, square).cpu().numpy()
        return first, found if self.chosen is None else found[self.chosen]

    def centred_norms(self, shift: Floats, weights: Floats, spread: float = 1.0) -> Floats:
        return np.asarray(self.centred_sizes(shift, weights, spread).cpu().numpy())

    def centred_sizes(self, shift: Floats, weights: Floats, spread: float = 1.0) -> Tensor:
        """Return :meth:`centred_norms` where the rows lie."""
        near = (self._spread(self.near(shift)), self._spread(self.near(weights)))
        found = self.matrix.center(self.tensor(self.scale), *near, spread)
        return found.where(self.tensor(self.norms).isfinite(), float("nan"))

    def near_products(self, w: Tensor) -> Tensor:
        """Return the products of the rows, unclipped and without the intercept, with a vector beside them."""
        return self.matrix.products(self._spread(w))

    def near_sum(self, coefficients: Tensor) -> Tensor:
        """Return the sum of the rows, unclipped, times coefficients that lie beside them."""
        found = self.matrix.sum_rows(coefficients)
        return found if self.chosen is None else found[self._chosen]

    def near_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the columns that are looked at in dense blocks of rows."""
        for rows, block in self.matrix.blocks():
            yield rows, block if self.chosen is None else block[:, self._chosen]

    @property
    def peaks(self) -> Floats:
        found = self.matrix.peaks() * self.tensor(self.scale)
        return np.maximum(found.cpu().numpy(), abs(self.intercept))

    def subset(self, rows: Ints) -> TensorRecords:
        at = self.near(rows)

        def part(values: Any) -> Any:
            return None if values is None else DeviceVector(self.tensor(values)[at])

        names = ("targets", "norms", "scale", "weights", "row_norms")
        facts = {name: part(getattr(self, name)) for name in names}
        return replace(self, matrix=self.matrix.pick(at), **facts)

    def restrict(self, columns: Ints) -> TensorRecords:
        """Return the same records with some of their columns and no intercept."""
        return replace(self._within_columns(columns), intercept=0.0)

    def gram(self, ball: PublicBall) -> Floats:
        return self._sum_blocks(ball, (self.features, self.features), lambda y: y.T @ y)

    def gram_product(self, matrix: Floats, ball: PublicBall) -> Floats:
        near = self.near(matrix)
        return self._sum_blocks(ball, matrix.shape, lambda y: y.T @ (y @ near), spread_of(matrix))

    def moments(self, ball: PublicBall) -> tuple[Floats, float]:
        squares = list[float]()

        def each(y: Tensor) -> Tensor:
            squares.append(float(y.square().sum()))
            return y.sum(0)

        return self._sum_blocks(ball, (self.features,), each), float(sum(squares))

    def squared_columns(self, ball: PublicBall) -> Floats:
        return self._sum_blocks(ball, (self.features,), lambda y: y.square().sum(0))

    def _sum_blocks(
        self, ball: PublicBall, shape: Any, each: Callable[[Tensor], Tensor], spread: float = 1.0
    ) -> Floats:
        """Return the sum of what blocks of clipped, centred rows give."""
        total = torch.zeros(tuple(shape), dtype=torch.float64, device=self.matrix.device)
        usable, scale = self.tensor(self.norms).isfinite(), self.tensor(self.scale)
        center = None if ball.center is None else self.near(ball.center)
        for rows, block in self.near_blocks():
            y = block * scale[rows, None]
            y = y if center is None else y - center
            distances = row_norms(y).where(usable[rows], float("nan"))
            length = int(self.features * spread)
            factors = factors_of(distances, clip.limit(ball.radius, length))
            total += each(y.where(factors[:, None] > 0.0, 0.0) * factors[:, None])
        return np.asarray(total.cpu().numpy())

    def _map(self, affine: PublicMap) -> Any:
        if affine.rest is None:
            return DeviceView(self.within(affine.columns), affine)
        return DeviceView(self, affine.pick(np.arange(self.features)))

    def _within_columns(self, columns: Ints) -> TensorRecords:
        kept = columns if self.chosen is None else self.chosen[columns]
        return replace(self, chosen=kept, features=len(kept))

    def _products(self, w: Floats) -> Floats:
        return DeviceVector(self.near_products(self.near(w)))  # type: ignore[return-value]

    def _add(self, coefficients: Floats, out: Floats) -> None:
        out += self.near_sum(self.tensor(coefficients)).cpu().numpy()

    def tensor(self, values: Any) -> Tensor:
        """Return the tensor of numbers that lie beside the rows."""
        return values.tensor if isinstance(values, DeviceVector) else torch.from_numpy(values)

    def _spread(self, values: Tensor) -> Tensor:
        if self.chosen is None:
            return values
        return values.new_zeros(self.matrix.shape[1]).index_copy(0, self._chosen, values)

    @property
    def _chosen(self) -> Tensor:
        if "_there" not in self.__dict__:
            object.__setattr__(self, "_there", self.near(self.chosen))
        there: Tensor = self.__dict__["_there"]
        return there

    def near(self, values: Any) -> Tensor:
        """Return an array brought to the rows."""
        return torch.from_numpy(np.require(values, requirements=["C", "W"])).to(self.matrix.device)


def _canonical(tensor: Tensor) -> Tensor:
    """Return a CSR tensor whose rows hold each column once, inside the matrix, in order."""
    pointers, columns = tensor.crow_indices(), tensor.col_indices()
    inside = bool(((columns >= 0) & (columns < tensor.shape[1])).all())
    rising = (
        bool((pointers.diff() >= 0).all()) and int(pointers[0]) == 0 and int(pointers[-1]) == len(columns)
    )
    if not (inside and rising):
        raise InvalidInputError(
            f"Expected a sparse tensor of shape {tuple(tensor.shape)} with rising pointers and indices "
            "inside it, got a malformed one. Build it again from its entries."
        )
    rows = torch.repeat_interleave(torch.arange(tensor.shape[0], device=tensor.device), pointers.diff())
    keys = rows * tensor.shape[1] + columns
    if bool((keys.diff() > 0).all()):
        return tensor
    kept, slots = torch.unique(keys, return_inverse=True)
    values = tensor.values().new_zeros(len(kept)).index_add(0, slots, tensor.values())
    ends = torch.bincount(kept // tensor.shape[1], minlength=tensor.shape[0]).cumsum(0)
    pointers = torch.cat([ends.new_zeros(1), ends])
    return torch.sparse_csr_tensor(pointers, kept % tensor.shape[1], values, tuple(tensor.shape))


# ----------- One number for each record on a device, for the arithmetic of queries: they ask in NumPy's words

_NAMES = {
    "absolute": torch.abs,
    "add": torch.add,
    "divide": torch.div,
    "exp": torch.exp,
    "expit": torch.special.expit,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "multiply": torch.mul,
    "negative": torch.neg,
    "subtract": torch.sub,
}


class DeviceVector(NDArrayOperatorsMixin):
    """A vector of doubles on a device, with the operations of :data:`_NAMES`; others run on a copy here."""

    ndim = 1

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @classmethod
    def of(cls, values: Any, device: torch.device) -> DeviceVector:
        return cls(torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64)).to(device))

    @property
    def shape(self) -> tuple[int]:
        return (len(self.tensor),)

    def __len__(self) -> int:
        return len(self.tensor)

    def sum(self, axis: int | None = None) -> float:
        return float(self.tensor.sum())

    def like(self, tensor: Tensor) -> DeviceVector:
        """Return another vector on the same device."""
        return DeviceVector(tensor)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        return self.tensor.cpu().numpy().astype(dtype or np.float64, copy=False)

    def __getitem__(self, rows: Any) -> Any:
        return np.asarray(self)[rows]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        known = _NAMES.get(ufunc.__name__)
        near = all(isinstance(i, DeviceVector) or np.shape(i) in ((), self.shape) for i in inputs)
        if known is None or method != "__call__" or kwargs or not near:
            arrays = [np.asarray(i) if isinstance(i, DeviceVector) else i for i in inputs]
            return getattr(ufunc, method)(*arrays, **kwargs)
        return DeviceVector(known(*map(self._bring, inputs)))

    def _bring(self, value: Any) -> Tensor:
        if isinstance(value, DeviceVector):
            return value.tensor
        if np.shape(value) == ():  # made there: a copy would wait for all that is under way
            return torch.full((), float(value), dtype=torch.float64, device=self.tensor.device)
        return torch.as_tensor(np.asarray(value, dtype=np.float64)).to(self.tensor.device)


class Arriving:
    """A sum on its way from a device; whoever uses it first waits for it, and may draw noise before."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape, there = tuple(tensor.shape), tensor.is_cuda
        self._host = torch.empty(self.shape, dtype=tensor.dtype, pin_memory=there)
        self._host.copy_(tensor, non_blocking=there)
        self._copied = torch.cuda.Event() if there else None
        if self._copied is not None:
            self._copied.record()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Floats:
        if self._copied is not None:
            self._copied.synchronize()
        return np.array(self._host.numpy(), dtype=dtype, copy=copy)

    def __getitem__(self, where: Any) -> Any:
        return np.asarray(self)[where]

    def __add__(self, other: Any) -> Any:
        return np.asarray(self) + other


GRAPHS = True


def record_graph(function: Callable[[Tensor], Tensor], size: int, store: Any) -> Callable[[Floats], Tensor]:
    """Return the function for arrays of so many doubles; its answer holds until the next call.

    It is recorded on a CUDA device where operations are short, and run where that fails or does not pay.
    """
    point = torch.empty(size, dtype=torch.float64, device=store.device)
    if GRAPHS and store.device.type == "cuda" and store.short:
        return _Recorded(function, point)
    return lambda w: function(point.copy_(torch.from_numpy(np.require(w, requirements=["C", "W"]))))


class _Recorded:
    """The first call runs the function, which makes what is made once; the second records it."""

    def __init__(self, function: Callable[[Tensor], Tensor], point: Tensor) -> None:
        self._function, self._point, self._calls = function, point, 0
        self._asked = torch.empty(point.shape, dtype=point.dtype, pin_memory=True)
        self._left, self._graph, self._out = torch.cuda.Event(), None, point

    def __call__(self, w: Floats) -> Tensor:
        self._left.synchronize()  # the last point has left
        np.copyto(self._asked.numpy(), w)
        self._point.copy_(self._asked, non_blocking=True)
        self._left.record()
        self._calls += 1
        if self._calls == 2:
            self._record()
        if self._graph is None:
            return self._function(self._point)
        self._graph.replay()
        return self._out

    def _record(self) -> None:
        graph: Any = torch.cuda.CUDAGraph()
        here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
        beside.wait_stream(here)
        collects = gc.isenabled()
        gc.disable()  # a device refuses to free the graph of an earlier fit while it records
        try:
            with torch.cuda.stream(beside):
                graph.capture_begin(capture_error_mode="thread_local")  # other threads go on as they like
                try:
                    self._out = self._function(self._point)
                finally:
                    graph.capture_end()
        except RuntimeError:
            return
        finally:
            if collects:
                gc.enable()
        here.wait_stream(beside)
        self._graph = graph
