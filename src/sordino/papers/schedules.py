"""DP-SGD-HT with a batch size that changes on the way, as its listing allows: for reproduction only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import Curator, PaperNoise, Plan, Poisson
from sordino.kernel.arrays import Floats
from sordino.papers import formulas
from sordino.papers.formulas import Claimed
from sordino.problems.problem import Problem
from sordino.solvers.sparse.sgd_ht import SgdHt
from sordino.solvers.vectors import hard_threshold

GROWTH = (1, 2, 4)  # of the batch size: the paper writes b_t and prints no schedule


@dataclass(frozen=True)
class GrowingBatches:
    """DP-SGD-HT whose batches double after each third of the steps.

    **Privacy.** The Poisson-sampled Gaussian releases of each third, with the printed noise on the mean
    gradient: the same for all batch sizes, so that a larger batch carries more of it in its sum.
    """

    solver: SgdHt
    stages: tuple[tuple[str, int, int], ...]  # name, batch size, steps

    @classmethod
    def of(cls, solver: SgdHt, population: int) -> GrowingBatches:
        """Return the printed form of a solver."""
        if solver.step is None or not isinstance(solver.sampling, Poisson):
            raise InvalidInputError(
                "Growing batches need a step size and Poisson batches. Set step_size, leave sampling."
            )
        first, thirds = round(solver.sampling.rate * population), len(GROWTH)
        steps = [len(part) for part in np.array_split(np.arange(solver.steps), thirds)]
        stages = [
            (f"gradient_{factor}", min(population, factor * first), times)
            for factor, times in zip(GROWTH, steps)
            if times
        ]
        return cls(solver, tuple(stages))

    def plan(self, problem: Problem) -> Plan:
        """Declare the gradients of each stage."""
        releases = {}
        for name, size, times in self.stages:
            one = replace(self.solver, sampling=Poisson(size / problem.population), steps=times)
            releases[name] = replace(one.plan(problem).releases["gradient"], lazy=False)
        return problem.planned(**releases)

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        """Yield the iterates."""
        w = np.zeros(problem.shape)
        for name, _, times in self.stages:
            for _ in range(times):
                g = curator.release(name, w) + problem.ridge * w
                moved = w - float(self.solver.step or 0.0) * g
                w = hard_threshold(moved, self.solver.sparsity, problem.n_intercepts)
                yield w


def growing_batches(solver: Any, problem: Problem, budget: Claimed) -> tuple[Any, PaperNoise]:
    """Return DP-SGD-HT with growing batches and the noise of theorem 4.1."""
    made = GrowingBatches.of(solver, problem.population)
    noises = {
        name: formulas.multiplier(
            formulas.sgd_ht(
                budget.epsilon,
                budget.delta,
                population=problem.population,
                batch_size=size,
                steps=solver.steps,
            ),
            problem.relation,
        )
        for name, size, _ in made.stages
    }
    return made, PaperNoise(noises, "DP-SGD-HT, theorem 4.1, batches b, 2b, 4b")
