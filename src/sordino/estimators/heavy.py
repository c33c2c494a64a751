"""Linear models for heavy-tailed data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from sordino.checks import check_data, check_noise, literature
from sordino.elsewhere import where_rows_lie
from sordino.errors import UnsupportedError
from sordino.estimators.linear_base import Coefficients, MarginClassifier, loss_of
from sordino.estimators.statistics import moment_bound_of, moment_order_of
from sordino.execute import executor_of, is_sparse
from sordino.execute.persons import SharedExecutor
from sordino.private_estimator import Budget, Scored
from sordino.problems.losses import Loss
from sordino.problems.problem import Problem
from sordino.runs import Ask, Task
from sordino.solvers import Options, make_solver
from sordino.solvers.base import LinearFit
from sordino.values import check_count, check_flag, check_mapping, check_not_negative


@dataclass(eq=False, repr=False, kw_only=True)
class HeavyTailedParameters(Budget):
    """The parameters of both models, in the order of their signatures."""

    solver: str = "strongly-convex"
    moment_order: float = 1.0
    moment_bound: float | str = "auto"
    n_nonzero_coefs: int | None = None
    fit_intercept: bool = True
    alpha: float = 0.0
    relation: str = "add-remove"
    secure_noise: bool = False
    ledger: Any = None
    dataset_id: str | None = None
    rows_per_person: int | None = None
    schema: Any = None
    max_iter: int | None = None
    solver_options: dict[str, Any] | None = None
    noise: str = "sound"
    random_state: Any = None
    verbose: int = 0


class HeavyTailedModel(HeavyTailedParameters, Coefficients):
    """What the two models share: no bound on the data, only a moment."""

    intercept_: Any

    def _fit(self, X: Any, targets: Any, public: tuple[str, ...], groups: Any) -> Self:
        constant = 1.0 if check_flag("fit_intercept", self.fit_intercept) else 0.0
        rows = executor_of(X, targets, data_norm=None, intercept=constant)
        if groups is not None:
            rows = SharedExecutor(rows, groups)
            if (self.solver_options or {}).get("gradient") == "median-of-means":
                raise UnsupportedError(
                    "Expected gradient='norm' or 'truncated' with groups: rows of a person may lie in "
                    "several blocks of a median of means."
                )
        ask = self._ask(rows.population)
        task = self._task((rows.population, X.shape[1]), ask, public, is_sparse(X), groups is not None)
        self.n_iter_ = self._run(task, rows, ask)
        if np.abs(self.coef_).max() < 1e-12:  # released numbers, which followed no gradient
            self._warn(
                "all released coefficients are zero, so the model is a constant. Where columns tell more, "
                "use more records or budget, or a model with declared bounds."
            )
        return self._attested()

    def _task(
        self, shape: tuple[int, int], ask: Ask, public: tuple[str, ...], sparse: bool, grouped: bool
    ) -> Task:
        """Return the task for this number of records or persons, and columns."""
        loss, outputs = self._outputs()
        problem = Problem(
            loss,
            *shape,
            **self._shared_facts(ask, grouped),
            outputs=outputs,
            intercept=1.0 if self.fit_intercept else 0.0,
            ridge=check_not_negative("alpha", self.alpha, "It is a public constant."),
            moment_order=moment_order_of(self.moment_order),
            moment_bound=moment_bound_of(self.moment_bound),
            sparse=sparse,
        )
        free, given = problem.features * problem.outputs, check_mapping("solver_options", self.solver_options)
        count = check_count("n_nonzero_coefs", self.n_nonzero_coefs, 1, free, "None keeps all.")
        options = Options.of(given, n_nonzero_coefs=count, max_iter=self.max_iter)
        solver, paper = make_solver(self.solver, problem, options, "heavy"), None
        if check_noise(self.noise):
            solver, paper = literature("linear", "published_learner")(self.noise, solver, problem, ask)
        facts = self._facts(problem, grouped, *public)
        prices, finish = self._schema_prices(), partial(self._finish, problem)
        return Task(solver, problem, type(self).__name__, facts, learned=prices, finish=finish, paper=paper)

    def _decision(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = check_data(self, self._rows(X), reset=False)
        return np.nan_to_num(np.asarray(X @ np.atleast_2d(self.coef_).T) + self.intercept_)


@dataclass(eq=False, repr=False, kw_only=True)
class _Numbers(HeavyTailedParameters):
    """The parameters of the regressor."""

    loss: str = "squared"
    huber_threshold: float = 1.0


class HeavyTailedRegressor(_Numbers, Scored, RegressorMixin, HeavyTailedModel):
    r"""Linear regression on features and targets without bounds, under differential privacy.

    Projected gradient descent on ``mean_i loss(x_i . w + b - y_i) + alpha ||w||^2 / 2`` with a robust private
    mean of the gradients; with ``n_nonzero_coefs`` the sparse Algorithm 5 instead.

    Parameters
    ----------
    epsilon, delta : the budget; ``delta=None`` means ``min(1e-5, 1 / (10 n))``.
    loss : "squared" or "huber", which bounds the residual and is better for heavy-tailed targets.
    huber_threshold : the error beyond which the Huber loss is linear; a public number.
    solver : "strongly-convex" returns the average of the second half of the iterates (the last one for
        ``split=True``, as in the paper), "convex" the average of all.
    moment_order : v; gradients have a moment of order 1 + v.
    moment_bound : u, or "auto": noisy histograms of gradient scales, for a tenth of the budget.
    n_nonzero_coefs : how many coefficients survive; None keeps all and needs no selection.
    fit_intercept, alpha, relation, secure_noise, ledger, dataset_id : as elsewhere.
    rows_per_person, max_iter, random_state, verbose : as elsewhere.
    schema : a :class:`sordino.Schema`: then ``fit`` and ``predict`` take tables, encoded by
        :class:`sordino.TableEncoder`; targets come from it and are clipped to their declared bounds.
    solver_options : ``step_size`` (None learns it, so short that the noise of all steps moves the model by
        less than a residual); ``gradient``: "norm" clips the norms of gradients, "truncated" each coordinate,
        "median-of-means" takes the median over blocks (paper); ``truncation``: "clip", or "zero" as in the
        paper; ``joint_clip``: for coordinates, clip gradients to this norm in units of the threshold;
        ``threshold``: a public one instead of a chosen one; ``split``: a fresh chunk of the data each step
        (paper), with more noise; ``selection``: "gumbel" or "peeling" (paper), for sparse models;
        ``constraint``: a set of :mod:`sordino.solvers.heavy.learners`; ``scale_columns``: divide columns by
        scales from noisy histograms, and centre dense ones ("auto": with enough records for the columns).
    noise : "sound"; "paper" runs the published algorithm with its own thresholds and noise (algorithms 2 and
        5), warns, and reports what it certifies; "paper: as listed" is line 8 of algorithm 2. It needs
        ``step_size`` and ``moment_bound`` or ``threshold``.

    Attributes
    ----------
    coef_, intercept_, n_iter_, n_features_in_, feature_names_in_
    privacy_ : the :class:`sordino.PrivacyReport` of the fit.

    **Privacy.** ``coef_`` and ``intercept_`` are (epsilon, delta)-DP for one record, whatever the data.

    Examples
    --------
    >>> import numpy as np
    >>> from sordino import HeavyTailedRegressor
    >>> X = np.sinh(np.linspace(-6, 6, 2000))[:, None]
    >>> HeavyTailedRegressor(epsilon=2.0).fit(X, 3 * X[:, 0]).coef_.shape
    (1,)
    """

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> HeavyTailedRegressor:
        """Fit the model; the budget is spent here. With a schema, X is a table with the targets in it.

        With ``groups``, the owner of each row (or a person column of the schema), a person is protected and
        counts once, with the mean of its truncated gradients over all its rows.
        """
        X, y, groups = self._read_table(X, y, groups)
        X, y = check_data(self, X, y, y_numeric=True)
        return self._fit(X, y, (), groups)

    def _outputs(self) -> tuple[Loss, int]:
        return loss_of(self, "numbers"), 1

    def _attributes(self, found: LinearFit) -> dict[str, Any]:
        return {"coef_": found.coef, "intercept_": float(found.intercept)}

    @where_rows_lie
    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets."""
        return self._decision(X)[:, 0]


