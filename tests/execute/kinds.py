"""One data set in all the kinds that users bring."""

import numpy as np
import pytest
from scipy import sparse

from sordino.execute import LocalExecutor
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmGradient

N, D, INTERCEPT, BOUND = 30, 12, 0.7, 1.7
QUERY = GlmGradient(LOSSES["squared"], 2.3)


def matrix_and_targets(density=0.3, seed=1):
    rng = np.random.default_rng(seed)
    matrix = np.where(rng.random((N, D)) < density, 2 * rng.normal(size=(N, D)), 0.0)
    matrix[4] = 0.0
    return matrix.astype(np.float32).astype(np.float64), rng.normal(size=N)


def non_contiguous(matrix):
    wide = np.zeros((2 * N, 2 * D))
    wide[::2, ::2] = matrix
    return wide[::2, ::2]


def read_only(matrix):
    copy = matrix.copy()
    for part in (copy.data, copy.indices, copy.indptr) if sparse.issparse(copy) else (copy,):
        part.flags.writeable = False
    return copy


def wide_pointers(matrix):
    out = sparse.csr_array(matrix)
    out.indptr, out.indices = out.indptr.astype(np.int64), out.indices.astype(np.int64)
    return out


def shuffled(matrix):
    out = sparse.csr_matrix(matrix)
    for i in range(N):
        part = slice(out.indptr[i], out.indptr[i + 1])
        out.indices[part], out.data[part] = out.indices[part][::-1].copy(), out.data[part][::-1].copy()
    out.has_sorted_indices = out.has_canonical_format = False
    return out


def doubled(matrix):
    base = sparse.csr_matrix(matrix)
    return sparse.csr_matrix(
        (np.repeat(base.data / 2, 2), np.repeat(base.indices, 2), base.indptr * 2), shape=base.shape
    )


KINDS = {
    "dense": lambda m: m,
    "float32": lambda m: m.astype(np.float32),
    "fortran": np.asfortranarray,
    "non-contiguous": non_contiguous,
    "read-only": read_only,
    "csr": sparse.csr_matrix,
    "csr float32": lambda m: sparse.csr_matrix(m.astype(np.float32)),
    "csr read-only": lambda m: read_only(sparse.csr_matrix(m)),
    "csr int64": wide_pointers,
    "csr array": sparse.csr_array,
    "csr unsorted": shuffled,
    "csr stored twice": doubled,
    "csc": sparse.csc_matrix,
    "coo": sparse.coo_matrix,
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def executor_of(kind="dense", intercept=INTERCEPT, targets=None):
    matrix, y = matrix_and_targets()
    return LocalExecutor(KINDS[kind](matrix), y if targets is None else targets, BOUND, intercept)
