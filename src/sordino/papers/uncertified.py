"""The base of printed mechanisms for which no epsilon is certified."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dp_accounting import dp_event as dp

from sordino.kernel import Norm, Printed, Relation
from sordino.kernel.mechanism import Additive


@dataclass(frozen=True)
class Uncertified(Printed, Additive):
    """A mechanism whose event is "not private": a plan that holds one is never reported as anything else."""

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the event of no privacy."""
        return dp.NonPrivateDpEvent()

    def rho(self) -> float:
        """Return infinity."""
        return math.inf
