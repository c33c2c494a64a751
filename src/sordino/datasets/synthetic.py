"""The papers' synthetic designs. All randomness is public: a maker never sees private data."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse, special
from sklearn.utils import Bunch

from sordino.errors import DataNotFoundError, InvalidInputError
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.noise import public_generator

Task = Literal["regression", "classification"]
# A NumPy generator from kernel/noise.py, which alone may name the type.
Public = Any


def at_least(name: str, value: int, least: int, most: int | None = None) -> None:
    if not least <= value or (most is not None and value > most):
        bound = f"at least {least}" + ("" if most is None else f" and at most {most}")
        raise InvalidInputError(f"Expected {name} to be {bound}, got {value!r}.")


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
    at_least("n_nonzero", n_nonzero, 1, n_features)
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
    n_samples, n_features, n_nonzero : int
        Rows, columns and :math:`s^*`. The paper uses (1000, 1000, 10) and (5000, 5000, 30).
    task : {"regression", "classification"}
        Linear or logistic.
    noise_variance : float
        The variance of the noise of the linear model.
    random_state : int, optional
        The seed of the design.
    dtype : float64 or float32
        The type of X.

    Returns
    -------
    Bunch
        ``data``, ``target``, ``coef`` (:math:`\theta^*`), ``data_norm`` (:math:`2 s^*`), ``DESCR``.

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
    at_least("n_samples", n_samples, 1)
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
    n_samples, n_features, n_nonzero : int
        Rows, columns and sparsity. The dissertation uses (800, 1000, 10) and (4000, 5000, 50).
    n_public : int, optional
        Rows of the public features; by default as many as private ones.
    task, noise_variance, random_state, dtype
        As there.

    Returns
    -------
    Bunch
        ``data``, ``target``, ``coef``, ``public_data``, ``public_second_moment``, ``DESCR``.

    Notes
    -----
    The law of the nonzero coefficients is not printed ("randomly generated"); here it is U(-1, 1), as
    in chapter 2.

    References
    ----------
    Wang, dissertation, chapter 3, section 3.4.1.
    """
    at_least("n_samples", n_samples, 1)
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


def make_spiked_covariance(
    n_samples: int = 2000,
    n_features: int = 100,
    spikes: Sequence[float] = (10.0, 8.0, 6.0, 4.0, 2.0),
    *,
    noise_variance: float = 0.1,
    data_norm: float | None = None,
    random_state: object = None,
    dtype: DTypeLike = np.float64,
) -> Bunch:
    r"""Make Gaussian rows with covariance :math:`V \mathrm{diag}(\lambda) V^\top + \sigma^2 I`.

    Parameters
    ----------
    n_samples, n_features : int
        Rows and columns.
    spikes : sequence of float
        :math:`\lambda`, largest first; as many as there are components.
    noise_variance : float
        :math:`\sigma^2`.
    data_norm : float, optional
        Scale rows down to this norm. The law is symmetric along each eigenvector, so clipping whole
        rows moves the eigenvalues but not the eigenvectors.
    random_state : int, optional
        The seed of the design.
    dtype : float64 or float32
        The type of the rows.

    Returns
    -------
    Bunch
        ``data``, ``components`` (one eigenvector per row), ``eigenvalues`` (before clipping),
        ``data_norm``, ``DESCR``. There is no target.

    References
    ----------
    Johnstone, On the distribution of the largest eigenvalue in principal components analysis, Annals
    of Statistics 29, 2001.
    """
    at_least("n_samples", n_samples, 1)
    at_least("n_features", n_features, len(spikes))
    public = public_generator(random_state)
    loadings = np.asarray(spikes, dtype=float)
    basis, _ = np.linalg.qr(public.standard_normal((n_features, len(loadings))))
    scores = public.standard_normal((n_samples, len(loadings))) * np.sqrt(loadings)
    data = public.standard_normal((n_samples, n_features)) * np.sqrt(noise_variance)
    data += scores @ basis.T
    data = data.astype(dtype, copy=False)
    if data_norm is not None:
        clip_rows(data, data_norm)
    return Bunch(
        data=data,
        components=basis.T.copy(),
        eigenvalues=loadings + noise_variance,
        data_norm=data_norm,
        DESCR=f"Spiked covariance: n={n_samples}, d={n_features}, {len(loadings)} spikes.",
    )


