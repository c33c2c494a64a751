"""noise="paper" runs the published formula and reports the epsilon it really gives."""

import numpy as np
import pytest
from tests.solvers.plain import made_problem

from sordino import SparseLinearRegression, SparseLogisticRegression
from sordino.accounting import gaussian_multiplier
from sordino.errors import InvalidInputError, NotPrivateWarning
from sordino.papers.linear import paper_noise
from sordino.runs import Ask
from sordino.solvers import Options, make_solver


def data(n=400, d=12):
    public = np.random.default_rng(0)
    x = public.normal(size=(n, d)) / np.sqrt(d)
    return x, (x[:, 0] > x[:, 1]).astype(int)


@pytest.mark.filterwarnings("ignore:delta")
@pytest.mark.parametrize(("relation", "truth"), [("replace-one", 12.6596), ("add-remove", 4.6840)])
def test_vector_i2_through_the_estimator(relation, truth):
    model = SparseLogisticRegression(
        10.0, 0.01, n_nonzero_coefs=4, solver="ight", relation=relation, noise="paper", max_iter=7
    )
    with pytest.warns(NotPrivateWarning, match="claims epsilon = 10"):
        model.fit(*data())
    assert model.privacy_.epsilon == pytest.approx(truth, rel=1e-3)
    assert model.privacy_.paper_claim.epsilon == 10.0


@pytest.mark.parametrize(
    ("solver", "options"),
    [
        ("sgd-ht", {"epochs": 2}),
        ("scsg-ht", {"epochs": 2}),
        ("svrg-ht", {"epochs": 2}),
        ("frank-wolfe", {"selection": "laplace"}),
        ("peeled", {"selection": "laplace", "split": True}),
        ("transfer", {"mode": "R", "public_features": "synthetic", "public_rows": 30}),
    ],
)
def test_every_published_solver_reports_its_claim_beside_the_truth(solver, options):
    model = SparseLogisticRegression(
        2.0,
        1e-5,
        n_nonzero_coefs=4,
        solver=solver,
        noise="paper",
        fit_intercept=False,
        solver_options=options,
        random_state=0,
    )
    with pytest.warns(NotPrivateWarning, match="what it certifies"):
        model.fit(*data())
    assert model.privacy_.paper_claim.epsilon == 2.0
    assert model.privacy_.epsilon != pytest.approx(2.0, rel=1e-3)
    assert 0 < np.count_nonzero(model.coef_) <= 4


def multipliers(name, options, epsilon=2.0, relation="add-remove", n=20242):
    problem = made_problem(n=n, d=60, relation=relation, data_norm=1.0)
    solver = make_solver(name, problem, options)
    return paper_noise(name, solver, problem, Ask(epsilon, 1e-5)).multipliers


def test_vectors_s2_and_s5_are_the_multipliers_of_the_printed_noise():
    sgd = multipliers("sgd-ht", Options(10, max_iter=4048, batch_size=100))
    assert sgd["gradient"] == pytest.approx(4.9723, rel=1e-4)
    halved = multipliers("sgd-ht", Options(10, max_iter=4048, batch_size=100), relation="replace-one")
    assert halved["gradient"] == pytest.approx(4.9723 / 2, rel=1e-4)
    scsg = multipliers("scsg-ht", Options(10, batch_size=20, extra={"snapshot_batch": 2024}))
    assert scsg["snapshot"] == pytest.approx(142.327, rel=1e-3)
    assert scsg["correction"] == pytest.approx(0.3516, rel=1e-3)


def test_the_published_noise_would_do_for_the_certified_teacher_on_short_rows():
    """It is the sparse teacher that breaks DPSL-KT: on rows of norm 1 the printed noise is large enough."""
    extra = {"mode": "R", "public_features": "synthetic", "public_rows": 800, "strength": 0.1}
    noise = multipliers("transfer", Options(10, extra=extra, random_state=0), 0.8, "replace-one", 800)
    assert noise["teacher"] > gaussian_multiplier(0.8, 1e-5)


@pytest.mark.parametrize(
    ("solver", "changes"),
    [
        ("two-stage", {}),
        ("coordinate", {}),
        ("frank-wolfe", {}),
        ("peeled", {"solver_options": {"selection": "laplace"}}),
        ("transfer", {}),
        ("ight", {"epsilon": float("inf")}),
    ],
)
def test_a_formula_that_does_not_exist_is_refused(solver, changes):
    model = SparseLinearRegression(
        2.0, 1e-5, n_nonzero_coefs=4, solver=solver, noise="paper", fit_intercept=False
    )
    with pytest.raises(InvalidInputError):
        model.set_params(**changes).fit(*data())


@pytest.mark.parametrize("options", [{"momentun": "none"}, {1: 2}, ["momentum"], "momentum"])
def test_solver_options_are_checked(options):
    with pytest.raises(InvalidInputError, match="solver_options"):
        SparseLogisticRegression(solver_options=options).fit(*data())
