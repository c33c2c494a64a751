"""Additive mechanisms (Gaussian, Laplace, norm-Gamma), each with the privacy event it makes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from dp_accounting import dp_event as dp

from sordino.errors import InvalidInputError, PlanError
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.events import gaussian_event, laplace_event, pure_event
from sordino.kernel.lazy import LazyVector, SparseVector
from sordino.kernel.noise import NoiseSource
from sordino.kernel.query import Norm
from sordino.kernel.relation import Relation


class Mechanism(Protocol):
    """Noise of scale ``multiplier * sensitivity``.

    ``relative`` is the size of this multiplier beside those of the other releases of the plan; the
    multiplier itself is None until the plan is calibrated.
    """

    norms: ClassVar[tuple[Norm, ...]]

    @property
    def multiplier(self) -> float | None: ...

    @property
    def relative(self) -> float: ...

    @property
    def secure(self) -> bool: ...

    def at(self, multiplier: float) -> Self:
        """Return this mechanism with its multiplier set."""

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the privacy event of one use."""

    def rho(self) -> float:
        """Return the zCDP cost of one use at multiplier 1: it weighs releases against each other."""

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        """Add the noise."""


@dataclass(frozen=True)
class Additive:
    """What all mechanisms share."""

    multiplier: float | None = None
    relative: float = 1.0

    def __post_init__(self) -> None:
        if self.multiplier is not None and not 0 <= self.multiplier < math.inf:
            raise InvalidInputError(f"Expected a finite noise multiplier >= 0, got {self.multiplier}.")
        if not 0 < self.relative < math.inf:
            raise InvalidInputError(f"Expected a relative noise size > 0, got {self.relative}.")

    @property
    def secure(self) -> bool:
        """Whether the noise is exactly rounded to a lattice of integers."""
        return False

    def at(self, multiplier: float) -> Self:
        """Return this mechanism with its multiplier set."""
        return replace(self, multiplier=multiplier)

    def scale(self, sensitivity: float) -> float:
        """Return ``multiplier * sensitivity``."""
        if self.multiplier is None:
            raise PlanError("The mechanism has no noise multiplier yet. Calibrate the plan first.")
        if not 0 <= sensitivity < math.inf:
            raise InvalidInputError(f"Expected a finite sensitivity >= 0, got {sensitivity}.")
        return self.multiplier * sensitivity


@dataclass(frozen=True)
class Gaussian(Additive):
    """Independent N(0, (multiplier * sensitivity)^2) on each coordinate, for an L2 sensitivity.

    With ``secure=True`` the query is evaluated on a lattice of integers and the noise is an exactly
    rounded Gaussian, so that no floating-point artefact of the noise can be attacked.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)
    secure: bool = False

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the Gaussian event."""
        return gaussian_event(_ready(self.multiplier), relation)

    def rho(self) -> float:
        """Return 1/2."""
        return 0.5

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        """Add the noise; a sparse value stays lazy outside its touched coordinates."""
        std = self.scale(sensitivity)
        if isinstance(value, SparseVector):
            return LazyVector.noised(value, std, noise)
        if not std or np.shape(value) == ():
            return value + std * noise.normal(()) if std else value
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype == np.float64:
            return noise.normal_around(value, std)
        drawn = noise.normal(np.shape(value))
        drawn *= std
        drawn += value
        return drawn

    def lattice(self, sensitivity: float) -> float:
        """Return the spacing, a power of two about 2^28 times finer than the noise."""
        std = self.scale(sensitivity)
        if std == 0:
            raise InvalidInputError("secure_noise needs noise: epsilon=inf has none. Set secure_noise=False.")
        return float(2.0 ** (math.floor(math.log2(std)) - 28))

    def privatise_on_lattice(
        self, value: Ints, spacing: float, sensitivity: float, noise: NoiseSource
    ) -> Floats:
        """Add exactly rounded noise to integers and return multiples of ``spacing``."""
        integers = noise.rounded_gaussian(self.scale(sensitivity) / spacing, value.shape)
        return np.asarray((value + integers) * spacing, dtype=np.float64)


@dataclass(frozen=True)
class Laplace(Additive):
    """Independent Laplace(multiplier * sensitivity) on each coordinate, for an L1 sensitivity."""

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L1,)

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the Laplace event."""
        return laplace_event(_ready(self.multiplier))

    def rho(self) -> float:
        """Return 1/2: a 1-DP mechanism."""
        return 0.5

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        """Add the noise."""
        value = _dense(value)
        return value + self.scale(sensitivity) * noise.laplace(np.shape(value))


@dataclass(frozen=True)
class NormGamma(Additive):
    """Noise with density proportional to ``exp(-norm2 / scale)``: pure DP from an L2 sensitivity.

    A uniform direction times a Gamma(d) radius of scale ``multiplier * sensitivity``; it is
    ``1 / multiplier``-DP by the triangle inequality.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the pure event."""
        multiplier = _ready(self.multiplier)
        return pure_event(1 / multiplier if multiplier else math.inf)

    def rho(self) -> float:
        """Return 1/2: a 1-DP mechanism."""
        return 0.5

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        """Add the noise."""
        value = np.asarray(_dense(value), dtype=float)
        direction = noise.normal(value.shape)
        radius = self.scale(sensitivity) * noise.gamma(float(value.size))
        return value + direction * (radius / np.linalg.norm(direction))


def _ready(multiplier: float | None) -> float:
    if multiplier is None:
        raise PlanError("The mechanism has no noise multiplier yet. Calibrate the plan first.")
    return multiplier


def _dense(value: Any) -> Any:
    return value.to_dense() if isinstance(value, SparseVector) else value
