"""The data in this process: NumPy arrays and SciPy CSR matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sordino.errors import InvalidInputError, PlanError, UnsupportedError, require_extra
from sordino.execute.csr import as_rows
from sordino.execute.records import CsrRecords, DenseRecords, LazyRecords, LocalRecords
from sordino.kernel import (
    Batch,
    Disjoint,
    Executor,
    FixedSize,
    Full,
    Offer,
    Poisson,
    Question,
    SparseVector,
    clip,
)
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.events import Share
from sordino.kernel.query import AffineViews, ColumnSums, DenseRows, GramSums, Parts, RowBlocks, ValueColumns

_DATA_NORM = "Pass a public bound on the row norms (rows are clipped to it); computing it from X would leak."
# A lazy step costs about as much per touched column as a dense one per 2 columns (benchmarks/lazy.py).
LAZY_RATIO = 2.0
_BOTH = (AffineViews, ColumnSums, GramSums, Parts)
CSR = Offer("sparse rows", (RowBlocks, *_BOTH), remedy="Pass a dense array.")
DENSE = Offer("rows in memory", (DenseRows, *_BOTH))


@dataclass(frozen=True, eq=False)
class LocalExecutor:
    """Records held in memory.

    Parameters
    ----------
    matrix : an array or a sparse matrix; a sparse matrix is never made dense.
    targets : one number per row; None when there is nothing to predict.
    data_norm : rows are clipped to this Euclidean norm; None when the query bounds rows itself.
    intercept : the constant of the intercept column, 0 for none.
    weights : of the records' losses, applied before the clip, so they do not change the sensitivity.
    """

    matrix: Any = field(repr=False)
    targets: Floats | None = field(repr=False, default=None)
    data_norm: float | None = 1.0
    intercept: float = 0.0
    weights: Floats | None = field(repr=False, default=None)
    _all: LocalRecords = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.data_norm is not None:
            clip.check_bound("data_norm", self.data_norm, _DATA_NORM)
        matrix = as_rows(self.matrix)
        stored, scale, lengths = _clip_factors(matrix, self.data_norm)
        targets = np.zeros(len(lengths)) if self.targets is None else np.asarray(self.targets, dtype=float)
        if targets.shape != lengths.shape:
            raise InvalidInputError(
                f"Expected one target per record, {len(lengths)} of them, got shape {targets.shape}."
            )
        # A record that is not finite becomes a zero row, norm and target nan: it contributes zero.
        good = np.isfinite(lengths) & np.isfinite(targets)
        stored, lengths = np.where(good, stored, 0.0), np.where(good, lengths, np.nan)
        matrix = matrix if (stored == 1.0).all() else clip.shorten_rows(matrix, stored)
        targets = np.where(good, targets, np.nan)
        norms = clip.joint_norms([lengths, abs(self.intercept)]) if self.intercept else lengths
        facts: Any = matrix, targets, norms, scale, self.intercept, int(matrix.shape[1])
        more: dict[str, Any] = {"weights": self.weights, "row_norms": lengths}
        kind: type[LocalRecords] = DenseRecords
        if sparse.issparse(matrix):
            kind, more["rows"] = CsrRecords, np.arange(matrix.shape[0])
        for name, value in (("matrix", matrix), ("targets", targets), ("_all", kind(*facts, **more))):
            object.__setattr__(self, name, value)

    @property
    def population(self) -> int:
        return int(self.matrix.shape[0])

    @cached_property
    def offer(self) -> Offer:
        return CSR if sparse.issparse(self.matrix) else DENSE

    def total(self, question: Question, batch: Batch) -> Any:
        """Return the exact sum over the rows of a batch; for whoever adds the noise."""
        return question.summed(self.records(batch.rows(self.population), lazy=question.lazy))

    def records(self, rows: Ints | None, lazy: bool = False) -> Any:
        """Return the rows with the operations of queries; for queries only."""
        base = self._all if rows is None else self._all.subset(rows)
        if not lazy or not isinstance(base, CsrRecords):
            return base
        # Both paths have the same law, so this may look at the batch: only the run time tells.
        x = self.matrix
        entries = x.nnz if rows is None else rows.size * (x.nnz / max(1, x.shape[0]))
        ratio = LAZY_RATIO / 2 if rows is None else LAZY_RATIO  # all rows are laid out once, not at each step
        return LazyRecords(base) if x.shape[1] > ratio * entries else base


def _clip_factors(matrix: Any, bound: float | None) -> tuple[Floats, Floats, Floats]:
    """Return two factors per row, together its clip, and an upper bound of its norm after them.

    The first is for stored rows so long that products would overflow; the second is for all, on the fly.
    """
    found = clip.measure_rows(matrix)
    norms, one = found.norms, np.ones(len(found.mantissa))
    if bound is None:  # the queries bound what a record adds
        return one, one, norms
    factors = found.factors(bound)
    if norms.max(initial=0.0) <= clip.HIGHEST:
        return one, factors, np.minimum(norms, bound)
    far = norms > clip.HIGHEST
    after = np.where(norms < bound, norms, np.where(np.isnan(norms), np.nan, bound))
    return np.where(far, factors, 1.0), np.where(far | np.isnan(norms), 1.0, factors), after


@dataclass(frozen=True, eq=False)
class ValueExecutor:
    """Columns held in memory.

    Parameters
    ----------
    population : the public number of records; every column has so many.
    number_columns : arrays of doubles, nan where a record has no number.
    text_columns : pairs of an array of numbers, -1 for none, and the texts that they number.
    """

    offer: ClassVar[Offer] = Offer("columns of a table", (ValueColumns,), samplings=(Full,))

    population: int
    number_columns: tuple[Floats, ...] = field(repr=False, default=())
    text_columns: tuple[tuple[Ints, list[str | None]], ...] = field(repr=False, default=())

    def __post_init__(self) -> None:
        lengths = {len(c) for c in self.number_columns} | {len(codes) for codes, _ in self.text_columns}
        if lengths - {self.population}:
            raise InvalidInputError(f"Expected {self.population} records in every column.")

    def numbers(self, column: int) -> Floats:
        return self.number_columns[column]

    def counts(self, column: int) -> dict[str, int]:
        """Return how many records have each text; several numbers may stand for one text."""
        codes, texts = self.text_columns[column]
        out: dict[str, int] = {}
        counts = np.bincount(codes[codes >= 0], minlength=len(texts))
        for code in np.flatnonzero(counts):
            if (text := texts[code]) is not None:
                out[text] = out.get(text, 0) + int(counts[code])
        return out

    def total(self, question: Question, batch: Batch) -> Any:
        return question.summed(self)


class StreamExecutor:
    """Answers release number t from chunk number t, and forgets each chunk when the next one comes.

    Parameters
    ----------
    population : the public number of records that the plan was made for.

    **Privacy.** The plan's sampling is ``Disjoint``: the chunks compose in parallel, provided that no
    record is fed in two of them, which only the caller can know.
    """

    offer: ClassVar[Offer] = Offer("data that arrive in chunks", CSR.operations, samplings=(Disjoint,))

    def __init__(self, population: int) -> None:
        self.population, self._number = population, -1
        self._chunk: LocalExecutor | None = None

    def feed(self, chunk: LocalExecutor) -> None:
        """Put the next chunk in place of the last one."""
        self._number, self._chunk = self._number + 1, chunk

    def total(self, question: Question, batch: Batch) -> Any:
        """Return the exact answer on the chunk whose turn it is, which is the batch."""
        if self._chunk is None or question.position != self._number:
            raise PlanError(f"Chunk {self._number} cannot answer release number {question.position}.")
        return question.summed(self._chunk.records(None))


# -------------------------------- Rows that are not an array in this process: what `fit` takes besides arrays

_FLOATS = ("torch.float16", "torch.float32", "torch.float64")


class _Elsewhere:
    """What lies elsewhere has a length and cannot be picked from here."""

    shape: Any

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: Any) -> Any:
        raise UnsupportedError(
            "This needs all rows in one place, as an array: it asks for more than sums over records. Bring "
            "them there first, for example X.compute()."
        )


class Held(_Elsewhere):
    """Rows with their public facts; a subclass makes the executor that asks them where they lie."""

    shape: tuple[int, int]
    dtype: Any
    sparse: bool
    names: list[str] | None = None

    def column(self, values: Any) -> Any:
        """Return one value per row, brought to its rows."""
        raise NotImplementedError

    def executor(self, targets: Any, data_norm: float | None, intercept: float, weights: Any) -> Executor:
        """Return what adds up these rows; parameters as of :class:`LocalExecutor`."""
        raise NotImplementedError

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self[:]

    def __matmul__(self, other: Any) -> Any:
        return self[:]


class HeldColumn(_Elsewhere):
    """One number or label per record that lies with its rows; maps are applied where it lies."""

    shape: tuple[int]
    kinds: set[str]

    def map(self, function: Callable[..., Any], *constants: Any) -> HeldColumn:
        """Return the column through a function of arrays, which is sent to the records, so it must pickle."""
        raise NotImplementedError

    def unique(self) -> NDArray[Any] | None:
        """Return the distinct values in order; None where they are too many to be labels."""
        raise NotImplementedError

    def least(self) -> float:
        raise NotImplementedError

    def clip(self, low: float, high: float, out: None = None) -> HeldColumn:
        """Return the column with its numbers moved into an interval; NumPy's ``clip`` calls it."""
        return self.map(np.clip, low, high)

    def astype(self, kind: Any) -> HeldColumn:
        return self.map(np.asarray, np.dtype(kind))

    def __rmul__(self, factor: float) -> HeldColumn:
        return self.map(np.multiply, factor)

    def __sub__(self, term: float) -> HeldColumn:
        return self.map(np.subtract, term)


