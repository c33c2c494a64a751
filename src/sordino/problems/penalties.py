"""Penalties on coefficients: functions of released points, so they are free and stay outside the clip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel.arrays import Floats


class Penalty(Protocol):
    """A smooth function of the coefficients; ``curvature`` bounds its second derivative."""

    @property
    def curvature(self) -> float:
        """The largest second derivative, by magnitude."""

    def value(self, w: Floats) -> float:
        """Return the penalty of a point."""

    def gradient(self, w: Floats) -> Floats:
        """Return its gradient."""


@dataclass(frozen=True)
class _Weighted:
    alpha: float

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < np.inf:
            raise InvalidInputError(f"Expected alpha in [0, inf), got {self.alpha}. It is a public constant.")


@dataclass(frozen=True)
class Ridge(_Weighted):
    r"""``alpha ||w||^2 / 2``."""

    @property
    def curvature(self) -> float:
        """Alpha."""
        return self.alpha

    def value(self, w: Floats) -> float:
        """Return half the squared norm times alpha."""
        return 0.5 * self.alpha * float(np.square(w).sum())

    def gradient(self, w: Floats) -> Floats:
        """Return ``alpha w``."""
        return self.alpha * w


@dataclass(frozen=True)
class Nonconvex(_Weighted):
    r"""``alpha sum_j w_j^2 / (1 + w_j^2)``: it levels off, so large coefficients are not shrunk.

    Examples
    --------
    >>> import numpy as np
    >>> Nonconvex(0.5).value(np.array([0.0, 1.0, 1e9]))
    0.75
    """

    @property
    def curvature(self) -> float:
        """Twice alpha, attained at zero."""
        return 2 * self.alpha

    def value(self, w: Floats) -> float:
        """Return the penalty, without overflow."""
        return self.alpha * float((1.0 - 1.0 / (1.0 + np.square(np.minimum(np.abs(w), 1e100)))).sum())

    def gradient(self, w: Floats) -> Floats:
        """Return ``2 alpha w / (1 + w^2)^2``, without overflow."""
        bounded = np.clip(w, -1e70, 1e70)
        return 2 * self.alpha * bounded / np.square(1.0 + np.square(bounded))
