"""Private scores of a model on sensitive records."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from sordino.elsewhere import Applied, pack
from sordino.errors import (
    FitWarning,
    InvalidInputError,
    NotPrivateWarning,
    UnsupportedError,
    levels_to_the_caller,
)
from sordino.estimators.group_statistics import PrivateTable, group_by
from sordino.estimators.metrics import (
    Beside,
    CalibrationCurve,
    MetricRow,
    ScoreLimits,
    find_metric,
    judge,
    outside_words,
    predict_quietly,
    row_count,
    words_of_clip,
    words_without_r2,
)
from sordino.estimators.pipeline import final_step, invent_rows, mixes_rows, prices_for, schema_of
from sordino.estimators.statistics import PrivateFloat, check_bounds, check_share
from sordino.execute import executor_of, hold_columns, in_dask
from sordino.execute.persons import mean_of_owners
from sordino.kernel import Relation
from sordino.kernel.arrays import Floats
from sordino.private_estimator import PrivateEstimator, declared_rows
from sordino.problems.robust import Sample
from sordino.runs import Ask, Price, PrivacyReport, Task, run
from sordino.runs.report import Fact, Source, Status, each_once
from sordino.saving.files import model_digest
from sordino.solvers import statistic
from sordino.tables.values import flags_of
from sordino.values import check_count, check_flag, check_positive

_BY_ROW = Fact("the model, which predicts each row by itself", Source.KIND)


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
    secure_noise: bool = True,
    ledger: Any = None,
    dataset_id: str | None = None,
) -> PrivateFloat | CalibrationCurve:
    r"""Return the private score of a fitted model on sensitive records, with ``privacy`` and ``interval``.

    Parameters
    ----------
    model : a fitted classifier or regressor; its predictions must treat each row by itself.
    X, y : the records; a model with a schema takes y from a table. Labels it does not know count as wrong.
        Both may lie in Dask: the model is then sent to them. Weights and exposures count in fits only.
    metric : "accuracy" (None: of classifiers), "balanced_accuracy", "log_loss", "auc" and "calibration" (two
        classes), "mse", "mae", "deviance" (of counts), "r2" (None: of regressors), "rank_error" (None: of
        classes in an order). Scikit-learn's names will do: those that begin with ``neg_`` are the negative.
    epsilon, delta : the budget; ``delta=None`` means ``min(1e-5, 1 / (10 n))``.
    loss_bound : where the loss of a record is clipped: of "log_loss" 4 (a chance of .018), of "mse"
        ``((high - low) / 2)^2``, of a deviance ``2 high``; of "r2" nowhere: with a clip it is R2 or more.
    bounds : public (low, high) of the targets of a regressor; None takes the model's ``target_bound``. Where
        targets lie outside, the score is of clipped ones, and ``privacy.notes`` says how many there are.
    bins : cells of the calibration curve.
    confidence : of ``.interval``, which covers the score on the population that the records were drawn from,
        with the same clips. Where it is all that the score can be, the score is not known: ``nan``.
    groups : the owner of each row; then a person is protected, and counts once, with the mean over its rows.
        A schema with a person column takes them from the table; a model of persons never scores by records.
        One with ``rows_per_person`` scores as it was fitted: so many times the noise, in doubles.
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
    require_fitted(model)
    row, sign = find_metric("metric", metric, model)
    limits = limits_of(row, model, loss_bound, bounds, bins)
    chosen = row.with_constant(limits)
    level = check_share("confidence", confidence)
    unit, rows = _score_rows(model, chosen, row.asks, X, y, groups)
    n, most = len(rows), declared_rows(final_step(model)) if unit == "person" and groups is None else 1
    ask, prices = Ask.checked(epsilon, delta, n, ledger, dataset_id), model_prices(model)
    secure = check_flag("secure_noise", secure_noise)
    sample = Sample(n, rows.shape[1], Relation.parse(relation), unit, secure, most)
    sizes: list[str] = [Fact.number_of(unit if most == 1 else "record", n)]
    said = Fact(f"rows_per_person = {most} (nobody has more; declared with the model)", most=most)
    sizes += [said] * (most > 1)
    task = Task(
        statistic("row-means", sample, centre=chosen.centre, radius=chosen.radius),
        sample,
        f"private_score ({row.name})",
        public=(*sizes, *_facts(row, limits, bool(prices)), *alike_words(model), _BY_ROW),
        notes=model_notes(model, epsilon),
        learned=prices,
    )
    fitted = run(task, executor_of(rows, None, data_norm=None), ask)
    if hasattr(chosen, "curve"):
        return replace(chosen.curve(fitted.result, n, level, fitted.report), model=model_digest(model))
    found, report = fitted.result, fitted.report
    if row.numbers:
        told = [outside_words(limits, *chosen.baseline(found, n))]
        found, chosen = chosen.inner_means(found), chosen.inner
        if row.name == "r2":
            told += [words_without_r2(chosen, found, n, level), words_of_clip(row, limits)]
        for words in filter(None, told):
            warnings.warn(FitWarning(words), stacklevel=levels_to_the_caller())
            report = replace(report, notes=(*report.notes, words))
    value, *ends = (sign * number for number in chosen.estimate(found, n, level))
    whole = getattr(getattr(chosen, "inner", chosen), "limits", (0.0, 1.0))
    unlike = row.name == "r2" and words_of_clip(row, limits)  # the constant's errors have no clip
    declared = None if row.constant is None or unlike else (row.constant(limits.classes), 0.0)
    constant = chosen.baseline(found, n) if isinstance(chosen, Beside) else declared
    largest = 1.0 if row.share else math.inf  # noise may take a share beyond 1
    best = None if constant is None else (sign * min(constant[0], largest), constant[1])
    interval = min(ends), max(ends)
    value = math.nan if interval == tuple(sorted(sign * end for end in whole)) else value
    return PrivateFloat(value, report, interval, None, best, model_digest(model), metric or row.name)


