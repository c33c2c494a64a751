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

    **Privacy.** A row depends on itself alone: this is not a release, and afterwards ``data_norm=1``
    holds without clipping.

    Examples
    --------
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    return normalize(data, norm="l2", axis=1, copy=True)


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
    values = counts.data if sparse.issparse(counts) else np.asarray(counts)
    if values.size and values.min() < 0:
        raise InvalidInputError("Expected counts of at least 0, got negative entries.")
    logs: Any = counts.astype(dtype) if sparse.issparse(counts) else np.array(counts, dtype=dtype)
    if sparse.issparse(logs):
        logs.data = np.log1p(logs.data)
    else:
        logs = np.log1p(logs)
    return normalize(logs, norm="l2", axis=1, copy=False)


def centred_unit(data: Any) -> Any:
    """Subtract from each row its own mean and scale it to unit norm.

    Standardising *columns* uses the values of other people and would not be private.
    """
    rows = np.asarray(data)
    return unit_rows(rows - rows.mean(axis=1, keepdims=True))
