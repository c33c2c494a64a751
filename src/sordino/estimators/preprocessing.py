"""Preprocessing with its own guarantee: free where it looks at one row at a time, paid for elsewhere."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sordino.checks import bound_fact, check_data, declared_bound, remember
from sordino.elsewhere import where_rows_lie
from sordino.errors import InvalidInputError
from sordino.execute import executor_of, is_sparse
from sordino.kernel import Curator, Plan, Relation, Release
from sordino.kernel.arrays import Floats
from sordino.kernel.clip import clipped_matrix
from sordino.private_estimator import Budget, PrivateEstimator
from sordino.problems.affine import ColumnMoments
from sordino.problems.robust import Sample
from sordino.runs import Task
from sordino.runs.report import Fact, Source
from sordino.values import among, check_count, check_flag, check_positive
from sordino.wavelets import scatter


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
                Fact.number_of("record", sample.population),
                bound_fact("data_norm", bound, Source.given(self.data_norm), "rows are clipped to it"),
            ),
            finish=lambda last: self._finish(last, sample.columns, bound, centre),
        )
        self._run(task, executor_of(X, None, bound), self._ask(sample.population))
        return self._attested()

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


# ------ Scattering: wavelet moduli of images, a fixed map of one image at a time, and so free of privacy cost

_AT_ONCE = 50  # images: what stays in the cache of a processor
_TOGETHER = 3  # channels that are scaled together; chosen on training images of MNIST (15,000 against 10,000)
_FLAT = 1e-5  # the variance below which a group is left flat
_NORMS = ("groups", "none")


class ScatteringTransformer(TransformerMixin, BaseEstimator):
    r"""Scattering coefficients of order 0, 1 and 2 of small images, for a linear model.

    An image ``x`` is turned into local averages of ``x``, of ``|x * psi_a|`` and of ``||x * psi_a| *
    psi_b|``, where the ``psi`` are Morlet wavelets of several scales and angles. Nothing is learned, so
    nothing is paid: row i of the result depends on image i only.

    Parameters
    ----------
    scales : the number of octaves J; the averages are over ``2^J x 2^J`` pixels.
    angles : the number of directions L.
    shape : of an image, ``(height, width)`` or ``(height, width, channels)``; None takes square grey images,
        and fills rows that are none with zeros up to the next square, with a warning.
    normalise : ``"groups"`` centres and scales the coefficients of each image, three channels at a time, and
        makes the norm of a row at most 1, so that ``data_norm=1`` of a linear model after it is a fact;
        ``"none"``.

    Attributes
    ----------
    n_features_in_, shape_

    **Privacy.** A fixed map of one record at a time: fitting reads the number of columns only.

    References
    ----------
    Bruna and Mallat, Invariant scattering convolution networks, 2013; Tramèr and Boneh, Differentially
    private learning needs better features (or much more data), 2021, who use it under a private linear model.

    Examples
    --------
    >>> import numpy as np
    >>> from sordino import ScatteringTransformer
    >>> ScatteringTransformer().fit_transform(np.eye(4, 784)).shape
    (4, 3969)
    """

    n_features_in_: int
    shape_: tuple[int, int, int]

    def __init__(
        self,
        *,
        scales: int = 2,
        angles: int = 8,
        shape: tuple[int, ...] | None = None,
        normalise: str = "groups",
    ) -> None:
        remember(self, locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the shape; nothing else is read."""
        X = _dense(check_data(self, X))
        scales = check_count("scales", self.scales, 1, 16, "It is the number of octaves.") or 1
        self.shape_ = _shape_of(self.shape, X.shape[1], 1 << scales)
        return self

    @where_rows_lie
    def transform(self, X: Any) -> Floats:
        """Return the coefficients, one row per image, in the precision of X."""
        check_is_fitted(self, "shape_")
        X = _dense(check_data(self, X, reset=False))
        return np.concatenate([self._rows(X[at : at + _AT_ONCE]) for at in range(0, len(X), _AT_ONCE)])

    def _rows(self, rows: Floats) -> Floats:
        height, width, channels = self.shape_
        rows = np.pad(rows, ((0, 0), (0, math.prod(self.shape_) - rows.shape[1])))
        images = np.moveaxis(rows.reshape(-1, height, width, channels), 3, 1)
        scales = check_count("scales", self.scales, 1, 16, "It is the number of octaves.") or 1
        angles = check_count("angles", self.angles, 1, None, "It is the number of directions.") or 1
        found = scatter(images.reshape(-1, height, width), scales, angles, np)
        found = found.reshape(len(rows), channels * found.shape[1], *found.shape[2:])
        grouped = among("normalise", self.normalise, _NORMS) == "groups"
        return np.asarray(normalise_groups(found) if grouped else found.reshape(len(rows), -1))


def _dense(X: Any) -> Floats:
    if sparse.issparse(X):
        raise InvalidInputError("Expected a dense array, got a sparse matrix. Pass X.toarray().")
    return np.asarray(X)


def _shape_of(shape: tuple[int, ...] | None, columns: int, unit: int) -> tuple[int, int, int]:
    """Return height, width and channels: those declared, or the smallest grey square that holds a row."""
    if shape is None:
        side = max(math.isqrt(columns - 1) + 1, unit)
        if side * side != columns:
            warnings.warn(
                f"Rows of {columns} pixels are no square images for this transformer: they are filled with "
                f"zeros up to {side} x {side}. Pass shape=(height, width) or (height, width, channels).",
                UserWarning,
                stacklevel=3,
            )
        return side, side, 1
    full = tuple(int(s) for s in (*shape, 1))[:3] if len(shape) in (2, 3) else (0, 0, 0)
    if math.prod(full) != columns or min(full) < 1:
        raise InvalidInputError(
            f"Expected images of shape {tuple(shape)} in rows of {math.prod(full)} pixels, got {columns} "
            "columns. Pass shape=(height, width) or (height, width, channels)."
        )
    return full[0], full[1], full[2]


def normalise_groups(found: Any, size: int = _TOGETHER) -> Any:
    """Centre and scale each image's coefficients in groups of channels; a row then has norm at most 1.

    The squares of a group sum to at most its size, so the root of their number bounds a row unseen.
    """
    n, channels = found.shape[:2]
    out = np.empty_like(found)
    for start in range(0, channels, size):
        part = found[:, start : start + size]
        apart = part - part.mean(axis=(1, 2, 3), keepdims=True)
        spread = np.sqrt(np.square(apart).mean(axis=(1, 2, 3), keepdims=True) + _FLAT)
        out[:, start : start + size] = apart / spread
    return out.reshape(n, -1) / math.sqrt(out[0].size)
