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
from sordino.solvers.heavy.location import location_release, median_of
from sordino.solvers.heavy.shares import noise_of
from sordino.solvers.heavy.trees import counts_below, quantiles_of, support


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

    Without bounds the cells grow from a rough private median outwards, so answers move with the data, and an
    answer stays between the outermost nodes that stand out of the noise: an extreme quantile of few records
    is drawn inwards, never thrown out to the end of the grid.

    **Privacy.** One Gaussian release, and the halvings of a median without bounds. Intervals are quantiles
    at ranks ``q n -+`` the errors of the noise and of sampling, so they cost nothing.
    """

    probabilities: tuple[float, ...]
    bounds: tuple[float, float] | None = None
    depth: int = 14
    confidence: float = 0.95

    def plan(self, problem: Sample) -> Plan:
        """Declare the halvings, if any, and the tree."""
        query = RankTree(problem.columns, self.depth, self.bounds)
        tree = Release(query, problem.gaussian(), mean=False)
        if self.bounds is not None:
            return problem.planned(tree=tree)
        return problem.planned(location=location_release(problem), tree=tree)

    def run(self, curator: Curator, problem: Sample) -> Iterator[Ranks]:
        """Yield the quantiles of each column."""
        query: RankTree = curator.plan.releases["tree"].query  # type: ignore[assignment]
        center = (
            np.zeros(problem.columns)
            if self.bounds is not None
            else median_of(curator, problem.population, problem.columns, near=0.0)
        )
        q, noise = np.asarray(self.probabilities), noise_of(curator, "tree", None)
        n = problem.population
        margins = RankMargins(self.depth, self.confidence).at(noise, np.sqrt(n * q * (1.0 - q)))
        out = []
        for nodes, middle in zip(curator.release("tree", center), center, strict=True):
            below = counts_below(nodes, self.depth, n)
            value = quantiles_of(below, n, q * n, query.edges, self.bounds)
            value = np.clip(value, *support(below, query.edges, self.bounds, noise))
            low, high = outer_borders(interval_cells(below, q * n, margins), query.edges, self.bounds)
            out.append([middle + value, middle + np.minimum(low, value), middle + np.maximum(high, value)])
        yield Ranks(*np.stack(out, axis=-1))
