"""Sparse linear models."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sordino.checks import check_count, remember
from sordino.estimators.linear_base import ClassifierBase, LinearModel, RegressorBase
from sordino.problems.problem import Problem
from sordino.solvers.metric import has_metric


class _Sparse(LinearModel):
    """What the sparse estimators share."""

    n_nonzero_coefs: int | None

    @property
    def support_(self) -> np.ndarray:
        """The columns with a non-zero coefficient."""
        check_is_fitted(self)
        return np.flatnonzero(np.any(np.atleast_2d(self.coef_) != 0, axis=0))

    def _penalties(self) -> dict[str, Any]:
        return {"ridge": self._at_least_zero("alpha")}

    def _sparsity(self, problem: Problem) -> int | None:
        free = problem.features * problem.outputs
        count = check_count("n_nonzero_coefs", self.n_nonzero_coefs, 1, free, "None keeps every coefficient.")
        # Second moments tell what the columns that fall stand for, so the support can be chosen at the end.
        return None if self._has_members and has_metric(problem) else count


class SparseLogisticRegression(_Sparse, ClassifierBase):
    r"""Logistic regression with few non-zero coefficients, under differential privacy.

    Minimises ``mean_i log(1 + exp(-y_i (x_i . w + b))) + alpha ||w||^2 / 2`` over w with at most
    ``n_nonzero_coefs`` non-zeros; several classes by softmax, with one clip for all of them.

    Parameters
    ----------
    epsilon : the privacy loss; ``float("inf")`` runs the plain algorithm without noise.
    delta : the probability of a larger loss; None means ``min(1e-5, 1 / (10 n))``.
    n_nonzero_coefs : how many coefficients survive; None keeps all.
    solver : a name in :data:`sordino.solvers.SOLVERS`, for example ``"ight"`` (all records each step) or
        ``"sgd-ht"`` (mini-batches); the documentation has a page on each.
    schema : a :class:`sordino.Schema`: then ``fit`` and ``predict`` take tables, and bounds, classes,
        targets and persons are what it declares.
    data_norm : rows are clipped to this Euclidean norm, in fit and in predict; a public bound, never the
        data's own maximum. None is 1, and says so once.
    classes : the class labels; None takes those seen, which the report lists as assumed public.
    class_weight : declared weights of the classes, a dict; they scale the losses before the clip.
    weight_bound : ``sample_weight`` is clipped to this public bound and divided by it; None is 1.
    fit_intercept : add a coefficient that is never thresholded.
    alpha : the weight of the penalty, the squared norm, outside the clip and so free.
    relation : ``"add-remove"`` (n is public) or ``"replace-one"``.
    sampling : ``"poisson"`` or ``"fixed"`` (replace-one only) mini-batches.
    noise : ``"sound"``, or ``"paper"`` for the published formula with the epsilon it really gives; variants
        have names, as in ``"paper: corollary 5.8"`` for ``ight``.
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
        *,
        n_nonzero_coefs: int | None = None,
        solver: str = "auto",
        schema: Any = None,
        data_norm: float | None = None,
        classes: Any = None,
        class_weight: Any = None,
        weight_bound: float | None = None,
        fit_intercept: bool = True,
        alpha: float = 0.0,
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
        remember(self, locals())


class SparseLinearRegression(_Sparse, RegressorBase):
    r"""Linear regression with few non-zero coefficients, under differential privacy.

    Minimises ``mean_i loss(x_i . w + b, y_i) + alpha ||w||^2 / 2`` with clipped gradients; ``loss``,
    ``huber_threshold`` and ``target_bound`` as in :class:`LinearRegression`. The other parameters and
    attributes are those of :class:`SparseLogisticRegression`.

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
        *,
        loss: str = "squared",
        huber_threshold: float = 1.0,
        n_nonzero_coefs: int | None = None,
        solver: str = "auto",
        schema: Any = None,
        data_norm: float | None = None,
        target_bound: float | None = None,
        weight_bound: float | None = None,
        fit_intercept: bool = True,
        alpha: float = 0.0,
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
        remember(self, locals())
