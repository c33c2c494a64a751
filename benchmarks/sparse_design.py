"""A sparse classification design that scales to millions of rows and tens of millions of columns."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse
from sklearn.utils import Bunch

from sordino.errors import DataNotFoundError, InvalidInputError
from sordino.kernel import public_generator
from sordino.kernel.arrays import Floats, Ints
from sordino.values import check_whole

Public = Any  # a NumPy generator
ColumnLaw = Literal["zipf", "uniform"]
_ROWS = 1 << 15  # rows made at a time; part of the design, because it orders the draws
_ARRAYS = ("data", "indices", "indptr", "target")


def strata(n_features: int, nnz_per_row: int, column_law: ColumnLaw) -> Ints:
    """Cut the columns into ``nnz_per_row`` groups of about equal probability.

    A row takes one column of each group, so its columns are distinct and sorted without a search.
    Under ``"zipf"`` column j has probability about 1/j: the first columns are in almost every row, as
    common words are.
    """
    if column_law not in ("zipf", "uniform"):
        raise InvalidInputError(f"Expected column_law to be zipf or uniform, got {column_law!r}.")
    steps = np.arange(nnz_per_row + 1)
    share = steps / nnz_per_row
    ideal = (n_features + 1.0) ** share - 1.0 if column_law == "zipf" else n_features * share
    edges = np.floor(ideal).astype(np.int64)
    edges = np.maximum.accumulate(edges - steps) + steps  # at least one column each
    edges[-1] = n_features
    return np.minimum(edges, n_features - nnz_per_row + steps)


def make_sparse_classification(
    n_samples: int = 10_000,
    n_features: int = 100_000,
    nnz_per_row: int = 75,
    *,
    n_informative: int = 1_000,
    signal: float = 4.0,
    column_law: ColumnLaw = "zipf",
    path: str | os.PathLike[str] | None = None,
    random_state: object = None,
    dtype: DTypeLike = np.float32,
) -> Bunch:
    r"""Make a sparse logistic design with rows of unit norm, in bounded memory.

    Labels are +1 with probability :math:`1/(1 + e^{-x^\top\theta})` and -1 otherwise.

    Parameters
    ----------
    n_samples, n_features, nnz_per_row : rows, columns and stored entries of each row.
    n_informative : nonzero coefficients. Under ``"zipf"`` they lie among the first ``10 * n_informative``
        columns, which rows do contain.
    signal : the standard deviation of the margin :math:`x^\top\theta`.
    column_law : how often a column occurs, "zipf" or "uniform".
    path : a folder to write the matrix to as memory-mapped arrays. Memory then holds some thousand rows at a
        time: 1,000,000 x 20,000,000 with 75 entries a row is a file of 600 MB.
    random_state : the seed of the design.
    dtype : the type of the entries.

    Returns a Bunch: ``data`` (CSR), ``target`` (-1 or +1), ``coef`` (CSR with one row), ``data_norm`` (1),
    ``DESCR``.

    Examples
    --------
    >>> design = make_sparse_classification(100, 10_000, 20, n_informative=50, random_state=0)
    >>> design.data.shape, design.data.nnz
    ((100, 10000), 2000)
    """
    check_whole("n_samples", n_samples)
    check_whole("nnz_per_row", nnz_per_row, n_features)
    check_whole("n_informative", n_informative, n_features)
    public = public_generator(random_state)
    edges = strata(n_features, nnz_per_row, column_law)
    theta = _coefficients(public, edges, n_informative, column_law, signal)
    arrays = _allocate(n_samples, n_features, nnz_per_row, path, np.dtype(dtype))
    for start in range(0, n_samples, _ROWS):
        _fill(public, arrays, start, min(start + _ROWS, n_samples), edges, theta)
    return _bunch(arrays, n_features, theta)


def open_sparse_classification(path: str | os.PathLike[str], n_features: int) -> Bunch:
    """Open what :func:`make_sparse_classification` wrote to a folder, without reading it."""
    folder = Path(path)
    if not all((folder / f"{name}.npy").is_file() for name in _ARRAYS):
        names = ", ".join(f"{name}.npy" for name in _ARRAYS)
        raise DataNotFoundError(
            f"{folder} does not hold a sparse design ({names}). Make one with "
            "make_sparse_classification(..., path=...)."
        )
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
    return _bunch(arrays, n_features, None)


def _coefficients(public: Public, edges: Ints, count: int, law: ColumnLaw, signal: float) -> Floats:
    """Draw coefficients so that the margin has standard deviation ``signal``."""
    reach = min(int(edges[-1]), 10 * count) if law == "zipf" else int(edges[-1])
    theta = np.zeros(reach)
    theta[public.choice(reach, count, replace=False)] = public.uniform(-1.0, 1.0, count)
    # An entry of a unit row squares to 1/m on average; group k hits a mean square of theta.
    squares = np.concatenate([[0.0], np.cumsum(theta**2)])
    mass = np.diff(squares[np.minimum(edges, reach)]) / np.diff(edges)
    spread = np.sqrt(mass.mean())
    return theta * (signal / spread if spread > 0 else 1.0)


def _allocate(n: int, d: int, m: int, path: str | os.PathLike[str] | None, dtype: np.dtype) -> dict[str, Any]:
    kind = np.int32 if max(n * m, d) < np.iinfo(np.int32).max else np.int64
    shapes = {
        "data": ((n * m,), dtype),
        "indices": ((n * m,), np.dtype(kind)),
        "indptr": ((n + 1,), np.dtype(kind)),
        "target": ((n,), np.dtype(np.int8)),
    }
    if path is None:
        arrays: dict[str, Any] = {key: np.empty(shape, t) for key, (shape, t) in shapes.items()}
    else:
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {
            key: np.lib.format.open_memmap(folder / f"{key}.npy", mode="w+", dtype=t, shape=shape)
            for key, (shape, t) in shapes.items()
        }
    arrays["indptr"][:] = np.arange(n + 1, dtype=kind) * m
    return arrays


def _fill(public: Public, arrays: dict[str, Any], start: int, stop: int, edges: Ints, theta: Floats) -> None:
    m = len(edges) - 1
    shape = (stop - start, m)
    columns = public.random(shape)
    columns *= np.diff(edges)
    columns = edges[:-1] + np.minimum(columns.astype(np.int64), np.diff(edges) - 1)
    values = public.random(shape, dtype=np.float32) + np.float32(0.5)
    values /= np.sqrt(np.einsum("ij,ij->i", values, values))[:, None]
    known = columns < len(theta)
    margins = (values * np.where(known, theta[np.where(known, columns, 0)], 0.0)).sum(axis=1)
    positive = public.random(stop - start) < 1.0 / (1.0 + np.exp(-margins))
    arrays["data"][start * m : stop * m] = values.ravel()
    arrays["indices"][start * m : stop * m] = columns.ravel()
    arrays["target"][start:stop] = np.where(positive, 1, -1)


def _bunch(arrays: dict[str, Any], d: int, theta: Floats | None) -> Bunch:
    n = len(arrays["target"])
    parts = (arrays["data"], arrays["indices"], arrays["indptr"])
    out = Bunch(
        data=sparse.csr_matrix(parts, shape=(n, d), copy=False),
        target=np.asarray(arrays["target"]).astype(np.int64),
        data_norm=1.0,
        DESCR=f"Sparse logistic design: n={n:,}, d={d:,}, {len(parts[0]) // n} entries a row.",
    )
    if theta is not None:
        support = np.flatnonzero(theta)
        entries = (theta[support], (np.zeros_like(support), support))
        out["coef"] = sparse.csr_matrix(entries, shape=(1, d))
    return out
