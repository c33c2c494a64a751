"""Private Frank-Wolfe on an L1 ball: one coordinate enters per step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import Curator, Full, GumbelTopK, LaplaceMax, Plan, Release, SparseVector
from sordino.kernel.contracts import Point
from sordino.problems.problem import Problem
from sordino.problems.scores import VertexScores
from sordino.solvers.base import Options, among, count, positive
from sordino.solvers.capabilities import Capabilities
from sordino.solvers.pace import target_unit
from sordino.solvers.vectors import hard_threshold, starting_point, vector_sum

STEPS = 20
RADIUS, NUMBERS = 10.0, 2.0  # for labels, and for numbers in units of their bound


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
        options=("radius", "selection"),
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
    def configured(cls, problem: Problem, options: Options) -> FrankWolfe:
        """Fill what the user left open from public facts."""
        extra = options.chosen(radius=_radius(problem), selection="gumbel")
        free = math.prod(problem.shape)
        steps = (
            min(options.n_nonzero_coefs or STEPS, STEPS, free)
            if options.max_iter is None
            else options.max_iter
        )
        return cls(
            options.n_nonzero_coefs,
            count("max_iter", steps),
            options.peak(problem),
            positive("radius", extra["radius"]),
            among("selection", extra["selection"], ("gumbel", "laplace")),
        )

    def plan(self, problem: Problem) -> Plan:
        """Declare the selections."""
        query = VertexScores(problem.loss, self.clip, problem.ridge * problem.population)
        mechanism = GumbelTopK() if self.selection == "gumbel" else LaplaceMax()
        lazy = problem.outputs == 1 and self.selection == "gumbel"
        return problem.planned(vertex=Release(query, mechanism, Full(), self.steps, mean=False, lazy=lazy))

    def run(self, curator: Curator, problem: Problem) -> Iterator[Point]:
        """Yield the iterates."""
        size = math.prod(problem.shape)
        w = starting_point(problem.shape, problem.n_intercepts, curator.plan.releases["vertex"].lazy)
        for t in range(1, self.steps + 1):
            chosen = int(curator.release("vertex", w)[0])
            g = 2.0 / (t + 2.0)
            vertex = self._vertex(chosen, size, isinstance(w, SparseVector)) * g
            w = vector_sum((1.0 - g) * w, vertex if isinstance(w, SparseVector) else vertex.reshape(w.shape))
            yield w if self.sparsity is None else hard_threshold(w, self.sparsity, problem.n_intercepts)

    def _vertex(self, chosen: int, size: int, sparse: bool) -> Any:
        sign, at = (1.0, chosen) if chosen < size else (-1.0, chosen - size)
        vertex = SparseVector(np.array([at]), np.array([sign * self.radius]), size)
        return vertex if sparse else vertex.to_dense()


def _radius(problem: Problem) -> float:
    size = NUMBERS * target_unit(problem) if problem.loss.targets == "numbers" else RADIUS
    return size / problem.data_norm
