"""The minimiser of a strongly convex objective, with a certificate that makes its sensitivity true.

Certified points of neighbours are at most ``c C / (n lam) + 2 g / lam`` apart, c = 1 (add-remove) or 2
(replace-one); the proof is in ``docs/privacy-notes.md``, "Certified minimisers".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel import Norm, Relation
from sordino.kernel.arrays import Floats, Ints, public_norm
from sordino.kernel.clip import clip_scalars, vector_norm
from sordino.kernel.query import Bounded, RecordSums, check_clip
from sordino.problems.losses import Loss
from sordino.problems.problem import Problem
from sordino.problems.queries import weigh

_RELATIVE = 1e-3  # the tolerance in units of C / n: it adds a thousandth to the sensitivity


@dataclass(frozen=True)
class CertifiedMinimiser(Bounded):
    r"""The minimiser over all coordinates, or over released ones (``params`` = flat coordinates).

    Clipping a residual of a single output at ``clip / ||x||`` keeps it monotone in the margin: the clipped
    gradients are those of a convex (Huberised) loss, so the bound holds for every scalar loss with bounded
    curvature. Several outputs must not be clipped, which the clip of :meth:`of` guarantees.

    **Privacy.** Sensitivity in L2 as above. Only a certified point is ever returned; the number of steps
    after which there is one does not depend on the data. The intercept is regularised too.
    """

    loss: Loss
    clip: float
    strength: float
    population: int
    shape: tuple[int, ...]
    row_bound: float
    weight_bound: float = 1.0

    norm = Norm.L2
    adds_up: ClassVar[bool] = False  # a minimiser is no sum

    def __post_init__(self) -> None:
        check_clip(self.clip)
        if not 0 < self.strength < math.inf:
            raise InvalidInputError(f"Expected a strength of the regulariser > 0, got {self.strength}.")
        if not math.isfinite(self.loss.curvature):
            raise UnsupportedError(
                f"No certified minimiser for the {self.loss.name} loss: its curvature has no bound. "
                "Use a solver that asks for gradients, for example 'ight'."
            )
        largest = self.loss.lipschitz * self.row_bound * self.weight_bound
        if len(self.shape) > 1 and self.clip < largest:
            raise UnsupportedError(
                f"Expected clip_norm >= {largest:.4g} for several outputs, got {self.clip:g}: clipped "
                "gradients of several outputs are not those of a convex loss."
            )

    @classmethod
    def of(cls, problem: Problem, clip: float, strength: float) -> CertifiedMinimiser:
        """Return the query of a task."""
        facts = problem.population, problem.shape, problem.row_bound, problem.weight_bound
        return cls(problem.loss, clip, strength, *facts)

    @property
    def tolerance(self) -> float:
        """The norm of the gradient that is certified; never below what doubles can resolve."""
        rounding = 4 * self.population * float(np.finfo(float).eps)
        return self.clip * max(_RELATIVE / self.population, rounding)

    def contribution(self, params: Any = None) -> float:
        return self.sensitivity(Relation.ADD_REMOVE, params)

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        exact = relation.contributions * self.clip / (self.population * self.strength)
        return exact + 2 * self.tolerance / self.strength

    def error(self, params: Any, count: int) -> float:
        """Return 0: a point is certified in doubles, so the sensitivity holds for what is computed."""
        return 0.0

    def evaluate(self, records: RecordSums, params: Any = None) -> Floats:
        """Return a certified point: the coefficients, or their entries at the released coordinates."""
        size = math.prod(self.shape)
        at = slice(None) if params is None else np.asarray(params)
        start = np.zeros(size)[at]
        plan = Descent(self._curvature, self.strength, self.tolerance / 2, self.clip)
        found = minimise(lambda t: self._gradient(records, t, at), start, plan)
        return found.reshape(self.shape) if params is None else found

    @property
    def record_curvature(self) -> float:
        """The largest curvature of one record's loss; declared weights multiply it."""
        return self.loss.curvature * self.weight_bound * self.row_bound**2

    @property
    def _curvature(self) -> float:
        return self.record_curvature + self.strength

    def _gradient(self, records: RecordSums, point: Floats, at: Any) -> Floats:
        w = np.zeros(math.prod(self.shape))
        w[at] = point
        residual = self.loss.residual(records.margins(w.reshape(self.shape)), records.targets)
        if records.weights is not None:  # larger weights than declared would bend the curvature bound
            residual = weigh(residual, np.clip(records.weights, 0.0, self.weight_bound))
        total = records.weighted_sum(clip_scalars(residual, records.norms, self.clip))
        picked: Floats = total.reshape(-1)[at] / self.population + self.strength * point
        return picked


@dataclass(frozen=True)
class Descent:
    """Public bounds that fix the number of steps: largest and smallest curvature, target and first slope."""

    curvature: float
    strength: float
    limit: float  # half of the tolerance: the other half is for the rounding of the gradient itself
    first: float


