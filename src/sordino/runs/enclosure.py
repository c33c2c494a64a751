"""A budget around other runs: what is fitted inside a trial of a private search belongs to the trial."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from dp_accounting import dp_event as dp

from sordino.accounting.leaves import flatten, gaussian_mu
from sordino.errors import PlanError, UnsupportedError
from sordino.kernel import Plan, Relation

_around: ContextVar[Enclosure | None] = ContextVar("enclosure", default=None)


def enclosing() -> Enclosure | None:
    """Return the budget that this code runs inside of, if there is one."""
    return _around.get()


class Enclosure:
    """Admits promises as long as together they are a Gaussian release of distance ``mu`` at most.

    Parameters
    ----------
    mu : the distance of two neighbours in standard deviations that all runs inside may reach together.
    relation, unit : the neighbours.

    **Privacy.** Gaussian releases on all records compose exactly, ``mu^2 = sum mu_i^2``. Other releases are
    refused before they are asked, and so is a booking on a ledger: a row per trial would tell their number.
    """

    def __init__(self, mu: float, relation: Relation, unit: str = "record") -> None:
        self.mu, self.relation, self.unit = mu, relation, unit
        self._spent = 0.0

    @property
    def spent(self) -> float:
        """The distance that was admitted so far."""
        return math.sqrt(self._spent)

    def admit(self, plan: Plan, ledger: Any, printed: bool) -> None:
        """Count a plan before its first release; refuse it if the budget does not cover it."""
        if printed:
            raise UnsupportedError("A private search cannot run published noise. Set noise='sound'.")
        if ledger is not None:
            raise UnsupportedError("A trial of a private search is not booked by itself. Set ledger=None.")
        if plan.relation is not self.relation or plan.unit != self.unit:
            raise UnsupportedError(
                f"Expected a trial for {self.relation.value} one {self.unit}, got {plan.relation.value} one "
                f"{plan.unit}."
            )
        self._spent = self._with(plan.event())

    def covers(self, event: dp.DpEvent) -> bool:
        """Tell whether an event is within what was admitted so far."""
        return 0 < distance(event, self.relation) <= self.spent * (1 + 1e-9)

    def _with(self, event: dp.DpEvent) -> float:
        total = self._spent + distance(event, self.relation) ** 2
        if not math.sqrt(total) <= self.mu:
            raise PlanError(
                f"The runs inside this trial reach a distance of {math.sqrt(total):.4g}, planned are "
                f"{self.mu:.4g}. Nothing more was released."
            )
        return total

    @contextmanager
    def entered(self) -> Iterator[Enclosure]:
        """Make every promise of this thread a part of the budget."""
        if _around.get() is not None:
            raise UnsupportedError("A private search inside a trial of another one has no proof here.")
        token = _around.set(self)
        try:
            yield self
        finally:
            _around.reset(token)


class Rehearsed(BaseException):
    """Ends a rehearsal where the first release would begin."""


class Rehearsal(Enclosure):
    """Judges the first promise made inside as a trial would, and stops it before it is booked or run."""

    def admit(self, plan: Plan, ledger: Any, printed: bool) -> None:
        """Refuse what a trial refuses; what it would admit ends here, with nothing released."""
        super().admit(plan, ledger, printed)
        raise Rehearsed


def distance(event: dp.DpEvent, relation: Relation) -> float:
    """Return mu of an event that is Gaussian releases on all records; refuse any other."""
    leaves = flatten(event)
    if not all(isinstance(leaf.event, dp.GaussianDpEvent) for leaf in leaves):
        kinds = sorted({type(leaf.event).__name__ for leaf in leaves} - {"GaussianDpEvent"})
        raise UnsupportedError(
            "PrivateSearchCV needs an estimator whose releases are all Gaussian on all records, got "
            f"{kinds}. Use solver='auto' or solver='ight'."
        )
    return math.sqrt(sum(gaussian_mu(leaf, relation) ** 2 for leaf in leaves))
