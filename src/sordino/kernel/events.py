"""The only place where noise multipliers become privacy events.

One semantics for all trees, that of the PLD accountant of dp-accounting: the multiplier of a
Gaussian event is ``std / contribution of one record``. Under replace-one two contributions move,
the accountant doubles the shift itself, and so the event carries twice our multiplier, which is
``std / sensitivity``. Accountants that do not double (RDP) are corrected in ``accounting``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from numbers import Real

import attrs
from dp_accounting import dp_event as dp

from sordino.errors import InvalidInputError, PlanError


class Relation(str, Enum):
    """The neighbouring relation of a guarantee.

    ``ADD_REMOVE``: one record is present or contributes zero, the number of records is public.
    ``REPLACE_ONE``: one record is replaced by an arbitrary other one.
    """

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"

    @classmethod
    def parse(cls, value: Relation | str) -> Relation:
        """Read a relation from its name."""
        try:
            return cls(value)
        except ValueError:
            names = ", ".join(repr(r.value) for r in cls)
            raise InvalidInputError(f"Expected relation in {{{names}}}, got {value!r}.") from None

    @property
    def contributions(self) -> int:
        """How many clipped contributions move at once: one, or two when a record is replaced."""
        return 2 if self is Relation.REPLACE_ONE else 1

    def __str__(self) -> str:
        return self.value


# The only place where noise multipliers become privacy events.


@attrs.define(frozen=True, slots=True, auto_attribs=True)
class PureDpEvent(dp.DpEvent):
    """Any mechanism that is epsilon-DP with delta = 0."""

    epsilon: float


@attrs.define(frozen=True, slots=True, auto_attribs=True)
class TiltDpEvent(dp.DpEvent):
    """The minimiser of a convex objective with a Gaussian tilt (``kernel.objective``, ``accounting.tilt``).

    Parameters
    ----------
    noise_multiplier : std of the tilt / gradient of one record, as in a Gaussian event.
    jacobian : bound on the log ratio of the determinants of neighbours.
    """

    noise_multiplier: float
    jacobian: float


@attrs.define(frozen=True, slots=True, auto_attribs=True)
class RareDpEvent(dp.DpEvent):
    """With probability at most ``delta`` anything may be told, and else nothing: (0, delta)-DP.

    It has no Rényi curve. Beside an (epsilon, delta')-DP release, adaptive or not, it makes an
    (epsilon, delta + delta')-DP one.
    """

    delta: float


def gaussian_event(multiplier: float, relation: Relation) -> dp.DpEvent:
    """Event of Gaussian noise with std ``multiplier * sensitivity(relation)``."""
    if _none(multiplier):
        return dp.NonPrivateDpEvent()
    return dp.GaussianDpEvent(multiplier * relation.contributions)


def tilt_event(multiplier: float, jacobian: float, relation: Relation) -> dp.DpEvent:
    """Event of a minimiser under a tilt with std ``multiplier * sensitivity(relation)`` of the gradients."""
    if _none(multiplier):
        return dp.NonPrivateDpEvent()
    return TiltDpEvent(multiplier * relation.contributions, jacobian)


def laplace_event(multiplier: float) -> dp.DpEvent:
    """Event of Laplace noise with scale ``multiplier * L1 sensitivity``."""
    return dp.NonPrivateDpEvent() if _none(multiplier) else dp.LaplaceDpEvent(multiplier)


def pure_event(epsilon: float) -> dp.DpEvent:
    """Event of an epsilon-DP mechanism."""
    return dp.NonPrivateDpEvent() if math.isinf(epsilon) else PureDpEvent(epsilon)


def zcdp_event(rho: float, xi: float = 0.0) -> dp.DpEvent:
    """Event of a (xi, rho)-zCDP mechanism: its Renyi divergence of order a is at most ``xi + rho a``."""
    return dp.NonPrivateDpEvent() if math.isinf(rho) else dp.ZCDpEvent(rho, xi)


def rare_event(delta: float, relation: Relation) -> dp.DpEvent:
    """Event of what is told with probability ``delta`` because of one unit's records."""
    return RareDpEvent(min(delta * relation.contributions, 1.0))


def repeated(event: dp.DpEvent, times: int) -> dp.DpEvent:
    """Event of ``times`` adaptive runs of the same mechanism."""
    return event if times == 1 else dp.SelfComposedDpEvent(event, times)


def composed(events: list[dp.DpEvent]) -> dp.DpEvent:
    """Event of several mechanisms run one after the other."""
    return dp.ComposedDpEvent(events)


def poisson_event(rate: float, event: dp.DpEvent) -> dp.DpEvent:
    """Event of a mechanism on a batch that each record enters independently."""
    return event if rate == 1.0 else dp.PoissonSampledDpEvent(rate, event)


def fixed_size_event(population: int, size: int, event: dp.DpEvent) -> dp.DpEvent:
    """Event of a mechanism on a batch of exactly ``size`` distinct records."""
    return dp.SampledWithoutReplacementDpEvent(population, size, event)


def check_event(event: dp.DpEvent) -> dp.DpEvent:
    """Return the event of a release, unless a part of it is free or its numbers mean nothing.

    No release is free: one that says so would hand out the exact answer under any certificate.
    """
    held = [getattr(event, field.name) for field in attrs.fields(type(event))]
    values = [part for value in held for part in (value if isinstance(value, Iterable) else (value,))]
    parts = [value for value in values if isinstance(value, dp.DpEvent)]
    numbers = [float(value) for value in values if isinstance(value, Real)]
    for number in numbers:
        if not 0 <= number < math.inf:
            raise PlanError(f"Expected finite numbers >= 0 in a privacy event, got {number} in {event!r}.")
    if _is_free(event) or (isinstance(event, dp.ComposedDpEvent) and not parts) or (parts and 0 in numbers):
        raise PlanError(
            f"Expected a mechanism whose event has a price, got {event!r}: nothing is released for free. "
            "Evaluate the query together with the noisy one that it belongs to."
        )
    for part in parts:
        check_event(part)
    return event


def _is_free(event: dp.DpEvent) -> bool:
    if isinstance(event, PureDpEvent):
        return event.epsilon == 0
    if isinstance(event, RareDpEvent):
        return event.delta == 0
    if isinstance(event, dp.ZCDpEvent):
        return bool(event.rho == 0 and event.xi == 0)
    return isinstance(event, dp.NoOpDpEvent)


def _none(multiplier: float) -> bool:
    if not multiplier >= 0:
        raise InvalidInputError(f"Expected a noise multiplier >= 0, got {multiplier}.")
    return multiplier == 0
