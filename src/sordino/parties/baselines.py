r"""What parties can do without a secure sum, for comparison, with the guarantees these methods really have.

Every party protects its own records alone, so the guarantee of a record is the one of its party and the
whole is as private as the worst party. All of them are simulated in one process. What is printed
but not private (Local Obj P) is in :mod:`sordino.papers.local`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sordino.execute import LocalExecutor
from sordino.kernel import Full, Plan, Relation, Release
from sordino.kernel.arrays import Floats
from sordino.parties.mpc.output import OutputPerturbation, WeightedMinimiser
from sordino.problems.glm import GlmGradient
from sordino.problems.problem import Problem
from sordino.runs import Ask, Promise, run_privately


@dataclass(frozen=True)
class Pathak(OutputPerturbation):
    """Pathak, Rane, Raj 2010: the noise of a single party on an average of m models.

    Its published scale forgets that the average divides by m; the result is m times too noisy, and private.
    """

    parties: int = 1

    def plan(self, problem: Problem) -> Plan:
        """Declare the average with a sensitivity that is m times too large."""
        shape = (problem.loss, self.clip, self.strength, problem.population, problem.shape, problem.row_bound)
        query = _Overstated(*shape, factor=float(self.parties))
        return problem.planned(minimiser=Release(query, problem.gaussian(), Full(), mean=False))


@dataclass(frozen=True)
class _Overstated(WeightedMinimiser):
    factor: float = 1.0

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        """Return the true bound times the factor."""
        return self.factor * super().sensitivity(relation, params)


def local_output(members: Sequence[LocalExecutor], problem: Problem, clip: float) -> Floats:
    """Average the models that all parties release on their own (Local Out P).

    **Privacy.** One Gaussian release per party on disjoint records: the guarantee of one release.
    """
    total = np.zeros(problem.shape)
    for member in members:
        own = replace(problem, population=member.population)
        solver = OutputPerturbation(clip, problem.ridge)
        total += run_privately(solver, own, member, Ask(problem.epsilon, problem.delta)).result
    return total / len(members)


def local_gradient(
    members: Sequence[LocalExecutor], problem: Problem, clip: float, steps: int, step: float
) -> Floats:
    """Descend along the average of gradients that all parties release on their own (Local Grad P).

    **Privacy.** ``steps`` Gaussian releases per party on disjoint records.
    """
    ask, w = Ask(problem.epsilon, problem.delta), np.zeros(problem.shape)
    with ExitStack() as runs:
        curators = []
        for member in members:
            own = replace(problem, population=member.population)
            release = Release(GlmGradient(problem.loss, clip), problem.gaussian(), Full(), steps)
            promise = Promise.made(ask, own.planned(gradient=release))
            curators.append(runs.enter_context(promise.run(member, "Local Grad P")))
        for _ in range(steps):
            g = sum(curator.release("gradient", w) for curator in curators) / len(curators)
            w = w - step * (g + problem.ridge * w)
    return w