# ------------------------------ Heavy-tailed laws with known means and moments, and designs drawn from them
# The theory needs a public bound u on :math:`E|X|^{1+v}` for some v in (0, 1]; each law gives one.


class HeavyTail:
    """A law with a known mean and known absolute moments."""

    index: float
    location: float

    @property
    def mean(self) -> float:
        """The mean."""
        return self.location

    @property
    def order(self) -> float:
        """Moments of a smaller order are finite, those of a larger one are not."""
        return self.index

    def moment_bound(self, order: float) -> float:
        """Return a bound on ``E|X|^order``, infinite from :attr:`order` on."""
        return math.inf if order >= self.order else self._moment(order)

    def _moment(self, order: float) -> float:
        raise NotImplementedError

    def draw(self, public: Public, shape: tuple[int, ...]) -> Floats:
        """Draw i.i.d. values."""
        raise NotImplementedError


def _positive(name: str, value: float, above: float = 0.0) -> None:
    if not value > above:
        raise InvalidInputError(f"Expected {name} > {above:g}, got {value!r}.")


def _shift(centred: float, order: float, location: float) -> float:
    """Bound ``E|X|^p`` from ``E|X - location|^p``, by Minkowski's inequality from p = 1 on."""
    if location == 0 or order < 1:
        return centred + math.pow(abs(location), order)
    return math.pow(math.pow(centred, 1 / order) + abs(location), order)


@dataclass(frozen=True)
class Pareto(HeavyTail):
    r"""Density :math:`a x^{-a-1}` on :math:`[1, \infty)`, scaled. :math:`E X^p = a/(a-p)`."""

    index: float = 1.8
    scale: float = 1.0

    def __post_init__(self) -> None:
        _positive("index", self.index, 1.0)
        _positive("scale", self.scale)

    @property
    def mean(self) -> float:
        return self._moment(1.0)

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
        _positive("index", self.index, 1.0)

    def _moment(self, order: float) -> float:
        p, n = order, self.index
        logs = special.gammaln([(p + 1) / 2, (n - p) / 2, n / 2])
        centred = n ** (p / 2) * math.exp(logs[0] + logs[1] - logs[2]) / math.sqrt(math.pi)
        return _shift(centred, order, self.location)

    def draw(self, public: Public, shape: tuple[int, ...]) -> Floats:
        return np.asarray(self.location + public.standard_t(self.index, shape))


@dataclass(frozen=True)
class Lognormal(HeavyTail):
    """``exp(N(log_mean, spread^2))``: every moment is finite, the higher ones are huge."""

    spread: float = 1.5
    log_mean: float = 0.0

    def __post_init__(self) -> None:
        _positive("spread", self.spread)

    @property
    def mean(self) -> float:
        return self._moment(1.0)

    @property
    def order(self) -> float:
        return math.inf

    def _moment(self, order: float) -> float:
        return math.exp(order * self.log_mean + (order * self.spread) ** 2 / 2)

    def draw(self, public: Public, shape: tuple[int, ...]) -> Floats:
        return np.asarray(public.lognormal(self.log_mean, self.spread, shape))


@dataclass(frozen=True)
class Stable(HeavyTail):
    r"""Symmetric alpha-stable, :math:`E e^{itX} = e^{it\mu - |ct|^\alpha}`, 1 < alpha < 2.

    The variance is infinite; drawn by Chambers, Mallows and Stuck (1976).
    """

    index: float = 1.7
    location: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        _positive("scale", self.scale)
        if not 1.0 < self.index < 2.0:
            raise InvalidInputError(f"Expected 1 < index < 2, got {self.index!r}.")

    def _moment(self, order: float) -> float:
        p, a = order, self.index
        gammas = special.gamma([(1 + p) / 2, 1 - p / a, 1 - p / 2])
        centred = self.scale**p * 2**p * gammas[0] * gammas[1] / (gammas[2] * math.sqrt(math.pi))
        return _shift(float(centred), order, self.location)

    def draw(self, public: Public, shape: tuple[int, ...]) -> Floats:
        a = self.index
        angle = public.uniform(-math.pi / 2, math.pi / 2, shape)
        wait = public.standard_exponential(shape)
        tilt = (np.cos((1 - a) * angle) / wait) ** ((1 - a) / a)
        return np.asarray(self.location + self.scale * (np.sin(a * angle) / np.cos(angle) ** (1 / a) * tilt))


