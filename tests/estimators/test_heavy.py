"""Heavy-tailed statistics and learners from the outside."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import sordino
from sordino import (
    HeavyTailedClassifier,
    HeavyTailedRegressor,
    MedianOfMeans,
    SparseLinearRegression,
    TruncatedMean,
)
from sordino.errors import BudgetExceededError, FitWarning, InvalidInputError
from sordino.solvers.heavy.learners import L1Ball, L2Ball
from sordino.testing import seeded_noise_not_private

LEARNERS = [
    pytest.param(HeavyTailedRegressor(), id="regressor"),
    pytest.param(
        HeavyTailedRegressor(loss="huber", solver_options={"gradient": "truncated", "split": True}),
        id="huber",
        marks=pytest.mark.long,  # what these checks try is the door, which is that of the regressor
    ),
    pytest.param(HeavyTailedRegressor(n_nonzero_coefs=1, max_iter=6), id="sparse", marks=pytest.mark.long),
    pytest.param(HeavyTailedClassifier(), id="classifier"),
    pytest.param(TruncatedMean(), id="truncated-mean"),
    pytest.param(MedianOfMeans(), id="median-of-means"),
    pytest.param(
        HeavyTailedClassifier(solver_options={"gradient": "median-of-means"}, solver="convex", max_iter=6),
        id="medians",
        marks=pytest.mark.long,
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", LEARNERS)
def test_every_scikit_learn_check_passes_when_the_noise_is_the_same(estimator):
    with seeded_noise_not_private(1, same_for_every_fit=True):
        check_estimator(estimator)


def heavy(n=8000, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X, w = rng.standard_t(2.2, size=(n, d)), np.array([2.0, -1.0, 0.0, 0.5])[:d]
    return X, X @ w + 1.5 + rng.standard_t(2.2, size=n), w


# ----------------------------------------------------------------------------------------- statistics

LAWS = {
    "pareto": (lambda rng, n: rng.pareto(2.5, n) + 1, 2.5 / 1.5),
    "student": (lambda rng, n: rng.standard_t(2.2, n), 0.0),
    "lognormal": (lambda rng, n: rng.lognormal(sigma=1.5, size=n), np.exp(1.125)),
    "far": (lambda rng, n: 1e4 + rng.normal(size=n), 1e4),
}


@pytest.mark.parametrize("estimator", ["truncated", "median-of-means"])
@pytest.mark.parametrize("law", LAWS)
def test_the_interval_holds_the_mean_as_often_as_it_says(law, estimator):
    draw, truth = LAWS[law]
    rng, hits = np.random.default_rng(5), 0
    with seeded_noise_not_private(3):
        for _ in range(60):
            found = sordino.mean(draw(rng, 3000), 1.0, estimator=estimator)
            hits += found.interval[0] <= truth <= found.interval[1]
    assert hits >= stats.binom.ppf(1e-3, 60, 0.95)


def test_an_interval_is_not_infinitely_wide():
    x = np.random.default_rng(0).lognormal(size=20_000)
    low, high = sordino.mean(x, 1.0).interval
    assert high - low < 0.5


HEAVY = np.random.default_rng(0).pareto(1.0, size=2000)  # no mean


def endless(statistic, **options):
    """Return an answer about numbers without a mean, and what was warned."""
    with warnings.catch_warnings(record=True) as said, seeded_noise_not_private(2):
        warnings.simplefilter("always")
        found = getattr(sordino, statistic)(HEAVY, 1.0, **options)
    return found, [str(w.message) for w in said]


@pytest.mark.parametrize("statistic", ["mean", "variance"])
def test_an_interval_that_the_counts_cannot_end_says_so_once_and_names_the_remedies(statistic):
    found, said = endless(statistic)
    assert found.interval[1] == np.inf
    assert np.isfinite(found.interval[0])
    assert len(said) == 1
    for remedy in ("bounds=", "moment_order=", "quantiles(x, 0.5)", statistic):
        assert remedy in said[0]


@pytest.mark.parametrize("options", [{"moment_order": 0.3}, {"bounds": (0.0, 500.0)}])
@pytest.mark.parametrize("statistic", ["mean", "variance"])
def test_a_declared_moment_and_declared_bounds_end_an_interval(statistic, options):
    found, said = endless(statistic, **options)
    assert np.isfinite(found.interval).all()
    assert found.interval[0] <= found <= found.interval[1]
    assert not said


def test_numbers_are_clipped_to_their_bounds_and_the_report_says_so():
    x = np.r_[np.zeros(500), np.full(500, 1e9)]
    found = sordino.mean(x, np.inf, bounds=(-1.0, 3.0))
    assert found == pytest.approx(1.5)
    assert -1.0 <= found.interval[0] <= found.interval[1] <= 3.0
    assert any("bounds = [-1, 3]" in line for line in found.privacy.public)
    assert sordino.variance(x, np.inf, bounds=(-1.0, 3.0)) == pytest.approx(2.25)
    with seeded_noise_not_private(0):
        for _ in range(20):
            assert 0.0 <= sordino.mean(np.full(20, 0.5), 0.1, bounds=(0.0, 1.0)) <= 1.0


@pytest.mark.parametrize("bounds", [(1.0, 0.0), (0.0, np.inf), (0.0,), "ab", (np.nan, 1.0)])
def test_wrong_bounds_are_refused(bounds):
    for statistic in (sordino.mean, sordino.variance):
        with pytest.raises(sordino.errors.InvalidInputError, match="bounds"):
            statistic(HEAVY, 1.0, bounds=bounds)


@pytest.mark.parametrize("options", [{"threshold": 3.0}, {"joint_clip": 0.5}])
def test_an_interval_is_infinite_where_the_bias_is_unknown(options):
    x = np.random.default_rng(0).lognormal(size=(2000, 2))
    assert np.isinf(sordino.mean(x, 1.0, **options).interval).all()


def test_too_few_records_to_see_a_scale_give_an_infinite_interval_and_no_huge_number():
    rare = (np.arange(1000) % 100 == 0).astype(float)
    with seeded_noise_not_private(0):
        for _ in range(30):
            for x, epsilon in ((np.arange(20.0), 0.1), (rare, 0.5)):
                found = sordino.mean(x, epsilon)
                assert np.isinf(found.interval).all()
                assert abs(found) < 100


def test_a_known_moment_gives_the_threshold_of_the_theory():
    x = np.random.default_rng(0).pareto(2.5, 5000)
    found = sordino.mean(x, 1.0, 1e-5, moment_order=0.5, moment_bound=4.0, failure_probability=0.1)
    z = found.privacy.releases[0].noise_multiplier
    assert found.threshold == pytest.approx((4.0 * 5000 / (np.log(10) * z)) ** (1 / 1.5))


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_the_budget_is_met_and_reported(relation):
    x = np.random.default_rng(0).pareto(2.5, 500)
    for value in (
        sordino.mean(x, 0.8, 1e-6, relation=relation),
        sordino.variance(x, 0.8, 1e-6, relation=relation),
        sordino.quantiles(x, 0.5, 0.8, 1e-6, relation=relation),
        sordino.covariance(np.stack([x, x], 1), 0.8, 1e-6, relation=relation),
    ):
        assert 0.99 * 0.8 < value.privacy.epsilon <= 0.8
        assert value.privacy.relation == relation


def test_rows_give_one_mean_per_column_whatever_their_scales():
    rng = np.random.default_rng(0)
    x = rng.standard_t(3, size=(20_000, 3)) * [1e-3, 1.0, 1e6] + [1e-3, 0.0, 2e6]
    with seeded_noise_not_private(1):
        found = sordino.mean(x, 2.0)
    np.testing.assert_allclose((found - x.mean(axis=0)) / x.std(axis=0), 0, atol=0.05)
    assert found.shape == (3,)
    assert found.threshold.shape == (3,)


@pytest.mark.parametrize(("kind", "name"), [(TruncatedMean, "truncated"), (MedianOfMeans, "median-of-means")])
def test_the_classes_and_the_function_agree(kind, name):
    x = np.random.default_rng(0).standard_t(3, size=(500, 2))
    with seeded_noise_not_private(1, same_for_every_fit=True):
        model = kind(0.7, moment_order=0.5, confidence=0.9).fit(x)
        found = sordino.mean(x, 0.7, moment_order=0.5, confidence=0.9, estimator=name)
    np.testing.assert_array_equal(model.location_, found)
    np.testing.assert_array_equal(model.interval_, found.interval)
    assert model.privacy_ == found.privacy


def test_a_joint_clip_lowers_the_noise_of_many_columns():
    x = np.random.default_rng(0).standard_t(3, size=(2000, 50))
    with seeded_noise_not_private(1, same_for_every_fit=True):
        plain, joint = sordino.mean(x), sordino.mean(x, joint_clip=1.0)
    assert np.linalg.norm(joint) < 0.6 * np.linalg.norm(plain)


def test_the_variance_needs_no_location_and_the_covariance_is_psd():
    rng = np.random.default_rng(0)
    x = rng.standard_t(6, size=(40_000, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]]) * [1, 50] + 1e5
    with seeded_noise_not_private(2):
        spread, both = sordino.variance(x, 2.0), sordino.covariance(x, 2.0)
    np.testing.assert_allclose(spread, np.var(x, axis=0), rtol=0.1)
    np.testing.assert_allclose(both, np.cov(x.T), rtol=0.2)
    assert (np.linalg.eigvalsh(both) >= -1e-9).all()
    assert (both.interval[0] <= np.cov(x.T)).all()
    assert (np.cov(x.T) <= both.interval[1]).all()
    assert (spread.interval[0] <= np.var(x, axis=0)).all()


def test_quantiles_are_near_and_inside_their_intervals():
    x = np.random.default_rng(0).standard_cauchy(20_000)
    q = [0.01, 0.25, 0.5, 0.75, 0.99]
    with seeded_noise_not_private(2):
        found = sordino.quantiles(x, q)
    ranks = [(x <= value).mean() for value in found]
    np.testing.assert_allclose(ranks, q, atol=0.01)
    exact = np.tan(np.pi * (np.array(q) - 0.5))
    assert ((found.interval[0] <= exact) & (exact <= found.interval[1])).all()
    assert (np.diff(found) >= 0).all()


def test_quantiles_of_a_constant_and_of_bounded_data_are_found():
    with seeded_noise_not_private(2):
        assert sordino.quantiles(np.full(5000, 5.0), 0.5) == pytest.approx(5.0, rel=0.01)
        assert sordino.quantiles(np.full(5000, 1e6 + 3), 0.5, bounds=(1e6, 1e6 + 10)) == pytest.approx(
            1e6 + 3, abs=0.01
        )
        assert sordino.quantiles(np.zeros(5000), 0.3) == pytest.approx(0.0, abs=1e-9)


def test_without_privacy_the_statistics_are_exact():
    x = np.random.default_rng(0).lognormal(sigma=2, size=1001)
    inf = float("inf")
    assert sordino.mean(x, inf) == pytest.approx(x.mean())
    assert sordino.mean(x, inf, moment_bound=50.0) == pytest.approx(x.mean())
    assert sordino.variance(x, inf) == pytest.approx(x.var())
    assert sordino.quantiles(x, 0.5, inf) == pytest.approx(np.median(x), rel=0.02)


def test_a_released_number_is_a_number_and_survives_a_pickle():
    x = np.random.default_rng(0).normal(size=(100, 2))
    number, array = sordino.mean(x[:, 0]), sordino.mean(x)
    assert isinstance(number, float)
    assert number + 1 == float(number) + 1
    assert isinstance(array, np.ndarray)
    assert (array * 2).privacy is None
    for value in (number, array):
        again = pickle.loads(pickle.dumps(value))
        assert again.privacy == value.privacy
        assert np.all(again == value)


def test_secure_noise_gives_multiples_of_the_lattice():
    x = np.random.default_rng(0).normal(size=500)
    found = sordino.mean(x, secure_noise=True, threshold=2.0)
    std = found.privacy.releases[0].noise_multiplier
    spacing = 2.0 ** (np.floor(np.log2(std)) - 28)
    steps = float(found) * 500 / 2.0 / spacing
    assert abs(steps - round(steps)) < 1e-3
    blocks = sordino.mean(x, secure_noise=True, threshold=2.0, estimator="median-of-means")
    assert "lattice" in blocks.privacy.releases[0].mechanism


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"moment_order": 1.2}, "moment_order"),
        ({"moment_order": 0}, "moment_order"),
        ({"moment_bound": -1}, "moment_bound"),
        ({"moment_bound": "large"}, "moment_bound"),
        ({"estimator": "mode"}, "estimator"),
        ({"truncation": "half"}, "truncation"),
        ({"confidence": 1.0}, "confidence"),
        ({"threshold": 0}, "threshold"),
        ({"joint_clip": -2}, "joint_clip"),
        ({"relation": "swap"}, "relation"),
    ],
)
def test_a_wrong_parameter_is_named(wrong, words):
    with pytest.raises(InvalidInputError, match=words):
        sordino.mean(np.ones(50), **wrong)


@pytest.mark.parametrize("x", [[], [1.0, np.nan], [1.0, np.inf], ["a", "b"], np.ones((2, 2, 2)), 3.0])
def test_what_is_not_finite_numbers_is_refused(x):
    with pytest.raises(InvalidInputError):
        sordino.mean(x)


@pytest.mark.parametrize("n", [1, 2, 10, 11])
def test_few_records_make_few_blocks(n):
    found = sordino.mean(np.arange(n, dtype=float), np.inf, estimator="median-of-means")
    assert found == pytest.approx((n - 1) / 2, abs=1.0)


def test_a_mean_is_booked_in_the_ledger_and_refused_beyond_the_budget(tmp_path):
    ledger = sordino.Ledger.open(tmp_path / "ledger.db")
    ledger.create("incomes", sordino.BudgetPolicy(epsilon=1.0, delta=1e-5))
    x = np.random.default_rng(0).pareto(3, 2000)
    sordino.mean(x, 0.9, 1e-6, ledger=ledger, dataset_id="incomes")
    with pytest.raises(BudgetExceededError):
        sordino.mean(x, 0.9, 1e-6, ledger=ledger, dataset_id="incomes")


# ------------------------------------------------------------------------------------------- learners


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"solver_options": {"gradient": "truncated"}},
        {"loss": "huber"},
        {"solver": "convex", "max_iter": 60},
        {"solver_options": {"scale_columns": False}},
        {"relation": "replace-one"},
        {"solver_options": {"truncation": "zero", "gradient": "truncated"}},
        {"solver_options": {"constraint": L2Ball(3.0)}},
    ],
    ids=str,
)
def test_a_heavy_tailed_regression_is_learned(options):
    X, y, w = heavy()
    with seeded_noise_not_private(4):
        model = HeavyTailedRegressor(2.0, **options).fit(X, y)
    assert np.linalg.norm(model.coef_ - w) < 0.25
    assert model.intercept_ == pytest.approx(1.5, abs=0.6)


def test_columns_of_any_scale_are_learned():
    X, y, w = heavy(20_000)
    units = np.array([1e-6, 1.0, 1e5, 30.0])
    with seeded_noise_not_private(4):
        model = HeavyTailedRegressor(2.0).fit(X * units, y)
    assert np.linalg.norm(model.coef_ * units - w) < 0.2


def test_a_sparse_model_keeps_as_many_coefficients_as_asked():
    X, y, _ = heavy()
    with seeded_noise_not_private(4):
        model = HeavyTailedRegressor(2.0, n_nonzero_coefs=2).fit(X, y)
    assert set(np.flatnonzero(model.coef_)) == {0, 1}


def test_the_sparse_estimators_know_the_solver():
    X, y, _ = heavy()
    model = SparseLinearRegression(
        2.0, n_nonzero_coefs=2, solver="heavy-tailed", data_norm=20.0, target_bound=50.0
    )
    with seeded_noise_not_private(4):
        fitted = clone(model).fit(X, y)
    assert np.count_nonzero(fitted.coef_) == 2
    assert fitted.privacy_.epsilon <= 2.0


@pytest.mark.parametrize("classes", [2, 3])
def test_a_heavy_tailed_classifier_beats_the_largest_class(classes):
    X, y, _ = heavy()
    labels = np.digitize(y, [1.5] if classes == 2 else [0.5, 2.5])
    with seeded_noise_not_private(4):
        model = HeavyTailedClassifier(2.0).fit(X, labels)
    assert model.score(X, labels) > np.bincount(labels).max() / len(labels) + 0.25
    np.testing.assert_allclose(model.predict_proba(X[:5]).sum(axis=1), 1.0)


def test_sparse_and_dense_data_give_the_same_model():
    X, y, _ = heavy(2000)
    X[np.random.default_rng(0).random(X.shape) < 0.5] = 0.0
    for options in ({}, {"solver_options": {"gradient": "truncated"}}, {"n_nonzero_coefs": 2}):
        with seeded_noise_not_private(4, same_for_every_fit=True):
            model = HeavyTailedRegressor(2.0, fit_intercept=False, **options)  # sparse rows are not centred
            dense, csr = clone(model).fit(X, y), clone(model).fit(sparse.csr_matrix(X), y)
        np.testing.assert_allclose(dense.coef_, csr.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"solver": "concave"}, "solver"),
        ({"solver_options": {"gradient": "mean"}}, "gradient"),
        ({"solver_options": {"selection": "best"}}, "selection"),
        ({"loss": "absolute"}, "loss"),
        ({"loss": "huber", "huber_threshold": 0}, "huber_threshold"),
        ({"n_nonzero_coefs": 9}, "n_nonzero_coefs"),
        ({"max_iter": 0}, "max_iter"),
        ({"solver_options": {"step_size": -1}}, "step_size"),
        ({"alpha": -1}, "alpha"),
    ],
)
def test_a_wrong_parameter_of_a_learner_is_named(wrong, words):
    X, y, _ = heavy(200)
    with pytest.raises(InvalidInputError, match=words):
        HeavyTailedRegressor(**wrong).fit(X, y)


def test_the_coefficients_obey_the_constraint():
    X, y, _ = heavy()
    with seeded_noise_not_private(4):
        model = HeavyTailedRegressor(2.0, solver_options={"constraint": L1Ball(1.0)}).fit(X, y)
    assert np.abs(model.coef_).sum() <= 1.0 + 1e-12


@pytest.mark.parametrize("rows_per_person", [None, 10])
@pytest.mark.parametrize("model", [HeavyTailedRegressor, HeavyTailedClassifier])
def test_a_model_that_followed_no_gradient_says_so_with_the_remedy(model, rows_per_person):
    public, n = np.random.default_rng(1), 100 * (rows_per_person or 1)
    X = public.standard_t(3, size=(n, 5))
    y = X.sum(axis=1) + 10 > 10
    with seeded_noise_not_private(1), pytest.warns(FitWarning, match="zero.*more records or budget"):
        model(1.0, 1e-6, rows_per_person=rows_per_person).fit(X, y)
    with seeded_noise_not_private(1), warnings.catch_warnings():
        warnings.simplefilter("error", FitWarning)
        model(10.0, 1e-6, rows_per_person=rows_per_person).fit(X, y)
