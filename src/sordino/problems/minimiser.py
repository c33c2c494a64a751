r"""The minimiser of a strongly convex objective, with a certificate that makes its sensitivity true.

Let ``L(t) = (1/n) sum_i l_i(t) + (lam/2) ||t||^2`` and let C bound every ``||grad l_i||``. Minimisers of
neighbours are at most ``c C / (n lam)`` apart, c = 1 (add-remove) or 2 (replace-one): strong convexity gives
``lam ||t - t'||^2 <= <grad L(t') - grad L'(t'), t' - t>``, and the two objectives differ by c terms over n.
A point with ``||grad L|| <= g`` is within ``g / lam`` of the minimiser, so certified points of neighbours are
at most ``c C / (n lam) + 2 g / lam`` apart. This needs a convex domain: a sparsity constraint is not allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel import Norm, Relation
from sordino.problems.glm import check_clip, clip_residuals
from sordino.problems.losses import Loss
from sordino.problems.problem import Problem

Floats = NDArray[np.float64]
_RELATIVE = 1e-3  # the tolerance in units of C / n: it adds a thousandth to the sensitivity


@dataclass(frozen=True)
class CertifiedMinimiser:
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

    norm = Norm.L2

    def __post_init__(self) -> None:
        check_clip(self.clip)
        if not 0 < self.strength < math.inf:
            raise InvalidInputError(f"Expected a strength of the regulariser > 0, got {self.strength}.")
        if not math.isfinite(self.loss.curvature):
            raise UnsupportedError(
                f"No certified minimiser for the {self.loss.name} loss: its curvature has no bound. "
                "Use a solver that asks for gradients, for example 'ight'."
            )
        if len(self.shape) > 1 and self.clip < self.loss.lipschitz * self.row_bound:
            raise UnsupportedError(
                f"Expected clip_norm >= {self.loss.lipschitz * self.row_bound:.4g} for several outputs, got "
                f"{self.clip:g}: clipped gradients of several outputs are not those of a convex loss."
            )

    @classmethod
    def of(cls, problem: Problem, clip: float, strength: float) -> CertifiedMinimiser:
        """Return the query of a task."""
        return cls(problem.loss, clip, strength, problem.population, problem.shape, problem.row_bound)

    @property
    def tolerance(self) -> float:
        """The norm of the gradient that is certified; never below what doubles can resolve."""
        rounding = 4 * self.population * float(np.finfo(float).eps)
        return self.clip * max(_RELATIVE / self.population, rounding)

    def contribution(self, params: Any = None) -> float:
        """Return the bound when a record is added or removed."""
        return self.sensitivity(Relation.ADD_REMOVE, params)

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        """Return the largest distance of certified points of neighbours."""
        exact = relation.contributions * self.clip / (self.population * self.strength)
        return exact + 2 * self.tolerance / self.strength

    def evaluate(self, records: Any, params: Any = None) -> Floats:
        """Return a certified point: the coefficients, or their entries at the released coordinates."""
        size = math.prod(self.shape)
        at = slice(None) if params is None else np.asarray(params)
        start = np.zeros(size)[at]
        found = minimise(lambda t: self._gradient(records, t, at), start, self._curvature, self)
        return found.reshape(self.shape) if params is None else found

    @property
    def _curvature(self) -> float:
        return self.loss.curvature * self.row_bound**2 + self.strength

    def _gradient(self, records: Any, point: Floats, at: Any) -> Floats:
        w = np.zeros(math.prod(self.shape))
        w[at] = point
        residual = self.loss.residual(records.margins(w.reshape(self.shape)), records.targets)
        total = records.weighted_sum(clip_residuals(residual, records.norms, self.clip))
        picked: Floats = total.reshape(-1)[at] / self.population + self.strength * point
        return picked


def minimise(
    gradient: Callable[[Floats], Floats], start: Floats, curvature: float, query: CertifiedMinimiser
) -> Floats:
    """Return a point whose gradient is certified below ``query.tolerance``.

    Accelerated steps first; in exact arithmetic they are certified within a number of steps that is known
    in advance. Should rounding prevent that, plain gradient descent from zero shrinks the gradient by
    ``1 - lam / curvature`` each step, so its last point is certified by arithmetic alone.
    """
    limit = query.tolerance / 2  # the other half is for the rounding of the gradient itself
    condition = curvature / query.strength
    decades = math.log(query.clip / limit)
    beta = (math.sqrt(condition) - 1) / (math.sqrt(condition) + 1)
    point = previous = start
    for _ in range(math.ceil(2 * math.sqrt(condition) * (2 * decades + math.log(2 * condition))) + 1):
        ahead = point + beta * (point - previous)
        slope = gradient(ahead)
        if np.linalg.norm(slope) <= limit:
            return ahead
        point, previous = ahead - slope / curvature, point
    return _descend(gradient, start, curvature, limit, math.ceil(condition * decades) + 1)


def _descend(
    gradient: Callable[[Floats], Floats], start: Floats, curvature: float, limit: float, steps: int
) -> Floats:
    point = start
    for _ in range(steps):
        slope = gradient(point)
        if np.linalg.norm(slope) <= limit:
            break
        point = point - slope / curvature
    return point


@dataclass(frozen=True)
class MinimiserResponses:
    r"""Margins of public features at the certified minimiser: ``params`` = None.

    **Privacy.** The whole vector moves by at most ``operator_bound`` times what the minimiser moves, with
    ``operator_bound`` an upper bound of the operator norm of the features (intercept column included).
    """

    minimiser: CertifiedMinimiser
    responses: Callable[[Floats], Floats]
    operator_bound: float

    norm = Norm.L2

    def contribution(self, params: Any = None) -> float:
        """Return the bound when a record is added or removed."""
        return self.operator_bound * self.minimiser.contribution(params)

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        """Return the largest distance of the responses of neighbours."""
        return self.operator_bound * self.minimiser.sensitivity(relation, params)

    def evaluate(self, records: Any, params: Any = None) -> Floats:
        """Return the responses."""
        return self.responses(self.minimiser.evaluate(records))
