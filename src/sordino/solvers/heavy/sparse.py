"""Sparse learning from heavy-tailed data (Algorithm 5)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import (
    ClippedSum,
    Curator,
    Disjoint,
    FromSum,
    Full,
    GumbelTopK,
    LaplacePeeling,
    Norm,
    Plan,
    Release,
)
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.contracts import RowBlocks
from sordino.problems.losses import Loss
from sordino.problems.problem import Problem
from sordino.problems.robust import GradientPoint, RobustGradient, Truncation
from sordino.solvers.base import Options, distinguishable
from sordino.solvers.capabilities import CURVED, STEPS, Capabilities
from sordino.solvers.heavy.scaling import Scaling, patience, raw_coefficients
from sordino.solvers.heavy.shares import share_relative

_LEARNED = Scaling()
CAREFUL = (
    0.5  # of a learned step: learned scales are up to 1.4 times too small, and no gradient corrects it here
)

STEPS_TAKEN, LONGER = 10, 10.0  # of the solver of the sparse estimators
OVERSHOOTS = 1.5  # a step this many times as long as the curvature allows; from 2 on it leads away


@dataclass(frozen=True, eq=False)
class Step:
    """A step from a point, on some flat coordinates; all of it public or released before."""

    point: GradientPoint
    length: float
    coordinates: Ints


@dataclass(frozen=True)
class GradientStep(FromSum, ClippedSum):
    r"""``w - length (sum of truncated gradients / records + ridge w)`` on the coordinates of a :class:`Step`.

    **Privacy.** One record moves each coordinate by at most ``lam = length * threshold / records`` (twice
    when replaced): lam in Linf, ``sqrt(coordinates) lam`` in L2, or ``joint lam`` where gradients are clipped
    jointly and that is less. ``records`` is a public constant.
    """

    needs: ClassVar[tuple[type, ...]] = (RowBlocks,)

    loss: Loss
    records: float
    ridge: float = 0.0
    zero: bool = False
    norm: Norm = Norm.LINF
    joint: float | None = None

    @property
    def adds_up(self) -> bool:
        """False: each answer starts from the point."""
        return False

    @property
    def truncation(self) -> Truncation:
        """How a gradient is bounded."""
        return Truncation(zero=self.zero, joint=self.joint)

    def contribution(self, params: Step) -> float:
        """Return lam, or lam times the norm that the coordinates of a truncated gradient can have."""
        length = params.length / self.records
        size = 1 if self.norm is Norm.LINF else params.coordinates.size
        return length * self.truncation.bound(size, params.point.threshold)

    def summed(self, records: RowBlocks, params: Step) -> Floats:
        """Return the sum of truncated gradients."""
        return RobustGradient(self.loss, self.truncation).evaluate(records, params.point)

    def finished(self, total: Floats, params: Step) -> Floats:
        """Return the new point on the asked coordinates."""
        point = params.point
        slope = total / self.records + self.ridge * point.w / np.square(point.scales)
        return (point.w - params.length * slope).reshape(-1)[params.coordinates]


@dataclass(frozen=True)
class HeavyTailedSparse:
    r"""``w <- top-s(w - step (truncated mean gradient))`` with a private choice of the s coordinates.

    Parameters
    ----------
    sparsity : s, the number of coefficients that survive; None keeps all and selects nothing.
    steps : their number T.
    scaling : threshold B, step size and column scales, given or learned.
    split : step t sees the t-th of T chunks (paper); False, better under zCDP, sees all records each time.
    selection : ``"gumbel"`` (one-shot Gumbel top-s, Gaussian values) or ``"peeling"`` (paper, Laplace).
    zero : set truncated entries to zero (paper) instead of clipping them.
    joint : clip the truncated gradient of a record to this norm in units of the threshold: the values of s
        coordinates then move by ``min(sqrt(s), joint) lam``, and an intercept no further than before.

    **Privacy.** Per step one selection (``s lam^2 / (2 beta^2)`` zCDP) and one Gaussian release of the s
    values, with equal shares; or one peeling. The intercept gets a Gaussian release and is never selected.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="truncated gradients, then support and values",
        reads=("n_nonzero_coefs", *STEPS),
        sparse=True,
        weights=False,
        paper="heavy-tailed sparse optimisation",
        page="../heavy-tails",
        losses=CURVED,
    )

    sparsity: int | None
    steps: int
    scaling: Scaling = _LEARNED
    split: bool = False
    selection: str = "gumbel"
    zero: bool = False
    joint: float | None = None

    @classmethod
    def configured(cls, problem: Problem, options: Options) -> HeavyTailedSparse:
        """Fill what the user left open from public facts; ``clip_norm`` is the threshold B.

        Rows of the sparse estimators have a declared bound, and so have entries of a gradient: half of the
        largest one that is usual is the threshold. (A histogram of the entries of rows of text would drown:
        nearly all are zero.) Ten steps, longer than the curvature of a row allows: a few columns have a small
        part of it.
        """
        steps = STEPS_TAKEN if options.max_iter is None else options.max_iter
        cut = options.peak(problem) / 2.0 if options.clip_norm is None else options.clip_norm
        step = LONGER * options.step(problem) if options.step_size is None else options.step_size
        wanted = options.n_nonzero_coefs
        free = problem.features * problem.outputs
        kept = None if wanted is None else distinguishable(problem, wanted, free)
        whole = problem.gradient_bound / cut  # no gradient is longer than the bound of all
        return cls(kept, steps, Scaling(fixed=cut, step=step), joint=max(whole, 1.0))

    def plan(self, problem: Problem) -> Plan:
        """Declare the histograms, the selections and the values."""
        rows = Disjoint(self.steps) if self.split else Full()
        paid = 2 if self.split else 2 * self.steps  # a selection costs as much as its values
        releases = self.scaling.releases(problem, "coordinate", paid, self.steps)
        query = GradientStep(problem.loss, self._records(problem), problem.ridge, self.zero, joint=self.joint)
        for name, mechanism in self._mechanisms(problem).items():
            norm = Norm.LINF if name == "select" else Norm.L2
            asked = replace(query, norm=norm)
            releases[name] = Release(asked, mechanism, rows, self.steps, mean=False)
        return problem.planned(**releases)

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        """Yield the iterates."""
        point, length = self.scaling.start(curator, problem)
        longest, taken = length, list[Taken]()
        refresh = self.scaling.refreshes(self.steps)
        for t in range(self.steps):
            if t in refresh:
                noise = self._noise(curator, problem) * (self.steps if self.split else 1)
                cut, size = self.scaling.threshold(curator, problem.population, point, noise)
                point = replace(point, threshold=cut)
                length = min(
                    length, longest * self._patience(curator, problem, cut / size if size > 0 else 1.0)
                )
            moved = self._move(curator, problem, point, length)
            taken.append(Taken(point.w.ravel(), moved.ravel(), length, self._energy(curator, problem, point)))
            length = steady(taken[-2:], length) if self.scaling.step is None else length
            point = replace(point, w=moved)
            yield raw_coefficients(point, problem.intercept)

    def _records(self, problem: Problem) -> float:
        return problem.population / (self.steps if self.split else 1)

    def _selects(self, problem: Problem) -> bool:
        return self.sparsity is not None and self.sparsity < problem.features * problem.outputs

    def _mechanisms(self, problem: Problem) -> dict[str, Any]:
        if not self._selects(problem):
            return {"values": problem.gaussian()}
        s = int(self.sparsity or 0)
        if self.selection == "gumbel":
            chooser = GumbelTopK(relative=math.sqrt(s), count=s, absolute=True)
            return {"select": chooser, "values": problem.gaussian()}
        peeling = {"select": LaplacePeeling(relative=math.sqrt(5.0 * s), count=s)}
        if not problem.n_intercepts:
            return peeling
        # One more value beside s peeled ones gets a small share.
        return {**peeling, "values": problem.gaussian(share_relative(1.0 / (s + 1)))}

    def _move(self, curator: Curator, problem: Problem, point: GradientPoint, length: float) -> Floats:
        w, out = point.w, np.zeros(point.size)
        free = free_coordinates(w, problem.features)
        kept = np.setdiff1d(np.arange(w.size), free)
        chosen = np.arange(w.size)
        if self._selects(problem):
            best = curator.release("select", Step(point, length, free))
            if self.selection == "gumbel":
                chosen = np.concatenate([free[best], kept])
            else:
                out[free[best.indices]] = best.values
                chosen = kept
        if chosen.size:
            out[chosen] = curator.release("values", Step(point, length, chosen))
        return out.reshape(w.shape)

    def _patience(self, curator: Curator, problem: Problem, cut: float) -> float:
        """Return the share of a learned step that keeps the noise of all steps from carrying the model away.

        ``cut`` is the threshold in units of a typical entry of a gradient, which is a residual.
        """
        if self.scaling.step is not None:
            return 1.0
        values = curator.plan.releases["values" if "values" in curator.plan.releases else "select"].mechanism
        kept = (
            (self.sparsity or 0) + problem.n_intercepts
            if self._selects(problem)
            else math.prod(problem.shape)
        )
        bound = Truncation(joint=self.joint).bound(kept, 1.0) * curator.plan.relation.contributions
        noise = cut * (values.multiplier or 0.0) * bound / self._records(problem) * math.sqrt(kept)
        return min(CAREFUL, patience(noise, self.steps))

    def _energy(self, curator: Curator, problem: Problem, point: GradientPoint) -> float:
        """Return the variance of the noise in a coordinate of a released gradient."""
        if "values" not in curator.plan.releases:
            return 0.0
        release = curator.plan.releases["values"]
        kept = (self.sparsity or 0) + problem.n_intercepts if self._selects(problem) else point.w.size
        step = Step(point, 1.0, np.arange(kept))
        return ((release.mechanism.multiplier or 0.0) * release.sensitivity(curator.plan.relation, step)) ** 2

    def _noise(self, curator: Curator, problem: Problem) -> float:
        """Return the noise of one coordinate in units of ``length * threshold / records``."""
        selects = self._selects(problem)
        mechanism = curator.plan.releases["select" if selects else "values"].mechanism
        size = 1 if selects else problem.columns * problem.outputs
        scale = (mechanism.multiplier or 0.0) * curator.plan.relation.contributions
        return scale * Truncation(joint=self.joint).bound(size, 1.0)


