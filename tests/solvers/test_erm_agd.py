"""DP-AGD: scores of step sizes, the price of a search, and portions that are asked where they are needed."""

from __future__ import annotations

import numpy as np
import pytest
from tests.solvers.plain import gradient, made_data, made_problem

from sordino.errors import UnsupportedError
from sordino.execute import GroupedExecutor, LocalExecutor
from sordino.kernel import Curator, GumbelTopK, NoiseSource, Plan, Relation, Release, check_offer
from sordino.problems.losses import LOSSES, Nonconvex
from sordino.problems.queries import StepSizeScores
from sordino.solvers.dense import Agd

LOGISTIC = LOSSES["logistic"]


def answer(query, x, y, params, data_norm=1.5):
    return query.evaluate(LocalExecutor(x, y, data_norm).records(None), params)


def test_scores_are_minus_the_clipped_objective_along_the_direction():
    problem = made_problem(n=25)
    x, y = made_data(problem)
    w, g = np.random.default_rng(3).normal(size=(2, 9))
    query = StepSizeScores(LOGISTIC, 0.6, (0.0, 0.5, 2.0), (Nonconvex(0.3),), 25)
    expected = [
        -np.minimum(LOGISTIC.value(x @ (w - a * g), y), 0.6).sum() - 25 * Nonconvex(0.3).value(w - a * g)
        for a in (0.0, 0.5, 2.0)
    ]
    np.testing.assert_allclose(answer(query, x, y, (w, g)), expected, rtol=1e-9)


def test_an_added_record_moves_all_scores_down():
    problem = made_problem(n=25)
    x, y = made_data(problem)
    w, g = np.random.default_rng(3).normal(size=(2, 9))
    query = StepSizeScores(LOGISTIC, 0.6, (0.0, 0.5, 2.0))
    moved = answer(query, x, y, (w, g)) - answer(query, x[1:], y[1:], (w, g))
    assert ((moved < 0) & (moved >= -0.6 - 1e-12)).all()


def test_scores_of_a_person_with_several_rows_are_refused():
    scores = Release(StepSizeScores(LOGISTIC, 0.6, (0.0, 1.0)), GumbelTopK(), mean=False)
    with pytest.raises(UnsupportedError, match="groups of records"):
        check_offer(Plan({"scores": scores}, Relation.ADD_REMOVE, 5), GroupedExecutor.offer)


def asked_by(solver, problem, scale, seed=0):
    x, y = made_data(problem)
    plan = solver.plan(problem).at(scale)
    curator = Curator(LocalExecutor(x, y, problem.data_norm), plan, NoiseSource.seeded_not_private(seed))
    return list(solver.run(curator, problem)), curator.used


def test_a_search_costs_its_share_of_the_budget():
    problem = made_problem(relation="add-remove")
    plan = Agd(10, 6, (1.0, 0.5), 0.7, 1.3, search_share=0.25).plan(problem).at(2.0)
    gradients, searches = plan.releases["gradient"], plan.releases["search"]
    assert isinstance(searches.mechanism, GumbelTopK)
    paid = 10 * 0.5 / gradients.mechanism.multiplier**2
    searched = 6 * searches.mechanism.event(plan.relation).rho
    assert searched / (paid + searched) == pytest.approx(0.25, rel=1e-9)


def test_without_noise_one_portion_per_point_is_enough():
    problem = made_problem(ridge=0.05)
    path, used = asked_by(Agd(8, 20, (2.0, 1.0, 0.5), 9.0, 5.0), problem, 0.0)
    assert used["gradient"] == len(path) == 8
    x, y = made_data(problem)
    sizes = [np.linalg.norm(gradient(problem, x, y, w)) for w in path]
    assert sizes[-1] < 0.5 * sizes[0]


def test_more_portions_are_asked_where_no_step_helps():
    problem = made_problem()
    steps = (1e6,)  # a step that never helps
    path, used = asked_by(Agd(12, 9, steps, 9.0, 5.0, growth=1.0), problem, 0.0)
    assert not np.any(path)
    assert used["gradient"] == 12  # 1, then 2, 4, 8 in all, then the four that are left
    assert used["search"] == 5


def test_a_run_ends_when_all_portions_are_spent():
    problem = made_problem()
    path, used = asked_by(Agd(5, 50, (0.5, 0.25), 0.7, 1.3), problem, 3.0)
    assert used["gradient"] == 5
    assert used["search"] == len(path) <= 50
