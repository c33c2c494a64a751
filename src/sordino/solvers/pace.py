"""How far to step on noisy gradients: a rule on public and released numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from sordino.kernel import Curator
from sordino.kernel.arrays import Floats
from sordino.problems.problem import Problem

# What a last margin may carry of noise, in units of the targets: more hides the signal, less stops short of
# it. With a threshold noise decides which coefficients survive, so it has to be less.
DENSE, SPARSE, NUMBERS = 1.2, 0.4, 0.15
MOMENTUM = 0.9
# Without noise a step is at most so many times one over the largest curvature that a record can have.
LONGEST = 1e4


@dataclass
class Pace:
    r"""The step of number t: doubling from one over the largest curvature, up to what noise and data allow.

    ``largest`` is where the noise of all steps adds up to its share of a margin; one over the largest
    curvature seen between two released gradients is the other limit. Both gradients carry noise, and the
    second point that of the first, which looks like curvature: its expectation is known and subtracted.
    All in units of a row of norm one and of the targets, so that no unit of the data matters.

    **Privacy.** Post-processing of released gradients and of the planned noise.
    """

    first: float
    largest: float
    energy: float
    taken: int = 0
    curvature: float = 0.0
    earlier: tuple[Floats, Floats, float] | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        curator: Curator,
        name: str,
        problem: Problem,
        margin_noise: float,
        momentum: float = MOMENTUM,
        used: float = 1.0,
    ) -> Pace:
        """Return the pace of a planned gradient that is used in so many steps."""
        release = curator.plan.releases[name]
        std = float(release.mechanism.multiplier or 0.0) * release.sensitivity(curator.plan.relation)
        std /= release.sampling.expected(problem.population)
        first = 1.0 / (problem.curvature * problem.row_bound**2 + problem.penalty_curvature)
        budget = margin_noise * bearable(problem) * (1 - momentum) / problem.row_bound
        noisy = used * math.sqrt(release.times) * std
        largest = min(LONGEST * first, budget / noisy) if noisy else LONGEST * first
        energy = (1 + momentum) * std**2 * math.prod(problem.shape)
        return cls(min(first, largest), largest, energy)

    def after(self, point: Floats, gradient: Floats) -> float:
        """Return the step from a point with this gradient."""
        if self.earlier is not None:
            moved, changed = point - self.earlier[0], gradient - self.earlier[1]
            self.curvature = max(self.curvature, self._seen(moved, changed, self.earlier[2]))
        step = min(self.largest, self.first * 2.0 ** min(self.taken, 100))
        step = min(step, 1.0 / self.curvature) if self.curvature > 0 else step
        self.earlier, self.taken = (point, gradient, step), self.taken + 1
        return step

    def _seen(self, moved: Floats, changed: Floats, step: float) -> float:
        length = float(np.square(moved).sum())
        return (float((moved * changed).sum()) - step * self.energy) / length if length > 0 else 0.0


def target_unit(problem: Problem) -> float:
    """Return the unit of margins: the bound of numbers, one for labels and logarithms of counts."""
    return max(problem.target_bound, 1e-300) if problem.loss.targets == "numbers" else 1.0


def bearable(problem: Problem) -> float:
    """Return the noise of a margin that one unit of budget stands for.

    The noise of a label's margin is squashed; that of a number adds to its error, and numbers are mostly well
    within their bound.
    """
    return (NUMBERS if problem.loss.targets == "numbers" else 1.0) * target_unit(problem)


def in_units(problem: Problem) -> float:
    """Return a typical coefficient: one that moves a margin by its unit along a row at the bound."""
    return target_unit(problem) / problem.row_bound
