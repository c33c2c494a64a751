"""Laplacian smoothing is the inverse of its circulant matrix, keeps sums and never lengthens a vector."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.solvers.test_erm import circulant

from sordino.problems.losses import Nonconvex, Ridge
from sordino.solvers.updates import smooth_vector

vectors = arrays(float, st.integers(1, 40), elements=st.floats(-1e3, 1e3))
strengths = st.floats(0, 50)


@given(vectors)
def test_no_strength_is_the_identity(v):
    np.testing.assert_array_equal(smooth_vector(v, 0.0), v)


@given(vectors, strengths)
def test_sums_are_kept(v, strength):
    assert smooth_vector(v, strength).sum() == pytest.approx(v.sum(), abs=1e-8 * (1 + np.abs(v).sum()))


@given(vectors, strengths)
def test_norms_never_grow(v, strength):
    assert np.linalg.norm(smooth_vector(v, strength)) <= np.linalg.norm(v) * (1 + 1e-12) + 1e-12


@given(vectors, strengths)
def test_smoothing_solves_the_circulant_system(v, strength):
    np.testing.assert_allclose(circulant(v.size, strength) @ smooth_vector(v, strength), v, atol=1e-7)


def test_each_output_is_smoothed_alone_and_the_intercept_not_at_all():
    v = np.random.default_rng(0).normal(size=(3, 8))
    out = smooth_vector(v, 2.0, kept=1)
    np.testing.assert_array_equal(out[:, -1], v[:, -1])
    for row, made in zip(v, out, strict=True):
        np.testing.assert_allclose(made[:-1], smooth_vector(row[:-1], 2.0), rtol=1e-12)


@pytest.mark.parametrize("penalty", [Ridge(0.7), Nonconvex(0.7)])
def test_the_gradient_of_a_penalty_is_its_derivative(penalty):
    w, h = np.array([-2.0, -0.3, 0.0, 0.4, 3.0]), 1e-6
    numeric = [(penalty.value(w + h * e) - penalty.value(w - h * e)) / (2 * h) for e in np.eye(5)]
    np.testing.assert_allclose(penalty.gradient(w), numeric, atol=1e-8)
    slopes = (penalty.gradient(w + h) - penalty.gradient(w)) / h
    assert np.abs(slopes).max() <= penalty.curvature * (1 + 1e-4)


def test_a_nonconvex_penalty_levels_off_and_does_not_overflow():
    penalty = Nonconvex(0.7)
    assert penalty.value(np.array([1e200, -1e300])) == pytest.approx(1.4)
    np.testing.assert_allclose(penalty.gradient(np.array([1e200, -1e300])), 0.0, atol=1e-100)
