"""Literature, for comparison: coordinate descent, Frank-Wolfe, peeling, two stages; none beats ``auto``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import (
    Curator,
    Disjoint,
    Full,
    GumbelTopK,
    LaplaceMax,
    LaplacePeeling,
    Norm,
    Plan,
    Relation,
    Release,
    Sampling,
    SparseVector,
    TiltedObjective,
)
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.query import Bounded, Parts, Point, RowBlocks
from sordino.problems import queries
from sordino.problems.minimiser import CertifiedMinimiser, TiltedMinimiser, convex_clip
from sordino.problems.problem import Problem
from sordino.solvers.base import CURVED, FLAGS, Capabilities, Option, Options, distinguishable, noise_std
from sordino.solvers.base import STEPS as STEP_OPTIONS
from sordino.solvers.steps import add_at, bearable, hard_threshold, starting_point, target_unit, vector_sum
from sordino.solvers.transfer import default_strength
from sordino.values import check_range, check_whole

# -------------------- Greedy coordinate descent: choose a coordinate privately, then ask for its derivative

STEPS = 20
# The noise that a margin may carry, in units of the targets; how many times one over the curvature of a row a
# coordinate may step.
MARGIN_NOISE, LONGEST = 0.5, 20.0


def _ridge_pull(problem: Problem, w: Point, at: Ints) -> Floats:
    """Return the gradient of the ridge at some coordinates; intercepts are not penalised."""
    return np.where(at % problem.columns < problem.features, problem.ridge * queries.pick(w, at), 0.0)


@dataclass(frozen=True)
class Coordinate:
    r"""``w_j <- w_j - step (g_j + noise + ridge w_j)`` for the ``block`` coordinates of best noisy ``|g_j|``.

    Intercepts move in every step. Once ``sparsity`` coordinates were chosen, only those stay candidates.

    **Privacy.** Each step is a Gumbel selection (entry-wise bound ``clip``) and a Gaussian release of
    ``block`` + intercept entries, with the same zCDP cost each.

    Beyond the papers: the Gaussian noise is on a few entries instead of all d, which pays when the largest
    entry of a record's gradient is far below its norm (dense rows), and hardly on short text rows.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="the steepest coordinate, then its slope",
        reads=("n_nonzero_coefs", *STEP_OPTIONS),
        options={"block": Option(1)},
        sparse=True,
        dense=True,
        lazy=True,
        paper="greedy coordinate descent",
        page="coordinate",
    )

    sparsity: int | None
    steps: int
    step: float | None
    clip: float
    norm_clip: float
    block: int = 1

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> Coordinate:
        own, free = options.read(cls.capabilities), problem.features * problem.outputs
        block = check_whole("block", own["block"], min(free, options.n_nonzero_coefs or free))
        start = (options.n_nonzero_coefs, options.steps(STEPS), options.step_size)
        return cls(*start, options.peak(problem), problem.gradient_bound, block)

    def plan(self, problem: Problem) -> Plan:
        ridge = problem.ridge * problem.population
        scores = queries.CoordinateScores(problem.loss, self.clip, ridge, problem.features)
        values = queries.RestrictedGradient(problem.loss, self.clip, self.norm_clip)
        # sqrt(block) makes the selection cost as much zCDP as the values.
        select = GumbelTopK(relative=math.sqrt(self.block), count=self.block, absolute=True)
        lazy = problem.outputs == 1
        return problem.planned(
            coordinate=Release(scores, select, Full(), self.steps, mean=False, lazy=lazy),
            derivative=Release(values, problem.gaussian(), Full(), self.steps),
        )

    def run(self, curator: Curator, problem: Problem) -> Iterator[Point]:
        lazy = curator.plan.releases["coordinate"].lazy
        w = starting_point(problem.shape, problem.n_intercepts, lazy)
        always = queries.intercept_coordinates(problem.shape, problem.n_intercepts)
        support = np.empty(0, dtype=np.int64)
        step = self.step_for(curator, problem) if self.step is None else (self.step, self.step)
        for _ in range(self.steps):
            if self.sparsity is not None and support.size + self.block > self.sparsity:
                chosen = support[curator.release("coordinate", (w, support))]
            else:
                chosen = curator.release("coordinate", w)
                chosen = queries.flat_coordinates(chosen, problem.features, problem.columns)
            support = np.union1d(support, chosen)
            at = np.concatenate([chosen, always])
            slope = curator.release("derivative", (w, at)) + _ridge_pull(problem, w, at)
            w = add_at(w, at, -np.repeat(step, (chosen.size, always.size)) * slope)
            yield w

    def step_for(self, curator: Curator, problem: Problem) -> tuple[float, float]:
        r"""Return the steps of a coordinate and of an intercept: functions of public numbers.

        A coordinate is rarely chosen twice, and its curvature is a small part of a row's: its step is where
        the noise of a margin is ``MARGIN_NOISE``, at most ``LONGEST`` over the curvature of a row. An
        intercept moves in every step.
        """
        asked = range(self.block + problem.n_intercepts * problem.outputs)
        noise = noise_std(curator, "derivative", (None, asked))
        noise *= problem.row_bound / (problem.population * MARGIN_NOISE * bearable(problem))
        curvature = problem.curvature * problem.row_bound**2 + problem.penalty_curvature
        often = 1.0 / max(curvature, math.sqrt(self.steps) * noise)
        return 1.0 / max(curvature / LONGEST, noise), often


