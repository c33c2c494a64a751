"""Records that weigh far less than the declared bound: as many are fitted as all of them weigh."""

import numpy as np
import pytest
from scipy import sparse

from sordino import LinearClassifier, LinearRegression, LogisticRegression, SparseLogisticRegression
from sordino.errors import FitWarning
from sordino.testing import seeded_noise_not_private

LOGISTIC = LogisticRegression, {"classes": [0, 1]}
QUIET = pytest.mark.filterwarnings("ignore::sordino.errors.FitWarning")


def regression(loss, **facts):
    return LinearRegression, {"loss": loss, "target_bound": 30.0, **facts}


MODELS = {
    "logistic": LOGISTIC,
    "three classes": (LogisticRegression, {"classes": [0, 1, 2]}),
    "squared hinge": (LinearClassifier, {"classes": [0, 1], "loss": "squared_hinge"}),
    "squared": regression("squared"),
    "huber": regression("huber"),
    "poisson": regression("poisson"),
    "gamma": regression("gamma"),
    "quantile": regression("quantile", quantile=0.9),
    "sparse": (SparseLogisticRegression, {"classes": [0, 1], "n_nonzero_coefs": 1}),
}


def drawn(name, n, public):
    """Return rows and targets with a slope of one, of amounts and counts of a half."""
    X = public.normal(size=(n, 3))
    if name in ("poisson", "gamma"):
        mean = np.exp(0.5 * X[:, 0])
        return X, np.minimum(public.poisson(mean) if name == "poisson" else public.gamma(2.0, mean / 2), 30.0)
    if name == "three classes":
        odds = np.exp(X[:, :1] * [1.0, -1.0, 0.0])
        shares = (odds / odds.sum(axis=1, keepdims=True)).cumsum(axis=1)
        return X, (public.random((n, 1)) > shares[:, :2]).sum(axis=1)
    if name in ("squared", "huber", "quantile"):
        return X, X[:, 0] + public.normal(size=n)
    return X, (public.random(n) < 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(int)


@QUIET
@pytest.mark.parametrize("name", MODELS)
def test_slopes_are_those_of_the_plain_model_however_far_the_mean_weight_is_from_its_bound(name):
    public = np.random.default_rng(4)
    estimator, facts = MODELS[name]
    X, y = drawn(name, 30_000, public)
    weights = public.gamma(2.0, 0.5, len(y))
    with seeded_noise_not_private(2):
        model = estimator(200.0, 1e-6, data_norm=8.0, weight_bound=60.0, **facts)
        model.fit(X, y, sample_weight=weights)
    slope = {"poisson": 0.5, "gamma": 0.5, "squared hinge": 0.42}.get(name, 1.0)
    assert np.ravel(model.coef_)[0] == pytest.approx(slope, rel=0.25)  # some stopped at .05 to .7 of it
    if name == "quantile":
        assert np.average(y < model.predict(X), weights=weights) == pytest.approx(0.9, abs=0.02)


def test_class_weights_alone_leave_the_constant_right():
    public = np.random.default_rng(1)
    X = public.normal(size=(30_000, 3))
    y = (public.random(30_000) < 1.0 / (1.0 + np.exp(4.0 - X[:, 0]))).astype(int)
    with seeded_noise_not_private(3):
        model = LogisticRegression(
            40.0, 1e-6, data_norm=10.0, classes=[0, 1], class_weight={0: 0.001, 1: 1.0}
        )
        model.fit(X, y)
    assert model.intercept_[0] == pytest.approx(np.log(1000.0) - 4.0, abs=0.2)  # 2.4 before
    assert model.coef_[0, 0] == pytest.approx(1.0, abs=0.25)


@QUIET
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("name", MODELS)
def test_records_of_weight_zero_steer_nothing(name, kind):
    public = np.random.default_rng(6)
    estimator, facts = MODELS[name]
    X, y = drawn(name, 4000, public)
    weights, found = (public.random(4000) < 0.5) * 1.0, []
    for far in (0.0, 1.0):
        other = X + far * (weights == 0.0)[:, None] * np.array([2.0, -3.0, 0.5])
        targets = np.where(weights == 0.0, y.max() if far else y, y)
        with seeded_noise_not_private(2):
            model = estimator(4.0, 1e-6, data_norm=9.0, **facts)
            found.append(model.fit(kind(other), targets, sample_weight=weights).coef_)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-9)


def test_weights_that_leave_nothing_but_noise_leave_the_constant_and_say_so():
    public = np.random.default_rng(3)
    X, y = drawn("logistic", 5000, public)
    model = LogisticRegression(1.0, 1e-6, data_norm=8.0, weight_bound=1000.0, classes=[0, 1])
    with seeded_noise_not_private(1), pytest.warns(FitWarning, match="shares of the classes"):
        model.fit(X, y, sample_weight=public.gamma(2.0, 0.5, len(y)))
    assert not model.coef_.any()
    assert abs(model.intercept_[0]) < 1.0


def test_a_quantile_of_records_that_hardly_weigh_stays_within_the_bounds():
    public = np.random.default_rng(3)
    X, y = drawn("quantile", 20_000, public)
    weights = public.gamma(2.0, 0.5, len(y))
    model = LinearRegression(1.0, 1e-6, data_norm=8.0, weight_bound=1000.0, target_bound=8.0, loss="quantile")
    with seeded_noise_not_private(1), pytest.warns(FitWarning, match="the model is the quantile"):
        model.set_params(quantile=0.9).fit(X, y, sample_weight=weights)
    assert abs(model.intercept_) <= 8.0  # 20 to 45 where noise was followed
