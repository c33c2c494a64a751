"""The dense estimators from the outside: scikit-learn's rules, penalties, persons, paper noise."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn import linear_model
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import check_estimator
from tests.estimators.test_sparse import NOISE_DIFFERS, NOT_PRIVATE, classes_apart, with_solvers

from sordino import HeavyTailedRegressor, LinearRegression, LogisticRegression, SparseLinearRegression
from sordino.errors import DivergenceWarning, InvalidInputError, NotPrivateWarning
from sordino.problems.losses import Nonconvex, Ridge
from sordino.solvers import capabilities_of, solvers_with
from sordino.testing import seeded_noise_not_private

ESTIMATORS = with_solvers(
    (LogisticRegression, LinearRegression), ("auto", "srm", "agd", "ls-adam"), ("auto",)
)
INF = float("inf")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_scikit_learn_check_passes_when_the_noise_is_the_same(estimator):
    with seeded_noise_not_private(1, same_for_every_fit=True):
        check_estimator(estimator, expected_failed_checks=NOT_PRIVATE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", [LogisticRegression(), LinearRegression()], ids=["classes", "numbers"])
def test_scikit_learn_checks_pass_with_real_noise_but_for_those_that_compare_two_fits(estimator):
    results = check_estimator(estimator, on_fail=None, expected_failed_checks=NOT_PRIVATE)
    failed = {r["check_name"] for r in results if r["status"] == "failed"}
    assert failed <= NOISE_DIFFERS.keys()


@pytest.mark.parametrize("solver", ["auto", *solvers_with(dense=True, sparse=False)])
def test_the_report_certifies_just_below_the_target(solver):
    X, y = classes_apart(n=300)
    privacy = LogisticRegression(0.7, 1e-6, solver=solver, max_iter=6, random_state=3).fit(X, y).privacy_
    assert 0.99 * 0.7 < privacy.epsilon <= 0.7
    assert privacy.delta == 1e-6


def objective(X, y, bound, penalty):
    """Return the logistic loss of rows that are clipped to the bound, the slopes penalised."""
    rows = X * np.minimum(1, bound / np.linalg.norm(X, axis=1))[:, None]
    rows = np.hstack([rows, np.ones((len(X), 1))])
    return lambda w: np.logaddexp(0, -(2 * y - 1) * (rows @ w)).mean() + penalty.value(w[:-1])


@pytest.mark.parametrize("data_norm", [2.0, 6.0])
@pytest.mark.parametrize("task", ["numbers", "counts", "two classes", "three classes"])
def test_ridge_leaves_the_intercept_free_as_scikit_learn_does(task, data_norm):
    rng = np.random.default_rng(8)
    X, alpha, n = rng.uniform(-1, 1, (4000, 4)), 0.2, 4000
    common = {"epsilon": INF, "data_norm": data_norm, "penalty": "ridge", "alpha": alpha}
    if task == "numbers":
        y = 2 + X @ [1.0, 2.0, 0.0, -1.0] + 0.5 * rng.normal(size=n)
        found = LinearRegression(target_bound=12.0, **common).fit(X, y)
        plain = linear_model.Ridge(alpha=n * alpha, tol=1e-10).fit(X, y)
    elif task == "counts":
        y = rng.poisson(np.exp(1 + X @ [0.5, 1.0, 0.0, -0.5])).astype(float)
        found = LinearRegression(loss="poisson", target_bound=60.0, **common).fit(X, y)
        plain = linear_model.PoissonRegressor(alpha=alpha, tol=1e-9).fit(X, y)
    else:
        scores = -2 * (
            X @ np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0], [-1.0, 0.0]]) + rng.logistic(size=(n, 2))
        )
        y = (scores > 3).sum(axis=1) if task == "three classes" else (scores[:, 0] > 3).astype(int)
        found = LogisticRegression(classes=sorted(set(y)), **common).fit(X, y)
        plain = linear_model.LogisticRegression(C=1 / (n * alpha), tol=1e-9, max_iter=1000).fit(X, y)
    intercept = np.ravel(found.intercept_) - (np.mean(found.intercept_) if task == "three classes" else 0.0)
    np.testing.assert_allclose(found.coef_, plain.coef_, atol=0.01)
    np.testing.assert_allclose(intercept, np.ravel(plain.intercept_), atol=0.01)


@pytest.mark.parametrize("solver", ["gd", "srm", "agd", "sgd", "adam"])
@pytest.mark.parametrize(("name", "penalty"), [("ridge", Ridge(0.05)), ("nonconvex", Nonconvex(0.002))])
def test_without_noise_the_penalised_objective_is_minimised(solver, name, penalty):
    X, y = classes_apart()
    y = np.where(np.arange(600) % 5 == 0, 1 - y, y)  # a separable task has no minimiser
    value = objective(X, y, 1.4, penalty)
    whole = {"solver_options": {"batch_size": 600}} if "batch_size" in capabilities_of(solver).reads else {}
    model = LogisticRegression(
        INF, solver=solver, data_norm=1.4, penalty=name, alpha=penalty.alpha, max_iter=1000, **whole
    ).fit(X, y)
    found = value(np.append(model.coef_, model.intercept_))
    best = minimize(value, np.zeros(9), tol=1e-9).fun
    assert found == pytest.approx(best, rel=2e-3)


def test_a_penalty_shrinks_the_automatic_model_on_the_original_columns():
    X, y = classes_apart()
    free, tied = (
        LogisticRegression(INF, penalty="ridge", alpha=alpha).fit(100 * X, y).coef_ for alpha in (0, 5)
    )
    assert np.abs(tied).max() < 0.2 * np.abs(free).max()


def test_all_ten_digits_are_told_apart_at_epsilon_one():
    X, y = load_digits(return_X_y=True)
    with seeded_noise_not_private(5):
        model = LogisticRegression(1.0, 1e-5, data_norm=70.0).fit(X[:1400], y[:1400])
    assert model.score(X[1400:], y[1400:]) > 0.7


def test_least_squares_learns_a_line():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(20_000, 2)) / np.sqrt(2)
    y = X @ [1.2, -0.8] + 0.1
    with seeded_noise_not_private(5):
        model = LinearRegression(1.0, 1e-6, target_bound=2.0).fit(X, y)
    np.testing.assert_allclose(model.coef_, [1.2, -0.8], atol=0.1)


def test_a_sparse_matrix_gives_the_same_model():
    X, y = classes_apart()
    for solver in ("srm", "agd", "ls-sgd"):
        fits = []
        for matrix in (X, sparse.csr_matrix(X)):
            with seeded_noise_not_private(2):
                fits.append(LogisticRegression(5.0, 1e-5, solver=solver, max_iter=5).fit(matrix, y).coef_)
        np.testing.assert_allclose(*fits, rtol=1e-6, atol=1e-9)


def test_parameters_survive_a_clone():
    model = LogisticRegression(
        0.3, penalty="nonconvex", alpha=0.2, solver_options={"smoothing": 2.0}, solver="ls-sgd"
    )
    assert clone(model).get_params() == model.get_params()


def test_smoothing_is_handed_to_the_solver():
    X, y = classes_apart()
    made = [
        LogisticRegression(INF, solver="gd", solver_options=own, max_iter=1, fit_intercept=False)
        .fit(X, y)
        .coef_
        for own in ({}, {"smoothing": 0.0}, {"smoothing": 50.0})
    ]
    np.testing.assert_array_equal(made[0], made[1])
    assert np.ptp(made[2]) < 0.2 * np.ptp(made[0])


def test_a_person_with_many_rows_is_one_unit():
    X, y = classes_apart()
    owner = np.arange(600) // 4
    for solver in ("auto", "srm", "ls-adam"):
        report = LogisticRegression(1.0, 1e-5, solver=solver, max_iter=4).fit(X, y, groups=owner).privacy_
        assert report.unit == "person"
        assert "number of persons: 150" in report.public


def test_owners_of_rows_count_in_regression_too():
    X, _ = classes_apart()
    model = LinearRegression(1.0, 1e-5, solver="gd", max_iter=3).fit(X, X[:, 0], groups=np.arange(600) // 4)
    assert model.privacy_.unit == "person"


def test_a_line_search_is_refused_for_persons():
    X, y = classes_apart()
    with pytest.raises(InvalidInputError, match="groups"):
        LogisticRegression(solver="agd").fit(X, y, groups=np.arange(600) // 4)


@pytest.mark.parametrize("solver", ["srm", "sgd", "ls-sgd"])
def test_published_noise_is_reported_with_the_epsilon_it_gives(solver):
    X, y = classes_apart()
    model = LogisticRegression(
        0.2, 1e-5, solver=solver, noise="paper", solver_options={"batch_size": 20}, max_iter=20
    )
    with pytest.warns(NotPrivateWarning, match="claims epsilon = 0.2"):
        report = model.fit(X, y).privacy_
    assert 0 < report.epsilon < 0.2  # the published noise is larger than needed


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"penalty": "lasso"}, "Expected penalty in"),
        ({"penalty": "ridge", "alpha": -1.0}, r"Expected alpha in \[0, inf\), got -1.0"),
        ({"solver": "ight"}, "The thresholding solvers belong"),
        ({"solver_options": {"smoothing": 1.0}}, "smoothing.*with solver 'auto'. It is read by"),
        ({"solver_options": {"smoothing": -1.0}, "solver": "sgd"}, r"Expected smoothing in \[0, inf\)"),
        ({"solver": "srm", "solver_options": {"gamma": 2.0}}, r"Expected gamma in \(0, 1\]"),
        ({"solver": "srm", "solver_options": {"speed": 2.0}}, r"solver_options among: .*gamma"),
    ],
)
def test_a_bad_parameter_is_named_with_its_bound(changes, match):
    X, y = classes_apart()
    with pytest.raises(InvalidInputError, match=match):
        LogisticRegression(**changes).fit(X, y)


def test_secure_noise_is_for_every_solver():
    X, y = classes_apart()
    for solver in ("auto", "srm", "agd"):
        model = LogisticRegression(solver=solver, secure_noise=True, max_iter=3).fit(X, y)
        assert all("lattice" in r.mechanism or "exact" in r.mechanism for r in model.privacy_.releases)


def test_the_code_on_the_page_about_nonconvex_models_runs(capsys):
    page = Path(__file__).resolve().parents[2] / "docs" / "nonconvex.md"
    for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL):
        exec(compile(block, str(page), "exec"), {})
    assert "recursion" in capsys.readouterr().out


BOUNDED = {"data_norm": 5.0, "target_bound": 1.0}


@pytest.mark.parametrize(
    "model",
    [
        LinearRegression(solver="gd", penalty="ridge", **BOUNDED),
        SparseLinearRegression(solver="ight", **BOUNDED),
        HeavyTailedRegressor(),
    ],
    ids=["dense", "sparse", "heavy-tailed"],
)
def test_coefficients_that_blew_up_are_said_to_be_useless_and_paid_for(model):
    X, y = classes_apart(n=300)
    model.set_params(max_iter=30, solver_options__step_size=1e90, alpha=1e50)
    with pytest.warns(DivergenceWarning, match=r"not finite.*lower step_size.*The budget is spent") as caught:
        model.fit(X, y.astype(float))
    assert not np.isfinite(model.coef_).all()
    assert caught[0].filename == __file__
    assert model.privacy_.epsilon <= 1.0