def private_scores_by(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    by: Any,
    metric: str | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    loss_bound: float | None = None,
    bounds: tuple[float, float] | None = None,
    groups: Any = None,
    **options: Any,
) -> PrivateTable:
    """Return the private score of each declared subgroup of sensitive records, all for one price.

    Parameters
    ----------
    model, X, y, epsilon, delta, loss_bound, bounds, groups : as in :func:`private_score`.
    by : the name of a column of the model's schema that has levels, or ``{name: (values, levels)}``.
    metric : one that is a mean over records: "accuracy" (None: of classifiers), "log_loss", "mse", "mae"
        (None: of regressors), "deviance", "rank_error" (None: of classes in an order).
    options : ``confidence``, ``relation``, ``secure_noise``, ``ledger``, ``dataset_id``.

    **Privacy.** (epsilon, delta)-DP for one record (person) of X and y: one release of counts, sums and sums
    of squares by subgroup, as of :meth:`GroupBy.mean`. A record is in one subgroup.
    """
    require_fitted(model)
    name = metric if metric is not None or is_classifier(model) else "mae"
    row, sign = find_metric("metric", name, model)
    if row.loss is None:
        raise UnsupportedError(f"{row.name!r} is no mean over records: subgroups have none. Choose another.")
    limits = limits_of(row, model, loss_bound, bounds, 10)
    keys, levels = _subgroups(model, X, y, by)
    features, targets, owners = from_table(model, X, y, groups)
    bound = row.bound_of(limits)
    losses = np.minimum(row.losses(judge(model, features, targets, row.asks, _rowwise), limits), bound)
    losses = np.nan_to_num(losses, nan=bound)
    values = sign * (1.0 - losses if row.gain else losses)
    ends = (0.0, 1.0) if row.gain else tuple(sorted((0.0, sign * bound)))
    most = declared_rows(final_step(model)) if owners is None else 1
    if most == 1:
        require_owners(model, owners)
    grouped = group_by(keys, levels=levels, groups=owners, rows_per_person=most if most > 1 else None)
    notes = model_notes(model, epsilon)
    terms = {"learned": model_prices(model), "title": f"private_score ({row.name} by {', '.join(keys)})"}
    found = grouped.mean(values, epsilon, delta, bounds=ends, **terms, **options)
    said = found.privacy
    together = (Fact(f"{x}, all groups together", x.origin, x.units) if x.units else x for x in said.public)
    privacy = replace(said, public=(*together, *alike_words(model)), notes=(*said.notes, *notes))
    value = np.where((found.low <= ends[0]) & (found.high >= ends[1]), np.nan, found.value)
    return replace(
        found, statistic=metric or row.name, value=value, model=model_digest(model), privacy=privacy
    )


def require_fitted(model: Any) -> None:
    """Refuse a model of ours that was not fitted, by scikit-learn's own error; of others nobody knows."""
    if isinstance(final_step(model), PrivateEstimator):
        check_is_fitted(final_step(model))


