"""Without noise, linear models are those of scikit-learn: to 1e-6 for numbers, to 1e-4 for log odds."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression as PlainLinear
from sklearn.linear_model import LogisticRegression as PlainLogistic
from sklearn.linear_model import Ridge

from sordino import LinearRegression, LogisticRegression, SparseLinearRegression, SparseLogisticRegression

INF = float("inf")


def alike(public, n, d):
    return np.sqrt(0.99) * public.normal(size=(n, 1)) + 0.1 * public.normal(size=(n, d))


def heavy(public, n, d):
    return public.standard_t(3, size=(n, d))


DESIGNS = {
    "round": lambda public, n, d: public.normal(size=(n, d)),
    "shifted": lambda public, n, d: public.normal(size=(n, d)) + 3.0,
    "alike": alike,
    "heavy": heavy,
    "sparse": lambda public, n, d: public.normal(size=(n, d)) * (public.random((n, d)) < 0.2),
    "units of 1 to 1,000": lambda public, n, d: public.normal(size=(n, d)) * np.logspace(0, 3, d),
}


def drawn(name, n=2000, d=8):
    public = np.random.default_rng(7)
    X = DESIGNS[name](public, n, d)
    spread = X.std(axis=0)
    s = X @ (public.normal(size=d) / spread)
    return X, spread, s + public.normal(size=n), (s + 2 * public.logistic(size=n) > 0.5).astype(int)


def norm_of(X):
    return 1.01 * float(np.linalg.norm(X, axis=1).max())


def apart(found, right, spread):
    return np.linalg.norm((np.ravel(found) - np.ravel(right)) * spread) / np.linalg.norm(right * spread)


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("kind", [LinearRegression, SparseLinearRegression])
def test_least_squares_is_that_of_scikit_learn(name, kind):
    X, spread, y, _ = drawn(name)
    plain = PlainLinear().fit(X, y)
    rows = sparse.csr_matrix(X) if name == "sparse" else X
    model = kind(INF, data_norm=norm_of(X), target_bound=float(np.abs(y).max())).fit(rows, y)
    assert apart(model.coef_, plain.coef_, spread) < 1e-6
    assert model.intercept_ == pytest.approx(plain.intercept_, abs=1e-5)


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("kind", [LogisticRegression, SparseLogisticRegression])
def test_log_odds_are_those_of_scikit_learn(name, kind):
    X, spread, _, y = drawn(name)
    plain = PlainLogistic(C=1e10, tol=1e-10, max_iter=10_000).fit(X / spread, y)
    model = kind(INF, data_norm=norm_of(X)).fit(X, y)
    assert apart(model.coef_ * spread, plain.coef_, 1.0) < 1e-4


def test_the_log_odds_of_three_classes_are_those_of_scikit_learn():
    X, _, y, signs = drawn("round")
    three = signs + (y > 2)
    plain = PlainLogistic(C=1e10, tol=1e-10, max_iter=10_000).fit(X, three)
    model = LogisticRegression(INF, data_norm=norm_of(X)).fit(X, three)
    centred = model.coef_ - model.coef_.mean(axis=0)  # only differences of the classes matter
    assert apart(centred, plain.coef_ - plain.coef_.mean(axis=0), 1.0) < 1e-3


@pytest.mark.parametrize("alpha", [1e-3, 1.0])
def test_a_ridge_is_that_of_scikit_learn(alpha):
    X, _, y, _ = drawn("alike")
    y = y - y.mean()
    shared = {"fit_intercept": False}
    plain = Ridge(alpha=alpha * len(X), **shared).fit(X, y)
    bounds = {"data_norm": norm_of(X), "target_bound": float(np.abs(y).max())}
    model = LinearRegression(INF, penalty="ridge", alpha=alpha, **bounds, **shared).fit(X, y)
    assert apart(model.coef_, plain.coef_, 1.0) < 1e-4
