"""Intervals for quantiles, read off a noisy tree of counts: free post-processing that ties cannot fool."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from sordino.kernel.arrays import Bools, Floats, Ints

# The share of the error probability that sampling gets where sampling and noise are bounded one by one.
SAMPLING = 0.8


def border_variances(depth: int) -> Floats:
    r"""Return, for noise of variance 1 in each node, that of the consistent count before each cell.

    On the way down to a cell, level by level, least squares shares the disagreement of two siblings with
    their parent: a child is half of its parent plus or minus ``D_j / 2``, where ``D_j``, the difference of
    what the two subtrees of height h say, has variance ``2 V_h``, ``V_h = 2^(h-1) / (2^h - 1)``, and is
    independent of those of the other levels. With ``f_j`` the share of the chosen child that lies before
    the cell, ``D_j`` counts ``f_j / 2`` if that is the left child and ``(1 - f_j) / 2`` if it is the right.
    """
    cell = np.arange(2**depth)
    out = np.zeros(cell.size)
    for height in range(depth, 0, -1):  # of the chosen child and its sibling
        inside = (cell % 2 ** (height - 1)) / 2 ** (height - 1)
        right = (cell // 2 ** (height - 1)) % 2 == 1
        weight = np.where(right, 1.0 - inside, inside) / 2.0
        out += weight**2 * 2.0 * 2.0 ** (height - 1) / (2.0**height - 1.0)
    return out


@dataclass(frozen=True)
class RankMargins:
    """How far a noisy count before a cell may be from its rank: noise and sampling, at all levels together.

    The way to a cell compares once per level, and each comparison can err to one side only, so their error
    probabilities add up over the levels.
    """

    depth: int
    confidence: float

    def at(self, noise: float, sampling: Floats, total: float = 0.0) -> Floats:
        """Return the margins, shape (probabilities, cells), for the two standard deviations.

        ``total`` is that of a noisy number of records: it moves a count before a cell and the wanted rank by
        at most its own error apart.
        """
        miss = 1.0 - self.confidence
        std = np.hypot(noise * np.sqrt(border_variances(self.depth)), total)
        joint = -special.ndtri(miss / self.depth) * np.hypot(std, sampling[:, None])
        of_noise = -special.ndtri((1.0 - SAMPLING) * miss / self.depth) * std
        apart = -special.ndtri(SAMPLING * miss / 2.0) * sampling[:, None] + of_noise
        # Both are true; which one is smaller where they are largest is a public fact.
        better = joint.max(axis=1) <= apart.max(axis=1)
        return np.where(better[:, None], joint, apart)


def interval_cells(below: Floats, ranks: Floats, margins: Floats) -> tuple[Ints, ...]:
    """Return the first and the last cell that may hold a record of rank within one of ``ranks``.

    If the counts on the way to such a record's cell are right within the margins, its cell is between the
    two: nothing is said about where in its cell a record lies, so ties do no harm.
    """
    total = below[-1]
    lowest = np.maximum(ranks - 1.0, 0.5)[:, None] - margins
    highest = np.minimum(ranks + 1.0, total - 0.5)[:, None] + margins
    before = np.concatenate([[0.0], below[:-1]])
    return _descended(before < lowest), _descended(before <= highest)


def _descended(to_the_right: Bools) -> Ints:
    """Follow the tree down to a cell: at each border, right where the count before it says so."""
    row = np.arange(len(to_the_right))
    cell = np.zeros(row.size, dtype=np.int64)
    step = to_the_right.shape[1] // 2
    while step:
        cell += np.where(to_the_right[row, cell + step], step, 0)
        step //= 2
    return cell


def outer_borders(
    cells: tuple[Ints, ...], edges: Floats, bounds: tuple[float, float] | None
) -> tuple[Floats, Floats]:
    """Return the left border of the first and the right border of the last cell.

    What lies outside of ``bounds`` counts as the nearer one; without bounds the outermost cells have no end.
    """
    low, high = bounds if bounds is not None else (-np.inf, np.inf)
    left, right = np.concatenate([[low], edges]), np.concatenate([edges, [high]])
    return left[cells[0]], right[cells[1]]
