"""Records in parts that lie in several places: each part adds up its own, one place adds the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sordino.execute.local import CSR, DENSE, LocalExecutor
from sordino.execute.question import Question
from sordino.execute.tree import Nodes, total
from sordino.kernel import Disjoint, FixedSize, Full, NoiseSource, Offer, Poisson, Release, contracts
from sordino.kernel.sampling import Sampling
from sordino.kernel.shares import Share


def in_parts(offer: Offer, records: str, remedy: str) -> Offer:
    """Return what records in parts offer, of what they would offer in one place."""
    return replace(
        offer,
        records=records,
        operations=tuple(kind for kind in offer.operations if kind is not contracts.Parts),
        samplings=(Full, Poisson, FixedSize, Disjoint),
        in_parts=True,
        remedy=remedy,
    )


class SummedExecutor:
    """What executors share that add up sums of parts and add the noise once, here.

    Parameters
    ----------
    population : the number of records.
    sparse : whether rows are sparse.
    records, remedy : what lies where, and what a user can do instead, in words for an error.
    """

    def __init__(self, population: int, sparse: bool, records: str, remedy: str) -> None:
        self._population = population
        self._offer = in_parts(CSR if sparse else DENSE, records, remedy)

    @property
    def population(self) -> int:
        """The number of records, declared public."""
        return self._population

    @property
    def offer(self) -> Offer:
        """What queries can ask of these records."""
        return self._offer

    def answer(
        self, release: Release, params: Any, sensitivity: float, position: int, noise: NoiseSource
    ) -> Any:
        """Add up the answers of the parts and add the noise."""
        question = Question.of(release, params, sensitivity, self.population)
        found = self._total(question, release.sampling, position, noise)
        return question.noised(found, release, sensitivity, noise)

    def _total(self, question: Question, sampling: Sampling, position: int, noise: NoiseSource) -> Any:
        """Return the exact sum over the records of a batch."""
        raise NotImplementedError  # pragma: no cover


class PartedExecutor(SummedExecutor):
    """What executors over parts share; a subclass says how the parts are asked.

    ``sizes`` are the numbers of records of the parts, in order; the other parameters as above.

    **Privacy.** The exact sums of the parts come to this process and nowhere else; noise is added here, once,
    after all parts have entered their sum exactly once. Each part draws its rows of a batch from a key that
    the noise source drew for this release, position and part: a task that is run again draws the same ones.
    """

    def __init__(self, sizes: Sequence[int], sparse: bool, records: str, remedy: str) -> None:
        super().__init__(sum(sizes), sparse, records, remedy)
        self.sizes = tuple(sizes)

    def _total(self, question: Question, sampling: Sampling, position: int, noise: NoiseSource) -> Any:
        shares = sampling.shares(self.sizes, position, noise)
        return total(self._branches(question, shares), len(self.sizes))

    def _branches(self, question: Question, shares: Sequence[Share]) -> list[Nodes]:
        """Return sums of parts that together hold each part once."""
        raise NotImplementedError  # pragma: no cover


def part_sum(part: LocalExecutor, question: Question, share: Share) -> Any:
    """Return the exact sum over one part's rows of a batch."""
    return part.summed(question, share.rows(part.population))
