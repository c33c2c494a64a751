"""Frank-Wolfe: the textbook's steps without noise, vertices with their signs, lazy on sparse data."""

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.linear_model import Lasso
from tests.solvers.plain import gradient, made_data, made_problem, run

from sordino.accounting import calibrate
from sordino.errors import InvalidInputError
from sordino.kernel import Relation
from sordino.solvers import Options, make_solver
from sordino.solvers.baselines import FrankWolfe


def plain(problem, x, y, steps, radius):
    w = np.zeros(problem.columns)
    for t in range(1, steps + 1):
        g = gradient(problem, x, y, w, free=False)
        j = np.argmax(np.abs(g))
        vertex = np.zeros_like(w)
        vertex[j] = -radius * np.sign(g[j])
        w = (1 - 2 / (t + 2)) * w + 2 / (t + 2) * vertex
    return w


@pytest.mark.parametrize("selection", ["gumbel", "laplace"])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_without_noise_it_is_frank_wolfe(selection, kind):
    problem = made_problem(intercept=0.7, ridge=0.05)
    x, y = made_data(problem)
    ours = run(FrankWolfe(None, 15, 9.0, 6.0, selection), problem, kind(x), y)[-1]
    np.testing.assert_allclose(ours, plain(problem, x, y, 15, 6.0), rtol=1e-9)


def test_it_approaches_the_lasso_of_the_same_radius():
    problem = made_problem("squared", target_bound=30.0)
    x, y = made_data(problem)
    lasso = Lasso(alpha=0.05, fit_intercept=False, tol=1e-10).fit(x, y)
    radius = np.abs(lasso.coef_).sum()
    ours = run(FrankWolfe(None, 600, 99.0, radius), problem, x, y)[-1]
    loss = [np.mean((x @ w - y) ** 2) / 2 for w in (ours, lasso.coef_, np.zeros(9))]
    assert loss[0] - loss[1] < 0.005 * (loss[2] - loss[1])
    assert np.abs(ours).sum() <= radius * (1 + 1e-12)


def test_the_iterate_is_thresholded_but_its_intercept_stays():
    problem = made_problem(intercept=0.7)
    x, y = made_data(problem)
    w = run(FrankWolfe(2, 15, 9.0, 6.0), problem, x, y, scale=1.4)[-1]
    assert np.count_nonzero(w[:-1]) <= 2


def test_vector_b1_is_the_calibrated_gumbel_scale():
    problem = made_problem(n=1000)
    plan = calibrate(FrankWolfe(None, 50, 0.4, 6.0).plan(problem), 2.0, 1e-5)
    assert plan.releases["vertex"].mechanism.multiplier == pytest.approx(15.1965, rel=5e-3)


def test_gumbel_needs_less_noise_than_the_laplace_of_the_paper():
    problem = made_problem(n=1000)
    scales = [
        calibrate(FrankWolfe(None, 50, 0.4, 6.0, s).plan(problem), 1.0, 1e-5).releases["vertex"].mechanism
        for s in ("gumbel", "laplace")
    ]
    assert scales[0].multiplier < 0.6 * scales[1].multiplier


@pytest.mark.statistical
def test_lazy_and_dense_selections_have_the_same_law():
    problem = made_problem(n=10, d=300)
    x = sparse.random_array((10, 300), density=0.01, random_state=np.random.default_rng(0), format="csr")
    y = np.ones(10)
    solver = FrankWolfe(None, 1, 0.4, 6.0)
    touched = np.flatnonzero(x.toarray().any(axis=0))
    hits = []
    for data, start in ((x, 0), (x.toarray(), 10_000)):
        found = [np.flatnonzero(run(solver, problem, data, y, 0.3, start + s)[-1])[0] for s in range(1500)]
        hits.append(np.isin(found, touched).sum())
    table = np.array([hits, 1500 - np.array(hits)])
    assert stats.chi2_contingency(table).pvalue > 1e-4
    assert 300 < hits[0] < 1300


def test_replacing_a_record_costs_twice_the_scale():
    problem = made_problem(n=1000)
    release = FrankWolfe(None, 5, 0.4, 6.0).plan(problem).releases["vertex"]
    w = np.zeros(9)
    assert release.sensitivity(Relation.ADD_REMOVE, w) == 0.4
    assert release.sensitivity(Relation.REPLACE_ONE, w) == 0.8


def test_the_default_bound_on_an_entry_is_a_quarter_of_that_on_the_norm():
    problem = made_problem(intercept=0.5, data_norm=1.5)
    solver = make_solver("frank-wolfe", problem, Options(7))
    assert solver.clip == pytest.approx(0.25 * np.hypot(1.5, 0.5))
    assert solver.steps == 7


@pytest.mark.parametrize("extra", [{"radius": 0}, {"radius": -2.0}, {"selection": "max"}, {"size": 1}])
def test_an_option_out_of_bounds_is_refused(extra):
    with pytest.raises(InvalidInputError):
        make_solver("frank-wolfe", made_problem(), Options(3, extra=extra))
