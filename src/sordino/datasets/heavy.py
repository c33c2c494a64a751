"""Heavy-tailed laws with known means and moments, and designs drawn from them.

The theory needs a public bound u on :math:`E|X|^{1+v}` for some v in (0, 1]; each law gives one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special
from sklearn.utils import Bunch

from sordino.datasets.synthetic import Public, at_least, sparse_vector
from sordino.errors import InvalidInputError
from sordino.kernel.arrays import Floats
from sordino.kernel.noise import public_generator


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


def _shifted(centred: float, order: float, location: float) -> float:
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
        return _shifted(centred, order, self.location)

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
        return _shifted(float(centred), order, self.location)

    def draw(self, public: Public, shape: tuple[int, ...]) -> Floats:
        a = self.index
        angle = public.uniform(-math.pi / 2, math.pi / 2, shape)
        wait = public.standard_exponential(shape)
        tilt = (np.cos((1 - a) * angle) / wait) ** ((1 - a) / a)
        return np.asarray(self.location + self.scale * (np.sin(a * angle) / np.cos(angle) ** (1 / a) * tilt))


LAWS = {"pareto": Pareto(), "student-t": StudentT(), "lognormal": Lognormal(), "stable": Stable()}


def _law(law: str | HeavyTail) -> HeavyTail:
    """Return a law by its name, or the law itself."""
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
