"""The papers' synthetic designs. All randomness is public: a maker never sees private data."""

from __future__ import annotations

import math
import os
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
    """A law with a known mean and known absolute moments."""

    index: float

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

    def _moment(self, order: float) -> float:
        raise NotImplementedError

    def draw(self, public: Public, shape: tuple[int, ...]) -> Floats:
        """Draw i.i.d. values."""
        raise NotImplementedError


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
    n_samples, n_features, nnz_per_row : rows, columns and stored entries of each row.
    n_informative : nonzero coefficients. Under ``"zipf"`` they lie among the first ``10 * n_informative``
        columns, which rows do contain.
    signal : the standard deviation of the margin :math:`x^\top\theta`.
    column_law : how often a column occurs, "zipf" or "uniform".
    path : a folder to write the matrix to as memory-mapped arrays. Memory then holds some thousand rows at a
        time: 1,000,000 x 20,000,000 with 75 entries a row is a file of 600 MB.
    random_state : the seed of the design.
    dtype : the type of the entries.

    Returns a Bunch: ``data`` (CSR), ``target`` (-1 or +1), ``coef`` (CSR with one row), ``data_norm`` (1),
    ``DESCR``.

    Examples
    --------
    >>> design = make_sparse_classification(100, 10_000, 20, n_informative=50, random_state=0)
    >>> design.data.shape, design.data.nnz
    ((100, 10000), 2000)
    """
    check_whole("n_samples", n_samples)
    check_whole("nnz_per_row", nnz_per_row, n_features)
    check_whole("n_informative", n_informative, n_features)
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
