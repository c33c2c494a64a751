"""The first cut among very many columns: one gradient at the constant model keeps the largest coordinates.

What no record touches has noise only, and nothing here needs more of it than its largest values: moments and
gradient are asked lazily (:mod:`sordino.kernel.lazy`), with the law of the dense releases, for work in
proportion to the entries of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from sordino.errors import PlanError
from sordino.kernel import Curator, SparseVector
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.lengths import public_norm
from sordino.problems.affine import Affine
from sordino.problems.problem import Problem
from sordino.solvers.descent import Noise, NoisyDescent
from sordino.solvers.legs import Leg
from sordino.solvers.units import TargetUnit, noise_std, row_size
from sordino.solvers.vectors import as_sparse, hard_threshold

# Releases whose untouched coordinates are not drawn.
LAZY = ("moments", "sizes", "gradient")
# From so many columns for each that is kept, one gradient makes the first cut.
MANY = 10
# The noise of a coordinate after the first step, and the length of the first model: rows have length one.
NOISE, LENGTH = 0.3, 5.0


def screens_first(problem: Problem, counts: Sequence[int]) -> bool:
    """Return whether one gradient makes the first cut: public, by the numbers of columns before and after."""
    return problem.outputs == 1 and len(counts) > 1 and problem.features >= MANY * counts[0]


def listed_map(curator: Curator, problem: Problem, count: int, map_of: Callable[..., Affine]) -> Affine:
    """Return the map that lists the columns with the ``count`` largest moments.

    The others count as if their moments were the least that is listed, or drowned in the noise, as those of
    columns without entries do.
    """
    n, d = problem.population, problem.features
    largest = hard_threshold(curator.release("moments") / n, min(2 * count, 2 * d))
    released = as_sparse(largest).sorted()
    columns = np.unique(released.indices % d)
    least = float(np.abs(released.values).min()) if released.values.size else 0.0
    affine = map_of(released.at(columns), released.at(columns + d), columns, least)
    return affine.resized(1.0 / row_size(curator, "sizes", affine, problem.data_norm)[0])


def screened(
    curator: Curator, problem: Problem, affine: Affine, targets: TargetUnit, count: int
) -> tuple[Affine, Floats, Leg]:
    """Return the map of the ``count`` columns that are kept, the model on them, and how it came about."""
    n, features, kept = problem.population, problem.features, problem.n_intercepts
    start = SparseVector.zeros(features + kept, kept)
    if kept:
        start.values[-1] = targets.center / (targets.size * affine.intercept)
    released = curator.release("gradient", (start, affine, None, targets.size)) / n
    found = as_sparse(hard_threshold(released, count, kept), kept).sorted()
    columns = found.indices[: found.indices.size - kept]
    if not columns.size:  # only without noise, where no record has an entry
        columns, found = np.zeros(1, dtype=np.int64), SparseVector.zeros(1 + kept, 1 + kept)
    std = noise_std(curator, "gradient") / n
    step = min(LENGTH / max(public_norm(found.values), 1e-300), NOISE / max(std, 1e-300))
    descent = NoisyDescent(_asked, step, Noise(std, features + kept), taken=[step])
    w = -step * found.values
    if kept:
        w[-1] += start.values[-1]
    chosen = replace(affine.picked(columns), columns=columns)
    leg = replace(Leg.of(descent, affine, None, features), scale=chosen.scale)
    return chosen, w, leg


def _asked(w: Floats) -> Floats:
    raise PlanError("The one gradient of this descent was asked.")


def spread(values: Floats, columns: Ints | None, size: int) -> Floats:
    """Return numbers of some columns, and of the intercept behind them, in their places among all."""
    if columns is None:
        return values
    out = np.zeros((*values.shape[:-1], size))
    out[..., columns] = values[..., : columns.size]
    out[..., size - (values.shape[-1] - columns.size) :] = values[..., columns.size :]
    return out
