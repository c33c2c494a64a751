"""Huber, Poisson and squared hinge losses: scikit-learn's answer without noise, a useful one with it."""

import math

import numpy as np
import pytest
from sklearn.linear_model import HuberRegressor, PoissonRegressor
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator
from tests.estimators.test_sparse import NOT_PRIVATE

from sordino import LinearClassifier, LinearRegression, SparseLinearRegression
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel import public_generator
from sordino.solvers import SOLVERS, solvers_with
from sordino.testing import seeded_noise_not_private

BETA = np.array([1.0, -0.5, 0.3, 0.0, 0.2])
COUNTS = {"loss": "poisson", "target_bound": 40.0, "data_norm": 2.0}
PLAIN = {"epsilon": math.inf, "solver": "gd", "solver_options": {"clip_norm": 1e6}, "max_iter": 2000}


def rows(n=3000):
    public = public_generator(5)
    X = public.normal(size=(n, 5))
    return public, X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True) / 2)


def counts(n=3000):
    public, X = rows(n)
    return X, np.minimum(public.poisson(np.exp(X @ BETA + 1)), 40).astype(float)


def outliers(n=3000):
    public, X = rows(n)
    return X, np.clip(X @ BETA + 1 + 0.5 * public.standard_t(1.5, size=n), -10, 10)


def two_classes(n=3000):
    public, X = rows(n)
    return X, np.where(X @ BETA + 0.2 + 0.3 * public.logistic(size=n) > 0, "yes", "no")


# ------------------------------------------------------------------------- without noise, scikit-learn


def test_poisson_regression_agrees_with_scikit_learn_to_seven_digits():
    X, y = counts()
    ours = LinearRegression(penalty="ridge", alpha=0.01, fit_intercept=False, **PLAIN, **COUNTS)
    ours.set_params(solver_options__step_size=0.05)
    theirs = PoissonRegressor(alpha=0.01, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.fit(X, y).coef_, theirs.coef_, atol=1e-7)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-6)


def test_huber_regression_agrees_with_scikit_learn_to_five_digits():
    X, y = outliers()
    theirs = HuberRegressor(alpha=0.0, tol=1e-10, max_iter=10_000).fit(X, y)
    threshold = theirs.epsilon * theirs.scale_  # scikit-learn learns the scale; ours is a public number
    ours = LinearRegression(
        loss="huber", huber_threshold=threshold, target_bound=10.0, data_norm=2.0, **PLAIN
    )
    np.testing.assert_allclose(ours.fit(X, y).coef_, theirs.coef_, atol=1e-5)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-5)


def test_the_squared_hinge_agrees_with_scikit_learn_to_seven_digits():
    X, y = two_classes()
    ours = LinearClassifier(
        loss="squared_hinge", penalty="ridge", alpha=0.01, fit_intercept=False, data_norm=2.0, **PLAIN
    )
    theirs = LinearSVC(C=1 / (2 * len(X) * 0.01), fit_intercept=False, tol=1e-10, max_iter=10**5).fit(X, y)
    np.testing.assert_allclose(ours.fit(X, y).coef_, theirs.coef_, atol=1e-7)
    assert (ours.predict(X) == theirs.predict(X)).all()


@pytest.mark.parametrize("unit", [0.01, 1.0, 1000.0])
def test_the_default_solver_minimises_the_huber_loss_whatever_the_unit_of_the_targets(unit):
    X, y = outliers()
    facts = {"target_bound": 10 * unit, "data_norm": 2.0, "solver_options": {"clip_norm": 1e6}}
    ours = LinearRegression(math.inf, loss="huber", huber_threshold=unit, **facts).fit(X, unit * y)
    plain = LinearRegression(loss="huber", target_bound=10.0, data_norm=2.0, **PLAIN).fit(X, y)
    np.testing.assert_allclose(ours.coef_ / unit, plain.coef_, atol=2e-3)


# ----------------------------------------------------------------------------------------- with noise


def test_a_private_poisson_regression_finds_the_rates():
    X, y = counts()
    with seeded_noise_not_private(3):
        model = LinearRegression(1.0, 1e-5, **COUNTS).fit(X, y)
    np.testing.assert_allclose(model.coef_, BETA, atol=0.15)
    assert model.intercept_ == pytest.approx(1.0, abs=0.15)
    assert model.privacy_.epsilon <= 1.0
    assert (model.predict(X) > 0).all()


def test_a_private_huber_regression_is_not_moved_by_outliers():
    X, y = outliers()
    with seeded_noise_not_private(3):
        model = LinearRegression(1.0, 1e-5, loss="huber", target_bound=10.0, data_norm=2.0).fit(X, y)
    np.testing.assert_allclose(model.coef_, BETA, atol=0.15)