# ---------------------------------------- Private Frank-Wolfe on an L1 ball: one coordinate enters per step

RADIUS, NUMBERS = 10.0, 2.0  # for labels, and for numbers in units of their bound
_SELECTION = Option("gumbel", ("gumbel", "laplace"))


@dataclass(frozen=True)
class FrankWolfe:
    r"""``w <- (1 - g) w + g v`` with ``g = 2 / (t + 2)`` and v the vertex of best noisy score.

    The vertices are ``+-radius e_j``, intercepts included; T steps give at most T non-zeros. On very sparse
    data the scores of untouched vertices are zero and their noise is drawn only if it can win.

    **Privacy.** T noisy maxima of 2 d scores that one record moves by at most ``clip`` (a bound on the
    largest entry of its gradient). ``selection="gumbel"`` costs ``T / (2 z^2)`` zCDP; ``"laplace"``, the
    paper's, is ``2 / z``-DP per step.

    References: Talwar, Thakurta, Zhang 2015. Departure: gradients are clipped entry-wise by one factor per
    record, so the bound holds for every data set; the ridge term is added outside the clip.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="the best vertex of an L1 ball",
        reads=("n_nonzero_coefs", "max_iter", "clip_norm"),
        options={"radius": Option(None, "(0, inf)"), "selection": _SELECTION},
        sparse=True,
        dense=True,
        lazy=True,
        paper="private Frank-Wolfe",
        page="frank-wolfe",
    )

    sparsity: int | None
    steps: int
    clip: float
    radius: float
    selection: str = "gumbel"

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> FrankWolfe:
        size = NUMBERS * target_unit(problem) if problem.loss.targets == "numbers" else RADIUS
        own = options.read(cls.capabilities, radius=size / problem.data_norm)
        usual = min(options.n_nonzero_coefs or STEPS, STEPS, math.prod(problem.shape))
        steps = check_whole("max_iter", options.steps(usual))
        return cls(options.n_nonzero_coefs, steps, options.peak(problem), own["radius"], own["selection"])

    def plan(self, problem: Problem) -> Plan:
        query = queries.VertexScores(problem.loss, self.clip, problem.ridge * problem.population)
        mechanism = GumbelTopK() if self.selection == "gumbel" else LaplaceMax()
        lazy = problem.outputs == 1 and self.selection == "gumbel"
        return problem.planned(vertex=Release(query, mechanism, Full(), self.steps, mean=False, lazy=lazy))

    def run(self, curator: Curator, problem: Problem) -> Iterator[Point]:
        size = math.prod(problem.shape)
        w = starting_point(problem.shape, problem.n_intercepts, curator.plan.releases["vertex"].lazy)
        for t in range(1, self.steps + 1):
            chosen = int(curator.release("vertex", w)[0])
            sign, at = (1.0, chosen) if chosen < size else (-1.0, chosen - size)
            g = 2.0 / (t + 2.0)
            vertex = SparseVector(np.array([at]), np.array([sign * self.radius * g]), size)
            moved = vertex if isinstance(w, SparseVector) else vertex.to_dense().reshape(w.shape)
            w = vector_sum((1.0 - g) * w, moved)
            yield w if self.sparsity is None else hard_threshold(w, self.sparsity, problem.n_intercepts)


# ----------------------------------------------------------------------------------------------------------
# Peeled gradient steps: choose the support of the next iterate privately, then ask for its values only.

PEELED_STEPS = 5
LONGER = 20.0  # times one over the curvature of a row: a few columns have a small part of it
OFTEN = 4.0  # times the same, for an intercept: its column is a quarter of a row


@dataclass(frozen=True)
class Peeled:
    r"""The k largest entries of ``w - step gradient`` by Gumbel noise, then their values by Gaussian noise.

    **Privacy.** Per step: a one-shot Gumbel top-k (``k / (2 z^2)`` zCDP; entry-wise bound ``clip``) and a
    Gaussian release of k values (and the intercepts) of norm at most ``min(sqrt(k) clip, norm_clip)``, at the
    same cost. ``selection="laplace"`` is the paper's Peeling: k rounds of noisy maxima and Laplace values.
    ``split=True`` gives each step its own part of the records (parallel composition).

    References: Cai, Wang, Zhang 2021; Tao et al. (Algorithm 5). Departures: gradients are clipped by one
    factor per record instead of truncated entry by entry; all records in each step by default, which
    under zCDP needs noise in proportion to sqrt(T) / n instead of T / n.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="the next support, then its values",
        reads=("n_nonzero_coefs", *STEP_OPTIONS),
        options={"selection": _SELECTION, "split": Option(False, FLAGS)},
        sparse=True,
        lazy=True,
        paper="Peeling",
        page="peeled",
    )

    sparsity: int
    steps: int
    step: float
    clip: float
    norm_clip: float
    selection: str = "gumbel"
    split: bool = False
    often: float | None = None

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> Peeled:
        own, free = options.read(cls.capabilities), problem.features * problem.outputs
        steps = options.steps(PEELED_STEPS)
        if own["split"] and steps > problem.population:
            raise InvalidInputError(
                f"Expected max_iter <= the {problem.population} records with split=True, got {steps}."
            )
        return cls(
            distinguishable(problem, min(free, options.n_nonzero_coefs or 50), free),
            steps,
            LONGER * options.step(problem) if options.step_size is None else options.step_size,
            options.peak(problem) / (2.0 if options.clip_norm is None else 1.0),
            problem.gradient_bound,
            own["selection"],
            own["split"],
            OFTEN * options.step(problem),
        )

    def plan(self, problem: Problem) -> Plan:
        n = self._sampling.expected(problem.population)
        scores = queries.MovedScores(
            problem.loss, self.clip, problem.ridge * n, problem.features, weight=n / self.step
        )
        lazy = problem.outputs == 1 and self.selection == "gumbel"
        # sqrt(k) makes the selection cost as much zCDP as the values.
        select: Any = GumbelTopK(relative=math.sqrt(self.sparsity), count=self.sparsity, absolute=True)
        select = LaplacePeeling(count=self.sparsity) if self.selection == "laplace" else select
        top = Release(scores, select, self._sampling, self.steps, mean=False, lazy=lazy)
        if self.selection == "laplace" and not problem.n_intercepts:
            return problem.planned(support=top)
        values = queries.RestrictedGradient(problem.loss, self.clip, self.norm_clip)
        return problem.planned(
            support=top, values=Release(values, problem.gaussian(), self._sampling, self.steps)
        )

    def run(self, curator: Curator, problem: Problem) -> Iterator[Point]:
        w = starting_point(problem.shape, problem.n_intercepts, sparse=curator.plan.releases["support"].lazy)
        for _ in range(self.steps):
            chosen, known = curator.release("support", w), np.empty(0)
            if self.selection == "laplace":  # peeled, in units of the sum: records / step times the iterate
                known = chosen.values * (self.step / self._sampling.expected(problem.population))
                chosen = chosen.indices
            chosen = queries.flat_coordinates(chosen, problem.features, problem.columns)
            w = self._ask_values(curator, problem, w, chosen, known)
            yield w

    def _ask_values(self, curator: Curator, problem: Problem, w: Point, chosen: Ints, known: Floats) -> Point:
        """Return the iterate with support ``chosen``, asking for values that are not ``known``."""
        open_ = np.concatenate(
            [chosen[known.size :], queries.intercept_coordinates(problem.shape, problem.n_intercepts)]
        )
        moved = np.empty(0)
        if open_.size:
            slope = curator.release("values", (w, open_)) + _ridge_pull(problem, w, open_)
            # An intercept, which all records share, would overshoot with the step of a column.
            steps = [self.step, self.step if self.often is None else self.often]
            columns = chosen.size - known.size
            moved = queries.pick(w, open_) - np.repeat(steps, [columns, open_.size - columns]) * slope
        at, values = np.concatenate([chosen[: known.size], open_]), np.concatenate([known, moved])
        out = SparseVector(at, values, math.prod(problem.shape))
        return out if isinstance(w, SparseVector) else out.to_dense().reshape(problem.shape)

    @property
    def _sampling(self) -> Sampling:
        return Disjoint(self.steps) if self.split else Full()


