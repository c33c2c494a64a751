"""Reading ranks off a noisy tree of counts: free post-processing."""

from __future__ import annotations

import itertools

import numpy as np

from sordino.kernel.arrays import Floats
from sordino.problems.scales import REACH

SEEN = 2.5  # noise widths above zero from which a node is taken to hold records
SURE = 4.5  # the same for a node of several octaves
_OCTAVES = 2.0  # so many are not several


def quantiles_of(
    below: Floats, total: float, ranks: Floats, edges: Floats, bounds: tuple[float, float] | None
) -> Floats:
    """Return the values at the ranks of one column, from the noisy counts below the cells."""
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


def support(
    below: Floats, edges: Floats, bounds: tuple[float, float] | None, noise: float
) -> tuple[float, float]:
    """Return two borders between which all nodes lie that stand out of the noise.

    What is outside of them is noise as far as anybody can tell. Without bounds, a node of several octaves
    must stand out more, for a mistake there has no bound.
    """
    low, high = bounds if bounds is not None else (edges[0], edges[-1])
    left, right = np.concatenate([[low], edges]), np.concatenate([edges, [high]])
    octaves = np.inf if bounds is not None else _OCTAVES * below.size / (4.0 * REACH)
    first, _ = _outermost(below, noise, octaves, upper=False)
    _, last = _outermost(below, noise, octaves, upper=True)
    return float(left[first]), float(max(right[last - 1], left[first]))


def _outermost(below: Floats, noise: float, narrow: float, upper: bool) -> tuple[int, int]:
    """Return the cells (first, last + 1) of the outermost node that is seen, on one side.

    The way down keeps to the outer child where that one is seen and to the inner one where only that is;
    where neither is, it ends, or in a wide node goes towards the centre, where a wrong guess does no harm.
    """
    before = np.concatenate([[0.0], below])
    start, stop = 0, below.size
    while stop - start > 1:
        middle, wide = (start + stop) // 2, (stop - start) // 2 > narrow
        least = (SURE if wide else SEEN) * noise
        left_seen, right_seen = (before[[middle, stop]] - before[[start, middle]]) >= least
        if not (left_seen or right_seen):
            if not wide:
                break
            right_seen, left_seen = middle < below.size // 2, middle > below.size // 2
            if left_seen == right_seen:  # nothing is seen at all
                return middle - 1, middle + 1
        goes_right = right_seen if upper else not left_seen
        start, stop = (middle, stop) if goes_right else (start, middle)
    return start, stop
