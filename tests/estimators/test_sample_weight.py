"""Weights of records: shares of a declared bound, applied before the clip."""

import numpy as np
import pytest
from scipy import sparse

from sordino import LinearRegression, LogisticRegression, SparseLinearRegression, SparseLogisticRegression
from sordino.errors import InvalidInputError
from sordino.execute import LocalExecutor
from sordino.kernel import SymmetricGaussian
from sordino.problems.affine import Affine, ColumnMoments, GramShells, MappedGram, MappedSum, SizeCounts
from sordino.problems.losses import LOSSES, Logistic
from sordino.problems.queries import GlmGradient, GradientCounts, TargetCounts, TotalWeight
from sordino.problems.scales import ColumnUnits
from sordino.testing import seeded_noise_not_private

ESTIMATORS = [SparseLogisticRegression, SparseLinearRegression, LogisticRegression, LinearRegression]


def data(n=400):
    public = np.random.default_rng(0)
    X = public.normal(size=(n, 4)) / 2
    y = (X[:, 0] + 0.4 * public.normal(size=n) > 0.3).astype(int)
    return X, y, public.uniform(0.1, 3.0, size=n)


def fitted(estimator, X, y, weights, **parameters):
    with seeded_noise_not_private(5):
        return estimator(**parameters).fit(X, y, sample_weight=weights).coef_


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_weights_beyond_the_bound_count_as_the_bound(estimator, kind):
    X, y, weights = data()
    cut = fitted(estimator, kind(X), y, np.minimum(weights, 2.0), weight_bound=2.0)
    np.testing.assert_array_equal(fitted(estimator, kind(X), y, weights, weight_bound=2.0), cut)
    shares = np.minimum(weights, 2.0) / 2.0
    np.testing.assert_allclose(fitted(estimator, kind(X), y, shares), cut)
    assert not np.allclose(fitted(estimator, kind(X), y, None), cut)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_full_weight_is_no_weight(estimator):
    """Without noise: what all records weigh is asked for, since it is not known."""
    X, y, _ = data()
    full = fitted(estimator, X, y, np.full(len(y), 7.0), weight_bound=7.0, epsilon=np.inf)
    np.testing.assert_allclose(full, fitted(estimator, X, y, None, epsilon=np.inf))


@pytest.mark.parametrize("solver", ["ight", "sgd-ht", "svrg-ht", "scsg-ht", "frank-wolfe", "coordinate"])
def test_a_record_of_weight_zero_adds_nothing(solver):
    X, y, weights = data()
    weights[7] = 0.0
    other = X.copy()
    other[7] = [0.9, -0.9, 0.3, 0.1]
    one = fitted(SparseLogisticRegression, X, y, weights, solver=solver, weight_bound=3.0)
    two = fitted(SparseLogisticRegression, other, y, weights, solver=solver, weight_bound=3.0)
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)


def test_no_weight_lets_a_record_add_more_than_the_clip():
    X, y, weights = data()
    records = LocalExecutor(X, 2.0 * y - 1.0, 1.7, 0.3, weights * 1e6).records(None)
    coefficients = GlmGradient(Logistic(), 0.2)._coefficients(records, np.zeros(5))
    assert np.max(np.abs(coefficients) * records.norms) <= 0.2


def test_weights_move_the_decision():
    X, y, _ = data(4000)
    shares = [
        SparseLogisticRegression(20.0, weight_bound=5.0).fit(X, y, sample_weight=w).predict(X).mean()
        for w in (np.where(y, 5.0, 0.3), np.where(y, 0.3, 5.0))
    ]
    assert shares[0] > shares[1] + 0.3


def test_class_weights_and_sample_weights_multiply():
    X, y, weights = data()
    both = fitted(SparseLogisticRegression, X, y, weights / 3, class_weight={0: 0.5, 1: 1.0})
    by_hand = fitted(SparseLogisticRegression, X, y, weights / 3 * np.where(y, 1.0, 0.5))
    np.testing.assert_allclose(both, by_hand)


def test_persons_may_have_weighted_rows():
    X, y, weights = data()
    groups = np.arange(len(y)) // 4
    model = SparseLogisticRegression(weight_bound=3.0).fit(X, y, sample_weight=weights, groups=groups)
    assert model.privacy_.unit == "person"


def test_the_report_lists_the_bound_as_public_only_when_it_was_used():
    X, y, weights = data()
    said = "weight_bound = 2.5 (sample weights are clipped to it)"
    assert said in SparseLinearRegression(weight_bound=2.5).fit(X, y, sample_weight=weights).privacy_.public
    assert said not in SparseLinearRegression(weight_bound=2.5).fit(X, y).privacy_.public


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("wrong", ["negative", "nan", "infinite", "short", "words", "square"])
def test_wrong_weights_are_refused_without_a_value_of_the_data(estimator, wrong):
    X, y, weights = data()
    weights[3] = {"negative": -0.125, "nan": np.nan, "infinite": np.inf}.get(wrong, 0.5)
    bad = {"short": weights[:-1], "words": ["secret"] * len(y), "square": np.ones((len(y), 2))}
    with pytest.raises(InvalidInputError, match=r"one finite number >= 0 for each of the 400 rows") as error:
        estimator().fit(X, y, sample_weight=bad.get(wrong, weights))
    assert "0.125" not in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("bound", [0.0, -1.0, np.nan, np.inf, "1"])
def test_a_wrong_bound_is_refused(bound):
    X, y, weights = data()
    with pytest.raises(InvalidInputError, match="weight_bound"):
        SparseLogisticRegression(weight_bound=bound).fit(X, y, sample_weight=weights)


AFFINE = Affine(np.zeros(4), np.full(4, 0.5), 0.25)
ASKED = {
    "second": (MappedGram(), AFFINE),
    "long": (GramShells(), (AFFINE.resize(0.01), 100.0)),
    "sum": (MappedSum(), AFFINE),
    "sizes": (SizeCounts("rows", 2), AFFINE),
    "targets": (SizeCounts("targets", 2), (0.3, 1.0)),
    "center": (TargetCounts(), (-3.0, 3.0)),
    "spread": (GradientCounts(LOSSES["squared"], apart=True), (np.full(5, 0.1), AFFINE, 5.0)),
    "moments": (ColumnMoments(99.0), None),
    "weight": (TotalWeight(), None),
    "units": (ColumnUnits(4), None),
}


@pytest.mark.parametrize("name", ASKED)
def test_no_weight_lets_a_record_add_more_than_a_record(name):
    query, params = ASKED[name]
    X, y, weights = data()
    weights[:3] = np.nan, np.inf, -1e9
    for at in range(8):
        rows = LocalExecutor(X[[at]] * 40, y[[at]] + 0.0, 99.0, 0.0, weights[[at]] * 1e6).records(None)
        found = query.evaluate(rows, params)
        whole = np.stack([SymmetricGaussian.whole(half) for half in found]) if name == "long" else found
        assert np.linalg.norm(whole) <= query.contribution(params) * (1.0 + 1e-9)
        none = LocalExecutor(X[[at]] * 40, y[[at]] + 0.0, 99.0, 0.0, np.zeros(1)).records(None)
        assert not np.any(query.evaluate(none, params))
