"""DP-VRPCA's step exactly as printed, for ``noise="paper"`` only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dp_accounting import dp_event as dp

from sordino.errors import UnsupportedError
from sordino.kernel import NoiseSource, Norm, Poisson, Relation
from sordino.kernel.events import repeated
from sordino.kernel.mechanism import Additive
from sordino.problems.covariance import GramProduct


@dataclass(frozen=True)
class ExactSnapshot(Additive):
    """No noise and no event of its own: the exact snapshot is a part of every step that follows.

    Those steps are what the paper publishes, and :class:`OneRecordOverSnapshot` charges them for both
    parts. Not for use in any other plan.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the empty event."""
        return dp.NoOpDpEvent()

    def rho(self) -> float:
        """Return zero."""
        return 0.0

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        """Return the value."""
        return value


@dataclass(frozen=True)
class OneRecordOverSnapshot(Poisson):
    """Each step adds the exact mean of all records to the difference of (on average) one record.

    A record moves the mean by 1/n always and the difference by up to 2 with probability 1/n: a mixture
    of Gaussians.
    """

    def amplify(self, event: dp.DpEvent, times: int, relation: Relation, population: int) -> dp.DpEvent:
        """Return the event of ``times`` mixtures; in units of the contribution, which is 2."""
        if isinstance(event, dp.NonPrivateDpEvent):
            return event
        if relation is not Relation.ADD_REMOVE or not isinstance(event, dp.GaussianDpEvent):
            raise UnsupportedError(
                "The printed DP-VRPCA step is accounted for relation 'add-remove' only. "
                "Use noise='sound', or relation='add-remove'."
            )
        mean = 0.5 / population
        mixture = dp.MixtureOfGaussiansDpEvent(
            event.noise_multiplier, [mean, 1 + mean], [1 - self.rate, self.rate]
        )
        return repeated(mixture, times)


@dataclass(frozen=True)
class WorstDifference(GramProduct):
    """``x x^T (V - V~)`` with the largest bound two bases can have: the printed noise never shrinks."""

    def contribution(self, params: Any) -> float:
        """Return twice the squared row norm."""
        return 2.0 * self.row_norm**2
