"""Rows that are not an array in this process: what `fit` takes besides arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from scipy import sparse

from sordino.errors import InvalidInputError, UnsupportedError, require_extra
from sordino.execute.local import LocalExecutor
from sordino.kernel.arrays import Floats

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

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self[:]

    def __matmul__(self, other: Any) -> Any:
        return self[:]

    def column(self, values: Any) -> Any:
        """Return one value per row, brought to its rows."""
        raise NotImplementedError  # pragma: no cover

    def executor(self, targets: Any, data_norm: float | None, intercept: float, weights: Any) -> Any:
        raise NotImplementedError  # pragma: no cover


class HeldColumn(_Elsewhere):
    """One number or label per record that lies with its rows; maps are applied where it lies."""

    shape: tuple[int]
    kinds: set[str]

    def map(self, function: Callable[..., Any], *constants: Any) -> Any:
        """Return the column through a function of arrays; it is sent to the records, so it must pickle."""
        raise NotImplementedError  # pragma: no cover

    def unique(self) -> Any:
        """Return the distinct values in order; None where they are too many to be labels."""
        raise NotImplementedError  # pragma: no cover

    def least(self) -> float:
        raise NotImplementedError  # pragma: no cover

    def clip(self, low: float, high: float, out: None = None) -> Any:
        """Return the column with its numbers moved into an interval; NumPy's ``clip`` calls it."""
        return self.map(np.clip, low, high)

    def astype(self, kind: Any) -> Any:
        return self.map(np.asarray, np.dtype(kind))

    def __rmul__(self, factor: float) -> Any:
        return self.map(np.multiply, factor)

    def __sub__(self, term: float) -> Any:
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
    return codes.map(_entries, table) if isinstance(codes, HeldColumn) else table[codes]


def _entries(codes: Any, table: Floats) -> Floats:
    return table[codes]


def held(X: Any, y: Any = None, *maps: Any) -> tuple[Held, Any] | None:
    """Return rows and targets that lie elsewhere, their facts read; None for what is in this process.

    ``maps`` make rows and targets of a part of a table, where it lies.
    """
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


def held_columns(columns: Sequence[Any], make: Callable[[tuple[Any, ...]], Any]) -> Held:
    """Return the rows that a function makes of blocks of columns that all lie in Dask, where they lie."""
    if not all(map(in_dask, columns)):
        raise InvalidInputError(
            "Expected all columns in Dask, or none of them. Bring the others there with "
            "dask.array.from_array, in the same partitions."
        )
    rows: Held = _of_dask("rows_of_columns")(columns, make)
    return rows


def applied(X: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a function makes of each block of rows that lie in Dask, as a dask array."""
    return _of_dask("applied")(X, function)


def _of_dask(name: str) -> Any:
    try:
        return getattr(import_module("sordino.execute.dask"), name)
    except ImportError:
        raise require_extra("distributed", "dask") from None


def untensored(values: Any, here: bool = True) -> Any:
    """Return a torch tensor on the processor as an array or CSR matrix over the same memory; others as is.

    One on a GPU stays there, unless its values are wanted ``here``.
    """
    if _package(values) != "torch" or not hasattr(values, "detach"):
        return values
    if values.device.type == "cuda":
        return untensored(values.cpu()) if here else values
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


def held_numbers(x: Any) -> tuple[Held, bool] | None:
    """Return numbers or rows of numbers that lie elsewhere, and whether they were plain numbers."""
    flat = _package(x) == "dask" and getattr(x, "ndim", 2) == 1
    if flat:
        x = x.to_frame() if hasattr(x, "to_frame") else x[:, None]
    found = held(x)
    return None if found is None else (found[0], flat)


def _package(value: Any) -> str:
    return type(value).__module__.partition(".")[0]