LAWS = {"pareto": Pareto(), "student-t": StudentT(), "lognormal": Lognormal(), "stable": Stable()}


def _law(law: str | HeavyTail) -> HeavyTail:
    if not isinstance(law, str):
        return law
    if law not in LAWS:
        raise InvalidInputError(f"Expected law to be one of {', '.join(LAWS)}, got {law!r}.")
    return LAWS[law]


def make_heavy_tailed(
    n_samples: int = 10_000,
    n_features: int = 1,
    law: str | HeavyTail = "pareto",
    *,
    moment_order: float = 1.5,
    random_state: object = None,
) -> Bunch:
    r"""Make rows of i.i.d. heavy-tailed entries whose mean is known.

    Parameters
    ----------
    n_samples, n_features : int
        Rows and columns.
    law : {"pareto", "student-t", "lognormal", "stable"} or HeavyTail
        The law of the entries, with its default parameters or as an object.
    moment_order : float
        :math:`1 + v`, the order of the moment that is bounded; below the law's own order.
    random_state : int, optional
        The seed of the design.

    Returns
    -------
    Bunch
        ``data``, ``mean`` (the true one, per column), ``moment_order``, ``moment_bound`` (u of the
        theory), ``law``, ``DESCR``.

    References
    ----------
    Tao, Wu, Cheng and Wang, Private stochastic convex optimization and sparse learning with
    heavy-tailed data revisited, IJCAI 2022 (assumptions; the paper has no experiments).

    Examples
    --------
    >>> from sordino.datasets import Pareto
    >>> design = make_heavy_tailed(100, 2, Pareto(index=3.0), random_state=0)
    >>> design.mean, design.moment_bound
    (array([1.5, 1.5]), 2.0)
    """
    at_least("n_samples", n_samples, 1)
    at_least("n_features", n_features, 1)
    chosen = _law(law)
    if not 1.0 < moment_order < chosen.order:
        raise InvalidInputError(
            f"Expected 1 < moment_order < {chosen.order:g} for this law, got {moment_order!r}."
        )
    public = public_generator(random_state)
    return Bunch(
        data=chosen.draw(public, (n_samples, n_features)),
        mean=np.full(n_features, chosen.mean),
        moment_order=moment_order,
        moment_bound=chosen.moment_bound(moment_order),
        law=chosen,
        DESCR=f"Heavy tails, {chosen}: n={n_samples}, d={n_features}.",
    )


def make_heavy_tailed_regression(
    n_samples: int = 5_000,
    n_features: int = 100,
    n_nonzero: int = 10,
    noise: str | HeavyTail = "student-t",
    *,
    design: str | HeavyTail | None = None,
    random_state: object = None,
) -> Bunch:
    r"""Make a sparse linear model with heavy-tailed noise of mean zero.

    :math:`y = X\theta^* + (\xi - E\xi)`, with Gaussian or heavy-tailed X.

    Parameters
    ----------
    n_samples, n_features, n_nonzero : int
        Rows, columns and nonzero coefficients, which are U(-1, 1).
    noise : {"pareto", "student-t", "lognormal", "stable"} or HeavyTail
        The law of the noise.
    design : the same, optional
        The law of the entries of X, centred; standard normal if it is not given.
    random_state : int, optional
        The seed of the design.

    Returns
    -------
    Bunch
        ``data``, ``target``, ``coef``, ``noise_law``, ``design_law``, ``DESCR``.
    """
    at_least("n_samples", n_samples, 1)
    public = public_generator(random_state)
    theta = sparse_vector(public, n_features, n_nonzero)
    noise_law = _law(noise)
    design_law = None if design is None else _law(design)
    shape = (n_samples, n_features)
    if design_law is None:
        data = public.standard_normal(shape)
    else:
        data = design_law.draw(public, shape) - design_law.mean
    return Bunch(
        data=data,
        target=data @ theta + noise_law.draw(public, (n_samples,)) - noise_law.mean,
        coef=theta,
        noise_law=noise_law,
        design_law=design_law,
        DESCR=f"Heavy-tailed regression, noise {noise_law}: n={n_samples}, d={n_features}.",
    )


