"""Units from released numbers: the sizes of rows and targets, the centre of targets, what drowns in noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.kernel import Curator
from sordino.kernel.arrays import Bools, Floats
from sordino.problems.affine import Affine
from sordino.problems.class_sums import log_shares
from sordino.problems.problem import Problem
from sordino.problems.targets import CELLS, narrowed
from sordino.solvers.evidence import chosen_width, one_sided

# Rows larger than this share of the records are clipped.
TYPICAL = 0.6
# What a clip takes of long rows counts as a bias by so much of it.
LONG = 0.1
# Targets that mostly sit at their centre have the size of the others: this share of this quantile.
LARGE, LARGE_SHARE = 0.9, 0.5
# So many of the targets of one size are a peak: no octave has as many of a smooth law.
PEAK = 0.5
# Targets that counts do not show are expected so many times as far out as the farthest that they show.
BEYOND = 2.0


@dataclass(frozen=True, eq=False)
class TargetUnit:
    """Targets are measured from ``center`` in units of ``size``; ``seen`` says that data set the size.

    ``far`` are shares of the targets at distances from the centre, as far as counts tell them from noise.
    """

    center: Any = 0.0
    size: float = 1.0
    seen: bool = True
    far: tuple[Floats, Floats] = (np.zeros(0), np.zeros(0))

    @property
    def spread(self) -> float:
        """The root of the mean squared distance to the centre."""
        shares, sizes = self.far
        return math.sqrt(float(shares @ np.square(sizes))) or self.size


def target_center(curator: Curator, problem: Problem) -> tuple[float, float] | None:
    """Return where most targets lie and the width of the cells that say so, from released counts.

    None where no count stands out of its noise.
    """
    interval, width = (-problem.target_bound, problem.target_bound), math.inf
    for _ in range(curator.plan.releases["center"].times if "center" in curator.plan.releases else 0):
        found = narrowed(curator.release("center", interval), noise_std(curator, "center"), interval)
        if found is not None:
            interval, width = found, (interval[1] - interval[0]) / CELLS
    return None if math.isinf(width) else (0.5 * (interval[0] + interval[1]), width)


def target_unit(curator: Curator, problem: Problem, center: float = 0.0, near: float = 0.0) -> TargetUnit:
    """Return how far targets spread around their centre, from released counts; labels have the unit 1.

    Where most targets have one size within ``near``, the precision of the centre, they are at the centre and
    have none: the others set the unit.
    """
    if "classes" in curator.plan.releases:
        noise = noise_std(curator, "classes") / problem.population
        return TargetUnit(log_shares(curator.release("classes") / problem.population, noise))
    if "targets" not in curator.plan.releases:
        return TargetUnit()
    most = problem.target_bound + abs(center)
    noise, counts = noise_std(curator, "targets"), curator.release("targets", (center, most))
    query: Any = curator.plan.releases["targets"].query
    counts = query.without_peak(counts, near / most, PEAK * problem.population)
    typical, large = (query.quantile(counts, share, noise, 1.0) for share in (TYPICAL, LARGE))
    if typical is None:
        return TargetUnit(0.0, problem.target_bound, False)
    kept, sizes = query.standing(counts, noise, 1.0)
    largest = float(sizes[kept > 0].max(initial=0.0))
    lost = max(0.0, problem.population - float(kept.sum()) - max(float(counts[0]), 0.0))
    shares = np.append(kept, lost) / problem.population  # what is lost in noise may lie farther out
    far = shares, most * np.append(sizes, min(BEYOND * largest, 1.0))
    return TargetUnit(center, most * max(typical, LARGE_SHARE * large, float(shares[:-1] @ sizes)), True, far)


def row_size(
    curator: Curator, name: str, affine: Affine, radius: float, spread: float = math.inf
) -> tuple[float, float]:
    """Return the size that most mapped rows have at most, by a released histogram, or a larger one.

    ``spread`` is the noise that rows of size 1 mean for what is asked of them later: rows are clipped at a
    larger size where the noise of that is less than what the clip takes of the longest rows.
    Where no count stands out of its noise, the size is the largest possible one. The second number says by
    how much the squares of rows shrink that are clipped to that size.
    """
    query: Any = curator.plan.releases[name].query
    most, noise, counts = affine.longest(radius), noise_std(curator, name), curator.release(name, affine)
    size: float | None = query.quantile(counts, TYPICAL if spread else 1.0, noise, most)
    if size is None:
        return most, 1.0
    if 0.0 < spread < math.inf:
        kept, sizes = query.standing(counts, noise, most)
        shares = one_sided(kept / max(float(kept.sum()), 1.0), sizes)
        size = max(size, chosen_width(np.sort(sizes), shares, 0.0, spread, (LONG, 0.0))[0])
    size = min(size, most)
    return size, query.stretch(counts, size, noise, most)


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


def column_means(values: Floats, noise: float, count: int) -> Floats:
    """Return noisy means of columns, shrunk towards their median as far as that stands out of its own noise.

    Means that drown one by one can be seen together: intensities, counts or grades are all positive.
    """
    median = np.median(values)
    middle = shrunk(np.array([median]), 1.2533 * noise / math.sqrt(values.size), 2)[0]
    return middle + shrunk(values - middle, noise, count)


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
