"""Two stages: blocks of records vote for a support, then a strongly convex fit on it is released."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import (
    Curator,
    Full,
    GumbelTopK,
    Norm,
    Plan,
    Relation,
    Release,
    SparseVector,
    TiltedObjective,
)
from sordino.kernel.contracts import Parts, Point, RowBlocks
from sordino.problems.glm import GlmGradient
from sordino.problems.minimiser import CertifiedMinimiser, TiltedMinimiser, convex_clip
from sordino.problems.problem import Problem
from sordino.problems.scores import flat_coordinates, intercept_coordinates, without_intercept
from sordino.solvers.base import Options, among, count, distinguishable, positive
from sordino.solvers.capabilities import CURVED, Capabilities
from sordino.solvers.sparse.transfer import default_strength
from sordino.solvers.vectors import hard_threshold

BLOCK_STEPS = 2
BLOCKS = 8  # times sqrt(n): votes are what stands out of the noise, and blocks of few records agree on a word


@dataclass(frozen=True)
class BlockVotes:
    r"""How many of ``blocks`` disjoint blocks propose each coordinate; ``params`` is not used.

    A block proposes the support of its own (non-private) hard-thresholded fit.

    **Privacy.** A record is in one block, and whatever that block proposes adds 0 or 1 to a count: every
    count moves by at most 1 under both relations. They move in both directions, so nothing is monotone.
    """

    needs: ClassVar[tuple[type, ...]] = (Parts,)

    gradient: GlmGradient
    problem: Problem
    blocks: int
    sparsity: int
    step: float
    steps: int = BLOCK_STEPS

    norm = Norm.LINF
    adds_up: ClassVar[bool] = False  # blocks are shares of the whole table

    def contribution(self, params: Any = None) -> float:
        """Return 1."""
        return 1.0

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        """Return 1 for both relations."""
        return 1.0

    def evaluate(self, records: Parts, params: Any = None) -> SparseVector:
        """Return the counts, zero where nobody voted."""
        votes = [self._proposal(records.part(b, self.blocks)) for b in range(self.blocks)]
        indices, counts = np.unique(np.concatenate(votes), return_counts=True)
        return SparseVector(indices, counts.astype(float), self.problem.features * self.problem.outputs)

    def _proposal(self, records: RowBlocks) -> Any:
        problem = self.problem
        w = np.zeros(problem.shape)
        for _ in range(self.steps):
            mean = self.gradient.evaluate(records, w) / max(records.count, 1)
            w = hard_threshold(
                w - self.step * (mean + problem.ridge * w), self.sparsity, problem.n_intercepts
            )
        return np.flatnonzero(without_intercept(w, problem.features))


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
        options=("blocks", "stage2", "strength"),
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
    def configured(cls, problem: Problem, options: Options) -> TwoStage:
        """Fill what the user left open from public facts."""
        extra = options.chosen(blocks=None, stage2="output", strength=None)
        stage2 = among("stage2", extra["stage2"], ("output", "objective"))
        n, free = problem.population, problem.features * problem.outputs
        many = max(1, min(BLOCKS * math.isqrt(n), n // 4))
        blocks = many if extra["blocks"] is None else extra["blocks"]
        strength = _strength(problem, stage2) if extra["strength"] is None else extra["strength"]
        return cls(
            distinguishable(problem, min(free, options.n_nonzero_coefs or 10)),
            convex_clip(problem, options.clip_norm),
            positive("strength", strength),
            count("blocks", blocks, n),
            options.step(problem),
            stage2,
        )

    def plan(self, problem: Problem) -> Plan:
        """Declare the votes and the restricted fit."""
        gradient = GlmGradient(problem.loss, self.clip)
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
        """Yield the coefficients."""
        chosen = curator.release("support")
        chosen = flat_coordinates(chosen, problem.features, problem.columns)
        at = np.concatenate([chosen, intercept_coordinates(problem.shape, problem.n_intercepts)])
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