# ----------- Two stages: blocks of records vote for a support, then a strongly convex fit on it is released

BLOCK_STEPS = 2
BLOCKS = 8  # times sqrt(n): votes are what stands out of the noise, and blocks of few records agree on a word


@dataclass(frozen=True)
class BlockVotes(Bounded):
    r"""How many of ``blocks`` disjoint blocks propose each coordinate; ``params`` is not used.

    A block proposes the support of its own (non-private) hard-thresholded fit.

    **Privacy.** A record is in one block, and whatever that block proposes adds 0 or 1 to a count: every
    count moves by at most 1 under both relations. They move in both directions, so nothing is monotone.
    """

    gradient: queries.GlmGradient
    problem: Problem
    blocks: int
    sparsity: int
    step: float
    steps: int = BLOCK_STEPS

    norm = Norm.LINF
    adds_up: ClassVar[bool] = False  # blocks are shares of the whole table

    def contribution(self, params: Any = None) -> float:
        return 1.0

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        return 1.0

    def error(self, params: Any, count: int) -> float:
        """Return 0: counts are exact in doubles, and a block's vote is its own, however it rounds."""
        return 0.0

    def evaluate(self, records: Parts, params: Any = None) -> SparseVector:
        votes = [self._proposal(records.part(b, self.blocks)) for b in range(self.blocks)]
        indices, counts = np.unique(np.concatenate(votes), return_counts=True)
        return SparseVector(indices, counts.astype(float), self.problem.features * self.problem.outputs)

    def _proposal(self, records: RowBlocks) -> Any:
        problem = self.problem
        w = np.zeros(problem.shape)
        for _ in range(self.steps):
            mean = self.gradient.evaluate(records, w) / max(records.count, 1)
            moved = w - self.step * (mean + problem.penalty_gradient(w))
            w = hard_threshold(moved, self.sparsity, problem.n_intercepts)
        return np.flatnonzero(queries.without_intercept(w, problem.features))


