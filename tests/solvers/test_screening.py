"""The first cut among very many columns: the lazy one has the law of the dense one."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from tests.kernel.toys import source
from tests.statistical.laws import assert_same_law

import sordino.execute.local as local
from sordino import SparseLinearRegression, SparseLogisticRegression
from sordino.errors import PlanSpentError
from sordino.execute import LocalExecutor
from sordino.kernel import Curator, LazyVector, Relation
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.solvers import Options, make_solver
from sordino.solvers.auto import OTHERS, SCREEN_FROM, screen
from sordino.solvers.descent import TargetUnit

N, D, TOUCHED, RUNS = 60, 1200, 50, 700
PROBLEM = Problem(LOSSES["logistic"], N, D, Relation.ADD_REMOVE, 1.0, 1e-5, intercept=0.25)


def sparse_rows(columns=D, seed=3):
    rng = np.random.default_rng(seed)
    rows = sparse.random_array(
        (N, TOUCHED), density=0.2, random_state=rng, data_sampler=lambda size: rng.random(size)
    )
    rows = sparse.csr_matrix(rows)
    rows.data += 0.2
    rows.resize((N, columns))
    return rows, np.where(rng.random(N) < 0.4, 1.0, -1.0)


def solver():
    return make_solver("auto", PROBLEM, Options(n_nonzero_coefs=1))


def first_cut(executor, plan, noise):
    """Return what the first cut released: listed columns, kept columns and weights."""
    chosen, curator = solver(), Curator(executor, plan.at(0.4), noise)
    affine, _ = chosen._map_columns(curator, PROBLEM)
    left, w, leg = screen(curator, PROBLEM, affine, TargetUnit(), 24)
    new = affine.columns >= TOUCHED
    kept = left.columns >= TOUCHED
    return (
        new.sum() + 0.01 * affine.columns[new].mean() if new.any() else 0.0,
        affine.scale.sum(),
        affine.rest,
        affine.offset,
        kept.sum(),
        np.abs(w[:-1][kept]).max(initial=0.0) / leg.descent.step,
        np.abs(w[:-1][~kept]).max(initial=0.0) / leg.descent.step,
        w[:-1][kept].sum() / leg.descent.step,
        left.columns[kept].sum(),
        w[-1],
        left.scale[kept].sum(),
    )


def cuts(lazy, seed, monkeypatch, runs=RUNS):
    monkeypatch.setattr(local, "LAZY_RATIO", 0.0 if lazy else np.inf)
    rows, y = sparse_rows()
    executor, plan, noise = LocalExecutor(rows, y, 1.0, 0.25), solver().plan(PROBLEM), source(seed)
    return np.array([first_cut(executor, plan, noise) for _ in range(runs)])


@pytest.mark.statistical
def test_the_lazy_cut_has_the_law_of_the_dense_one(monkeypatch):
    lazy, dense = cuts(True, 31, monkeypatch), cuts(False, 32, monkeypatch)
    for one, other in zip(lazy.T, dense.T, strict=True):
        assert_same_law(one, other, tests=lazy.shape[1])


@pytest.mark.statistical
@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2])
def test_a_wrong_scale_of_what_is_not_drawn_is_noticed(monkeypatch, wrong):
    right = LazyVector.noised

    def broken(value, std, noise):
        return LazyVector(right(value, std, noise)._known, wrong * std, noise)

    dense = cuts(False, 33, monkeypatch, 250)
    monkeypatch.setattr(LazyVector, "noised", broken)
    lazy = cuts(True, 34, monkeypatch, 250)
    with pytest.raises(AssertionError):
        assert_same_law(lazy[:, 5], dense[:, 5])


@pytest.mark.parametrize("model", [SparseLogisticRegression, SparseLinearRegression])
def test_without_noise_the_lazy_model_is_the_dense_one(monkeypatch, model):
    rows, _ = sparse_rows(columns=900)
    y = np.where(rows[:, :3] @ [3.0, -3.0, 3.0] > 0.5, 1.0, -1.0)  # chance alone would have a slope of zero
    found = []
    for ratio in (0.0, np.inf):
        monkeypatch.setattr(local, "LAZY_RATIO", ratio)
        bound = {} if model is SparseLogisticRegression else {"target_bound": 1.0}
        fitted = model(epsilon=np.inf, delta=1e-5, data_norm=1.0, n_nonzero_coefs=3, **bound).fit(rows, y)
        found.append(np.append(fitted.coef_, fitted.intercept_))
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)
    assert np.count_nonzero(found[0][:-1]) == 3


def test_rows_without_entries_have_a_model():
    empty = sparse.csr_matrix((N, 1000))
    for epsilon in (1.0, np.inf):
        model = SparseLogisticRegression(epsilon=epsilon, delta=1e-5, data_norm=1.0, n_nonzero_coefs=2)
        assert model.fit(empty, np.arange(N) % 2).coef_.shape == (1, 1000)


def test_dense_rows_are_cut_too():
    rows, y = sparse_rows(columns=900)
    model = SparseLogisticRegression(epsilon=np.inf, delta=1e-5, data_norm=1.0, n_nonzero_coefs=3)
    expected = model.fit(rows, y).coef_.copy()
    np.testing.assert_allclose(model.fit(rows.toarray(), y).coef_, expected, rtol=1e-9, atol=1e-12)


def test_the_cut_is_planned_by_public_numbers():
    assert solver().screens
    assert not make_solver("auto", PROBLEM, Options(n_nonzero_coefs=1, max_iter=7)).screens
    assert not make_solver("auto", PROBLEM, Options(n_nonzero_coefs=D // (24 * SCREEN_FROM) + 1)).screens
    assert solver().plan(PROBLEM).releases["gradient"].times == 1


@pytest.mark.parametrize("epsilon", [1.0, 4.0, np.inf])
def test_more_columns_are_asked_no_more_questions_on_all_of_them(epsilon):
    border, asked = 24 * SCREEN_FROM * 5, []
    for columns in (border - 1, *np.geomspace(border, 100 * border, 40).astype(int).tolist()):
        problem = replace(PROBLEM, population=20_000, features=columns, epsilon=epsilon)
        chosen = make_solver("auto", problem, Options(n_nonzero_coefs=5))
        asked.append((chosen.steps, columns, chosen.screens))
    steps, columns, screens = map(np.array, zip(*asked, strict=True))
    assert (np.diff(steps) <= 0).all()
    assert steps[-1] == 1
    assert ((steps == 1) == screens).all()
    assert (((steps + OTHERS) * columns)[1:][~screens[1:]] <= (steps[1] + OTHERS + 1) * border).all()
    assert len(np.unique(steps)) > 5  # fewer and fewer, not all or one


def test_the_one_gradient_is_asked_once():
    chosen, (rows, y) = solver(), sparse_rows()
    curator = Curator(LocalExecutor(rows, y, 1.0, 0.25), chosen.plan(PROBLEM).at(1.0), source(5))
    _, w, leg = screen(curator, PROBLEM, chosen._map_columns(curator, PROBLEM)[0], TargetUnit(), 24)
    with pytest.raises(PlanSpentError, match="gradient"):
        leg.descent.gradient(w)


@pytest.mark.parametrize(("rows", "steps"), [(2_000, 20), (15_000, 25), (100_000, 50)])
def test_labels_whose_coefficients_drown_are_descended_on_in_fewer_steps(rows, steps):
    problem = Problem(LOSSES["logistic"], rows, 40_000, Relation.ADD_REMOVE, 1.0, 1e-6, intercept=1.0)
    assert make_solver("auto", problem, Options()).steps == steps


def test_numbers_keep_their_steps():
    problem = Problem(LOSSES["squared"], 2_000, 40_000, Relation.ADD_REMOVE, 1.0, 1e-6, intercept=1.0)
    assert make_solver("auto", problem, Options()).steps == 50


def test_rare_columns_do_not_drown_the_others_where_there_is_no_noise():
    rng = np.random.default_rng(5)
    common = (rng.random((2000, 60)) < 0.3) * 1.0
    rare = sparse.random_array((2000, 3000), density=0.002, random_state=rng)
    rows = sparse.csr_matrix(sparse.hstack([common, rare.astype(bool).astype(float)])) / 8.0
    y = np.clip(common[:, :2] @ [0.5, -0.5] + 0.1 * rng.normal(size=2000), -1.0, 1.0)
    scores = []
    for epsilon in (1e4, np.inf):
        model = SparseLinearRegression(epsilon, 1e-6, data_norm=1.0, target_bound=1.0, n_nonzero_coefs=2)
        scores.append(model.fit(rows, y).score(rows, y))
    assert min(scores) > 0.85
    assert scores[1] >= scores[0] - 0.02
