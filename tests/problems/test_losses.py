"""One loop over all losses: the residual is the derivative, and the declared bounds hold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.kernel.query import _exponentials
from sordino.problems.losses import LOSSES, Huber

every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
CLASSES = 4


def margins_and_targets(loss, count=200, spread=3.0, seed=1):
    rng = np.random.default_rng(seed)
    if loss.name == "multinomial":
        return rng.normal(size=(count, CLASSES)) * spread, rng.integers(0, CLASSES, count).astype(float)
    margins = rng.normal(size=count) * spread
    if loss.name in ("logistic", "squared-hinge"):
        return margins, rng.choice([-1.0, 1.0], count)
    return margins, (
        rng.poisson(2.0, count).astype(float) if loss.targets == "counts" else rng.normal(size=count)
    )


@every_loss
def test_the_residual_is_the_derivative_of_the_value(loss):
    margins, y = margins_and_targets(loss)
    residual, h = np.atleast_2d(loss.residual(margins, y).T).T, 1e-6
    columns = np.atleast_2d(margins.T).T
    for j in range(columns.shape[1]):
        step = np.zeros_like(columns)
        step[:, j] = h
        up, down = [loss.value((columns + s).reshape(margins.shape), y) for s in (step, -step)]
        np.testing.assert_allclose((up - down) / (2 * h), residual[:, j], rtol=2e-4, atol=2e-5)


@every_loss
def test_the_residual_is_at_most_the_lipschitz_bound_and_comes_close(loss):
    margins, y = margins_and_targets(loss, spread=60.0)
    sizes = np.linalg.norm(np.atleast_2d(loss.residual(margins, y).T), axis=0)
    if math.isfinite(loss.lipschitz):
        assert 0.999 * loss.lipschitz < sizes.max() <= loss.lipschitz * (1 + 1e-12)
    else:
        assert sizes.max() > 20


@every_loss
def test_the_residual_moves_at_most_by_curvature_and_comes_close(loss):
    margins, y = margins_and_targets(loss, count=4000, spread=0.3)
    rng = np.random.default_rng(2)
    move = rng.normal(size=margins.shape) * 1e-3
    if margins.ndim == 2:  # the worst direction of softmax lies between two equal classes
        margins[:, 2:] -= 30.0
        margins[:, 1] = margins[:, 0]
        move[:, 1] = -move[:, 0]
    moved = loss.residual(margins + move, y) - loss.residual(margins, y)
    slope = np.linalg.norm(np.atleast_2d(moved.T), axis=0) / np.linalg.norm(np.atleast_2d(move.T), axis=0)
    assert slope.max() <= loss.curvature * (1 + 1e-9)
    if math.isfinite(loss.curvature):
        assert slope.max() > 0.85 * loss.curvature


@every_loss
def test_a_loss_is_convex(loss):
    a, y = margins_and_targets(loss, seed=3)
    b, _ = margins_and_targets(loss, seed=4)
    assert (loss.value((a + b) / 2, y) <= (loss.value(a, y) + loss.value(b, y)) / 2 + 1e-12).all()


@every_loss
def test_extreme_margins_give_no_warning(loss):
    shape = (2, CLASSES) if loss.name == "multinomial" else (2,)
    y = np.array([1.0, 1.0])
    for size in (1e4, 1e300):
        margins = np.full(shape, size) * np.array([1.0, -1.0]).reshape((2,) + (1,) * (len(shape) - 1))
        with np.errstate(over="ignore"):
            residual = loss.residual(margins, y)
        assert not np.isnan(residual).any()


def test_known_values():
    m, y = np.array([0.0, 2.0]), np.array([1.0, -1.0])
    np.testing.assert_allclose(LOSSES["logistic"].value(m, y), [math.log(2), math.log1p(math.exp(2))])
    np.testing.assert_allclose(LOSSES["logistic"].residual(m, y), [-0.5, 1 / (1 + math.exp(-2))])
    np.testing.assert_allclose(LOSSES["squared"].value(m, y), [0.5, 4.5])
    np.testing.assert_allclose(LOSSES["squared-hinge"].value(m, y), [0.5, 4.5])
    np.testing.assert_allclose(LOSSES["poisson"].value(m, np.array([3.0, 1.0])), [1.0, math.exp(2) - 2])
    np.testing.assert_allclose(LOSSES["huber"].value(m, y), [0.5, 2.5])
    equal = LOSSES["multinomial"].value(np.zeros((1, 5)), np.array([2.0]))
    np.testing.assert_allclose(equal, math.log(5))


@given(st.floats(0.1, 5.0), st.floats(-9, 9))
def test_huber_is_squared_inside_its_threshold_and_linear_beyond(threshold, margin):
    loss, zero = Huber(threshold), np.zeros(1)
    value = loss.value(np.array([margin]), zero)[0]
    inside = abs(margin) <= threshold
    wanted = margin**2 / 2 if inside else threshold * (abs(margin) - threshold / 2)
    assert value == pytest.approx(wanted)
    assert loss.lipschitz == threshold


@pytest.mark.parametrize("label", [math.nan, math.inf, -1.0, 4.0, 1e300])
def test_a_label_that_is_no_class_has_no_loss(label):
    loss, margins = LOSSES["multinomial"], np.zeros((2, CLASSES))
    y = np.array([label, 3.0])
    assert np.isnan(loss.value(margins, y)).tolist() == [True, False]
    assert np.isnan(loss.residual(margins, y)).all(axis=1).tolist() == [True, False]


def test_losses_are_found_by_their_names():
    numbers, labels = {"squared", "huber", "poisson", "gamma", "quantile"}, {"logistic", "squared-hinge"}
    assert set(LOSSES) == {*numbers, *labels, "multinomial"}
    assert all(loss.name == name for name, loss in LOSSES.items())


def test_exponentials_of_several_are_those_of_one():
    values = -np.concatenate([np.linspace(0.0, 700.0, 20_001), np.logspace(-300, 2, 1000)])
    found = values.copy()
    _exponentials(found)
    np.testing.assert_allclose(found, np.exp(values), rtol=4e-16)
    odd = np.array([np.nan, -np.inf, -1e5, 0.0])
    _exponentials(odd)
    assert np.array_equal(odd, [np.nan, np.exp(-700.0), np.exp(-700.0), 1.0], equal_nan=True)
