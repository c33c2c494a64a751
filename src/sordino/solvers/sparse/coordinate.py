"""Greedy coordinate descent: choose a coordinate privately, then ask for its derivative."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import Curator, Full, GumbelTopK, Plan, Release
from sordino.kernel.contracts import Point
from sordino.problems.problem import Problem
from sordino.problems.scores import (
    CoordinateScores,
    RestrictedGradient,
    flat_coordinates,
    intercept_coordinates,
    pick,
)
from sordino.solvers.base import Options, count
from sordino.solvers.capabilities import STEPS as STEP_OPTIONS
from sordino.solvers.capabilities import Capabilities
from sordino.solvers.pace import bearable
from sordino.solvers.vectors import added_at, starting_point

STEPS = 20
# The noise that a margin may carry, in units of the targets; how many times one over the curvature of a row a
# coordinate may step.
MARGIN_NOISE, LONGEST = 0.5, 20.0


@dataclass(frozen=True)
class Coordinate:
    r"""``w_j <- w_j - step (g_j + noise + ridge w_j)`` for the ``block`` coordinates of best noisy ``|g_j|``.

    Intercepts move in every step. Once ``sparsity`` coordinates were chosen, only those stay candidates.

    **Privacy.** Each step is a Gumbel selection (entry-wise bound ``clip``) and a Gaussian release of
    ``block`` + intercept entries, with the same zCDP cost each.

    Beyond the papers: the Gaussian noise is on a few entries instead of all d, which pays when the largest
    entry of a record's gradient is far below its norm (dense rows), and hardly on short text rows.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="the steepest coordinate, then its slope",
        reads=("n_nonzero_coefs", *STEP_OPTIONS),
        options=("block",),
        sparse=True,
        dense=True,
        lazy=True,
        paper="greedy coordinate descent",
        page="coordinate",
    )

    sparsity: int | None
    steps: int
    step: float | None
    clip: float
    norm_clip: float
    block: int = 1

    @classmethod
    def configured(cls, problem: Problem, options: Options) -> Coordinate:
        """Fill what the user left open from public facts."""
        extra = options.chosen(block=1)
        free = problem.features * problem.outputs
        return cls(
            options.n_nonzero_coefs,
            STEPS if options.max_iter is None else options.max_iter,
            options.step_size,
            options.peak(problem),
            problem.gradient_bound,
            count("block", extra["block"], min(free, options.n_nonzero_coefs or free)),
        )

    def plan(self, problem: Problem) -> Plan:
        """Declare the selections and the derivatives."""
        ridge = problem.ridge * problem.population
        scores = CoordinateScores(problem.loss, self.clip, ridge, problem.features)
        values = RestrictedGradient(problem.loss, self.clip, self.norm_clip)
        # sqrt(block) makes the selection cost as much zCDP as the values.
        select = GumbelTopK(relative=math.sqrt(self.block), count=self.block, absolute=True)
        lazy = problem.outputs == 1
        return problem.planned(
            coordinate=Release(scores, select, Full(), self.steps, mean=False, lazy=lazy),
            derivative=Release(values, problem.gaussian(), Full(), self.steps),
        )

    def run(self, curator: Curator, problem: Problem) -> Iterator[Point]:
        """Yield the iterates."""
        lazy = curator.plan.releases["coordinate"].lazy
        w = starting_point(problem.shape, problem.n_intercepts, lazy)
        always = intercept_coordinates(problem.shape, problem.n_intercepts)
        support = np.empty(0, dtype=np.int64)
        step = self.step_for(curator, problem) if self.step is None else (self.step, self.step)
        for _ in range(self.steps):
            chosen = self._choose(curator, problem, w, support)
            support = np.union1d(support, chosen)
            at = np.concatenate([chosen, always])
            slope = curator.release("derivative", (w, at)) + problem.ridge * pick(w, at)
            w = added_at(w, at, -np.repeat(step, (chosen.size, always.size)) * slope)
            yield w

    def step_for(self, curator: Curator, problem: Problem) -> tuple[float, float]:
        r"""Return the steps of a coordinate and of an intercept: functions of public numbers.

        A coordinate is rarely chosen twice, and its curvature is a small part of a row's: its step is where
        the noise of a margin is ``MARGIN_NOISE``, at most ``LONGEST`` over the curvature of a row. An
        intercept moves in every step.
        """
        release = curator.plan.releases["derivative"]
        asked = range(self.block + problem.n_intercepts * problem.outputs)
        noise = float(release.mechanism.multiplier or 0.0)
        noise *= release.sensitivity(curator.plan.relation, (None, asked))
        noise *= problem.row_bound / (problem.population * MARGIN_NOISE * bearable(problem))
        curvature = problem.curvature * problem.row_bound**2 + problem.penalty_curvature
        often = 1.0 / max(curvature, math.sqrt(self.steps) * noise)
        return 1.0 / max(curvature / LONGEST, noise), often

    def _choose(self, curator: Curator, problem: Problem, w: Any, support: Any) -> Any:
        full = self.sparsity is not None and support.size + self.block > self.sparsity
        if full:
            return support[curator.release("coordinate", (w, support))]
        chosen = curator.release("coordinate", w)
        return flat_coordinates(chosen, problem.features, problem.columns)
