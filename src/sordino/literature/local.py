"""What parties do without a secure sum, as printed and made sound, and the epsilon that it really gives.

Every party protects its own records alone: the guarantee of a record is that of its party. Rivals of a joint
run are asked as one question. Parties of one record each have minimisers that lie along their rows, so 50,000
of them are a vector of multiples. The noise of m parties who each add their own is one Gaussian of sqrt(m)
times the deviation: the same law as m draws. So such a question has a *factor*: how much more noise than
a joint run the method adds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.accounting import certify
from sordino.accounting.conversions import gaussian_epsilon
from sordino.errors import InvalidInputError
from sordino.kernel import (
    ClippedSum,
    Curator,
    Full,
    NoiseSource,
    NormGamma,
    PaperNoise,
    Plan,
    Relation,
    Release,
)
from sordino.kernel.arrays import Floats
from sordino.kernel.clip import clip_scalars
from sordino.kernel.events import laplace_event, repeat_event
from sordino.kernel.mechanism import TiltedObjective
from sordino.kernel.query import Parts, RecordSums
from sordino.literature import formulas
from sordino.literature.formulas import Uncertified, paper_noise
from sordino.parties.mpc.plan import WeightedMinimiser
from sordino.problems.losses import Loss
from sordino.problems.minimiser import CertifiedMinimiser, TiltedMinimiser
from sordino.problems.problem import Problem
from sordino.problems.queries import GlmGradient
from sordino.runs import Ask

_HALVINGS = 80  # of an interval: what is left is below the rounding of doubles


def objective_noise(epsilon: float, records: int, strength: float, curvature: float) -> tuple[float, float]:
    r"""Return what Chaudhuri, Monteleoni, Sarwate 2011 leave of epsilon for the tilt, and extra curvature.

    ``eps' = eps - ln(1 + 2c/(n lam) + c^2/(n lam)^2)``, or ``eps / 2`` with curvature ``Delta``.
    For rows and slopes of norm at most 1 and replace-one. Without the correction (as in the dissertation's
    baseline) the release is not private at all where ``eps' <= 0``.

    Examples
    --------
    >>> round(objective_noise(0.5, 500, 1e-2, 0.25)[0], 5)
    0.40242
    """
    if not (epsilon > 0 and strength > 0 and curvature > 0 and records > 0):
        raise InvalidInputError("Expected epsilon, strength, curvature and the number of records > 0.")
    ratio = curvature / (records * strength)
    left = epsilon - math.log(1 + 2 * ratio + ratio**2)
    if left > 0:
        return left, 0.0
    return epsilon / 2, curvature / (records * math.expm1(epsilon / 4)) - strength


@dataclass(frozen=True)
class PrintedTilt(Uncertified):
    """Minimises an objective with a linear term of density ``exp(-norm2 / scale)``; nothing else.

    The published proof is for the exact minimiser, which no computer returns, so no epsilon is certified.
    :class:`sordino.kernel.TiltedObjective` covers the error of the minimiser and is private.
    """

    printed: ClassVar[str] = "objective perturbation of an approximate minimiser"

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Floats:
        tilt = NormGamma(self.multiplier).privatise(np.zeros(value.size), sensitivity, noise)
        found: Floats = value.minimise(tilt)
        return found


@dataclass(frozen=True)
class LocalObjective:
    """Local Obj P for one party: the minimiser of its randomly tilted objective, the intercept penalised too.

    **Privacy.** None is certified. Ask is pure epsilon under replace-one, for rows of norm at most 1, a
    slope of at most 1 and the exact minimiser.
    """

    strength: float
    noise: float

    @classmethod
    def as_printed(cls, problem: Problem) -> LocalObjective:
        """Return the solver with its published noise."""
        n, curvature = problem.population, problem.loss.curvature
        left, extra = objective_noise(problem.epsilon, n, problem.ridge, curvature)
        return cls(problem.ridge + extra, 2.0 / left / problem.relation.contributions)

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
    event = repeat_event(laplace_event(math.sqrt(features) / epsilon), features)
    return certify(event, delta, Relation.ADD_REMOVE).epsilon


def published_gradient_noise(epsilon: float, delta: float, *, table: bool = False) -> tuple[float, float]:
    r"""Return ``(mu, epsilon)`` of the dissertation's MPC Grad P under replace-one, by formula or table."""
    mu = 2 / formulas.mpc_gradient(epsilon, delta, steps=1, table=table)
    return mu, gaussian_epsilon(mu, delta)


def gradient_noise(plan: Plan, budget: Ask, *, table: bool = False) -> PaperNoise:
    """Return the noise of MPC Grad P on the gradients of a plan: its formula's, or that of its table."""
    (release,) = plan.releases.values()
    noise = formulas.mpc_gradient(budget.epsilon, budget.delta, steps=release.times, table=table)
    return paper_noise(plan.relation, "MPC Grad P, its table" if table else "MPC Grad P", gradient=noise)


