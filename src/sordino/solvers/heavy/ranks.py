"""Quantiles from one noisy tree of counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sordino.kernel import Curator, Plan, Release
from sordino.kernel.arrays import Floats
from sordino.problems.sample import Sample
from sordino.problems.scales import RankTree
from sordino.solvers.heavy.intervals import RankMargins, interval_cells, outer_borders
from sordino.solvers.heavy.shares import noise_of
from sordino.solvers.heavy.trees import counts_below, quantiles_of


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

    An interval covers, with probability ``confidence``, every sample quantile at q: the records of rank
    ``q n - 1`` to ``q n + 1`` and what lies between, so each of NumPy's definitions, ties or not. It covers
    the population's quantile ``inf {x: F(x) >= q}`` too, as far as the binomial law of ranks is normal.

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
        query: RankTree = curator.plan.releases["tree"].query  # type: ignore[assignment]
        edges, n = query.edges, problem.population
        q = np.asarray(self.probabilities)
        noise = noise_of(curator, "tree", None)
        margins = RankMargins(self.depth, self.confidence).at(noise, np.sqrt(n * q * (1.0 - q)))
        out = []
        for nodes in curator.release("tree"):
            value = quantiles_of(nodes, self.depth, n, q * n, edges, self.bounds)
            cells = interval_cells(counts_below(nodes, self.depth, n), q * n, margins)
            low, high = outer_borders(cells, edges, self.bounds)
            out.append([value, np.minimum(low, value), np.maximum(high, value)])
        yield Ranks(*np.stack(out, axis=-1))
