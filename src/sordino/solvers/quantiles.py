"""The last steps of a model of quantiles: from least squares to the share of targets that is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sordino.kernel import Curator
from sordino.kernel.arrays import Floats, public_norm
from sordino.problems.affine import Affine, AffineGradient, MappedCurvature
from sordino.problems.losses import LOSSES, Huber
from sordino.problems.problem import Problem
from sordino.problems.queries import GradientCounts, sure
from sordino.solvers.base import noise_std
from sordino.solvers.correction import FLAT, Corrected, Whole
from sordino.solvers.descent import (
    NOTHING,
    Moments,
    chosen_width,
    grid_cells,
    has_metric,
    one_sided,
    penalty_bend,
    spread_along,
)

# How often residuals are counted, slopes and offset asked for together, and the offset alone; their shares.
SPREADS, SLOPES, OFFSETS = 2, 24, 6
SPREAD, RANKS = 0.06, 0.44
# A density is that of this share of the records around the quantile, or of those beyond it.
_AROUND = 0.2
# A quantile is rounded off over so much of where they lie, or less by the cube root of this number over
# records times epsilon.
_ROUNDED, _ENOUGH = 0.25, 100.0
# With more records times epsilon than this a quantile is rounded off so little that slopes are asked for more
# often, by this power and up to this factor. Constants of steps were chosen on ten made-up laws without a
# kernel (zeros, two values, counts, normal, exponential, unequal spreads), and judged by the tests.
_MANY, _OFTENER, _MOST_OFTEN = 20_000.0, 0.2, 2.0
# The part of the steps over which the rounding falls; the largest momentum.
_FALLING, _MOMENTUM = 0.6, 0.85
# Slopes and the offset follow ranks where the noise of that moves margins by no more than this part of where
# they lie.
_WORTH = 0.5
# Along all axes together they are expected to move margins by so many times that (of 1, 2 and 4, on SLID,
# Computers and OFP); the start holds on to axes along which noise would move them farther.
_FARTHER = 2.0
# Two gradients bend more than the released curvature beyond so many deviations of their noise.
_SURE = 3.0

# How often the curvature of a loss of bounded slope is asked for and its share; of so many records times
# epsilon for the number of columns to this power it is no noise. The slopes of Huber's loss, their share.
BENDS, BENT, _CLEAR, _AXES = 6, 0.08, 1000.0, 1.5
HUBER_SLOPES, HUBER = 12, 0.40

# So many records times epsilon, at least, are needed to count residuals.
_FEW = 1000.0
# Mapped rows with their constant entry are no longer, so that no clip bites.
_LONGEST = 1.031


def tells_ranks(problem: Problem) -> bool:
    """Return whether counts tell where the targets lie around a model; without noise plain steps do."""
    return bool(problem.intercept) and _FEW <= problem.population * problem.epsilon < math.inf


def bends(problem: Problem) -> bool:
    """Return whether the curvature of a loss of bounded slope stands out of its noise, by public numbers."""
    bounded = isinstance(problem.loss, Huber) or hasattr(problem.loss, "quantile")
    signal = problem.population * problem.epsilon
    return bounded and has_metric(problem) and _CLEAR * (problem.features + 1) ** _AXES <= signal < math.inf


def rank_queries(problem: Problem) -> dict[str, tuple[Any, int, float]]:
    """Return the questions about a quantile, or a loss of bounded slope, how often they are asked, shares."""
    asked: dict[str, tuple[Any, int, float]] = {}
    if bends(problem):
        asked["bends"] = (MappedCurvature(LOSSES["squared"]), BENDS, BENT)
    oftener = min(max(problem.population * problem.epsilon / _MANY, 1.0) ** _OFTENER, _MOST_OFTEN)
    if isinstance(problem.loss, Huber):
        query = AffineGradient(problem.loss, _LONGEST, whole=True)
        return asked | {"ranks": (query, round(HUBER_SLOPES * oftener), HUBER)}
    loss: Any = replace(problem.loss, threshold=1.0)  # type: ignore[type-var]
    cells = grid_cells(replace(problem, population=max(problem.population // 10, 1)))
    clip = loss.lipschitz * _LONGEST
    slopes = SLOPES if bends(problem) else round(SLOPES * oftener)
    asked["spread"] = (GradientCounts(LOSSES["squared"], cells, apart=True), SPREADS, SPREAD)
    return asked | {"ranks": (AffineGradient(loss, clip, whole=True), slopes + OFFSETS, RANKS)}


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

    @property
    def unsure(self) -> float:
        """The spectral norm of the noise in a released curvature."""
        noise = noise_std(self.curator, "bends") / self.whole.problem.population
        return noise * math.sqrt(2.0 * (self.whole.own.scale.size + 1))

    def pace(self, w: Floats, width: float, moments: Moments, stiff: Floats | float) -> Floats:
        """Return the inverse of the released curvature at a model, in units of ``size / width``.

        Targets are weighed by how far they are from the model, those within the width by 1: the curvature is
        nowhere below that of the loss, and no more than the second moments of the rows.
        """
        point = self.whole.point(w, self.whole.own, 1.0, width)
        bent = np.asarray(self.curator.release("bends", (point, self.whole.own, width)))
        bent = bent / self.whole.problem.population
        seen, along = np.linalg.eigh(bent)
        seen = np.maximum(seen, 0.0) + self.unsure
        bent = (along * seen) @ along.T + width * stiff
        sizes, axes = np.linalg.eigh(moments.matrix + width * stiff)
        white = axes / np.sqrt(np.maximum(sizes, 0.0) + max(moments.unsure, NOTHING))
        shares, turned = np.linalg.eigh(white.T @ bent @ white)
        own = white @ turned
        return np.asarray((own / np.minimum(shares, 1.0)) @ own.T)


@dataclass(frozen=True)
class Steps:
    """Nesterov steps on a quantile that is rounded off over less and less, by twice the density around it.

    Where many targets are alike the share below a model jumps. A step is no longer than half of them may bend
    the rounded loss, so that it does not go back and forth over the jump; where few lie, momentum makes up
    for that.
    """

    bend: float
    widths: Floats

    @classmethod
    def over(cls, count: int, bend: float, first: float, last: float) -> Steps:
        """Return so many steps whose rounding falls from the first width to the last."""
        fallen = np.minimum(np.arange(count) / max(_FALLING * count, 1.0), 1.0)
        return cls(bend, first * (last / first) ** fallen)

    @property
    def law(self) -> list[tuple[float, float]]:
        """The length and the momentum of each step."""
        lengths = 1.0 / np.maximum(0.5 / self.widths, self.bend)
        return [(float(h), min(k / (k + 3.0), _MOMENTUM)) for k, h in enumerate(lengths)]

    def follow(self, gradient: Callable[[Floats, float], Floats], w: Floats) -> Floats:
        """Return the last point; ``gradient`` releases one at a point, over a width."""
        before = w
        for width, (length, momentum) in zip(self.widths, self.law, strict=True):
            point = w + momentum * (w - before)
            before, w = w, point - length * gradient(point, float(width))
        return w

    def carry(self, shares: Floats | float = 1.0) -> tuple[Floats, Floats]:
        """Return what is left of the noise of the first point, and that of gradients in the last one.

        ``shares`` are curvatures along axes, of the one by the density: where rows have nothing, no step is
        taken back. The noise is in units of that of a gradient.
        """
        left, noise = np.ones((2, *np.shape(shares))), np.zeros((3, *np.shape(shares)))
        for length, momentum in self.law:
            now, before = (kept := 1.0 - length * self.bend * shares) * (1.0 + momentum), -kept * momentum
            left = np.array([now * left[0] + before * left[1], left[0]])
            own = now * noise[0] + before * noise[1], now * noise[1] + before * noise[2]
            noise = np.array([now * own[0] + before * own[1] + length**2, own[0], noise[0]])
        return np.abs(left[0]), np.sqrt(noise[0])


def rank_steps(
    whole: Whole, quantile: float, before: Corrected, moments: Moments | None
) -> tuple[Corrected, float]:
    r"""Return the model after steps to the share of targets below it, and the noise of its offset.

    They go along ``P (g + 2 f penalty'(w))`` with the density f of the targets around the quantile and the
    inverse P of the second moments of rows, or of released curvatures where these are no noise. The offset
    alone is asked for last.

    **Privacy.** Post-processing of the releases ``"spread"``, ``"bends"`` and ``"ranks"``.
    """
    asked, w, constant = Ranks(whole, quantile), before.w.copy(), whole.own.intercept
    size, n = whole.targets.size, whole.problem.population
    for _ in range(SPREADS):
        middle, share, near = asked.locate(w)
        w[-1] += middle / (size * constant)
    bend = share / near  # twice the density
    last = near * min(_ROUNDED, (_ENOUGH / max(n * whole.problem.epsilon, 1e-12)) ** (1.0 / 3.0))
    left = whole.curator.plan.releases["ranks"].times
    noise, after = noise_std(whole.curator, "ranks") / (n * size), before
    if moments is not None and "bends" in whole.curator.plan.releases:
        after = bent_steps(whole, w, moments, (near, last), bend, left - OFFSETS)
        w, left = after.w, OFFSETS
    elif moments is not None:
        steps = Steps.over(left - OFFSETS, bend, near, last)
        metric = moments.metric(None, 1.0, penalty_bend(whole.problem, whole.own))
        own = float(steps.carry()[1]) * noise
        pull = max(metric.sizes.size * (own * size / (_FARTHER * near)) ** 2, NOTHING)
        pace, start = 1.0 / (metric.sizes + max(moments.unsure, pull)), w
        moved = own * math.sqrt(float(np.square(pace) @ metric.sizes))
        if moved * size <= _WORTH * near:
            d, axes = whole.own.scale.size, metric.axes.T
            told = metric.expected / (metric.expected + pull)
            kept = 1.0 - told + told * steps.carry(pace * (metric.expected + pull))[0]
            added = spread_along(metric, lambda sizes: noise * pace * steps.carry(pace * (sizes + pull))[1])
            after = Corrected(w, 0.0, False, (axes * kept) @ axes.T, added[:d])

            def slopes(point: Floats, width: float) -> Floats:
                found = asked.share(point, whole.own, 1.0, width) / size + bend * whole.penalty(point)
                found = found + bend * pull * (point - start)
                return axes @ (pace * (axes.T @ found))

            w, left = steps.follow(slopes, w), OFFSETS
    affine, smaller = asked.flat

    def offset(point: Floats, width: float) -> Floats:
        found = np.zeros_like(point)
        found[-1] = asked.share(point, affine, smaller, width)[-1] / (size * constant)
        return found

    steps = Steps.over(left, bend, last if left == OFFSETS else near, last)
    own = float(steps.carry()[1]) * noise * size
    if own > _WORTH * near:
        return replace(after, w=w), near
    return replace(after, w=steps.follow(offset, w)), own


def huber_steps(whole: Whole, w: Floats, moments: Moments) -> Corrected:
    """Return the model after steps on the whole gradient of Huber's loss.

    Noise is as large as the largest error that counts, which the threshold need not be: in a small unit of
    the targets it is far beyond all of them.

    **Privacy.** Post-processing of the releases ``"bends"`` and ``"ranks"``.
    """
    asks, (shares, sizes) = whole.curator.plan.releases["ranks"].times, whole.targets.far
    spread = noise_std(whole.curator, "ranks") / (whole.problem.population * math.sqrt(asks))
    far = chosen_width(np.sort(sizes), one_sided(shares, sizes), 0.0, spread, (1.0, 0.0))[0]
    width = min(whole.problem.loss.lipschitz, far if shares.any() else whole.widest)
    return bent_steps(whole, w, moments, (width, width), 1.0 / width, asks)


def bent_steps(
    whole: Whole, w: Floats, moments: Moments, ends: tuple[float, float], bend: float, asks: int
) -> Corrected:
    """Return the model after Nesterov steps on a loss of bounded slope, along its released curvature.

    Errors within a width count squared, those beyond it linearly. The width falls between two ``ends``, and
    the curvature is asked for again at each. ``bend`` is what penalties of a squared loss are multiplied by.
    Over a value that many targets have the loss bends more than a step before: then steps are as short as
    two released gradients say, and momentum starts anew.
    """
    asked, (first, last) = Ranks(whole, 0.5), ends
    curator, n, size = whole.curator, whole.problem.population, whole.targets.size
    blocks, stiff = curator.plan.releases["bends"].times, bend * penalty_bend(whole.problem, whole.own)
    unsure = _SURE * math.sqrt(2.0) * noise_std(curator, "ranks") / n
    earlier, pace, taken, run = w, np.zeros((0, 0)), 0, 0
    for block in range(blocks):
        width = first * (last / first) ** min(block / (_FALLING * blocks), 1.0)
        pace, answers = width / size * asked.pace(w, width, moments, stiff), list[Any]()
        while taken < round(asks * (block + 1) / blocks):
            point = w + min(run / (run + 3.0), _MOMENTUM) * (w - earlier)
            found = asked.share(point, whole.own, 1.0, width) + bend * size * whole.penalty(point)
            answers.append((point, found))
            if len(answers) > 1:
                moved, pull = (a - b for a, b in zip(answers[-1], answers[-2], strict=True))
                along = float(moved @ pull) - unsure * public_norm(moved)
                steep = along / max(float(moved @ np.linalg.solve(pace, moved)), NOTHING)
                if steep > 1.0:
                    pace, run = pace / steep, 0
            earlier, w, taken, run = w, point - pace @ found, taken + 1, run + 1
    bends, axes = np.linalg.eigh(last / size * np.linalg.inv(pace))
    # Noise may be all that bends an axis; records beyond the width bend the loss less than they were counted.
    shares = np.maximum(1.0 - 2.0 * asked.unsure / bends, 0.0) / (1.0 + math.log(first / last))
    kept, added = Steps(1.0, np.full(asks, 0.5)).carry(shares)
    added = axes * (noise_std(curator, "ranks") / n * last / size * added / bends)
    return Corrected(w, 0.0, False, (axes * kept) @ axes.T, added[: whole.own.scale.size])
