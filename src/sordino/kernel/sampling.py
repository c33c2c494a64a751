"""Which records a release looks at, and what that saves.

The drawn rows are secret (amplification rests on that), so they come from the noise source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from dp_accounting import dp_event as dp

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.arrays import Rows
from sordino.kernel.events import Relation, fixed_size_event, poisson_event, repeated
from sordino.kernel.noise import NoiseSource


class Share(Protocol):
    """One part's rows of one release: the same ones each time, so that a task may be run again."""

    def rows(self, count: int) -> Rows:
        """Return which of the ``count`` rows of the part are looked at; None for all of them."""


@dataclass(frozen=True)
class Listed:
    """The rows of a list, which is as secret as the batch is; None lists all of them."""

    positions: Rows = field(repr=False, default=None)

    def rows(self, count: int) -> Rows:
        """Return the list."""
        return self.positions


@dataclass(frozen=True)
class Between:
    """The rows from one position of the part to another, which are public."""

    start: int
    stop: int

    def rows(self, count: int) -> Rows:
        """Return the range."""
        return np.arange(self.start, self.stop)


@dataclass(frozen=True)
class Drawn:
    """Each row with a probability. The key is as secret as the batch is."""

    rate: float
    key: int = field(repr=False)

    def rows(self, count: int) -> Rows:
        """Return the rows that this key draws."""
        return NoiseSource.of_subkey(self.key).bernoulli_rows(count, self.rate)


@dataclass(frozen=True)
class Chosen:
    """So many distinct rows. Number and key are as secret as the batch is."""

    size: int = field(repr=False)
    key: int = field(repr=False)

    def rows(self, count: int) -> Rows:
        return NoiseSource.of_subkey(self.key).distinct_rows(count, self.size)


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


@dataclass(frozen=True)
class Full:
    """Every record, every time."""

    def draw(self, population: int, position: int, noise: NoiseSource) -> Rows:
        return None

    def shares(self, sizes: Sequence[int], position: int, noise: NoiseSource) -> list[Share]:
        """Return everything of every part."""
        return [Listed() for _ in sizes]

    def amplify(self, event: dp.DpEvent, times: int, relation: Relation, population: int) -> dp.DpEvent:
        """Return plain composition."""
        return repeated(event, times)

    def expected(self, population: int) -> float:
        """Return the public number of records."""
        return float(population)


@dataclass(frozen=True)
class Poisson:
    """Each record enters independently with probability ``rate``; the batch size is secret."""

    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise InvalidInputError(f"Expected a sampling rate in (0, 1], got {self.rate}.")

    def draw(self, population: int, position: int, noise: NoiseSource) -> Rows:
        """Return the rows of a Poisson batch, found by geometric skips in O(batch)."""
        return None if self.rate == 1.0 else noise.bernoulli_rows(population, self.rate)

    def shares(self, sizes: Sequence[int], position: int, noise: NoiseSource) -> list[Share]:
        """Return one independent Poisson draw per part, each with a key of its own."""
        if self.rate == 1.0:
            return [Listed() for _ in sizes]
        return [Drawn(self.rate, noise.subkey()) for _ in sizes]

    def amplify(self, event: dp.DpEvent, times: int, relation: Relation, population: int) -> dp.DpEvent:
        """Return the Poisson-sampled event; only for noise that accountants can amplify."""
        return _poisson(self.rate, event, times)

    def expected(self, population: int) -> float:
        """Return the expected batch size: the realised one is private."""
        return self.rate * population


def _poisson(rate: float, event: dp.DpEvent, times: int) -> dp.DpEvent:
    if rate < 1 and not isinstance(event, (dp.GaussianDpEvent, dp.LaplaceDpEvent, dp.NonPrivateDpEvent)):
        raise UnsupportedError(
            f"No amplification is proven here for {type(event).__name__} under Poisson sampling. "
            "Use Full() or Disjoint() sampling for this mechanism."
        )
    if rate < 1 and isinstance(event, dp.NonPrivateDpEvent):
        return event
    return repeated(poisson_event(rate, event), times)


