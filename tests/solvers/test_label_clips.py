"""The clips of label models open with records times epsilon, and those of numbers stay."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

from sordino import LogisticRegression, SparseLogisticRegression
from sordino.kernel import Relation
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.solvers import Options
from sordino.solvers.auto import CLIP, Auto
from sordino.solvers.descent import column_means
from sordino.solvers.length import class_share, length_share, opened_gradient, opened_length
from sordino.testing import seeded_noise_not_private

LABELS = Problem(LOSSES["logistic"], 1000, 5, Relation.ADD_REMOVE, 1.0, 1e-6, intercept=0.25)
MANY = [replace(LABELS, population=int(n)) for n in np.geomspace(20, 1e8, 200)]


def test_clips_open_without_a_step_and_end_where_nothing_is_clipped():
    lengths = [opened_length(p, 0.4, 5) for p in MANY]
    gradients = [opened_gradient(p, 0.35, 5, 1.03) for p in MANY]
    for values in (lengths, gradients):
        assert (np.diff(values) >= 0).all()
        assert (np.diff(values) < 0.12 * np.array(values[1:])).all()
    assert (lengths[0], gradients[0]) == (0.4, 0.35)
    assert lengths[-1] > 20
    assert gradients[-1] == 1.03


def test_noise_of_the_last_question_and_of_gradients_falls_all_the_same():
    for clip in (lambda p: opened_length(p, 0.4, 5), lambda p: opened_gradient(p, 0.35, 5, 1.03)):
        assert (np.diff([clip(p) / p.population for p in MANY]) < 0).all()


@pytest.mark.parametrize("grid", ["n", "epsilon"])
def test_shares_of_the_budget_never_jump(grid):
    few = [replace(LABELS, population=n) for n in range(10, 200)]
    fine = [replace(LABELS, population=40, epsilon=e) for e in np.geomspace(0.05, 50.0, 400)]
    for share in (class_share, lambda p: length_share(p, 5)):
        values = np.array([share(p) for p in ([*few, *MANY[40:]] if grid == "n" else fine)])
        assert (np.diff(values) <= 0).all()
        assert (np.abs(np.diff(values)) < 0.02 + 0.15 * values[1:]).all()


@pytest.mark.parametrize("model", [LogisticRegression, SparseLogisticRegression])
def test_the_classes_of_very_few_records_leave_a_rest_for_the_descent(model):
    sparse = {"n_nonzero_coefs": 2} if model is SparseLogisticRegression else {}
    X, y = np.eye(30, 4), np.arange(30) % 2
    for signal in np.linspace(15.0, 40.0, 26):  # of records times epsilon
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model(epsilon=signal / 30, delta=1e-5, classes=[0, 1], **sparse).fit(X, y)


def test_the_last_question_stays_narrow_where_coefficients_drown():
    wide = replace(LABELS, population=10_000)
    assert opened_length(wide, 0.4, 1_000_000) == 0.4
    assert length_share(wide, 1_000_000) == pytest.approx(0.02, rel=0.01)
    assert opened_length(wide, 0.4, 5) > 2.0
    assert length_share(wide, 5) == 0.06


def test_numbers_keep_their_clips():
    numbers = replace(LABELS, loss=LOSSES["squared"], population=10**7)
    assert opened_length(numbers, 0.4, 5) == 0.4
    assert opened_gradient(numbers, 0.35, 5, 1.03) == 0.35


def test_a_clip_that_the_user_chose_stays():
    many = replace(LABELS, population=10**6)
    plan = Auto.configure(many, Options(clip_norm=0.2)).plan(many)
    assert plan.releases["gradient"].query.clip == 0.2
    assert Auto.configure(many, Options()).plan(many).releases["gradient"].query.clip > CLIP


@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
def test_classes_are_asked_only_where_an_intercept_can_hold_them(loss):
    outputs = 3 if loss == "multinomial" else 1
    problem = replace(LABELS, loss=LOSSES[loss], outputs=outputs)
    assert "classes" in Auto.configure(problem, Options()).plan(problem).releases
    bare = replace(problem, intercept=0.0)
    assert "classes" not in Auto.configure(bare, Options()).plan(bare).releases


def test_means_that_drown_one_by_one_are_seen_together():
    public = np.random.default_rng(0)
    found = column_means(0.3 + 0.5 * public.normal(size=900), 0.5, 900)
    assert np.abs(found - 0.3).mean() < 0.06
    nothing = column_means(0.5 * public.normal(size=900), 0.5, 900)
    assert np.abs(nothing).mean() < 0.03
    np.testing.assert_array_equal(column_means(np.array([1.0, -2.0, 5.0]), 0.0, 3), [1.0, -2.0, 5.0])


def test_a_rare_large_mean_stays_beside_many_small_ones():
    values = np.append(np.zeros(999), 4.0)
    assert column_means(values, 0.2, 1000)[-1] == pytest.approx(4.0, rel=0.05)
    assert math.fsum(np.abs(column_means(values, 0.2, 1000)[:-1])) == 0.0


def test_means_that_differ_by_more_than_noise_are_kept_though_most_would_drown():
    public = np.random.default_rng(2)
    truth = np.repeat([0.0, 1.0], 32)
    errors = [column_means(truth + 0.3 * public.normal(size=64), 0.3, 64) - truth for _ in range(50)]
    assert np.sqrt(np.mean(np.square(errors))) < 0.33  # .49 where all were shrunk towards their median


def test_the_length_of_a_penalised_model_keeps_its_penalty():
    public = np.random.default_rng(1)
    X = public.uniform(-1, 1, (60_000, 4))
    y = public.random(60_000) < 1 / (1 + np.exp(2 - X @ [2, 1, 0, -1]))
    with seeded_noise_not_private(0):
        model = LogisticRegression(
            8.0, 1e-6, data_norm=2, classes=[False, True], penalty="ridge", alpha=0.05
        ).fit(X, y)
    assert 0.7 < model.coef_[0, 0] < 0.9  # .8 is the penalised minimum; 1.7, nearly the plain one, before


def test_a_median_that_noise_could_cause_moves_no_column():
    public = np.random.default_rng(4)
    moved = [column_means(0.5 * public.normal(size=30), 0.5, 30).all() for _ in range(200)]
    assert np.mean(moved) < 0.05  # .19 where 1.18 deviations of noise were enough


@pytest.mark.parametrize("model", [LogisticRegression, SparseLogisticRegression])
@pytest.mark.parametrize(
    ("classes", "n", "epsilon"), [(2, 40, 0.2), (2, 60, 1.4), (2, 800, 1.4), (5, 800, 1.4)]
)
def test_without_a_record_of_the_other_classes_the_model_is_the_constant(model, classes, n, epsilon):
    X, lost, learned = np.random.default_rng(0).normal(size=(n, 12)), [], 0
    for seed in range(4):
        with seeded_noise_not_private(seed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # delta above 1 / n
            found = model(epsilon, 1e-5, data_norm=8.0, classes=range(classes)).fit(X, np.zeros(n, dtype=int))
        learned += int(found.coef_.any())
        lost.append(-np.log(found.predict_proba(X[:1])[0, 0]))
    assert learned <= int(classes > 2)  # released shares of several classes have the noise of each
    assert np.mean(lost) < 4.0 * classes / (n * epsilon)
