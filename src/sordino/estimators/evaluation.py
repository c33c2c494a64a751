"""Private scores of a model on sensitive records."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import logit
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline

from sordino.checks import among, check_count, check_flag, check_positive
from sordino.elsewhere import packed, unpacked
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.estimators.metrics import (
    LOG_LOSS_BOUND,
    Accuracy,
    AreaUnderCurve,
    BalancedAccuracy,
    Calibration,
    CalibrationCurve,
    Judged,
    Metric,
    Smooth,
)
from sordino.estimators.pipeline import learned_for, made_up, mixes_rows
from sordino.estimators.statistics import PrivateFloat, checked_share
from sordino.execute import executor_of, held_columns, in_dask
from sordino.execute.persons import mean_of_owners
from sordino.kernel import Relation
from sordino.kernel.arrays import Floats, Ints
from sordino.problems.robust import Sample
from sordino.refusals import refusing
from sordino.runs import Ask, Price, run_privately
from sordino.runs.price import each_once
from sordino.solvers.heavy.location import RowMeans
from sordino.tables import Schema

METRICS = ("accuracy", "balanced_accuracy", "log_loss", "auc", "calibration", "mse", "r2")
_REGRESSION = ("mse", "r2")
_BY_ROW = "the model, which predicts each row by itself"


def private_score(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    metric: str | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    loss_bound: float | None = None,
    bounds: tuple[float, float] | None = None,
    bins: int = 10,
    confidence: float = 0.95,
    groups: Any = None,
    relation: str = "add-remove",
    secure_noise: bool = False,
    ledger: Any = None,
    dataset_id: str | None = None,
) -> PrivateFloat | CalibrationCurve:
    r"""Return the private score of a fitted model on sensitive records, with ``privacy`` and ``interval``.

    Parameters
    ----------
    model : a fitted classifier or regressor; its predictions must treat each row by itself.
    X, y : the records; a model with a schema takes y from a table. Labels it does not know count as wrong.
        Both may lie in Dask: the model is then sent to them.
    metric : "accuracy" (None: of classifiers), "balanced_accuracy", "log_loss", "auc" and "calibration" (two
        classes), "mse", "r2" (None: of regressors).
    epsilon, delta : the budget; ``delta=None`` means ``min(1e-5, 1 / (10 n))``.
    loss_bound : where the loss of a record is clipped: of "log_loss" 4 (a chance of .018), of squared errors
        ``((high - low) / 2)^2``.
    bounds : public (low, high) of the targets of "mse" and "r2"; None takes the model's ``target_bound``.
    bins : cells of the calibration curve.
    confidence : of ``.interval``, which covers the score on the population that the records were drawn from,
        with the same clips.
    groups : the owner of each row; then a person is protected, and counts once, with the mean over its rows.
        A schema with a person column takes them from the table; a model of persons never scores by records.
    relation, secure_noise, ledger, dataset_id : as in the estimators.

    **Privacy.** (epsilon, delta)-DP for one record, or person, of X and y: one Gaussian release of the mean
    of one clipped row per record. The records that the model was fitted on are covered by its own report.

    Examples
    --------
    >>> import numpy as np, sordino
    >>> X = np.linspace(-1, 1, 4000)[:, None]
    >>> model = sordino.LogisticRegression(4.0, data_norm=1.0, classes=[0, 1]).fit(X, (X[:, 0] > 0) * 1)
    >>> score = sordino.private_score(model, X, (X[:, 0] > 0) * 1, epsilon=1.0)
    >>> bool(score.interval[0] <= score <= score.interval[1]), score.privacy.status
    (True, 'private')
    """
    name = _metric_name(metric, model)
    chosen = _metric(name, model, loss_bound, bounds, bins)
    level = checked_share("confidence", confidence)
    unit, rows = _scored(model, chosen, X, y, groups)
    n = len(rows)
    ask = Ask.checked(epsilon, delta, n, ledger, dataset_id, learned=_prices(model))
    secure = check_flag("secure_noise", secure_noise)
    fitted = run_privately(
        RowMeans(chosen.centre, chosen.radius),
        Sample(n, rows.shape[1], Relation.parse(relation), unit, secure),
        executor_of(rows, None, data_norm=None),
        ask,
        public=(f"number of {unit}s: {n}", *_facts(name, chosen, ask), _BY_ROW),
        description=f"private_score ({name})",
    )
    if isinstance(chosen, Calibration):
        return chosen.curve(fitted.result, n, level, fitted.report)
    value, low, high = chosen.estimate(fitted.result, n, level)
    return PrivateFloat(value, fitted.report, (low, high))


def _scored(model: Any, chosen: Any, X: Any, y: Any, groups: Any) -> tuple[str, Any]:
    """Return who is protected, and one row for each of them, wherever the records lie."""
    final = model.steps[-1][1] if isinstance(model, Pipeline) else model
    unit = getattr(getattr(final, "privacy_", None), "unit", "record")
    schema = _schema(model)
    if unit != "record" and groups is None and (schema is None or schema.person is None):
        raise InvalidInputError(
            f"Expected groups, the owner of each row: the model protects one {unit}, and a score without "
            "groups a record. Where each row is all of its owner, pass groups=range(n)."
        )
    if in_dask(X):
        return "record", _scored_there(model, chosen, X, y, groups)
    X, y, groups = _from_table(model, X, y, groups)
    rows = chosen.rows(_judged(model, X, y, chosen.asks))
    return ("record", rows) if groups is None else ("person", mean_of_owners(rows, groups))


def _scored_there(model: Any, chosen: Any, X: Any, y: Any, groups: Any) -> Any:
    schema = _schema(model)
    if groups is not None or (schema is not None and schema.person is not None):
        raise UnsupportedError(
            "Persons need all rows in one place: the records of one may lie in several parts. Bring the "
            "table into one place (X.compute())."
        )
    if y is None and schema is None:
        raise InvalidInputError("Expected y, or a table with the target that the model's schema declares.")
    rows = held_columns([X] if y is None else [X, y], Part(packed((model, chosen))))
    if not len(rows):
        raise InvalidInputError("Expected at least one row, got none.")
    return rows


@dataclass(frozen=True)
class Part:
    """The rows of a metric for one part of the records, as workers are asked for it."""

    payload: bytes = field(repr=False)

    def __call__(self, block: tuple[Any, ...]) -> Floats:
        model, chosen = unpacked(self.payload)
        X, y = block if len(block) == 2 else (block[0], None)
        if not _length(X):
            return np.zeros((0, len(chosen.centre)))
        X, y, _ = _from_table(model, X, y, None)
        rows: Floats = chosen.rows(_judged(model, X, y, chosen.asks))
        return rows


def _from_table(model: Any, X: Any, y: Any, groups: Any) -> tuple[Any, Any, Any]:
    """Return rows, targets and persons, those that the model's schema declares where they were not passed."""
    schema = _schema(model)
    if schema is None:
        return X, y, groups
    frame = schema.checked(X)
    known = schema.person is not None and schema.person.name in frame.names
    groups = schema.owners_of(schema.persons(frame) if known else None, groups)
    if y is not None:
        return X, y, groups
    features, targets, _ = schema.split(X)
    if targets is None:
        raise InvalidInputError("Expected y, or a table with the target that the model's schema declares.")
    return features, targets, groups


