"""Quantiles from one noisy tree of counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sordino.kernel import Curator, Plan, Release
from sordino.problems.sample import Sample
from sordino.problems.scales import REACH, RankTree
from sordino.solvers.heavy.mean import noise_of

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
        # A rank is a sum of at most ``depth`` noisy counts before least squares, which only helps.
        margin = reach * np.hypot(width * np.sqrt(self.depth), np.sqrt(n * q * (1.0 - q)))
        ranks = np.stack([q * n, q * n - margin, q * n + margin])
        out = []
        for counts in curator.release("tree"):
            below = np.maximum.accumulate(np.cumsum(consistent(counts, self.depth, n)))
            out.append(read_ranks(np.maximum(below, 0.0), ranks, query.edges, self.bounds))
        value, low, high = np.stack(out, axis=-1)
        yield Ranks(value, low, high)


def consistent(nodes: Floats, depth: int, total: float) -> Floats:
    r"""Return leaf counts that agree with all levels in the least-squares sense and sum to ``total``."""
    starts = np.cumsum([0, *(2**level for level in range(1, depth + 1))])
    levels = [nodes[a:b] for a, b in itertools.pairwise(starts)]
    best = [levels[-1]]
    for height, level in enumerate(levels[-2::-1], start=2):  # upwards: own count and children's sum
        own = 2.0 ** (height - 1) / (2.0**height - 1.0)
        best.insert(0, own * level + (1.0 - own) * best[0].reshape(-1, 2).sum(axis=1))
    parents = np.array([float(total)])
    for level in best:  # downwards: children share what their parent disagrees with
        pairs = level.reshape(-1, 2)
        parents = (pairs + (parents - pairs.sum(axis=1))[:, None] / 2.0).reshape(-1)
    return parents


def read_ranks(below: Floats, ranks: Floats, edges: Floats, bounds: tuple[float, float] | None) -> Floats:
    """Return the values at the ranks; linear within a cell, the finite border in an outermost one."""
    low, high = bounds if bounds is not None else (edges[0], edges[-1])
    left, right = np.concatenate([[low], edges]), np.concatenate([edges, [high]])
    cell = np.minimum(np.searchsorted(below, ranks, side="left"), below.size - 1)
    before = np.where(cell > 0, below[cell - 1], 0.0)
    inside = np.clip((ranks - before) / np.maximum(below[cell] - before, 1e-9), 0.0, 1.0)
    value = left[cell] + inside * (right[cell] - left[cell])
    # Without bounds the two cells next to zero hold the zeros.
    return value if bounds is not None else np.where(np.abs(value) < np.exp2(-REACH), 0.0, value)
