"""Maps of columns from released numbers: where they lie, how large they are, which of them drown."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sordino.kernel import Curator
from sordino.kernel.arrays import Floats, Ints
from sordino.problems.affine import Affine, ColumnMoments, MappedSum, SizeCounts
from sordino.problems.problem import Problem
from sordino.problems.scales import LOWEST, ColumnUnits
from sordino.solvers.descent import column_means, has_metric, noise_std, shrunk

INTERCEPT = 0.25
COLUMN_POWER = 0.4
# Shares of the budget: of the moments, of the counts of sizes before and after they are centred.
MOMENTS, UNITS = 0.05, 0.04
# So many records times epsilon, for the root of the number of columns, show how large each of them is. Labels
# need more: a rare column that is shown in one fit and not in the next has coefficients that vary more than
# their stated noise says (3 to 6 times at 900, 1.7 times at 5,300: tests/hostile/test_doors_noise.py), and
# few long rows with another slope lose .18 at 49,000 (tests/statistical/test_label_truth.py).
_SHOWN, _SHOWN_BY_LABELS = 400.0, 50_000.0
# Rows are added up that are clipped at so many times their usual length.
_LONG = 1.5
_SIZES = SizeCounts("rows")


def has_units(problem: Problem) -> bool:
    """Return whether the sizes of columns are counted one by one: labels, counts and persons, few columns.

    Sums of columns in one unit, that of the longest, tell nothing of columns that are a thousand times
    smaller. A count has no unit. Numbers of records have a correction by whole rows in the place of it.
    """
    signal = problem.population * min(problem.epsilon, 4.0)
    few = has_metric(problem) or problem.loss.targets == "counts"
    own = problem.loss.targets != "numbers" or problem.unit == "person"
    shown = _SHOWN if problem.loss.targets in ("numbers", "counts") else _SHOWN_BY_LABELS
    return own and few and signal >= shown * math.sqrt(problem.features)


def map_queries(problem: Problem, units: bool) -> dict[str, tuple[Any, int, float]]:
    """Return the questions about columns, with how often they are asked and their shares."""
    if not units:
        return {"moments": (ColumnMoments(problem.data_norm), 1, MOMENTS)}
    times = 1 if problem.sparse else 2
    return {
        "units": (ColumnUnits(problem.features), times, UNITS),
        "moments": (MappedSum(), 1, MOMENTS - UNITS / 2),
    }


def map_of(
    problem: Problem,
    moments: tuple[Floats, Floats],
    noise: float,
    columns: Ints | None = None,
    listed: float = 0.0,
) -> Affine:
    """Return the map by the released means of columns and of their sizes, with this noise."""
    radius, (first, second) = problem.data_norm, moments
    means = column_means if columns is None else shrunk  # the largest of all have no middle
    mean = means(first, noise, problem.features) * radius if problem.intercept else np.zeros(first.size)
    least = max(2.0 * noise, listed, 1e-12)
    scale = np.maximum(second, least) ** -COLUMN_POWER
    largest = scale.max() if columns is None else least**-COLUMN_POWER
    rest = None if columns is None else 1.0 / radius
    return Affine(mean, scale / (largest * radius), INTERCEPT if problem.intercept else 0.0, columns, rest)


def column_map(curator: Curator, problem: Problem) -> Affine:
    """Return the map of all columns.

    **Privacy.** Post-processing of the releases ``"moments"`` and, where they were planned, ``"units"``.
    """
    n, d = problem.population, problem.features
    if "units" not in curator.plan.releases:
        released = curator.release("moments") / n
        return map_of(problem, (released[:d], released[d:]), noise_std(curator, "moments") / n)
    units, sizes = _column_units(curator, problem, None)
    flat = Affine(np.zeros(d), 1.0 / units, 0.0)
    usual = _LONG * math.sqrt(max(float(sizes[1].sum()), 1e-12))
    own = usual / n
    means = curator.release("moments", flat.resized(1.0 / usual)) * own if problem.intercept else np.zeros(d)
    means = shrunk(means, noise_std(curator, "moments") * own, d)
    if curator.plan.releases["units"].times > 1:
        closer, sizes = _column_units(curator, problem, units * means)
        means, units = means * units / closer, closer
    scale = np.maximum(sizes[0], 1.0 / n) ** -COLUMN_POWER
    return Affine(means * units, scale / (scale.max() * units), INTERCEPT if problem.intercept else 0.0)


def _column_units(curator: Curator, problem: Problem, center: Floats | None) -> tuple[Floats, Floats]:
    """Return the unit of each column around a centre, and in it the mean size and the mean square.

    The unit is the mean size of entries, weighted by their size: it does not know how many are zero. A column
    that counts do not show has the largest possible one: nothing of it should be followed.
    """
    n, d = problem.population, problem.features
    most = problem.data_norm if center is None else problem.data_norm + np.abs(center)
    noise, octave = noise_std(curator, "units"), np.ceil(np.log2(np.broadcast_to(most, d))).astype(int)
    counts = np.asarray(curator.release("units", center))
    units, sizes = np.exp2(octave.astype(float)), np.zeros((2, d))
    for j in range(d):
        kept, seen = _SIZES.standing(_SIZES.on_grid(counts[j], octave[j] - LOWEST), noise, 1.0)
        first, second = float(kept @ seen), float(kept @ np.square(seen))
        if first > 0:
            own = second / first
            units[j] *= own
            sizes[:, j] = first / (own * n), second / (own * own * n)
    return units, sizes
