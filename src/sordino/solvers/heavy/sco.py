"""DP-SCO: projected gradient descent with a robust mean of the gradients (Algorithm 2)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sordino.kernel import Curator, Disjoint, Full, Plan, Release
from sordino.kernel.arrays import Floats
from sordino.problems.problem import Problem
from sordino.problems.robust import GradientPoint, RobustGradient, Truncation
from sordino.solvers.heavy.constraints import Constraint
from sordino.solvers.heavy.scaling import Scaling, patience, raw_coefficients
from sordino.solvers.heavy.shares import noise_of

MOST_MOMENTUM = 10.0  # steps that momentum may add up
_LEARNED, _BY_NORM = Scaling(), Truncation(by="norm")


@dataclass(frozen=True)
class ProjectedGradient:
    r"""``w <- Proj(w - step (robust mean of gradients + noise + ridge w))``.

    Parameters
    ----------
    steps : the number of noisy gradients.
    scaling : thresholds, step size and column scales, given or learned.
    average : the iterates that are averaged: "all" (paper, convex losses), "last" (paper, strongly convex) or
        "tail", the second half (our default for strongly convex losses: free, and with less noise).
    split : step t sees the t-th of ``steps`` disjoint chunks (paper, strongly convex); otherwise every step
        sees all records, which needs less noise: sqrt(T) / n instead of T / n.
    truncation, blocks : the robust mean; by norm (default), by coordinate, or a median of block means.
    constraint : the convex set, intercept excluded.

    **Privacy.** ``steps`` Gaussian releases (one, in parallel, for disjoint chunks) and the histograms.
    Departure: line 8 of the listing passes all of X to the estimator in the split branch as well, which
    would be ``steps`` full-budget releases on the same records; each chunk is used once here.
    """

    steps: int
    scaling: Scaling = _LEARNED
    average: str = "tail"
    split: bool = False
    truncation: Truncation = _BY_NORM
    blocks: int = 1
    constraint: Constraint | None = None

    def plan(self, problem: Problem) -> Plan:
        """Declare the histograms, if any, and the gradients."""
        rows = Disjoint(self.steps) if self.split else Full()
        paid = 1 if self.split else self.steps
        releases = self.scaling.releases(problem, self.truncation.by, paid, self.steps)
        query = RobustGradient(problem.loss, self.truncation, self.blocks)
        releases["gradient"] = Release(query, problem.gaussian(), rows, self.steps, mean=False)
        return problem.planned(**releases)

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        """Yield the iterates, or their running averages."""
        point, step = self.scaling.start(curator, problem)
        walk = _Walk(step, point, problem, self)
        total = np.zeros(problem.shape)
        refresh, first = self.scaling.refreshes(self.steps), self._first_averaged
        for t in range(self.steps):
            point = replace(point, w=walk.point.w)
            if t in refresh:
                cut, size = self._threshold(curator, problem, point)
                # Gradients shrink on the way: an octave that shows later was there before, or is noise.
                point = replace(point, threshold=min(cut, point.threshold) if t else cut)
                walk.allow(step * self._patience(curator, problem, point, size))
            walk.move(self._gradient(curator, problem, point), self._noise(curator, problem, point))
            if t >= first:
                total += walk.coefficients
            yield total / (t + 1 - first) if t >= first else walk.coefficients

    @property
    def _first_averaged(self) -> int:
        return {"all": 0, "tail": self.steps // 2, "last": self.steps - 1}[self.average]

    def _records(self, problem: Problem) -> float:
        """Return the public number of records behind a mean (of a block)."""
        return problem.population / ((self.steps if self.split else 1) * self.blocks)

    def _gradient(self, curator: Curator, problem: Problem, point: GradientPoint) -> Floats:
        answer = np.asarray(curator.release("gradient", point)) / self._records(problem)
        return answer + problem.ridge * point.w / np.square(point.scales)

    def _noise(self, curator: Curator, problem: Problem, point: GradientPoint) -> float:
        """Return the norm that the noise of a mean gradient has, roughly."""
        std = noise_of(curator, "gradient", point) / self._records(problem)
        return std * math.sqrt(point.size)

    def _patience(self, curator: Curator, problem: Problem, point: GradientPoint, size: float) -> float:
        """Return the share of a learned step that keeps the noise of all steps from carrying the model away.

        A gradient of norm ``size`` is ``sqrt(p)`` residuals long in the units of p columns (an entry of that
        size is one).
        """
        if self.scaling.step is not None or not size > 0:
            return 1.0
        residual = size / (math.sqrt(point.size) if self.truncation.by == "norm" else 1.0)
        return patience(self._noise(curator, problem, point) / residual, self.steps)

    def _threshold(self, curator: Curator, problem: Problem, point: GradientPoint) -> tuple[float, float]:
        # Bias and noise are compared per coordinate, or in norm where norms are truncated.
        noise = self._noise(curator, problem, replace(point, threshold=1.0)) * problem.population
        if self.truncation.by == "coordinate":
            noise /= math.sqrt(point.size)
        return self.scaling.threshold(curator, problem.population, point, noise)


class _Walk:
    """The iterates; a learned step is shortened whenever a released gradient says that it is too long.

    Collinear columns make it short for all directions; momentum makes up for that in the flat ones, as far
    as a step of the length that noise allows would go. All of it looks at released values only.
    """

    def __init__(
        self, step: float, point: GradientPoint, problem: Problem, solver: ProjectedGradient
    ) -> None:
        self.step, self.point = step, point
        self._allowed, self._velocity = step, np.zeros_like(point.w)
        self._free, self._constant = problem.features, problem.intercept
        self._adapts, self._constraint = solver.scaling.step is None, solver.constraint
        self._last: tuple[Floats, Floats] | None = None

    @property
    def coefficients(self) -> Floats:
        """The point in the units of the data."""
        return raw_coefficients(self.point, self._constant)

    def allow(self, longest: float) -> None:
        """Bound the step, and what momentum makes of it."""
        self._allowed = min(self._allowed, longest)
        self.step = min(self.step, longest)

    def move(self, gradient: Floats, noise: float) -> None:
        """Take one step; if the last one overshot, go back and take a shorter one instead."""
        if self._adapts and self._last is not None:
            before, old = self._last
            self.step = min(self.step, 1.0 / self._curvature(before, old, gradient, noise))
            if np.linalg.norm(gradient) > 1.1 * np.linalg.norm(old) + 2.0 * noise:
                self.step /= 2.0
                self.point, gradient = replace(self.point, w=before), old
                self._velocity = np.zeros_like(gradient)
        self._last = (self.point.w, gradient)
        gain = min(max(self._allowed / self.step, 1.0), MOST_MOMENTUM)  # of a lasting gradient
        self._velocity = (1.0 - 1.0 / gain) * self._velocity + gradient
        self.point = replace(self.point, w=self._projected(self.point.w - self.step * self._velocity))

    def _curvature(self, before: Floats, old: Floats, gradient: Floats, noise: float) -> float:
        """Return how fast the gradient changed along the last step, beyond what noise explains."""
        change = float(np.sum((gradient - old) ** 2)) - 4.0 * noise**2
        moved = float(np.sum((self.point.w - before) ** 2))
        return math.sqrt(max(change, 0.0) / moved) + 1e-12 if moved > 0 else 1e-12

    def _projected(self, w: Floats) -> Floats:
        if self._constraint is None:
            return w
        raw = w / self.point.scales
        raw[..., : self._free] = self._constraint.project(raw[..., : self._free])
        return np.asarray(raw * self.point.scales)