# ----------- A sparse classification design that scales to millions of rows and tens of millions of columns

ColumnLaw = Literal["zipf", "uniform"]
_ROWS = 1 << 15  # rows made at a time; part of the design, because it orders the draws
_ARRAYS = ("data", "indices", "indptr", "target")


def strata(n_features: int, nnz_per_row: int, column_law: ColumnLaw) -> Ints:
    """Cut the columns into ``nnz_per_row`` groups of about equal probability.

    A row takes one column of each group, so its columns are distinct and sorted without a search.
    Under ``"zipf"`` column j has probability about 1/j: the first columns are in almost every row, as
    common words are.
    """
    if column_law not in ("zipf", "uniform"):
        raise InvalidInputError(f"Expected column_law to be zipf or uniform, got {column_law!r}.")
    steps = np.arange(nnz_per_row + 1)
    share = steps / nnz_per_row
    ideal = (n_features + 1.0) ** share - 1.0 if column_law == "zipf" else n_features * share
    edges = np.floor(ideal).astype(np.int64)
    edges = np.maximum.accumulate(edges - steps) + steps  # at least one column each
    edges[-1] = n_features
    return np.minimum(edges, n_features - nnz_per_row + steps)


def make_sparse_classification(
    n_samples: int = 10_000,
    n_features: int = 100_000,
    nnz_per_row: int = 75,
    *,
    n_informative: int = 1_000,
    signal: float = 4.0,
    column_law: ColumnLaw = "zipf",
    path: str | os.PathLike[str] | None = None,
    random_state: object = None,
    dtype: DTypeLike = np.float32,
) -> Bunch:
    r"""Make a sparse logistic design with rows of unit norm, in bounded memory.

    Labels are +1 with probability :math:`1/(1 + e^{-x^\top\theta})` and -1 otherwise.

    Parameters
    ----------
    n_samples, n_features, nnz_per_row : int
        Rows, columns and stored entries of each row.
    n_informative : int
        Nonzero coefficients. Under ``"zipf"`` they lie among the first ``10 * n_informative``
        columns, which rows do contain.
    signal : float
        The standard deviation of the margin :math:`x^\top\theta`.
    column_law : {"zipf", "uniform"}
        How often a column occurs.
    path : path, optional
        A folder to write the matrix to as memory-mapped arrays. Memory then holds some thousand rows
        at a time: 1,000,000 x 20,000,000 with 75 entries a row is a file of 600 MB.
    random_state : int, optional
        The seed of the design.
    dtype : float32 or float64
        The type of the entries.

    Returns
    -------
    Bunch
        ``data`` (CSR), ``target`` (-1 or +1), ``coef`` (CSR with one row), ``data_norm`` (1), ``DESCR``.

    Examples
    --------
    >>> design = make_sparse_classification(100, 10_000, 20, n_informative=50, random_state=0)
    >>> design.data.shape, design.data.nnz
    ((100, 10000), 2000)
    """
    at_least("n_samples", n_samples, 1)
    at_least("nnz_per_row", nnz_per_row, 1, n_features)
    at_least("n_informative", n_informative, 1, n_features)
    public = public_generator(random_state)
    edges = strata(n_features, nnz_per_row, column_law)
    theta = _coefficients(public, edges, n_informative, column_law, signal)
    arrays = _allocate(n_samples, n_features, nnz_per_row, path, np.dtype(dtype))
    for start in range(0, n_samples, _ROWS):
        _fill(public, arrays, start, min(start + _ROWS, n_samples), edges, theta)
    return _bunch(arrays, n_features, theta)


