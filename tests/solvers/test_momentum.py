"""Momentum is a function of released iterates, on dense and on sparse ones alike."""

import numpy as np
import pytest
from scipy import sparse
from tests.solvers.plain import gradient, made_data, made_problem, run, top

from sordino import SparseLogisticRegression
from sordino.errors import InvalidInputError
from sordino.kernel import Full
from sordino.solvers import Options, make_solver
from sordino.solvers.sparse import Ight, SgdHt
from sordino.solvers.steps import Momentum, SharedPace


def plain(kind, beta, problem, x, y, steps, step, sparsity):
    w = previous = np.zeros(problem.columns)
    for _ in range(steps):
        ahead = w + beta * (w - previous)
        asked = ahead if kind == "nesterov" else w
        moved = ahead - step * gradient(problem, x, y, asked)
        w, previous = top(moved, sparsity, problem.n_intercepts), w
    return w


@pytest.mark.parametrize("kind", ["heavy-ball", "nesterov"])
def test_momentum_is_that_of_the_textbook(kind):
    problem = made_problem(intercept=0.7, ridge=0.1)
    x, y = made_data(problem)
    expected = plain(kind, 0.8, problem, x, y, 12, 0.6, 4)
    momentum = Momentum(kind, 0.8)
    full = run(Ight(4, 12, 0.6, 9.0, momentum=momentum), problem, x, y)[-1]
    stochastic = run(SgdHt(4, 12, 0.6, 9.0, Full(), momentum), problem, sparse.csr_matrix(x), y)[-1]
    np.testing.assert_allclose(full, expected, rtol=1e-10)
    np.testing.assert_allclose(stochastic, expected, rtol=1e-10)


def test_momentum_reaches_the_optimum_in_fewer_steps():
    problem = made_problem(ridge=0.01)
    x, y = made_data(problem)

    def slope(momentum):
        w = run(Ight(None, 40, 1.0, 9.0, momentum=momentum), problem, x, y)[-1]
        return np.linalg.norm(gradient(problem, x, y, w))

    plain_slope = slope(Momentum())
    assert slope(Momentum("nesterov", 0.8)) < 0.2 * plain_slope
    assert slope(Momentum("heavy-ball", 0.8)) < 0.2 * plain_slope


def test_iterates_stay_sparse_vectors_with_momentum():
    problem = made_problem(n=60, d=5000, intercept=0.5)
    x = sparse.random_array((60, 5000), density=0.0005, random_state=np.random.default_rng(0), format="csr")
    solver = SgdHt(7, 3, 0.6, 0.9, Full(), Momentum("nesterov", 0.8))
    ours = run(solver, problem, x, np.ones(60), scale=1.2)[-1]
    assert np.count_nonzero(ours) == 8


@pytest.mark.parametrize(
    "extra", [{"momentum": "adam"}, {"momentum_weight": 1.0}, {"momentum_weight": True}, {"beta": 0.5}]
)
@pytest.mark.parametrize("name", ["ight", "sgd-ht"])
def test_a_momentum_that_does_not_exist_is_refused(name, extra):
    with pytest.raises(InvalidInputError):
        make_solver(name, made_problem(), Options(extra=extra))


@pytest.mark.parametrize("solver", ["ight", "sgd-ht", "svrg-ht", "scsg-ht"])
def test_rows_that_share_a_direction_are_learned_across_it(solver, monkeypatch):
    rng = np.random.default_rng(0)
    across = rng.normal(size=(3000, 40)) / 40**0.5 / 5
    x = 0.95 / 40**0.5 + across
    y = 200 * across[:, :4] @ [1, -1, 1, -1] + rng.logistic(size=3000) > 0

    def loss():
        model = SparseLogisticRegression(4.0, 1e-5, n_nonzero_coefs=8, data_norm=1.0, solver=solver)
        found = model.fit(x, y).predict_proba(x)
        return -np.mean(np.log(np.where(y, found[:, 1], found[:, 0])))

    with_two_probes = loss()
    monkeypatch.setattr(SharedPace, "fits", staticmethod(lambda problem, steps: False))
    assert with_two_probes < 0.8 * loss()  # about .33 and .51


def test_the_two_probes_differ_by_the_mean_of_the_rows():
    problem = made_problem(intercept=0.7)
    x, y = made_data(problem)
    points = (SharedPace.beside(np.zeros(problem.columns), problem, margin) for margin in (30.0, -30.0))
    far, near = (gradient(problem, x, y, w) for w in points)
    np.testing.assert_allclose(far - near, np.append(x.mean(axis=0), 0.7), atol=1e-6)
    assert SharedPace.fits(problem, 10)
    assert not SharedPace.fits(problem, 9)
    assert not SharedPace.fits(made_problem(), 50)  # without an intercept there is no such probe


def test_steps_grow_where_margins_are_sure():
    problem = made_problem(intercept=0.7)
    pace = SharedPace(1.0, 2.0, 0.0, short=0.5)
    here, there = np.zeros(problem.columns), np.zeros(problem.columns)
    there[-1] = 0.7 * 1.5 * problem.curvature  # slopes as steep as they can be
    pace.look(here, there, problem)
    assert (pace.largest, pace.short) == pytest.approx((2.0, 0.5))
    pace.look(here, there / 4, problem)
    assert (pace.largest, pace.short) == pytest.approx((8.0, 2.0))  # across the shared direction and along it
