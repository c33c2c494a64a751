"""The papers' synthetic designs. All randomness is public: a maker never sees private data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.utils import Bunch

from sordino.errors import InvalidInputError
from sordino.kernel.arrays import Floats
from sordino.kernel.noise import public_generator

Task = Literal["regression", "classification"]
# A NumPy generator from kernel/noise.py, which alone may name the type.
Public = Any


def at_least(name: str, value: int, least: int, most: int | None = None) -> None:
    """Refuse a size outside its bounds."""
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
