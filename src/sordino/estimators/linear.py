"""Dense linear models, with convex and nonconvex penalties."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from sordino.checks import check_data, declared_bound
from sordino.elsewhere import where_rows_lie
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.estimators.linear_base import ClassifierBase, LinearModel, LinearParameters, RegressorBase
from sordino.execute import in_dask
from sordino.kernel.arrays import Floats
from sordino.kernel.clip import clipped_matrix
from sordino.private_estimator import declared_classes, encoded_labels
from sordino.problems.losses import Loss, Nonconvex
from sordino.problems.problem import Problem
from sordino.solvers import solvers_with
from sordino.solvers.base import LinearFit
from sordino.solvers.descent import has_metric
from sordino.values import among, check_count

PENALTIES = (None, "ridge", "nonconvex")
_ALPHA = 1e-3
_APART = 150.0  # over records times epsilon: how far the intercepts of levels are apart at least


class _Dense(LinearModel):
    """What the dense estimators share."""

    person_default = "gd"
    _curved_tables = True

    penalty: str | None

    def _penalties(self) -> dict[str, Any]:
        among("penalty", self.penalty, PENALTIES)
        encoder: Any = getattr(self, "encoder_", None)
        basis: Any = getattr(encoder, "basis", None)
        curved = basis is not None and bool(basis.ridge)
        known = {"table": True, "lines": encoder.lines} if curved else {}
        if self.penalty is None and self.alpha is None:
            return {**known, "ridge": basis.ridge, "free": encoder.free} if curved else {}
        alpha = _ALPHA if self.alpha is None else self._at_least_zero("alpha")
        return {
            **known,
            **({"penalty": Nonconvex(alpha)} if self.penalty == "nonconvex" else {"ridge": alpha}),
        }

    def _sparsity(self, problem: Problem) -> None:
        known = ("auto", *solvers_with(dense=True, sparse=False))
        if not isinstance(self.solver, str) or self.solver not in known:
            raise InvalidInputError(
                f"Expected solver in {known}, got {self.solver!r}. The thresholding solvers belong "
                "to SparseLogisticRegression and SparseLinearRegression."
            )


@dataclass(eq=False, repr=False, kw_only=True)
class _DenseLabels(LinearParameters):
    """The parameters of a dense classifier."""

    penalty: str | None = None
    alpha: float | None = None
    classes: Any = None
    class_weight: Any = None


class LogisticRegression(_DenseLabels, _Dense, ClassifierBase):
    r"""Logistic regression under differential privacy.

    Minimises ``mean_i log(1 + exp(-y_i (x_i . w + b))) + penalty(w, b)``; several classes by softmax, with
    one clip for all of them. Penalties are functions of released coefficients, outside the clip and so free.

    Parameters
    ----------
    epsilon : the privacy loss; ``float("inf")`` runs the plain algorithm without noise.
    delta : the probability of a larger loss; None means ``min(1e-5, 1 / (10 n))``.
    solver : ``"auto"``, ``"gd"``, ``"sgd"``, ``"adam"``, ``"srm"`` (recursive momentum), ``"agd"`` (private
        line search), ``"rrp-sgd"``, or ``"ls-sgd"`` and ``"ls-adam"`` (smoothed gradients).
    knots, pairs : with a schema, how effects may bend and which columns act together: a number of knots (1 is
        a straight line), and True, False or a list such as ``[("age", "income")]``. None leaves both to
        a rule of public numbers for dense models, and to five knots and no pairs for sparse ones.
    schema : a :class:`sordino.Schema`: then ``fit`` and ``predict`` take tables, and bounds, classes,
        targets and persons are what it declares.
    data_norm : rows are clipped to this Euclidean norm, in fit and in predict; a public bound, never the
        data's own maximum. None is 1, and says so once.
    penalty : None, ``"ridge"`` for ``alpha ||w||^2 / 2``, or ``"nonconvex"`` for
        ``alpha sum_j w_j^2 / (1 + w_j^2)``, which does not shrink large coefficients. The intercept is free.
    alpha : the weight of the penalty, of ``"ridge"`` where none is named; None is 1e-3 where one is.
    classes : the class labels; None takes those seen, which the report lists as assumed public.
    class_weight : declared weights of the classes, a dict; they scale the losses before the clip.
    weight_bound : ``sample_weight`` is clipped to this public bound and divided by it; None is 1.
    fit_intercept : add a constant column.
    relation : ``"add-remove"`` (n is public) or ``"replace-one"``.
    noise : ``"sound"``, or ``"paper"`` for the published formula with the epsilon it really gives.
    secure_noise : noise without floating-point artefacts, on a lattice of integers.
    ledger, dataset_id : a :class:`sordino.ledger.Ledger` or its path, and the data set to charge.
    rows_per_person : the largest number of rows that one person has, where nobody knows whose a row is: then
        a person is protected, for so many times the noise. The guarantee is as true as the number.
    max_iter : the number of steps; None lets a rule on public facts choose.
    solver_options : options of the chosen solver: ``batch_size``, ``sampling`` (``"poisson"`` or, under
        replace-one, ``"fixed"``), ``step_size``, ``clip_norm``, and its own, as in ``{"gamma": 0.1}``.
    random_state : seeds public choices only, never the noise.
    verbose : progress on a terminal; never a loss.

    Attributes
    ----------
    coef_, intercept_, classes_, n_iter_, n_features_in_, feature_names_in_
    coef_noise_ : the public standard deviation of the noise of each coefficient, where the solver knows it,
        with a row for each of several classes. It follows from the plan and from the released curvature.
    shapes_ : with a schema, the effect of each column and pair, the most important ones first, as
        :class:`sordino.tables.Shape`; ``sordino.report.plots.plot_shapes(model)`` draws them.
    privacy_ : the :class:`sordino.PrivacyReport` of the fit.

    **Privacy.** ``coef_`` and ``intercept_`` are (epsilon, delta)-DP for one record; see ``privacy_``.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sordino import LogisticRegression
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LogisticRegression(epsilon=1.0, data_norm=80.0).fit(X, y)
    >>> model.coef_.shape
    (10, 64)
    """


@dataclass(eq=False, repr=False, kw_only=True)
class _DenseLevels(LinearParameters):
    """The parameters of a classifier of levels in an order."""

    penalty: str | None = None
    alpha: float | None = None
    classes: Any = None


class OrderedLogisticRegression(_DenseLevels, _Dense, ClassifierBase):
    r"""Logistic regression of classes in an order (proportional odds), under differential privacy.

    ``P(y is above level k) = 1 / (1 + exp(-(x . w + b_k)))``, one slope for all levels, so a few dozen times
    fewer coefficients than a softmax has with many classes. Minimises the mean over records of the logistic
    losses of the K - 1 questions "is it above level k?". ``predict`` returns the median level, which has the
    smallest expected ``rank_error``.

    Parameters
    ----------
    classes : the levels in their order; None takes those of a schema's target with ``ordered=True``, or, of
        whole numbers, those seen.
    others : those of :class:`LogisticRegression`; ``groups``, weights and sampling solvers are refused.

    Attributes
    ----------
    levels_ : the levels in their order; ``classes_`` are sorted, as scikit-learn wants them.
    coef_, intercept_ : one row of slopes, and ``b_k`` of each question, which fall.

    **Privacy.** ``coef_`` and ``intercept_`` are (epsilon, delta)-DP for one record, which is asked as K - 1
    rows: noise is for all of them at once (``Release.rows``).

    Examples
    --------
    >>> import numpy as np
    >>> from sordino import OrderedLogisticRegression
    >>> x = np.linspace(-1, 1, 3000)[:, None]
    >>> model = OrderedLogisticRegression(4.0, data_norm=1.0, classes=["low", "middle", "high"])
    >>> model.fit(x, np.array(["low", "middle", "high"])[np.arange(3000) // 1000]).predict([[-0.9], [0.9]])
    array(['low', 'high'], dtype='<U6')
    """

    _weighs_tables = False

    levels_: Any

    @property
    def _questions(self) -> int:  # type: ignore[override]
        return len(self.levels_) - 1

    def shared_params(self) -> tuple[str, ...]:
        """Return none: each candidate of a search is fitted by itself."""
        return ()

    def joint_task(self, records: int, features: int) -> Any:
        """Refuse: it is not proven for members."""
        raise UnsupportedError("Joint runs know no classes in an order. Use LogisticRegression.")

    def _row_bound(self) -> float:
        # The column of a level has the length of a row: with a quarter of it thresholds are twice as noisy.
        return super()._row_bound() * (math.sqrt(2.0) if self._questions > 1 else 1.0)

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:  # type: ignore[override]
        """Fit the model; the budget is spent here. With a schema, X is a table that has the target in it."""
        X, y, groups = self._read_table(X, y, groups)
        if groups is not None or in_dask(X):
            whose = "from Dask" if groups is None else "of persons (groups, or a person column)"
            raise UnsupportedError(
                f"Classes in an order are not learned {whose}. Use LogisticRegression (--model logistic), or "
                "records in memory without persons, with rows_per_person where a person may have several."
            )
        X, y = check_data(self, X, y)
        codes, self.classes_, public = encoded_labels(self, y)
        declared = declared_classes(self)
        if declared is None and self.classes_.dtype.kind not in "biuf":
            raise InvalidInputError("Expected classes= in their order: only numbers have one by themselves.")
        self.levels_ = self.classes_ if declared is None else np.asarray(declared)
        ranks = self._ranks()[codes]
        bound = declared_bound(self, "data_norm")
        rows, more = clipped_matrix(X, bound), self._questions - 1
        asked = [_with_column(rows, level, more, bound) for level in range(more + 1)]
        above = [np.where(ranks > level, 1.0, -1.0) for level in range(more + 1)]
        stack = sparse.vstack(asked, format="csr") if sparse.issparse(rows) else np.vstack(asked)
        return self._fit(stack, np.concatenate(above), (public, "classes in a declared order"))

    def _ranks(self) -> Any:
        """Return the place in the order of each class."""
        places = {level: place for place, level in enumerate(self.levels_.tolist())}
        return np.array([places[label] for label in self.classes_.tolist()])

    def _outputs(self) -> tuple[Loss, int]:
        return self._loss(), 1

    def _attributes(self, found: LinearFit) -> dict[str, Any]:
        coef, rest = np.split(found.coef, [found.coef.size - self._questions + 1])
        shifts = np.append(0.0, rest) * declared_bound(self, "data_norm")
        return {"coef_": coef[None], "intercept_": float(found.intercept) + shifts}

    def _finish(self, problem: Problem, last: Any) -> dict[str, Any]:
        """Return the attributes; probabilities of levels are differences, which noise may not take away."""
        found, places = super()._finish(problem, last), np.arange(self._questions)
        apart = min(0.5, _APART / (problem.population * problem.epsilon)) * places
        ends = np.minimum.accumulate(np.sort(found["intercept_"])[::-1] + apart) - apart
        return found | {"intercept_": ends}

    def _decision(self, X: Any) -> Floats:
        """Return the logarithms of the probabilities of the classes."""
        above = expit(super()._decision(X))
        ends = np.ones((len(above), 1))
        chances = -np.diff(np.hstack([ends, above, 0.0 * ends]), axis=1)[:, self._ranks()]
        return np.log(np.maximum(chances, 1e-300))

    @where_rows_lie
    def predict(self, X: Any) -> Any:
        """Return the median level: as likely as not, the true one is not above it."""
        return self.levels_[(super()._decision(X) > 0.0).sum(axis=1)]


def _with_column(rows: Any, level: int, columns: int, constant: float) -> Any:
    """Return rows with a constant in the column of a level, none for the first: that is the intercept's."""
    more = np.zeros((rows.shape[0], columns))
    if level:
        more[:, level - 1] = constant
    return sparse.hstack([rows, more], format="csr") if sparse.issparse(rows) else np.hstack([rows, more])


@dataclass(eq=False, repr=False, kw_only=True)
class _DenseLosses(_DenseLabels):
    """The parameters of a dense classifier with a choice of loss."""

    loss: str = "logistic"


class LinearClassifier(_DenseLosses, _Dense, ClassifierBase):
    r"""A linear classifier with a choice of loss, under differential privacy.

    Minimises ``mean_i loss(y_i (x_i . w + b)) + penalty(w, b)``.

    Parameters
    ----------
    loss : ``"logistic"``, for which this is :class:`LogisticRegression`; or ``"squared_hinge"``,
        ``max(0, 1 - m)^2 / 2``, for two classes: a support vector machine, without probabilities.
    others : those of :class:`LogisticRegression`, and so are the attributes.

    **Privacy.** ``coef_`` and ``intercept_`` are (epsilon, delta)-DP for one record; see ``privacy_``.

    Examples
    --------
    >>> import numpy as np
    >>> from sordino import LinearClassifier
    >>> X = np.eye(4)[np.arange(400) % 4]
    >>> model = LinearClassifier(epsilon=2.0, loss="squared_hinge", data_norm=1.0).fit(X, X[:, 2] > 0)
    >>> model.coef_.shape
    (1, 4)
    """


@dataclass(eq=False, repr=False, kw_only=True)
class _DenseNumbers(LinearParameters):
    """The parameters of a dense regressor."""

    loss: str = "squared"
    huber_threshold: float = 1.0
    quantile: float = 0.5
    target_bound: float | None = None
    penalty: str | None = None
    alpha: float | None = None


class LinearRegression(_DenseNumbers, _Dense, RegressorBase):
    r"""Linear regression under differential privacy: least squares, a robust loss, or counts.

    Minimises ``mean_i loss(x_i . w + b, y_i) + penalty(w, b)`` with clipped gradients. The targets are
    clipped to ``[-target_bound, target_bound]``, a public bound; None is 1, and says so once. Predictions
    stay in that range. Where records and budget are too few to see even the size of the targets, ``"auto"``
    answers with their mean.

    Parameters
    ----------
    loss : ``"squared"``; ``"huber"``, squared up to an error of ``huber_threshold`` and linear beyond;
        ``"quantile"``, which predicts numbers that a share of ``quantile`` of the targets is below;
        ``"poisson"`` for counts or ``"gamma"`` for positive amounts: targets are clipped to
        ``[0, target_bound]`` and predictions are ``exp(x . w + b)``. ``auto`` stands for ``gd`` (of sparse
        models: ``ight``) with amounts and quantiles of persons, and with quantiles of few records.
    huber_threshold : a public number, in the units of the targets.
    quantile : a public share in (0, 1); ``gd`` and ``ight`` round it off over 0.002 of ``target_bound``.
    target_bound : a public bound on the targets.
    others : those of :class:`LogisticRegression`, and so are the attributes.

    **Privacy.** ``coef_`` and ``intercept_`` are (epsilon, delta)-DP for one record; see ``privacy_``.

    Examples
    --------
    >>> import numpy as np
    >>> from sordino import LinearRegression
    >>> X = np.eye(4)[np.arange(400) % 4]
    >>> model = LinearRegression(epsilon=2.0, penalty="ridge").fit(X, X[:, 2])
    >>> model.coef_.shape
    (4,)
    """


# ------------------------------------------------------------------------------------- Sparse linear models


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


@dataclass(eq=False, repr=False, kw_only=True)
class _SparseLabels(LinearParameters):
    """The parameters of a sparse classifier."""

    n_nonzero_coefs: int | None = None
    classes: Any = None
    class_weight: Any = None
    alpha: float = 0.0


class SparseLogisticRegression(_SparseLabels, _Sparse, ClassifierBase):
    r"""Logistic regression with few non-zero coefficients, under differential privacy.

    Minimises ``mean_i log(1 + exp(-y_i (x_i . w + b))) + alpha ||w||^2 / 2`` over w with at most
    ``n_nonzero_coefs`` non-zeros; several classes by softmax, with one clip for all of them.

    Parameters
    ----------
    n_nonzero_coefs : how many coefficients survive; None keeps all.
    solver : a name in :data:`sordino.solvers.SOLVERS`, for example ``"ight"`` (all records each step) or
        ``"sgd-ht"`` (mini-batches); the documentation has a page on each.
    fit_intercept : add a coefficient that is never thresholded.
    alpha : the weight of the penalty, the squared norm, outside the clip and so free. The intercept is left
        out of it, but by ``frank-wolfe`` and ``two-stage``.
    noise : ``"sound"``, or ``"paper"`` for the published formula with the epsilon it really gives; variants
        have names, as in ``"paper: corollary 5.8"`` for ``ight``.
    others : those of :class:`LogisticRegression`, and so are the attributes, beside ``support_``.

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


@dataclass(eq=False, repr=False, kw_only=True)
class _SparseNumbers(LinearParameters):
    """The parameters of a sparse regressor."""

    loss: str = "squared"
    huber_threshold: float = 1.0
    quantile: float = 0.5
    n_nonzero_coefs: int | None = None
    target_bound: float | None = None
    alpha: float = 0.0


class SparseLinearRegression(_SparseNumbers, _Sparse, RegressorBase):
    r"""Linear regression with few non-zero coefficients, under differential privacy.

    Minimises ``mean_i loss(x_i . w + b, y_i) + alpha ||w||^2 / 2`` with clipped gradients; ``loss``,
    ``huber_threshold``, ``quantile`` and ``target_bound`` as in :class:`LinearRegression`. The other
    parameters and attributes are those of :class:`SparseLogisticRegression`.

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