@dataclass(frozen=True)
class Cyclic:
    """Release t looks at part ``t mod parts`` only, and there at each record with probability ``rate``.

    The part of a record is its position modulo ``parts``: a public choice that no record can change. So a
    record is looked at in every ``parts``-th release at most.
    """

    parts: int
    rate: float = 1.0

    def __post_init__(self) -> None:
        if self.parts < 1 or not 0 < self.rate <= 1:
            raise InvalidInputError(
                f"Expected parts >= 1 and a sampling rate in (0, 1], got {self.parts} and {self.rate}."
            )

    def draw(self, population: int, position: int, noise: NoiseSource) -> Rows:
        """Return the rows of a Poisson batch of part ``position mod parts``."""
        rows = np.arange(position % self.parts, population, self.parts)
        if self.rate < 1 and len(rows):
            rows = rows[noise.bernoulli_rows(len(rows), self.rate)]
        return rows

    def shares(self, sizes: Sequence[int], position: int, noise: NoiseSource) -> list[Share]:
        """Return the rows of one draw that lie in each part of the data."""
        rows, edges = self.draw(sum(sizes), position, noise), np.cumsum([0, *sizes])
        assert rows is not None
        cuts = np.searchsorted(rows, edges)
        return [Listed(rows[a:b] - edge) for a, b, edge in zip(cuts, cuts[1:], edges)]

    def amplify(self, event: dp.DpEvent, times: int, relation: Relation, population: int) -> dp.DpEvent:
        """Return the event of the rounds: in each, a record is looked at once at most."""
        return _poisson(self.rate, event, -(-times // self.parts))

    def expected(self, population: int) -> float:
        """Return the expected batch size: the realised one is private."""
        return self.rate * population / self.parts


@dataclass(frozen=True)
class FixedSize:
    """A uniform batch of exactly ``size`` distinct records, for replace-one only."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise InvalidInputError(f"Expected a batch size >= 1, got {self.size}.")

    def draw(self, population: int, position: int, noise: NoiseSource) -> Rows:
        """Return ``size`` distinct rows."""
        return noise.distinct_rows(population, self.size)

    def shares(self, sizes: Sequence[int], position: int, noise: NoiseSource) -> list[Share]:
        """Draw how many rows each part gives; which ones it draws with a key of its own."""
        counts = noise.split_count(np.asarray(sizes, dtype=np.int64), self.size)
        return [Chosen(int(count), noise.subkey()) for count in counts]

    def amplify(self, event: dp.DpEvent, times: int, relation: Relation, population: int) -> dp.DpEvent:
        """Return the without-replacement event."""
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
        return repeated(fixed_size_event(population, self.size, event), times)

    def expected(self, population: int) -> float:
        """Return the batch size, which is public here."""
        return float(self.size)


@dataclass(frozen=True)
class Disjoint:
    """Release number t sees chunk t of ``parts`` chunks fixed by position; each record is used once."""

    parts: int

    def __post_init__(self) -> None:
        if self.parts < 1:
            raise InvalidInputError(f"Expected a number of parts >= 1, got {self.parts}.")

    def draw(self, population: int, position: int, noise: NoiseSource) -> Rows:
        """Return the rows of chunk ``position``."""
        edge = np.linspace(0, population, self.parts + 1).astype(np.int64)
        return np.arange(edge[position], edge[position + 1])

    def shares(self, sizes: Sequence[int], position: int, noise: NoiseSource) -> list[Share]:
        """Return the part of chunk ``position`` that lies in each part."""
        edge = np.linspace(0, sum(sizes), self.parts + 1).astype(np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        low, high = (np.clip(e - starts, 0, sizes) for e in (edge[position], edge[position + 1]))
        return [Between(int(a), int(b)) for a, b in zip(low, high, strict=True)]

    def amplify(self, event: dp.DpEvent, times: int, relation: Relation, population: int) -> dp.DpEvent:
        """Return the event of one release: the chunks compose in parallel."""
        if times > self.parts:
            raise UnsupportedError(
                f"Expected at most {self.parts} releases on {self.parts} disjoint parts, got {times}."
            )
        return event

    def expected(self, population: int) -> float:
        """Return the public size of a chunk."""
        return population / self.parts