@dataclass(frozen=True, eq=False)
class Taken:
    """A step that was taken: from where, to where, how long, and the variance of a gradient's noise."""

    start: Floats
    end: Floats
    length: float
    energy: float

    @property
    def gradient(self) -> Floats:
        """The released gradient; nan where none was."""
        return np.where(self.end != 0.0, (self.start - self.end) / self.length, np.nan)


def steady(taken: list[Taken], length: float) -> float:
    """Return a step that does not lead away, from the curvature between the last two released gradients.

    Columns that resemble each other bend the loss more than one of them. As in
    :class:`~sordino.solvers.descent.NoisyDescent` the noise that both points share is subtracted.
    """
    if len(taken) < 2:
        return length
    before, last = taken
    moved, changed = last.start - before.start, last.gradient - before.gradient
    both = np.isfinite(changed)
    squared = float(np.square(moved[both]).sum())
    if not squared > 0.0:
        return length
    spurious = before.length * before.energy * float(both.sum())
    curvature = (float((moved * changed)[both].sum()) - spurious) / squared
    return 1.0 / curvature if length * curvature > OVERSHOOTS else length


def free_coordinates(w: Floats, features: int) -> Ints:
    """Return the flat positions that may be thresholded: all but the intercept column."""
    grid = np.arange(np.size(w)).reshape(np.shape(w))
    return grid[..., :features].reshape(-1)
