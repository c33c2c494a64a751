"""Variances and covariances of heavy-tailed data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sordino.kernel import Curator, Plan, Release, SymmetricGaussian
from sordino.kernel.arrays import Floats
from sordino.problems.robust import RobustSum
from sordino.problems.sample import Sample
from sordino.problems.scales import EDGES, ColumnScales, PairMoments, PairScales
from sordino.solvers.heavy.bands import RobustEstimate, half_width, reaches, sampling_variance
from sordino.solvers.heavy.location import UNLIMITED, location_release, median_of
from sordino.solvers.heavy.mean import SCALE_SHARE, SIDE, Scales
from sordino.solvers.heavy.shares import noise_of, share_relative
from sordino.solvers.heavy.threshold import Tail


@dataclass(frozen=True)
class RobustVariance:
    r"""``mean a^2 - (mean a)^2`` of values truncated around a rough median, in units of the threshold.

    All records count, whatever their order. The squares have a moment of order 1 + v, on which the interval
    rests if it is ``declared``; if not, on what the released counts and powers show.

    **Privacy.** Halvings for the median, a histogram of the distances from it, then one Gaussian release of
    the truncated values, their squares and their fourth powers, which tell the sampling error.
    """

    order: float
    confidence: float = 0.95
    declared: bool = True
    bounds: tuple[float, float] = UNLIMITED

    def plan(self, problem: Sample) -> Plan:
        """Declare the halvings, the histogram and the powers."""
        hint = problem.gaussian(share_relative(SCALE_SHARE))
        powers = RobustSum(problem.columns, powers=((2, 1.0), (1, SIDE), (4, SIDE)))
        return problem.planned(
            location=location_release(problem, self.bounds),
            scales=Release(ColumnScales(problem.columns), hint, mean=False),
            powers=Release(powers, problem.gaussian(), mean=False),
        )

    def run(self, curator: Curator, problem: Sample) -> Iterator[RobustEstimate]:
        """Yield the estimate."""
        n = problem.population
        center = median_of(curator, n, problem.columns, limits=self.bounds)
        z = noise_of(curator, "powers", None)
        scales = Scales.read(curator, center, 2.0 * (1.0 + self.order))
        cut = np.array([tail.threshold(z, 2) for tail in scales.tails])
        second, first, fourth = curator.release("powers", (center, cut)).reshape(3, -1) / n
        first, fourth = first / SIDE, fourth / SIDE
        spread = sampling_variance(fourth, np.clip(second, 0.0, 1.0), 0.0, n)  # the bias leaves room enough
        noise = z * cut**2 / n
        both = noise * np.hypot(1.0, 2.0 * np.clip(first, -1.0, 1.0) / SIDE)  # of the square and of the mean
        std = np.sqrt(both**2 + cut**4 * spread)
        value = cut**2 * np.maximum(second - first**2, 0.0)
        hides = usual = np.array([tail.bias(t, n, 2) for tail, t in zip(scales.tails, cut, strict=True)])
        if not self.declared:
            hides = scales.squares(cut, n, [(2, second * n, z), (4, fourth * n, z / SIDE)])
        hides = np.maximum(usual, hides)
        # Truncation makes squares smaller only; half of the room below is for a heavy tail's sampling error.
        down, up = reaches(std, usual if self.declared else usual / 2.0, hides, self.confidence)
        sure = np.array([tail.sure for tail in scales.tails])
        shut = self.declared or np.isfinite(hides).all() or not sure.all()
        most = cut**4 * sampling_variance(fourth, np.clip(second, 0.0, 1.0), 4.0 * z / (SIDE * n), n)
        found = RobustEstimate(value, cut, noise, down, up, not shut, center, most, sure)
        yield found.within(0.0, math.inf)


@dataclass(frozen=True)
class RobustCovariance:
    r"""The covariance matrix from differences of pairs, which need no location.

    ``Cov = E[(x - x')(x - x')^T] / 2``. The squared differences have a moment of order 1 + v.

    **Privacy.** Histograms of the scales of the differences, then one Gaussian release of their truncated
    outer products. A record is in one pair only.
    """

    order: float
    confidence: float = 0.95

    def plan(self, problem: Sample) -> Plan:
        """Declare the histograms and the outer products."""
        hint = problem.gaussian(share_relative(SCALE_SHARE / 2.0))
        return problem.planned(
            scales=Release(PairScales(problem.columns), hint, mean=False),
            norms=Release(PairScales(problem.columns, norms=True), hint, mean=False),
            moments=Release(PairMoments(problem.columns), SymmetricGaussian(), mean=False),
        )

    def run(self, curator: Curator, problem: Sample) -> Iterator[RobustEstimate]:
        """Yield the estimate."""
        pairs, index = problem.population // 2, 2.0 * (1.0 + self.order)
        counts, width = curator.release("scales"), noise_of(curator, "scales", None)
        tails = [Tail.read(c, width, index) for c in counts]
        typical = _filled([math.sqrt(tail.moment(tail.edge, pairs, 2)) for tail in tails], tails)
        norms = curator.release("norms", typical)[0]
        tail = Tail.read(norms, noise_of(curator, "norms", None), index)
        z = noise_of(curator, "moments", None)
        cut, unit = tail.threshold(z, 2), np.outer(typical, typical)
        value = curator.release("moments", typical * cut) / pairs * cut**2 * unit
        noise = z * cut**2 / pairs * unit * np.where(np.eye(len(unit)) > 0, 1.0, math.sqrt(0.5))
        spread = math.sqrt(min(tail.moment(cut, pairs, 4), cut**4) / pairs) * unit
        bias = tail.bias(cut, pairs, 2) * unit
        half = half_width(np.hypot(noise, spread), bias, self.confidence)
        found = RobustEstimate(positive(value), typical * cut, noise, half, half)
        yield replace(found, spread=np.square(spread), sure=tail.sure)


def _filled(sizes: list[float], tails: list[Tail]) -> Floats:
    """Return the unit of each column; one whose counts show nothing gets the largest unit of the others.

    A unit that is far too small would make all normed rows long, and their cut, in the units of the other
    columns, noise without bound.
    """
    shown = np.array([tail.edge > EDGES[0] for tail in tails])
    found = np.array(sizes)
    return np.where(shown, found, found[shown].max()) if shown.any() else found


def positive(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T