def _schema(model: Any) -> Schema | None:
    model = getattr(model, "best_estimator_", model)
    found = getattr(model.steps[0][1] if isinstance(model, Pipeline) else model, "schema", None)
    return found if isinstance(found, Schema) else None


def _prices(model: Any) -> tuple[Price, ...]:
    """Return what was paid for the schemas of a model, on which its predictions and the bounds rest."""
    params = model.get_params().values() if hasattr(model, "get_params") else ()
    return each_once((*getattr(getattr(model, "privacy_", None), "learned", ()), *learned_for(params)))


def _metric_name(metric: Any, model: Any) -> str:
    if metric is None:
        return "accuracy" if is_classifier(model) else "r2"
    name = {"roc_auc": "auc"}.get(metric, metric) if isinstance(metric, str) else metric
    among("metric", name, METRICS)
    if is_classifier(model) == (name in _REGRESSION):
        kind = "a regressor" if name in _REGRESSION else "a classifier"
        raise InvalidInputError(f"Expected {kind} for metric={name!r}, got a {type(model).__name__}.")
    return str(name)


def _metric(name: str, model: Any, loss_bound: Any, bounds: Any, bins: Any) -> Any:
    classes = np.size(getattr(model, "classes_", ()))
    if name in ("auc", "calibration") and classes != 2:
        raise UnsupportedError(f"metric={name!r} is for two classes, the model has {classes}.")
    if name == "accuracy":
        return Accuracy()
    if name == "balanced_accuracy":
        return BalancedAccuracy(classes)
    if name == "auc":
        return AreaUnderCurve()
    if name == "calibration":
        return Calibration(check_count("bins", bins, 2, 1000, "It is the number of cells.") or 10)
    remedy = "It is a public bound on the loss of one record."
    if name == "log_loss":
        return log_loss(
            LOG_LOSS_BOUND if loss_bound is None else check_positive("loss_bound", loss_bound, remedy)
        )
    low, high = _target_bounds(model, bounds)
    largest = ((high - low) / 2.0) ** 2
    if loss_bound is not None:
        largest = check_positive("loss_bound", loss_bound, remedy)
    return squared_error(low, high, largest) if name == "mse" else r_squared(low, high, largest)


