"""Knowledge transfer: why the published teacher is not private, and what ours releases."""

import numpy as np
import pytest
from scipy import sparse
from tests.solvers.plain import made_data, made_problem, run, top

from sordino.errors import InvalidInputError
from sordino.solvers import Options, make_solver
from sordino.solvers.transfer import Transfer, operator_bound, with_intercept


def published_teacher(x, y, sparsity=1, strength=0.1, steps=2000):
    """Return DPSL-KT's teacher: hard-thresholded descent on the ridge-regularised squared loss."""
    w = np.zeros(x.shape[1])
    for _ in range(steps):
        w = top(w - 0.5 * (x.T @ (x @ w - y) / len(x) + strength * w), sparsity)
    return w


@pytest.mark.parametrize("n", [1001, 5001])
def test_vector_k2_one_record_moves_the_published_teacher_by_more_than_one_whatever_n(n):
    rows = np.eye(2)[np.arange(n) % 2]  # one more e_1 than e_2
    neighbour = rows.copy()
    neighbour[0] = [0.0, 1.0]
    one, other = published_teacher(rows, np.ones(n)), published_teacher(neighbour, np.ones(n))
    half = (n + 1) / 2 / n
    np.testing.assert_allclose(one, [half / (half + 0.1), 0.0], rtol=1e-9)
    np.testing.assert_allclose(other, [0.0, half / (half + 0.1)], rtol=1e-9)
    claimed = np.sqrt(2) / (n * 0.1)
    assert np.linalg.norm(one - other) > 80 * claimed
    if n == 1001:
        assert np.linalg.norm(one - other) == pytest.approx(1.17871, rel=1e-5)


def test_the_certified_teacher_moves_by_at_most_its_bound_on_the_counterexample():
    n = 1001
    problem = made_problem("squared", n=n, d=2, data_norm=1.0, relation="replace-one")
    rows = np.eye(2)[np.arange(n) % 2]
    neighbour = rows.copy()
    neighbour[0] = [0.0, 1.0]
    solver = Transfer(None, 1.0, 0.1)
    moved = run(solver, problem, rows, np.ones(n))[-1] - run(solver, problem, neighbour, np.ones(n))[-1]
    bound = solver.plan(problem).releases["teacher"].sensitivity(problem.relation)
    assert np.linalg.norm(moved) < bound < 0.021


def test_the_student_without_features_is_the_thresholded_teacher():
    problem = made_problem(intercept=0.7)
    x, y = made_data(problem)
    dense = run(Transfer(None, problem.row_bound, 0.05), problem, x, y)[-1]
    np.testing.assert_array_equal(
        run(Transfer(3, problem.row_bound, 0.05), problem, x, y)[-1], top(dense, 3, 1)
    )


@pytest.mark.parametrize("mode", ["P", "R"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_the_student_finds_a_sparse_teacher_from_its_responses(mode, kind):
    problem = made_problem("squared", n=4000, d=6, intercept=0.5, target_bound=20.0)
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.5, 0.5, (4000, 6))
    y = x[:, 1] * 3 - x[:, 4] * 2 + 0.25
    public = rng.uniform(-1, 1, (80, 6))
    solver = Transfer(2, 50.0, 1e-4, mode, kind(public), 400)
    w = run(solver, problem, x, y)[-1]
    np.testing.assert_allclose(w, [0, 3, 0, 0, -2, 0, 0.5], atol=0.02)


def test_synthetic_features_are_public_choices():
    problem = made_problem()
    options = Options(3, extra={"public_features": "synthetic", "public_rows": 7}, random_state=4)
    ours, again = (make_solver("transfer", problem, options).features for _ in range(2))
    np.testing.assert_array_equal(ours, again)
    assert ours.shape == (7, 9)
    assert np.abs(ours).max() <= 1


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (2100, 2050)])
def test_the_operator_bound_is_an_upper_bound(shape):
    x = np.random.default_rng(0).normal(size=shape) if max(shape) < 100 else np.eye(*shape)
    truth = np.linalg.norm(x, 2) if max(shape) < 100 else 1.0
    for kind in (np.asarray, sparse.csr_matrix):
        assert truth <= operator_bound(kind(x)) <= truth * 1.001


def test_the_responses_move_by_the_operator_norm_of_the_features_with_their_constant():
    problem = made_problem("squared", intercept=0.7)
    public = np.diag(np.arange(1.0, 10.0))
    solver = Transfer(3, 0.9, 2.0, "R", public)
    plain = Transfer(3, 0.9, 2.0).plan(problem).releases["teacher"].sensitivity(problem.relation)
    ours = solver.plan(problem).releases["teacher"].sensitivity(problem.relation)
    norm = np.linalg.norm(with_intercept(public, 0.7), 2)
    assert ours == pytest.approx(norm * plain)


@pytest.mark.parametrize(
    "extra",
    [
        {"mode": "R"},
        {"mode": "Q"},
        {"public_features": np.zeros((3, 4))},
        {"public_features": np.zeros(9)},
        {"strength": 0.0},
        {"student_steps": 0},
        {"teacher": 1},
    ],
)
def test_an_option_out_of_bounds_is_refused(extra):
    with pytest.raises(InvalidInputError):
        make_solver("transfer", made_problem(), Options(3, extra=extra))
