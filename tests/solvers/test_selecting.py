"""Solvers that choose coordinates first: peeled steps, coordinate descent, votes and a restricted fit."""

import math

import numpy as np
import pytest
from scipy import sparse
from tests.solvers.plain import gradient, made_data, made_problem, run, top

from sordino.accounting import calibrate, certify
from sordino.errors import InvalidInputError
from sordino.execute import LocalExecutor
from sordino.kernel import Disjoint
from sordino.solvers import Options, make_solver
from sordino.solvers.baselines import Coordinate, Peeled, TwoStage

KINDS = pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])


@KINDS
@pytest.mark.parametrize("selection", ["gumbel", "laplace"])
def test_without_noise_peeled_steps_are_plain_hard_thresholding(kind, selection):
    problem = made_problem(intercept=0.7, ridge=0.1)
    x, y = made_data(problem)
    w = np.zeros(10)
    for _ in range(8):
        w = top(w - 0.6 * gradient(problem, x, y, w), 3, 1)
    ours = run(Peeled(3, 8, 0.6, 9.0, 9.0, selection), problem, kind(x), y)[-1]
    np.testing.assert_allclose(ours, w, rtol=1e-9)


def test_split_steps_use_each_record_once():
    problem = made_problem(n=120)
    x, y = made_data(problem)
    solver = Peeled(3, 4, 0.6, 9.0, 9.0, split=True)
    assert solver.plan(problem).releases["support"].sampling == Disjoint(4)
    w = np.zeros(9)
    for t in range(4):
        part = slice(30 * t, 30 * (t + 1))
        mean = problem.loss.residual(x[part] @ w, y[part]) @ x[part] / 30
        w = top(w - 0.6 * mean, 3)
    np.testing.assert_allclose(run(solver, problem, x, y)[-1], w, rtol=1e-9)


def test_vector_q2_is_the_calibrated_noise_of_one_peeled_step():
    problem = made_problem(n=1000, d=50)
    plan = calibrate(Peeled(10, 1, 0.6, 0.3, 9.0).plan(problem), 1.0, 1e-5)
    scores, values = plan.releases["support"], plan.releases["values"]
    w = np.zeros(50)
    scale = scores.mechanism.multiplier * scores.sensitivity(problem.relation, w)
    std = values.mechanism.multiplier * values.sensitivity(problem.relation, (w, np.arange(10)))
    assert scale == pytest.approx(18.0915 * 0.3, rel=5e-3)
    assert std == pytest.approx(scale, rel=1e-9)


def test_a_norm_bound_below_the_entry_bounds_lowers_the_noise_of_the_values():
    problem = made_problem(n=1000, d=50)
    query = Peeled(10, 1, 0.6, 0.3, 0.5).plan(problem).releases["values"].query
    assert query.contribution((None, np.arange(10))) == 0.5
    assert query.contribution((None, np.arange(2))) == pytest.approx(0.3 * math.sqrt(2))


@KINDS
def test_without_noise_coordinate_descent_moves_the_steepest_coordinates(kind):
    problem = made_problem(intercept=0.7, ridge=0.1)
    x, y = made_data(problem)
    w = np.zeros(10)
    support = set()
    for _ in range(12):
        g = gradient(problem, x, y, w)
        allowed = np.arange(9) if len(support) + 1 <= 3 else np.array(sorted(support))
        j = allowed[np.argmax(np.abs(g[allowed]))]
        support.add(int(j))
        w[[j, 9]] -= 0.6 * g[[j, 9]]
    ours = run(Coordinate(3, 12, 0.6, 9.0, 9.0), problem, kind(x), y)[-1]
    np.testing.assert_allclose(ours, w, rtol=1e-9)
    assert np.count_nonzero(ours[:9]) <= 3


def test_coordinate_descent_never_chooses_more_than_it_may():
    problem = made_problem(d=40)
    x, y = made_data(problem)
    w = run(Coordinate(7, 30, 0.6, 0.4, 0.4, block=3), problem, x, y, scale=2.0)[-1]
    assert 3 <= np.count_nonzero(w) <= 7


@KINDS
def test_votes_find_the_support_and_the_fit_is_the_restricted_minimiser(kind):
    problem = made_problem(n=2000, d=12, intercept=0.6)
    x, y = made_data(problem)
    solver = TwoStage(3, problem.row_bound, 0.02, 10, 2.0)
    w = run(solver, problem, kind(x), y)[-1]
    assert set(np.flatnonzero(w)) == {0, 1, 2, 12}
    restricted = gradient(made_problem(n=2000, d=12, intercept=0.6, ridge=0.02), x, y, w, False)[
        [0, 1, 2, 12]
    ]
    assert np.linalg.norm(restricted) < 1e-5


def test_noise_inside_the_objective_is_calibrated_and_finds_the_same_fit():
    problem = made_problem(n=2000, d=12, intercept=0.6)
    x, y = made_data(problem)
    options = Options(3, step_size=2.0, extra={"stage2": "objective", "blocks": 10, "strength": 0.02})
    solver = make_solver("two-stage", problem, options)
    output = TwoStage(3, problem.row_bound, 0.02, 10, 2.0)
    ours, theirs = (run(s, problem, x, y)[-1] for s in (solver, output))
    np.testing.assert_allclose(ours, theirs, atol=1e-3)
    plan = calibrate(solver.plan(problem), 1.0, 1e-5)
    assert 0.99 < certify(plan.event(), 1e-5, problem.relation).epsilon <= 1.0


def test_the_default_strength_leaves_most_of_epsilon_to_the_noise_inside_the_objective():
    problem = made_problem(n=20, d=12)
    solver = make_solver("two-stage", problem, Options(3, extra={"stage2": "objective"}))
    jacobian = solver.plan(problem).releases["fit"].mechanism.jacobian
    assert 0 < jacobian <= 0.25
    calibrate(solver.plan(problem), 1.0, 1e-5)


@KINDS
def test_a_record_changes_each_count_of_votes_by_at_most_one(kind):
    problem = made_problem(n=40, d=30)
    x, y = made_data(problem)
    query = TwoStage(4, problem.row_bound, 0.1, 6, 2.0).plan(problem).releases["support"].query
    x *= 0.05

    def counts(rows):
        return query.evaluate(LocalExecutor(kind(rows), y, 1.5).records(None)).to_dense()

    before, moved = counts(x), []
    assert before.sum() == 4 * 6
    for i in range(0, 40, 5):
        other = x.copy()
        other[i] = np.eye(30)[i % 30] * 1.5
        moved.append(np.abs(counts(other) - before).max())
    assert max(moved) == 1.0


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("two-stage", {"blocks": 0}),
        ("two-stage", {"blocks": 121}),
        ("two-stage", {"stage2": "exponential"}),
        ("peeled", {"split": "yes"}),
        ("peeled", {"selection": "top"}),
        ("coordinate", {"block": 0}),
        ("coordinate", {"block": 4}),
        ("coordinate", {"blocks": 1}),
    ],
)
def test_an_option_out_of_bounds_is_refused(name, extra):
    with pytest.raises(InvalidInputError):
        make_solver(name, made_problem(), Options(3, extra=extra))


def test_more_split_steps_than_records_are_refused():
    with pytest.raises(InvalidInputError, match="max_iter"):
        make_solver("peeled", made_problem(n=5), Options(3, max_iter=6, extra={"split": True}))
