"""DP-AGD: noisy gradient descent that spends more on a gradient only where less does not help."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sordino.kernel import Curator, Full, GumbelTopK, Plan, Release
from sordino.kernel.arrays import Floats
from sordino.problems.glm import GlmGradient
from sordino.problems.line_search import StepSizeScores
from sordino.problems.problem import Problem
from sordino.solvers.base import Options, count, positive
from sordino.solvers.capabilities import CURVED, STEPS, Capabilities
from sordino.solvers.dense.column_smoothing import checked_strength, smoothed

# So many gradients, fewer where so many records and units of epsilon for each are not there.
GRADIENTS, FEWEST, RECORDS = 60, 20, 20.0
SEARCH_SHARE = 0.1
STEP_COUNT = 8  # halvings from 32 over the largest curvature: shorter ones win by noise only


@dataclass(frozen=True)
class Agd:
    r"""Noisy gradients with a private line search; where no step helps, the gradient is asked again.

    A portion is one noisy gradient of fixed price. At a point, portions are averaged; a noisy minimum over
    ``{0, step sizes}`` of the clipped objective picks the move. Where 0 wins, the number of portions per
    point grows by ``1 + growth``, the missing ones are asked at the same point and averaged in (the price of
    the difference), and the search is repeated. The run ends when portions or searches are spent.

    **Privacy.** This is a zCDP filter in whole portions: ``portions`` Gaussian releases and ``searches``
    Gumbel selections of fixed prices are planned and paid for. Where they are asked depends on released
    values only, which adaptive composition allows; what is left over at the end stays spent.

    References: Lee and Kifer 2018. Departures: budgets rise in whole portions; Gumbel noise and, under
    add-remove, its monotone price for the search.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="gradients in portions, and private line searches",
        reads=STEPS,
        options=("growth", "objective_clip", "search_share", "searches", "smoothing", "step_count"),
        dense=True,
        paper="DP-AGD",
        losses=CURVED,
    )

    portions: int
    searches: int
    steps: tuple[float, ...]
    clip: float
    objective_clip: float
    growth: float = 0.5
    search_share: float = SEARCH_SHARE
    smoothing: float = 0.0

    @classmethod
    def configured(cls, problem: Problem, options: Options) -> Agd:
        """Fill what the user left open from public facts."""
        extra = options.chosen(
            searches=None,
            step_count=STEP_COUNT,
            objective_clip=None,
            growth=0.5,
            search_share=SEARCH_SHARE,
            smoothing=0.0,
        )
        told = int(min(problem.population * problem.epsilon / RECORDS, GRADIENTS))
        portions = max(told, FEWEST) if options.max_iter is None else options.max_iter
        searches = max(1, 2 * portions // 3) if extra["searches"] is None else extra["searches"]
        wanted = extra["objective_clip"]
        return cls(
            portions,
            count("searches", searches),
            _grid(32 * options.step(problem), count("step_count", extra["step_count"])),
            options.clip(problem),
            _typical_loss(problem) if wanted is None else positive("objective_clip", wanted),
            positive("growth", extra["growth"]),
            positive("search_share", extra["search_share"], 0.9),
            checked_strength(extra["smoothing"]),
        )

    def plan(self, problem: Problem) -> Plan:
        """Declare the portions and the searches."""
        gradient = GlmGradient(problem.loss, self.clip)
        scores = StepSizeScores(
            problem.loss, self.objective_clip, (0.0, *self.steps), problem.penalties, problem.population
        )
        search = GumbelTopK(monotone=True)
        # a release of relative size r and price rho/r^2 at multiplier 1 gets the share times * rho / r^2
        spread = math.sqrt(self.portions * 0.5 / (1 - self.search_share))
        finest = math.sqrt(self.searches * search.rho() / self.search_share)
        return problem.planned(
            gradient=Release(gradient, problem.gaussian(spread), Full(), self.portions),
            search=Release(
                scores, GumbelTopK(monotone=True, relative=finest), Full(), self.searches, mean=False
            ),
        )

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        """Yield the iterates; a search that finds no better point yields the same one again."""
        w, level, left = np.zeros(problem.shape), 1.0, self.portions
        total, asked = np.zeros(problem.shape), 0
        for _ in range(self.searches):
            missing = min(math.ceil(level) - asked, left)
            if missing <= 0 and left == 0:
                return
            for _ in range(missing):
                total, asked = total + curator.release("gradient", w), asked + 1
            left -= missing
            d = smoothed(total / asked + problem.penalty_gradient(w), self.smoothing, problem.n_intercepts)
            best = int(curator.release("search", (w, d))[0])
            if best == 0:
                level = math.ceil(level) * (1 + self.growth)
            else:
                w = w - (0.0, *self.steps)[best] * d
                total, asked = np.zeros(problem.shape), 0
            yield w


def _grid(largest: float, points: int) -> tuple[float, ...]:
    """Return step sizes that halve from the largest."""
    return tuple(largest * 2.0**-i for i in range(points))


def _typical_loss(problem: Problem) -> float:
    """Return five times the largest loss of the model that knows nothing: a public bound to clip losses at.

    A lower clip would forget the records of a rare class, whose losses are large at first.
    """
    shape = (1,) if problem.outputs == 1 else (1, problem.outputs)
    target = np.array([problem.target_bound if problem.loss.targets == "numbers" else 1.0])
    return max(5.0 * float(problem.loss.value(np.zeros(shape), target)[0]), 1e-12)
