"""Noise inside an objective: the minimiser of a randomly tilted convex function."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from dp_accounting import dp_event as dp

from sordino.errors import InvalidInputError
from sordino.kernel.arrays import Floats
from sordino.kernel.events import composed, gaussian_event, tilt_event
from sordino.kernel.mechanism import Additive, _ready
from sordino.kernel.noise import NoiseSource
from sordino.kernel.query import Norm
from sordino.kernel.relation import Relation

OUTPUT_MULTIPLE = 30.0
"""The output noise in units of the multiplier: its price is a 900th of that of the tilt."""


class Tiltable(Protocol):
    """A strongly convex sum over records that can be minimised under a linear tilt."""

    size: int
    output_sensitivity: float

    def minimised(self, tilt: Floats) -> Floats:
        """Return an approximate minimiser of the sum plus ``tilt . theta``."""


@dataclass(frozen=True)
class TiltedObjective(Additive):
    r"""Minimise ``sum_i l_i(theta) + (Lam/2) ||theta||^2 + b . theta`` with a Gaussian tilt b.

    The std of b is ``multiplier * sensitivity``, the sensitivity being that of the sum of gradients.

    **Privacy.** Proven for convex losses of linear predictors with one output, where a record's curvature is
    at most ``Lam (e^jacobian - 1)``: the determinants of the map from theta to b differ by a factor of at
    most ``e^jacobian``, and the gradient of a record stays on the line of its features, so that what it adds
    to the loss is that of a Gaussian of ``mu = 1 / multiplier`` at worst, or of its absolute value where the
    determinants cost nothing. ``accounting.tilt`` has the proof for both relations.

    The minimiser is approximate, so a little Gaussian noise is added to it as well; given the exact
    minimiser the rest is a function of bounded sensitivity, so the two compose.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)
    jacobian: float = field(kw_only=True)  # no default: forgotten, it would come for free

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.jacobian < math.inf:
            raise InvalidInputError(
                f"Expected a finite bound on the log determinants >= 0, got {self.jacobian}."
            )

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the event of the tilt and of the output noise."""
        multiplier = _ready(self.multiplier)
        if multiplier == 0:
            return dp.NonPrivateDpEvent()
        tilt = tilt_event(multiplier, self.jacobian, relation)
        return composed([tilt, gaussian_event(OUTPUT_MULTIPLE * multiplier, relation)])

    def rho(self) -> float:
        """Return 1/2, the slope of its curve at multiplier 1."""
        return 0.5

    def privatise(self, value: Tiltable, sensitivity: float, noise: NoiseSource) -> Floats:
        """Draw the tilt, minimise, and cover the error of the minimiser."""
        found = value.minimised(self.scale(sensitivity) * noise.normal(value.size))
        return found + OUTPUT_MULTIPLE * self.scale(value.output_sensitivity) * noise.normal(value.size)
