"""Steps of scikit-learn that read all records are recognised by what they read, with what to use instead."""

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier, HistGradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.impute import KNNImputer, MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection

import sordino
from sordino.errors import InvalidInputError, PrivacyWarning
from sordino.estimators.pipeline import READS, reason


def data():
    public = np.random.default_rng(0)
    X = public.normal(size=(300, 4)) / 4
    return X, (X[:, 0] > 0).astype(int)


def model(epsilon=0.5):
    return sordino.LogisticRegression(epsilon=epsilon, delta=1e-6, data_norm=2.0, classes=[0, 1])


READERS = {
    "PrivateStandardScaler": [StandardScaler(), RobustScaler()],
    "TableEncoder": [
        MinMaxScaler(),
        MaxAbsScaler(),
        QuantileTransformer(n_quantiles=10),
        PowerTransformer(),
        KBinsDiscretizer(n_bins=2, quantile_method="averaged_inverted_cdf"),
        SplineTransformer(),
        SimpleImputer(),
        KNNImputer(),
    ],
    "SparseLogisticRegression": [SelectKBest(k=2), VarianceThreshold()],
    "sordino.PCA": [PCA(2)],
    "PrivateColumnWeights": [TfidfTransformer()],
}
CASES = [(step, instead) for instead, steps in READERS.items() for step in steps]


@pytest.mark.parametrize(("step", "instead"), CASES, ids=lambda value: type(value).__name__)
def test_a_step_that_reads_all_records_is_named_with_what_to_use_instead(step, instead):
    X, y = data()
    report = sordino.pipeline_privacy(make_pipeline(step, model()).fit(np.abs(X), y))
    assert not report.is_private
    assert report.status.startswith("not private")
    (said,) = report.unpaid
    assert f"({type(step).__name__}): it reads " in said
    assert instead in said
    assert said in report.guarantee


FREE = [
    RBFSampler(gamma=0.5, n_components=5, random_state=0),
    GaussianRandomProjection(n_components=3, random_state=0),
    SplineTransformer(knots=np.linspace(-1, 1, 4)[:, None] * np.ones((1, 4))),
    FeatureUnion([("gaps", MissingIndicator(features="all")), ("all", "passthrough")]),
]


@pytest.mark.parametrize("step", FREE, ids=lambda step: type(step).__name__)
def test_a_step_with_declared_constants_only_is_free(step):
    report = sordino.pipeline_privacy(make_pipeline(step, model()).fit(*data()))
    assert report.is_private


@pytest.mark.parametrize(
    "step",
    [
        RBFSampler(gamma="scale", n_components=5),
        FeatureUnion([("gaps", MissingIndicator()), ("all", "passthrough")]),
    ],
    ids=lambda step: type(step).__name__,
)
def test_the_same_steps_with_constants_from_the_data_are_not(step):
    report = sordino.pipeline_privacy(make_pipeline(step, model()).fit(*data()))
    assert not report.is_private


def test_models_inside_a_calibration_are_counted_and_the_calibration_is_not_private():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        fitted = CalibratedClassifierCV(model(1.0), cv=2).fit(*data())
    report = sordino.pipeline_privacy(fitted)
    assert not report.is_private
    assert report.epsilon > 1.2  # both models
    assert "it reads scores and targets of the records" in report.unpaid[0]


def test_bagging_is_not_private_and_cannot_be_declared_public():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        fitted = BaggingClassifier(model(), n_estimators=2, random_state=0).fit(*data())
    report = sordino.pipeline_privacy(fitted)
    assert not report.is_private
    assert len(report.unpaid) == 1  # not the template that it copies
    assert "draws several times" in report.unpaid[0]
    with pytest.raises(InvalidInputError, match="cannot be declared public"):
        sordino.pipeline_privacy(fitted, assume_public=["BaggingClassifier"])


class Unknown(TransformerMixin, BaseEstimator):
    """A step of somebody else."""

    def fit(self, X, y=None):
        self.seen_ = X.mean(axis=0)
        return self

    def transform(self, X):
        return X - self.seen_


def test_an_unknown_step_needs_a_declaration():
    fitted = make_pipeline(Unknown(), model()).fit(*data())
    report = sordino.pipeline_privacy(fitted)
    assert not report.is_private
    assert "assume_public=['unknown']" in report.unpaid[0]
    assert sordino.pipeline_privacy(fitted, assume_public=["unknown"]).is_private


def test_a_class_that_borrows_a_name_is_not_taken_for_the_original():
    class StandardScaler(Unknown):
        pass

    assert "it may have learnt" in reason("s", StandardScaler())
    assert "it reads means" in reason("s", type("Mine", (READS_STANDARD,), {})())


READS_STANDARD = StandardScaler


def test_models_without_noise_are_named_and_early_stopping_is_said():
    assert "the records, without noise; use a private estimator" in reason(
        "m", HistGradientBoostingClassifier(early_stopping=False)
    )
    assert "and stops by scores on some of them" in reason("m", SGDClassifier(early_stopping=True))
    assert "stops by scores" not in reason("m", SGDClassifier())
    assert "which words occur" in reason("m", CountVectorizer())


def test_every_private_step_that_is_recommended_exists():
    words = " ".join(instead for _, instead in READS.values())
    for name in (
        "PrivateStandardScaler",
        "PrivateColumnWeights",
        "RowClipper",
        "TableEncoder",
        "PrivateSearchCV",
    ):
        assert name in words
        assert hasattr(sordino, name)
