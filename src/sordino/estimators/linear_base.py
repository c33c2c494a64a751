"""What linear models share, sparse or dense: public facts in, a paid-for model out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from sordino.checks import (
    among,
    check_count,
    check_data,
    check_flag,
    check_mapping,
    check_not_negative,
    check_positive,
    class_weights,
    encode_labels,
    record_weights,
)
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.estimators.base import PrivateEstimator, Scored
from sordino.estimators.bounds import declared_bound, said_of_bound
from sordino.execute import GroupedExecutor, LocalExecutor
from sordino.kernel import Relation, SparseVector
from sordino.papers.linear import paper_noise
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.runs import Ask, run_privately
from sordino.solvers import Options, capabilities_of, make_solver, solvers_with
from sordino.solvers.base import Estimate

_SAMPLINGS = ("poisson", "fixed")
_NOISES = ("sound", "paper")


class LinearModel(PrivateEstimator):
    """Public facts in, a paid-for model out; subclasses say what they penalise and how sparse they are.

    ``person_default`` stands for ``"auto"`` where persons are protected.
    """

    person_default: ClassVar[str] = "ight"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags

    def _penalties(self) -> dict[str, Any]:
        """Return the fields of the problem that hold penalties."""
        raise NotImplementedError  # pragma: no cover

    def _sparsity(self, problem: Problem) -> int | None:
        """Return how many coefficients survive; None keeps all."""
        raise NotImplementedError  # pragma: no cover

    def _own_options(self) -> dict[str, Any]:
        """Return the options that only the chosen solver has."""
        return check_mapping("solver_options", self.solver_options)

    def _fit(
        self,
        X: Any,
        targets: np.ndarray,
        loss: str,
        outputs: int,
        public: tuple[str, ...],
        weights: np.ndarray | None = None,
        groups: Any = None,
    ) -> np.ndarray:
        bound = declared_bound(self, "data_norm")
        executor: Any = LocalExecutor(X, targets, bound, self._intercept(), weights)
        if groups is not None:
            executor = GroupedExecutor(executor, groups)
        n = executor.population
        budget = Ask.checked(self.epsilon, self.delta, n, self.ledger, self.dataset_id)
        problem = self._problem((n, X.shape[1]), loss, outputs, budget, bound)
        if groups is not None:
            problem = replace(problem, unit="person")
        self._check_weighting(weights is not None, groups is not None)
        solver = make_solver(self._solver_name(groups is not None), problem, self._options(problem))
        paper = paper_noise(self.solver, solver, problem, budget) if self.noise == "paper" else None
        fitted = run_privately(
            solver,
            problem,
            executor,
            budget,
            paper=paper,
            verbose=self.verbose,
            public=(*_public_facts(problem, self.data_norm), *public),
            description=f"{type(self).__name__} ({self.solver})",
        )
        self.privacy_, self.n_iter_, self.data_norm_ = fitted.report, fitted.steps, bound
        w, noise = fitted.result, None
        if isinstance(w, Estimate):
            w, noise = w.value, w.noise
        self.coef_noise_ = noise
        return w.to_dense() if isinstance(w, SparseVector) else w

    def _problem(self, shape: tuple[int, int], loss: str, outputs: int, budget: Ask, bound: float) -> Problem:
        relation = Relation.parse(self.relation)
        among("sampling", self.sampling, _SAMPLINGS)
        among("noise", self.noise, _NOISES)
        return Problem(
            LOSSES[loss],
            *shape,
            relation,
            budget.epsilon,
            budget.delta,
            outputs=outputs,
            data_norm=bound,
            intercept=self._intercept(),
            **self._penalties(),
            target_bound=self._target_bound(),
            secure_noise=check_flag("secure_noise", self.secure_noise),
        )

    def _solver_name(self, grouped: bool) -> str:
        """Return the solver; per person, the automatic one asks clipped sums only."""
        return self.person_default if grouped and self.solver == "auto" else self.solver

    def _check_weighting(self, weighted: bool, grouped: bool) -> None:
        able = capabilities_of(self.solver)
        if (grouped and not able.persons) or (weighted and not able.weights):
            what = "persons" if grouped else "weights"
            raise InvalidInputError(
                f"Expected a solver in {solvers_with(**{what: True})} with "
                f"{'groups' if grouped else 'weights'}, got {self.solver!r}."
            )
        if grouped and self.secure_noise:
            raise UnsupportedError("secure_noise=True is not proven for groups. Set secure_noise=False.")

    def _options(self, problem: Problem) -> Options:
        step = self.step_size if self.step_size is None else check_positive("step_size", self.step_size, "")
        clip = self.clip_norm
        if clip is not None:
            clip = check_positive("clip_norm", clip, "Pass a public bound on a record's gradient norm.")
        return Options(
            self._sparsity(problem),
            check_count("max_iter", self.max_iter, 1, None, "Each iteration is a paid release."),
            check_count("batch_size", self.batch_size, 1, None, "It is the expected number of records."),
            step,
            clip,
            self.sampling,
            self._own_options(),
            self.random_state,
        )

    def _weights(self, declared: Any, X: Any, by_class: np.ndarray | None = None) -> np.ndarray | None:
        """Return the weight of each record, at most one, or None where all are one."""
        if declared is None:
            return by_class
        own = record_weights(declared, X, declared_bound(self, "weight_bound"))
        return own if by_class is None else own * by_class

    def _said_of(self, sample_weight: Any) -> tuple[str, ...]:
        if sample_weight is None:
            return ()
        bound = declared_bound(self, "weight_bound")
        return (said_of_bound("weight_bound", bound, self.weight_bound, "sample weights are clipped to it"),)

    def _target_bound(self) -> float:
        return 1.0

    def _decision(self, X: Any) -> np.ndarray:
        """Return the margins of rows that are clipped as in fit: the model knows no others."""
        check_is_fitted(self)
        X = check_data(self, X, reset=False)
        rows = LocalExecutor(X, None, self.data_norm_).records(None)
        return rows.margins(np.atleast_2d(self.coef_)) + self.intercept_

    def _at_least_zero(self, name: str) -> float:
        return check_not_negative(name, getattr(self, name), "It is a public constant.")

    def _intercept(self) -> float:
        return 1.0 if check_flag("fit_intercept", self.fit_intercept) else 0.0


class LinearClassifier(Scored, ClassifierMixin, LinearModel):
    """Two classes by the logistic loss, more by softmax."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a few dozen rows cannot be learnt from privately
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit the model; the budget is spent here.

        ``sample_weight`` scales the losses before the clip, as shares of ``weight_bound``: a weight is part
        of its record, and no record can move more than one of full weight. With ``groups``, the owner of
        each row, the unit of privacy is a person: the summed contribution of a person is clipped, persons
        are sampled, and the number of persons is public.
        """
        X, y = check_data(self, X, y)
        codes, self.classes_, said = encode_labels(y, self.classes)
        weights = class_weights(self.class_weight, self.classes_)
        two = self.classes_.size == 2
        targets = 2.0 * codes - 1.0 if two else codes.astype(float)
        loss, outputs = ("logistic", 1) if two else ("multinomial", self.classes_.size)
        rows = self._weights(sample_weight, X, None if weights is None else weights[codes])
        public = (said, *self._said_of(sample_weight))
        w = np.atleast_2d(self._fit(X, targets, loss, outputs, public, rows, groups))
        self.coef_ = np.ascontiguousarray(w[:, : X.shape[1]])
        self.intercept_ = w[:, -1].copy() if self.fit_intercept else np.zeros(len(w))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the margins of rows clipped to ``data_norm``; one column per class for more than two."""
        scores = self._decision(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the class probabilities."""
        scores = self._decision(X)
        if scores.shape[1] > 1:
            return softmax(scores, axis=1)
        positive = expit(scores[:, 0])
        return np.stack([1 - positive, positive], axis=1)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of the class probabilities."""
        return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most likely class."""
        scores = self._decision(X)
        best = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else np.argmax(scores, axis=1)
        return self.classes_[best]


class LinearRegressor(Scored, RegressorMixin, LinearModel):
    """Least squares with targets clipped to a public bound."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # a few dozen rows cannot be learnt from privately
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Self:
        """Fit the model; the budget is spent here. ``sample_weight`` and ``groups`` as for the classifier."""
        X, y = check_data(self, X, y, y_numeric=True)
        bound = self._target_bound()
        targets = np.clip(y, -bound, bound)
        rows = self._weights(sample_weight, X)
        said = said_of_bound("target_bound", bound, self.target_bound, "targets are clipped to it")
        public = (said, *self._said_of(sample_weight))
        w = self._fit(X, targets, "squared", 1, public, rows, groups)
        self.coef_ = w[: X.shape[1]].copy()
        self.intercept_ = float(w[-1]) if self.fit_intercept else 0.0
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets of rows clipped to ``data_norm``, as in fit."""
        return self._decision(X)[:, 0]

    def _target_bound(self) -> float:
        return declared_bound(self, "target_bound")


def _public_facts(problem: Problem, declared: Any) -> tuple[str, ...]:
    return (
        f"number of {problem.unit}s: {problem.population}",
        f"number of features: {problem.features}",
        said_of_bound("data_norm", problem.data_norm, declared, "rows are clipped to it"),
    )
