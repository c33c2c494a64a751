"""Executors over parties who do not show each other their records, real and simulated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from sordino.errors import InvalidInputError
from sordino.execute.local import CSR, DENSE, LocalExecutor
from sordino.execute.parties.engine import Lattice, Mode, NoiseShare, Quantised, quantise
from sordino.execute.parties.field import Field
from sordino.kernel import Batch, ClippedSum, Full, Offer, Poisson, Question, Release
from sordino.kernel.arrays import Ints, Rows
from sordino.kernel.noise import NoiseSource
from sordino.kernel.query import ClientUpdates

OFFER = Offer(
    "parties",
    DENSE.operations,
    samplings=(Full, Poisson),
    sums_only=True,
    remedy="Choose a solver that asks for sums over full or Poisson batches, for example 'ight'.",
)
SPARSE_OFFER = replace(OFFER, operations=CSR.operations)
SHARE = 2.5  # the deviation of a client's part of the noise, in spacings of the grid of a secure aggregation


@dataclass(frozen=True, eq=False)
class PartiesExecutor:
    """One party's records, and an engine that adds them to those of the others.

    Every party runs the same solver in its own process; each answer is opened to all of them at once, so
    they walk through the same iterates.

    Parameters
    ----------
    local : this party's records.
    engine : its end of the secure computation: ``sum(values, draw)`` opens the noised sum.
    share : how the noise is made.
    party : its index.
    records : the public numbers of records of all parties.
    agree : is told what is about to be asked (bytes that all parties must have in common).

    **Privacy.** The answer of a release is the exact sum over all records with rounded Gaussian noise; no
    party and no coalition of ``share.threshold`` parties sees anything else of the others.
    """

    local: LocalExecutor = field(repr=False)
    engine: Any
    share: NoiseShare
    party: int
    records: tuple[int, ...]
    agree: Callable[[Lattice, Release, Any, int], None] | None = None

    @property
    def population(self) -> int:
        """The public number of records of all parties together."""
        return sum(self.records)

    @property
    def offer(self) -> Offer:
        return _offer_of([self.local])

    def noisy_total(self, question: Question, batch: Batch, noise: NoiseSource) -> Any:
        """Contribute to one release and return its opened answer."""
        if question.sensitivity == 0:
            return _nothing(self.local, question)
        found = _quantise(self.local, question, batch.rows(self.local.population))
        if self.agree is not None:
            self.agree(found.lattice, question.release, question.params, question.position)
        values, draw = self.share.draw(found.values, found.lattice, self.party, noise)
        reaches = self.share.reaches(found.lattice, self.records, values.size)
        total = self.engine.sum(values, replace(draw, reaches=reaches))
        return found.give_shape(np.asarray(total, dtype=float) * found.lattice.spacing)


@dataclass(frozen=True, eq=False)
class SimulatedParties:
    """Many parties in one process, with the arithmetic and the noise of the real ones but no secrets.

    For experiments: the same integers, the same field, the same law of the noise. It is as private
    towards whoever reads the answers as a central curator, and not at all towards whoever runs it.

    Parameters
    ----------
    members : the records of each party.
    share : who makes the noise: ``share.parties`` of the members compute, the others only send shares
        of their integers to those.
    pooled : all records together: rounded once instead of by each party, a sum over everybody is one pass
        over these in place of a thousand small ones.
    """

    members: Sequence[LocalExecutor] = field(repr=False)
    share: NoiseShare
    pooled: LocalExecutor | None = field(repr=False, default=None)

    def __post_init__(self) -> None:
        if len(self.members) < self.share.parties:
            raise InvalidInputError(
                f"Expected data for at least {self.share.parties} parties, got {len(self.members)}."
            )

    @property
    def population(self) -> int:
        """The public number of records of all parties together."""
        return sum(member.population for member in self.members)

    @property
    def offer(self) -> Offer:
        return _offer_of(self.members)

    def noisy_total(self, question: Question, batch: Batch, noise: NoiseSource) -> Any:
        """Add up what the parties would contribute."""
        if question.sensitivity == 0:
            return _nothing(self.members[0], question)
        pairs = zip(self.members, batch.shares, strict=True)
        asked: list[tuple[LocalExecutor, Rows]] = [(m, share.rows(m.population)) for m, share in pairs]
        everything = isinstance(question.query, ClippedSum) and all(rows is None for _, rows in asked)
        if self.pooled is not None and everything:
            asked = [(self.pooled, None)]
        found = [_quantise(member, question, rows) for member, rows in asked]
        lattice, shape = found[0].lattice, found[0].values.shape
        numbers = Field()
        nothing = np.zeros(shape, dtype=np.int64)
        parts = [self.share.with_fine_part(nothing, lattice, p, noise) for p in range(self.share.parties)]
        total = sum(f.values.astype(object) for f in found) + sum(part.astype(object) for part in parts)
        total = total + self._coarse(lattice, shape, noise)
        opened = numbers.signed(numbers.array(total))
        return found[0].give_shape(np.asarray(opened, dtype=float) * lattice.spacing)

    def _coarse(self, lattice: Lattice, shape: tuple[int, ...], noise: NoiseSource) -> Any:
        """Return what the circuit makes of everybody's signs, in the clear."""
        if self.share.mode is Mode.AGGREGATION:
            return 0
        law = self.share.law
        signs = noise.signs(shape).astype(np.int64)
        magnitude = law.magnitude(noise.integers(2**law.bits, shape))
        return (signs * magnitude).astype(object) * self.share.step(lattice)


