"""The last steps of a model of quantiles: from least squares to the share of targets that is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sordino.kernel import Curator
from sordino.kernel.arrays import Floats
from sordino.problems.affine import Affine, AffineGradient
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.problems.queries import GradientCounts, sure
from sordino.solvers.base import noise_std
from sordino.solvers.correction import FLAT, Corrected, Whole
from sordino.solvers.descent import NOTHING, Moments, grid_cells, penalty_bend

# How often residuals are counted, slopes and offset asked for together, and the offset alone; their shares.
SPREADS, SLOPES, OFFSETS = 2, 8, 6
SPREAD, RANKS = 0.06, 0.44
# A density is that of this share of the records around the quantile, or of those beyond it.
_AROUND = 0.2
# A quantile is rounded off over so much of where they lie, or less by the cube root of this number over
# records times epsilon.
_ROUNDED, _ENOUGH = 0.25, 100.0
# Slopes follow ranks where the noise of that moves margins by no more than this part of where they lie.
_WORTH = 0.5

# So many records times epsilon, at least, are needed to count residuals.
_FEW = 1000.0
# Mapped rows with their constant entry are no longer, so that no clip bites.
_LONGEST = 1.031


def tells_ranks(problem: Problem) -> bool:
    """Return whether counts tell where the targets lie around a model; without noise plain steps do."""
    return bool(problem.intercept) and _FEW <= problem.population * problem.epsilon < math.inf


def rank_queries(problem: Problem) -> dict[str, tuple[Any, int, float]]:
    """Return the questions about a quantile with how often they are asked and their shares."""
    loss: Any = replace(problem.loss, threshold=1.0)  # type: ignore[type-var]
    cells = grid_cells(replace(problem, population=max(problem.population // 10, 1)))
    clip = loss.lipschitz * _LONGEST
    return {
        "spread": (GradientCounts(LOSSES["squared"], cells), SPREADS, SPREAD),
        "ranks": (AffineGradient(loss, clip, whole=True), SLOPES + OFFSETS, RANKS),
    }


def with_squares(problem: Problem) -> Problem:
    """Return the problem that a model of quantiles starts from: that of least squares."""
    return replace(problem, loss=LOSSES["squared"])


@dataclass(frozen=True, eq=False)
class Ranks:
    """What is asked about the share of targets below a model, whose rows no clip shortens."""

    whole: Whole
    quantile: float

    @property
    def curator(self) -> Curator:
        return self.whole.curator

    @property
    def flat(self) -> tuple[Affine, float]:
        """The map that leaves the constant alone, and by how much it makes rows smaller."""
        smaller = FLAT / self.whole.longest
        return self.whole.affine(smaller, 1.0), smaller

    def locate(self, w: Floats) -> tuple[float, float, float]:
        """Return how far the quantile is above a model, the share of the records around it, and how near.

        Counts of residuals say it that stand out of their noise.
        """
        affine, smaller = self.flat
        unit, noise = 2.0 * self.whole.widest, noise_std(self.curator, "spread")
        counts = self.curator.release("spread", (self.whole.point(w, affine, smaller, unit), affine, unit))
        query: Any = self.curator.plan.releases["spread"].query
        kept = np.where(counts > sure(counts.size) * noise, counts, 0.0) / self.whole.problem.population
        shares, sizes = np.append(kept[1][::-1], kept[0]), unit * query.sizes
        if not shares.any():
            return 0.0, 1.0, unit
        edges = sizes * 2.0 ** (0.5 / query.cells)
        borders = np.concatenate([-edges[::-1], [0.0], edges])
        below = np.append(0.0, np.cumsum(shares)) / shares.sum()
        middle = float(np.interp(self.quantile, below + 1e-12 * np.arange(below.size), borders))
        near, least = kept.sum(axis=0).cumsum(), min(_AROUND, self.quantile, 1.0 - self.quantile)
        at = int(np.argmax(near >= min(least, near[-1])))
        return middle, float(near[at]), float(edges[at])

    def share(self, w: Floats, affine: Affine, smaller: float, width: float) -> Floats:
        """Return the mean of rows, by what share of targets is below the model too many, over a width."""
        answer = self.curator.release(
            "ranks", (self.whole.point(w, affine, smaller, width), affine, None, width)
        )
        return np.asarray(answer) / self.whole.problem.population


def rank_steps(
    whole: Whole, quantile: float, before: Corrected, moments: Moments | None
) -> tuple[Corrected, float]:
    r"""Return the model after steps to the share of targets below it, and the noise of its offset.

    ``w - a_k P (g_k / 2 f + penalty'(w))`` with the density f of the targets around the quantile, the inverse
    P of the second moments of rows, and ``a_k = 2 / (k + 1)``: all answers count, and a density that is off
    by some factor costs little. The offset alone is asked for last, in shorter steps.

    **Privacy.** Post-processing of the releases ``"spread"`` and ``"ranks"``.
    """
    asked, w, constant = Ranks(whole, quantile), before.w.copy(), whole.own.intercept
    size, n = whole.targets.size, whole.problem.population
    for _ in range(SPREADS):
        middle, share, near = asked.locate(w)
        w[-1] += middle / (size * constant)
    bend = share / near  # twice the density
    width = near * min(_ROUNDED, (_ENOUGH / max(n * whole.problem.epsilon, 1e-12)) ** (1.0 / 3.0))
    noise, slopes, after = noise_std(whole.curator, "ranks") / (n * bend * size), 0, before
    if moments is not None:
        matrix = moments.matrix + penalty_bend(whole.problem, whole.own)
        sizes, axes = np.linalg.eigh(matrix)
        pace = 1.0 / (np.maximum(sizes, 0.0) + max(moments.unsure, NOTHING))
        left = math.sqrt(4.0 / (3.0 * SLOPES)) * noise
        moved = left * math.sqrt(float(np.square(pace) @ np.maximum(sizes, 0.0)))
        slopes = SLOPES if moved * size <= _WORTH * near else 0
        d = whole.own.scale.size
        added = (axes * (left * pace))[:d]
        after = Corrected(w, 0.0, False, np.zeros_like(matrix), added) if slopes else before
    for k in range(1, slopes + 1):
        found = asked.share(w, whole.own, 1.0, width) / (bend * size) + whole.penalty(w)
        w = w - 2.0 / (k + 1) * axes @ (pace * (axes.T @ found))
    affine, smaller = asked.flat
    asks = SLOPES + OFFSETS - slopes
    for k in range(1, asks + 1):
        found = asked.share(w, affine, smaller, width)
        w[-1] -= 2.0 / (k + 2) * found[-1] / (bend * size * constant)
    return replace(after, w=w), noise * size * math.sqrt(4.0 / (3.0 * asks))
