"""Reading ranks off a noisy tree of counts: free post-processing."""

from __future__ import annotations

import itertools

import numpy as np

from sordino.kernel.arrays import Floats
from sordino.problems.scales import REACH


def quantiles_of(
    nodes: Floats, depth: int, total: float, ranks: Floats, edges: Floats, bounds: tuple[float, float] | None
) -> Floats:
    """Return the values at the ranks of one column, from the noisy nodes of its tree."""
    below = counts_below(nodes, depth, total)
    # Counts below cannot fall: the middle between the nearest rising sequences above and below.
    rising = (np.maximum.accumulate(below) + np.minimum.accumulate(below[::-1])[::-1]) / 2.0
    return read_ranks(np.clip(rising, 0.0, total), ranks, edges, bounds)


def counts_below(nodes: Floats, depth: int, total: float) -> Floats:
    """Return for each cell the noisy number of records in it and below it."""
    return np.cumsum(consistent(nodes, depth, total))


def consistent(nodes: Floats, depth: int, total: float) -> Floats:
    r"""Return leaf counts that agree with all levels in the least-squares sense and sum to ``total``."""
    starts = np.cumsum([0, *(2**level for level in range(1, depth + 1))])
    levels = [nodes[a:b] for a, b in itertools.pairwise(starts)]
    best = [levels[-1]]
    for height, level in enumerate(levels[-2::-1], start=2):  # upwards: own count and children's sum
        own = 2.0 ** (height - 1) / (2.0**height - 1.0)
        best.insert(0, own * level + (1.0 - own) * best[0].reshape(-1, 2).sum(axis=1))
    parents = np.array([float(total)])
    for level in best:  # downwards: children share what their parent disagrees with
        pairs = level.reshape(-1, 2)
        parents = (pairs + (parents - pairs.sum(axis=1))[:, None] / 2.0).reshape(-1)
    return parents


def read_ranks(below: Floats, ranks: Floats, edges: Floats, bounds: tuple[float, float] | None) -> Floats:
    """Return the values at the ranks; linear within a cell, the finite border in an outermost one."""
    low, high = bounds if bounds is not None else (edges[0], edges[-1])
    left, right = np.concatenate([[low], edges]), np.concatenate([edges, [high]])
    cell = np.minimum(np.searchsorted(below, ranks, side="left"), below.size - 1)
    before = np.where(cell > 0, below[cell - 1], 0.0)
    inside = np.clip((ranks - before) / np.maximum(below[cell] - before, 1e-9), 0.0, 1.0)
    value = left[cell] + inside * (right[cell] - left[cell])
    # Without bounds the two cells next to zero hold the zeros.
    return value if bounds is not None else np.where(np.abs(value) < np.exp2(-REACH), 0.0, value)
