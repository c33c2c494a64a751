"""Norms are never below the exact ones and hardly above; factors keep rows at or below their bound."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse

from sordino.errors import InvalidInputError
from sordino.kernel import clip
from sordino.kernel.arrays import public_norm

wide = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.builds(lambda d, e: d * 10.0**e, st.floats(-9, 9), st.integers(-320, 307)),
)
rows_of_3 = st.lists(wide, min_size=3, max_size=3)


def exact_square(row):
    return sum(Fraction(float(v)) ** 2 for v in row)


def is_above(norm, square, relative):
    """Tell whether a norm is at least the root of a square and at most a little, or two units, more.

    A norm that is no normal number is rounded once, and the next one is taken.
    """
    high = max(Fraction(float(norm)) * (1 - Fraction(relative)) - 2 * Fraction(5e-324), Fraction(0))
    return Fraction(float(norm)) ** 2 >= square and (high**2 <= square or norm <= 5e-323)


@given(rows_of_3)
@example([0.0, 1e-311, 1e-311])
def test_norms_of_rows_are_just_above_the_exact_ones(row):
    for matrix in (np.array([row]), sparse.csr_matrix(np.array([row]))):
        found = clip.row_norms(matrix)[0]
        if math.isfinite(found):
            assert is_above(found, exact_square(row), 1e-13)
        else:
            assert exact_square(row) > Fraction(1.79e308) ** 2


@given(rows_of_3, st.sampled_from([1e-150, 0.7, 1e150]))
def test_factors_keep_every_finite_row_at_its_bound(row, bound):
    factor = clip.measure_rows(np.array([row])).factors(bound)[0]
    square = Fraction(factor) ** 2 * exact_square(row)
    assert square <= Fraction(bound) ** 2
    if factor < 1.0 and factor > 1e-290:
        assert square >= Fraction(bound) ** 2 * Fraction(1 - 1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_long_rows_of_one_large_and_many_small_entries(dtype, kind):
    row = np.full((1, 20_001), 1e-9, dtype=dtype)
    row[0, 0] = 1.0
    square = 1 + 20_000 * Fraction(float(dtype(1e-9))) ** 2
    assert is_above(clip.row_norms(kind(row))[0], square, 3 * clip.slack(20_001))


def test_rows_that_are_not_finite_have_no_norm_and_a_factor_of_zero():
    rows = np.array([[math.nan, 1.0], [1.0, -math.inf], [0.0, 0.0], [3e200, 4e200]])
    for matrix in (rows, sparse.csr_matrix(rows), np.array(rows[:3], dtype=np.float32)):
        found = clip.measure_rows(matrix)
        assert np.isnan(found.norms[:2]).all()
        assert found.factors(1.0)[:3].tolist() == [0.0, 0.0, 1.0]
        assert np.isnan(clip.row_peaks(matrix)[:2]).all()
        assert found.norms[2] == 0.0
    assert clip.row_peaks(rows)[3] == 4e200


@given(rows_of_3, st.sampled_from([(1.0, 1.0, 1.0), (1e-3, 7.0, 1e5), (0.0, 1e-200, 1.0)]))
def test_weighted_norms_are_above_the_exact_ones_or_say_that_they_do_not_know(row, weights):
    for matrix in (np.array([row]), sparse.csr_matrix(np.array([row]))):
        found = clip.weighted_norms(matrix, np.array(weights))[0]
        square = sum((Fraction(float(v)) * Fraction(w)) ** 2 for v, w in zip(row, weights))
        assert math.isnan(found) or math.isinf(found) or is_above(found, square, 1e-13)


def test_weighted_norms_know_every_row_under_ordinary_weights():
    rows = np.array([[1e-170, 0.0, 0.0], [0.0, 5e-324, 0.0], [1e290, 1e-290, 1.0]])
    assert np.isfinite(clip.weighted_norms(rows, np.array([1e-18, 3.0, 1e18]))).all()


@given(rows_of_3, rows_of_3, st.booleans())
def test_centred_norms_are_above_the_exact_ones(row, shift, is_sparse):
    shift = np.clip(shift, -1e100, 1e100)
    matrix = np.array([row])
    factor, weights = clip.measure_rows(matrix).factors(2.0), np.array([3.0, 0.0, 1e-3])
    found = clip.centred_norms(sparse.csr_matrix(matrix) if is_sparse else matrix, factor, shift, weights)[0]
    terms = [(Fraction(factor[0]) * Fraction(float(v)) - Fraction(m)) * Fraction(w)
             for v, m, w in zip(row, shift, weights)]  # fmt: skip
    assert math.isnan(found) or Fraction(found) ** 2 >= sum(t * t for t in terms)


@given(rows_of_3, st.floats(2.0**-60, 2.0**60))
def test_norms_of_a_resized_map_are_above_the_exact_ones(row, factor):
    shift, weights, row = np.array([0.3, -0.1, 0.0]), np.array([0.7, 0.0, 1.3]), np.clip([row], -1e9, 1e9)
    before = clip.centred_norms(row, np.ones(1), shift, weights)
    found = clip.resize_norms(before, weights, weights * factor)
    apart = [(Fraction(x) - Fraction(s)) * Fraction(w) for x, s, w in zip(row[0], shift, weights * factor)]
    assert Fraction(found[0]) ** 2 >= sum(a**2 for a in apart)
    assert found[0] <= before[0] * factor * (1 + 1e-12)
    assert clip.resize_norms(before, weights, weights * [1.0, 1.0, 1.0 + 1e-9]) is None
    assert clip.resize_norms(before, weights, np.ones(3)) is None


@pytest.mark.parametrize("last", [0.3, 0.0, 1e-200, 1e300, np.inf, np.nan])
def test_a_sum_of_rows_is_that_of_rows_clipped_one_by_one(last):
    rows = np.vstack([np.random.default_rng(0).normal(size=(40, 3)), [last, 0.0, 0.0]])
    parts = np.linspace(0.1, 1.0, 41)
    factors = clip.factors_of(clip.row_norms(rows), 0.8)
    kept = np.where(factors[:, None] > 0.0, rows, 0.0) * factors[:, None]
    np.testing.assert_allclose(clip.sum_of_rows(rows, 0.8), kept.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(clip.sum_of_rows(rows, 0.8, parts), parts @ kept, rtol=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_centred_norms_are_tight_where_nothing_cancels(kind):
    rng = np.random.default_rng(0)
    rows, shift, weights = rng.normal(size=(50, 30)), rng.normal(size=30), rng.random(30)
    found = clip.centred_norms(kind(rows), np.ones(50), shift, weights)
    np.testing.assert_allclose(found, np.linalg.norm(weights * (rows - shift), axis=1), rtol=1e-11)


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_a_row_at_its_centre_is_as_long_as_the_rounding_of_its_terms(spread):
    row, one = np.array([[2.0, 3.0, 6.0]]), np.ones(1)  # the squared norms X and M are 49
    dense, csr = (
        clip.centred_norms(kind(row), one, row[0], np.ones(3), spread=spread)[0]
        for kind in (np.asarray, sparse.csr_matrix)
    )
    assert dense == pytest.approx(8 * 2.0**-53 * spread * 14)
    assert csr == pytest.approx(math.sqrt(6 * 7 * 2.0**-53 * spread * 98))
    tiny = clip.centred_norms(np.full((1, 4), 1e-200), one, np.zeros(4), np.ones(4))[0]
    assert tiny == pytest.approx(2.0**-499)


def test_weights_count_by_their_magnitude():
    rows = np.array([[3.0, 4.0], [0.0, 1.0]])
    np.testing.assert_allclose(clip.weighted_norms(rows, np.array([-1e300, 1e-3]))[0], 3e300)
    np.testing.assert_allclose(clip.weighted_norms(rows, np.array([-2.0, -2.0])), [10.0, 2.0])
    assert np.isnan(clip.weighted_norms(rows, np.array([math.inf, 1.0]))).all()


@given(st.lists(rows_of_3, min_size=1, max_size=4), st.sampled_from([0.7, 1e-30]), st.booleans())
def test_a_clipped_matrix_has_rows_within_the_bound_in_single_precision_too(rows, bound, single):
    with np.errstate(over="ignore", under="ignore"):
        matrix = np.array(rows).astype(np.float32 if single else np.float64)
    matrix = np.where(np.isfinite(matrix), matrix, 0)
    for given_matrix in (matrix, sparse.csr_matrix(matrix)):
        out = clip.clipped_matrix(given_matrix, bound)
        assert out.dtype == matrix.dtype
        out = out.toarray() if sparse.issparse(out) else out
        assert all(exact_square(row) <= Fraction(bound) ** 2 for row in out)


def test_parts_of_a_row_are_clipped_together_or_dropped():
    parts = [np.array([[3.0, 0.0], [0.1, 0.0]]), np.array([[0.0, 4.0], [0.0, 0.1]])]
    left, right = clip.clipped_blocks(parts, 2.5)
    np.testing.assert_allclose(left[0], [1.5, 0.0], rtol=1e-12)
    np.testing.assert_allclose(right[0], [0.0, 2.0], rtol=1e-12)
    np.testing.assert_array_equal(left[1], [0.1, 0.0])
    dropped = clip.clipped_blocks([sparse.csr_matrix(p) for p in parts], 2.5, drop=True)
    np.testing.assert_array_equal(dropped[0].toarray(), [[0.0, 0.0], [0.1, 0.0]])


def test_a_persons_sum_that_cancels_is_not_taken_for_smaller_than_it_is():
    block = np.array([[1.0, 0.0], [1e-17, 0.0], [-1.0, 0.0]])
    found = clip.person_norms([(slice(0, 3), block)], np.zeros(3, dtype=int), 1, np.abs(block[:, 0]))
    assert 1e-17 <= found[0] <= 1e-14


def test_a_vector_is_scaled_to_its_bound_and_a_broken_one_becomes_nothing():
    assert public_norm(clip.to_bound([[3e200, 4e200]], 0.7)) == pytest.approx(0.7)
    np.testing.assert_array_equal(clip.to_bound([0.1, math.nan], 0.7), [0.0, 0.0])
    np.testing.assert_array_equal(clip.to_bound([0.1, 0.2], 0.7), [0.1, 0.2])


@pytest.mark.parametrize("bound", [0.0, -1.0, 5e-324, 1e-200, 1e200, math.inf, math.nan])
def test_a_bound_out_of_range_is_refused_with_its_name(bound):
    with pytest.raises(InvalidInputError, match="Expected width"):
        clip.check_bound("width", bound, "Pass another.")


@pytest.mark.parametrize("square", [1, 2, 3, 4, 7, 10**6, 10**6 + 1])
def test_a_root_is_never_below_the_exact_one(square):
    root = clip.root_above(square)
    assert Fraction(root) ** 2 >= square
    assert root == pytest.approx(math.sqrt(square), rel=1e-15)


def test_a_clip_of_nothing_lets_nothing_through():
    np.testing.assert_array_equal(clip.clip_scalars(np.array([1.0, 0.0]), np.ones(2), 0.0), [0.0, 0.0])
    np.testing.assert_array_equal(clip.clip_scalars(np.ones((2, 2)), np.ones(2), 1e-200), np.zeros((2, 2)))


def test_the_norm_of_two_parts_is_above_the_exact_one_and_knows_nothing_of_other_records():
    public = np.random.default_rng(3)
    sizes = [np.ldexp(public.random(400), public.integers(-1074, 1024, 400)) for _ in range(2)]
    sizes[0][:4], sizes[1][:4] = [0.0, 0.0, np.inf, 3.0], [0.0, 5e-324, 1.0, 4.0]
    found = clip.joint_norms(sizes)
    for one, other, norm in zip(*sizes, found, strict=True):
        assert clip.joint_norms([np.array([one]), np.array([other])])[0] == norm
        if np.isfinite(norm):
            square = Fraction(one) ** 2 + Fraction(other) ** 2
            assert Fraction(norm) ** 2 >= square
            assert norm < 1e-300 or Fraction(norm) ** 2 <= square * (1 + Fraction(1, 2**46))
