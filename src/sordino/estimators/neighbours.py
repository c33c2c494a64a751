"""Steps of scikit-learn beside private ones: which of them read all records, and what to use instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.base import is_classifier, is_regressor
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import RBFSampler, SkewedChi2Sampler
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from sordino.estimators.preprocessing import RowClipper
from sordino.estimators.scattering import ScatteringTransformer
from sordino.private_estimator import PrivateEstimator
from sordino.tables import TableEncoder

STATELESS = (
    Binarizer,
    FeatureHasher,
    HashingVectorizer,
    Normalizer,
    PolynomialFeatures,
    RowClipper,
    ScatteringTransformer,
    SkewedChi2Sampler,
    TableEncoder,
)

_TABLES = "TableEncoder with a declared schema"
_CHOOSES = "SparseLogisticRegression or SparseLinearRegression, which choose columns privately"
_SEARCH = "sordino.PrivateSearchCV"
_ONE = "one private model with the whole budget"
# By the name of a class: what it reads of all records, and what to use instead.
READS: dict[str, tuple[str, str]] = {
    "StandardScaler": ("means and deviations of the columns", f"PrivateStandardScaler, or {_TABLES}"),
    "MinMaxScaler": ("the least and the largest values", _TABLES),
    "MaxAbsScaler": ("the largest values", f"RowClipper, or {_TABLES}"),
    "RobustScaler": ("quantiles of the columns", "PrivateStandardScaler"),
    "QuantileTransformer": ("quantiles of the columns", f"{_TABLES} and knots"),
    "PowerTransformer": ("an exponent for each column", f"{_TABLES} and knots"),
    "KBinsDiscretizer": ("where values lie", f"{_TABLES} and knots"),
    "SplineTransformer": ("where values lie", f"{_TABLES} and knots, or declared knots"),
    "TargetEncoder": ("the targets of each level", _TABLES),
    "SimpleImputer": (
        "what is usual in a column, or where values are missing",
        f"{_TABLES}, or SimpleImputer(strategy='constant', keep_empty_features=True) without an indicator",
    ),
    "KNNImputer": ("neighbouring records", _TABLES),
    "IterativeImputer": ("regressions between the columns", _TABLES),
    "MissingIndicator": ("where values are missing", f"{_TABLES}, or MissingIndicator(features='all')"),
    "OneHotEncoder": (
        "which levels occur",
        f"{_TABLES}, or OneHotEncoder(categories=[...]) with declared levels, rare ones kept",
    ),
    "OrdinalEncoder": (
        "which levels occur",
        f"{_TABLES}, or OrdinalEncoder(categories=[...]) with declared levels, rare ones kept",
    ),
    "LabelEncoder": ("which labels occur", "declared classes"),
    "FunctionTransformer": (
        "several records at once",
        "a function that changes each row by itself, with declared constants",
    ),
    "CountVectorizer": ("which words occur", "HashingVectorizer, or a declared vocabulary"),
    "TfidfVectorizer": ("how often words occur", "HashingVectorizer and PrivateColumnWeights"),
    "TfidfTransformer": ("how often words occur", "PrivateColumnWeights"),
    "SelectKBest": ("how columns and targets go together", _CHOOSES),
    "SelectPercentile": ("how columns and targets go together", _CHOOSES),
    "SelectFromModel": ("the coefficients of a model on the records", _CHOOSES),
    "SequentialFeatureSelector": ("scores on the records", _CHOOSES),
    "VarianceThreshold": ("the deviations of the columns", _CHOOSES),
    "RFE": ("coefficients, once for each column that goes", _CHOOSES),
    "RFECV": ("scores on the records", _CHOOSES),
    "PCA": ("the covariance of the records", "sordino.PCA"),
    "TruncatedSVD": ("the covariance of the records", "sordino.PCA"),
    "CalibratedClassifierCV": (
        "scores and targets of the records, to bend probabilities",
        "the probabilities of sordino.LogisticRegression as they are",
    ),
    "TunedThresholdClassifierCV": ("scores and targets of the records", "a declared threshold"),
    "BaggingClassifier": ("records that it draws several times, so that each counts more than once", _ONE),
    "BaggingRegressor": ("records that it draws several times, so that each counts more than once", _ONE),
    "VotingClassifier": ("which labels occur", _ONE),
    "StackingClassifier": ("predictions for the records", _ONE),
    "StackingRegressor": ("predictions for the records", _ONE),
    "AdaBoostClassifier": ("errors on the records", _ONE),
    "AdaBoostRegressor": ("errors on the records", _ONE),
    "OneVsRestClassifier": ("which labels occur", "sordino.LogisticRegression, which takes several classes"),
    "OneVsOneClassifier": ("which labels occur", "sordino.LogisticRegression, which takes several classes"),
    "GridSearchCV": ("scores on the records", _SEARCH),
    "RandomizedSearchCV": ("scores on the records", _SEARCH),
    "HalvingGridSearchCV": ("scores on the records", _SEARCH),
    "LogisticRegressionCV": ("scores on the records", _SEARCH),
    "LogisticRegression": ("the records, without noise", "sordino.LogisticRegression"),
    "LinearRegression": ("the records, without noise", "sordino.LinearRegression"),
    "Ridge": ("the records, without noise", "sordino.LinearRegression(penalty='ridge')"),
    "Lasso": ("the records, without noise", "sordino.SparseLinearRegression"),
    "SGDClassifier": ("the records, without noise", "sordino.LinearClassifier"),
    "MLPClassifier": ("the records, without noise", "sordino.nn.NeuralClassifier"),
    "MLPRegressor": ("the records, without noise", "sordino.nn.NeuralRegressor"),
}
_MODEL = ("the records, without noise", "a private estimator of sordino")
# Wrappers that feed a record to private steps several times: no declaration makes that one record again.
REPEATS = ("BaggingClassifier", "BaggingRegressor", "AdaBoostClassifier", "AdaBoostRegressor")


def keeps_nothing(step: Any) -> bool:
    """Tell whether a step is known to learn nothing from the records."""
    kind = type(step)
    if kind in (OneHotEncoder, OrdinalEncoder):
        # Levels that are put together because they are rare are counted in the records.
        declared = not (isinstance(step.categories, str) and step.categories == "auto")
        return declared and step.min_frequency is None and step.max_categories is None
    if kind is SimpleImputer:
        # A column that is dropped, or gets an indicator, tells where values are missing.
        return step.strategy == "constant" and step.keep_empty_features and not step.add_indicator
    if kind in (GaussianRandomProjection, SparseRandomProjection):
        return not isinstance(step.n_components, str)  # drawn for declared dimensions
    free: dict[type, Callable[[], bool]] = {
        CountVectorizer: lambda: step.vocabulary is not None,
        MissingIndicator: lambda: step.features == "all",
        RBFSampler: lambda: not isinstance(step.gamma, str),  # "scale" is the variance of the records
        SplineTransformer: lambda: not isinstance(step.knots, str),
        FunctionTransformer: lambda: step.func is None,
    }
    return kind in STATELESS or (kind in free and free[kind]())


def is_template(step: Any) -> bool:
    """Tell whether a step is a private estimator that was never fitted: wrappers keep one to copy."""
    return isinstance(step, PrivateEstimator) and not any(name.endswith("_") for name in vars(step))


def reason(name: str, step: Any) -> str:
    """Return why a step that paid nothing makes the whole not private, and what to do."""
    known = next((READS[kind.__name__] for kind in type(step).__mro__ if _is_listed(kind)), None)
    if known is None and (is_classifier(step) or is_regressor(step)):
        known = _MODEL
    if known is None:
        words = "it may have learnt from the records; if it reads public data only, pass "
        words += f"assume_public=[{name!r}]"
    else:
        stops = ", and stops by scores on some of them" if getattr(step, "early_stopping", False) else ""
        words = f"it reads {known[0]}{stops}; use {known[1]}"
    return f"step {name!r} ({type(step).__name__}): {words}"


def _is_listed(kind: type) -> bool:
    return kind.__name__ in READS and kind.__module__.startswith("sklearn.")
