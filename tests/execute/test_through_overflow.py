"""Rows of any size through an affine map."""

import numpy as np
import pytest
from scipy import sparse

from sordino.execute import LocalExecutor
from sordino.problems.affine import Affine


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.array, sparse.csr_matrix])
def test_huge_rows_are_measured_after_their_clip(kind, dtype):
    huge = 1e30 if dtype is np.float32 else 1e150
    X = kind(np.array([[huge, 0.0], [0.3, 0.4]], dtype=dtype))
    view = (
        LocalExecutor(X, np.zeros(2), 2.0)
        .records(None)
        .through(Affine(np.array([0.5, 0.0]), np.array([3.0, 1.0]), 0.25))
    )
    np.testing.assert_allclose(view.sizes, [4.5, np.hypot(0.6, 0.4)], rtol=1e-6)


def test_single_precision_rows_are_squared_in_double_precision():
    row = np.full((1, 3), 0.1, dtype=np.float32)
    view = (
        LocalExecutor(sparse.csr_matrix(row), np.zeros(1), 2.0)
        .records(None)
        .through(Affine(np.zeros(3), np.ones(3), 0.0))
    )
    exact = np.sqrt(3) * float(np.float32(0.1))
    assert exact <= view.sizes[0] <= exact * (1 + 1.01e-7)