def open_sparse_classification(path: str | os.PathLike[str], n_features: int) -> Bunch:
    """Open what :func:`make_sparse_classification` wrote to a folder, without reading it."""
    folder = Path(path)
    if not all((folder / f"{name}.npy").is_file() for name in _ARRAYS):
        names = ", ".join(f"{name}.npy" for name in _ARRAYS)
        raise DataNotFoundError(
            f"{folder} does not hold a sparse design ({names}). Make one with "
            "make_sparse_classification(..., path=...)."
        )
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}
    return _bunch(arrays, n_features, None)


def _coefficients(public: Public, edges: Ints, count: int, law: ColumnLaw, signal: float) -> Floats:
    """Draw coefficients so that the margin has standard deviation ``signal``."""
    reach = min(int(edges[-1]), 10 * count) if law == "zipf" else int(edges[-1])
    theta = np.zeros(reach)
    theta[public.choice(reach, count, replace=False)] = public.uniform(-1.0, 1.0, count)
    # An entry of a unit row squares to 1/m on average; group k hits a mean square of theta.
    squares = np.concatenate([[0.0], np.cumsum(theta**2)])
    mass = np.diff(squares[np.minimum(edges, reach)]) / np.diff(edges)
    spread = np.sqrt(mass.mean())
    return theta * (signal / spread if spread > 0 else 1.0)


def _allocate(n: int, d: int, m: int, path: str | os.PathLike[str] | None, dtype: np.dtype) -> dict[str, Any]:
    kind = np.int32 if max(n * m, d) < np.iinfo(np.int32).max else np.int64
    shapes = {
        "data": ((n * m,), dtype),
        "indices": ((n * m,), np.dtype(kind)),
        "indptr": ((n + 1,), np.dtype(kind)),
        "target": ((n,), np.dtype(np.int8)),
    }
    if path is None:
        arrays: dict[str, Any] = {key: np.empty(shape, t) for key, (shape, t) in shapes.items()}
    else:
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {
            key: np.lib.format.open_memmap(folder / f"{key}.npy", mode="w+", dtype=t, shape=shape)
            for key, (shape, t) in shapes.items()
        }
    arrays["indptr"][:] = np.arange(n + 1, dtype=kind) * m
    return arrays


def _fill(public: Public, arrays: dict[str, Any], start: int, stop: int, edges: Ints, theta: Floats) -> None:
    m = len(edges) - 1
    shape = (stop - start, m)
    columns = public.random(shape)
    columns *= np.diff(edges)
    columns = edges[:-1] + np.minimum(columns.astype(np.int64), np.diff(edges) - 1)
    values = public.random(shape, dtype=np.float32) + np.float32(0.5)
    values /= np.sqrt(np.einsum("ij,ij->i", values, values))[:, None]
    known = columns < len(theta)
    margins = (values * np.where(known, theta[np.where(known, columns, 0)], 0.0)).sum(axis=1)
    positive = public.random(stop - start) < 1.0 / (1.0 + np.exp(-margins))
    arrays["data"][start * m : stop * m] = values.ravel()
    arrays["indices"][start * m : stop * m] = columns.ravel()
    arrays["target"][start:stop] = np.where(positive, 1, -1)


def _bunch(arrays: dict[str, Any], d: int, theta: Floats | None) -> Bunch:
    n = len(arrays["target"])
    parts = (arrays["data"], arrays["indices"], arrays["indptr"])
    out = Bunch(
        data=sparse.csr_matrix(parts, shape=(n, d), copy=False),
        target=np.asarray(arrays["target"]).astype(np.int64),
        data_norm=1.0,
        DESCR=f"Sparse logistic design: n={n:,}, d={d:,}, {len(parts[0]) // n} entries a row.",
    )
    if theta is not None:
        support = np.flatnonzero(theta)
        entries = (theta[support], (np.zeros_like(support), support))
        out["coef"] = sparse.csr_matrix(entries, shape=(1, d))
    return out
