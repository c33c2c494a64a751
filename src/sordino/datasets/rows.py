"""Transformations that act on each row by itself, and so cost no privacy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse
from sklearn.preprocessing import normalize

from sordino.errors import InvalidInputError


def unit_rows(data: Any) -> Any:
    """Divide each row by its Euclidean norm; rows of zeros stay. Sparse stays sparse.

    **Privacy.** A row depends on itself alone, so this is not a release. Afterwards no row has a norm
    above 1 but for rounding, and ``data_norm=1`` clips nothing that matters.

    Examples
    --------
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    # By the largest entry first: squares of 1e-162 vanish and those of 1e155 overflow.
    return normalize(normalize(data, norm="max", axis=1, copy=True), norm="l2", axis=1, copy=False)


def log1p_unit(counts: Any, dtype: DTypeLike = np.float64) -> Any:
    """Map word counts to ``log(1 + count)`` and scale each row to unit norm.

    Unlike tf-idf it uses nothing but the document itself, so it is free of privacy cost.

    Parameters
    ----------
    counts : sparse matrix or array of shape (n, d)
        Counts, at least zero.
    dtype : dtype
        The floating type of the result.

    Examples
    --------
    >>> log1p_unit(np.array([[1, 0, 1]])).round(4)
    array([[0.7071, 0.    , 0.7071]])
    """
    is_sparse = sparse.issparse(counts)
    values = counts.data if is_sparse else np.asarray(counts)
    if values.size and values.min() < 0:
        raise InvalidInputError("Expected counts of at least 0, got negative entries.")
    return unit_rows(counts.astype(dtype).log1p() if is_sparse else np.log1p(values.astype(dtype)))


def centred_unit(data: Any) -> Any:
    """Subtract from each row its own mean and scale it to unit norm.

    Standardising *columns* uses the values of other people and would not be private.
    """
    rows = np.asarray(data)
    return unit_rows(rows - rows.mean(axis=1, keepdims=True))
