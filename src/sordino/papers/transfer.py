r"""DPSL-KT as printed: the responses of a sparse teacher, under a noise that its proof does not carry."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import Curator, Full, NoiseSource, Norm, Plan, Printed, Relation, Release
from sordino.kernel.arrays import Floats
from sordino.kernel.contracts import RecordSums
from sordino.kernel.mechanism import Gaussian
from sordino.papers.formulas import Claimed
from sordino.papers.uncertified import Uncertified
from sordino.problems.glm import GlmGradient
from sordino.problems.problem import Problem
from sordino.solvers.sparse.transfer import Transfer, largest_curvature, with_intercept
from sordino.solvers.vectors import hard_threshold

TEACHER_STEPS = 200
_OVERESTIMATE = 1.1  # of largest_curvature, which is meant for step sizes


def response_noise(solver: Transfer, problem: Problem, budget: Claimed) -> float:
    r"""Return the printed standard deviation, ``sqrt(8 m b s g^2 ln(2.5/delta)) / (n eps lam)``.

    b is the largest eigenvalue of the second moments of the public features, as they estimate it; g the
    bound on the largest entry of a gradient.
    """
    if solver.mode != "R" or solver.sparsity is None:
        raise InvalidInputError(
            "The published DPSL-KT releases responses of a sparse teacher. Set n_nonzero_coefs and "
            "solver_options={'mode': 'R', 'public_features': ...}."
        )
    x = solver.features
    spread = largest_curvature(x) / _OVERESTIMATE / x.shape[0]
    peak = problem.gradient_bound * max(problem.data_norm, problem.intercept) / problem.row_bound
    variance = 8 * x.shape[0] * spread * solver.sparsity * peak**2 * math.log(2.5 / budget.delta)
    return math.sqrt(variance) / (problem.population * budget.epsilon * solver.strength)


@dataclass(frozen=True, eq=False)
class SparseResponses(Printed):
    """What the sparse minimiser of plain hard thresholding says about public features.

    **Privacy.** None: the minimiser is discontinuous in the records, so its sensitivity does not fall with
    their number. The declared one is a unit in which :class:`PrintedResponses` states its noise.
    """

    printed: ClassVar[str] = "DPSL-KT with its sparse teacher"
    needs: ClassVar[tuple[type, ...]] = (RecordSums,)
    norm: ClassVar[Norm] = Norm.L2
    adds_up: ClassVar[bool] = False

    gradient: GlmGradient
    problem: Problem
    teacher: Transfer

    def contribution(self, params: Any = None) -> float:
        """Return 1, a unit and no bound."""
        return 1.0

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        """Return 1, a unit and no bound."""
        return 1.0

    def evaluate(self, records: Any, params: Any = None) -> Floats:
        """Return the exact responses of the teacher."""
        problem, strength = self.problem, self.teacher.strength
        step = 1.0 / (problem.curvature * problem.row_bound**2 + strength)
        w = np.zeros(problem.shape)
        for _ in range(TEACHER_STEPS):
            slope = self.gradient.evaluate(records, w) / problem.population + strength * w
            w = hard_threshold(w - step * slope, self.teacher.sparsity, problem.n_intercepts)
        margins: Floats = with_intercept(self.teacher.features, problem.intercept) @ w.T
        return margins


@dataclass(frozen=True)
class PrintedResponses(Uncertified):
    """Adds the printed Gaussian noise to responses; no epsilon is certified for it."""

    printed: ClassVar[str] = "DPSL-KT with its sparse teacher"

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Floats:
        """Add the noise."""
        found: Floats = Gaussian(self.multiplier).privatise(value, sensitivity, noise)
        return found


@dataclass(frozen=True, eq=False)
class SparseTeacher:
    """DPSL-KT: the printed teacher and its noisy responses, then the student of :class:`Transfer`."""

    responses: SparseResponses

    @classmethod
    def of(cls, solver: Transfer, problem: Problem) -> SparseTeacher:
        """Return the printed form of a solver."""
        return cls(SparseResponses(GlmGradient(problem.loss, problem.gradient_bound), problem, solver))

    def plan(self, problem: Problem) -> Plan:
        """Declare the responses."""
        return problem.planned(teacher=Release(self.responses, PrintedResponses(), Full(), mean=False))

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        """Yield the student."""
        answer = curator.release("teacher")
        yield self.responses.teacher.student(answer, np.zeros(problem.shape), problem)
