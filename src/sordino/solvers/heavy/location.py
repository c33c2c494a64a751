"""A rough private median: where values are truncated around, so that answers move with the data."""

from __future__ import annotations

import numpy as np

from sordino.kernel import Curator, Release
from sordino.kernel.arrays import Floats, Ints
from sordino.problems.sample import Sample
from sordino.problems.scales import REACH, CountsBelow
from sordino.solvers.heavy.shares import noise_of, share_relative

STEPS = 28  # halvings: a number is found to 4e-7 of itself
WITHIN = 10  # halvings between declared limits: a thousandth of their distance
ROUGH = 20  # halvings that find it to 1e-4 of itself, for the columns of a model
SHARE = 0.1  # of the budget: it costs 5 % more noise in the rest
CROWD = 10.0  # records per noise width: to go astray against all records takes 5 of them
COLUMNS = 7.0  # the same for the columns of a model: one that goes astray is only lost
UNLIMITED = (-np.inf, np.inf)
NEAR = 1.5  # deviations of noise and sampling: a point whose count is so near to a half is as good as any


def location_release(problem: Sample, limits: tuple[float, float] = UNLIMITED) -> Release:
    """Return the halvings: how many records are at most a point, which the answers so far choose."""
    times = WITHIN if np.isfinite(limits).all() else STEPS
    hint = problem.gaussian(share_relative(SHARE, 1.0 / times))
    return Release(CountsBelow(problem.columns), hint, times=times, mean=False)


def median_of(
    curator: Curator,
    population: int,
    columns: int,
    name: str = "location",
    crowd: float = CROWD,
    near: float = NEAR,
    limits: tuple[float, float] = UNLIMITED,
) -> Floats:
    """Return a rough median of each column by bisection; zero where the records are too few to see one.

    The points have equal ratios on both sides of zero, so the error is a small fraction of the median: a
    shift of the data moves the answer with it. Between two clusters of equal size every point is a median:
    the first one asked whose count is within ``near`` deviations of a half is taken, which is in their middle
    rather than at the edge of one. All steps are asked in any case; the plan has paid them. Between finite
    ``limits`` the points have equal distances, and too few records are put in the middle.
    """
    times, noise = curator.plan.releases[name].times, noise_of(curator, name, None)
    near *= float(np.hypot(noise, np.sqrt(population) / 2.0))
    high = np.full(columns, 2 ** (times - 1), dtype=np.int64)
    low, cells = -high, high[0]
    found = np.full(columns, np.nan)
    for _ in range(times):
        middle = (low + high) // 2
        point = _points(middle, cells, limits)
        above_half = curator.release(name, point) - population / 2.0
        found = np.where(np.isnan(found) & (np.abs(above_half) <= near), point, found)
        low, high = np.where(above_half >= 0, low, middle), np.where(above_half >= 0, middle, high)
    if population < crowd * noise:
        return _points(np.zeros(columns, dtype=np.int64), cells, limits)
    return np.where(np.isnan(found), _points(high, cells, limits), found)


def resolution(times: int) -> float:
    """Return how far from a median so many halvings may end, as a fraction of the median."""
    return float(np.expm1(np.log(2.0) * 2.0 * REACH / 2 ** (times - 1)))


def _points(cells: Ints, most: int, limits: tuple[float, float]) -> Floats:
    """Return the numbers at the cells: equal distances between limits, without them equal ratios on both
    sides of zero, up to ``2**REACH``.
    """
    low, high = limits
    if np.isfinite(low + high):
        return low / 2.0 + high / 2.0 + (high / 2.0 - low / 2.0) * cells / most
    size = np.exp2(-REACH + 2.0 * REACH * np.abs(cells) / most)
    return np.where(cells == 0, 0.0, np.copysign(size, cells))