def log_loss(bound: float) -> Smooth:
    """Return the mean of ``min(-log p(y), bound)``; a label that is not known costs the bound."""

    def columns(judged: Judged) -> Floats:
        known = judged.codes >= 0
        chance = judged.chances[np.arange(len(known)), np.maximum(judged.codes, 0)]
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.where(known, np.minimum(-np.log(chance), bound), bound)
        return (2.0 * loss / bound - 1.0)[:, None]

    return Smooth(1, columns, lambda m, _: _affine(m, bound), (0.0, bound), ("chances",))


def squared_error(low: float, high: float, bound: float) -> Smooth:
    """Return the mean of ``min((y - prediction)^2, bound)``, targets and predictions within their bounds."""
    return Smooth(
        1, lambda j: _squares(j, low, high, bound), lambda m, _: _affine(m, bound), (0.0, bound), ("values",)
    )


def r_squared(low: float, high: float, bound: float) -> Smooth:
    """Return ``1 - mse / variance`` with the same clips."""
    middle, half = (low + high) / 2.0, (high - low) / 2.0

    def columns(judged: Judged) -> Floats:
        t = (np.clip(judged.targets, low, high) - middle) / half
        return np.column_stack([_squares(judged, low, high, bound)[:, 0], t, 2.0 * t**2 - 1.0])

    def function(m: Floats, noise: float) -> tuple[float, Floats | None]:
        error, share = bound * (m[0] + 1.0) / 2.0, (m[2] + 1.0) / 2.0 - m[1] ** 2
        spread = half**2 * max(share, 2.0 * noise, 1e-9)
        if share <= 3.0 * noise:  # targets that vary less than the noise have no R2
            return float(1.0 - error / spread), None
        slope = error / spread**2 * half**2
        gradient = np.array([-bound / (2.0 * spread), -2.0 * m[1] * slope, slope / 2.0])
        return float(1.0 - error / spread), gradient

    return Smooth(3, columns, function, (-math.inf, 1.0), ("values",))


def _affine(m: Floats, bound: float) -> tuple[float, Floats | None]:
    return bound * (float(m[0]) + 1.0) / 2.0, np.array([bound / 2.0])


def _squares(judged: Judged, low: float, high: float, bound: float) -> Floats:
    away = np.clip(judged.predicted, low, high) - np.clip(judged.targets, low, high)
    return (2.0 * np.minimum(away**2, bound) / bound - 1.0)[:, None]


