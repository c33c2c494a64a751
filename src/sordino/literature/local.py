"""Baselines of joint learning: every party for itself, and noise that every party adds alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sordino.accounting import certify
from sordino.accounting.conversions import gaussian_epsilon
from sordino.errors import InvalidInputError
from sordino.execute import LocalExecutor
from sordino.kernel import Curator, Full, NoiseSource, NormGamma, PaperNoise, Plan, Relation, Release
from sordino.kernel.arrays import Floats
from sordino.kernel.events import laplace_event, repeated
from sordino.literature import formulas
from sordino.literature.formulas import Claimed, Uncertified
from sordino.parties.mpc.tasks import OutputPerturbation, WeightedMinimiser
from sordino.problems.minimiser import CertifiedMinimiser, TiltedMinimiser
from sordino.problems.problem import Problem
from sordino.problems.queries import GlmGradient
from sordino.runs import Ask, Promise, Task, run

# ------------------- What parties do without a secure sum, as printed, and the epsilon that it really gives


@dataclass(frozen=True)
class ObjectiveNoise:
    """The linear term and the extra curvature of Chaudhuri, Monteleoni, Sarwate 2011.

    ``left`` is what the change of variables leaves of epsilon for the linear term, ``extra`` the curvature
    that has to be added where it leaves nothing.
    """

    left: float
    extra: float


def objective_noise(epsilon: float, records: int, strength: float, curvature: float) -> ObjectiveNoise:
    r"""Return ``eps' = eps - ln(1 + 2c/(n lam) + c^2/(n lam)^2)``, or ``eps / 2`` with curvature ``Delta``.

    For rows and slopes of norm at most 1 and replace-one. Without the correction (as in the dissertation's
    baseline) the release is not private at all where ``eps' <= 0``.

    Examples
    --------
    >>> round(objective_noise(0.5, 500, 1e-2, 0.25).left, 5)
    0.40242
    """
    if not (epsilon > 0 and strength > 0 and curvature > 0 and records > 0):
        raise InvalidInputError("Expected epsilon, strength, curvature and the number of records > 0.")
    ratio = curvature / (records * strength)
    left = epsilon - math.log(1 + 2 * ratio + ratio**2)
    if left > 0:
        return ObjectiveNoise(left, 0.0)
    return ObjectiveNoise(epsilon / 2, curvature / (records * math.expm1(epsilon / 4)) - strength)


@dataclass(frozen=True)
class PrintedTilt(Uncertified):
    """Minimises an objective with a linear term of density ``exp(-norm2 / scale)``; nothing else.

    The published proof is for the exact minimiser, which no computer returns, so no epsilon is certified.
    :class:`sordino.kernel.TiltedObjective` covers the error of the minimiser and is private.
    """

    printed: ClassVar[str] = "objective perturbation of an approximate minimiser"

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Floats:
        tilt = NormGamma(self.multiplier).privatise(np.zeros(value.size), sensitivity, noise)
        found: Floats = value.minimised(tilt)
        return found


@dataclass(frozen=True)
class LocalObjective:
    """Local Obj P for one party: the minimiser of its randomly tilted objective, the intercept penalised too.

    **Privacy.** None is certified. Claimed is pure epsilon under replace-one, for rows of norm at most 1, a
    slope of at most 1 and the exact minimiser.
    """

    strength: float
    noise: float

    @classmethod
    def as_printed(cls, problem: Problem) -> LocalObjective:
        """Return the solver with its published noise."""
        n, curvature = problem.population, problem.loss.curvature
        found = objective_noise(problem.epsilon, n, problem.ridge, curvature)
        return cls(problem.ridge + found.extra, 2.0 / found.left / problem.relation.contributions)

    def plan(self, problem: Problem) -> Plan:
        """Declare the minimiser; its noise is the printed one already."""
        query = TiltedMinimiser(CertifiedMinimiser.of(problem, 1.0, self.strength))
        return problem.planned(minimiser=Release(query, PrintedTilt(self.noise), Full(), mean=False))

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        yield curator.release("minimiser", np.arange(math.prod(problem.shape))).reshape(problem.shape)


def per_coordinate_laplace(features: int, epsilon: float, delta: float) -> float:
    r"""Return the epsilon of i.i.d. Laplace noise of scale ``D2 / eps`` on an L2 sensitivity ``D2``.

    The dissertation's MPC Out P. Moving all coordinates by ``D2 / sqrt(d)`` is the worst case; it is
    ``sqrt(d) eps`` in pure DP (``delta=0``).
    """
    if delta == 0:
        return math.sqrt(features) * epsilon
    event = repeated(laplace_event(math.sqrt(features) / epsilon), features)
    return certify(event, delta, Relation.ADD_REMOVE).epsilon


def published_gradient_noise(epsilon: float, delta: float, *, table: bool = False) -> tuple[float, float]:
    r"""Return ``(mu, epsilon)`` of the dissertation's MPC Grad P under replace-one.

    Its formula ``s^2 = 8 G^2 T ln(1/delta) / (m n eps)^2`` gives ``mu = eps / sqrt(2 ln(1/delta))``; the
    noise of its table, ``sqrt(2 T) G / (m n eps)``, gives ``mu = sqrt(2) eps``.
    """
    mu = math.sqrt(2) * epsilon if table else epsilon / math.sqrt(2 * math.log(1 / delta))
    return mu, gaussian_epsilon(mu, delta)


def gradient_noise(plan: Plan, budget: Claimed, *, table: bool = False) -> PaperNoise:
    """Return the noise of MPC Grad P on the gradients of a plan: its formula's, or that of its table."""
    (release,) = plan.releases.values()
    squared = 2.0 if table else 8.0 * math.log(1 / budget.delta)
    noise = formulas.multiplier(math.sqrt(squared * release.times) / budget.epsilon, plan.relation)
    return PaperNoise({"gradient": noise}, "MPC Grad P, its table" if table else "MPC Grad P")


