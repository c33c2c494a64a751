"""The only place where noise multipliers become privacy events, and samplings, which amplify them.

One semantics for all trees, that of the PLD accountant of dp-accounting: the multiplier of a
Gaussian event is ``std / contribution of one record``. Under replace-one two contributions move,
the accountant doubles the shift itself, and so the event carries twice our multiplier, which is
``std / sensitivity``. Accountants that do not double (RDP) are corrected in ``accounting``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from numbers import Real
from typing import Any, Protocol

import attrs
import numpy as np
from dp_accounting import dp_event as dp
from scipy.special import bdtrc

from sordino.errors import InvalidInputError, PlanError, UnsupportedError
from sordino.kernel.arrays import Ints, Rows
from sordino.kernel.noise import NoiseSource


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


@attrs.define(frozen=True, slots=True, auto_attribs=True)
class PureDpEvent(dp.DpEvent):
    """Any mechanism that is epsilon-DP with delta = 0."""

    epsilon: float


@attrs.define(frozen=True, slots=True, auto_attribs=True)
class TiltDpEvent(dp.DpEvent):
    """The minimiser of a convex objective with a Gaussian tilt (``TiltedObjective``).

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


def zcdp_event(rho: float) -> dp.DpEvent:
    """Event of a rho-zCDP mechanism: its Renyi divergence of order a is at most ``rho a``."""
    return dp.NonPrivateDpEvent() if math.isinf(rho) else dp.ZCDpEvent(rho)


def rare_event(delta: float, relation: Relation) -> dp.DpEvent:
    """Event of what is told with probability ``delta`` because of one unit's records."""
    return RareDpEvent(min(delta * relation.contributions, 1.0))


def repeat_event(event: dp.DpEvent, times: int) -> dp.DpEvent:
    """Event of ``times`` adaptive runs of the same mechanism."""
    return event if times == 1 else dp.SelfComposedDpEvent(event, times)


def compose_events(events: list[dp.DpEvent]) -> dp.DpEvent:
    """Event of several mechanisms run one after the other."""
    return dp.ComposedDpEvent(events)


def poisson_event(rate: float, event: dp.DpEvent) -> dp.DpEvent:
    """Event of a mechanism on a batch that each record enters independently."""
    return event if rate == 1.0 else dp.PoissonSampledDpEvent(rate, event)


def check_event(event: dp.DpEvent) -> dp.DpEvent:
    """Return the event of a release, unless a part of it is free or its numbers mean nothing.

    No release is free: one that says so would hand out the exact answer under any certificate.
    """
    if type(event) is dp.GaussianDpEvent and 0 < event.noise_multiplier < math.inf:
        return event  # nearly every part of nearly every plan, and all that is asked below holds
    held = [getattr(event, field.name) for field in attrs.fields(type(event))]
    values = [part for value in held for part in (value if isinstance(value, Iterable) else (value,))]
    parts = [value for value in values if isinstance(value, dp.DpEvent)]
    numbers = [float(value) for value in values if isinstance(value, Real)]
    for number in numbers:
        if not 0 <= number < math.inf:
            raise PlanError(f"Expected finite numbers >= 0 in a privacy event, got {number} in {event!r}.")
    priced = isinstance(event, (PureDpEvent, RareDpEvent, dp.ZCDpEvent))
    free = isinstance(event, dp.NoOpDpEvent) or (priced and not any(numbers))
    if free or (isinstance(event, dp.ComposedDpEvent) and not parts) or (parts and 0 in numbers):
        raise PlanError(
            f"Expected a mechanism whose event has a price, got {event!r}: nothing is released for free. "
            "Evaluate the query together with the noisy one that it belongs to."
        )
    for part in parts:
        check_event(part)
    return event


def _none(multiplier: float) -> bool:
    if not multiplier >= 0:
        raise InvalidInputError(f"Expected a noise multiplier >= 0, got {multiplier}.")
    return multiplier == 0


# Which records a release looks at, and what that saves. The drawn rows are secret (amplification rests on
# that), so they come from the noise source.


class Share(Protocol):
    """One part's rows of one release: the same ones each time, so that a task may be run again."""

    def rows(self, count: int) -> Rows:
        """Return which of the ``count`` rows of the part are looked at; None for all of them."""


@dataclass(frozen=True)
class Listed:
    """The rows of a list or range, which is as secret as the batch is; None lists all of them."""

    positions: Rows | range = field(repr=False, default=None)

    def rows(self, count: int) -> Rows:
        listed = self.positions
        return np.asarray(listed, dtype=np.int64) if isinstance(listed, range) else listed


