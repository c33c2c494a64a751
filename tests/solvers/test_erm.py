"""DP-SRM, DP-AGD and their kin: what they ask, what it costs, and that the steps are those of the papers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.solvers.plain import made_data, made_problem, run

from sordino.accounting import calibrate, certify
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute import LocalExecutor
from sordino.kernel import Curator, Full, NoiseSource, Poisson, Relation
from sordino.problems.losses import LOSSES, Nonconvex
from sordino.problems.problem import Problem
from sordino.problems.queries import RecursiveGradient
from sordino.solvers import Options, make_solver
from sordino.solvers.dense import Gd, RrpSgd, Sgd, Srm

A9A = Problem(LOSSES["logistic"], 32561, 123, Relation.ADD_REMOVE, 0.2, 1e-5)
LOGISTIC = LOSSES["logistic"]


def answer(query, x, y, params, data_norm=1.5):
    return query.evaluate(LocalExecutor(x, y, data_norm).records(None), params)


# ------------------------------------------------------------------------------------- accounting


@pytest.mark.parametrize(("relation", "epsilon"), [("add-remove", 0.19888), ("replace-one", 0.38563)])
def test_the_plan_of_srm_costs_what_the_vector_says(relation, epsilon):
    problem = replace(A9A, relation=Relation.parse(relation))
    options = Options(max_iter=1302, batch_size=100, extra={"first_batch": 400})
    plan = make_solver("srm", problem, options).plan(problem)
    scale = 2.0 / problem.relation.contributions  # the vector's z is std over one contribution
    assert certify(plan.at(scale).event(), 1e-5, plan.relation).epsilon == pytest.approx(epsilon, rel=1e-3)


def test_twenty_full_gradients_need_the_noise_of_the_vector():
    plan = calibrate(make_solver("gd", A9A, Options(max_iter=20)).plan(A9A), 0.2, 1e-5)
    assert plan.releases["gradient"].mechanism.multiplier == pytest.approx(72.914, rel=1e-3)


@pytest.mark.parametrize(("epsilon", "steps", "z"), [(0.2, 1302, 1.980), (0.5, 1628, 1.141)])
def test_srm_needs_the_noise_of_the_vector(epsilon, steps, z):
    solver = make_solver("srm", A9A, Options(max_iter=steps, batch_size=100, extra={"first_batch": 100}))
    plan = calibrate(solver.plan(A9A), epsilon, 1e-5)
    assert plan.releases["recursion"].mechanism.multiplier == pytest.approx(z, rel=1e-3)


@pytest.mark.parametrize(("epsilon", "z"), [(0.1, 11.04), (0.3, 4.095)])
def test_smoothed_descent_needs_the_noise_of_the_vector(epsilon, z):
    problem = replace(A9A, population=50_000)
    plan = make_solver("ls-sgd", problem, Options(max_iter=19_531, batch_size=128)).plan(problem)
    found = calibrate(plan, epsilon, 1e-5).releases["gradient"].mechanism.multiplier
    assert found == pytest.approx(z, rel=1e-3)


@pytest.mark.parametrize(("z", "epsilon"), [(2.0, 2.1428), (5.0, 0.7340)])
def test_a_million_single_records_cost_what_the_vector_says(z, epsilon):
    problem = replace(A9A, population=1000)
    plan = RrpSgd(10**6, 0.5, 0.7, Poisson(1e-3)).plan(problem).at(z)
    assert certify(plan.event(), 1e-5, plan.relation).epsilon == pytest.approx(epsilon, rel=1e-3)


def test_only_the_drawn_steps_are_planned_and_they_are_drawn_from_all():
    drawn = {make_solver("rrp-sgd", A9A, Options(max_iter=4, random_state=s)).steps for s in range(60)}
    assert drawn == {1, 2, 3, 4}
    solver = make_solver("rrp-sgd", A9A, Options(max_iter=1000, random_state=5))
    assert solver.plan(A9A).releases["gradient"].times == solver.steps < 1000


def test_a_random_iterate_is_drawn_before_the_plan():
    options = Options(max_iter=500, extra={"output": "random"}, random_state=2)
    solver = make_solver("srm", A9A, options)
    assert 1 < solver.steps < 500
    assert solver.plan(A9A).releases["recursion"].times == solver.steps - 1
    assert make_solver("srm", A9A, options).steps == solver.steps


def test_one_step_of_srm_plans_no_recursion():
    solver = make_solver("srm", A9A, Options(max_iter=1))
    assert list(solver.plan(A9A).releases) == ["first"]


# --------------------------------------------------------------------------------- the recursion


def test_the_contribution_is_the_one_of_section_4_5():
    query = RecursiveGradient(LOGISTIC, 1.0, 0.01, 0.01)
    assert query.contribution((np.zeros(3), np.ones(3))) == pytest.approx(0.0199, rel=1e-12)


def test_the_difference_bound_shrinks_with_the_move_and_never_beyond_its_clip():
    query = RecursiveGradient(LOGISTIC, 0.8, 0.3, 0.25, row_bound=1.5)
    w = np.zeros(4)
    near, far = np.array([0, 0.1, 0, 0]), np.array([50.0, 0, 0, 0])
    assert query.contribution((near, w)) == pytest.approx(0.25 * 0.8 + 0.75 * 0.25 * 1.5**2 * 0.1)
    assert query.contribution((far, w)) == pytest.approx(0.25 * 0.8 + 0.75 * 0.3)
    assert query.contribution((w, w)) == pytest.approx(0.25 * 0.8)


def test_gradient_and_difference_are_clipped_apart():
    problem = made_problem(n=30)
    x, y = made_data(problem)
    rng = np.random.default_rng(1)
    w, a = rng.normal(size=(2, 9))
    query = RecursiveGradient(LOGISTIC, 0.4, 0.07, 0.3)
    expected = np.zeros(9)
    for row, target in zip(x, y, strict=True):
        at_w, at_a = (LOGISTIC.residual(row @ p, target) * row for p in (w, a))
        expected += 0.3 * clipped(at_w, 0.4) + 0.7 * clipped(at_w - at_a, 0.07)
    np.testing.assert_allclose(answer(query, x, y, (w, a)), expected, rtol=1e-9)


def clipped(v, bound):
    return v * min(1.0, bound / np.linalg.norm(v))


def test_no_recursion_is_a_plain_gradient():
    problem = made_problem(ridge=0.1)
    x, y = made_data(problem)
    whole = Srm(5, 0.6, 9.0, 9.0, 1.0, math.inf, Full(), Full())
    plain = Gd(5, 0.6, 9.0, Full())
    np.testing.assert_allclose(run(whole, problem, x, y), run(plain, problem, x, y), rtol=1e-10)


def test_without_noise_or_sampling_the_recursion_follows_the_gradient_exactly():
    problem = made_problem(penalty=Nonconvex(0.02))
    x, y = made_data(problem)
    recursive = Srm(6, 0.6, 9.0, 9.0, 0.2, problem.row_bound, Full(), Full())
    np.testing.assert_allclose(
        run(recursive, problem, x, y), run(Gd(6, 0.6, 9.0, Full()), problem, x, y), rtol=1e-9
    )


def test_the_output_is_the_average_of_the_last_iterates():
    problem = made_problem()
    x, y = made_data(problem)
    last = Srm(10, 0.6, 9.0, 9.0, 0.2, problem.row_bound, Full(), Full())
    path = run(last, problem, x, y)
    mean = run(replace(last, average=True), problem, x, y)
    np.testing.assert_allclose(mean[-1], np.mean(path[7:], axis=0), rtol=1e-12)
    assert make_solver("srm", problem, Options()).average
    assert not make_solver("srm", problem, Options(extra={"output": "last"})).average


def test_an_adaptive_step_is_never_longer_than_its_bound():
    problem = made_problem()
    x, y = made_data(problem)
    solver = Srm(5, 7.0, 9.0, 0.05, 0.2, problem.row_bound, Full(), Full(), "adaptive")
    path = [np.zeros(9), *run(solver, problem, x, y)]
    lengths = np.linalg.norm(np.diff(path, axis=0), axis=1)
    assert lengths == pytest.approx(0.05 / (0.25 * 1.5**2), rel=1e-9)
    short = replace(solver, step=1e-3)
    np.testing.assert_allclose(
        run(short, problem, x, y), run(replace(short, rule="constant"), problem, x, y), rtol=1e-12
    )


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_the_default_step_shrinks_with_the_noise_and_stays_below_its_cap(relation):
    problem = made_problem(n=4000, relation=relation)
    solver = make_solver("srm", problem, Options())
    executor = LocalExecutor(np.ones((4000, 9)), np.ones(4000), 1.5)
    steps = []
    for scale in (0.0, 1e-3, 1.0, 4.0):
        curator = Curator(executor, solver.plan(problem).at(scale), NoiseSource.seeded_not_private(0))
        steps.append(solver.step_for(curator, problem))
    curvature = 0.25 * 1.5**2
    assert steps[:2] == pytest.approx([1 / curvature, 10 / curvature])
    assert steps[2] == pytest.approx(4 * steps[3], rel=1e-9)


# ---------------------------------------------------------------------------------- the others


def test_steps_shrink_as_the_schedule_says():
    problem = made_problem()
    kinds = ("constant", "inverse", "inverse-root")
    made = {s: Sgd(3, 0.6, 0.7, Full(), schedule=s)._step(4, 0.6) for s in kinds}
    assert made == {"constant": 0.6, "inverse": pytest.approx(0.15), "inverse-root": pytest.approx(0.3)}
    x, y = made_data(problem)
    last = run(Sgd(4, 0.6, 0.7, Full()), problem, x, y)
    mean = run(Sgd(4, 0.6, 0.7, Full(), output="average"), problem, x, y)
    np.testing.assert_allclose(mean[-1], np.mean(last, axis=0), rtol=1e-12)


def test_the_known_noise_is_taken_out_of_the_second_moment():
    problem = made_problem("logistic", n=200, d=40, intercept=0.5)
    solver = make_solver("adam", problem, Options(max_iter=2, batch_size=100, extra={"smoothing": 1.5}))
    solver = replace(solver, subtract_noise=True)
    curator = Curator(
        LocalExecutor(np.zeros((200, 40)), np.ones(200), 1.5, 0.5),
        solver.plan(problem).at(3.0),
        NoiseSource.seeded_not_private(1),
    )
    known = solver._noise_variance(curator, problem)
    std = 3.0 * solver.clip / 100
    assert known[-1] == pytest.approx(std**2)
    dense = np.linalg.inv(circulant(40, 1.5))
    assert known[:-1] == pytest.approx(std**2 * np.diag(dense @ dense.T))


def circulant(d, s):
    matrix = (1 + 2 * s) * np.eye(d)
    for i in range(d):
        matrix[i, (i + 1) % d] -= s
        matrix[i, (i - 1) % d] -= s
    return matrix


@pytest.mark.parametrize("name", ["gd", "sgd", "adam", "srm", "agd", "rrp-sgd", "ls-sgd", "ls-adam"])
def test_a_dense_solver_refuses_a_sparsity_it_would_not_keep(name):
    with pytest.raises(UnsupportedError, match="n_nonzero_coefs=None, got 5"):
        make_solver(name, A9A, Options(n_nonzero_coefs=5))


@pytest.mark.parametrize(("name", "smoothing"), [("sgd", 0.0), ("ls-sgd", 1.0), ("ls-adam", 1.0)])
def test_the_smoothed_names_smooth_by_default(name, smoothing):
    assert make_solver(name, A9A, Options()).smoothing == smoothing
    assert make_solver(name, A9A, Options(extra={"smoothing": 2.5})).smoothing == 2.5


@pytest.mark.parametrize(
    ("name", "extra", "match"),
    [
        ("srm", {"gamma": 0.0}, "gamma"),
        ("srm", {"difference_clip": 5.0}, "difference_clip"),
        ("srm", {"first_batch": 10**9}, "first_batch"),
        ("srm", {"step_rule": "fast"}, "step_rule"),
        ("srm", {"output": "best"}, "output"),
        ("sgd", {"schedule": "cosine"}, "schedule"),
        ("adam", {"beta1": 1.0}, "beta1"),
        ("agd", {"growth": 0.0}, "growth"),
        ("agd", {"search_share": 1.0}, "search_share"),
    ],
)
def test_a_bad_option_is_named(name, extra, match):
    with pytest.raises(InvalidInputError, match=match):
        make_solver(name, A9A, Options(extra=extra))


def test_fixed_size_batches_reach_the_first_gradient_too():
    problem = replace(A9A, relation=Relation.REPLACE_ONE)
    solver = make_solver("srm", problem, Options(batch_size=50, sampling="fixed"))
    assert (solver.first.size, solver.minibatches.size) == (200, 50)
    assert make_solver("srm", A9A, Options(batch_size=50)).first == Poisson(200 / 32561)
    assert make_solver("srm", A9A, Options(batch_size=20_000)).first == Full()