def executor_of(
    matrix: Any,
    targets: Any = None,
    data_norm: float | None = 1.0,
    intercept: float = 0.0,
    weights: Any = None,
) -> Any:
    """Return the executor over some rows, wherever they lie; parameters as of :class:`LocalExecutor`."""
    if isinstance(matrix, Held):
        return matrix.executor(targets, data_norm, intercept, weights)
    return LocalExecutor(matrix, targets, data_norm, intercept, weights)


def is_sparse(matrix: Any) -> bool:
    """Tell whether rows are sparse, wherever they lie."""
    return matrix.sparse if isinstance(matrix, Held) else bool(sparse.issparse(matrix))


def look_up(table: Floats, codes: Any) -> Any:
    """Return the entry of a public table for each code."""
    return codes.map(partial(np.take, table)) if isinstance(codes, HeldColumn) else table[codes]


def hold(X: Any, y: Any = None, *maps: Any) -> tuple[Held, Any] | None:
    """Return rows and targets that lie elsewhere, by ``maps`` of parts of tables; None for those here."""
    if isinstance(X, Held):
        return X, None if y is None else X.column(y)
    if _package(X) == "torch" and hasattr(X, "detach"):
        tensors: Any = import_module("sordino.execute.tensors").TensorRows(X)
        return tensors, None if y is None else tensors.column(y)
    if not in_dask(X):
        return None
    found: tuple[Held, Any] = _of_dask("spread")(X, y, *maps)
    return found


