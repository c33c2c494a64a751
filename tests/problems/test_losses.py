"""One loop over all losses: a new loss is a row in LOSSES and is tested here."""

import math

import numpy as np
import pytest
from scipy.special import expit, log_softmax
from sklearn.linear_model import HuberRegressor, PoissonRegressor
from sklearn.svm import LinearSVC
from tests.solvers.plain import made_problem, run

from sordino.execute import LocalExecutor
from sordino.problems.glm import GlmGradient
from sordino.problems.losses import LOSSES, Huber
from sordino.solvers.ight import Ight

SCALAR = [name for name in LOSSES if name != "multinomial"]
every_loss = pytest.mark.parametrize("name", LOSSES)


def drawn(name, count=400, spread=3.0, seed=0):
    """Return margins and targets of the kind that the loss wants."""
    rng = np.random.default_rng(seed)
    if name == "multinomial":
        return rng.normal(0, spread, (count, 4)), rng.integers(0, 4, count).astype(float)
    margins = rng.normal(0, spread, count)
    if name in ("logistic", "squared-hinge"):
        return margins, rng.choice([-1.0, 1.0], count)
    return margins, rng.poisson(2.0, count).astype(float) if name == "poisson" else rng.normal(size=count)


@every_loss
def test_the_residual_is_the_derivative_of_the_value(name):
    loss, (margins, y) = LOSSES[name], drawn(name)
    residual, h = loss.residual(margins, y), 1e-6
    for k in range(1 if margins.ndim == 1 else margins.shape[1]):
        shift = h if margins.ndim == 1 else h * np.eye(margins.shape[1])[k]
        slope = (loss.value(margins + shift, y) - loss.value(margins - shift, y)) / (2 * h)
        ours = residual if margins.ndim == 1 else residual[:, k]
        np.testing.assert_allclose(ours, slope, rtol=1e-5, atol=1e-6)


@every_loss
def test_residuals_stay_below_the_declared_bound_and_come_close(name):
    loss, (margins, y) = LOSSES[name], drawn(name, spread=30.0)
    sizes = np.linalg.norm(loss.residual(margins, y).reshape(len(y), -1), axis=1)
    if math.isinf(loss.lipschitz):
        assert sizes.max() > 20
    else:
        assert 0.99 * loss.lipschitz < sizes.max() <= loss.lipschitz * (1 + 1e-12)


@every_loss
def test_residuals_change_no_faster_than_the_declared_curvature(name):
    loss, (margins, y) = LOSSES[name], drawn(name, 3000, spread=0.7)
    other = margins + 1e-3 * drawn(name, 3000, seed=1)[0]
    change = np.linalg.norm((loss.residual(other, y) - loss.residual(margins, y)).reshape(len(y), -1), axis=1)
    ratio = (change / np.linalg.norm((other - margins).reshape(len(y), -1), axis=1)).max()
    if math.isinf(loss.curvature):
        assert ratio > 2
    else:
        assert 0.8 * loss.curvature < ratio <= loss.curvature * (1 + 1e-6)


@every_loss
def test_a_loss_is_convex_and_its_residual_monotone(name):
    loss, (margins, y) = LOSSES[name], drawn(name)
    other, _ = drawn(name, seed=2)
    middle = loss.value((margins + other) / 2, y)
    assert (middle <= (loss.value(margins, y) + loss.value(other, y)) / 2 + 1e-12).all()
    inner = (loss.residual(margins, y) - loss.residual(other, y)) * (margins - other)
    assert (inner.reshape(len(y), -1).sum(axis=1) >= -1e-12).all()


@every_loss
def test_huge_margins_warn_nobody_and_contribute_no_more_than_the_clip(name):
    problem = made_problem(name, n=4, d=2, outputs=4 if name == "multinomial" else 1)
    x = np.array([[1e8, 0.0], [-1e8, 1.0], [0.0, 1e300], [1e-300, 0.0]])
    w = np.full(problem.shape, 1e6)
    y = np.array([1.0, 1.0, 1.0, 1.0])
    for i in range(4):
        records = LocalExecutor(x[i : i + 1], y[:1], 1.5).records(None)
        answer = GlmGradient(problem.loss, 0.7).evaluate(records, w)
        assert np.linalg.norm(answer) <= 0.7


