"""Robust private means as scikit-learn estimators."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from sordino.checks import check_data
from sordino.errors import InvalidTypeError
from sordino.estimators.statistics import mean
from sordino.private_estimator import PrivateEstimator


class TruncatedMean(PrivateEstimator):
    r"""The mean of truncated rows with Gaussian noise (Algorithm 1 of the paper, DPODME, for any dimension).

    Parameters
    ----------
    epsilon, delta, moment_order, moment_bound, truncation, joint_clip : as in :func:`sordino.mean`.
    threshold, center, failure_probability, confidence, relation, ledger, dataset_id : as there.

    Attributes
    ----------
    location_ : the private mean of each column.
    interval_ : the lower and the upper ends.
    threshold_ : where each column was truncated.
    privacy_ : the :class:`sordino.PrivacyReport` of the fit.

    **Privacy.** ``location_``, ``interval_`` and ``threshold_`` are (epsilon, delta)-DP for one row.

    Examples
    --------
    >>> import numpy as np
    >>> from sordino import TruncatedMean
    >>> TruncatedMean(epsilon=1.0).fit(np.sinh(np.linspace(-6, 6, 3000))[:, None]).location_.shape
    (1,)
    """

    _estimator: ClassVar[str] = "truncated"

    location_: np.ndarray
    interval_: tuple[np.ndarray, np.ndarray]
    threshold_: np.ndarray

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        moment_order: float | None = None,
        moment_bound: float | str = "auto",
        truncation: str = "clip",
        joint_clip: float | None = None,
        threshold: float | None = None,
        center: Any = "auto",
        failure_probability: float = 0.05,
        confidence: float = 0.95,
        relation: str = "add-remove",
        ledger: Any = None,
        dataset_id: str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.moment_order = moment_order
        self.moment_bound = moment_bound
        self.truncation = truncation
        self.joint_clip = joint_clip
        self.threshold = threshold
        self.center = center
        self.failure_probability = failure_probability
        self.confidence = confidence
        self.relation = relation
        self.ledger = ledger
        self.dataset_id = dataset_id

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def fit(self, X: Any, y: Any = None) -> TruncatedMean:
        """Estimate the mean; the budget is spent here. ``y`` is ignored."""
        X = check_data(self, X)
        if sparse.issparse(X):
            raise InvalidTypeError("Expected a dense matrix, got a sparse one. Convert it with X.toarray().")
        found: Any = mean(X, estimator=self._estimator, **self.get_params(deep=False))
        self.location_ = np.asarray(found)
        self.interval_, self.threshold_, self.privacy_ = found.interval, found.threshold, found.privacy
        return self


class MedianOfMeans(TruncatedMean):
    r"""The coordinate-wise median of truncated block means with noise (Algorithm 3, DPHDME).

    ``4 ln(2 d / xi)`` blocks, so that many times the noise of :class:`TruncatedMean`.
    Parameters and attributes are the same.

    **Privacy.** ``location_``, ``interval_`` and ``threshold_`` are (epsilon, delta)-DP for one row.
    """

    _estimator: ClassVar[str] = "median-of-means"