def _subgroups(model: Any, X: Any, y: Any, by: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values and the declared levels of the subgroups, by name; those of a flag are yes and no."""
    schema = schema_of(model)
    if isinstance(by, Mapping):
        return {name: pair[0] for name, pair in by.items()}, {name: pair[1] for name, pair in by.items()}
    frame: Any = None if schema is None else schema.checked(X, target=y is None and schema.target is not None)
    column = next((c for c in getattr(schema, "columns", ()) if c.name == by and by in frame.names), None)
    if getattr(column, "word", "") == "flag":
        words = np.array(["no", "yes", "", ""], dtype=object)  # gaps and other words have negative codes
        return {by: words[flags_of(frame.column(by))]}, {by: ["yes", "no"]}
    if not getattr(column, "levels", None):
        found = repr(by) if isinstance(by, str) else type(by).__name__  # a column itself is not quoted
        raise InvalidInputError(
            f"Expected by= as a column of the model's schema that declares levels, got {found}. Pass "
            "{name: (values, levels)} for another."
        )
    return {by: np.asarray(frame.column(by))}, {by: column}


def _score_rows(model: Any, chosen: Any, asks: str, X: Any, y: Any, groups: Any) -> tuple[str, Any]:
    """Return who is protected, and one row for each of them, wherever the records lie."""
    if declared_rows(final_step(model)) > 1 and groups is None and not in_dask(X):
        X, y, _ = from_table(model, X, y, None)
        return "person", chosen.rows(judge(model, X, y, asks, _rowwise))
    require_owners(model, groups)
    if in_dask(X):
        schema = schema_of(model)
        if groups is not None or (schema is not None and schema.person is not None):
            raise UnsupportedError(
                "Persons need all rows in one place: the records of one may lie in several parts. Bring the "
                "table into one place (X.compute())."
            )
        if y is None and schema is None:
            raise InvalidInputError(
                "Expected y, or a table with the target that the model's schema declares."
            )
        part = Applied(pack((_score_part, model, chosen, asks)))
        rows = hold_columns([X] if y is None else [X, y], part)
        if not len(rows):
            raise InvalidInputError("Expected at least one row, got none.")
        return "record", rows
    X, y, groups = from_table(model, X, y, groups)
    rows = chosen.rows(judge(model, X, y, asks, _rowwise))
    return ("record", rows) if groups is None else ("person", mean_of_owners(rows, groups))


def require_owners(model: Any, groups: Any) -> None:
    """Refuse rows that do not say whose they are, for a model that protects persons."""
    unit, schema = getattr(getattr(final_step(model), "privacy_", None), "unit", "record"), schema_of(model)
    if unit != "record" and groups is None and (schema is None or schema.person is None):
        raise InvalidInputError(
            f"Expected groups, the owner of each row: the model protects one {unit}, and a score without "
            "groups a record. Pass them (another number in each row, where a row is all of its owner), on "
            "the command line by an NPZ file with X, y and groups."
        )


def _score_part(model: Any, chosen: Any, asks: str, block: tuple[Any, ...]) -> Floats:
    """Return the rows of a metric for one part of the records."""
    X, y = block if len(block) == 2 else (block[0], None)
    if not row_count(X):
        return np.zeros((0, len(chosen.centre)))
    X, y, _ = from_table(model, X, y, None)
    rows: Floats = chosen.rows(judge(model, X, y, asks, _rowwise))
    return rows


def from_table(model: Any, X: Any, y: Any, groups: Any) -> tuple[Any, Any, Any]:
    """Return rows, targets and persons. Targets and persons that were not passed come from the table."""
    schema = schema_of(model)
    if schema is None:
        return X, y, groups
    if y is not None:
        frame = schema.checked(X)
        known = schema.person is not None and schema.person.name in frame.names
        return X, y, schema.owners_of(schema.persons(frame) if known else None, groups)
    features, targets, persons = schema.split(X)
    groups = schema.owners_of(persons, groups)
    if targets is None:
        raise InvalidInputError("Expected y, or a table with the target that the model's schema declares.")
    return features, targets, groups


def alike_words(model: Any) -> tuple[Fact, ...]:
    """Return what scores judge where that is no plain target, and which records count, and that all alike."""
    schema = schema_of(model)
    names = " and ".join(repr(column.name) for column in getattr(schema, "weighing", ()))
    gaps = getattr(getattr(schema, "target", None), "missing", "") == "leave out"
    over = getattr(schema, "exposure", None)
    rate = f"; what is scored is the rate, the target per unit of {over.name!r}" if over else ""
    alike = f"records count alike in scores: only fits are weighted by {names}{rate}"
    left = Fact("records without a target are left out, here too", Source.ALIKE, leaves_out=True)
    asked = final_step(model)
    share = asked.quantile if getattr(asked, "loss", "") == "quantile" else None
    judged = f"the model predicts the {share} quantile: r2 and mse judge it as a mean, mae as a median"
    said = [Fact(words, Source.ALIKE) for words in (alike * bool(names), judged * bool(share)) if words]
    return (*said, *([left] * gaps))


def model_prices(model: Any) -> tuple[Price, ...]:
    """Return what was paid for the schemas of a model, on which its predictions and the bounds rest."""
    params = model.get_params().values() if hasattr(model, "get_params") else ()
    return each_once((*getattr(getattr(model, "privacy_", None), "learned", ()), *prices_for(params)))


def model_status(model: Any) -> Status:
    """Return the worst status of a model or of the steps of a pipeline, but for what prices hand on."""
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    reports = [getattr(step, "privacy_", None) for step in steps]
    return Status.worst(
        report.status
        for report in reports
        if isinstance(report, PrivacyReport)
        and report.status is not Status.worst(price.status for price in report.learned)
    )


def model_notes(model: Any, epsilon: Any) -> tuple[str, ...]:
    """Return what the report on a model that is not private says of it, after a warning in these words."""
    status = model_status(model)
    if status.holds or (isinstance(epsilon, float) and math.isinf(epsilon)):
        return ()
    said = (
        f"The model itself is {status}: what is said through it about these records is not private either, "
        "unless the model was fitted on other records"
    )
    warnings.warn(NotPrivateWarning(said), stacklevel=levels_to_the_caller())
    return (said,)


def limits_of(row: MetricRow, model: Any, loss_bound: Any, bounds: Any, bins: Any) -> ScoreLimits:
    """Return the public limits of a private score, checked."""
    remedy = "It is a public bound on the loss of one record."
    other: dict[str, Any] = {
        "loss": None if loss_bound is None else check_positive("loss_bound", loss_bound, remedy),
        "classes": int(np.size(getattr(model, "classes_", ()))),
        "bins": check_count("bins", bins, 2, 1000, "It is the number of cells.") or 10,
    }
    if not row.numbers:
        return ScoreLimits(**other)
    schema = schema_of(model)
    if bounds is None and schema is not None and schema.target is not None:
        bounds = (schema.target.low, schema.target.high)
    if bounds is None:
        declared = getattr(model, "target_bound", None)
        if declared is None:
            raise InvalidInputError(
                "Expected bounds=(low, high), or --bounds, public limits of the targets, or a model with a "
                "target_bound. Computing them from y would leak."
            )
        return ScoreLimits.between(-float(declared), float(declared), **other)
    low, high = check_bounds(bounds) or (0.0, 0.0)
    if not -1e100 < low < high < 1e100 or not high - low > 1e-100:  # errors are squared
        raise InvalidInputError(f"Expected finite bounds low < high, got {low:g} and {high:g}.")
    return ScoreLimits.between(low, high, **other)


def _facts(row: MetricRow, limits: ScoreLimits, learned: bool) -> tuple[str, ...]:
    if row.name == "r2":
        said = "by a schema that was learned" if learned else "declared"
        origin = Source.LEARNED if learned else Source.DECLARED
        return (Fact(f"bounds of targets and predictions: {said}", origin),)
    clipped = row.loss is not None and not row.gain
    beside = "" if row.name in ("mae", "rank_error") else "; those of the best constant are not"
    words = f"loss_bound = {row.bound_of(limits):g} (losses of records are clipped to it{beside})"
    return (Fact(words, Source.CLIP),) if clipped else ()


def _rowwise(model: Any, method: str, X: Any, n: int) -> Any:
    """Return predictions; refuse a model that gives made-up rows other ones alone than among others.

    **Privacy.** The sensitivity rests on it; rows of X, if tried, would tell which of them lie on a border.
    """
    rows, soft = invent_rows(X, schema_of(model)), ("predict_proba", "decision_function")
    for name in (method, *(name for name in soft if hasattr(model, name))):
        if mixes_rows(getattr(model, name), rows):
            raise UnsupportedError(
                "The model predicts another value for a row alone than among others, so one record moves the "
                "predictions of all. Score a model that treats each row by itself."
            )
    return predict_quietly(model, method, X, n)