@dataclass(frozen=True)
class Drawn:
    """Each row with a probability, or so many distinct ones. Number and key are as secret as the batch is."""

    key: int = field(repr=False)
    rate: float | None = None
    number: int = field(repr=False, default=0)

    def rows(self, count: int) -> Rows:
        source = NoiseSource.of_subkey(self.key)
        if self.rate is None:
            return source.distinct_rows(count, self.number)
        return source.bernoulli_rows(count, self.rate)


@dataclass(frozen=True)
class Batch:
    """The records that one release looks at, drawn by the curator: a share for each place where they lie."""

    shares: tuple[Share, ...] = field(repr=False, default=(Listed(),))

    def rows(self, count: int) -> Rows:
        """Return the rows of records that all lie in one place, ``count`` of them; None for all."""
        (only,) = self.shares
        return only.rows(count)


class Sampling(Protocol):
    """How the rows of one release are chosen."""

    def draw(self, population: int, position: int, noise: NoiseSource) -> Rows:
        """Return the rows of release number ``position``; None means all of them."""

    def shares(self, sizes: Sequence[int], position: int, noise: NoiseSource) -> list[Share]:
        """Return how each of several parts of these sizes finds its rows of release number ``position``.

        All shares together have the law of :meth:`draw` on the parts behind each other.
        """

    def amplify(self, event: dp.DpEvent, times: int, relation: Relation, population: int) -> dp.DpEvent:
        """Return the event of ``times`` releases."""

    def expected(self, population: int) -> float:
        """Return the public divisor that turns a sum into a mean."""


