"""Maps of released vectors: free post-processing."""

from __future__ import annotations

from typing import Any, TypeAlias, overload

import numpy as np

from sordino.kernel import LazyVector, SparseVector
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.contracts import Point

AnyVector: TypeAlias = Point | LazyVector


@overload
def hard_threshold(vector: Floats, count: int | None, kept: int = 0) -> Floats: ...


@overload
def hard_threshold(vector: AnyVector, count: int | None, kept: int = 0) -> Point: ...


def hard_threshold(vector: AnyVector, count: int | None, kept: int = 0) -> Point:
    """Keep the ``count`` largest magnitudes; the last ``kept`` columns are always kept.

    ``count=None`` keeps everything. A matrix is thresholded as a whole.
    """
    if isinstance(vector, LazyVector):
        return vector.hard_threshold(vector.size - kept if count is None else count, kept)
    if isinstance(vector, SparseVector):
        return _threshold_sparse(vector, count, kept)
    return _threshold_dense(np.array(vector, dtype=float), count, kept)


def _threshold_dense(out: Floats, count: int | None, kept: int) -> Floats:
    free = out[..., : out.shape[-1] - kept]
    if count is None or count >= free.size:
        return out
    sizes = np.abs(free).reshape(-1)
    drop = np.argpartition(sizes, sizes.size - count)[: sizes.size - count]
    flat = np.array(free).reshape(-1)
    flat[drop] = 0.0
    out[..., : out.shape[-1] - kept] = flat.reshape(free.shape)
    return out


def _threshold_sparse(vector: SparseVector, count: int | None, kept: int) -> SparseVector:
    free = np.flatnonzero(vector.indices < vector.size - kept)
    if count is None or count >= free.size:
        return vector
    best = free[np.argpartition(np.abs(vector.values[free]), free.size - count)[free.size - count :]]
    chosen = np.concatenate([best, np.flatnonzero(vector.indices >= vector.size - kept)])
    return SparseVector(vector.indices[chosen], vector.values[chosen], vector.size)


def starting_point(shape: tuple[int, ...], kept: int, sparse: bool) -> Point:
    """Return zero, as a sparse vector for solvers that can stay sparse."""
    if sparse and len(shape) == 1:
        return SparseVector.zeros(shape[0], kept)
    return np.zeros(shape)


@overload
def vector_sum(left: Point, right: Point) -> Point: ...


@overload
def vector_sum(left: AnyVector, right: AnyVector) -> AnyVector: ...


def vector_sum(left: Any, right: Any) -> AnyVector:
    """Return the sum of two vectors of any kind: dense, sparse or lazy."""
    if isinstance(left, LazyVector) or isinstance(right, LazyVector):
        left, right = (left, right) if isinstance(left, LazyVector) else (right, left)
        return left + (right if isinstance(right, SparseVector) else as_sparse(right))
    if isinstance(left, SparseVector) and isinstance(right, SparseVector):
        return _union(left, right)
    return dense(left) + dense(right)


def added_at(w: Point, at: Ints, change: Floats) -> Point:
    """Return ``w`` with ``change`` added at flat coordinates."""
    if isinstance(w, SparseVector):
        return vector_sum(w, SparseVector(at, change, w.size))
    out = np.array(w)
    out.reshape(-1)[at] += change
    return out


def dense(vector: Point) -> Floats:
    """Return a dense or sparse vector as an array."""
    return vector.to_dense() if isinstance(vector, SparseVector) else np.asarray(vector, dtype=float)


def as_sparse(vector: Point, kept: int = 0) -> SparseVector:
    """Return the non-zeros of a vector, and its last ``kept`` entries whatever they are."""
    if isinstance(vector, SparseVector):
        return vector
    marked = vector != 0
    marked[marked.size - kept :] = True
    indices = np.flatnonzero(marked)
    return SparseVector(indices, vector[indices], vector.size)


def _union(left: SparseVector, right: SparseVector) -> SparseVector:
    indices, slots = np.unique(np.concatenate([left.indices, right.indices]), return_inverse=True)
    both = np.concatenate([left.values, right.values])
    values = np.bincount(slots, both, minlength=indices.size).astype(np.float64, copy=False)
    return SparseVector(indices, values, left.size)
