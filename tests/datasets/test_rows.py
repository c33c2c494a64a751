"""Row-wise transformations."""

import numpy as np
import pytest
from scipy import sparse

from sordino.datasets import log1p_unit, unit_rows
from sordino.errors import InvalidInputError

COUNTS = np.array([[3, 0, 1], [0, 0, 0], [0, 7, 0]])


@pytest.mark.parametrize("make", [np.array, sparse.csr_matrix, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log1p_unit_is_log1p_divided_by_the_row_norm(make, dtype):
    out = log1p_unit(make(COUNTS), dtype)
    assert sparse.issparse(out) is sparse.issparse(make(COUNTS))
    assert out.dtype == dtype
    dense = out.toarray() if sparse.issparse(out) else out
    logs = np.log1p(COUNTS)
    expected = logs / np.maximum(np.linalg.norm(logs, axis=1, keepdims=True), 1e-30)
    np.testing.assert_allclose(dense, expected, rtol=1e-6)


def test_the_input_is_left_alone():
    counts = sparse.csr_matrix(COUNTS.astype(float))
    before = counts.copy()
    log1p_unit(counts)
    unit_rows(counts)
    assert (counts != before).nnz == 0


def test_unit_rows_keeps_directions_and_zero_rows():
    rows = unit_rows(sparse.csr_matrix(COUNTS.astype(float)))
    np.testing.assert_allclose(rows.toarray()[0], np.array([3, 0, 1]) / np.sqrt(10))
    assert rows[1].nnz == 0


@pytest.mark.parametrize("make", [np.array, sparse.csr_matrix])
@pytest.mark.parametrize("size", [1e-320, 1e-170, 2.3e-162, 1e-3, 1e150, 1e300])
def test_no_row_is_longer_than_one_at_any_magnitude(make, size):
    """At 2.3e-162 one square is barely kept and the others vanish: the norm was 62."""
    rows = np.full((2, 10_000), 0.6)
    rows[:, 0] = [1.0, -1.0]
    out = unit_rows(make(rows * size))
    norms = np.linalg.norm(out.toarray() if sparse.issparse(out) else out, axis=1)
    assert norms.max() <= 1 + 1e-12
    # scikit-learn takes dense rows below 2e-15 for zeros and leaves them as they are.
    assert size < 1e-15 or norms.min() >= 1 - 1e-12


def test_negative_counts_are_refused_without_showing_them():
    with pytest.raises(InvalidInputError) as caught:
        log1p_unit(np.array([[1, -7781]]))
    assert "7781" not in str(caught.value)
