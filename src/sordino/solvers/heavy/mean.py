"""Means, variances and covariances of heavy-tailed data (Algorithms 1 and 3 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from sordino.errors import InvalidInputError
from sordino.kernel import Curator, Plan, Release, SymmetricGaussian
from sordino.kernel.arrays import Floats
from sordino.problems.robust import RobustSum, Truncation
from sordino.problems.sample import Sample
from sordino.problems.scales import ColumnScales, PairMoments, PairScales, RankTree
from sordino.solvers.heavy.shares import noise_of, share_relative
from sordino.solvers.heavy.threshold import Tail, known_bias, moment_threshold
from sordino.solvers.heavy.trees import quantiles_of

_CLIP = Truncation()
LOCATION_DEPTH = 12  # cells of 3 % of their value: enough to truncate around
_CROWD = 40.0  # records per noise width of a count from which a median is found, not made up
SCALE_SHARE = 0.1  # of the budget, for the histogram of scales: it costs 5 % more noise


@dataclass(frozen=True)
class RobustEstimate:
    """A released value with the sizes of its three errors; all of it is post-processing.

    ``noise`` is a standard deviation; ``sampling`` and ``bias`` are bounds, the first with half of the
    allowed failure probability, the second under the moment condition.
    """

    value: Floats
    threshold: Floats
    noise: Floats
    sampling: Floats
    bias: Floats

    def interval(self, confidence: float) -> tuple[Floats, Floats]:
        """Return the two ends: noise at half the failure probability, plus the two bounds."""
        reach = special.ndtri(1.0 - (1.0 - confidence) / 4.0)
        half = reach * self.noise + self.sampling + self.bias
        return self.value - half, self.value + half


@dataclass(frozen=True)
class RobustMean:
    r"""The mean of truncated records, or the coordinate-wise median of truncated block means, with noise.

    Parameters
    ----------
    order : v, the data has a moment of order 1 + v.
    bound : u with ``E|x_j - center_j|^(1+v) <= u``; None learns the scale from a noisy histogram.
    fixed : a public threshold that replaces the choice.
    truncation : to the edge (default) or to zero (paper), with or without a joint clip.
    blocks : 1 for the truncated mean, m for the median of m block means.
    center : the public point around which values are truncated; None learns a rough median, for another
        tenth of the budget.
    failure : xi, in the threshold of a known moment.
    confidence : of the interval.

    **Privacy.** One Gaussian release, and one more each for a learned centre and learned scales.
    """

    order: float
    bound: float | None
    center: Floats | None
    truncation: Truncation = _CLIP
    blocks: int = 1
    fixed: float | None = None
    failure: float = 0.05
    confidence: float = 0.95

    @property
    def _learns(self) -> bool:
        return self.bound is None and self.fixed is None

    def plan(self, problem: Sample) -> Plan:
        """Declare the histogram, if any, and the mean."""
        if problem.secure_noise and self.blocks > 1:
            raise InvalidInputError("secure_noise=True is not proven for medians. Use estimator='truncated'.")
        query = RobustSum(problem.columns, self.truncation, self.blocks)
        hint, releases = problem.gaussian(share_relative(SCALE_SHARE)), {}
        if self.center is None:
            tree = RankTree(problem.columns, LOCATION_DEPTH)
            releases["location"] = Release(tree, hint, mean=False)
        if self._learns:
            releases["scales"] = Release(ColumnScales(problem.columns), hint, mean=False)
        releases["mean"] = Release(query, problem.gaussian(), mean=False)
        return problem.planned(**releases)

    def run(self, curator: Curator, problem: Sample) -> Iterator[RobustEstimate]:
        """Yield the estimate."""
        z = self.blocks * noise_of(curator, "mean", None)  # of the mean, in units of threshold / n
        center = self._location(curator, problem) if self.center is None else self.center
        tails = self._tails(curator, center) if self._learns else None
        n, width = problem.population, problem.columns
        if tails is not None:
            cut = np.array([tail.threshold(z) for tail in tails])
        else:
            cut = np.full(width, self._known_threshold(z, n))
        answer = curator.release("mean", (center, cut)) * (self.blocks / n)
        bias, second = self._errors(tails, cut, n)
        sampling = sampling_error(second, cut, n, self.blocks, 1.0 - self.confidence)
        yield RobustEstimate(center + cut * answer, cut, z * cut / n, sampling, bias)

    def _known_threshold(self, z: float, n: int) -> float:
        if self.fixed is not None:
            return self.fixed
        log = math.log(1.0 / self.failure)
        return moment_threshold(float(self.bound or 0.0), self.order, n, z, log)

    def _location(self, curator: Curator, problem: Sample) -> Floats:
        """Return a rough median of each column; zero where the records are too few to see one."""
        n, width = problem.population, noise_of(curator, "location", None)
        tree: RankTree = curator.plan.releases["location"].query  # type: ignore[assignment]
        nodes, middle = curator.release("location"), np.array([n / 2.0])
        if n < _CROWD * width:
            return np.zeros(problem.columns)
        found = [quantiles_of(c, tree.depth, n, middle, tree.edges, None)[0] for c in nodes]
        return np.array(found)

    def _tails(self, curator: Curator, center: Floats) -> list[Tail]:
        counts = curator.release("scales", center)
        width = noise_of(curator, "scales", center)
        return [Tail.read(c, width, 1.0 + self.order) for c in counts]

    def _errors(self, tails: list[Tail] | None, cut: Floats, n: int) -> tuple[Floats, Floats]:
        """Return bounds of the bias and of the second moment of the truncated values."""
        zero = self.truncation.zero
        if tails is not None:
            pairs = [
                (tail.bias(t, n, 1, zero), tail.moment(t, n, 2)) for tail, t in zip(tails, cut, strict=True)
            ]
            bias, second = np.array(pairs).T
        elif self.bound is not None:
            v, u = self.order, self.bound
            bias = np.array([known_bias(u, v, t, zero) for t in cut])
            second = u * cut ** (1.0 - v)
        else:
            bias, second = np.full(cut.shape, math.inf), cut**2
        if self.fixed is not None or self.truncation.joint is not None:
            bias = np.full(cut.shape, math.inf)  # no moment of one column tells what these hide
        return bias, np.minimum(second, cut**2)


@dataclass(frozen=True)
class RobustMoments:
    r"""Variances (or the covariance matrix) from differences of pairs, which need no location.

    ``Cov = E[(x - x')(x - x')^T] / 2``. The squared differences have a moment of order 1 + v.

    **Privacy.** Histograms of the scales of the differences, then one Gaussian release of their truncated
    second moments. A record is in one pair only.
    """

    order: float
    products: bool = False
    confidence: float = 0.95

    def plan(self, problem: Sample) -> Plan:
        """Declare the histograms and the second moments."""
        hint = problem.gaussian(share_relative(SCALE_SHARE))
        releases = {"scales": Release(PairScales(problem.columns), hint, mean=False)}
        if self.products:
            releases["norms"] = Release(PairScales(problem.columns, norms=True), hint, mean=False)
        noise: Any = SymmetricGaussian() if self.products else problem.gaussian()
        query = PairMoments(problem.columns, self.products)
        releases["moments"] = Release(query, noise, mean=False)
        return problem.planned(**releases)

    def run(self, curator: Curator, problem: Sample) -> Iterator[RobustEstimate]:
        """Yield the estimate."""
        pairs, index = problem.population // 2, 2.0 * (1.0 + self.order)
        counts = curator.release("scales")
        tails = [Tail.read(c, noise_of(curator, "scales", None), index) for c in counts]
        z = noise_of(curator, "moments", None)
        if self.products:
            yield self._covariance(curator, tails, z, pairs)
            return
        cut = np.array([tail.threshold(z) for tail in tails])
        value = np.maximum(curator.release("moments", cut) / pairs, 0.0) * cut**2
        bias = np.array([t.bias(c, pairs, 2) for t, c in zip(tails, cut, strict=True)])
        fourth = np.array([t.moment(c, pairs, 4) for t, c in zip(tails, cut, strict=True)])
        sampling = sampling_error(fourth, cut**2, pairs, 1, 1.0 - self.confidence)
        yield RobustEstimate(value, cut, z * cut**2 / pairs, sampling, bias)

    def _covariance(self, curator: Curator, tails: list[Tail], z: float, pairs: int) -> RobustEstimate:
        typical = np.sqrt([tail.moment(tail.edge, pairs, 2) for tail in tails])
        counts = curator.release("norms", typical)[0]
        tail = Tail.read(counts, noise_of(curator, "norms", None), 2.0 * (1.0 + self.order))
        cut = tail.threshold(z)
        unit = np.outer(typical, typical)
        value = curator.release("moments", typical * cut) / pairs * cut**2 * unit
        noise = z * cut**2 / pairs * unit * np.where(np.eye(len(unit)) > 0, 1.0, math.sqrt(0.5))
        fourth = np.array([tail.moment(cut, pairs, 4)])
        sampling = sampling_error(fourth, np.array([cut**2]), pairs, 1, 1.0 - self.confidence)[0]
        bias = tail.bias(cut, pairs, 2)
        return RobustEstimate(positive(value), typical * cut, noise, sampling * unit, bias * unit)


def sampling_error(second: Floats, bound: Floats, n: float, blocks: int, failure: float) -> Floats:
    r"""Bound the deviation of the truncated (median of block) mean with half of the failure probability.

    Mean: Bernstein's ``sqrt(2 V L / n) + 2 b L / (3 n)``, L = ln(4 / failure), for values in [-b, b].
    Median of m block means: each deviates by at most ``sqrt(V m / (n p))`` with probability 1 - p
    (Chebyshev), and p is such that half of the blocks fail with probability at most failure / 2.
    """
    if blocks == 1:
        log = math.log(4.0 / failure)
        return np.sqrt(2.0 * second * log / n) + 2.0 * bound * log / (3.0 * n)
    half = (blocks + 1) // 2
    p = special.betaincinv(half, blocks - half + 1, failure / 2.0)
    return np.sqrt(second * blocks / (n * p))


def positive(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T
