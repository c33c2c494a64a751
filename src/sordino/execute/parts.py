"""Records in parts that lie in several places: each part adds up its own, the curator adds the noise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from sordino.errors import PlanError
from sordino.execute.local import CSR, DENSE, LocalExecutor
from sordino.kernel import Disjoint, FixedSize, Full, Offer, Poisson, Question, SparseVector
from sordino.kernel.events import Batch, Share
from sordino.kernel.query import Parts

# Sums of parts in one fixed order: a binary tree over their numbers, whoever adds up which branch
# A node ``(level, index)`` is the sum of the parts ``index 2^level`` to ``(index + 1) 2^level - 1``.
# Whoever holds both children of a node adds them up, so the total is the same to the last bit however the
# parts are spread over workers, and a worker that holds neighbours sends few nodes.

Nodes: TypeAlias = dict[tuple[int, int], Any]


def folded(nodes: Mapping[tuple[int, int], Any], count: int) -> Nodes:
    """Return the sums of the largest whole branches, from those of smaller ones of ``count`` parts."""
    out, level = dict(nodes), 0
    while 1 << level < count:
        width = (count + (1 << level) - 1) >> level
        for at, index in sorted(out):
            if at == level and index % 2 == 0:
                right = (level, index + 1)
                if index + 1 == width:  # it has no sibling in the tree
                    out[level + 1, index // 2] = out.pop((level, index))
                elif right in out:
                    out[level + 1, index // 2] = added(out.pop((level, index)), out.pop(right))
        level += 1
    return out


def total(branches: Iterable[Mapping[tuple[int, int], Any]], count: int) -> Any:
    """Return the sum of all ``count`` parts.

    **Privacy.** A part that entered twice would double the sensitivity, one that is missing would tell who is
    in it: both are refused before anything is released.
    """
    nodes: Nodes = {}
    seen = np.zeros(count, dtype=np.int64)
    for branch in branches:
        for level, index in branch:
            seen[index << level : (index + 1) << level] += 1
        nodes.update(branch)
    if not (seen == 1).all():
        raise PlanError(
            f"Expected each of {count} parts once in a sum, got {int((seen == 0).sum())} missing and "
            f"{int((seen > 1).sum())} repeated. Nothing was released from it; the budget is spent."
        )
    (root,) = folded(nodes, count).values()
    return root


def added(one: Any, other: Any) -> Any:
    """Return the sum of two answers: of touched columns where both are, else dense."""
    if isinstance(one, SparseVector) and isinstance(other, SparseVector):
        return one.joined(other)
    return one + other


def in_parts(offer: Offer, records: str, remedy: str) -> Offer:
    """Return what records in parts offer, of what they would offer in one place."""
    return replace(
        offer,
        records=records,
        operations=tuple(kind for kind in offer.operations if kind is not Parts),
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
        return total(self._branches(question, batch.shares), len(self.sizes))

    def _branches(self, question: Question, shares: Sequence[Share]) -> list[Nodes]:
        """Return sums of parts that together hold each part once."""
        raise NotImplementedError  # pragma: no cover


def part_sum(part: LocalExecutor, question: Question, share: Share) -> Any:
    """Return the exact sum over one part's rows of a batch."""
    return part.total(question, Batch((share,)))