def _target_bounds(model: Any, bounds: Any) -> tuple[float, float]:
    schema = _schema(model)
    if bounds is None and schema is not None and schema.target is not None:
        bounds = (schema.target.low, schema.target.high)
    if bounds is None:
        declared = getattr(model, "target_bound", None)
        if declared is None:
            raise InvalidInputError(
                "Expected bounds=(low, high), or --bounds, public limits of the targets, or a model with a "
                "target_bound. Computing them from y would leak."
            )
        return -float(declared), float(declared)
    try:
        low, high = (float(b) for b in bounds)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError("Expected bounds as two numbers low < high, got something else.") from None
    if not -1e100 < low < high < 1e100 or not high - low > 1e-100:
        raise InvalidInputError(f"Expected finite bounds low < high, got {low:g} and {high:g}.")
    return low, high


def _facts(name: str, chosen: Metric, ask: Ask) -> tuple[str, ...]:
    if isinstance(chosen, Smooth) and name != "r2":
        return (f"loss_bound = {chosen.limits[1]:g} (losses of records are clipped to it)",)
    origin = "by a schema that was learned" if ask.learned else "declared"
    return (f"bounds of targets and losses: {origin}",) if name == "r2" else ()


def _judged(model: Any, X: Any, y: Any, asks: tuple[str, ...]) -> Judged:
    """Return what the metric needs of the predictions, and nothing else."""
    n = _length(X)
    targets = refusing(lambda: np.asarray(y), X, y, model)
    if targets.shape != (n,) or n == 0:
        raise InvalidInputError(f"Expected one target per row, got {n} rows and y of shape {targets.shape}.")
    none = np.zeros(0)
    if "values" in asks:
        values = refusing(lambda: targets.astype(float), X, y, model)
        said = _rowwise(model, "predict", X, n).astype(float)
        return Judged(none.astype(int), said.reshape(n), values, none, none)
    codes = _codes(targets, model.classes_)
    if "labels" in asks:
        said = _codes(_rowwise(model, "predict", X, n), model.classes_)
        return Judged(codes, said.astype(float), none, none, none)
    chances = margins = none
    if "margins" in asks and not hasattr(model, "predict_proba"):
        margins = _rowwise(model, "decision_function", X, n)
    else:
        chances = _rowwise(model, "predict_proba", X, n)
    if "margins" in asks and chances.size:
        margins = logit(np.clip(chances[:, 1], 1e-12, 1.0 - 1e-12))
    return Judged(codes, none, none, chances, np.nan_to_num(margins, nan=-math.inf))


def _codes(labels: Any, classes: Any) -> Ints:
    """Return the numbers of the labels among sorted classes; -1 for others."""
    kinds = [np.asarray(a).dtype.kind for a in (labels, classes)]
    numeric = [kind in "biuf" for kind in kinds]
    if numeric[0] != numeric[1] and "O" not in kinds:
        raise InvalidInputError("Expected y with labels of the type of the model's classes_, got others.")
    known = {label: number for number, label in enumerate(np.asarray(classes).tolist())}
    try:
        return np.array([known.get(label, -1) for label in np.asarray(labels).tolist()], dtype=np.int64)
    except TypeError:
        raise InvalidInputError("Expected one label per row, got values that are none.") from None


def _rowwise(model: Any, method: str, X: Any, n: int) -> Any:
    """Return predictions; refuse a model that gives made-up rows other ones alone than among others.

    **Privacy.** The sensitivity rests on it. Whether it is refused depends on the model and on the kind of X,
    never on a record: rows of X that were tried would say which of them lies on a border, for nothing.
    """
    if not hasattr(model, method):
        raise UnsupportedError(f"This metric needs a model with {method}, {type(model).__name__} has none.")
    rows, soft = made_up(X, _schema(model)), ("predict_proba", "decision_function")
    for name in (method, *(name for name in soft if hasattr(model, name))):
        if mixes_rows(getattr(model, name), rows):
            raise UnsupportedError(
                "The model predicts another value for a row alone than among others, so one record moves the "
                "predictions of all. Score a model that treats each row by itself."
            )
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a warning on some rows would tell of one of them
        found = np.asarray(refusing(lambda: getattr(model, method)(X), X, None, model))
    if len(found) != n:
        raise InvalidInputError(f"Expected one prediction per row, {n} of them, got {len(found)}.")
    return found


def _length(X: Any) -> int:
    if isinstance(X, dict):
        X = next(iter(X.values()), ())
    shape = getattr(X, "shape", None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else len(X)
