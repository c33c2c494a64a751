"""Records in parts that lie in several places: each part adds up its own, the curator adds the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sordino.execute.local import CSR, DENSE, LocalExecutor
from sordino.execute.tree import Nodes, total
from sordino.kernel import Disjoint, FixedSize, Full, Offer, Poisson, Question, contracts
from sordino.kernel.shares import Batch, Share


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


class PartedExecutor:
    """What executors over parts share; a subclass says how the parts are asked.

    Parameters
    ----------
    sizes : the numbers of records of the parts, in order.
    sparse : whether rows are sparse.
    records, remedy : what lies where, and what a user can do instead, in words for an error.

    **Privacy.** The exact sums of the parts come to this process and nowhere else; the curator adds the noise
    once, after all parts have entered their sum exactly once. Each part draws its rows of a batch from a key
    that the curator drew for this release, position and part: a task that is run again draws the same ones.
    """

    def __init__(self, sizes: Sequence[int], sparse: bool, records: str, remedy: str) -> None:
        self.sizes, self.population = tuple(sizes), sum(sizes)
        self.offer = replace(in_parts(CSR if sparse else DENSE, records, remedy), parts=self.sizes)

    def total(self, question: Question, batch: Batch) -> Any:
        """Return the exact sum over the records of a batch."""
        return total(self._branches(question, batch.shares), len(self.sizes))

    def _branches(self, question: Question, shares: Sequence[Share]) -> list[Nodes]:
        """Return sums of parts that together hold each part once."""
        raise NotImplementedError  # pragma: no cover


def part_sum(part: LocalExecutor, question: Question, share: Share) -> Any:
    """Return the exact sum over one part's rows of a batch."""
    return part.total(question, Batch((share,)))
