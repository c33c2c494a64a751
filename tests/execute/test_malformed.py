"""A CSR matrix that lies about itself is mended or refused, and so is a bound that bounds nothing."""

import numpy as np
import pytest
from tests.hostile.claims import csr

from sordino import LogisticRegression
from sordino.errors import InvalidInputError
from sordino.execute import LocalExecutor


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
