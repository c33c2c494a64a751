"""The guarantee of several steps together, however they are nested."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.kernel_approximation import RBFSampler, SkewedChi2Sampler
from sklearn.pipeline import FeatureUnion, Pipeline
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
from sklearn.utils.validation import check_is_fitted

from sordino.errors import InvalidInputError
from sordino.estimators.preprocessing import RowClipper, ScatteringTransformer
from sordino.kernel import public_generator
from sordino.private_estimator import PrivateEstimator
from sordino.runs import Price, PrivacyReport, composed
from sordino.runs.report import each_once
from sordino.tables import Schema, TableEncoder
from sordino.tables.values import require_pandas

# ----------------------------------------------------------------------------------------------------------
# Whether a model treats each row by itself, tried on made-up rows: real ones would tell about themselves.

_COUNT = 16


def mixes_rows(call: Callable[[Any], Any], rows: Any) -> bool:
    """Tell whether a function gives rows another result together than one by one (no if it fails)."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            whole = _plain(call(rows))
            alone = np.concatenate([_plain(call(rows_of(rows, slice(i, i + 1)))) for i in range(len(whole))])
        except Exception:
            return False
    if whole.shape != alone.shape:
        return True
    if whole.dtype.kind in "fc":
        return not np.allclose(whole, alone, 1e-4, 1e-5, equal_nan=True)
    return not np.array_equal(whole, alone)


def invent_rows(X: Any, schema: Schema | None = None) -> Any:
    """Return some rows of the kind of X: of its shape and types, and of no value in it."""
    public = public_generator(0)
    if schema is not None:
        columns = {column.name: column.invent(public, _COUNT) for column in schema.features}
        return require_pandas().DataFrame(columns)
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        columns = {name: _entries((_COUNT,), kind, public) for name, kind in X.dtypes.items()}
        return require_pandas().DataFrame(columns)
    shape = tuple(getattr(X, "shape", None) or np.shape(X))[1:]
    if hasattr(X, "new_tensor"):
        return X.new_tensor(_entries((_COUNT, *shape), np.dtype(float), public).tolist())
    rows = _entries((_COUNT, *shape), getattr(X, "dtype", None) or np.asarray(X[:1]).dtype, public)
    return type(X)(rows) if sparse.issparse(X) else rows


def _entries(shape: tuple[int, ...], kind: Any, public: Any) -> Any:
    """Return made-up numbers of a type (small whole numbers of an integer type), or texts for other types."""
    letter = getattr(kind, "kind", "O")
    if letter in "biu":
        return public.integers(0, 2, shape).astype(kind)
    if letter == "f":
        return public.uniform(0.1, 1.0, shape).astype(kind)
    return np.resize(np.array(["some words", "others"], dtype=object), shape)


def _plain(values: Any) -> np.ndarray:
    return np.asarray(values.toarray() if sparse.issparse(values) else values)