@dataclass(frozen=True, eq=False)
class SharingClient:
    """A client that adds a part of the noise to its ``update``; ``honest`` parts are enough.

    **Privacy.** An answer alone has too little noise, and leaves under masks that only a sum takes away.
    """

    offer: ClassVar[Offer] = Offer("clients", (ClientUpdates,), samplings=(Full,), sums_only=True)

    update: Any = field(repr=False)
    population: int
    honest: int

    def noisy_total(self, question: Question, batch: Batch, noise: NoiseSource) -> Ints:
        """Return the points of the coarse grid that are nearest to the update with this client's noise.

        The contribution is truncated to the fine grid, so that its norm does not grow, and the noise exactly
        rounded to it; a coarse cell holds ``cell`` of its points, so that nothing is rounded a second time.
        """
        fine, std, cell = shared_grid(question.release.mechanism, question.sensitivity, self.honest)
        values = np.trunc(np.asarray(question.summed([self.update])) / fine).astype(np.int64)
        return np.asarray((values + noise.rounded_gaussian(std, values.shape) + cell // 2) // cell)


def shared_grid(mechanism: Any, sensitivity: float, honest: int) -> tuple[float, float, int]:
    """Return a fine spacing, the deviation of a client's noise in it, and how many make a coarse one."""
    fine = mechanism.lattice(sensitivity)
    std = mechanism.scale(sensitivity) / fine / math.sqrt(honest) * (1 + 2.0**-40)  # for its own rounding
    return fine, std, int(std / SHARE)


def _offer_of(members: Sequence[LocalExecutor]) -> Offer:
    """Return what can be asked of members who draw each their own rows of a batch."""
    known = SPARSE_OFFER if any(member.offer is CSR for member in members) else OFFER
    return replace(known, parts=tuple(member.population for member in members))


def _quantise(local: LocalExecutor, question: Question, rows: Rows) -> Quantised:
    release, params, sensitivity = question.release, question.params, question.sensitivity
    return quantise(release, local.records(rows), params, sensitivity, question.population)


def _nothing(local: LocalExecutor, question: Question) -> Any:
    """Return the answer where nothing can move (sensitivity 0)."""
    found = question.query.evaluate(local.records(None), question.params)
    return np.zeros_like(np.asarray(found, dtype=float))
