"""Integer sums for secure noise are the exact sums of truncated contributions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from sordino.execute import LocalExecutor

SPACING = 2.0**-22
values = st.one_of(
    st.floats(-3, 3), st.sampled_from([0.0, 1.0, -1.0, SPACING, 3 * SPACING, -SPACING / 2, 1e-300])
)


def truncated(number: Fraction) -> int:
    """Return a rational number truncated towards zero."""
    return int(number) if number >= 0 else -int(-number)


def exact_sum(matrix, coefficients, scale, intercept):
    """Return the sum over records of each truncated contribution, in rational numbers.

    The product of a coefficient and an entry is rounded once to a double, which the safety margin of the
    clip covers; from there on nothing may be lost.
    """
    total = [0] * (matrix.shape[1] + bool(intercept))
    for row, c, s in zip(matrix, coefficients, scale):
        parts = [float(np.float64(c) * s / SPACING * x) for x in row]
        parts += [float(np.float64(c) * (intercept / SPACING))] if intercept else []
        for j, part in enumerate(parts):
            total[j] += truncated(Fraction(part))
    return total


@given(
    rows=st.lists(st.lists(values, min_size=3, max_size=3), min_size=1, max_size=6),
    coefficients=st.lists(values, min_size=6, max_size=6),
    intercept=st.sampled_from([0.0, 0.7]),
)
def test_integer_sums_are_sums_of_exactly_truncated_contributions(rows, coefficients, intercept):
    matrix, c = np.array(rows), np.array(coefficients)[: len(rows)]
    for given_matrix in (matrix, sparse.csr_matrix(matrix)):
        executor = LocalExecutor(given_matrix, np.zeros(len(rows)), 1.7, intercept)
        records = executor.records(None)
        out = records.weighted_integer_sum(c, SPACING)
        assert out.dtype == np.int64
        assert out.tolist() == exact_sum(matrix, c, records.scale, intercept)


def test_several_outputs_are_summed_one_by_one():
    rng = np.random.default_rng(1)
    matrix, c = rng.normal(size=(9, 4)), rng.normal(size=(9, 3))
    for given_matrix in (matrix, matrix.astype(np.float32), sparse.csr_matrix(matrix)):
        records = LocalExecutor(given_matrix, np.zeros(9), 1.7, 0.7).records(None)
        both = records.weighted_integer_sum(c, SPACING)
        assert both.shape == (3, 5)
        for j in range(3):
            np.testing.assert_array_equal(both[j], records.weighted_integer_sum(c[:, j], SPACING))


def test_truncation_never_lengthens_a_contribution():
    rng = np.random.default_rng(2)
    for x in rng.normal(size=(50, 4)):
        records = LocalExecutor(x[None], np.zeros(1), None).records(None)
        integers = records.weighted_integer_sum(np.array([1.0]), SPACING)
        assert sum(int(i) ** 2 for i in integers) * Fraction(SPACING) ** 2 <= sum(Fraction(v) ** 2 for v in x)


@pytest.mark.parametrize("rows", [np.array([2, 0]), np.array([], dtype=np.int64)])
def test_integer_sums_of_some_rows(rows):
    matrix = np.array([[1.0, 0.0], [5.0, 5.0], [0.25, -0.5]])
    for given_matrix in (matrix, sparse.csr_matrix(matrix)):
        records = LocalExecutor(given_matrix, np.zeros(3), None).records(rows)
        out = records.weighted_integer_sum(np.ones(rows.size), 0.125)
        assert out.tolist() == ([10, -4] if rows.size else [0, 0])
