"""Symmetric matrix noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from dp_accounting import dp_event as dp

from sordino.errors import InvalidInputError
from sordino.kernel.events import gaussian_event
from sordino.kernel.mechanism import Additive, _ready
from sordino.kernel.noise import NoiseSource
from sordino.kernel.query import Norm
from sordino.kernel.relation import Relation


@dataclass(frozen=True)
class SymmetricGaussian(Additive):
    r"""Noise of the Gaussian orthogonal ensemble for a symmetric matrix.

    ``E_ii ~ N(0, s^2)``, ``E_ij = E_ji ~ N(0, s^2 / 2)`` with ``s = multiplier * sensitivity``: isotropic
    for the Frobenius inner product on symmetric matrices, so it is a Gaussian mechanism there, with
    half the off-diagonal variance of the usual independent upper triangle.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the Gaussian event."""
        return gaussian_event(_ready(self.multiplier), relation)

    def rho(self) -> float:
        """Return 1/2."""
        return 0.5

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        """Add the noise to a symmetric matrix."""
        value = np.asarray(value, dtype=float)
        if value.ndim != 2 or value.shape[0] != value.shape[1]:
            raise InvalidInputError(f"Expected a square matrix, got shape {value.shape}.")
        half = self.scale(sensitivity) / 2 * noise.normal(value.shape)
        # (G + G^T)/2 with G of std s has variance s^2 on the diagonal and s^2/2 off it.
        return value + (half + half.T)  # in this order it is symmetric to the last bit
