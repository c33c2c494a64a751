"""The papers' synthetic designs. All randomness is public: a maker never sees private data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import special
from sklearn.utils import Bunch

from sordino.errors import InvalidInputError
from sordino.kernel.arrays import Floats
from sordino.kernel.noise import public_generator
from sordino.values import check_range, check_whole

Task = Literal["regression", "classification"]
# A NumPy generator from kernel/noise.py, which alone may name the type.
Public = Any


def clip_rows(data: NDArray[Any], bound: float) -> None:
    """Scale down, in place, the rows whose Euclidean norm exceeds the bound."""
    norms = np.sqrt(np.einsum("ij,ij->i", data, data, dtype=np.float64))
    data *= np.minimum(1.0, bound / np.maximum(norms, bound)).astype(data.dtype)[:, None]


def uniform_matrix(public: Public, shape: tuple[int, int], bound: float, dtype: DTypeLike) -> NDArray[Any]:
    """Draw i.i.d. entries from U(-bound, bound) without a second copy of the matrix."""
    data: NDArray[Any] = public.random(shape, dtype=np.dtype(dtype).type)
    data *= 2 * bound
    data -= bound
    return data


def sparse_vector(public: Public, n_features: int, n_nonzero: int) -> Floats:
    """Draw a vector with ``n_nonzero`` entries from U(-1, 1) at uniform places, zero elsewhere."""
    check_whole("n_nonzero", n_nonzero, n_features)
    theta = np.zeros(n_features)
    support = public.choice(n_features, n_nonzero, replace=False)
    theta[support] = public.uniform(-1.0, 1.0, n_nonzero)
    return theta


def responses(public: Public, margins: NDArray[Any], task: Task, variance: float) -> NDArray[Any]:
    """Draw targets: ``margin + N(0, variance)``, or 1 with probability ``1/(1+exp(-margin))``."""
    if task == "regression":
        return np.asarray(margins + np.sqrt(variance) * public.standard_normal(len(margins)))
    if task == "classification":
        probability = 1.0 / (1.0 + np.exp(-margins))
        return np.asarray(public.random(len(margins)) < probability, dtype=np.int64)
    raise InvalidInputError(f"Expected task to be regression or classification, got {task!r}.")


def make_sparse_linear_model(
    n_samples: int = 5000,
    n_features: int = 5000,
    n_nonzero: int = 30,
    *,
    task: Task = "regression",
    noise_variance: float = 0.1,
    random_state: object = None,
    dtype: DTypeLike = np.float64,
) -> Bunch:
    r"""Make dense bounded rows whose targets depend on few columns (Wang and Gu 2019, DP-IGHT).

    Entries of X are U(-2, 2), rows are scaled to norm at most :math:`2 s^*`, and :math:`\theta^*` has
    :math:`s^*` entries from U(-1, 1). Targets are :math:`X\theta^* + N(0, 0.1)`, or labels with
    :math:`P(y = 1) = 1/(1 + e^{-x^\top\theta^*})`.

    Parameters
    ----------
    n_samples, n_features, n_nonzero : rows, columns and :math:`s^*`. The paper uses (1000, 1000, 10) and
        (5000, 5000, 30).
    task : linear or logistic.
    noise_variance : the variance of the noise of the linear model.
    random_state : the seed of the design.
    dtype : the type of X.

    Returns a Bunch: ``data``, ``target``, ``coef`` (:math:`\theta^*`), ``data_norm`` (:math:`2 s^*`),
    ``DESCR``.

    References
    ----------
    Wang and Gu, Differentially private iterative gradient hard thresholding for sparse learning, IJCAI
    2019, section 6.1. It prints the logistic probability without the minus sign; since
    :math:`\theta^*` has a symmetric law the two designs are the same.

    Examples
    --------
    >>> design = make_sparse_linear_model(100, 50, 5, random_state=0)
    >>> design.data.shape, design.data_norm, int((design.coef != 0).sum())
    ((100, 50), 10.0, 5)
    """
    check_whole("n_samples", n_samples)
    public = public_generator(random_state)
    theta = sparse_vector(public, n_features, n_nonzero)
    data = uniform_matrix(public, (n_samples, n_features), 2.0, dtype)
    clip_rows(data, 2.0 * n_nonzero)
    return Bunch(
        data=data,
        target=responses(public, data @ theta.astype(data.dtype), task, noise_variance),
        coef=theta,
        data_norm=2.0 * n_nonzero,
        DESCR=f"Wang and Gu (2019), {task}: n={n_samples}, d={n_features}, s*={n_nonzero}.",
    )


def make_knowledge_transfer(
    n_samples: int = 4000,
    n_features: int = 5000,
    n_nonzero: int = 50,
    *,
    n_public: int | None = None,
    task: Task = "regression",
    noise_variance: float = 0.1,
    random_state: object = None,
    dtype: DTypeLike = np.float64,
) -> Bunch:
    """Make a private set and public features without targets, for knowledge transfer (DPSL-KT).

    Entries of both matrices are U(-1, 1), so a public feature has second moment 1/3. The other
    parameters are those of :func:`make_sparse_linear_model`.

    Parameters
    ----------
    n_samples, n_features, n_nonzero : rows, columns and sparsity. The dissertation uses (800, 1000, 10) and
        (4000, 5000, 50).
    n_public : rows of the public features; by default as many as private ones.

    Returns a Bunch: ``data``, ``target``, ``coef``, ``public_data``, ``public_second_moment``, ``DESCR``.

    Notes
    -----
    The law of the nonzero coefficients is not printed ("randomly generated"); here it is U(-1, 1), as
    in chapter 2.

    References
    ----------
    Wang, dissertation, chapter 3, section 3.4.1.
    """
    check_whole("n_samples", n_samples)
    public = public_generator(random_state)
    theta = sparse_vector(public, n_features, n_nonzero)
    data = uniform_matrix(public, (n_samples, n_features), 1.0, dtype)
    target = responses(public, data @ theta.astype(data.dtype), task, noise_variance)
    rows = n_samples if n_public is None else n_public
    return Bunch(
        data=data,
        target=target,
        coef=theta,
        public_data=uniform_matrix(public, (rows, n_features), 1.0, dtype),
        public_second_moment=1.0 / 3.0,
        DESCR=f"Knowledge transfer, {task}: n={n_samples}, d={n_features}, s={n_nonzero}.",
    )


# ------------------------------ Heavy-tailed laws with known means and moments, and designs drawn from them
# The theory needs a public bound u on :math:`E|X|^{1+v}` for some v in (0, 1]; each law gives one.


class HeavyTail:
    """A law with a known mean and known absolute moments; ``draw`` returns i.i.d. values."""

    index: float
    draw: Callable[[Public, tuple[int, ...]], Floats]
    _moment: Callable[[float], float]

    @property
    def mean(self) -> float:
        return self._moment(1.0)

    @property
    def order(self) -> float:
        """Moments of a smaller order are finite, those of a larger one are not."""
        return self.index

    def moment_bound(self, order: float) -> float:
        """Return a bound on ``E|X|^order``, infinite from :attr:`order` on."""
        return math.inf if order >= self.order else self._moment(order)


@dataclass(frozen=True)
class Pareto(HeavyTail):
    r"""Density :math:`a x^{-a-1}` on :math:`[1, \infty)`, scaled. :math:`E X^p = a/(a-p)`."""

    index: float = 1.8
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_range("index", self.index, "(1, inf)")
        check_range("scale", self.scale, "(0, inf)")

    def _moment(self, order: float) -> float:
        return math.pow(self.scale, order) * self.index / (self.index - order)

    def draw(self, public: Public, shape: tuple[int, ...]) -> Floats:
        return np.asarray(self.scale * (1.0 + public.pareto(self.index, shape)))


@dataclass(frozen=True)
class StudentT(HeavyTail):
    """Student's t with ``index`` degrees of freedom, moved to ``location``."""

    index: float = 2.5
    location: float = 0.0

    def __post_init__(self) -> None:
        check_range("index", self.index, "(1, inf)")

    @property
    def mean(self) -> float:
        return self.location

    def _moment(self, order: float) -> float:
        p, n = order, self.index
        logs = special.gammaln([(p + 1) / 2, (n - p) / 2, n / 2])
        centred = n ** (p / 2) * math.exp(logs[0] + logs[1] - logs[2]) / math.sqrt(math.pi)
        if self.location == 0 or p < 1:
            return centred + math.pow(abs(self.location), p)
        return math.pow(math.pow(centred, 1 / p) + abs(self.location), p)  # Minkowski's inequality

    def draw(self, public: Public, shape: tuple[int, ...]) -> Floats:
        return np.asarray(self.location + public.standard_t(self.index, shape))


@dataclass(frozen=True)
class Lognormal(HeavyTail):
    """``exp(N(log_mean, spread^2))``: every moment is finite, the higher ones are huge."""

    spread: float = 1.5
    log_mean: float = 0.0

    def __post_init__(self) -> None:
        check_range("spread", self.spread, "(0, inf)")

    @property
    def order(self) -> float:
        return math.inf

    def _moment(self, order: float) -> float:
        return math.exp(order * self.log_mean + (order * self.spread) ** 2 / 2)

    def draw(self, public: Public, shape: tuple[int, ...]) -> Floats:
        return np.asarray(public.lognormal(self.log_mean, self.spread, shape))