def minimise(gradient: Callable[[Floats], Floats], start: Floats, plan: Descent) -> Floats:
    """Return a point whose gradient is certified below ``plan.limit``.

    Accelerated steps first; in exact arithmetic they are certified within a number of steps that is known
    in advance. Should rounding prevent that, plain gradient descent from zero shrinks the gradient by
    ``1 - lam / curvature`` each step, so its last point is certified by arithmetic alone.
    """
    condition, limit = plan.curvature / plan.strength, plan.limit
    decades = math.log(max(plan.first / limit, 1.0))
    beta = (math.sqrt(condition) - 1) / (math.sqrt(condition) + 1)
    point = previous = start
    for _ in range(math.ceil(2 * math.sqrt(condition) * (2 * decades + math.log(2 * condition))) + 1):
        ahead = point + beta * (point - previous)
        slope = gradient(ahead)
        if vector_norm(slope) <= limit:
            return ahead
        point, previous = ahead - slope / plan.curvature, point
    return _descend(gradient, start, plan.curvature, limit, math.ceil(condition * decades) + 1)


def _descend(
    gradient: Callable[[Floats], Floats], start: Floats, curvature: float, limit: float, steps: int
) -> Floats:
    point = start
    for _ in range(steps):
        slope = gradient(point)
        if vector_norm(slope) <= limit:
            break
        point = point - slope / curvature
    return point


@dataclass(frozen=True)
class MinimiserResponses(Bounded):
    r"""Margins of public features at the certified minimiser: ``params`` = None.

    **Privacy.** The whole vector moves by at most ``operator_bound`` times what the minimiser moves, with
    ``operator_bound`` an upper bound of the operator norm of the features (intercept column included).
    """

    minimiser: CertifiedMinimiser
    responses: Callable[[Floats], Floats]
    operator_bound: float

    norm = Norm.L2
    adds_up: ClassVar[bool] = False  # a minimiser is no sum

    def contribution(self, params: Any = None) -> float:
        return self.operator_bound * self.minimiser.contribution(params)

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        return self.operator_bound * self.minimiser.sensitivity(relation, params)

    def error(self, params: Any, count: int) -> float:
        """Return the rounding of products of length d with a point of norm at most ``(C + g) / lam``."""
        inner, d = self.minimiser, math.prod(self.minimiser.shape)
        longest = self.operator_bound * math.sqrt(d) * (inner.clip + inner.tolerance) / inner.strength
        return 4 * (d + 16) * 2.0**-53 * longest

    def evaluate(self, records: RecordSums, params: Any = None) -> Floats:
        return self.responses(self.minimiser.evaluate(records))


@dataclass(frozen=True)
class TiltedMinimiser(Bounded):
    r"""The objective of a :class:`CertifiedMinimiser` for noise inside it; ``params`` = flat coordinates.

    **Privacy.** A record's gradient is at most ``clip`` (one output only), see
    :class:`sordino.kernel.TiltedObjective`; its curvature is at most c, so the
    determinants of neighbours differ by a factor of at most ``1 + c / (n lam)``.
    """

    minimiser: CertifiedMinimiser

    norm = Norm.L2
    adds_up: ClassVar[bool] = False  # a minimiser is no sum

    def __post_init__(self) -> None:
        if len(self.minimiser.shape) > 1:
            raise UnsupportedError("Noise inside the objective is proven for one output, not for several.")

    @property
    def jacobian(self) -> float:
        """The bound on the log of the ratio of determinants."""
        inner = self.minimiser
        return math.log1p(inner.record_curvature / (inner.population * inner.strength))

    def contribution(self, params: Any = None) -> float:
        return self.minimiser.clip

    def error(self, params: Any, count: int) -> float:
        """Return 0: output noise covers the tolerance, which holds in doubles."""
        return 0.0

    def evaluate(self, records: RecordSums, params: Any) -> Tilted:
        """Return the objective on these coordinates; it is not an answer before it is tilted."""
        return Tilted(self.minimiser, records, np.asarray(params))


@dataclass(frozen=True, eq=False)
class Tilted:
    """An objective on some records and coordinates, for the mechanism only."""

    minimiser: CertifiedMinimiser
    records: RecordSums
    at: Ints

    @property
    def size(self) -> int:
        return len(self.at)

    @property
    def tolerance(self) -> float:
        """A hundredth of the usual tolerance: the noise that covers it should not be seen."""
        rounding = 4 * self.minimiser.population * float(np.finfo(float).eps)
        return self.minimiser.clip * max(0.01 * _RELATIVE / self.minimiser.population, rounding)

    @property
    def output_sensitivity(self) -> float:
        """How far two approximate minimisers with the same exact one are apart."""
        return 2 * self.tolerance / self.minimiser.strength

    @property
    def travel(self) -> float:
        """How far the minimiser moves per unit of the tilt, by strong convexity."""
        return 1.0 / (self.minimiser.population * self.minimiser.strength)

    def minimise(self, tilt: Floats) -> Floats:
        """Return a certified minimiser of the mean objective plus ``tilt . theta / n``."""
        inner = self.minimiser
        slope = tilt / inner.population
        first = inner.clip + public_norm(slope)  # the noise, not the data
        plan = Descent(inner._curvature, inner.strength, self.tolerance / 2, first)
        start = np.zeros(self.size)
        return minimise(lambda t: inner._gradient(self.records, t, self.at) + slope, start, plan)


def convex_clip(problem: Problem, clip_norm: float | None) -> float:
    """Return the asked clip norm, or a bound of the gradient that leaves several outputs unclipped."""
    if clip_norm is not None:
        return clip_norm
    return problem.gradient_bound * (problem.weight_bound if problem.outputs > 1 else 1.0)
