"""Sums of parts in one fixed order: a binary tree over their numbers, whoever adds up which branch.

A node ``(level, index)`` is the sum of the parts ``index 2^level`` to ``(index + 1) 2^level - 1``. Whoever
holds both children of a node adds them up, so the total is the same to the last bit however the parts are
spread over workers, and a worker that holds neighbours sends few nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from sordino.errors import PlanError
from sordino.kernel import SparseVector

Nodes: TypeAlias = dict[tuple[int, int], Any]


def folded(nodes: Mapping[tuple[int, int], Any], count: int) -> Nodes:
    """Return the sums of the largest whole branches, from those of smaller ones of ``count`` parts."""
    out, level = dict(nodes), 0
    while 1 << level < count:
        width = (count + (1 << level) - 1) >> level
        for at, index in sorted(out):
            if at == level and index % 2 == 0:
                _join(out, level, index, width)
        level += 1
    return out


def _join(nodes: Nodes, level: int, index: int, width: int) -> None:
    """Move a left child up, with its right sibling; one that has no sibling in the tree goes alone."""
    right = (level, index + 1)
    if index + 1 == width:
        nodes[level + 1, index // 2] = nodes.pop((level, index))
    elif right in nodes:
        nodes[level + 1, index // 2] = added(nodes.pop((level, index)), nodes.pop(right))


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
