"""What a private search refuses, and that a huge row leaves its score a number."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import sordino
from sordino import bounds
from sordino.errors import InvalidInputError, UndeclaredBoundWarning, UnsupportedError


def search(**options):
    model = sordino.LinearRegression(data_norm=1.0, target_bound=1.0)
    return sordino.PrivateSearchCV(model, {"max_iter": [3, 5]}, epsilon=3.0, delta=1e-6, **options)


def data(n=400):
    public = np.random.default_rng(0)
    X = public.normal(size=(n, 3)) / 3
    return X, X[:, 0].copy()


@pytest.mark.parametrize("huge", [1e308, -1e308])
def test_a_huge_row_leaves_the_score_a_number(huge):
    X, y = data()
    for row in range(0, 400, 40):  # one of them is in the validation part, whatever the split
        X[row], y[row] = huge, -huge
    assert np.isfinite(search().fit(X, y).best_score_)


def test_a_target_that_is_not_a_number_is_refused_before_anything_is_spent(tmp_path):
    X, y = data()
    y[7] = np.nan
    ledger = sordino.Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=5.0, delta=1e-5))
    with pytest.raises(InvalidInputError):
        search(ledger=ledger, dataset_id="ward").fit(X, y)
    assert not ledger.history("ward")


def test_published_noise_leaves_no_model_behind():
    X, _ = data()
    options = {"solver": "ight", "noise": "paper", "max_iter": 5, "data_norm": 1.0, "n_nonzero_coefs": 2}
    grid = {"fit_intercept": [True, False]}
    made = sordino.PrivateSearchCV(sordino.SparseLogisticRegression(**options), grid, epsilon=1.0, delta=1e-6)
    with pytest.raises(UnsupportedError, match="published noise"):
        made.fit(X, X[:, 0] > 0)
    assert not hasattr(made, "best_estimator_")


MODEL = sordino.LinearRegression(data_norm=1.0, target_bound=1.0)
FAULTY = {
    "a name": (MODEL, {"max_itre": [3]}),
    "a value": (MODEL, {"max_iter": [3, 0]}),
    "a solver": (MODEL, {"solver": ["auto", "sgd"]}),
    "no model": (sordino.PCA(2), {"center": [True]}),
    "a pipeline": (make_pipeline(sordino.RowClipper(), MODEL), {"linearregression__max_iter": [3]}),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_candidate_that_cannot_run_is_refused_before_anything_is_spent(fault, tmp_path):
    ledger = sordino.Ledger.open(tmp_path / "ledger.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=5.0, delta=1e-5))
    made = sordino.PrivateSearchCV(*FAULTY[fault], epsilon=3.0, delta=1e-6, ledger=ledger, dataset_id="ward")
    with pytest.raises((InvalidInputError, UnsupportedError)):
        made.fit(*data())
    assert not ledger.history("ward")


def test_a_bound_that_a_candidate_leaves_out_is_said_although_trials_are_silent(monkeypatch):
    monkeypatch.setattr(bounds, "_said", set())  # said once per process, and other tests say it too
    model = sordino.LinearRegression(target_bound=1.0)
    with pytest.warns(UndeclaredBoundWarning, match="data_norm"):
        sordino.PrivateSearchCV(model, {"max_iter": [3]}, epsilon=3.0, delta=1e-6, target_bound=1.0).fit(
            *data()
        )
