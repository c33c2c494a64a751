"""Preprocessing with its own guarantee: free where it looks at one row at a time, paid for elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sordino.checks import bound_fact, check_data, declared_bound
from sordino.elsewhere import where_rows_lie
from sordino.execute import executor_of, is_sparse
from sordino.kernel import Curator, Plan, Relation, Release
from sordino.kernel.clip import clipped_matrix
from sordino.private_estimator import Budget, PrivateEstimator
from sordino.problems.affine import ColumnMoments
from sordino.problems.robust import Sample
from sordino.runs import Task
from sordino.values import check_flag, check_positive


class RowClipper(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale rows down to a Euclidean norm of at most ``data_norm``.

    **Privacy.** Free: each row is changed by itself, with a public constant.
    """

    data_norm_: float

    def __init__(self, *, data_norm: float = 1.0) -> None:
        self.data_norm = data_norm

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any = None) -> RowClipper:
        """Check the input; nothing is learnt."""
        check_data(self, X)
        self.data_norm_ = check_positive("data_norm", self.data_norm, "It is a public constant.")
        return self

    @where_rows_lie
    def transform(self, X: Any) -> Any:
        """Return the clipped rows."""
        check_is_fitted(self)
        X = check_data(self, X, reset=False)
        return clipped_matrix(X, self.data_norm_)


@dataclass(frozen=True)
class _Moments:
    """The solver behind the scalers: one release of column moments, with a bound on its noise."""

    data_norm: float
    square: bool

    def plan(self, sample: Sample) -> Plan:
        query = ColumnMoments(self.data_norm, self.square)
        return sample.planned(moments=Release(query, sample.gaussian()))

    def run(self, curator: Curator, sample: Sample) -> Iterator[Any]:
        multiplier = curator.plan.releases["moments"].mechanism.multiplier or 0.0
        noise = multiplier * np.sqrt(2.0) * sample.relation.contributions / sample.population
        yield curator.release("moments"), noise


@dataclass(eq=False, repr=False, kw_only=True)
class _Scaling(Budget):
    """The parameters of both scalers."""

    data_norm: float | None = None
    relation: str = "add-remove"
    secure_noise: bool = False
    ledger: Any = None
    dataset_id: str | None = None


class _Scaler(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):
    """What the scalers share: one paid release, then a public affine map."""

    _square = _sparse_rows = True

    data_norm: float | None
    secure_noise: bool
    with_mean: bool
    data_norm_: float
    mean_: np.ndarray
    scale_: np.ndarray

    def fit(self, X: Any, y: Any = None) -> Any:
        """Release the moments of the columns; the budget is spent here."""
        check_flag("with_mean", self.with_mean)
        relation, bound = Relation.parse(self.relation), declared_bound(self, "data_norm")
        X = check_data(self, X)
        secure = check_flag("secure_noise", self.secure_noise)
        sample = Sample(X.shape[0], X.shape[1], relation, secure_noise=secure)
        centre = self.with_mean and not is_sparse(X)
        task = Task(
            _Moments(bound, self._square),
            sample,
            type(self).__name__,
            public=(
                f"number of records: {sample.population}",
                bound_fact("data_norm", bound, self.data_norm, "rows are clipped to it"),
            ),
            finish=lambda last: self._finish(last, sample.columns, bound, centre),
        )
        self._run(task, executor_of(X, None, bound), self._ask(sample.population))
        return self

    def _finish(self, last: tuple[np.ndarray, float], d: int, bound: float, centre: bool) -> dict[str, Any]:
        moments, noise = last
        mean = moments[:d] * bound if centre else np.zeros(d)
        middle = moments[:d] if np.any(mean) else np.zeros(d)
        scale = self._scale(moments[d:], middle, max(2 * noise, 1e-12)) * bound
        return {"mean_": mean, "scale_": scale, "data_norm_": bound}

    @where_rows_lie
    def transform(self, X: Any) -> Any:
        """Return the scaled columns of rows clipped as in fit; sparse data are not centred."""
        check_is_fitted(self)
        X = clipped_matrix(check_data(self, X, reset=False), self.data_norm_)
        with np.errstate(over="ignore"):
            if not sparse.issparse(X):
                return _saturate((X - self.mean_) / self.scale_)
            out = X.astype(np.float64)
            out.data = _saturate(out.data / self.scale_[out.indices])
            return out


def _saturate(values: np.ndarray) -> np.ndarray:
    """Return finite numbers: where a quotient overflows, the largest one, without a word.

    An infinite entry would make the next step refuse the data of one neighbour and not of the other.
    """
    most = np.finfo(values.dtype).max
    return np.clip(values, -most, most)


@dataclass(eq=False, repr=False, kw_only=True)
class _Centring(_Scaling):
    """The parameters of the scaler that may centre."""

    with_mean: bool = True


class PrivateStandardScaler(_Centring, _Scaler):
    """Centre columns and divide them by their standard deviation, both released with noise.

    **Privacy.** One Gaussian release of sums and sums of squares over rows clipped to ``data_norm``.
    Deviations below the noise are floored at it.
    """

    def _scale(self, second: np.ndarray, first: np.ndarray, floor: float) -> np.ndarray:
        return np.sqrt(np.maximum(second - np.square(first), floor))


class PrivateColumnWeights(_Scaling, _Scaler):
    """Divide columns by the root of their mean absolute value, released with noise; never centres.

    On sparse rows, absolute values stand out of the noise where squares drown in it.

    **Privacy.** One Gaussian release over rows clipped to ``data_norm``.
    """

    _square = with_mean = False

    def _scale(self, second: np.ndarray, first: np.ndarray, floor: float) -> np.ndarray:
        return np.sqrt(np.maximum(second, floor))
