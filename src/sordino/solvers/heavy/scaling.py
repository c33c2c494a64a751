"""Column scales, step sizes and thresholds that a learner reads off noisy histograms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sordino.kernel import Curator, Release
from sordino.kernel.arrays import Floats
from sordino.problems.problem import Problem
from sordino.problems.robust import GradientPoint
from sordino.problems.scales import EDGES, ColumnScales, FeatureScales, GradientScales
from sordino.solvers.heavy.shares import noise_of, share_relative
from sordino.solvers.heavy.threshold import SURE, Tail, moment_threshold

SHARE = 0.1  # of the budget for each kind of histogram
REFRESH = 3  # histograms of gradient scales: gradients shrink on the way


@dataclass(frozen=True)
class Scaling:
    """How a learner on data without bounds finds its units; None means: from noisy histograms.

    Parameters
    ----------
    order : v; gradients have a moment of order 1 + v.
    bound : u with ``E|g|^(1+v) <= u`` for the truncated quantity, in units of the column scales.
    fixed : a public threshold that replaces the choice.
    step : the step size.
    columns : whether columns are divided by their learned scales.
    failure : xi, in the threshold of a known moment.
    """

    order: float = 1.0
    bound: float | None = None
    fixed: float | None = None
    step: float | None = None
    columns: bool = False
    failure: float = 0.05

    @property
    def learns(self) -> bool:
        """Whether gradient scales are released."""
        return self.bound is None and self.fixed is None

    def releases(self, problem: Problem, by: str, paid: int, steps: int) -> dict[str, Release]:
        """Return the histograms of a plan whose other releases cost as much as ``paid`` Gaussians."""
        out: dict[str, Release] = {}
        hint = problem.gaussian(share_relative(SHARE, paid))
        if self.columns:
            out["columns"] = Release(ColumnScales(problem.features), hint, mean=False)
        elif self.step is None:
            out["features"] = Release(FeatureScales(), hint, mean=False)
        if self.learns:
            times = min(REFRESH, steps)
            hint = problem.gaussian(share_relative(SHARE, paid / times))
            query = GradientScales(problem.loss, by)
            out["gradients"] = Release(query, hint, times=times, mean=False)
        return out

    def refreshes(self, steps: int) -> set[int]:
        """Return the steps before which the threshold is chosen again."""
        times = min(REFRESH, steps) if self.learns else 1
        return {t * steps // times for t in range(times)}

    def start(self, curator: Curator, problem: Problem) -> tuple[Floats | float, float]:
        """Return the column scales and the first step size."""
        scales: Floats | float
        if self.columns:
            scales = learned_scales(curator, problem)
            ridge = problem.ridge / float(np.min(scales)) ** 2
            square = 1.0
        else:
            scales, ridge, square = 1.0, problem.ridge, 1.0
            if self.step is None:
                square = _mean_square(curator, problem) / problem.columns
        if self.step is not None:
            return scales, self.step
        curvature = problem.curvature * square + ridge
        return scales, 1.0 / max(curvature, 1e-12)

    def threshold(self, curator: Curator, n: float, point: GradientPoint, noise: float) -> float:
        """Return the threshold for a mean whose noise is ``noise * threshold / n``."""
        if self.fixed is not None:
            return self.fixed
        if self.bound is not None:
            log = math.log(1.0 / self.failure)
            return moment_threshold(self.bound, self.order, n, noise, log)
        counts = curator.release("gradients", point)[0]
        tail = Tail.read(counts, noise_of(curator, "gradients", point), 1.0 + self.order)
        return tail.threshold(noise)


def learned_scales(curator: Curator, problem: Problem) -> Floats:
    """Return the root mean squares of the columns, from the octaves that stand out of the noise.

    A column without such an octave gets the middle scale of the others; the intercept has its own.
    """
    counts = curator.release("columns")
    seen = counts > max(SURE * noise_of(curator, "columns", None), 0.5)
    square = np.where(seen, counts, 0.0) @ EDGES**2 / (2.0 * problem.population)
    scales = np.sqrt(square)
    known = scales > 0
    scales[~known] = np.median(scales[known]) if known.any() else 1.0
    return np.append(scales, [problem.intercept] * problem.n_intercepts)


def _mean_square(curator: Curator, problem: Problem) -> float:
    tail = Tail.read(curator.release("features")[0], noise_of(curator, "features", None), 2.0)
    return tail.moment(tail.edge, problem.population, 2) / 2.0  # upper edges are too far by about 1.4
