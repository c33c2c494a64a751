"""The questions of private PCA: their bounds hold, are reached, and shrink where they should."""

import math

import numpy as np
import pytest
from scipy import sparse

from sordino.errors import InvalidInputError
from sordino.execute import LocalExecutor
from sordino.kernel import Full, Gaussian, Poisson, Relation, Release
from sordino.problems.covariance import Ball, GramMatrix, GramProduct, GramTriangle, RowMoments, operator_norm
from sordino.solvers.pca.spectrum import polar

R = 1.7
ONE, OTHER = Relation.ADD_REMOVE, Relation.REPLACE_ONE


def records(rows, norm=R):
    return LocalExecutor(rows, None, norm).records(None)


def clip(rows, bound):
    norms = np.maximum(np.linalg.norm(rows, axis=1), 1e-30)
    return rows * np.minimum(1, bound / norms)[:, None]


def basis(d, k, seed=0):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, k)))[0]


def test_orthogonal_records_attain_the_replace_one_bound_of_the_gram_matrix():
    one, two = records(3 * R * np.eye(5)[:1]), records(3 * R * np.eye(5)[1:2])
    query = GramMatrix(R)
    moved = np.linalg.norm(query.evaluate(one, None) - query.evaluate(two, None))
    assert query.sensitivity(ONE, None) == pytest.approx(R**2)
    assert moved == pytest.approx(math.sqrt(2) * R**2, rel=1e-6)
    assert moved <= query.sensitivity(OTHER, None)


def test_a_poisson_batch_of_squares_counts_a_replaced_record_twice():
    query = GramMatrix(R)
    full, batch = (Release(query, Gaussian(), s) for s in (Full(), Poisson(0.5)))
    assert full.sensitivity(OTHER) == pytest.approx(math.sqrt(2) * R**2)
    assert batch.sensitivity(OTHER) == pytest.approx(2 * R**2)


@pytest.mark.parametrize("columns", [1, 3, 8])
def test_the_bound_of_a_product_does_not_grow_with_its_columns(columns):
    block = basis(8, columns)
    query = GramProduct(R)
    row = records(5 * R * block[:, :1].T)
    assert query.contribution((block, None)) == pytest.approx(R**2)
    assert np.linalg.norm(query.evaluate(row, (block, None))) == pytest.approx(R**2, rel=1e-6)


def test_a_correction_moves_at_most_the_distance_of_its_two_bases():
    start = basis(8, 3)
    bounds = []
    for angle in (1.0, 0.1, 1e-3):
        gap = start - polar(start + angle * basis(8, 3, seed=1))
        query, params = GramProduct(R), (gap, Ball(R))
        worst = np.linalg.svd(gap)[0][:, :1].T
        moved = np.linalg.norm(query.evaluate(records(9 * worst), params))
        bounds.append(query.contribution(params))
        assert bounds[-1] == pytest.approx(R**2 * np.linalg.norm(gap, 2), rel=1e-6)
        assert 0.99 * bounds[-1] <= moved <= bounds[-1]
    assert bounds[2] < 0.01 * bounds[0]
    assert GramProduct(R).contribution((start - start, None)) == 0.0


def test_a_record_that_is_not_a_number_contributes_nothing_even_about_a_centre():
    rows = np.array([[0.5, 0.2, 0.1], [np.nan, 1.0, 0.0]])
    ball = Ball(0.7, np.array([0.1, 0.2, 0.3]))
    for matrix in (rows, sparse.csr_matrix(rows)):
        alone = GramMatrix(R).evaluate(records(rows[:1]), ball)
        np.testing.assert_allclose(GramMatrix(R).evaluate(records(matrix), ball), alone, atol=1e-12)
        product = GramProduct(R).evaluate(records(matrix), (np.eye(3), ball))
        np.testing.assert_allclose(product, alone, atol=1e-12)


@pytest.mark.parametrize("center", [None, np.full(6, 0.2)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dense_and_sparse_rows_give_the_plain_formula(center, dtype):
    public = np.random.default_rng(2)
    rows = (public.normal(size=(50, 6)) * (public.random((50, 6)) < 0.5)).astype(dtype)
    ball, block = Ball(0.8, center), basis(6, 2)
    y = clip(clip(rows.astype(float), R) - (0 if center is None else center), ball.radius)
    for matrix in (rows, sparse.csr_matrix(rows)):
        seen = records(matrix)
        np.testing.assert_allclose(GramMatrix(R).evaluate(seen, ball), y.T @ y, atol=1e-5)
        np.testing.assert_allclose(GramProduct(R).evaluate(seen, (block, ball)), y.T @ (y @ block), atol=1e-5)


def test_a_row_is_clipped_about_the_centre_not_only_about_zero():
    centre = np.array([-R, 0.0])
    query, ball = GramMatrix(R), Ball(0.4, centre)
    far = records(np.array([[R, 0.0]]))
    assert np.linalg.norm(query.evaluate(far, ball)) <= query.contribution(ball) == 0.4**2


def test_moments_hold_the_mean_and_the_mean_squared_norm():
    rows = np.array([[1.0, 0.0], [0.0, 1.5], [9.0, 0.0]])
    query = RowMoments(R)
    mean, square = query.read(query.evaluate(records(rows), None) / 3)
    np.testing.assert_allclose(mean, [(1 + R) / 3, 0.5], rtol=1e-6)
    assert square == pytest.approx((1 + 1.5**2 + R**2) / 3, rel=1e-6)


def test_opposite_rows_are_the_worst_pair_of_the_moments():
    query = RowMoments(R, weight=1.0)
    axis = np.array([1.0, 0.0])
    sizes = np.linspace(0, 1, 21)
    answers = {t: query.evaluate(records(t * R * axis[None]), None) for t in sizes}
    mirror = {t: query.evaluate(records(-t * R * axis[None]), None) for t in sizes}
    worst = max(np.linalg.norm(answers[a] - mirror[b]) for a in sizes for b in sizes)
    assert worst == pytest.approx(2 * R, rel=1e-6)
    assert worst <= query.sensitivity(OTHER, None)


def test_the_upper_triangle_is_as_long_as_the_matrix_along_an_axis_only():
    query = GramTriangle(R)
    axis, even = np.eye(4)[:1] * R, np.full((1, 4), R / 2)
    assert np.linalg.norm(query.evaluate(records(axis), None)) == pytest.approx(R**2, rel=1e-6)
    assert np.linalg.norm(query.evaluate(records(even), None)) < 0.85 * R**2


def test_the_operator_norm_is_an_upper_bound():
    for seed in range(20):
        block = np.random.default_rng(seed).normal(size=(7, 3)) * 10.0 ** (seed - 10)
        assert np.linalg.norm(block, 2) <= operator_norm(block) <= np.linalg.norm(block, 2) * (1 + 1e-9)
    assert operator_norm(np.full((2, 2), np.nan)) == math.inf
    assert operator_norm(np.zeros((3, 2))) == 0.0


@pytest.mark.parametrize("radius", [0.0, -1.0, math.inf, math.nan])
def test_a_ball_without_a_radius_is_refused(radius):
    with pytest.raises(InvalidInputError, match="radius"):
        Ball(radius)


@pytest.mark.parametrize("weight", [0.0, 1.5])
def test_a_weight_without_a_proof_is_refused(weight):
    with pytest.raises(InvalidInputError, match="weight"):
        RowMoments(R, weight)