@dataclass(eq=False, repr=False, kw_only=True)
class _Labels(HeavyTailedParameters):
    """The parameters of the classifier."""

    classes: Any = None


class HeavyTailedClassifier(_Labels, MarginClassifier, HeavyTailedModel):
    r"""Logistic regression on features without bounds, under differential privacy.

    Several classes by softmax. ``classes`` are the class labels; None takes those seen, which the report
    lists as assumed public. Other parameters and attributes as in :class:`HeavyTailedRegressor`,
    with ``classes_``.

    **Privacy.** ``coef_`` and ``intercept_`` are (epsilon, delta)-DP for one record, whatever the data.

    Examples
    --------
    >>> import numpy as np
    >>> from sordino import HeavyTailedClassifier
    >>> X = np.sinh(np.linspace(-6, 6, 2000))[:, None]
    >>> HeavyTailedClassifier(epsilon=2.0).fit(X, X[:, 0] > 0).classes_
    array([False,  True])
    """

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> HeavyTailedClassifier:
        """Fit the model; the budget is spent here. With a schema, X is a table with the labels in it.

        ``groups`` as in :meth:`HeavyTailedRegressor.fit`.
        """
        X, y, groups = self._read_table(X, y, groups)
        X, y = check_data(self, X, y)
        _, targets, public = self._encode_labels(y)
        return self._fit(X, targets, (public,), groups)
