"""Quantiles from one noisy tree of counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sordino.kernel import Curator, Plan, Release
from sordino.problems.sample import Sample
from sordino.problems.scales import RankTree
from sordino.solvers.heavy.shares import noise_of
from sordino.solvers.heavy.trees import quantiles_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ranks:
    """Released quantiles with the ends of their intervals, shape (probabilities, columns)."""

    value: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class RankQuantiles:
    r"""Any number of quantiles, for one price: the counts in a binary tree of cells, with Gaussian noise.

    Levels are made consistent by least squares (Hay et al. 2010), the counts of the cells are summed from
    below and read off at ``q n``.

    **Privacy.** One Gaussian release. Intervals are quantiles at ranks ``q n -+`` the errors of the noise and
    of sampling, so they cost nothing.
    """

    probabilities: tuple[float, ...]
    bounds: tuple[float, float] | None = None
    depth: int = 14
    confidence: float = 0.95

    def plan(self, problem: Sample) -> Plan:
        """Declare the tree."""
        query = RankTree(problem.columns, self.depth, self.bounds)
        return problem.planned(tree=Release(query, problem.gaussian(), mean=False))

    def run(self, curator: Curator, problem: Sample) -> Iterator[Ranks]:
        """Yield the quantiles of each column."""
        n, width = problem.population, noise_of(curator, "tree", None)
        query: RankTree = curator.plan.releases["tree"].query  # type: ignore[assignment]
        q = np.asarray(self.probabilities)
        reach = special.ndtri(1.0 - (1.0 - self.confidence) / 2.0)
        # A rank, counted from the nearer side, sums at most half the levels; least squares only helps.
        margin = reach * np.hypot(width * np.sqrt((self.depth + 1) / 2), np.sqrt(n * q * (1.0 - q)))
        ranks = np.stack([q * n, q * n - margin, q * n + margin])
        trees = curator.release("tree")
        out = [quantiles_of(c, self.depth, n, ranks, query.edges, self.bounds) for c in trees]
        value, low, high = np.stack(out, axis=-1)
        yield Ranks(value, low, high)