def in_dask(X: Any) -> bool:
    """Tell whether rows or values lie in Dask: a collection, or a list of delayed or future blocks."""
    first = X[0] if isinstance(X, (list, tuple)) and X else X
    return _package(first) in ("dask", "distributed")


def hold_columns(columns: Sequence[Any], make: Callable[[tuple[Any, ...]], Any]) -> Held:
    """Return the rows that a function makes of blocks of columns that all lie in Dask, where they lie."""
    if not all(map(in_dask, columns)):
        raise InvalidInputError(
            "Expected all columns in Dask, or none of them. Bring the others there with "
            "dask.array.from_array, in the same partitions."
        )
    rows: Held = _of_dask("rows_of_columns")(columns, make)
    return rows


def apply_by_block(X: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a function makes of each block of rows that lie in Dask, as a dask array."""
    return _of_dask("apply_by_block")(X, function)


def _of_dask(name: str) -> Any:
    try:
        return getattr(import_module("sordino.execute.dask"), name)
    except ImportError:
        raise require_extra("distributed", "dask") from None


def strip_tensor(values: Any, here: bool = True) -> Any:
    """Return a torch tensor (on a GPU only if wanted ``here``) as an array or CSR matrix; others as is."""
    if _package(values) != "torch" or not hasattr(values, "detach"):
        return values
    if values.device.type == "cuda":
        return strip_tensor(values.cpu()) if here else values
    if values.device.type != "cpu":
        raise UnsupportedError(
            f"Expected a tensor on the processor or on a CUDA device, got one on {values.device.type}. Pass "
            "X.cpu(): linear models and PCA need double precision."
        )
    tensor = values.detach()
    if tensor.is_quantized:
        raise UnsupportedError("Expected a tensor of numbers, got quantized codes. Pass X.dequantize().")
    narrow = tensor.is_floating_point() and str(tensor.dtype) not in _FLOATS
    plain = tensor.float() if narrow else tensor
    if plain.ndim != 2 and str(plain.layout) != "torch.strided":
        plain = plain.to_dense()
    if str(plain.layout) == "torch.strided":
        return plain.numpy()
    if str(plain.layout) != "torch.sparse_csr":
        plain = plain.to_sparse_csr()
    parts = (plain.values(), plain.col_indices(), plain.crow_indices())
    return sparse.csr_matrix(tuple(part.numpy() for part in parts), shape=tuple(plain.shape), copy=False)


def hold_numbers(x: Any) -> tuple[Held, bool] | None:
    """Return numbers or rows of numbers that lie elsewhere, and whether they were plain numbers."""
    flat = _package(x) == "dask" and getattr(x, "ndim", 2) == 1
    if flat:
        x = x.to_frame() if hasattr(x, "to_frame") else x[:, None]
    found = hold(x)
    return None if found is None else (found[0], flat)


def _package(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


# Sums of parts in one fixed order: a binary tree over their numbers, whoever adds up which branch
# A node ``(level, index)`` is the sum of the parts ``index 2^level`` to ``(index + 1) 2^level - 1``.
# Whoever holds both children of a node adds them up, so the total is the same to the last bit however the
# parts are spread over workers, and a worker that holds neighbours sends few nodes.

Nodes: TypeAlias = dict[tuple[int, int], Any]


def fold(nodes: Mapping[tuple[int, int], Any], count: int) -> Nodes:
    """Return the sums of the largest whole branches, from those of smaller ones of ``count`` parts."""
    out, level = dict(nodes), 0
    while 1 << level < count:
        width = (count + (1 << level) - 1) >> level
        for at, index in sorted(out):
            if at == level and index % 2 == 0:
                right = (level, index + 1)
                if index + 1 == width:  # it has no sibling in the tree
                    out[level + 1, index // 2] = out.pop((level, index))
                elif right in out:
                    out[level + 1, index // 2] = add_answers(out.pop((level, index)), out.pop(right))
        level += 1
    return out


def total(branches: Iterable[Mapping[tuple[int, int], Any]], count: int) -> Any:
    """Return the sum of all ``count`` parts.

    **Privacy.** A part that entered twice would double the sensitivity, one that is missing would tell who is
    in it: both are refused before anything is released.
    """
    nodes: Nodes = {}
    seen = np.zeros(count, dtype=np.int64)
    for branch in branches:
        for level, index in branch:
            seen[index << level : (index + 1) << level] += 1
        nodes.update(branch)
    if not (seen == 1).all():
        raise PlanError(
            f"Expected each of {count} parts once in a sum, got {int((seen == 0).sum())} missing and "
            f"{int((seen > 1).sum())} repeated. Nothing was released from it; the budget is spent."
        )
    (root,) = fold(nodes, count).values()
    return root


def add_answers(one: Any, other: Any) -> Any:
    """Return the sum of two answers: of touched columns where both are, else dense."""
    if isinstance(one, SparseVector) and isinstance(other, SparseVector):
        return one.joined(other)
    return one + other


def in_parts(sparse: bool, records: str, remedy: str, parts: tuple[int, ...] = ()) -> Offer:
    """Return what records in parts offer, of what they would offer in one place."""
    offer = CSR if sparse else DENSE
    return replace(
        offer,
        records=records,
        parts=parts,
        operations=tuple(kind for kind in offer.operations if kind is not Parts),
        samplings=(Full, Poisson, FixedSize, Disjoint),
        in_parts=True,
        remedy=remedy,
    )


def part_sum(part: LocalExecutor, question: Question, share: Share) -> Any:
    """Return the exact sum over one part's rows of a batch."""
    return part.total(question, Batch((share,)))