@dataclass(frozen=True)
class SingleMinimisers(ClippedSum):
    r"""The mean of the minimisers of parties with one record each.

    The minimiser of ``l(x . w, y) + lam/2 |w|^2`` is ``a x`` with ``lam a = -l'(a |x|^2, y)``; bisection
    finds all of them at once.

    **Privacy.** With slopes clipped at ``clip / |x|`` it has a norm of at most ``clip / lam``; a party
    without its record has the minimiser zero. So the mean is a sum of contributions of at most
    ``clip / (n lam)``, times ``factor`` if the method adds more noise than that needs.
    """

    loss: Loss
    clip: float
    strength: float
    population: int
    factor: float = 1.0

    def contribution(self, params: Any = None) -> float:
        return self.clip / (self.population * self.strength) * (1 + 1e-12)

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        return self.factor * relation.contributions * self.contribution()

    def multiples(self, records: Any) -> Floats:
        """Return a of each record."""
        most = self.clip / self.strength / np.maximum(records.norms, 1e-300)
        low, high = -most, most.copy()
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            slope = self.loss.residual(middle * records.norms**2, records.targets)
            above = self.strength * middle + clip_scalars(slope, records.norms, self.clip) > 0
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return np.asarray(0.5 * (low + high)) / self.population

    def evaluate(self, records: RecordSums, params: Any = None) -> Floats:
        clipped = clip_scalars(self.multiples(records), records.norms, self.contribution())
        return np.asarray(records.weighted_sum(clipped), dtype=float)


@dataclass(frozen=True)
class SplitMinimisers(WeightedMinimiser):
    """The weighted minimisers of ``parties`` blocks of records that one process holds."""

    parties: int = 1
    factor: float = 1.0

    needs: ClassVar[tuple[type, ...]] = (Parts, RecordSums)
    adds_up: ClassVar[bool] = False

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        return self.factor * super().sensitivity(relation, params)

    def evaluate(self, records: Any, params: Any = None) -> Floats:
        blocks = (records.part(index, self.parties) for index in range(self.parties))
        return np.sum([WeightedMinimiser.evaluate(self, block) for block in blocks], axis=0)


@dataclass(frozen=True)
class Outputs:
    """One release of the parties' minimisers: MPC Out P (factor 1), Pathak et al. (m), Local Out P (sqrt m).

    With ``pure`` the noise has the density ``exp(-eps |x| / sensitivity)`` in L2: epsilon-DP, delta 0.
    """

    clip: float
    strength: float
    parties: int
    factor: float = 1.0
    pure: bool = False

    def plan(self, problem: Problem) -> Plan:
        n = problem.population
        query: Any = SingleMinimisers(problem.loss, self.clip, self.strength, n, self.factor)
        if self.parties < n:
            shape = (problem.loss, self.clip, self.strength, n, problem.shape, problem.row_bound)
            query = SplitMinimisers(*shape, parties=self.parties, factor=self.factor)
        mechanism = NormGamma() if self.pure else problem.gaussian()
        return problem.planned(minimiser=Release(query, mechanism, Full(), mean=False))

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        yield curator.release("minimiser")


@dataclass(frozen=True)
class NoisierGradient(GlmGradient):
    """The sum of clipped gradients with the noise of parties who each add their own."""

    factor: float = 1.0

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        return self.factor * super().sensitivity(relation, params)


@dataclass(frozen=True)
class Gradients:
    """Descent along noisy gradients: Local Grad P (factor sqrt m), Rajkumar and Agarwal 2012 (pure).

    They state the epsilon of one iteration; here ``steps`` are certified together, with more noise.
    """

    clip: float
    steps: int
    step: float
    factor: float = 1.0
    pure: bool = False

    def plan(self, problem: Problem) -> Plan:
        mechanism = NormGamma() if self.pure else problem.gaussian()
        query = NoisierGradient(problem.loss, self.clip, factor=self.factor)
        return problem.planned(gradient=Release(query, mechanism, Full(), self.steps))

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        w = np.zeros(problem.shape)
        for _ in range(self.steps):
            w = w - self.step * (curator.release("gradient", w) + problem.penalty_gradient(w))
            yield w


@dataclass(frozen=True)
class Tilted:
    """Objective perturbation with a proof for the minimiser's error; curvature pays for the determinants."""

    clip: float

    def plan(self, problem: Problem) -> Plan:
        needed = problem.loss.curvature * problem.row_bound**2 / problem.population
        strength = max(problem.ridge, needed / math.expm1(problem.epsilon / 4))
        query = TiltedMinimiser(CertifiedMinimiser.of(problem, self.clip, strength))
        mechanism = TiltedObjective(jacobian=query.jacobian)
        return problem.planned(minimiser=Release(query, mechanism, Full(), mean=False))

    run = LocalObjective.run


def printed_draws(law: type[Any], scale: float, count: int) -> Floats:
    """Return draws of printed noise around zero: nothing of any record is in them."""
    return np.asarray(law(scale).privatise(np.zeros(count), 1.0, NoiseSource.from_os()))
