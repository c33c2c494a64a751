"""What linear models share, sparse or dense: public facts in, a paid-for model out."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from sordino.checks import (
    bound_fact,
    check_data,
    check_noise,
    class_weights,
    declared_bound,
    literature,
    record_weights,
)
from sordino.elsewhere import where_rows_lie
from sordino.errors import DivergenceWarning, InvalidInputError, UnsupportedError
from sordino.execute import GroupedExecutor, LocalExecutor, executor_of, look_up
from sordino.execute.persons import SharedExecutor
from sordino.kernel.arrays import Floats
from sordino.private_estimator import (
    Budget,
    PrivateEstimator,
    Scored,
    Tabular,
    center_targets,
    declared_target,
    encoded_labels,
    target_bound,
    target_fact,
)
from sordino.problems.losses import (
    IDENTITY,
    LOSSES,
    Loss,
    Targets,
    at_bound,
    has_length,
    has_shares,
    label_targets,
    loss_options,
    names_of_losses,
    target_range,
)
from sordino.problems.problem import Problem
from sordino.runs import Ask, Task
from sordino.runs.promise import enclosing
from sordino.runs.report import Source
from sordino.solvers import Options, capabilities_of, make_solver, solvers_with
from sordino.solvers.auto import Around
from sordino.solvers.base import LinearFit
from sordino.tables.shapes import hidden_effects, shapes_of
from sordino.values import (
    among,
    check_flag,
    check_mapping,
    check_not_negative,
    check_positive,
    plain_number,
)


def loss_of(estimator: Any, *targets: Targets) -> Loss:
    """Return the loss that an estimator names, one of such targets, with the options that it sets."""
    options = {name: loss_options(LOSSES[name.replace("_", "-")]) for name in names_of_losses(*targets)}
    known = (name for name, own in options.items() if all(hasattr(estimator, o) for o in own.values()))
    among("loss", estimator.loss, tuple(known))
    loss = LOSSES[estimator.loss.replace("_", "-")]
    remedy = "Pass a public number, in the units of y."
    chosen = {
        field: check_positive(parameter, getattr(estimator, parameter), remedy)
        for field, parameter in loss_options(loss).items()
    }
    return replace(loss, **chosen) if chosen else loss  # type: ignore[type-var]


def _has_probabilities(estimator: Any) -> bool:
    return estimator.loss in names_of_losses("signs") and bool(estimator._loss().link.odds)


class MarginClassifier(Scored, ClassifierMixin):
    """Labels in, classes and probabilities of margins out; a base class gives ``_decision``."""

    classes: Any
    fit_intercept: bool
    classes_: NDArray[Any]
    coef_: Floats
    intercept_: Floats
    loss: str = "logistic"
    _decision: Callable[[Any], Floats]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = _has_probabilities(self)
        return tags

    def _loss(self) -> Loss:
        """Return the loss for two classes, which knows its link."""
        return loss_of(self, "signs")

    def _encode_labels(self, y: Any) -> tuple[Any, Any, str]:
        """Set ``classes_``; return class numbers, labels for the loss (looked at first), and their origin."""
        self._loss()
        codes, self.classes_, public = encoded_labels(self, y)
        return codes, label_targets(codes, self.classes_.size), public

    def _outputs(self) -> tuple[Loss, int]:
        """Return the loss for the classes and the number of margins: one for two classes."""
        loss, classes = self._loss(), self.classes_.size
        if classes == 2:
            return loss, 1
        if not loss.link.odds:
            raise UnsupportedError(
                f"Only binary classification is supported by loss={self.loss!r}, got {classes} "
                "classes. Use loss='logistic'."
            )
        return LOSSES["multinomial"], classes

    def _attributes(self, found: LinearFit) -> dict[str, Any]:
        return {"coef_": np.atleast_2d(found.coef), "intercept_": np.atleast_1d(found.intercept)}

    @where_rows_lie
    def decision_function(self, X: Any) -> Floats:
        """Return the margins of rows treated as in fit; one column per class for more than two."""
        scores = self._decision(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @available_if(_has_probabilities)
    @where_rows_lie
    def predict_proba(self, X: Any) -> Floats:
        """Return the class probabilities; of the logistic loss only, others have none."""
        return self._loss().link.probabilities(self._decision(X))

    @available_if(_has_probabilities)
    @where_rows_lie
    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of the class probabilities."""
        return self._loss().link.log_probabilities(self._decision(X))

    @where_rows_lie
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class."""
        scores = self._decision(X)
        best = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else np.argmax(scores, axis=1)
        return self.classes_[best]


# The intercept column, in units of the row bound.
_INTERCEPT = 0.25
# With fewer records times epsilon the descent on amounts ends too early (1.1 to 1.6 times the mean at 1,000).
_PILED = 0.1  # of the range of targets: a mean so near to a bound has most of them there
_FEW_AMOUNTS = 3000.0
# Tables, pages and `inspect` show so many deviations of noise: what clips may hide beyond would be missed.
_SHOWN = 2.0


@dataclass(eq=False, repr=False, kw_only=True)
class LinearParameters(Budget):
    """Parameters of all linear models, apart from untyped bases, which would accept any argument."""

    solver: str = "auto"
    schema: Any = None
    knots: int | None = None
    pairs: Any = None
    data_norm: float | None = None
    weight_bound: float | None = None
    fit_intercept: bool = True
    relation: str = "add-remove"
    noise: str = "sound"
    secure_noise: bool = False
    ledger: Any = None
    dataset_id: str | None = None
    rows_per_person: int | None = None
    max_iter: int | None = None
    solver_options: dict[str, Any] | None = None
    random_state: Any = None
    verbose: int = 0


class Coefficients(Tabular, PrivateEstimator):
    """What models with a margin ``x @ coef + intercept`` share, for data with and without bounds."""

    _sparse_rows = True

    coef_: Floats
    n_iter_: int
    _outputs: Callable[[], tuple[Loss, int]]  # of subclasses: the loss and the number of margins
    _attributes: Callable[[LinearFit], dict[str, Any]]  # coefficients in the user's units, by their names

    def _finish(self, problem: Problem, last: Any) -> dict[str, Any]:
        """Return the attributes that the last iterate stands for; say what released numbers tell."""
        found = LinearFit.of(last, problem)
        if getattr(last, "bitten", False):
            self._warn(
                "released residuals say that the targets are skewed: clips cut the few that are large. The "
                "mean prediction was corrected for that. The effects of columns were not, because records "
                "times epsilon are too few for these bounds: an effect can be off by more than its stated "
                "noise (paid intervals count that). Use fewer columns, tighter bounds or more budget."
            )
        if not np.isfinite(np.append(found.coef, found.intercept)).all():
            self._warn(
                "the released coefficients are not finite, so predictions mean nothing. "
                "The steps were too long; lower step_size. The budget is spent.",
                DivergenceWarning,
            )
        return self._attributes(found)


class LinearModel(LinearParameters, Coefficients):
    """Public facts in, a paid-for model out; subclasses say what they penalise and how sparse they are.

    ``person_default`` stands for ``"auto"`` where persons are protected, or ``auto`` does not know the loss.
    """

    person_default: ClassVar[str] = "ight"
    _weighs_tables: ClassVar[bool] = True
    _questions: int = 1  # rows that each record is asked as

    alpha: Any
    coef_noise_: Floats | None
    data_norm_: float
    _has_members: bool = False  # an instance has it, and ``_around``, only while a search makes its members
    _around: Around | None = None
    # Of subclasses: fields of the problem, how many coefficients survive (None: all), the loss (of two of
    # several classes), the line of the report about targets, and targets as the loss sees them.
    _penalties: Callable[[], dict[str, Any]]
    _sparsity: Callable[[Problem], int | None]
    _loss: Callable[[], Loss]
    _target_fact: Callable[[], str]
    _targets_of: Callable[[Any], Any]

    def _ridge(self) -> float:
        return float(self._penalties().get("ridge", 0.0))

    def shared_params(self) -> tuple[str, ...]:
        """Return the parameters of which one run gives a model for every value, by public facts."""
        known = self.get_params(deep=False)
        able = self._solver_name(False) == "auto" and self.noise == "sound"
        able = able and known.get("penalty") != "nonconvex" and has_length(self._loss())
        able = able and self._loss().name != "quantile"
        return tuple(name for name in ("alpha", "n_nonzero_coefs") if able and name in known)

    def widened(self, members: Sequence[Self]) -> Self:
        """Prepare for a fit that all members can be made of: the least ridge, the most coefficients."""
        self.alpha, self._has_members = min(members, key=lambda one: one._ridge()).alpha, True
        if "n_nonzero_coefs" in self.get_params(deep=False):
            counts = [one.get_params(deep=False)["n_nonzero_coefs"] for one in members]
            self.set_params(n_nonzero_coefs=None if None in counts else max(counts))
        return self

    def member(self, other: Self) -> Self:
        """Return the model that the answers of this fit lead to with the shared parameters of another.

        **Privacy.** Post-processing of what this fit has released.
        """
        params, out = other.get_params(deep=False), copy.copy(self)
        for name in ("_has_members", "_around"):
            out.__dict__.pop(name, None)
        out.set_params(**{name: params[name] for name in self.shared_params()})
        count, ridge = params.get("n_nonzero_coefs"), out._ridge()
        small = count is not None and count < np.count_nonzero(self.coef_)
        if self._around is not None and (small or ridge != self._around.ridge):
            found = self._around.minimum(self.coef_, self.intercept_, ridge, count)
            out.coef_, out.intercept_, out.coef_noise_ = found[0], found[1][()], None
        return out

    def _outputs(self) -> tuple[Loss, int]:
        return at_bound(self._loss(), self._target_bound())[0], 1

    def _target_unit(self) -> float:
        """Return the unit in which targets are learned, by the loss and their declared bound."""
        return at_bound(self._loss(), self._target_bound())[1]

    def _fit(
        self, X: Any, targets: Any, public: tuple[str, ...], weights: Floats | None = None, groups: Any = None
    ) -> Self:
        """Fit rows that were checked; ``public`` are the facts about targets and weights."""
        rows = self._records(X, targets, weights)
        if groups is not None:
            parts = capabilities_of(self._solver_name(True)).parts
            rows = (SharedExecutor if parts else GroupedExecutor)(rows, groups)
        ask = self._ask(rows.population // self._questions)
        for given, what, words in ((groups, "persons", "groups"), (weights, "weights", "weights")):
            if given is not None and not getattr(capabilities_of(self.solver), what):
                raise InvalidInputError(
                    f"Expected a solver in {solvers_with(**{what: True})} with {words}, got {self.solver!r}."
                )
        # Trials of a search add up as Gaussian releases.
        shape, once = (rows.population, X.shape[1]), ask.ledger is None and enclosing() is None
        task = self._task(shape, ask, public, groups is not None, weights is not None, once)
        self.n_iter_ = self._run(task, rows, ask)
        return self._attested()

    def joint_task(self, records: int, features: int) -> Task:
        """Return what members run together who hold so many records of so many columns, all in all.

        **Privacy.** Parameters and public numbers; no record is touched.
        """
        return self._task((records, features), self._ask(records), (self._target_fact(),))

    def joint_rows(self, X: Any, y: Any) -> Any:
        """Return the rows of one member, checked as ``fit`` checks them, for sums."""
        X, y = check_data(self, X, y, y_numeric=not hasattr(self, "classes"))
        return self._records(X, self._targets_of(y))

    def _records(self, X: Any, targets: Any, weights: Floats | None = None) -> Any:
        """Return checked rows, wherever they lie, clipped to the declared bound."""
        bound = self._row_bound()
        return executor_of(X, targets, bound, self._intercept(bound), weights)

    def _row_bound(self) -> float:
        """Return the norm that rows are clipped to."""
        return declared_bound(self, "data_norm")

    def _task(
        self,
        shape: tuple[int, int],
        ask: Ask,
        public: tuple[str, ...],
        grouped: bool = False,
        weighted: bool = False,
        once: bool = False,
    ) -> Task:
        """Return the task for this number of records, or of persons where these are known, and of columns."""
        problem = self._problem(shape, ask, grouped)
        problem = replace(problem, weighted=weighted, once=once and problem.rows == 1)
        given = check_mapping("solver_options", self.solver_options)
        own = {"n_nonzero_coefs": self._sparsity(problem), "max_iter": self.max_iter}
        options = Options.of(given, **own, random_state=self.random_state)
        solver, paper = make_solver(self._solver_name(grouped), problem, options), None
        if check_noise(self.noise):
            solver, paper = literature("linear", "published_solver")(
                self.noise, self.solver, solver, problem, ask
            )
        asked = self._questions
        told = replace(problem, population=shape[0] // asked, features=shape[1] - asked + 1)
        return Task(
            solver,
            problem,
            f"{type(self).__name__} ({self.solver})",
            public=self._facts(told, grouped, *public),
            learned=self._schema_prices(),
            finish=partial(self._finish, problem),
            paper=paper,
        )

    def _finish(self, problem: Problem, last: Any) -> dict[str, Any]:
        noise, around = getattr(last, "noise", None), getattr(last, "around", None)
        if self._has_members:
            self._around = around
        found = super()._finish(problem, last)
        noise = noise if noise is None else noise[..., : found["coef_"].shape[-1]]
        found |= {"coef_noise_": noise, "data_norm_": declared_bound(self, "data_norm")}
        if hasattr(self, "encoder_"):
            hidden = self._hidden(last, noise)
            found["shapes_"] = shapes_of(self.encoder_, found["coef_"], noise, around, hidden)
            if noise is not None and hidden is not None:
                found["coef_noise_"] = np.sqrt(np.square(noise) + np.square(hidden))
        has_numbers = not (problem.loss.link.odds or has_shares(problem.loss))
        alone = "nothing that columns tell stands out of noise, so the model is the"
        if spread := 2.0 * getattr(last, "mean_noise", 0.0) * self._target_unit():
            self._warn(
                f"{alone} {'quantile' if problem.loss.name == 'quantile' else 'mean'} of the targets, "
                f"known to +-{spread:.2g} (two deviations of its noise, which falls as one over records "
                f"times epsilon: {problem.population * problem.epsilon:.3g} here). Expect no better than a "
                f"constant; use more records, more epsilon or {self._other_bounds(found)}."
            )
        elif not (has_numbers or np.any(found["coef_"])) and math.isfinite(problem.epsilon):
            what = "shares of the classes" if problem.loss.link.odds else "mean of the targets"
            self._warn(f"{alone} {what}. Use more records, more epsilon or fewer columns.")
        if guessed := getattr(last, "guessed", 0.0):
            self._warn(
                f"most rows are far shorter than data_norm, and noise may hide up to {guessed:.1%} of the "
                "records with longer ones: their margins are guesses, which may cost more than the model "
                "gains. Declare a tighter data_norm: rows are clipped to it."
            )
        few = problem.population * problem.epsilon < _FEW_AMOUNTS
        if has_shares(problem.loss) and few and noise is None:
            self._warn(
                f"fewer than {_FEW_AMOUNTS:g} records times epsilon do not bring a model of amounts near the "
                "mean: expect predictions up to 2.5 times too large. Use more of either, or squared errors."
            )
        descends = self.solver == "auto" and noise is None and problem.epsilon < math.inf
        if problem.loss.name == "quantile" and descends:
            self._warn(
                "quantiles of few records, of persons and of sparse models are learned by plain descent from "
                "zero: expect noise where targets lie far from it. Subtract a public centre from the targets."
            )
        return found

    def _hidden(self, last: Any, noise: Any) -> Floats | None:
        """Return what clips may hide of the coefficients of rare levels, by released numbers, and say so."""
        unseen, most = getattr(last, "unseen", 0.0) * self._target_unit(), 2.0 * self._target_bound()
        if not unseen or noise is None or last.around.affine.columns is not None:
            return None
        hidden = hidden_effects(self.encoder_, last.around.affine.shift, unseen, most)
        rare = np.flatnonzero(hidden > _SHOWN * noise)
        if rare.size:
            names = ", ".join(repr(name.replace("=", ": ")) for name in self.coef_names_[rare[:3]])
            target = declared_target(self)
            unit = (target and (target.unit or target.name)) or "the target"
            self._warn(
                f"noise does not show that a tenth of the records have {names}"
                f"{' or others' * (rare.size > 3)} (or, of a flag, do not), and clips cut targets: the "
                "effect that the model shows may be nearer to zero than the true one by up to "
                f"{plain_number(float(hidden[rare].max()), 3)} ({unit}). The "
                "stated noise counts that. Paid intervals, more records, more epsilon or tighter bounds of "
                "the target tell more."
            )
        return hidden

    def _problem(self, shape: tuple[int, int], ask: Ask, grouped: bool) -> Problem:
        bound, (loss, outputs) = self._row_bound(), self._outputs()
        return Problem(
            loss,
            *shape,
            **self._shared_facts(ask, grouped, self._questions) | self._penalties(),
            outputs=outputs,
            data_norm=bound,
            intercept=self._intercept(bound),
            target_bound=self._target_bound() / self._target_unit(),
        )

    def _solver_name(self, grouped: bool) -> str:
        """Return the solver; ``auto`` is a plainer one for losses that it does not know.

        And for persons where a support is chosen. Of quantiles it knows dense models of records.
        """
        support, name = self.person_default != "gd", self._loss().name
        plain = (grouped and support) or not capabilities_of("auto").knows(name)
        plain = plain or (name == "quantile" and grouped) or (name in ("quantile", "gamma") and support)
        return self.person_default if plain and self.solver == "auto" else self.solver

    def _weights(self, declared: Any, X: Any, other: Floats | None) -> tuple[Floats | None, tuple[str, ...]]:
        """Return the weight of each record, at most one (None where all are one), and the report's line."""
        if declared is None:
            return other, ()
        bound = declared_bound(self, "weight_bound")
        own = record_weights(declared, X, bound)
        origin = Source.given(self.weight_bound)
        fact = bound_fact("weight_bound", bound, origin, "sample weights are clipped to it")
        return own if other is None else own * other, (fact,)

    def _target_bound(self) -> float:
        return 1.0

    def _decision(self, X: Any) -> Floats:
        """Return the margins of rows that are clipped as in fit: the model knows no others."""
        check_is_fitted(self)
        X = check_data(self, self._rows(X), reset=False)
        rows = LocalExecutor(X, None, self.data_norm_).records(None)
        return rows.margins(np.atleast_2d(self.coef_)) + self.intercept_

    def _at_least_zero(self, name: str) -> float:
        return check_not_negative(name, getattr(self, name), "It is a public constant.")

    def _intercept(self, bound: float) -> float:
        """Return the constant of the intercept column, in units of the rows: it shares their clip."""
        return _INTERCEPT * bound if check_flag("fit_intercept", self.fit_intercept) else 0.0


