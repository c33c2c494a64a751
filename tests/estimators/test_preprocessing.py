"""Preprocessing, pipelines and searches have one honest guarantee."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import sordino
from sordino.errors import InvalidInputError, PrivacyWarning, UnsupportedError
from sordino.kernel.noise import NoiseSource, halting_probability
from sordino.testing import seeded_noise_not_private


def data(n=3000, d=5, seed=0):
    public = np.random.default_rng(seed)
    X = public.normal(size=(n, d)) * [0.05, 0.1, 0.2, 0.3, 0.05] + 0.1
    return X, (X[:, 2] > 0.1).astype(int)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "transformer", [sordino.RowClipper(), sordino.PrivateStandardScaler(), sordino.PrivateColumnWeights()]
)
def test_transformers_pass_the_scikit_learn_checks(transformer):
    with seeded_noise_not_private(2, same_for_every_fit=True):
        check_estimator(transformer)


def test_private_scaling_finds_means_and_deviations():
    X, _ = data(50_000)
    scaler = sordino.PrivateStandardScaler(epsilon=4.0, delta=1e-6, data_norm=2.0).fit(X)
    assert 0.99 * 4 < scaler.privacy_.epsilon <= 4
    np.testing.assert_allclose(scaler.mean_, X.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(scaler.scale_, X.std(axis=0), rtol=0.15)


def test_sparse_and_dense_scaling_release_the_same_moments():
    X, _ = data()
    X = X * (np.abs(X) > 0.15)
    scales = []
    for matrix in (X, sparse.csr_matrix(X)):
        with seeded_noise_not_private(3):
            scales.append(sordino.PrivateColumnWeights(epsilon=3.0).fit(matrix).scale_)
    np.testing.assert_allclose(*scales, rtol=1e-9)


def test_row_clipping_keeps_short_rows_and_shortens_long_ones():
    X = np.array([[0.3, 0.4], [30.0, 40.0]])
    clipped = sordino.RowClipper(data_norm=2.0).fit_transform(X)
    np.testing.assert_allclose(clipped, [[0.3, 0.4], [1.2, 1.6]])
    np.testing.assert_allclose(
        sordino.RowClipper(data_norm=2.0).fit_transform(sparse.csr_matrix(X)).toarray(), clipped
    )


def test_a_pipeline_costs_more_than_each_step_and_at_most_their_sum():
    X, y = data()
    pipe = make_pipeline(
        sordino.PrivateStandardScaler(epsilon=0.5, delta=1e-6, data_norm=2.0),
        sordino.RowClipper(),
        sordino.SparseLogisticRegression(epsilon=1.0, delta=1e-6, classes=[0, 1]),
    ).fit(X, y)
    whole = sordino.pipeline_privacy(pipe)
    assert 1.0 < whole.epsilon <= 1.5
    assert any("rowclipper" in note and "nothing paid" in note for note in whole.notes)
    assert len(whole.releases) == len(pipe[-1].privacy_.releases) + 1


def test_a_pipeline_of_two_relations_is_refused():
    X, y = data()
    pipe = make_pipeline(
        sordino.PrivateStandardScaler(relation="replace-one", data_norm=2.0),
        sordino.SparseLogisticRegression(),
    ).fit(X, y)
    with pytest.raises(InvalidInputError, match="same relation"):
        sordino.pipeline_privacy(pipe)


@pytest.mark.parametrize("distribution", ["geometric", "poisson", "truncated-negative-binomial"])
def test_a_private_search_spends_one_epsilon_and_releases_one_model(distribution):
    X, y = data()
    search = sordino.PrivateSearchCV(
        sordino.SparseLogisticRegression(),
        {"n_nonzero_coefs": [1, 3, None]},
        epsilon=3.0,
        delta=1e-6,
        mean_trials=8,
        distribution=distribution,
    )
    with seeded_noise_not_private(11):
        search.fit(X, y)
    assert 0.99 * 3 < search.privacy_.epsilon <= 3
    assert search.best_estimator_.privacy_ is search.privacy_  # never the epsilon of one trial
    assert search.score(X, y) > 0.8
    assert set(search.best_params_) == {"n_nonzero_coefs"}


def test_a_private_search_refuses_what_its_accounting_does_not_cover():
    X, y = data()
    grid = {"n_nonzero_coefs": [1, 3]}
    with pytest.raises(UnsupportedError, match="all Gaussian"):
        sordino.PrivateSearchCV(
            sordino.SparseLogisticRegression(solver="sgd-ht", max_iter=5), grid, delta=1e-6
        ).fit(X, y)
    with pytest.raises(InvalidInputError, match="belong to the search"):
        sordino.PrivateSearchCV(sordino.SparseLogisticRegression(), {"epsilon": [1, 2]}).fit(X, y)


def test_a_private_search_is_booked_once(tmp_path):
    X, y = data()
    ledger = sordino.Ledger.open(tmp_path / "budget.db")
    ledger.create("ward", sordino.BudgetPolicy(epsilon=2.0, delta=1e-6))
    sordino.PrivateSearchCV(
        sordino.SparseLogisticRegression(ledger=ledger, dataset_id="ward"),
        {"n_nonzero_coefs": [1, 3]},
        epsilon=2.0,
        delta=1e-6,
        ledger=ledger,
        dataset_id="ward",
    ).fit(X, y)
    assert [entry.status for entry in ledger.history("ward") if entry.epsilon] == ["settled"]


@pytest.mark.parametrize(("mean", "shape"), [(6.0, np.inf), (6.0, 1.0), (6.0, 0.5)])
def test_the_number_of_trials_has_the_mean_that_was_paid_for(mean, shape):
    noise = NoiseSource.seeded_not_private(8)
    draws = np.array([noise.trials(mean, shape) for _ in range(20_000)])
    assert abs(draws.mean() - mean) < 5 * draws.std() / np.sqrt(draws.size)
    assert (draws.min() == 0) == np.isinf(shape)


def test_the_halting_probability_gives_the_mean():
    p = halting_probability(6.0, 0.5)
    assert 0.5 * (1 - p) / (p * (1 - p**0.5)) == pytest.approx(6.0)


def test_a_plain_search_warns_and_the_refit_says_how_many_fits_there_were():
    X, y = data(400)
    with pytest.warns(PrivacyWarning, match="sum over folds and candidates"):
        search = GridSearchCV(sordino.SparseLogisticRegression(), {"n_nonzero_coefs": [1, 3]}, cv=3).fit(X, y)
    assert any("6 other fits" in note for note in search.best_estimator_.privacy_.notes)
