"""What update rules share: vectors that are sparse or dense, momentum, and the pace of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeAlias, overload

import numpy as np

from sordino.kernel import Curator, LazyVector, Plan, Release, Sampling, SparseVector
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.query import Point
from sordino.problems.problem import Problem
from sordino.problems.queries import GlmGradient
from sordino.solvers.base import Option, noise_std
from sordino.values import among, check_range

# ----------------------------------------------------------- Maps of released vectors: free post-processing

AnyVector: TypeAlias = Point | LazyVector


@overload
def hard_threshold(vector: Floats, count: int | None, kept: int = 0) -> Floats: ...


@overload
def hard_threshold(vector: AnyVector, count: int | None, kept: int = 0) -> Point: ...


def hard_threshold(vector: AnyVector, count: int | None, kept: int = 0) -> Point:
    """Keep the ``count`` largest magnitudes; the last ``kept`` columns are always kept.

    ``count=None`` keeps everything. A matrix is thresholded as a whole.
    """
    if isinstance(vector, LazyVector):
        return vector.hard_threshold(vector.size - kept if count is None else count, kept)
    if isinstance(vector, SparseVector):
        return _threshold_sparse(vector, count, kept)
    out = np.array(vector, dtype=float)
    free = out[..., : out.shape[-1] - kept]
    if count is None or count >= free.size:
        return out
    sizes = np.abs(free).reshape(-1)
    drop = np.argpartition(sizes, sizes.size - count)[: sizes.size - count]
    flat = np.array(free).reshape(-1)
    flat[drop] = 0.0
    out[..., : out.shape[-1] - kept] = flat.reshape(free.shape)
    return out


def _threshold_sparse(vector: SparseVector, count: int | None, kept: int) -> SparseVector:
    free = np.flatnonzero(vector.indices < vector.size - kept)
    if count is None or count >= free.size:
        return vector
    best = free[np.argpartition(np.abs(vector.values[free]), free.size - count)[free.size - count :]]
    chosen = np.concatenate([best, np.flatnonzero(vector.indices >= vector.size - kept)])
    return SparseVector(vector.indices[chosen], vector.values[chosen], vector.size)


def starting_point(shape: tuple[int, ...], kept: int, sparse: bool) -> Point:
    """Return zero, as a sparse vector for solvers that can stay sparse."""
    if sparse and len(shape) == 1:
        return SparseVector.zeros(shape[0], kept)
    return np.zeros(shape)


@overload
def vector_sum(left: Point, right: Point) -> Point: ...


@overload
def vector_sum(left: AnyVector, right: AnyVector) -> AnyVector: ...


def vector_sum(left: Any, right: Any) -> AnyVector:
    """Return the sum of two vectors of any kind: dense, sparse or lazy."""
    if isinstance(left, LazyVector) or isinstance(right, LazyVector):
        left, right = (left, right) if isinstance(left, LazyVector) else (right, left)
        return left + (right if isinstance(right, SparseVector) else as_sparse(right))
    if isinstance(left, SparseVector) and isinstance(right, SparseVector):
        indices, slots = np.unique(np.concatenate([left.indices, right.indices]), return_inverse=True)
        both = np.concatenate([left.values, right.values])
        values = np.bincount(slots, both, minlength=indices.size).astype(np.float64, copy=False)
        return SparseVector(indices, values, left.size)
    return dense(left) + dense(right)


def add_at(w: Point, at: Ints, change: Floats) -> Point:
    """Return ``w`` with ``change`` added at flat coordinates."""
    if isinstance(w, SparseVector):
        return vector_sum(w, SparseVector(at, change, w.size))
    out = np.array(w)
    out.reshape(-1)[at] += change
    return out


def dense(vector: Point) -> Floats:
    """Return a dense or sparse vector as an array."""
    return vector.to_dense() if isinstance(vector, SparseVector) else np.asarray(vector, dtype=float)


def as_sparse(vector: Point, kept: int = 0) -> SparseVector:
    """Return the non-zeros of a vector, and its last ``kept`` entries whatever they are."""
    if isinstance(vector, SparseVector):
        return vector
    marked = vector != 0
    marked[marked.size - kept :] = True
    indices = np.flatnonzero(marked)
    return SparseVector(indices, vector[indices], vector.size)


# -------------- Momentum on released iterates: free post-processing, and sparse as long as the iterates are
# Momentum is taken on differences of *thresholded* iterates and not on a running mean of noisy gradients:
# such a mean is dense, and the lazy step of :mod:`sordino.kernel.lazy` would no longer be exact with it.

KINDS = ("none", "heavy-ball", "nesterov")


@dataclass(frozen=True)
class Momentum:
    r"""How the last move is carried on, with weight ``beta`` in [0, 1).

    ``"heavy-ball"``: ``w <- H_k(w - step g(w) + beta (w - previous))``.
    ``"nesterov"``: ``w <- H_k(y - step g(y))`` at ``y = w + beta (w - previous)``.

    **Privacy.** Both are functions of released iterates and public constants.
    """

    kind: str = "none"
    beta: float = 0.9

    def __post_init__(self) -> None:
        among("momentum", self.kind, KINDS)
        check_range("momentum_weight", self.beta, "[0, 1)")

    @property
    def weight(self) -> float:
        """The weight of the last move: 0 without momentum."""
        return 0.0 if self.kind == "none" else self.beta

    def ask_point(self, w: Point, previous: Point) -> Point:
        """Return where the gradient is asked."""
        return self._carry(w, previous) if self.kind == "nesterov" else w

    def step_point(self, w: Point, previous: Point) -> Point:
        """Return the point that the gradient step starts from."""
        return w if self.kind == "none" else self._carry(w, previous)

    def _carry(self, w: Point, previous: Point) -> Point:
        return vector_sum((1.0 + self.beta) * w, -self.beta * previous)


MOMENTUM_OPTIONS = {"momentum": Option("none", KINDS), "momentum_weight": Option(0.9, "[0, 1)")}


class GradientPlan:
    """A plan of one question: the clipped gradient, ``steps`` times, on batches drawn by ``sampling``."""

    steps: int
    clip: float
    sampling: Sampling

    def plan(self, problem: Problem) -> Plan:
        query = GlmGradient(problem.loss, self.clip)
        release = Release(query, problem.gaussian(), self.sampling, self.steps, lazy=self._lazy(problem))
        return problem.planned(gradient=release)

    def _lazy(self, problem: Problem) -> bool:
        return False


# --------------------------- How far to step on noisy gradients: a rule on public and released numbers only

# How much noise the margins of the last iterate may carry, in units of the targets: more hides the signal,
# less ends the steps too early. With a threshold noise chooses coefficients, so there has to be less of it.
DENSE, SPARSE, NUMBERS = 1.2, 0.8, 0.15
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
        std, times = noise_of(curator, name, problem), curator.plan.releases[name].times
        first = 1.0 / (problem.curvature * problem.row_bound**2 + problem.penalty_curvature)
        budget = margin_noise * bearable(problem) * (1 - momentum) / problem.row_bound
        noisy = used * math.sqrt(times) * std
        largest = min(LONGEST * first, budget / noisy) if noisy else LONGEST * first
        energy = (1 + momentum) * std**2 * math.prod(problem.shape)
        return cls(min(first, largest), largest, energy)

    def after(self, point: Floats, gradient: Floats) -> float:
        """Return the step from a point with this gradient."""
        if self.earlier is not None:
            moved, changed = point - self.earlier[0], gradient - self.earlier[1]
            length, along = float(np.square(moved).sum()), float((moved * changed).sum())
            along -= self.earlier[2] * self.energy
            self.curvature = max(self.curvature, along / length if length > 0 else 0.0)
        step = min(self.largest, self.first * 2.0 ** min(self.taken, 100))
        step = min(step, 1.0 / self.curvature) if self.curvature > 0 else step
        self.earlier, self.taken = (point, gradient, step), self.taken + 1
        return step

    def move(self, point: Floats, gradient: Floats) -> Floats:
        """Return the move from a point with this gradient."""
        return self.after(point, gradient) * gradient


# A margin of logistic regression at which its slope is one or zero, and one by which it is moved to see how
# steep the slopes are.
SATURATION, SHIFT = 30.0, 1.5
# APART: how much more noise margins may carry across the shared direction; later steps take back what lies
# along it. PROBING: the least number of steps of which two may be spent on finding it. LOOKS: the shares of
# the steps after which slopes are looked at. SUREST: how many times longer steps get at most.
APART, PROBING, LOOKS, SUREST = 1.4, 10, (0.3, 0.6), 8.0


@dataclass
class SharedPace(Pace):
    r"""The pace where rows share a direction: short steps along it, long ones across it.

    The curvature along the mean of the rows, intercept included, is that of all records, and most of a row
    may lie there; what is left is at most ``row_bound^2 - |mean|^2``, and only that multiplies the noise of
    long steps. The mean costs two of the planned gradients: those at a large positive and a large negative
    intercept differ by it, since a slope is one or zero there. Its known noise is taken out of its length.
    Two more gradients, beside the iterate, tell how far margins are from where they decide: sure margins bend
    little and bear noise, so that all steps may be longer.

    **Privacy.** Post-processing of released gradients and of the planned noise.
    """

    axis: Floats = field(default_factory=lambda: np.zeros(0), repr=False)
    short: float = math.inf
    longer: float = 1.0  # by how much slopes that were looked at lengthen steps
    doubt: float = 0.0  # the deviation of a difference of two mean slopes

    @staticmethod
    def fits(problem: Problem, steps: int) -> bool:
        """Tell whether the mean can be had from gradients: one margin a record, whose slope is bounded."""
        plain = problem.unit == "record" and problem.weight_bound == 1.0 and problem.outputs == 1
        return plain and problem.n_intercepts == 1 and problem.loss.name == "logistic" and steps >= PROBING

    @staticmethod
    def beside(point: Floats, problem: Problem, margin: float = SHIFT) -> Floats:
        """Return a point whose intercept moves all margins."""
        moved = np.array(point)
        moved[-1] += margin / problem.intercept
        return moved

    @classmethod
    def across(cls, pace: Pace, curator: Curator, name: str, problem: Problem, mean: Floats) -> SharedPace:
        """Return the pace with a noisy mean of the rows with their intercept entry."""
        expected = curator.plan.releases[name].sampling.expected(problem.population)
        std, sampled = noise_of(curator, name, problem), float(expected < problem.population) / expected
        features, size = mean[:-1], problem.features
        noise, length = 2 * std**2 * size + problem.data_norm**2 * sampled, float(features @ features)
        left = max(0.0, length - noise)
        axis = np.append(features * (left / length if left else 0.0), problem.intercept)
        shared = float(axis @ axis)
        unsure = 2 * math.sqrt((4 * length * noise + 2 * noise**2) / size)
        rest = min(max(problem.row_bound**2 - shared, 0.0) + unsure, problem.data_norm**2)
        longer = APART * problem.row_bound / math.sqrt(rest) if rest > 0 else LONGEST
        largest = min(LONGEST * pace.first, longer * pace.largest)
        return cls(
            min(pace.first, largest),
            largest,
            pace.energy,
            axis=axis / math.sqrt(shared),
            short=1.0 / (problem.curvature * shared + problem.penalty_curvature),
            doubt=math.sqrt(2 * (std / problem.intercept) ** 2 + 0.2 * sampled),
        )

    def look(self, here: Floats, there: Floats, problem: Problem) -> None:
        """Learn from the gradients at a point and :meth:`beside` it how far noise on margins matters."""
        steep = (float(there[-1] - here[-1]) / problem.intercept + 2 * self.doubt) / SHIFT
        longer = min(max(1.0, problem.curvature / max(steep, 1e-3)), SUREST)
        change, self.longer = longer / self.longer, longer
        self.largest, self.short = change * self.largest, change * self.short
        self.curvature /= longer**2

    def move(self, point: Floats, gradient: Floats) -> Floats:
        along = float(self.axis @ gradient)
        rest = gradient - along * self.axis
        step = self.after(point - float(self.axis @ point) * self.axis, rest)
        return step * rest + min(step, self.short) * along * self.axis


def noise_of(curator: Curator, name: str, problem: Problem) -> float:
    """Return the deviation of the noise in each entry of a planned mean gradient."""
    return noise_std(curator, name) / curator.plan.releases[name].sampling.expected(problem.population)


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
