"""Claim 7: one finite row of 1e308, or a target that is not a number, made every score of a search NaN."""

import numpy as np
import pytest

import sordino
from sordino.errors import InvalidInputError
from sordino.runs.search import ScoreSum


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


@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324])
def test_no_score_moves_the_sum_by_more_than_half(score):
    class Records:
        targets = np.array([score])

    assert abs(ScoreSum().evaluate(Records, None)[0]) <= 0.5
