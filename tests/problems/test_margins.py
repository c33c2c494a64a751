"""The last question of a linear model: gradients and curvatures are the loss's, in slope and offset."""

from dataclasses import replace

import numpy as np
import pytest

from sordino.execute import LocalExecutor
from sordino.problems.affine import Affine, MarginFit, OwnPart
from sordino.problems.losses import LOSSES
from sordino.solvers.length import Answer, recalibrate

N, D = 3000, 4
ROWS = np.random.default_rng(0).normal(size=(N, D))
W = np.array([0.6, -0.4, 0.2, 0.5])
NOTHING = OwnPart(Affine(np.zeros(D), np.ones(D), 0.0), 0.0, 0.0, 0.0, 1.0, False)


def targets(name, slope, offset=0.0):
    public = np.random.default_rng(1)
    if name == "multinomial":
        return (slope * margins(name) + public.gumbel(size=(N, 3))).argmax(axis=1).astype(float)
    m = slope * margins(name) + offset
    if name == "squared":
        return m + 0.1 * public.normal(size=N)
    return np.where(public.random(N) < 1 / (1 + np.exp(-m)), 1.0, -1.0)


def margins(name):
    return ROWS @ weights(name).T


def weights(name):
    return np.stack([W, -W, W[::-1]]) if name == "multinomial" else W


def asked(name, clip, slope, offset=0.0):
    """Return the answer at a point, as a function of it, for targets of this slope and offset."""
    query = MarginFit(LOSSES[name], clip, name != "multinomial")
    records = LocalExecutor(ROWS, targets(name, slope, offset), 100.0).records(None)

    def at(point):
        moved = point[1] if query.offset else 0.0
        params = (weights(name), moved, float(point[0]), 1.0, NOTHING)
        return query.unpack(query.evaluate(records, params) / N)

    return at


@pytest.mark.parametrize("name", ["logistic", "multinomial"])
def test_a_narrow_question_is_that_of_a_narrow_clip_enlarged_to_fill_the_wide_one(name):
    records = LocalExecutor(ROWS, targets(name, 1.3, 0.0), 100.0).records(None)
    answers = []
    for clip, narrow in ((0.5, 1.0), (5.0, 0.1)):
        query = MarginFit(LOSSES[name], clip, name != "multinomial")
        params = (weights(name), 0.1, 0.8, 1.0, replace(NOTHING, narrow=narrow))
        answer = query.evaluate(records, params)
        answers.append([answer * (0.5 / clip), *query.unpack(answer, narrow)])
    for narrow, wide in zip(*answers, strict=True):
        np.testing.assert_allclose(narrow, wide, rtol=1e-9)


@pytest.mark.parametrize("name", ["logistic", "multinomial", "squared"])
def test_gradient_and_curvature_are_derivatives_in_slope_and_offset(name):
    at = asked(name, 1e6, 1.3, 0.2)
    point = np.array([0.8]) if name == "multinomial" else np.array([0.8, 0.1])
    curvature, step = at(point)[1], 1e-5
    for i, row in enumerate(np.eye(point.size)):
        change = (at(point + step * row)[0] - at(point - step * row)[0]) / (2 * step)
        np.testing.assert_allclose(curvature[i], change, rtol=1e-6)
    gradient = at(point)[0]
    assert abs(gradient[0]) > 0.01
    loss = [_loss(name, point[0] + by, point[1:]) for by in (step, -step)]
    assert gradient[0] == pytest.approx((loss[0] - loss[1]) / (2 * step), rel=1e-5)


def _loss(name, slope, offset):
    y = targets(name, 1.3, 0.2)
    m = slope * margins(name) + (offset[0] if len(offset) else 0.0)
    if name == "multinomial":
        return np.mean(np.log(np.exp(m).sum(axis=1)) - m[np.arange(N), y.astype(int)])
    return np.mean(0.5 * (m - y) ** 2 if name == "squared" else np.logaddexp(0.0, -y * m))


@pytest.mark.parametrize("slope", [0.5, 0.8, 1.6])
@pytest.mark.parametrize("name", ["logistic", "multinomial", "squared"])
def test_three_questions_without_noise_find_the_slope_with_the_clip_of_the_default(name, slope):
    expected = np.array([1.0]) if name == "multinomial" else np.array([1.0, 0.0])
    sure, at = 1e9 * np.eye(expected.size), asked(name, 0.4, slope)

    def ask(point, center, number):
        return Answer(point, *at(point), sure, sure, 1.0)

    found = recalibrate(ask, expected, 2.0 * np.eye(expected.size), 3, name != "squared")
    assert found.point[0] == pytest.approx(slope, abs=0.08 * slope)
    assert found.noise < 1e-6


def test_five_questions_find_log_odds_that_are_eight_times_as_long():
    at = asked("logistic", 0.4, 8.0)

    def ask(point, center, number):
        return Answer(point, *at(point), 1e9 * np.eye(2), 1e9 * np.eye(2), 1.0)

    found = recalibrate(ask, np.array([1.0, 0.0]), 2.0 * np.eye(2), 5, True)
    assert found.point[0] == pytest.approx(8.0, rel=0.15)


def test_a_narrow_question_is_believed_as_far_as_wide_ones_do_not_deny_it():
    bent = np.eye(1)

    def told(wide):
        def ask(point, center, number):
            root, sure = (1.1, 100.0) if number < 2 else (wide, 5.0)
            root_of = sure * np.eye(1)
            return Answer(point, bent @ (point - root), bent, root_of, root_of, float(number >= 2))

        return recalibrate(ask, np.array([1.0]), np.eye(1), 5, True).point[0]

    assert told(1.15) == pytest.approx(1.1, abs=0.02)
    assert told(4.0) == pytest.approx(4.0, abs=0.15)
