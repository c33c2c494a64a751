"""Where targets lie: counts in equal cells, asked again in ever smaller intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import ClippedSum, Relation
from sordino.kernel.arrays import Floats
from sordino.kernel.contracts import Records

CELLS = 32


@dataclass(frozen=True)
class TargetCounts(ClippedSum):
    """How many targets lie in each of 32 equal cells of the public interval ``params = (low, high)``.

    **Privacy.** A record adds one to one count or to none: 1 in L2, sqrt 2 when it is replaced.
    """

    needs: ClassVar[tuple[type, ...]] = (Records,)

    def contribution(self, params: Any) -> float:
        """Return one."""
        return 1.0

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return 1, or sqrt 2 when a record moves from one count to another."""
        return math.sqrt(relation.contributions)

    def evaluate(self, records: Records, params: Any) -> Floats:
        """Return the counts."""
        low, high = params
        y = np.asarray(records.targets, dtype=float)
        y = y[(y >= low) & (y <= high)]
        cells = np.minimum((CELLS * ((y - low) / (high - low))).astype(int), CELLS - 1)
        return np.bincount(cells, minlength=CELLS).astype(float)


def narrowed(counts: Floats, noise: float, interval: tuple[float, float]) -> tuple[float, float] | None:
    """Return an interval around the mean of the cells with the middle of the noisy counts, if any stands out.

    Free: it reads released counts only.
    """
    kept = np.where(counts > sure(CELLS) * noise, counts, 0.0)
    if not kept.any():
        return None
    below = np.cumsum(kept) / kept.sum()
    first, last = (int(np.argmax(below >= share)) for share in (0.25, 0.75))
    cells = np.arange(max(first - 1, 0), min(last + 2, CELLS))
    weights, width = np.maximum(counts[cells], 0.0), (interval[1] - interval[0]) / CELLS
    middle = interval[0] + width * (0.5 + float(weights @ cells / weights.sum()))
    half = width * (last - first + 3) / 2
    return middle - half, middle + half


def sure(cells: int) -> float:
    """Return how many standard deviations the largest of so many noises exceeds once in some 5,000 times."""
    return math.sqrt(2.0 * math.log(1000.0 * cells))
