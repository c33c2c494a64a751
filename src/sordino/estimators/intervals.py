"""Intervals of a linear model, paid for: of effects and expected values, and of single new targets."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from sordino.checks import check_data, encode_labels
from sordino.errors import FitWarning, InvalidInputError, UnsupportedError, levels_to_the_caller
from sordino.estimators.evaluation import from_table, model_notes, model_prices, model_status, require_owners
from sordino.estimators.linear_base import LinearModel
from sordino.estimators.metrics import row_count
from sordino.estimators.statistics import check_share
from sordino.execute import executor_of, in_dask
from sordino.execute.persons import mean_of_owners, number_owners
from sordino.kernel import Relation
from sordino.kernel.arrays import Floats, public_norm
from sordino.kernel.clip import clipped_matrix
from sordino.problems.losses import LOSSES, label_targets
from sordino.problems.robust import Sample, triangle
from sordino.runs import Ask, PrivacyReport, Task, run
from sordino.runs.report import Fact, Source, Status
from sordino.solvers import statistic
from sordino.solvers.one_step import Step, Units
from sordino.tables import Shape
from sordino.tables.encoder import TableEncoder
from sordino.tables.shapes import corners_of, questions_of, without_pairs
from sordino.values import refusing

# A step that moves some margin, of a table what one column adds where there are records, further than this
# leaves the curvature that it was made with (not of squares).
_FAR = 2.5
# Columns that can be told apart: of records their curvature has a root, of persons it is a list of squares.
_MOST_COLUMNS, _MOST_OF_PERSONS = 400, 64
# Records times epsilon, over the square of the columns, from which on the noise of a curvature hides few of
# them: knots that a model chose by its rule are fewer where there are less.
_ROOM = 20.0
# The constant behind each row, in units of the longest row.
_CONSTANT = 0.5
_BY_ROW = Fact("the model, which treats each row by itself", Source.KIND)


@dataclass(frozen=True, eq=False)
class Intervals:
    """What :func:`intervals` returns: a better estimate of the same model with its whole uncertainty.

    Attributes
    ----------
    coef_, intercept_ : the coefficients after one private Newton step, without a penalty.
    low, high : the ends of the interval of each coefficient, infinite where the records do not tell it apart
        from others, as for the lines and hats of one column of a table: see ``shapes_`` for these.
    confidence, privacy : as asked, and the :class:`sordino.PrivacyReport` of these intervals.
    fitted : the model that was asked for; ``model`` is the best one of single columns where this has pairs.
    """

    model: Any
    privacy: PrivacyReport
    confidence: float
    coef_: Floats
    intercept_: float
    _units: Units = field(repr=False)
    _step: Step = field(repr=False)
    fitted: Any = field(repr=False)

    def _deviations(self, rows: Floats) -> Floats:
        """Return the standard error of linear functions of coefficients and intercept; inf if not known."""
        rows = np.atleast_2d(rows)
        own = rows @ self._units.own
        lost = np.array([public_norm(row) for row in rows - own @ self._units.back])
        sizes = np.array([public_norm(row) for row in rows])
        variances = np.einsum("ij,jk,ik->i", own, self._step.covariance, own)
        unknown = (lost > 1e-6 * sizes) | (np.abs(own[:, ~self._step.there]) > 1e-9).any(axis=1)
        return np.where(unknown | (not self._step.ends), np.inf, np.sqrt(np.maximum(variances, 0.0)))

    @property
    def width(self) -> float:
        """How many standard errors there are from a value to each end."""
        return float(ndtri(0.5 + 0.5 * self.confidence))

    @cached_property
    def errors(self) -> Floats:
        """The standard error of each coefficient, sampling and noise."""
        return self._deviations(np.eye(self.coef_.size, self.coef_.size + 1))

    @property
    def low(self) -> Floats:
        """The lower ends for the coefficients."""
        return self.coef_ - self.width * self.errors

    @property
    def high(self) -> Floats:
        """The upper ends for the coefficients."""
        return self.coef_ + self.width * self.errors

    @property
    def ratios(self) -> Floats:
        """``exp`` of coefficient, low and high, as rows: ratios of odds or rates for one unit of a column."""
        with np.errstate(over="ignore"):
            return np.exp(np.stack([self.coef_, self.low, self.high], axis=1))

    @cached_property
    def shapes_(self) -> list[Shape]:
        """With a schema, the effects of columns, measured from their mean over the declared values.

        Their ``noise`` has sampling error and noise. It is infinite at levels, gaps and knots of which the
        records show no more than noise, as nobody may be there, and these do not count in the mean.
        """
        fitted, out = {shape.columns: shape for shape in self.model.shapes_}, []
        encoder, shown = self.model.encoder_, self._step.shown(self._units)
        for asks, (_, corners, _), known in zip(
            questions_of(encoder), corners_of(encoder), shown, strict=True
        ):
            there = known[(asks.own[:, None] == corners[None]).all(axis=2).argmax(axis=1)]
            counted = (np.arange(len(there)) < asks.named) & (there | ~there[: asks.named].any())
            rows = asks.center(counted / counted.sum())
            errors = self._deviations(np.column_stack([rows, np.zeros(len(rows))]))
            errors[~there] = np.inf
            effect, noise = asks.shape(rows @ self.coef_), asks.shape(errors)
            out.append(replace(fitted[asks.columns], at=asks.at, effect=effect, noise=noise))
        return sorted(out, key=lambda shape: -shape.importance)

    def records(self) -> list[dict[str, Any]]:
        """Return ``name``, ``value``, ``low`` and ``high`` of each coefficient, of a table of each effect.

        Of odds and rates ``ratio`` has the exponential of the three numbers.
        """
        out: list[dict[str, Any]] = []
        for name, value, error in self._lines():
            three = value, value - self.width * error, value + self.width * error
            out.append({"name": name, **dict(zip(("value", "low", "high"), three, strict=True))})
            if self.model._loss().link.name != "identity":
                with np.errstate(over="ignore"):
                    out[-1]["ratio"] = np.exp(three).tolist()
        return out

    def _lines(self) -> Iterator[tuple[str, float, float]]:
        """Yield the name of each coefficient or effect, its value and its standard error."""
        if not hasattr(self.model, "shapes_"):
            names = getattr(self.model, "feature_names_in_", [f"x{i}" for i in range(self.coef_.size)])
            yield from zip(map(str, names), self.coef_.tolist(), self.errors.tolist(), strict=True)
            return
        for shape in self.shapes_:  # coefficients of one column repeat each other
            errors = np.asarray(shape.noise).tolist()
            least = 1e-9 * max(filter(math.isfinite, errors), default=0.0)
            for at, value, error in zip(shape.at[0], shape.effect.tolist(), errors, strict=True):
                if error >= least:  # the middle of a straight line is its mean
                    yield f"{shape.name} = {f'{at:g}' if isinstance(at, float) else at}", value, error

    def predict(self, X: Any) -> tuple[Floats, Floats, Floats]:
        """Return the expected target (of two classes, the probability of the second) and its interval's ends.

        **Privacy.** Post-processing; X is not protected by it.
        """
        rows = _clipped_rows(self.model, X)
        margins, errors = rows @ np.append(self.coef_, self.intercept_), self.width * self._deviations(rows)
        link = self.model._loss().link
        ends = (margins, margins - errors, margins + errors)
        if link.odds:
            with np.errstate(over="ignore"):
                low_middle_high = [1.0 / (1.0 + np.exp(-end)) for end in ends]
        else:
            limits = self.model.target_range_
            low_middle_high = [np.clip(link.mean(end), *limits) for end in ends]
        return low_middle_high[0], low_middle_high[1], low_middle_high[2]


def intervals(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    epsilon: float = 1.0,
    delta: float | None = None,
    confidence: float = 0.95,
    groups: Any = None,
    relation: str = "add-remove",
    ledger: Any = None,
    dataset_id: str | None = None,
) -> Intervals:
    r"""Return intervals for coefficients, effects and expected values that count sampling error and noise.

    One private Newton step from the model's coefficients, with released curvature and released squares of the
    scores (a sandwich): it holds for unequal variances too, and undoes the model's penalty. The step leads to
    the coefficients that minimise the loss over the population, of targets clipped to their bounds.

    Few records with large targets may carry an effect and hide in any noise, so errors grow with the declared
    bounds: a tight ``target_bound`` and ``data_norm`` make intervals short. Where the released step says that
    one step cannot mend a logistic or a rate model, all ends are open and a :class:`FitWarning` says so.

    Parameters
    ----------
    model : a fitted :class:`sordino.LinearRegression` (``squared``, ``poisson`` or ``gamma``) or a logistic
        model of two classes, with at most 400 columns that can be told apart, 64 of persons. The nearer it is
        to the truth, the better one step does. Of a model with pairs the intervals, and ``predict`` of the
        result, are those of the best model of single columns: what each column does on average over the
        records. Knots that nobody chose are as many as records times epsilon tell apart, 1 to 5, and the
        report says how many.
    X, y : the records, the same as in fit or others; a model with a schema takes y from a table.
    epsilon, delta : the budget, on top of the model's.
    confidence : of each interval by itself.
    groups : the owner of each row; then a person is protected, and counts once, with the mean over its rows.
        A schema with a person column takes them from the table.
    relation, ledger, dataset_id : as in the estimators.

    **Privacy.** (epsilon, delta)-DP for one record, or person, of X and y: see :class:`OneStep`. The records
    that the model was fitted on are covered by its own report.

    Examples
    --------
    >>> import numpy as np, sordino
    >>> x = np.linspace(-1, 1, 4000)[:, None]
    >>> y = 0.5 * x[:, 0] + 0.3 * np.sin(np.arange(4000.0))
    >>> model = sordino.LinearRegression(0.5, data_norm=1.0, target_bound=1.0).fit(x, y)
    >>> found = sordino.intervals(model, x, y, epsilon=0.5)
    >>> bool(found.low[0] < 0.5 < found.high[0]), found.privacy.status
    (True, 'private')
    """
    loss = _check_model(model)
    level = check_share("confidence", confidence)
    if in_dask(X):
        raise UnsupportedError("Intervals need all rows in one place. Bring the table here: X.compute().")
    X, y, groups = from_table(model, X, y, groups)
    if y is None:
        raise InvalidInputError("Expected y, or a table with the target that the model's schema declares.")
    require_owners(model, groups)
    unit = "record" if groups is None else "person"
    n = row_count(X) if groups is None else np.unique(number_owners(groups)).size
    ask = Ask.checked(epsilon, delta, n, ledger, dataset_id)
    declared = (fact for fact in model.privacy_.public if not fact.units)
    given, (model, said) = model, _plain_model(model, n * ask.epsilon)
    units, most = units_of(model), _MOST_COLUMNS if groups is None else _MOST_OF_PERSONS
    if len(units.back) > most:
        raise UnsupportedError(
            f"Expected at most {most} columns that can be told apart, got {len(units.back)}: their "
            "squares would cost more than they tell. Declare fewer levels, or fewer knots."
        )
    rows, largest = _influences(model, loss, units, X, y, groups)
    sample = Sample(n, rows.shape[1], Relation.parse(relation), unit)
    residual, bent = largest
    options = {"units": units, "residual": residual, "bent": bent, "roots": groups is None}
    options["squares"] = min(0.02 + 0.02 * ask.epsilon, 0.15)
    if loss.name == "squared":
        low, high = model.target_range_
        above = np.append(np.ravel(model.coef_), np.ravel(model.intercept_)[0] - 0.5 * (low + high))
        options |= {"whole": units.back @ above, "middle": 0.5 * (high - low)}
    task = Task(
        statistic("one-step", sample, **options),
        sample,
        "intervals",
        public=(Fact.number_of(unit, n), *declared, _BY_ROW),
        notes=(*model_notes(model, epsilon), *said),
        learned=model_prices(model),
    )
    fitted = run(task, executor_of(rows, None, data_norm=None), ask)
    step, report, status = fitted.result, fitted.report, model_status(model)
    if status is Status.SEEDED:  # of the model, whose coefficients the estimate contains
        report = replace(report, seeded=True)
    elif not status.holds:
        reason = f"the model that it starts from, {status}, unless it was fitted on other records"
        report = report.with_unpaid(reason)
    moved = units.own @ step.moved
    far = step.farthest(units)
    if not step.ends or (loss.name != "squared" and far > _FAR):
        why = f"margins of the model may be {far:.2g} off. One step from further than {_FAR:g} need not end"
        why = f"{why} near the optimum" if step.ends else "the curvature is less than its noise"
        report = _warn(
            "intervals",
            report,
            f"released numbers say that {why}, so all ends are open. Fit with a larger epsilon or closer "
            "bounds (data_norm, those of columns), or ask for intervals with a larger epsilon",
        )
        step = replace(step, ends=False)
    coef, intercept = np.ravel(model.coef_) + moved[:-1], float(np.ravel(model.intercept_)[0] + moved[-1])
    return Intervals(model, report, level, coef, intercept, units, step, given)


def _warn(asked: str, report: PrivacyReport, text: str) -> PrivacyReport:
    """Say what released numbers tell, now and in the notes of the report that is returned."""
    warnings.warn(f"{asked}: {text}", FitWarning, stacklevel=levels_to_the_caller())
    return replace(report, notes=(*report.notes, text))


@dataclass(frozen=True, eq=False)
class PredictionIntervals:
    """What :func:`prediction_intervals` returns: ``radius``, a private quantile of errors, ``privacy``.

    The radius is infinite, and ends are the declared bounds of the targets, where records do not tell it.
    """

    model: Any
    coverage: float
    radius: float
    privacy: PrivacyReport

    def predict(self, X: Any) -> tuple[Floats, Floats, Floats]:
        """Return predictions and the ends of their intervals, within the declared bounds of the targets."""
        found = np.asarray(self.model.predict(X), dtype=float)
        reach = self.radius * _scale(self.model, found)
        reach += 2.0**-48 * (np.abs(found) + reach)  # a target at the end stays inside, however it is rounded
        limits = _limits(self.model)
        return found, np.clip(found - reach, *limits), np.clip(found + reach, *limits)


def prediction_intervals(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    epsilon: float = 1.0,
    delta: float | None = None,
    coverage: float = 0.95,
    groups: Any = None,
    relation: str = "add-remove",
    ledger: Any = None,
    dataset_id: str | None = None,
) -> PredictionIntervals:
    """Return intervals that cover a share of new targets: a private quantile of the errors on other records.

    Whatever the law of the records and however wrong the model, a new record of the same law is covered with
    at least about this probability (split conformal prediction): the rank is one standard deviation of its
    noise higher than the share asks, so where records times epsilon are few, radius and coverage are larger.
    The radius is rounded up, so that errors which are all alike are covered.
    Where that rank is beyond the last record (95 % at epsilon 1: below about 500 records), or the radius as
    wide as the declared bounds, ends are these bounds, and a :class:`FitWarning` says so. Errors of
    counts are measured in roots of the prediction, those of Gamma amounts in the prediction.

    Parameters
    ----------
    model : a fitted regressor, of a table or not.
    X, y : records that the model was not fitted on; a model with a schema takes y from a table.
    epsilon, delta : the budget, on top of the model's.
    coverage : the share of new targets to cover.
    groups : the owner of each row; the first row of each person is asked, and persons are protected.
    relation, ledger, dataset_id : as in the estimators.

    **Privacy.** (epsilon, delta)-DP for one record, or person, of X and y: one error each, ranked as by
    :func:`sordino.quantiles`.

    Examples
    --------
    >>> import numpy as np, sordino
    >>> x = np.linspace(-1, 1, 4000)[:, None]
    >>> y = 0.5 * x[:, 0] + 0.3 * np.sin(np.arange(4000.0))
    >>> model = sordino.LinearRegression(0.5, data_norm=1.0, target_bound=1.0).fit(x[::2], y[::2])
    >>> found = sordino.prediction_intervals(model, x[1::2], y[1::2], coverage=0.9)
    >>> mean, low, high = found.predict(x)
    >>> bool(0.85 < np.mean((low <= y) & (y <= high)) < 0.95)
    True
    """
    share = check_share("coverage", coverage)
    X, y, groups = from_table(model, X, y, groups)
    if y is None or hasattr(model, "classes_"):
        raise InvalidInputError(
            "Expected a regressor and y, or a table with the target that its schema declares."
        )
    require_owners(model, groups)
    predicted = np.asarray(model.predict(X), dtype=float)
    truth = refusing(lambda: np.asarray(y, dtype=float).reshape(predicted.shape), X, y, model)
    errors = np.abs(truth - predicted) / _scale(model, predicted)
    if groups is not None:
        errors = errors[np.unique(number_owners(groups), return_index=True)[1]]
    n, who = len(errors), "record" if groups is None else "person"
    sample, rank = Sample(n, 1, Relation.parse(relation), who), min(share * (1.0 + 1.0 / n), 1.0)
    ask = Ask.checked(epsilon, delta, n, ledger, dataset_id)
    alone = ask.ledger is None
    task = Task(
        statistic("quantiles", sample, probabilities=(rank,), epsilon=ask.epsilon, once=alone, outwards=True),
        sample,
        "prediction_intervals",
        public=(Fact.number_of(who, n), _BY_ROW),
        notes=model_notes(model, epsilon),
        learned=model_prices(model),
    )
    fitted = run(task, executor_of(errors[:, None], None, data_norm=None), ask)
    radius, (low, high), report = max(float(fitted.result.value[0, 0]), 0.0), _limits(model), fitted.report
    if radius * float(_scale(model, np.array([high]))[0]) >= high - low or math.isinf(radius):
        report = _warn(
            "prediction_intervals",
            report,
            f"{n} {who}s and epsilon = {ask.epsilon:g} do not tell how far a share of {share:.3g} of the "
            "targets may be off, so all ends are their declared bounds, or open. Ask for a smaller coverage, "
            "or with more records or a larger epsilon.",
        )
        radius = math.inf
    return PredictionIntervals(model, share, radius, report)


def _limits(model: Any) -> tuple[float, float]:
    """Return the declared bounds of the targets, which predictions keep."""
    low, high = getattr(model, "target_range_", (-math.inf, math.inf))
    return low, high


def _scale(model: Any, predicted: Floats) -> Floats:
    """Return what the spread of targets grows with, by the loss: a function of each prediction."""
    return np.maximum(predicted, 1e-6) ** spread_of(model)[0]


def spread_of(model: Any) -> tuple[float, str]:
    """Return the power of the prediction that the spread of targets grows with, and its name."""
    name = model._loss().name if isinstance(model, LinearModel) else ""
    known = {"poisson": (0.5, "roots of the prediction"), "gamma": (1.0, "shares of the prediction")}
    return known.get(name, (0.0, "units of the target"))


def _check_model(model: Any) -> Any:
    check_is_fitted(model)
    loss = model._loss() if isinstance(model, LinearModel) else None
    if getattr(getattr(model, "schema", None), "weighing", ()):
        raise UnsupportedError("Records with weights or exposures have no intervals: all would count alike.")
    if not hasattr(loss, "expected_curvature") or np.size(model.intercept_) != 1:
        known = ", ".join(name for name, one in LOSSES.items() if hasattr(one, "expected_curvature"))
        raise UnsupportedError(
            f"Expected a fitted linear or logistic model of two classes with a loss among {known}: others "
            "have no curvature that one step can use."
        )
    return loss


def units_of(model: Any) -> Units:
    """Return units in which no direction of the rows is much longer than others, as far as is public.

    Rows of numbers fill a ball. A table's rows lie between few corners of each column, its knots and levels:
    there all corners are equally far from their middle, by the root of how many directions they have, which
    makes the volume that holds all rows as small as can be. Lines and hats of one column repeat each other.
    """
    d, norm = np.size(model.coef_), float(model.data_norm_)
    if getattr(model, "schema", None) is None:
        units = np.append(np.ones(d), _CONSTANT * norm)
        return Units(np.diag(units), np.diag(1.0 / units), norm, _CONSTANT * norm, np.zeros(d + 1, bool))
    texts = [column.name for column in model.schema.features if column.word == "text"]
    if texts:
        raise UnsupportedError(f"Column {texts[0]!r}: effects of hashed words have no intervals.")
    parts, corners, seldom, last = [], [], [], np.eye(d + 1)[-1]
    made = last[None].copy()
    for here, rows, usual in corners_of(model.encoder_):
        whole = np.tile(last, (len(rows), 1))
        whole[:, here] = rows
        parts.append(_even(whole, usual))
        corners.append(whole @ parts[-1])
        seldom.append(np.abs(corners[-1][:usual]).max(axis=0) < 1e-9)
        made[:, here] = rows[0]
        made = np.vstack([made, made[0] + whole - whole[0]])
    norm = public_norm(np.array([_longest(one) for one in corners]))
    own = np.column_stack([*parts, _CONSTANT * norm * last])
    back = np.linalg.pinv(made @ own) @ made
    return Units(own, back, norm, _CONSTANT * norm, np.append(np.concatenate(seldom), False), tuple(corners))


def _even(corners: Floats, usual: int) -> Floats:
    """Return what takes rows of one column to numbers of which all corners have about one length."""
    ways, sizes, _ = np.linalg.svd(corners[:usual] - corners[:usual].mean(axis=0), full_matrices=False)
    ways = ways[:, sizes > 1e-9 * max(float(sizes[0]), 1e-300)]
    long, chosen = math.sqrt(ways.shape[1]), list(range(usual))
    targets = ways * (long / max(_longest(ways), 1e-300))
    for row in range(usual, len(corners)):
        if np.linalg.matrix_rank(corners[[*chosen, row]]) > np.linalg.matrix_rank(corners[chosen]):
            chosen.append(row)
            targets = np.pad(targets, ((0, 1), (0, 1)))
            targets[-1, -1] = long
    return np.asarray(np.linalg.pinv(corners[chosen]) @ targets)


def _longest(rows: Floats) -> float:
    """Return the longest of some public rows."""
    return max(public_norm(row) for row in rows)


def _clipped_rows(model: Any, X: Any) -> Floats:
    """Return the rows as the model sees them, clipped, with a constant behind them."""
    found: Any = check_data(model, model._rows(X), reset=False)
    found = found.toarray() if hasattr(found, "toarray") else found
    rows = clipped_matrix(np.asarray(found, dtype=float), model.data_norm_)
    return np.column_stack([rows, np.ones(len(rows))])


def _plain_model(model: Any, signal: float) -> tuple[Any, tuple[str, ...]]:
    """Return the nearest model without pairs, and what is said of it; of other models the model itself.

    Knots that nobody chose are at most so many that records times epsilon, the ``signal``, tell them apart.

    **Privacy.** A function of a public model and of public numbers.
    """
    basis = getattr(getattr(model, "encoder_", None), "basis", None)
    if basis is None or (not basis.pairs and model.knots is not None):
        return model, ()
    given = [basis.knots] if model.knots is not None else [k for k in (5, 3, 1) if k <= basis.knots]
    for knots in given:
        out, encoder = (
            copy.copy(model),
            TableEncoder(model.schema, basis=replace(basis, knots=knots, pairs=())),
        )
        out.encoder_, out.coef_names_ = encoder.fit(), encoder.get_feature_names_out()
        coef, moved = without_pairs(model.encoder_, encoder, np.ravel(model.coef_))
        out.coef_, out.data_norm_ = coef.reshape((*np.shape(model.coef_)[:-1], -1)), encoder.data_norm_
        out.intercept_, out.n_features_in_ = model.intercept_ + moved, coef.size
        if _ROOM * len(units_of(out).back) ** 2 <= signal:
            break
    if not basis.pairs and knots == basis.knots:
        return model, ()
    curves = "straight lines" if knots == 1 else f"curves with {knots} knots"
    return out, (
        f"intervals are those of the best model of single columns, {curves} where columns declare none "
        "and no pairs: what each column does on average over the records",
    )


def _influences(
    model: Any, loss: Any, units: Units, X: Any, y: Any, groups: Any
) -> tuple[Floats, tuple[float, float]]:
    """Return score and curvature of each record or person, and the largest residual and bend."""
    rows = _clipped_rows(model, X)
    weights = np.append(np.ravel(model.coef_), np.ravel(model.intercept_))
    margins = rows @ weights
    if hasattr(model, "classes_"):
        targets, ends = label_targets(encode_labels(y, model.classes_)[0], 2), (-1.0, 1.0)
    else:
        ends = model.target_range_
        targets = np.clip(refusing(lambda: np.asarray(y, dtype=float).ravel(), X, y, model), *ends)
    if len(targets) != len(rows):
        raise InvalidInputError(f"Expected one target per row, {len(rows)} of them, got {len(targets)}.")
    own, bent = rows @ units.own, loss.expected_curvature(margins)[:, None]
    squares = np.sqrt(bent) * own
    if groups is not None:
        first, second, twice = triangle(own.shape[1])
        squares = bent * own[:, first] * own[:, second] * twice
    influences = np.hstack([loss.residual(margins, targets)[:, None] * own, squares])
    # Residuals are monotone in both, so their ends are at the ends of margins and targets.
    corners = np.array(units.ends(units.back @ weights))[:, None]
    largest = float(np.abs(loss.residual(corners, np.array(ends))).max())
    # A curvature without a bound is monotone in the margin too.
    bounded = math.isfinite(loss.curvature)
    steepest = loss.curvature if bounded else float(loss.expected_curvature(corners).max())
    sizes = min(largest, 1e100), steepest
    return influences if groups is None else mean_of_owners(influences, groups), sizes
