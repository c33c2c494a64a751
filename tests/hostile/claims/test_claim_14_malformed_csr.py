"""Claim 14: a CSR matrix that lies about itself escaped the clip, and so did a subnormal data_norm."""

import numpy as np
import pytest
from scipy import sparse

from sordino import LogisticRegression
from sordino.errors import InvalidInputError
from sordino.execute import LocalExecutor


def csr(data, indices, indptr, width=3):
    """Return a CSR matrix whose parts were put in place behind its back, and that claims to be canonical."""
    out = sparse.csr_matrix((len(indptr) - 1, width))
    out.data, out.indices, out.indptr = (np.array(p, dtype=t) for p, t in zip((data, indices, indptr), "dii"))
    out.has_canonical_format = out.has_sorted_indices = True
    return out


def test_a_column_stored_many_times_is_one_entry_whatever_the_flag_says():
    matrix = csr([1.0] * 9, [1] * 9, [0, 9])
    assert matrix.has_canonical_format
    answer = LocalExecutor(matrix, None, 1.3).records(None).weighted_sum(np.ones(1))
    np.testing.assert_allclose(answer, [0.0, 1.3, 0.0])
    assert np.linalg.norm(answer) <= 1.3


MALFORMED = {
    "an index equal to d": csr([1.0], [3], [0, 1]),
    "a negative index": csr([1.0], [-1], [0, 1]),
    "pointers that fall": csr([1.0, 1.0], [0, 1], [0, 2, 1]),
    "pointers beyond the data": csr([1.0], [0], [0, 5]),
    "pointers that start late": csr([1.0], [0], [1, 1]),
    "fewer indices than data": csr([1.0, 2.0], [0], [0, 1]),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_matrix_that_points_outside_itself_is_refused(what):
    with pytest.raises(InvalidInputError, match="malformed"):
        LocalExecutor(MALFORMED[what], None, 1.3, 1.0)
    with pytest.raises(InvalidInputError, match="malformed"):
        LogisticRegression().fit(MALFORMED[what], np.arange(MALFORMED[what].shape[0]))


@pytest.mark.parametrize("bound", [5e-324, 1e-200, 1e200])
def test_a_bound_whose_square_leaves_the_range_is_refused(bound):
    with pytest.raises(InvalidInputError, match="data_norm"):
        LocalExecutor(np.ones((2, 2)), None, bound)