def test_values_are_the_textbook_ones():
    m, y = drawn("logistic")
    np.testing.assert_allclose(LOSSES["logistic"].value(m, y), -np.log(expit(y * m)), rtol=1e-9)
    m, y = drawn("multinomial")
    expected = -log_softmax(m, axis=1)[np.arange(len(y)), y.astype(int)]
    np.testing.assert_allclose(LOSSES["multinomial"].value(m, y), expected)
    assert Huber(2.0).value(np.array([5.0, 1.0]), np.zeros(2)).tolist() == [2.0 * (5 - 1), 0.5]
    assert Huber(2.0).lipschitz == 2.0
    assert LOSSES["squared-hinge"].value(np.array([3.0, -1.0]), np.ones(2)).tolist() == [0.0, 2.0]


@pytest.mark.parametrize("name", SCALAR)
def test_order_and_duplicates_do_not_matter(name):
    problem = made_problem(name, n=60, d=5, intercept=0.6, ridge=0.1)
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(60, 5)) / 3, drawn(name, 60)[1]
    solver, order = Ight(3, 6, 0.2, 0.7), rng.permutation(60)
    one = run(solver, problem, x, y)[-1]
    np.testing.assert_allclose(run(solver, problem, x[order], y[order])[-1], one, atol=1e-12)
    twice = made_problem(name, n=120, d=5, intercept=0.6, ridge=0.1)
    np.testing.assert_allclose(run(solver, twice, np.vstack([x, x]), np.tile(y, 2))[-1], one, atol=1e-12)


def fitted_by_descent(name, problem, x, y):
    return run(Ight(None, 3000, 0.25, 1e6), problem, x, y)[-1]


def test_poisson_and_squared_hinge_agree_with_scikit_learn():
    rng = np.random.default_rng(5)
    x = rng.uniform(-0.6, 0.6, (300, 3))
    margins = x @ np.array([1.0, -1.0, 0.5])
    problem = made_problem("poisson", n=300, d=3, ridge=0.05)
    y = rng.poisson(np.exp(margins)).astype(float)
    theirs = PoissonRegressor(alpha=0.05, fit_intercept=False, tol=1e-10).fit(x, y).coef_
    np.testing.assert_allclose(fitted_by_descent("poisson", problem, x, y), theirs, atol=1e-5)
    problem = made_problem("squared-hinge", n=300, d=3, ridge=0.05)
    y = np.sign(margins + 0.3 * rng.normal(size=300))
    # LinearSVC minimises ||w||^2 / 2 + C sum max(0, 1 - y m)^2, so C = 1 / (2 ridge n)
    svc = LinearSVC(C=1 / (2 * 0.05 * 300), fit_intercept=False, tol=1e-10, max_iter=10**5).fit(x, y)
    np.testing.assert_allclose(fitted_by_descent("squared-hinge", problem, x, y), svc.coef_[0], atol=1e-5)


def test_huber_agrees_with_scikit_learn_at_its_own_scale():
    rng = np.random.default_rng(6)
    x = rng.uniform(-0.6, 0.6, (400, 3))
    y = x @ np.array([2.0, -1.0, 0.5]) + 0.3 * rng.standard_t(2, 400)
    theirs = HuberRegressor(epsilon=1.35, alpha=0.0, fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, y)
    loss = Huber(1.35 * theirs.scale_)
    w = np.zeros(3)
    for _ in range(4000):  # the same optimality condition at the scale it found
        w -= 0.5 * x.T @ loss.residual(x @ w, y) / 400
    np.testing.assert_allclose(w, theirs.coef_, atol=1e-4)
