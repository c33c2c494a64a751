"""Sparse linear models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from sordino.errors import InvalidInputError
from sordino.estimators.checks import (
    check_count,
    check_data,
    check_mapping,
    check_positive,
    class_weights,
    encode_labels,
)
from sordino.estimators.fitting import Budget, run_privately
from sordino.estimators.paper import paper_noise
from sordino.execute import GroupedExecutor, LocalExecutor
from sordino.kernel import Relation, SparseVector
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.solvers import Options, make_solver
from sordino.solvers.base import Estimate

_SAMPLINGS = ("poisson", "fixed")
_NOISES = ("sound", "paper")
_PER_PERSON = ("auto", "ight", "sgd-ht", "svrg-ht", "scsg-ht")
_WEIGHTED = (*_PER_PERSON, "transfer", "frank-wolfe", "two-stage", "peeled", "coordinate")


class _SparseLinear(BaseEstimator):
    """What the sparse estimators share: public facts in, a paid-for model out."""

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        n_nonzero_coefs: int | None = None,
        solver: str = "auto",
        data_norm: float = 1.0,
        fit_intercept: bool = True,
        ridge: float = 0.0,
        relation: str = "add-remove",
        sampling: str = "poisson",
        noise: str = "sound",
        secure_noise: bool = False,
        ledger: Any = None,
        dataset_id: str | None = None,
        max_iter: int | None = None,
        batch_size: int | None = None,
        step_size: float | None = None,
        clip_norm: float | None = None,
        solver_options: dict[str, Any] | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.n_nonzero_coefs = n_nonzero_coefs
        self.solver = solver
        self.data_norm = data_norm
        self.fit_intercept = fit_intercept
        self.ridge = ridge
        self.relation = relation
        self.sampling = sampling
        self.noise = noise
        self.secure_noise = secure_noise
        self.ledger = ledger
        self.dataset_id = dataset_id
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.step_size = step_size
        self.clip_norm = clip_norm
        self.solver_options = solver_options
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True
        return tags

    @property
    def support_(self) -> np.ndarray:
        """The columns with a non-zero coefficient."""
        check_is_fitted(self)
        return np.flatnonzero(np.any(np.atleast_2d(self.coef_) != 0, axis=0))

    def _fit(
        self,
        X: Any,
        targets: np.ndarray,
        loss: str,
        outputs: int,
        public: tuple[str, ...],
        weights: np.ndarray | None = None,
        groups: Any = None,
        weight_bound: float = 1.0,
    ) -> np.ndarray:
        executor: Any = LocalExecutor(
            X, targets, _data_norm(self.data_norm), 1.0 if self.fit_intercept else 0.0, weights
        )
        if groups is not None:
            executor = GroupedExecutor(executor, groups)
        n = executor.population
        budget = Budget.checked(self.epsilon, self.delta, n, self.ledger, self.dataset_id)
        problem = replace(self._problem((n, X.shape[1]), loss, outputs, budget), weight_bound=weight_bound)
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
            public=(*_public_facts(problem), *public),
            description=f"{type(self).__name__} ({self.solver})",
        )
        self.privacy_, self.n_iter_ = fitted.report, fitted.steps
        w, noise = fitted.result, None
        if isinstance(w, Estimate):
            w, noise = w.value, w.noise
        self.coef_noise_ = noise
        return w.to_dense() if isinstance(w, SparseVector) else w

    def _problem(self, shape: tuple[int, int], loss: str, outputs: int, budget: Budget) -> Problem:
        relation = Relation.parse(self.relation)
        _among("sampling", self.sampling, _SAMPLINGS)
        _among("noise", self.noise, _NOISES)
        if not 0 <= self.ridge < np.inf:
            raise InvalidInputError(f"Expected ridge >= 0, got {self.ridge}.")
        return Problem(
            LOSSES[loss],
            *shape,
            relation,
            budget.epsilon,
            budget.delta,
            outputs=outputs,
            data_norm=_data_norm(self.data_norm),
            intercept=1.0 if self.fit_intercept else 0.0,
            ridge=float(self.ridge),
            target_bound=float(getattr(self, "target_bound", 1.0)),
            secure_noise=bool(self.secure_noise),
        )

    def _solver_name(self, grouped: bool) -> str:
        """Return the solver; per person, the automatic one is full-batch thresholding."""
        return "ight" if grouped and self.solver == "auto" else self.solver

    def _check_weighting(self, weighted: bool, grouped: bool) -> None:
        allowed = _PER_PERSON if grouped else _WEIGHTED
        if (weighted or grouped) and self.solver not in allowed:
            what = "groups" if grouped else "weights"
            raise InvalidInputError(f"Expected a solver in {allowed} with {what}, got {self.solver!r}.")

    def _options(self, problem: Problem) -> Options:
        free = problem.features * problem.outputs
        step = self.step_size if self.step_size is None else check_positive("step_size", self.step_size, "")
        clip = self.clip_norm
        if clip is not None:
            clip = check_positive("clip_norm", clip, "Pass a public bound on a record's gradient norm.")
        return Options(
            check_count("n_nonzero_coefs", self.n_nonzero_coefs, 1, free, "None keeps every coefficient."),
            check_count("max_iter", self.max_iter, 1, None, "Each iteration is a paid release."),
            check_count("batch_size", self.batch_size, 1, None, "It is the expected number of records."),
            step,
            clip,
            self.sampling,
            check_mapping("solver_options", self.solver_options),
            self.random_state,
        )

    def _decision(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = check_data(self, X, reset=False)
        return np.asarray(X @ np.atleast_2d(self.coef_).T) + self.intercept_


class SparseLogisticRegression(ClassifierMixin, _SparseLinear):
    r"""Logistic regression with few non-zero coefficients, under differential privacy.

    Minimises ``mean_i log(1 + exp(-y_i (x_i . w + b))) + ridge ||w||^2 / 2`` over w with at most
    ``n_nonzero_coefs`` non-zeros; several classes by softmax, with one clip for all of them.

    Parameters
    ----------
    epsilon : the privacy loss; ``float("inf")`` runs the plain algorithm without noise.
    delta : the probability of a larger loss; None means ``min(1e-5, 1 / (10 n))``.
    n_nonzero_coefs : how many coefficients survive; None keeps all.
    solver : a name in :data:`sordino.solvers.SOLVERS`, for example ``"ight"`` (all records each step) or
        ``"sgd-ht"`` (mini-batches); the documentation has a page on each.
    data_norm : rows are clipped to this Euclidean norm; a public bound, never the data's own maximum.
    classes : the class labels; None takes those seen, which the report lists as assumed public.
    class_weight : declared weights of the classes, a dict; they scale the losses before the clip.
    fit_intercept : add a coefficient that is never thresholded.
    ridge : weight of the squared norm, outside the clip and so free.
    relation : ``"add-remove"`` (n is public) or ``"replace-one"``.
    sampling : ``"poisson"`` or ``"fixed"`` (replace-one only) mini-batches.
    noise : ``"sound"``, or ``"paper"`` for the published formula with the epsilon it really gives.
    secure_noise : noise without floating-point artefacts, on a lattice of integers.
    ledger, dataset_id : a :class:`sordino.ledger.Ledger` or its path, and the data set to charge.
    max_iter, batch_size, step_size, clip_norm : None lets a rule on public facts choose.
    solver_options : options that only the chosen solver has, for example ``{"momentum": "nesterov"}``.
    random_state : seeds public choices only, never the noise.
    verbose : progress on a terminal; never a loss.

    Attributes
    ----------
    coef_, intercept_, classes_, n_iter_, n_features_in_, feature_names_in_, support_
    privacy_ : the :class:`sordino.PrivacyReport` of the fit.
    coef_noise_ : the standard deviation of the noise in each coefficient, None where the solver does not
        know it; public, because it is computed from the plan and from released numbers.

    **Privacy.** ``coef_`` and ``intercept_`` are (epsilon, delta)-DP for one record; see ``privacy_``.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from sordino import SparseLogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = SparseLogisticRegression(epsilon=1.0, delta=1e-5, n_nonzero_coefs=10).fit(scale(X), y)
    >>> len(model.support_)
    10
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        n_nonzero_coefs: int | None = None,
        solver: str = "auto",
        data_norm: float = 1.0,
        classes: Any = None,
        class_weight: Any = None,
        fit_intercept: bool = True,
        ridge: float = 0.0,
        relation: str = "add-remove",
        sampling: str = "poisson",
        noise: str = "sound",
        secure_noise: bool = False,
        ledger: Any = None,
        dataset_id: str | None = None,
        max_iter: int | None = None,
        batch_size: int | None = None,
        step_size: float | None = None,
        clip_norm: float | None = None,
        solver_options: dict[str, Any] | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            n_nonzero_coefs,
            solver,
            data_norm,
            fit_intercept,
            ridge,
            relation,
            sampling,
            noise,
            secure_noise,
            ledger,
            dataset_id,
            max_iter,
            batch_size,
            step_size,
            clip_norm,
            solver_options,
            random_state,
            verbose,
        )
        self.classes = classes
        self.class_weight = class_weight

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # a few dozen rows cannot be learnt from privately
        return tags

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> SparseLogisticRegression:
        """Fit the model; the budget is spent here.

        With ``groups``, the owner of each row, the unit of privacy is a person: the summed contribution of
        a person is clipped, persons are sampled, and the number of persons is public.
        """
        X, y = check_data(self, X, y)
        codes, self.classes_, said = encode_labels(y, self.classes)
        weights = class_weights(self.class_weight, self.classes_)
        two = self.classes_.size == 2
        targets = 2.0 * codes - 1.0 if two else codes.astype(float)
        loss, outputs = ("logistic", 1) if two else ("multinomial", self.classes_.size)
        rows = None if weights is None else weights[codes]
        bound = 1.0 if weights is None else float(weights.max())  # of the declared ones, not of the rows
        w = np.atleast_2d(self._fit(X, targets, loss, outputs, (said,), rows, groups, bound))
        self.coef_ = np.ascontiguousarray(w[:, : X.shape[1]])
        self.intercept_ = w[:, -1].copy() if self.fit_intercept else np.zeros(len(w))
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the margins, one column per class when there are more than two."""
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


class SparseLinearRegression(RegressorMixin, _SparseLinear):
    r"""Least squares with few non-zero coefficients, under differential privacy.

    Minimises ``mean_i (x_i . w + b - y_i)^2 / 2 + ridge ||w||^2 / 2`` with clipped gradients. The targets are
    clipped to ``[-target_bound, target_bound]``, a public bound. Other parameters and attributes as in
    :class:`SparseLogisticRegression`.

    **Privacy.** ``coef_`` and ``intercept_`` are (epsilon, delta)-DP for one record; see ``privacy_``.

    Examples
    --------
    >>> import numpy as np
    >>> from sordino import SparseLinearRegression
    >>> X = np.eye(4)[np.arange(400) % 4]
    >>> model = SparseLinearRegression(epsilon=2.0, n_nonzero_coefs=1).fit(X, X[:, 2])
    >>> model.coef_.shape
    (4,)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        n_nonzero_coefs: int | None = None,
        solver: str = "auto",
        data_norm: float = 1.0,
        target_bound: float = 1.0,
        fit_intercept: bool = True,
        ridge: float = 0.0,
        relation: str = "add-remove",
        sampling: str = "poisson",
        noise: str = "sound",
        secure_noise: bool = False,
        ledger: Any = None,
        dataset_id: str | None = None,
        max_iter: int | None = None,
        batch_size: int | None = None,
        step_size: float | None = None,
        clip_norm: float | None = None,
        solver_options: dict[str, Any] | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            n_nonzero_coefs,
            solver,
            data_norm,
            fit_intercept,
            ridge,
            relation,
            sampling,
            noise,
            secure_noise,
            ledger,
            dataset_id,
            max_iter,
            batch_size,
            step_size,
            clip_norm,
            solver_options,
            random_state,
            verbose,
        )
        self.target_bound = target_bound

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # a few dozen rows cannot be learnt from privately
        return tags

    def fit(self, X: Any, y: Any, *, groups: Any = None) -> SparseLinearRegression:
        """Fit the model; the budget is spent here. ``groups`` as for the classifier."""
        X, y = check_data(self, X, y, y_numeric=True)
        bound = check_positive(
            "target_bound",
            self.target_bound,
            "Pass a public bound on |y| (targets are clipped to it); computing it from y would leak.",
        )
        w = self._fit(
            X, np.clip(y.astype(float), -bound, bound), "squared", 1, (f"target_bound = {bound:g}",)
        )
        self.coef_ = w[: X.shape[1]].copy()
        self.intercept_ = float(w[-1]) if self.fit_intercept else 0.0
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets."""
        return self._decision(X)[:, 0]


def _data_norm(value: Any) -> float:
    return check_positive(
        "data_norm",
        value,
        "Pass a public bound on the row norms (rows are clipped to it); computing it from X would leak.",
    )


def _public_facts(problem: Problem) -> tuple[str, ...]:
    return (
        f"number of {problem.unit}s: {problem.population}",
        f"number of features: {problem.features}",
        f"data_norm = {problem.data_norm:g} (rows are clipped to it)",
    )


def _among(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidInputError(f"Expected {name} in {allowed}, got {value!r}.")
