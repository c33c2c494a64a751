"""Clipped gradients and differences: the clip is exact, the bound follows the points."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sordino.errors import InvalidInputError
from sordino.execute import LocalExecutor
from sordino.kernel import Norm, Query, Relation, SparseVector
from sordino.kernel.clip import clip_scalars
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmDifference, GlmGradient, distance

AR, RO = Relation.ADD_REMOVE, Relation.REPLACE_ONE
hostile = st.one_of(
    st.floats(-5, 5), st.floats(), st.sampled_from([0.0, 1e-300, 5e-324, 1e155, -1e300, math.nan, math.inf])
)


@given(st.lists(st.tuples(hostile, hostile), min_size=1, max_size=8), st.sampled_from([0.3, 2.7, 1e-9, 1e6]))
@example([(3e307, 1.0)], 1e-16)  # the quotient is subnormal: rounded, it was half as large again
def test_clipped_residuals_times_their_norms_are_at_most_the_clip(pairs, clip):
    residual, norms = np.array(pairs).T
    norms = np.where(np.abs(norms) < 1e154, np.abs(norms), np.inf)  # beyond, squares overflow
    clipped = clip_scalars(residual, norms, clip)
    assert np.isfinite(clipped).all()
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(residual * norms)
        sizes, before = np.abs(clipped) * norms, np.abs(residual) * norms
    assert (sizes[finite] <= clip).all()
    assert (clipped[~finite] == 0).all()
    small = finite & (before < 0.999 * clip)
    assert (clipped[small] == residual[small]).all()


@given(
    st.lists(st.lists(hostile, min_size=3, max_size=3), min_size=1, max_size=6),
    st.sampled_from([1e-5, 2.0, 1e150]),
)
def test_several_residuals_of_a_record_are_clipped_together(rows, norm):
    residual, clip = np.array(rows), 2.7
    clipped = clip_scalars(residual, np.full(len(rows), norm), clip)
    assert np.isfinite(clipped).all()
    largest = np.abs(clipped).max(axis=1)
    unit = np.where(largest > 0, largest, 1.0)
    joint = largest * np.linalg.norm(clipped / unit[:, None], axis=1)
    assert (joint * norm <= clip * (1 + 1e-12)).all()
    bad = ~np.isfinite(residual).all(axis=1)
    assert (clipped[bad] == 0).all()


def test_a_clipped_residual_keeps_its_direction_and_reaches_the_clip():
    clipped = clip_scalars(np.array([[3.0, 4.0], [-0.3, 0.4]]), np.array([2.0, 2.0]), 2.7)
    assert np.linalg.norm(clipped[0]) * 2.0 == pytest.approx(2.7, rel=1e-11)
    assert clipped[0, 1] / clipped[0, 0] == pytest.approx(4 / 3)
    np.testing.assert_array_equal(clipped[1], [-0.3, 0.4])
    assert clip_scalars(np.array([-8.0]), np.array([2.0]), 2.7)[0] == pytest.approx(-1.35, rel=1e-11)


def test_a_record_without_a_norm_contributes_zero_and_a_zero_row_keeps_its_residual():
    out = clip_scalars(np.array([5.0, 5.0]), np.array([math.nan, 0.0]), 2.7)
    np.testing.assert_array_equal(out, [0.0, 5.0])


def records(matrix, targets, **facts):
    return LocalExecutor(np.array(matrix), np.array(targets), **facts).records(None)


def test_a_gradient_is_the_sum_of_clipped_gradients():
    data = records([[1.0, 2.0], [3.0, 0.0]], [9.0, 1.0], data_norm=None)
    query, w = GlmGradient(LOSSES["squared"], 2.7), np.array([0.5, 0.25])
    first = (0.5 + 0.5 - 9.0) * np.array([1.0, 2.0])
    second = (1.5 - 1.0) * np.array([3.0, 0.0])
    wanted = first * 2.7 / np.linalg.norm(first) + second
    np.testing.assert_allclose(query.evaluate(data, w), wanted)
    assert query.contribution(w) == 2.7
    assert (query.sensitivity(AR, w), query.sensitivity(RO, w)) == (2.7, 5.4)
    assert query.norm is Norm.L2
    assert isinstance(query, Query)


def test_a_difference_is_clipped_as_one_contribution():
    data = records([[1.0, 2.0]], [0.3], data_norm=None)
    query = GlmDifference(LOSSES["squared"], 0.4, 3.0)
    w, anchor = np.array([2.0, 0.0]), np.array([0.0, 1.0])
    gradients = [(x @ np.array([1.0, 2.0]) - 0.3) * np.array([1.0, 2.0]) for x in (w, anchor)]
    np.testing.assert_allclose(query.evaluate(data, (w, anchor)), gradients[0] - gradients[1], atol=1e-12)
    anchor = np.array([0.0, 9.0])
    moved = query.evaluate(data, (w, anchor))
    assert np.linalg.norm(moved) == pytest.approx(0.8, rel=1e-10)
    np.testing.assert_allclose(moved / np.linalg.norm(moved), -np.array([1, 2]) / 5**0.5)


@pytest.mark.parametrize(
    ("name", "apart", "wanted"),
    [
        ("logistic", 0.1, 0.25 * 9.0 * 0.1),
        ("logistic", 50.0, 0.8),
        ("squared", 0.01, 0.09),
        ("poisson", 0.01, 0.8),
        ("poisson", 0.0, 0.8),
        ("squared", 0.0, 0.0),
    ],
)
def test_the_bound_of_a_difference_shrinks_with_the_distance(name, apart, wanted):
    query = GlmDifference(LOSSES[name], 0.4, 3.0)
    points = (np.array([apart, 0.0]), np.zeros(2))
    assert query.contribution(points) == pytest.approx(wanted)
    assert query.sensitivity(RO, points) == pytest.approx(2 * wanted)
    sparse_points = (SparseVector(np.array([0]), np.array([apart]), 2), np.zeros(2))
    assert query.contribution(sparse_points) == pytest.approx(wanted)


@given(
    st.lists(st.tuples(hostile, hostile, hostile), min_size=1, max_size=4),
    st.sampled_from(["logistic", "squared", "huber", "squared-hinge", "poisson"]),
    st.floats(0, 3),
    st.sampled_from([0.0, 0.7]),
)
def test_no_record_adds_more_than_the_bound_of_a_difference(rows, name, apart, intercept):
    data = np.array(rows)
    query = GlmDifference(LOSSES[name], 0.4, math.hypot(1.7, intercept))
    points = np.full(2 + bool(intercept), apart), np.zeros(2 + bool(intercept))
    bound = query.contribution(points)
    for i in range(len(data)):
        one = LocalExecutor(data[i : i + 1, :2], data[i : i + 1, 2], 1.7, intercept).records(None)
        answer = query.evaluate(one, points)
        assert np.linalg.norm(answer) <= bound * (1 + 1e-9)


def test_the_bound_of_a_difference_is_attained():
    query, points = GlmDifference(LOSSES["logistic"], 0.4, 1.7), (np.array([0.02, 0.0]), np.zeros(2))
    answer = query.evaluate(records([[9.0, 0.0]], [1.0], data_norm=1.7), points)
    assert 0.99 * query.contribution(points) < np.linalg.norm(answer) <= query.contribution(points)


def test_equal_points_have_no_difference():
    query = GlmDifference(LOSSES["logistic"], 0.4, 1.7)
    w = np.array([0.3, -2.0])
    answer = query.evaluate(records([[9.0, 0.1], [1.0, 2.0]], [1.0, -1.0]), (w, w.copy()))
    np.testing.assert_array_equal(answer, [0.0, 0.0])


def test_distances_of_any_kinds_of_points():
    sparse_point = SparseVector(np.array([1]), np.array([3.0]), 3)
    assert distance(np.array([0.0, 3.0, 4.0]), sparse_point) == 4.0
    assert distance(np.ones((2, 2)), np.zeros((2, 2))) == 2.0


@pytest.mark.parametrize("clip", [0.0, -1.0, math.inf, math.nan])
def test_a_clip_that_bounds_nothing_is_refused(clip):
    for make in (
        lambda: GlmGradient(LOSSES["squared"], clip),
        lambda: GlmDifference(LOSSES["squared"], clip, 1.0),
    ):
        with pytest.raises(InvalidInputError, match="clip_norm"):
            make()
