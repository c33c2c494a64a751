"""A rough private median: where values are truncated around, so that answers move with the data."""

from __future__ import annotations

import numpy as np

from sordino.kernel import Curator, Release
from sordino.kernel.arrays import Floats, Ints
from sordino.problems.sample import Sample
from sordino.problems.scales import REACH, CountsBelow
from sordino.solvers.heavy.shares import noise_of, share_relative

STEPS = 28  # halvings: a number is found to 4e-7 of itself
ROUGH = 20  # halvings that find it to 1e-4 of itself, for the columns of a model
SHARE = 0.1  # of the budget: it costs 5 % more noise in the rest
CROWD = 10.0  # records per noise width: to go astray against all records takes 5 of them
COLUMNS = 7.0  # the same for the columns of a model: one that goes astray is only lost


def location_release(problem: Sample) -> Release:
    """Return the halvings: how many records are at most a point, which the answers so far choose."""
    hint = problem.gaussian(share_relative(SHARE, 1.0 / STEPS))
    return Release(CountsBelow(problem.columns), hint, times=STEPS, mean=False)


def median_of(
    curator: Curator, population: int, columns: int, name: str = "location", crowd: float = CROWD
) -> Floats:
    """Return a rough median of each column by bisection; zero where the records are too few to see one.

    The points have equal ratios on both sides of zero, so the error is a small fraction of the median: a
    shift of the data moves the answer with it. All steps are asked in either case; the plan has paid them.
    """
    times = curator.plan.releases[name].times
    high = np.full(columns, 2 ** (times - 1), dtype=np.int64)
    low, cells = -high, high[0]
    for _ in range(times):
        middle = (low + high) // 2
        below = curator.release(name, _points(middle, cells)) >= population / 2.0
        low, high = np.where(below, low, middle), np.where(below, middle, high)
    if population < crowd * noise_of(curator, name, None):
        return np.zeros(columns)
    return _points(high, cells)


def _points(cells: Ints, most: int) -> Floats:
    """Return the numbers at the cells: equal ratios on both sides of zero, up to ``2**REACH``."""
    size = np.exp2(-REACH + 2.0 * REACH * np.abs(cells) / most)
    return np.where(cells == 0, 0.0, np.copysign(size, cells))