def rows_of(X: Any, rows: Any) -> Any:
    """Return some rows of an array, a sparse matrix or a data frame."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def final_step(model: Any) -> Any:
    """Return the step that predicts: the last one of a pipeline."""
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def schema_of(model: Any) -> Schema | None:
    """Return the schema of the tables that a model takes; None where it takes rows."""
    model = getattr(model, "best_estimator_", model)
    found = getattr(model.steps[0][1] if isinstance(model, Pipeline) else model, "schema", None)
    return found if isinstance(found, Schema) else None


# ------- Steps of scikit-learn beside private ones: which of them read all records, and what to use instead

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
_PLAIN = "the records, without noise"
_ONE = "one private model with the whole budget"
_DECLARED = f"{_TABLES}, or (categories=[...]) with declared levels, rare ones kept"
# By the names of classes: what they read of all records, and what to use instead.
READS: dict[str, tuple[str, str]] = {
    name: (what, instead)
    for names, what, instead in (
        ("StandardScaler", "means and deviations of the columns", f"PrivateStandardScaler, or {_TABLES}"),
        ("MinMaxScaler", "the least and the largest values", _TABLES),
        ("MaxAbsScaler", "the largest values", f"RowClipper, or {_TABLES}"),
        ("RobustScaler", "quantiles of the columns", "PrivateStandardScaler"),
        ("QuantileTransformer", "quantiles of the columns", f"{_TABLES} and knots"),
        ("PowerTransformer", "an exponent for each column", f"{_TABLES} and knots"),
        ("KBinsDiscretizer", "where values lie", f"{_TABLES} and knots"),
        ("SplineTransformer", "where values lie", f"{_TABLES} and knots, or declared knots"),
        ("TargetEncoder", "the targets of each level", _TABLES),
        ("SimpleImputer", "what is usual in a column, or where values are missing",
         f"{_TABLES}, or SimpleImputer(strategy='constant', keep_empty_features=True) without an indicator"),
        ("KNNImputer", "neighbouring records", _TABLES),
        ("IterativeImputer", "regressions between the columns", _TABLES),
        ("MissingIndicator", "where values are missing", f"{_TABLES}, or MissingIndicator(features='all')"),
        ("OneHotEncoder OrdinalEncoder", "which levels occur", _DECLARED),
        ("LabelEncoder", "which labels occur", "declared classes"),
        ("FunctionTransformer", "several records at once",
         "a function that changes each row by itself, with declared constants"),
        ("CountVectorizer", "which words occur", "HashingVectorizer, or a declared vocabulary"),
        ("TfidfVectorizer", "how often words occur", "HashingVectorizer and PrivateColumnWeights"),
        ("TfidfTransformer", "how often words occur", "PrivateColumnWeights"),
        ("SelectKBest SelectPercentile", "how columns and targets go together", _CHOOSES),
        ("SelectFromModel", "the coefficients of a model on the records", _CHOOSES),
        ("SequentialFeatureSelector RFECV", "scores on the records", _CHOOSES),
        ("VarianceThreshold", "the deviations of the columns", _CHOOSES),
        ("RFE", "coefficients, once for each column that goes", _CHOOSES),
        ("PCA TruncatedSVD", "the covariance of the records", "sordino.PCA"),
        ("CalibratedClassifierCV", "scores and targets of the records, to bend probabilities",
         "the probabilities of sordino.LogisticRegression as they are"),
        ("TunedThresholdClassifierCV", "scores and targets of the records", "a declared threshold"),
        ("BaggingClassifier BaggingRegressor",
         "records that it draws several times, so that each counts more than once", _ONE),
        ("VotingClassifier", "which labels occur", _ONE),
        ("StackingClassifier StackingRegressor", "predictions for the records", _ONE),
        ("AdaBoostClassifier AdaBoostRegressor", "errors on the records", _ONE),
        ("OneVsRestClassifier OneVsOneClassifier", "which labels occur",
         "sordino.LogisticRegression, which takes several classes"),
        ("GridSearchCV RandomizedSearchCV HalvingGridSearchCV LogisticRegressionCV", "scores on the records",
         "sordino.PrivateSearchCV"),
        ("LogisticRegression", _PLAIN, "sordino.LogisticRegression"),
        ("LinearRegression", _PLAIN, "sordino.LinearRegression"),
        ("Ridge", _PLAIN, "sordino.LinearRegression(penalty='ridge')"),
        ("Lasso", _PLAIN, "sordino.SparseLinearRegression"),
        ("SGDClassifier", _PLAIN, "sordino.LinearClassifier"),
        ("MLPClassifier", _PLAIN, "sordino.nn.NeuralClassifier"),
        ("MLPRegressor", _PLAIN, "sordino.nn.NeuralRegressor"),
    )
    for name in names.split()
}  # fmt: skip
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


def reason(name: str, step: Any) -> str:
    """Return why a step that paid nothing makes the whole not private, and what to do."""
    ours = [kind.__name__ for kind in type(step).__mro__ if kind.__module__.startswith("sklearn.")]
    known = next((READS[name] for name in ours if name in READS), None)
    if known is None and (is_classifier(step) or is_regressor(step)):
        known = _PLAIN, "a private estimator of sordino"
    if known is None:
        words = "it may have learnt from the records; if it reads public data only, pass "
        words += f"assume_public=[{name!r}]"
    else:
        stops = ", and stops by scores on some of them" if getattr(step, "early_stopping", False) else ""
        words = f"it reads {known[0]}{stops}; use {known[1]}"
    return f"step {name!r} ({type(step).__name__}): {words}"


CONTAINERS = (Pipeline, FeatureUnion, ColumnTransformer)
_BY_ITSELF = "its function must change each row by itself, with constants that are not from the data"


@dataclass
class _Found:
    """The parts of a pipeline by what they paid."""

    paid: list[tuple[str, PrivacyReport]] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    unpaid: list[str] = field(default_factory=list)
    schemas: list[Schema] = field(default_factory=list)
    above: list[int] = field(default_factory=list)

    def add(self, inside: _Found, *, declared: bool) -> None:
        """Take in the parts of a step; those of a public step are public too, unless they paid."""
        self.paid += inside.paid
        self.assumed += inside.assumed
        self.schemas += inside.schemas
        if not declared:
            self.free += inside.free
            self.functions += inside.functions
            self.unpaid += inside.unpaid


def pipeline_privacy(
    pipeline: Any, delta: float | None = None, *, assume_public: Sequence[str] = ()
) -> PrivacyReport:
    """Return the guarantee of all private steps of a fitted pipeline together.

    Nested pipelines, unions, column transformers and wrappers are walked through. The events of the
    private steps are composed and certified; ``delta=None`` takes the largest delta of the steps. A step that
    reads the records and paid nothing makes the whole "not private", and the report says which and what to
    use instead. Steps that keep nothing of the data (hashing, row normalising, declared levels) are free. The
    function of a ``FunctionTransformer`` is tried on made-up rows; that it changes real ones each by itself
    is yours to know, and a note says so.

    Parameters
    ----------
    pipeline : a fitted pipeline, union, column transformer, wrapper or single estimator.
    delta : of the whole.
    assume_public : names of steps (``"outer__inner"`` where nested, the name of its class for the pipeline
        itself) that you declare to use public data only. Private steps inside of them count all the same.
    """
    check_is_fitted(pipeline)
    found = _Found()
    _walk("", pipeline, frozenset(assume_public), found)
    unknown = sorted(set(assume_public) - set(found.assumed))
    if unknown:
        raise InvalidInputError(f"Expected assume_public among the steps that paid nothing, got {unknown}.")
    if not found.paid:
        raise InvalidInputError("Expected a pipeline with at least one private step, got none.")
    notes = [f"step {name!r}: nothing paid, it keeps nothing of the data" for name in found.free]
    notes += [f"step {name!r}: nothing paid, {_BY_ITSELF}" for name in found.functions]
    notes += [f"step {name!r}: nothing paid, declared to use public data only" for name in found.assumed]
    prices = prices_for(found.schemas)
    return composed(found.paid, delta, notes=notes, unpaid=found.unpaid, learned=prices)


def prices_for(schemas: Iterable[Any]) -> tuple[Price, ...]:
    """Return the prices of the schemas among these values, each payment once."""
    return each_once(p for schema in schemas if isinstance(schema, Schema) for p in schema.learned)


def _walk(name: str, step: Any, assumed: frozenset[str], found: _Found) -> None:
    # The same object in two places was fitted twice, so it counts twice; only a circle is cut.
    if step is None or isinstance(step, str) or id(step) in found.above:
        return
    found.above.append(id(step))
    _judge(name, step, assumed, found)
    found.above.pop()


def _judge(name: str, step: Any, assumed: frozenset[str], found: _Found) -> None:
    report, title = getattr(step, "privacy_", None), name or type(step).__name__
    if isinstance(report, PrivacyReport):
        found.paid.append((title, report))
        return
    if isinstance(step, PrivateEstimator) and not any(attribute.endswith("_") for attribute in vars(step)):
        return  # it was never fitted: wrappers keep one to copy
    found.schemas += [step.schema] if isinstance(getattr(step, "schema", None), Schema) else []
    if title in assumed and type(step).__name__ in REPEATS:
        raise InvalidInputError(
            f"The step {title!r} ({type(step).__name__}) gives private steps the same record several times, "
            "so what they guarantee for one record does not hold. It cannot be declared public."
        )
    if type(step) in CONTAINERS:
        pass  # it learns nothing; a class made from it may
    elif title in assumed:
        found.assumed.append(title)
    elif type(step) is FunctionTransformer and step.func is not None and not mixes_step(step):
        found.functions.append(title)
    elif keeps_nothing(step):
        found.free.append(title)
    else:
        found.unpaid.append(reason(title, step))
    inside = _Found(above=found.above)
    for inner, child in steps_of(step) if isinstance(step, CONTAINERS) else _children(step):
        _walk(f"{name}__{inner}" if name else inner, child, assumed, inside)
    found.add(inside, declared=title in found.assumed)


def steps_of(step: Any) -> Iterator[tuple[str, Any]]:
    """Yield the named steps of a container, fitted where it is."""
    if isinstance(step, ColumnTransformer):
        yield from ((name, child) for name, child, _ in getattr(step, "transformers_", step.transformers))
    else:
        yield from step.steps if isinstance(step, Pipeline) else step.transformer_list


def _children(step: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fitted estimators that a wrapper holds, however deep in lists, tuples and dictionaries.

    Its parameters are templates, which it copies before it fits them. What it hides under names that
    do not end like fitted attributes is a part of it; only a private model in there paid for itself.
    """
    templates = step.get_params(deep=False) if hasattr(step, "get_params") else {}
    for name, value in getattr(step, "__dict__", {}).items():
        held = [] if name in templates else list(_estimators(value, ()))
        if not name.endswith("_"):
            held = [child for child in held if isinstance(getattr(child, "privacy_", None), PrivacyReport)]
        yield from (
            (f"{name}{number}" if len(held) > 1 else name, child) for number, child in enumerate(held)
        )


def _estimators(value: Any, above: tuple[int, ...]) -> Iterator[BaseEstimator]:
    """Yield the estimators in a value; the same one in two places was fitted twice, only a circle is cut."""
    if id(value) in above:
        return
    inside: Iterable[Any] = ()
    if isinstance(value, BaseEstimator):
        yield value
    elif isinstance(value, dict):
        inside = value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        inside = value
    elif isinstance(value, np.ndarray) and value.dtype == object:
        inside = value.ravel().tolist()
    elif type(value).__module__.startswith("sklearn."):  # a pair of a model and its calibration
        inside = getattr(value, "__dict__", {}).values()
    for part in inside:
        yield from _estimators(part, (*above, id(value)))


def mixes_step(step: Any) -> bool:
    """Tell whether a function gives made-up rows another result together than one by one."""
    return mixes_rows(step.transform, invent_rows(np.zeros((0, getattr(step, "n_features_in_", 1)))))
