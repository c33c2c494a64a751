"""Bounds: what clips in fit clips in predict, and a bound that nobody declared is said aloud, once."""

import warnings

import numpy as np
import pytest
from scipy import sparse

import sordino
from sordino import checks as bounds
from sordino.errors import FitWarning, UndeclaredBoundWarning

PUBLIC = np.random.default_rng(0)
X = PUBLIC.normal(size=(300, 4)) * PUBLIC.choice([0.1, 5.0], size=(300, 1))
Y = (X[:, 0] > 0).astype(int)
CLASSIFIERS = [sordino.LogisticRegression, sordino.SparseLogisticRegression]
REGRESSORS = [sordino.LinearRegression, sordino.SparseLinearRegression]


def clipped(rows, bound):
    return rows * np.minimum(1.0, bound / np.linalg.norm(rows, axis=1))[:, None]


@pytest.fixture
def unsaid(monkeypatch):
    """Let every bound be said again."""
    monkeypatch.setattr(bounds, "_said", set())


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("estimator", [*CLASSIFIERS, *REGRESSORS])
def test_predictions_see_rows_as_fit_saw_them(estimator, kind):
    model = estimator(data_norm=2.0).fit(kind(X), Y)
    by_hand = clipped(X, 2.0) @ np.atleast_2d(model.coef_)[0] + model.intercept_
    if estimator in CLASSIFIERS:
        found = model.decision_function(kind(X))
    else:
        found, by_hand = model.predict(kind(X)), np.clip(by_hand, *model.target_range_)
    np.testing.assert_allclose(found, by_hand, rtol=1e-7, atol=1e-9)


def test_probabilities_see_clipped_rows():
    model = sordino.LogisticRegression(data_norm=2.0).fit(X, Y)
    np.testing.assert_allclose(model.predict_proba(X), model.predict_proba(clipped(X, 2.0)))


def test_a_bound_that_was_changed_after_the_fit_does_not_change_the_model():
    model = sordino.LogisticRegression(data_norm=2.0).fit(X, Y)
    before = model.decision_function(X)
    np.testing.assert_array_equal(model.set_params(data_norm=9.0).decision_function(X), before)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_coordinates_are_those_of_clipped_rows(kind):
    pca = sordino.PCA(2, data_norm=2.0).fit(kind(X))
    by_hand = (clipped(X, 2.0) - pca.mean_) @ pca.components_.T
    np.testing.assert_allclose(pca.transform(kind(X)), by_hand, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("scaler", [sordino.PrivateStandardScaler, sordino.PrivateColumnWeights])
def test_columns_are_scaled_in_rows_clipped_as_in_fit(scaler, kind):
    made = scaler(data_norm=2.0).fit(kind(X))
    found, by_hand = made.transform(kind(X)), (clipped(X, 2.0) - made.mean_) / made.scale_
    found = found.toarray() if sparse.issparse(found) else found
    np.testing.assert_allclose(found, by_hand, rtol=1e-7, atol=1e-9)


SCALERS = [sordino.PrivateStandardScaler, sordino.PrivateColumnWeights]


@pytest.mark.parametrize("estimator", [*CLASSIFIERS, *REGRESSORS, sordino.PCA, *SCALERS])
def test_a_bound_nobody_declared_is_said_once_with_the_remedy(estimator, unsaid):
    names = {"data_norm", "target_bound"} if estimator in REGRESSORS else {"data_norm"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator().fit(X, Y)
        estimator().fit(X, Y)
    caught = [w for w in caught if w.category is not FitWarning]  # of so few records the noise is large
    texts = [str(w.message) for w in caught]
    assert [w.category for w in caught] == [UndeclaredBoundWarning] * len(names)
    assert {w.filename for w in caught} == {__file__}
    assert all(any(f"Pass {name}=" in text for text in texts) for name in names)


@pytest.mark.parametrize("estimator", [*CLASSIFIERS, *REGRESSORS, sordino.PCA, *SCALERS])
def test_a_declared_bound_says_nothing(estimator, unsaid):
    declared = {"data_norm": 1.0, **({"target_bound": 1.0} if estimator in REGRESSORS else {})}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = estimator(**declared).fit(X, Y)
    assert "data_norm = 1 (rows are clipped to it)" in model.privacy_.public


def test_the_bound_of_weights_is_said_only_where_weights_are_given(unsaid):
    model = sordino.LogisticRegression(data_norm=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, Y)
    with pytest.warns(UndeclaredBoundWarning, match="weight_bound"):
        model.fit(X, Y, sample_weight=np.full(len(Y), 0.5))


def test_the_report_says_which_bounds_are_defaults():
    public = sordino.LinearRegression().fit(X, Y).privacy_.public
    assert "data_norm = 1, the default (rows are clipped to it)" in public
    assert "target_bound = 1, the default (targets are clipped to it)" in public


def test_a_search_says_the_bound_of_its_scores_only_where_it_has_one(unsaid):
    declared = {"data_norm": 1.0, "max_iter": 2}
    grid = {"fit_intercept": [True, False]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sordino.PrivateSearchCV(sordino.LogisticRegression(**declared), grid).fit(X, Y)
    regressor = sordino.LinearRegression(**declared, target_bound=1.0)
    with pytest.warns(UndeclaredBoundWarning, match="PrivateSearchCV: no target_bound"):
        sordino.PrivateSearchCV(regressor, grid).fit(X, Y)


@pytest.mark.parametrize("huge", [1.0, 1e6])
def test_what_is_said_of_bounds_does_not_depend_on_the_data(huge):
    rows = np.eye(4)[np.arange(400) % 4] * huge
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sordino.LinearRegression(data_norm=1.0, target_bound=1.0).fit(rows, huge * rows[:, 1])
    assert caught == []
