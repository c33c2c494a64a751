"""Heavy-tailed laws with known means and moments.

The theory needs a public bound u on :math:`E|X|^{1+v}` for some v in (0, 1]; each law gives one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sordino.datasets.synthetic import Public
from sordino.errors import InvalidInputError

Array = NDArray[np.float64]


class HeavyTail(Protocol):
    """A law with a known mean and known absolute moments."""

    @property
    def mean(self) -> float:
        """The mean."""

    @property
    def order(self) -> float:
        """Moments of a smaller order are finite, those of a larger one are not."""

    def moment_bound(self, order: float) -> float:
        """Return a bound on ``E|X|^order``, infinite from :attr:`order` on."""

    def draw(self, public: Public, shape: tuple[int, ...]) -> Array:
        """Draw i.i.d. values."""


def _positive(name: str, value: float, above: float = 0.0) -> None:
    if not value > above:
        raise InvalidInputError(f"Expected {name} > {above:g}, got {value!r}.")


def _shifted(centred: float, order: float, location: float) -> float:
    """Bound ``E|X|^p`` from ``E|X - location|^p`` by Minkowski's inequality (p >= 1)."""
    if location == 0 or order < 1:
        return centred + abs(location) ** order
    return (centred ** (1 / order) + abs(location)) ** order


@dataclass(frozen=True)
class Pareto:
    r"""Density :math:`a x^{-a-1}` on :math:`[1, \infty)`, scaled. :math:`E X^p = a/(a-p)`."""

    index: float = 1.8
    scale: float = 1.0

    def __post_init__(self) -> None:
        _positive("index", self.index, 1.0)
        _positive("scale", self.scale)

    @property
    def mean(self) -> float:
        """The mean ``a / (a - 1)``, scaled."""
        return self.scale * self.index / (self.index - 1)

    @property
    def order(self) -> float:
        """The tail index."""
        return self.index

    def moment_bound(self, order: float) -> float:
        """Return ``E|X|^order`` exactly."""
        if order >= self.index:
            return math.inf
        return self.scale**order * self.index / (self.index - order)

    def draw(self, public: Public, shape: tuple[int, ...]) -> Array:
        """Draw i.i.d. values."""
        return self.scale * (1.0 + public.pareto(self.index, shape))


@dataclass(frozen=True)
class StudentT:
    """Student's t with few degrees of freedom, moved to ``location``."""

    index: float = 2.5
    location: float = 0.0

    def __post_init__(self) -> None:
        _positive("index", self.index, 1.0)

    @property
    def mean(self) -> float:
        """The location."""
        return self.location

    @property
    def order(self) -> float:
        """The degrees of freedom."""
        return self.index

    def moment_bound(self, order: float) -> float:
        """Return ``E|X|^order``, exactly at location 0 and by Minkowski's inequality elsewhere."""
        if order >= self.index:
            return math.inf
        p, n = order, self.index
        logs = special.gammaln([(p + 1) / 2, (n - p) / 2, n / 2])
        centred = n ** (p / 2) * math.exp(logs[0] + logs[1] - logs[2]) / math.sqrt(math.pi)
        return _shifted(centred, order, self.location)

    def draw(self, public: Public, shape: tuple[int, ...]) -> Array:
        """Draw i.i.d. values."""
        return self.location + public.standard_t(self.index, shape)


@dataclass(frozen=True)
class Lognormal:
    """``exp(N(log_mean, spread^2))``: every moment is finite, the higher ones are huge."""

    spread: float = 1.5
    log_mean: float = 0.0

    def __post_init__(self) -> None:
        _positive("spread", self.spread)

    @property
    def mean(self) -> float:
        """The mean."""
        return self.moment_bound(1.0)

    @property
    def order(self) -> float:
        """Infinity."""
        return math.inf

    def moment_bound(self, order: float) -> float:
        """Return ``E|X|^order`` exactly."""
        return math.exp(order * self.log_mean + (order * self.spread) ** 2 / 2)

    def draw(self, public: Public, shape: tuple[int, ...]) -> Array:
        """Draw i.i.d. values."""
        return public.lognormal(self.log_mean, self.spread, shape)


@dataclass(frozen=True)
class Stable:
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

    @property
    def mean(self) -> float:
        """The location."""
        return self.location

    @property
    def order(self) -> float:
        """The stability index alpha."""
        return self.index

    def moment_bound(self, order: float) -> float:
        """Return ``E|X|^order``, exactly at location 0 and by Minkowski's inequality elsewhere."""
        if order >= self.index:
            return math.inf
        p, a = order, self.index
        gammas = special.gamma([(1 + p) / 2, 1 - p / a, 1 - p / 2])
        centred = self.scale**p * 2**p * gammas[0] * gammas[1] / (gammas[2] * math.sqrt(math.pi))
        return _shifted(float(centred), order, self.location)

    def draw(self, public: Public, shape: tuple[int, ...]) -> Array:
        """Draw i.i.d. values."""
        a = self.index
        angle = public.uniform(-math.pi / 2, math.pi / 2, shape)
        wait = public.standard_exponential(shape)
        tilt = (np.cos((1 - a) * angle) / wait) ** ((1 - a) / a)
        draws = np.sin(a * angle) / np.cos(angle) ** (1 / a) * tilt
        return self.location + self.scale * draws


LAWS: dict[str, HeavyTail] = {
    "pareto": Pareto(),
    "student-t": StudentT(),
    "lognormal": Lognormal(),
    "stable": Stable(),
}


def find_law(law: str | HeavyTail) -> HeavyTail:
    """Return a law by its name, or the law itself."""
    if not isinstance(law, str):
        return law
    if law not in LAWS:
        raise InvalidInputError(f"Expected law to be one of {', '.join(LAWS)}, got {law!r}.")
    return LAWS[law]
