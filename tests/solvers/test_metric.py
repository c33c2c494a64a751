"""A metric makes directions alike, adds no noise to margins, and leaves minima where they are."""

import math

import numpy as np
import pytest

from sordino.kernel import Relation
from sordino.problems.affine import Affine
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.solvers import Options, make_solver
from sordino.solvers.descent import STEADY, Moments, Noise, NoisyDescent, has_metric, penalty_bend


def moments(seed=0, rows=500, d=4, constant=0.25, noise=0.0):
    public = np.random.default_rng(seed)
    Z = public.normal(size=(rows, d)) * np.array([1.0, 0.3, 0.1, 0.03])[:d]
    return Z, Moments.of(with_constant(Z, constant), noise, 1.0, rows, constant)


def with_constant(Z, constant=0.25):
    rows = np.column_stack([Z, np.full(len(Z), constant)]) if constant else Z
    return rows.T @ rows


def test_a_metric_adds_as_much_noise_to_a_margin_as_none():
    Z, second = moments()
    metric = second.metric(None, 1.0)
    public = np.random.default_rng(1)
    noise = public.normal(size=(20_000, 5))
    rows = np.column_stack([Z, np.full(len(Z), 0.25)])
    with_metric, without = metric(noise) @ rows.T, noise @ rows.T
    assert np.var(with_metric) == pytest.approx(np.var(without), rel=0.05)


def test_in_a_metric_all_sure_directions_are_bent_alike():
    _, second = moments(rows=50_000)
    metric = second.metric(None, 1.0)
    bent = metric(metric(second.matrix).T)  # P H P
    np.testing.assert_allclose(bent, metric(np.eye(5)) / metric.longest, rtol=0.1, atol=0.02)


def test_directions_that_noise_hides_are_not_hurried():
    _, sure = moments()
    _, hidden = moments(noise=1e9)
    assert np.ptp(np.log(sure.metric(None, 1.0).pace)) > 4
    np.testing.assert_allclose(hidden.metric(None, 1.0).pace, 1.0, rtol=1e-3)


def test_a_metric_on_a_mask_moves_nothing_else():
    _, second = moments()
    metric = second.metric(np.array([True, False, True, False, True]), 1.0)
    moved = metric(np.arange(1.0, 6.0))
    assert (moved[[1, 3]] == 0).all()
    assert (moved[[0, 2, 4]] != 0).all()


def test_resized_rows_have_the_moments_of_the_resized_rows():
    Z, second = moments()
    again = Moments.of(with_constant(3.0 * Z), 0.0, 9.0, len(Z), 0.25)
    resized = second.resize(3.0, 4)
    np.testing.assert_allclose(resized.matrix, again.matrix)
    assert resized.unsure == pytest.approx(again.unsure)


def test_a_penalty_bends_as_much_as_it_says():
    problem = Problem(LOSSES["squared"], 100, 2, Relation.ADD_REMOVE, 1.0, 1e-5, intercept=0.5, ridge=0.3)
    affine = Affine(np.array([0.2, -1.0]), np.array([2.0, 0.5]), 0.25)
    w = np.array([0.3, -0.7, 0.4])
    gradient = affine.pull_back(problem.penalty_gradient(affine.coefficients(w, 0.5)), 0.5)
    np.testing.assert_allclose(penalty_bend(problem, affine) @ w, gradient)


@pytest.mark.parametrize("in_metric", [False, True])
def test_the_noise_of_the_last_point_is_what_is_said(in_metric):
    _, second = moments(d=3)
    metric = second.metric(None, 1.0) if in_metric else None
    public, found = np.random.default_rng(3), []
    hessian = 0.6 * second.matrix
    for _ in range(3000):
        descent = NoisyDescent(
            lambda w: hessian @ w + 0.1 * public.normal(size=4), 0.3, Noise(0.1, 4), metric=metric
        )
        found.append(list(descent.path(np.zeros(4), 12))[-1])
    true = np.std(found, axis=0)
    if metric is None:
        said = descent.spread(np.diag(hessian), np.zeros(4))
    else:
        said = metric.columns(descent.spread(0.6 * metric.expected, np.zeros(4)))
    np.testing.assert_allclose(said, true, rtol=0.08)


def test_steps_in_a_metric_find_the_minimum_of_a_bent_valley():
    _, second = moments(rows=5000)
    minimum = np.array([1.0, -2.0, 3.0, -4.0, 0.5])
    descent = NoisyDescent(
        lambda w: second.matrix @ (w - minimum), math.inf, Noise(0.0, 5), metric=second.metric(None, 1.0)
    )
    np.testing.assert_allclose(list(descent.path(np.zeros(5), 60))[-1], minimum, rtol=1e-6)
    assert descent.momentum == STEADY


def test_second_moments_are_asked_of_few_columns_and_many_records_only():
    few = Problem(LOSSES["logistic"], 4000, 20, Relation.ADD_REMOVE, 1.0, 1e-5)
    wide = Problem(LOSSES["logistic"], 10**6, 300, Relation.ADD_REMOVE, 1.0, 1e-5)
    hinge = Problem(LOSSES["squared-hinge"], 4000, 20, Relation.ADD_REMOVE, 1.0, 1e-5)
    counts = Problem(LOSSES["poisson"], 4000, 20, Relation.ADD_REMOVE, 1.0, 1e-5)
    short = Problem(LOSSES["logistic"], 300, 20, Relation.ADD_REMOVE, math.inf, 1e-5)
    assert [has_metric(p) for p in (few, hinge, wide, counts, short)] == [True, True, False, False, False]


def test_columns_are_told_apart_by_their_moments_as_far_as_noise_allows():
    public = np.random.default_rng(6)
    alike = np.diag(0.05 + 0.05 * public.normal(size=40))
    assert np.ptp(Moments(alike, unsure=1.0, noise=0.05).deviations) < 0.15  # up to .4 by noise alone
    apart = np.diag(np.repeat([0.0, 0.25], 20))
    found = Moments(apart, unsure=0.01, noise=0.003).deviations
    np.testing.assert_allclose(found, np.repeat([0.0, 0.5], 20), atol=0.02)


@pytest.mark.parametrize(
    ("loss", "rows", "steps"), [("squared", 45_900, 24), ("squared", 46_000, 16), ("logistic", 46_000, 24)]
)
def test_numbers_take_fewer_steps_where_moments_tell_all_typical_directions(loss, rows, steps):
    problem = Problem(LOSSES[loss], rows, 50, Relation.ADD_REMOVE, 1.0, 1e-5, intercept=1.0)
    assert make_solver("auto", problem, Options()).steps == steps
    assert make_solver("auto", problem, Options(n_nonzero_coefs=10)).steps == 24
