r"""What parties do without a secure sum, as printed, and the epsilon that it really gives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.accounting import certify
from sordino.accounting.conversions import gaussian_epsilon
from sordino.errors import InvalidInputError
from sordino.kernel import Curator, Full, NoiseSource, NormGamma, PaperNoise, Plan, Relation, Release
from sordino.kernel.arrays import Floats
from sordino.kernel.events import laplace_event, repeated
from sordino.papers import formulas
from sordino.papers.formulas import Claimed
from sordino.papers.uncertified import Uncertified
from sordino.problems.minimiser import CertifiedMinimiser, TiltedMinimiser
from sordino.problems.problem import Problem


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
        """Draw the linear term and minimise."""
        tilt = NormGamma(self.multiplier).privatise(np.zeros(value.size), sensitivity, noise)
        found: Floats = value.minimised(tilt)
        return found


@dataclass(frozen=True)
class LocalObjective:
    """Local Obj P for one party: the minimiser of its randomly tilted objective.

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
        """Yield the minimiser."""
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