def per_iteration_epsilon(epsilon: float, steps: int) -> float:
    """Return what Rajkumar and Agarwal 2012 add up to: their epsilon is that of one iteration."""
    return epsilon * steps


# ----------------------------------------------------------------------------------------------------------
# What parties can do without a secure sum, for comparison, with the guarantees these methods really have.
# Every party protects its own records alone, so the guarantee of a record is the one of its party and the
# whole is as private as the worst party. All of them are simulated in one process. What is printed
# but not private (Local Obj P) is in :mod:`sordino.literature.local`.


@dataclass(frozen=True)
class Pathak(OutputPerturbation):
    """Pathak, Rane, Raj 2010: the noise of a single party on an average of m models.

    Its published scale forgets that the average divides by m; the result is m times too noisy, and private.
    """

    parties: int = 1

    def plan(self, problem: Problem) -> Plan:
        shape = (problem.loss, self.clip, self.strength, problem.population, problem.shape, problem.row_bound)
        query = _Overstated(*shape, factor=float(self.parties))
        return problem.planned(minimiser=Release(query, problem.gaussian(), Full(), mean=False))


@dataclass(frozen=True)
class _Overstated(WeightedMinimiser):
    factor: float = 1.0

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        return self.factor * super().sensitivity(relation, params)


def local_output(members: Sequence[LocalExecutor], problem: Problem, clip: float) -> Floats:
    """Average the models that all parties release on their own (Local Out P).

    **Privacy.** One Gaussian release per party on disjoint records: the guarantee of one release.
    """
    total = np.zeros(problem.shape)
    for member in members:
        own = replace(problem, population=member.population)
        solver = OutputPerturbation(clip, problem.ridge)
        total += run(Task(solver, own, "Local Out P"), member, Ask(problem.epsilon, problem.delta)).result
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