@dataclass(frozen=True)
class TwoStage:
    r"""Support by private votes, coefficients by a certified minimiser on it with Gaussian noise.

    **Privacy.** A Gumbel top-k of votes (``k / (2 z^2)`` zCDP) and one Gaussian release in k dimensions, at
    equal cost. Stage 2 sees the released support only. ``stage2="objective"`` puts the noise inside the
    objective instead (:class:`sordino.kernel.TiltedObjective`), for one output.

    References: Kifer, Smith, Thakurta 2012. Departures: votes of about 8 sqrt(n) blocks instead of the
    exponential mechanism over all supports; the minimiser carries a certificate instead of being assumed
    exact.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="a support by votes, then a fit on it",
        reads=("n_nonzero_coefs", "step_size", "clip_norm"),
        options={
            "blocks": Option(),
            "stage2": Option("output", ("output", "objective")),
            "strength": Option(),
        },
        sparse=True,
        paper="Kifer, Smith, Thakurta",
        page="two-stage",
        losses=CURVED,
    )

    sparsity: int
    clip: float
    strength: float
    blocks: int
    step: float
    stage2: str = "output"

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> TwoStage:
        own = options.read(cls.capabilities)
        n, free = problem.population, problem.features * problem.outputs
        many = max(1, min(BLOCKS * math.isqrt(n), n // 4))
        blocks = many if own["blocks"] is None else own["blocks"]
        strength = _strength(problem, own["stage2"]) if own["strength"] is None else own["strength"]
        return cls(
            distinguishable(problem, min(free, options.n_nonzero_coefs or 10)),
            convex_clip(problem, options.clip_norm),
            check_range("strength", strength, "(0, inf)"),
            check_whole("blocks", blocks, n),
            options.step(problem),
            own["stage2"],
        )

    def plan(self, problem: Problem) -> Plan:
        gradient = queries.GlmGradient(problem.loss, self.clip)
        votes = BlockVotes(gradient, problem, self.blocks, self.sparsity, self.step)
        # sqrt(k) makes the selection cost as much zCDP as the fit.
        select = GumbelTopK(relative=math.sqrt(self.sparsity), count=self.sparsity)
        fit = CertifiedMinimiser.of(problem, self.clip, self.strength)
        return problem.planned(
            support=Release(votes, select, Full(), mean=False), fit=self._fit(problem, fit)
        )

    def _fit(self, problem: Problem, fit: CertifiedMinimiser) -> Release:
        if self.stage2 == "output":
            return Release(fit, problem.gaussian(), Full(), mean=False)
        tilted = TiltedMinimiser(fit)
        return Release(tilted, TiltedObjective(jacobian=tilted.jacobian), Full(), mean=False)

    def run(self, curator: Curator, problem: Problem) -> Iterator[Point]:
        chosen = curator.release("support")
        chosen = queries.flat_coordinates(chosen, problem.features, problem.columns)
        at = np.concatenate([chosen, queries.intercept_coordinates(problem.shape, problem.n_intercepts)])
        w = np.zeros(math.prod(problem.shape))
        w[at] = curator.release("fit", at)
        yield w.reshape(problem.shape)


def _strength(problem: Problem, stage2: str) -> float:
    """Return the ridge, or a public default that leaves three quarters of epsilon to the noise inside."""
    strength = problem.ridge or default_strength(problem)
    if stage2 == "output" or not math.isfinite(problem.loss.curvature):
        return strength
    curvature = problem.loss.curvature * problem.weight_bound * problem.row_bound**2
    return max(strength, curvature / (problem.population * math.expm1(min(problem.epsilon, 8.0) / 4)))