class ClassifierBase(MarginClassifier, LinearModel):
    """Two classes by one margin, more by softmax."""

    class_weight: Any

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit the model; the budget is spent here.

        With a schema, X is a table, and y and ``groups`` come from its target and person columns.
        ``sample_weight`` scales the losses before the clip, as shares of ``weight_bound``: a weight is part
        of its record, and no record can move more than one of full weight. With ``groups``, the owner of
        each row, the unit of privacy is a person: the summed contribution of a person is clipped, persons
        are sampled, and the number of persons is public.
        """
        tabled = self._table_weights(X, y, sample_weight)
        X, y, groups = self._read_table(X, y, groups)
        X, y = check_data(self, X, y)
        codes, targets, public = self._encode_labels(y)
        weights = class_weights(self.class_weight, self.classes_)
        by_class = None if weights is None else look_up(weights, codes)
        by_class = by_class if tabled is None else tabled if by_class is None else by_class * tabled
        found, facts = self._weights(sample_weight, X, by_class)
        return self._fit(X, targets, (public, *facts), found, groups)

    def _target_fact(self) -> str:
        _, self.classes_, public = encoded_labels(self, np.asarray(self.classes))
        return public

    def _targets_of(self, y: Any) -> Any:
        return self._encode_labels(y)[1]


class RegressorBase(Scored, RegressorMixin, LinearModel):
    """Numbers or counts, with targets clipped to a public bound."""

    loss: str
    huber_threshold: float
    target_bound: float | None
    target_range_: tuple[float, float]
    intercept_: float

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit the model; the budget is spent here. Other parameters as for the classifier."""
        tabled = self._table_weights(X, y, sample_weight)
        X, y, groups = self._read_table(X, y, groups)
        X, y = check_data(self, X, y, y_numeric=True)
        weights, facts = self._weights(sample_weight, X, tabled)
        return self._fit(X, self._targets_of(y), (self._target_fact(), *facts), weights, groups)

    def _targets_of(self, y: Any) -> Any:
        """Return the targets as the loss sees them: from the middle of their bounds, and clipped."""
        y, _ = center_targets(declared_target(self), y, self._centres())
        unit = self._target_unit()
        limits = target_range(self._loss(), self._target_bound() / unit)
        return np.clip(y if unit == 1.0 else y / unit, *limits)

    def _target_fact(self) -> str:
        return target_fact(self, self._target_bound(), self._centres())

    def _attributes(self, found: LinearFit) -> dict[str, Any]:
        _, offset = center_targets(declared_target(self), np.zeros(0), self._centres())
        unit = self._target_unit()
        low, high = target_range(self._loss(), self._target_bound() / unit)
        return {
            "coef_": found.coef,
            "intercept_": float(found.intercept) + offset + math.log(unit),
            "target_range_": (offset + low * unit, offset + high * unit),
        }

    @where_rows_lie
    def predict(self, X: Any) -> Floats:
        """Return the predicted targets of rows clipped to ``data_norm``, in the range that targets have."""
        margins = self._decision(X)[:, 0]
        return np.clip(self._loss().link.mean(margins), *self.target_range_)

    def _loss(self) -> Loss:
        """Return the loss, which knows its link and its targets."""
        return loss_of(self, "numbers", "counts")

    def _other_bounds(self, found: dict[str, Any]) -> str:
        """Return which bounds a constant model asks for: its mean tells whether targets pile up at one."""
        mean = self._loss().link.mean(np.array([found["intercept_"]]))[0]
        near = min(found["target_range_"], key=lambda end: abs(end - mean))
        if abs(near - mean) > _PILED * np.ptp(found["target_range_"]):
            return "tighter bounds of the targets"
        near, other = map(plain_number, sorted(found["target_range_"], key=lambda end: abs(end - near)))
        return (
            f"other bounds of the targets: their released mean lies at the bound {near}. Where targets can "
            f"be beyond it, declare it wider; where none can, declare {other}, the other one, nearer: the "
            "noise grows with the distance of both"
        )

    def _centres(self) -> bool:
        """Whether targets are measured from the middle of their bounds: the intercept takes it back."""
        return check_flag("fit_intercept", self.fit_intercept) and self._loss().link is IDENTITY

    def _target_bound(self) -> float:
        return target_bound(self, declared_target(self), self._centres())
