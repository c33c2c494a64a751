"""Convex sets to which iterates are projected: free post-processing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel.arrays import Floats


class Constraint(Protocol):
    """A closed convex set."""

    def project(self, point: Floats) -> Floats:
        """Return the nearest point of the set."""


@dataclass(frozen=True)
class L2Ball:
    """The vectors of Euclidean norm at most ``radius``."""

    radius: float = 1.0

    def __post_init__(self) -> None:
        _check_radius(self.radius)

    def project(self, point: Floats) -> Floats:
        """Scale the vector back to the ball."""
        norm = float(np.linalg.norm(point))
        return point if norm <= self.radius else point * (self.radius / norm)


@dataclass(frozen=True)
class Box:
    """The vectors with every entry in [low, high]."""

    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise InvalidInputError(f"Expected low <= high, got {self.low} > {self.high}.")

    def project(self, point: Floats) -> Floats:
        """Clip each entry."""
        return np.clip(point, self.low, self.high)


@dataclass(frozen=True)
class Simplex:
    """The non-negative vectors that sum to ``total``."""

    total: float = 1.0

    def __post_init__(self) -> None:
        _check_radius(self.total)

    def project(self, point: Floats) -> Floats:
        """Subtract the one number that makes the positive parts sum to ``total`` (sorting, O(d log d))."""
        flat = np.asarray(point, dtype=float).reshape(-1)
        falling = np.sort(flat)[::-1]
        excess = (np.cumsum(falling) - self.total) / np.arange(1, flat.size + 1)
        shift = excess[np.flatnonzero(falling > excess)[-1]]
        return np.maximum(flat - shift, 0.0).reshape(np.shape(point))


@dataclass(frozen=True)
class L1Ball:
    """The vectors whose magnitudes sum to at most ``radius``."""

    radius: float = 1.0

    def __post_init__(self) -> None:
        _check_radius(self.radius)

    def project(self, point: Floats) -> Floats:
        """Project the magnitudes to the simplex and give the signs back."""
        sizes = np.abs(point)
        if sizes.sum() <= self.radius:
            return point
        return np.copysign(Simplex(self.radius).project(sizes), point)


def _check_radius(radius: float) -> None:
    if not 0 < radius < np.inf:
        raise InvalidInputError(
            f"Expected a radius in (0, inf), got {radius}. Pass a public bound on the coefficients."
        )
