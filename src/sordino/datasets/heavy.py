"""Designs with heavy tails whose true means are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import Bunch

from sordino.datasets.heavy_laws import HeavyTail, find_law
from sordino.datasets.synthetic import at_least, sparse_vector
from sordino.errors import InvalidInputError
from sordino.kernel.noise import public_generator


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
    chosen = find_law(law)
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
    noise_law: HeavyTail = find_law(noise)
    design_law: Any = None if design is None else find_law(design)
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
