"""Units from released numbers: the sizes of rows and targets, the centre of targets, what drowns in noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.kernel import Curator
from sordino.kernel.arrays import Bools, Floats
from sordino.problems.affine import Affine
from sordino.problems.problem import Problem
from sordino.problems.targets import narrowed

# Rows larger than this share of the records are clipped.
TYPICAL = 0.6
# Targets that mostly sit at their centre have the size of the others: this share of this quantile.
LARGE, LARGE_SHARE = 0.9, 0.5


@dataclass(frozen=True)
class TargetUnit:
    """Targets are measured from ``center`` in units of ``size``; ``seen`` says that data set the size."""

    center: float = 0.0
    size: float = 1.0
    seen: bool = True


def target_unit(curator: Curator, problem: Problem) -> TargetUnit:
    """Return where targets lie and how far they spread, from released counts; labels have the unit 1."""
    if "targets" not in curator.plan.releases:
        return TargetUnit()
    interval = (-problem.target_bound, problem.target_bound)
    for _ in range(curator.plan.releases["center"].times if "center" in curator.plan.releases else 0):
        counts = curator.release("center", interval)
        interval = narrowed(counts, noise_std(curator, "center"), interval) or interval
    center = 0.5 * (interval[0] + interval[1])
    most = problem.target_bound + abs(center)
    counts = curator.release("targets", center)
    query: Any = curator.plan.releases["targets"].query
    typical, large = (
        query.quantile(counts, share, noise_std(curator, "targets"), most) for share in (TYPICAL, LARGE)
    )
    if typical is None:
        return TargetUnit(0.0, problem.target_bound, False)
    return TargetUnit(center, max(typical, LARGE_SHARE * large))


def row_size(curator: Curator, name: str, affine: Affine, radius: float, share: float = TYPICAL) -> float:
    """Return the size that this share of the mapped rows has at most, by a released histogram.

    Where no count stands out of its noise, it is the largest possible one.
    """
    query: Any = curator.plan.releases[name].query
    most = affine.longest(radius)
    size: float | None = query.quantile(curator.release(name, affine), share, noise_std(curator, name), most)
    return most if size is None else size


def grid_cells(problem: Problem) -> int:
    """Return how finely sizes are counted: as finely as the noise of the counts allows."""
    signal = problem.population * min(problem.epsilon, 4.0)
    return 4 if signal > 4000 else 2 if signal > 1000 else 1


def noise_std(curator: Curator, name: str) -> float:
    """Return the standard deviation of a planned Gaussian sum: public, it is in the plan."""
    release = curator.plan.releases[name]
    return float(release.mechanism.multiplier or 0.0) * release.sensitivity(curator.plan.relation)


def shrunk(values: Floats, noise: float, count: int) -> Floats:
    """Shrink noisy means towards zero, and to zero what the largest of ``count`` noises would reach."""
    if noise == 0:
        return values
    sure = noise * math.sqrt(2.0 * math.log(max(count, 2)))
    return values * np.maximum(0.0, 1.0 - (sure / np.maximum(np.abs(values), 1e-100)) ** 2)


def top_mask(w: Floats, count: int, kept: int) -> Bools:
    """Mark the ``count`` largest magnitudes and the last ``kept`` columns."""
    mask = np.zeros(w.shape, dtype=bool)
    free = np.abs(w[..., : w.shape[-1] - kept])
    best = np.argpartition(free.reshape(-1), free.size - count)[free.size - count :]
    inner = np.zeros(free.size, dtype=bool)
    inner[best] = True
    mask[..., : w.shape[-1] - kept] = inner.reshape(free.shape)
    mask[..., w.shape[-1] - kept :] = True
    return mask