class InTurn:
    """Base of samplings where release t looks at part ``t mod parts``, at each record with one probability.

    The curator deals each record to a part, independently and in secret, and keeps it there for the run: so
    a record is looked at in every ``parts``-th release at most, and no other record's part depends on it.
    """

    parts = 1
    rate = 1.0

    def __post_init__(self) -> None:
        if self.parts < 1 or not 0 < self.rate <= 1:
            raise InvalidInputError(
                f"Expected parts >= 1 and a sampling rate in (0, 1], got {self.parts} and {self.rate}."
            )

    def draw(self, population: int, position: int, noise: NoiseSource) -> Rows:
        """Return the rows of a Poisson batch of one part, found by geometric skips in O(batch)."""
        if self.parts == 1:
            return None if self.rate == 1.0 else noise.bernoulli_rows(population, self.rate)
        memory: Any = getattr(noise, "memory", None)
        if memory is None:
            raise PlanError("Parts in turn need the memory of their run: only a curator can draw them.")
        rows: Ints = memory.part(population, position % self.parts, self.parts)
        if self.rate < 1 and len(rows):
            rows = rows[noise.bernoulli_rows(len(rows), self.rate)]
        return rows

    def shares(self, sizes: Sequence[int], position: int, noise: NoiseSource) -> list[Share]:
        """Return an independent draw per place, each with a key of its own, or its rows of one draw."""
        if self.parts == 1:
            return [Listed() if self.rate == 1.0 else Drawn(noise.subkey(), self.rate) for _ in sizes]
        rows, edges = self.draw(sum(sizes), position, noise), np.cumsum([0, *sizes])
        assert rows is not None
        cuts = np.searchsorted(rows, edges)
        return [Listed(rows[a:b] - edge) for a, b, edge in zip(cuts, cuts[1:], edges)]

    def amplify(self, event: dp.DpEvent, times: int, relation: Relation, population: int) -> dp.DpEvent:
        """Return the event of the rounds, in each of which a record is looked at once at most.

        Poisson sampling is proven to amplify noise that accountants know only.
        """
        if self.rate < 1:
            if isinstance(event, dp.NonPrivateDpEvent):
                return event
            if not isinstance(event, (dp.GaussianDpEvent, dp.LaplaceDpEvent)):
                raise UnsupportedError(
                    f"No amplification is proven here for {type(event).__name__} under Poisson sampling. "
                    "Use Full() or Disjoint() sampling for this mechanism."
                )
        return repeat_event(poisson_event(self.rate, event), -(-times // self.parts))

    def expected(self, population: int) -> float:
        """Return the expected batch size: the realised one is private."""
        return self.rate * population / self.parts


@dataclass(frozen=True)
class Full(InTurn):
    """Every record, every time."""


@dataclass(frozen=True)
class Poisson(InTurn):
    """Each record enters independently with probability ``rate``; the batch size is secret."""

    rate: float = field()  # has to be given

    def amplify_rows(self, event: dp.DpEvent, times: int, relation: Relation, rows: int) -> dp.DpEvent:
        """Return the event of Gaussian noise for up to ``rows`` rows of a unit, in units of all of them.

        Add-remove: a mixture of shifts, by how many enter. Replace-one: all at once, if any of them enters.
        """
        if self.rate < 1 and isinstance(event, dp.GaussianDpEvent):
            if relation is Relation.REPLACE_ONE:
                event = dp.PoissonSampledDpEvent(-math.expm1(rows * math.log1p(-self.rate)), event)
            else:
                numbers, weights = count_rows(rows, self.rate)
                shifts = [number / rows for number in numbers]
                event = dp.MixtureOfGaussiansDpEvent(event.noise_multiplier, shifts, weights)
        return repeat_event(event, times)


@lru_cache(maxsize=64)
def count_rows(rows: int, rate: float) -> tuple[list[int], list[float]]:
    """Return how many of ``rows`` rows may enter a Poisson batch, and with which probabilities.

    There are at most 33 numbers: one between two of them counts as the larger, one of a probability below
    1e-18 as all rows. More rows in a batch cost more, so the event of these is not cheaper.
    """
    top, high = 0, rows
    while top < high:
        middle = (top + high) // 2
        top, high = (middle + 1, high) if bdtrc(middle, rows, rate) > 1e-18 else (top, middle)
    numbers = np.unique(np.append(np.ceil(np.linspace(0, top, 32)), rows)).astype(int)
    return numbers.tolist(), (-np.diff(bdtrc(numbers, rows, rate), prepend=1.0)).tolist()


@dataclass(frozen=True)
class Cyclic(InTurn):
    """Release t looks at part ``t mod parts`` only, and there at each record with probability ``rate``."""

    parts: int = field()  # has to be given
    rate: float = 1.0


@dataclass(frozen=True)
class FixedSize:
    """A uniform batch of exactly ``size`` distinct records, for replace-one only."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InvalidInputError(f"Expected a batch size >= 1, got {self.size}.")

    def draw(self, population: int, position: int, noise: NoiseSource) -> Rows:
        return noise.distinct_rows(population, self.size)

    def shares(self, sizes: Sequence[int], position: int, noise: NoiseSource) -> list[Share]:
        """Draw how many rows each part gives; which ones it draws with a key of its own."""
        counts = noise.split_count(np.asarray(sizes, dtype=np.int64), self.size)
        return [Drawn(noise.subkey(), number=int(count)) for count in counts]

    def amplify(self, event: dp.DpEvent, times: int, relation: Relation, population: int) -> dp.DpEvent:
        if relation is not Relation.REPLACE_ONE:
            raise UnsupportedError(
                "Fixed-size batches are proven for relation 'replace-one' only, got "
                f"{relation.value!r}. Use Poisson sampling, or relation='replace-one'."
            )
        if self.size > population:
            raise InvalidInputError(f"Expected a batch size <= the {population} records, got {self.size}.")
        if isinstance(event, dp.NonPrivateDpEvent):
            return event
        if not isinstance(event, dp.GaussianDpEvent):
            raise UnsupportedError(
                f"No amplification is proven here for {type(event).__name__} under fixed-size "
                "sampling. Use Full() or Disjoint() sampling for this mechanism."
            )
        return repeat_event(dp.SampledWithoutReplacementDpEvent(population, self.size, event), times)

    def expected(self, population: int) -> float:
        return float(self.size)


@dataclass(frozen=True)
class Disjoint:
    """Release number t sees chunk t of ``parts`` chunks fixed by position; each record is used once."""

    parts: int

    def __post_init__(self) -> None:
        if self.parts < 1:
            raise InvalidInputError(f"Expected a number of parts >= 1, got {self.parts}.")

    def draw(self, population: int, position: int, noise: NoiseSource) -> Rows:
        edge = np.linspace(0, population, self.parts + 1).astype(np.int64)
        return np.arange(edge[position], edge[position + 1])

    def shares(self, sizes: Sequence[int], position: int, noise: NoiseSource) -> list[Share]:
        """Return the part of chunk ``position`` that lies in each part."""
        edge = np.linspace(0, sum(sizes), self.parts + 1).astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        low, high = (np.clip(e - starts, 0, sizes) for e in (edge[position], edge[position + 1]))
        return [Listed(range(a, b)) for a, b in zip(low.tolist(), high.tolist(), strict=True)]

    def amplify(self, event: dp.DpEvent, times: int, relation: Relation, population: int) -> dp.DpEvent:
        """Return the event of one release: the chunks compose in parallel."""
        if times > self.parts:
            raise UnsupportedError(
                f"Expected at most {self.parts} releases on {self.parts} disjoint parts, got {times}."
            )
        return event

    def expected(self, population: int) -> float:
        return population / self.parts
