"""Linear models for heavy-tailed data."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from sordino.checks import among, check_data, check_positive, remember
from sordino.elsewhere import where_rows_lie
from sordino.estimators.classifier import MarginClassifier
from sordino.estimators.heavy_base import HeavyTailedModel
from sordino.private_estimator import Scored
from sordino.problems.losses import LOSSES, Huber, Loss


class HeavyTailedRegressor(Scored, RegressorMixin, HeavyTailedModel):
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
    split : use a fresh chunk of the data each step (paper); False uses all data each step, with less noise.
    gradient : "norm" clips the norms of gradients (default; for a linear model the same as a convex loss with
        linear tails), "truncated" each coordinate, "median-of-means" takes the median over blocks (paper).
    truncation : "clip", or "zero" as in the paper.
    joint_clip : for coordinate-wise truncation (sparse models truncate so), clip gradients to this norm in
        units of the threshold.
    moment_order : v; gradients have a moment of order 1 + v.
    moment_bound : u, or "auto": noisy histograms of gradient scales, for a tenth of the budget.
    threshold : a public threshold instead of a chosen one.
    n_nonzero_coefs : how many coefficients survive; None keeps all and needs no selection.
    selection : "gumbel" or "peeling" (paper), for sparse models.
    constraint : a set of :mod:`sordino.solvers.heavy.constraints` for the coefficients.
    scale_columns : divide columns by scales learned from noisy histograms, and centre dense ones at rough
        medians if there is an intercept; "auto" does so where there are enough records for the number of
        columns, and neither a constraint nor a step size is given.
    fit_intercept, alpha, relation, ledger, dataset_id, max_iter, random_state, verbose : as elsewhere.
    schema : a :class:`sordino.Schema`: then ``fit`` and ``predict`` take tables, encoded by
        :class:`sordino.TableEncoder`; targets come from it and are clipped to their declared bounds.
    step_size : None learns it from a noisy histogram of row norms, shortens it when gradients grow, and
    keeps it
        so short that the noise of all steps moves the model by less than a residual.
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

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        loss: str = "squared",
        huber_threshold: float = 1.0,
        solver: str = "strongly-convex",
        split: bool = False,
        gradient: str = "norm",
        truncation: str = "clip",
        joint_clip: float | None = None,
        moment_order: float = 1.0,
        moment_bound: float | str = "auto",
        threshold: float | None = None,
        n_nonzero_coefs: int | None = None,
        selection: str = "gumbel",
        constraint: Any = None,
        scale_columns: bool | str = "auto",
        fit_intercept: bool = True,
        alpha: float = 0.0,
        relation: str = "add-remove",
        ledger: Any = None,
        dataset_id: str | None = None,
        schema: Any = None,
        max_iter: int | None = None,
        step_size: float | None = None,
        noise: str = "sound",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        remember(self, locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # a few dozen rows cannot be learnt from privately
        return tags

    def fit(self, X: Any, y: Any = None) -> HeavyTailedRegressor:
        """Fit the model; the budget is spent here. With a schema, X is a table with the targets in it."""
        X, y = self._tabled_records(X, y)
        X, y = check_data(self, X, y, y_numeric=True)
        among("loss", self.loss, ("squared", "huber"))
        loss: Loss = LOSSES["squared"]
        if self.loss == "huber":
            loss = Huber(check_positive("huber_threshold", self.huber_threshold, "Pass a public number."))
        found = self._fit(X, y, loss, 1, ())
        self.coef_, self.intercept_ = found.coef, float(found.intercept)
        return self

    @where_rows_lie
    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets."""
        return self._decision(X)[:, 0]


class HeavyTailedClassifier(MarginClassifier, HeavyTailedModel):
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

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        classes: Any = None,
        solver: str = "strongly-convex",
        split: bool = False,
        gradient: str = "norm",
        truncation: str = "clip",
        joint_clip: float | None = None,
        moment_order: float = 1.0,
        moment_bound: float | str = "auto",
        threshold: float | None = None,
        n_nonzero_coefs: int | None = None,
        selection: str = "gumbel",
        constraint: Any = None,
        scale_columns: bool | str = "auto",
        fit_intercept: bool = True,
        alpha: float = 0.0,
        relation: str = "add-remove",
        ledger: Any = None,
        dataset_id: str | None = None,
        schema: Any = None,
        max_iter: int | None = None,
        step_size: float | None = None,
        noise: str = "sound",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        remember(self, locals())

    def fit(self, X: Any, y: Any = None) -> HeavyTailedClassifier:
        """Fit the model; the budget is spent here. With a schema, X is a table with the labels in it."""
        X, y = self._tabled_records(X, y)
        X, y = check_data(self, X, y)
        labels = self._encoded(y)
        self._keep(self._fit(X, labels.targets, LOSSES[labels.loss], labels.outputs, (labels.public,)))
        return self