def test_a_private_support_vector_machine_is_as_good_as_the_plain_one():
    X, y = two_classes()
    with seeded_noise_not_private(3):
        model = LinearClassifier(1.0, 1e-5, loss="squared_hinge", data_norm=2.0).fit(X, y)
    assert model.score(X, y) > LinearSVC().fit(X, y).score(X, y) - 0.02


def test_a_sparse_poisson_regression_keeps_so_many_coefficients():
    X, y = counts()
    with seeded_noise_not_private(3):
        model = SparseLinearRegression(3.0, 1e-5, n_nonzero_coefs=2, **COUNTS).fit(X, y)
    assert model.support_.tolist() == [0, 1]


# ------------------------------------------------------------------------------- what fits, what does not

LOSSES = ("huber", "poisson")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("solver", sorted(SOLVERS["linear"]))
def test_every_solver_takes_the_loss_or_says_before_spending_that_it_cannot(solver, loss, tmp_path):
    X, y = counts(300)
    estimator = SparseLinearRegression if SOLVERS["linear"][solver].capabilities.sparse else LinearRegression
    model = estimator(1.0, 1e-5, loss=loss, solver=solver, target_bound=40.0, data_norm=2.0)
    if not SOLVERS["linear"][solver].capabilities.knows(loss):
        with pytest.raises(UnsupportedError, match=f"Solver '{solver}' needs a loss in .* got '{loss}'"):
            model.set_params(ledger=tmp_path / "none.sqlite", dataset_id="none").fit(X, y)
    else:
        assert np.isfinite(model.fit(X, y).coef_).all()
        assert np.isfinite(model.predict(1e9 * X)).all()


@pytest.mark.parametrize("solver", ["auto", *solvers_with(dense=True, sparse=False)])
def test_every_dense_solver_takes_the_squared_hinge(solver):
    X, y = two_classes(300)
    model = LinearClassifier(1.0, 1e-5, loss="squared_hinge", solver=solver, data_norm=2.0).fit(X, y)
    assert np.isfinite(model.coef_).all()


@pytest.mark.filterwarnings("ignore:.*the model is the mean:sordino.errors.FitWarning")
@pytest.mark.parametrize("bound", [1e-3, 1.0, 1e6, 1e12])
@pytest.mark.parametrize("size", [0.0, 1e-3, 1e12])
def test_the_default_solver_stays_finite_on_counts_of_any_size(bound, size):
    X, y = counts(300)
    model = LinearRegression(0.5, 1e-5, loss="poisson", target_bound=bound, data_norm=2.0).fit(X, size * y)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.predict(X)).all()


def test_targets_below_zero_count_as_zero_for_poisson_without_a_word():
    X, y = counts(300)
    with seeded_noise_not_private(1, same_for_every_fit=True):
        one, other = (LinearRegression(1.0, 1e-5, **COUNTS).fit(X, t) for t in (y, np.where(y == 0, -7, y)))
    np.testing.assert_array_equal(one.coef_, other.coef_)


def test_only_the_logistic_loss_has_probabilities():
    assert hasattr(LinearClassifier(), "predict_proba")
    assert not hasattr(LinearClassifier(loss="squared_hinge"), "predict_proba")
    assert not hasattr(LinearClassifier(loss="squared_hinge"), "predict_log_proba")


def test_three_classes_need_the_logistic_loss():
    X, _ = two_classes(300)
    with pytest.raises(UnsupportedError, match="Only binary classification"):
        LinearClassifier(loss="squared_hinge").fit(X, np.arange(300) % 3)


@pytest.mark.parametrize(
    "model",
    [
        LinearClassifier(loss="hinge"),
        LinearClassifier(loss="squared-hinge"),
        LinearClassifier(loss=3),
        LinearRegression(loss="logistic", target_bound=1.0),
        LinearRegression(loss=None, target_bound=1.0),
        LinearRegression(loss="huber", huber_threshold=0.0, target_bound=1.0),
    ],
    ids=repr,
)
def test_unknown_losses_are_refused(model):
    X, _ = two_classes(300)
    with pytest.raises(InvalidInputError, match=r"Expected (loss|huber_threshold)"):
        model.fit(X, np.arange(300) % 2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "estimator",
    [
        LinearClassifier(loss="squared_hinge"),
        LinearRegression(loss="poisson"),
        SparseLinearRegression(loss="huber"),
    ],
    ids=["squared_hinge", "poisson", "huber"],
)
def test_every_scikit_learn_check_passes_when_the_noise_is_the_same(estimator):
    with seeded_noise_not_private(1, same_for_every_fit=True):
        check_estimator(estimator, expected_failed_checks=NOT_PRIVATE)
