"""The last correction of a model of numbers: what clips below the declared bounds took away is put back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from sordino.kernel import Curator, SymmetricGaussian
from sordino.kernel.arrays import Floats, public_norm
from sordino.problems.affine import (
    FAR,
    NEAR,
    SHELLS,
    Affine,
    AffineGradient,
    ConstantGradient,
    GradientShells,
    GramShells,
    MappedCurvature,
)
from sordino.problems.losses import has_odds, has_shares
from sordino.problems.problem import Problem
from sordino.problems.queries import GradientCounts, expected_mean
from sordino.solvers.base import noise_std
from sordino.solvers.descent import (
    COLUMNS,
    EMPTY,
    NOTHING,
    SLOPE,
    Moments,
    TargetUnit,
    believe,
    chosen_width,
    coefficient_noise,
    one_sided,
    penalty_bend,
    target_center,
    target_unit,
)
from sordino.solvers.length import Descended, Lengthened, class_odds, constant_weights
from sordino.solvers.newton import CONSTANT, Believed, Bowl, newton_steps

# Shares of the counts of gradients, for each time they are asked, of long rows and of the whole gradient,
# with as little room as it needs and with much.
COUNTS, LONG, SCORE, MOST_SCORE = 0.015, 0.06, 0.15, 0.45
COUNTS_ASKS, SCORE_ASKS, OFFSET_ASKS = 2, 3, 3
# Counts: the shares of the whole gradient and of the curvature; how often both are asked, and without noise.
COUNTS_SCORE, BENT, BENT_ASKS, NEWTON_ASKS, PLAIN_ASKS = 0.30, 0.08, 4, 6, 40
# A Newton step on counts is shortened, and few of them do not arrive where some rows are long: steps grow
# with the fourth root of records times epsilon, over so many times those that the first ones need, to so
# many times as many, and curvatures with the eighth (5 % of rows six times as long, d = 3 and 20).
_ARRIVE, _MOST_STEPS = 4.0, 4.0
# The share of the mean residual: the least; more of it where records times epsilon are near the last number,
# below which there is nothing but the mean, where they are many, and where columns are few.
_OFFSET, _FEW_OFFSET, _FEW = 0.03, 0.20, 100.0
_MANY_OFFSET, _MANY, _NARROW_OFFSET, _NARROW = 0.07, 5000.0, 0.6, 1000.0
# So many records times epsilon for each coefficient make the whole gradient worth its share; so many times
# as many leave more of it than descents need. A step on counts goes astray by factors, and waits for more.
ROOM, _MUCH_ROOM, _COUNTS_ROOM = 300.0, 4.0, 3.0
# A tail that a clip would take counts as a bias by so much of what one side has more; counts that it takes
# are large where more are expected, and bias the slope more.
_ONE, _COUNTS_BIAS = 0.3, (0.5, 0.25)
# Tails go on so many times farther than noisy counts show (of 1 to 16, on twelve made-up designs).
_FARTHER = 3.0
# A column of a shell of long rows is seen beyond so many deviations of noise. Of gradients one in so many
# such numbers may be noise, fewer where it costs more than the third number, in squares of the spread, which
# the noise of those that are clipped may cost, or as many columns have by chance.
_SEEN, _FALSE, _CHEAP = 3.3, 10.0, 1e-3
# Long rows with gradients of a size bend an axis by so much of what they would if all were alike.
_ALIKE = 0.5
# Whole rows bend an axis less than clipped ones only where noise alone would in one of a thousand fits.
_SOFTER = 3.0
# Where a clip takes as many residuals as it leaves, fits with and without it differ along an axis by twice so
# many units of the targets, over the root of its sum of squares. It leaves this share at least.
_CLIPPED, _UNCLIPPED = 0.3, 0.2
# Predictions so many spreads of the targets from their centre leave a gradient whole; more costs noise.
_ROOM = 0.75
# The smallest rows that leave the constant alone, a map and coordinates that leave nothing else, and a
# prediction beyond all targets, in bounds.
FLAT, _BEYOND = 2.0**-40, 1e9
_FLAT, _CONSTANT = Affine(np.zeros(1), np.zeros(1), 1.0, np.zeros(1, dtype=np.int64)), np.array([False, True])
# So many times the spread of the targets may be predicted along an axis before gradients say so.
_MOST = 1.5
# A weight of a rare column has so many deviations of its noise, or is left out where that may throw a row by
# so many spreads of the targets, if it may be so many typical rows long. Rows that noise hides move by .3.
_STANDS, _THROWN, _LONGER, _UNSEEN = 3.0, 3.0, 64.0, 0.3
# How far the mean may be from the centre, and its noise in one answer that is clear, in spreads of targets.
_SKEW, _CLEAR = 0.4, 0.1
# The noise of a mean of amounts over their predictions, of counts over their mean, and of their margins.
_SMALL, _LITTLE, _ROUGH = 0.03, 0.05, 0.3
# Answers about the mean that differ by more deviations of their noise do so by what counts do not show.
_UNLIKELY = 4.0
# Means without noise are weighed as if they had so much of the bound. So much of a sum along an axis is no
# noise, or the constant is all that is asked. A clip of whole gradients leaves this share of squares.
_EXACT, _STANDING, _SQUARES = 1e-9, 0.3, 0.5
# A mean residual of so much of the spread of the targets, or a mean of counts that is off by so much of
# itself, says that a clip took from the slopes too. Fewer records times epsilon than the second number do not
# tell it from noise. After steps on a whole gradient with more noise than the last number, in squares of the
# spread, the third says so, or a mean and a clipped part of targets as far from the centre as the first.
_BITTEN, _TOLD, _LEFT_OVER, _DROWNS = 0.1, 1500.0, 0.04, 0.15


def is_few(problem: Problem) -> bool:
    """Return whether records times epsilon are so few that the model of numbers is the constant."""
    few = problem.population * problem.epsilon < _FEW
    return problem.loss.targets == "numbers" and bool(problem.intercept) and few


def asks_gradient(problem: Problem, coefficients: int) -> bool:
    """Return whether the whole gradient is asked: where noise would leave something of it."""
    more = _COUNTS_ROOM if problem.loss.targets == "counts" else 1.0
    return problem.population * problem.epsilon >= more * ROOM * (coefficients + 1)


def offset_share(problem: Problem) -> float:
    """Return the share of the mean residual."""
    signal = max(problem.population * problem.epsilon, _FEW)
    few = _FEW_OFFSET * (_FEW / signal) ** 2 + _NARROW_OFFSET * min(1.0, _NARROW / signal) / (
        problem.features + 3
    )
    return _OFFSET + few + _MANY_OFFSET * min(1.0, signal / _MANY)


def correction_queries(
    problem: Problem, coefficients: int, metric: bool
) -> dict[str, tuple[Any, int, float]]:
    """Return the questions with how often they are asked and their shares."""
    asked: dict[str, tuple[Any, int, float]] = {}
    if problem.loss.targets not in ("numbers", "counts"):
        return asked
    query = AffineGradient(problem.loss, 1.0)
    if is_few(problem):
        one = ConstantGradient(problem.loss, 1.0) if problem.once else query
        return {"offset": (one, 1, 1.0)}
    amounts = has_shares(problem.loss)
    if metric and asks_gradient(problem, coefficients) and not amounts:
        asked["tails"] = (GradientCounts(problem.loss), 1, COUNTS)
        asked["long"] = (GramShells(), 1, LONG)
        share = SCORE
        if coefficients == problem.features:  # the stages of a sparse model leave it no more
            room = problem.population * problem.epsilon / (ROOM * (coefficients + 1))
            share = min(SCORE * max(room / _MUCH_ROOM, 1.0) ** 0.25, MOST_SCORE)
        asked["whole"] = (GradientShells(problem.loss), SCORE_ASKS, share)
    few = coefficients <= COLUMNS and not amounts
    if problem.loss.targets == "counts" and few and asks_gradient(problem, coefficients):
        steps, curvatures = _newton_asks(problem, coefficients)
        asked["tails"] = (GradientCounts(problem.loss), COUNTS_ASKS, COUNTS * COUNTS_ASKS)
        asked["whole"] = (query, steps, COUNTS_SCORE)
        asked["bent"] = (MappedCurvature(problem.loss), curvatures, BENT)
    if problem.intercept:
        asked["offset"] = (query, OFFSET_ASKS, offset_share(problem))
    return asked


def _newton_asks(problem: Problem, coefficients: int) -> tuple[int, int]:
    """Return how often the whole gradient of a loss of counts is asked, and its curvature."""
    if math.isinf(problem.epsilon):
        return PLAIN_ASKS, PLAIN_ASKS
    room = problem.population * problem.epsilon / (_ARRIVE * _COUNTS_ROOM * ROOM * (coefficients + 1))
    more = min(max(room, 1.0) ** 0.25, _MOST_STEPS)
    return round(NEWTON_ASKS * more), round(BENT_ASKS * math.sqrt(more))


@dataclass(frozen=True, eq=False)
class Corrected:
    """The weights, and what became of their noise: ``after`` multiplied it, ``added`` is a factor of the new.

    ``slope`` is the relative deviation of the slope. ``bitten`` says that a clip took much from the mean,
    and that the slopes, from which it took as well, could not be corrected; ``unseen`` is what it may
    have taken from the mean, in units of the targets, with the noise of that at the declared bounds.
    """

    w: Floats
    slope: float
    bitten: bool = False
    after: Floats | None = None
    added: Floats | None = None
    unseen: float = 0.0

    @property
    def noise(self) -> Floats | float:
        """The deviation of the new noise of each weight but the constant one."""
        return 0.0 if self.added is None else np.sqrt(np.square(self.added).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Whole:
    """Rows that no clip shortens: the map of a model, smaller by the longest row."""

    curator: Curator
    problem: Problem
    own: Affine
    targets: TargetUnit
    clipped: bool = False

    @cached_property
    def longest(self) -> float:
        """The largest possible size of a row in the map of the model, or of one that is clipped there."""
        whole = self.own.longest(self.problem.data_norm)
        return min(whole, math.hypot(1.0, CONSTANT)) if self.clipped else whole

    @property
    def widest(self) -> float:
        """The largest distance of a target to the centre of all, and to predictions that spread less."""
        room = _ROOM * self.targets.spread if self.problem.loss.targets == "numbers" else 0.0
        return self.problem.target_bound + abs(self.targets.center) + room

    @property
    def largest(self) -> float:
        """The largest possible part of a record in the mean gradient, in the model's own units."""
        return self.most / self.targets.size * self.longest / self.problem.population

    @property
    def most(self) -> float:
        """The unit in which a residual of the largest distance has no gradient longer than 1."""
        return self.widest * math.hypot(1.0, self.map.intercept) * (1.0 + 2.0**-20)

    def affine(self, smaller: float, constant: float) -> Affine:
        """Return the map with the rows so much smaller, and this constant entry."""
        has = bool(self.own.intercept)
        return replace(self.own.resize(smaller), intercept=constant if has else 0.0)

    def point(self, w: Floats, affine: Affine, smaller: float, unit: float) -> Floats:
        """Return weights of the model's own map as weights of this one, in this unit of the targets."""
        moved = w / smaller
        if affine.intercept:
            moved[-1] = w[-1] * self.own.intercept / affine.intercept
        return moved * (self.targets.size / unit) if self.problem.loss.targets == "numbers" else moved

    @cached_property
    def map(self) -> Affine:
        """The map in which the longest possible row has length 1."""
        return self.affine(1.0 / self.longest, CONSTANT / self.longest)

    @property
    def units(self) -> Floats:
        """What weights of the map of the model are divided by: whole rows have another constant entry."""
        last = [CONSTANT / self.own.intercept] if self.own.intercept else []
        return np.append(np.ones(self.own.scale.size), last)

    def bowl(self, moments: Moments) -> Bowl:
        """Return the curvature of squared errors: that of clipped rows, and what long rows add to it.

        A column that stands out in a shell of long rows is bent by them. One that does not is not, and so is
        not bent together with others: noise would tilt a long axis into short ones.
        """
        d, noise = self.own.scale.size, noise_std(self.curator, "long")
        matrix = moments.matrix * np.outer(self.units, self.units)
        for shell, half in enumerate(self.curator.release("long", (self.map, self.longest))):
            found = SymmetricGaussian.whole(half)
            kept = np.diag(found) > _SEEN * noise
            sizes, axes = np.linalg.eigh(found[np.ix_(kept, kept)])
            sizes[sizes < noise * math.sqrt(2.0 * len(sizes))] = 0.0
            own = self.longest**2 / self.problem.population * 0.25**shell
            matrix[np.ix_(*2 * (np.flatnonzero(kept),))] += own * (axes * sizes) @ axes.T
        hidden = _SEEN * noise * self.longest**2 / self.problem.population
        most = _UNSEEN * self.targets.spread / self.targets.size
        spread = self.targets.least_spread / self.targets.size
        bent = penalty_bend(self.problem, self.own)
        return Bowl(matrix + bent, moments.unsure, d, hidden=hidden, most=most, spread=spread)

    def possible(self, w: Floats, bowl: Bowl) -> Floats:
        """Return weights that predict no more along an axis than a few times what the targets spread.

        Least squares predict no more than the targets have. What goes beyond that along an axis is worse than
        nothing, as where the margins of few, long rows were shortened in the descent. Other axes may take as
        much back as noise hides of what long rows have in both: levels of a category add up to the constant.
        """
        sizes, axes = bowl.eigen(bowl.slopes)
        sure = np.maximum(sizes - bowl.unsure, NOTHING)  # an axis that noise may have bent limits nothing
        unseen = self.widest * math.sqrt(noise_std(self.curator, "targets") / self.problem.population)
        most = _MOST * math.hypot(self.targets.spread, unseen) / self.targets.size
        out, along = w.copy(), axes.T @ w[: bowl.features]
        rest = np.sqrt(np.maximum(float(along @ along) - np.square(along), 0.0))
        lost = rest * np.minimum(bowl.hidden, np.sqrt(sure * bowl.hidden))
        most = (lost + np.hypot(lost, most * np.sqrt(sure))) / sure
        out[: bowl.features] -= axes @ (along - np.clip(along, -most, most))
        return out

    def bowl_of_counts(self, w: Floats, last: Bowl | None) -> Bowl:
        """Return the released curvature of a loss of counts at these weights; the last, where all are asked.

        Clipped rows are asked for each curvature, whole ones once.
        """
        if last is not None and self.curator.used["bent"] >= self.curator.plan.releases["bent"].times:
            return last
        bulk, unsure = self._bend(w, math.hypot(1.0, CONSTANT))
        far = _beyond(bulk, *self._bend(w, self.longest)) if last is None else last.far
        matrix = bulk + far + penalty_bend(self.problem, self.own) / self.targets.size
        return Bowl(matrix, unsure, self.own.scale.size, far, grows=True)

    def _bend(self, w: Floats, longest: float) -> tuple[Floats, float]:
        """Return the curvature of a loss of counts, of rows clipped at this length, and its noise."""
        affine, d = self.affine(1.0 / longest, CONSTANT / longest), self.own.scale.size
        own, spread = longest**2 / self.problem.population, noise_std(self.curator, "bent")
        spectral = own * spread * math.sqrt(2.0 * (d + 1))
        (shares, sizes), cap, mean = self.targets.far, self.widest, 0.0
        if shares.any():  # counts are predicted that are about as large as those that are seen
            mean, law = float(shares @ sizes), one_sided(shares, sizes)
            narrow = max(1.0, d / longest**2)  # an axis has a d-th of the squares, or those of long rows
            cap = min(cap, chosen_width(np.sort(sizes), law, 0.0, spectral * narrow, (1.0, 0.0))[0])
        point, unit = self.point(w, affine, 1.0 / longest, 1.0), cap / self.targets.size
        matrix = np.asarray(self.curator.release("bent", (point, affine, cap))) * own * unit
        if affine.intercept:  # what the cap took is put back as if it lay where the rest does
            least = max(float(matrix[-1, -1]), spectral * unit, NOTHING)
            more = min(max(mean * CONSTANT**2 / (self.targets.size * least), 1.0), 10.0)
            matrix, unit = matrix * more, unit * more
        return matrix, spectral * unit

    def counts(self, w: Floats) -> Floats:
        """Return the shares of records with gradients of each size, below and above zero."""
        point = self.point(w, self.map, 1.0 / self.longest, self.widest)
        counts = self.curator.release("tails", (point, self.map, self.widest))
        return np.asarray(counts) / self.problem.population

    def penalty(self, w: Floats) -> Floats:
        """Return the gradient of the penalties in the model's own weights: free, they are released."""
        unit = self.targets.size if self.problem.loss.targets == "numbers" else 1.0
        coefficients = self.own.coefficients(w, self.problem.intercept) * unit
        found = self.own.pull_back(self.problem.penalty_gradient(coefficients), self.problem.intercept)
        return found / self.targets.size

    def spread(self, name: str) -> float:
        """Return the length of the noise in the mean of all answers about gradients, for a clip of 1."""
        release = self.curator.plan.releases[name]
        clip: float = release.query.clip  # type: ignore[attr-defined]
        return noise_std(self.curator, name) / clip * math.sqrt((self.own.scale.size + 1) / release.times)

    def width(self, w: Floats, spread: float, biased: tuple[float, float], farther: float = 1.0) -> float:
        """Return the clip of gradients at these weights that weighs bias against noise.

        ``spread`` is the noise of a sum of clip 1; ``biased`` is the part of a tail that counts as bias: of
        what one side has more, and of what both have. The tail goes on ``farther`` than counts show.
        """
        query: Any = self.curator.plan.releases["tails"].query
        noise, n = noise_std(self.curator, "tails"), self.problem.population
        return min(1.0, farther * chosen_width(query.sizes, self.counts(w), noise / n, spread / n, biased)[0])

    def cheap(self, bend: float) -> float:
        """Return the clip of gradients whose noise costs next to nothing in margins of this mean bend."""
        whole = self.widest / self.targets.size * self.longest
        noise = self.spread("whole") * whole / self.problem.population * math.sqrt(self.own.scale.size)
        return _LITTLE * bend / max(noise, NOTHING)

    def score(self, w: Floats, width: float) -> tuple[Floats, float]:
        """Return the released mean gradient in the model's own units, and the deviation of its noise.

        The gradient of a record is clipped to ``width`` times the largest possible one.
        """
        affine, unit = self.map, width * self.widest
        point = self.point(w, affine, 1.0 / self.longest, unit)
        own = unit / self.targets.size * self.longest / self.problem.population
        answer = self.curator.release("whole", (point, affine, None, unit))
        return np.asarray(answer) * own, noise_std(self.curator, "whole") * own

    def mean(self, w: Floats, width: float, times: int, name: str = "offset") -> tuple[float, float]:
        """Return the mean residual, clipped to ``width``, and its noise, in units of the targets."""
        affine = self.affine(FLAT / self.longest, 1.0)
        unit = width * (1.0 + 2.0**-20) / self.curator.plan.releases[name].query.clip  # type: ignore[attr-defined]
        point = self.point(w, affine, FLAT / self.longest, unit)
        last = np.arange(w.size) == w.size - 1
        own = unit / self.targets.size / self.problem.population
        answers = [self.curator.release(name, (point, affine, last, unit)) for _ in range(times)]
        return float(np.mean(answers)) * own, noise_std(self.curator, name) * own / math.sqrt(times)

    def repeat(self, w: Floats, name: str, times: int) -> tuple[Floats, float]:
        """Return the mean gradient at the declared bounds by so many answers, and its noise."""
        clip: float = self.curator.plan.releases[name].query.clip  # type: ignore[attr-defined]
        affine, unit = self.map, self.most / clip
        point = self.point(w, affine, 1.0 / self.longest, unit)
        answers = [self.curator.release(name, (point, affine, None, unit)) for _ in range(times)]
        noise = noise_std(self.curator, name) / math.sqrt(times)
        return self.largest / clip * np.mean(answers, axis=0), self.largest / clip * noise


def _beyond(bulk: Floats, whole: Floats, noise: float) -> Floats:
    """Return the curvature of whole rows beyond that of clipped ones, or below it, as far as it is no noise.

    A column that few, long rows have is bent far more than clipped rows show, and a Newton step that does
    not know it goes far beyond the minimum. Others are bent less than clipped rows show where these were
    multiplied for what a cap took elsewhere.
    """
    sizes, axes = np.linalg.eigh(whole - bulk)
    return np.asarray((axes * np.where((sizes > noise) | (sizes < -_SOFTER * noise), sizes, 0.0)) @ axes.T)


@dataclass(frozen=True, eq=False)
class Slopes:
    """The whole gradient of squared errors in the slopes, at all points that it was asked at.

    What a record's gradient has beyond 2^-``cut`` of the largest possible one is seen in shells of its size.
    Where nothing but noise is seen in a column of a shell, nothing is believed, and nothing of the noise is
    added. The rest is as wide as its noise costs next to nothing, and no narrower than in the descent.
    """

    whole: Whole
    bowl: Bowl
    cut: int
    cost: float
    points: list[Floats] = field(default_factory=list)
    answers: list[Floats] = field(default_factory=list)

    @classmethod
    def of(cls, whole: Whole, bowl: Bowl, least: float) -> Slopes:
        """Return those of a model; ``least`` is the clip of its descent, of the largest possible gradient."""
        asks = whole.curator.plan.releases["whole"].times
        noise = whole.largest * noise_std(whole.curator, "whole") / (NEAR * math.sqrt(asks))
        cost = bowl.height(np.zeros(len(bowl.matrix)), noise)[1] * 0.25 ** np.arange(SHELLS)
        cost /= (whole.targets.spread / whole.targets.size) ** 2
        cheap = cost < min(_CHEAP, len(bowl.matrix) / whole.problem.population)
        shares, sizes = (values[:-1] for values in whole.targets.far)  # the last are not seen
        squares = np.square(np.minimum.outer(sizes, sizes)) @ shares
        wide = float(sizes[squares >= _SQUARES * squares.max(initial=0.0)].min(initial=whole.widest))
        least = max(least, wide / whole.widest if shares.any() else 0.0)
        cut = min(int(np.argmax(np.append(cheap, True))), max(math.floor(-math.log2(least)), 0))
        return cls(whole, bowl, cut, float(cost[0]))

    @property
    def taken(self) -> float:
        """What the clip takes of the targets of the longest rows, by counts, in spreads of the targets."""
        shares, sizes = self.whole.targets.far
        beyond = np.maximum(sizes - 0.5**self.cut * self.whole.widest, 0.0)
        return float(shares @ beyond) / self.whole.targets.spread

    def __call__(self, w: Floats) -> tuple[list[Floats], Floats]:
        """Ask at a point, and return the gradients at all points with the noise of each."""
        whole, unit = self.whole, self.whole.most
        point = whole.point(w * whole.units, whole.map, 1.0 / whole.longest, unit)
        answer = whole.curator.release("whole", (point, whole.map, unit, self.cut))
        self.points.append(w)
        self.answers.append(np.asarray(answer))
        units = whole.largest * np.append(0.5 ** np.arange(self.cut) / FAR, 0.5**self.cut / NEAR)
        kept = units[:, None] * self.kept
        found = [(kept * a).sum(axis=0) for a in self.answers]
        steep = [whole.penalty(p * whole.units) for p in self.points]
        noise = noise_std(whole.curator, "whole") * np.sqrt(np.square(kept).sum(axis=0))
        return [a + b for a, b in zip(found, steep, strict=True)], noise

    def repeat(self, w: Floats, asks: int) -> tuple[Floats, Floats]:
        """Return the mean of so many answers at a point, and its noise."""
        found, noise = [self(w) for _ in range(asks)][-1]
        return np.mean(found, axis=0), noise / math.sqrt(asks)

    @property
    def kept(self) -> Floats:
        """How much is believed of each column of a shell, by all answers together.

        A tail is spread over shells: a shell is believed if it stands out together with all smaller ones.
        """
        rest = 0.5 ** np.arange(self.cut)[:, None]
        seen = np.square((rest * np.mean(self.answers, axis=0)[:-1])[::-1].cumsum(axis=0)[::-1])
        noise = noise_std(self.whole.curator, "whole") ** 2 / len(self.answers)
        noise *= np.square(rest)[::-1].cumsum(axis=0)[::-1]
        dear = _FALSE + self.cost / _CHEAP * np.square(rest)
        least = 2.0 * np.log(SHELLS * self.bowl.features * dear) * noise
        kept = np.maximum(1.0 - (least / np.maximum(seen, NOTHING)) ** 4, 0.0)
        return np.vstack([np.maximum.accumulate(kept, axis=0), np.ones(seen.shape[1])])

    def bowl_at(self, w: Floats, last: Bowl | None) -> Bowl:
        """Return the bowl, bent by rows whose gradients are seen even if their squares drown in noise.

        Residuals have a largest possible size, so that a row is at least as long as its gradient is large.
        """
        rows = self.whole.longest**2 / self.whole.problem.population * 0.25 ** np.arange(self.cut + 1)
        seen = np.abs(np.mean(self.answers, axis=0))
        least = _ALIKE * (rows[:, None] * self.kept * seen).sum(axis=0)
        more = np.maximum(least - np.diag(self.bowl.matrix), 0.0)
        more[self.bowl.features :] = 0.0
        return replace(self.bowl, matrix=self.bowl.matrix + np.diag(more)) if more.any() else self.bowl


def correct(curator: Curator, problem: Problem, model: Descended, found: Lengthened) -> Corrected:
    """Return the model after Newton steps on the whole gradient and a step by the mean residual.

    For numbers none of that gradient is clipped whose prediction lies near the centre of the targets; for
    counts released ones say where a clip would bite, and its width reaches the bounds as noise falls. What
    noise alone could cause is left as it was.

    **Privacy.** Post-processing of the releases ``"tails"``, ``"long"``, ``"whole"``, ``"offset"``.
    """
    whole, moments = Whole(curator, problem, model.affine, model.targets), model.moments
    out = Corrected(found.w, found.slope_noise / max(found.slope, NOTHING))
    asks = curator.plan.releases["whole"].times if "whole" in curator.plan.releases else 0
    # No narrower than in the descent: where counts show nothing, a narrow clip is no better for it.
    least, drowned, taken = 1.0, False, 0.0
    if asks:
        least = min(1.0, model.gradient.clip * model.targets.size / (whole.widest * whole.longest))
    if "bent" in curator.plan.releases:
        width = whole.width(found.w, whole.spread("whole"), _COUNTS_BIAS, _FARTHER)
        width = max(width, least, min(whole.cheap(found.bend), 1.0))
        out = _noise_after(out, _step(whole, found.w, width, asks))
    elif asks and moments is not None:
        bowl = whole.bowl(moments)
        slopes, start = Slopes.of(whole, bowl, least), whole.possible(found.w, bowl) / whole.units
        step = newton_steps(slopes, slopes.bowl_at, start, asks)
        bends = np.maximum(np.diag(step.axes.T @ bowl.slopes @ step.axes), max(bowl.unsure, NOTHING))
        clipped = _CLIPPED * (1.0 / max(found.bend, _UNCLIPPED) - 1.0) / np.sqrt(problem.population * bends)
        out = _noise_after(out, replace(step, w=step.w * whole.units, added=np.maximum(step.added, clipped)))
        drowned, taken = slopes.cost > _DROWNS, slopes.taken
    if has_odds(problem.loss) or problem.loss.targets == "numbers":
        out = replace(out, w=_drop_rare(whole, out.w, weight_noise(model, found, out), moments))
    if "offset" in curator.plan.releases:
        moved = _move if problem.loss.targets == "numbers" else _multiply
        moved = partial(_raise, least=model.gradient.clip) if has_shares(problem.loss) else moved
        w, shifted, unseen = moved(whole, out.w)
        bitten = drowned and shifted > _LEFT_OVER
        if problem.loss.targets == "numbers":  # a wide question about slope and offset has moved it before
            offset, unit = model.affine.intercept * w[-1], model.targets.size / model.targets.spread
            skewed = min(abs(offset - model.home) * unit, taken)
            bitten = bitten or (drowned and skewed > _BITTEN)
            shifted = max(shifted, abs(offset - model.offset) * unit)
            unseen = max(unseen, abs(offset - model.offset))
        told = not asks and problem.population * problem.epsilon >= _TOLD
        out = replace(out, w=w, bitten=bitten or (told and shifted > _BITTEN), unseen=unseen)
    return out


def weight_noise(model: Descended, found: Lengthened, last: Corrected) -> Floats:
    """Return the deviation of the noise of each mapped weight but the constant one; the slope has its own."""
    shape = *model.w.shape[:-1], model.affine.scale.size
    own = coefficient_noise(model.legs, found.bend, shape, last.after) * found.slope
    if last.after is not None and model.moments is None:  # steps on counts: the descent knew no axes
        own = np.sqrt(np.square(last.after[: own.size, : own.size]) @ np.square(own))
    return np.hypot(own, last.noise)


def _drop_rare(whole: Whole, w: Floats, noise: Floats, moments: Moments | None) -> Floats:
    """Return the weights without those of rare columns that noise alone may have made.

    Clipped second moments say how many records have a column, not how long it is: noise in the weight of a
    dose that few have may throw predictions farther than all targets spread. The constant is better there.
    Of labels a column is left out of all log odds or of none; one that counts did not show may be rare.
    """
    own, longest = w[..., : noise.shape[-1]], whole.own.scale * whole.problem.data_norm
    most, rare = whole.targets.spread / whole.targets.size, longest > _LONGER
    if moments is not None and whole.problem.loss.targets == "numbers":
        usual = np.diag(moments.matrix)[: longest.size]
        rare = rare & (usual < EMPTY[1] * np.median(usual))
    drowned = (np.abs(own) < _STANDS * noise) & (noise * longest > _THROWN * most) & rare
    kept = np.where(np.all(np.atleast_2d(drowned), axis=0), 0.0, own)
    return np.concatenate([kept, w[..., longest.size :]], axis=-1)


def skewed_unit(
    curator: Curator, problem: Problem, affine: Affine, targets: TargetUnit, name: str
) -> TargetUnit:
    """Return a larger unit of the targets where one tail is longer than the other.

    Gradients in this unit are clipped alike on both sides. Where one side has more to lose, what is left is
    another model, and less noise is no gain. They are gradients of clipped rows, as those of the descent:
    the row of a rare column may be a thousand times longer, and no unit need have room for it.

    **Privacy.** Post-processing of the release ``"tails"`` at the constant model.
    """
    if "whole" not in curator.plan.releases:
        return targets
    whole = Whole(curator, problem, affine, targets, clipped=True)
    clip: float = curator.plan.releases[name].query.clip  # type: ignore[attr-defined]
    width = whole.width(constant_weights(problem, affine, targets), whole.spread(name), (_ONE, 0.0))
    return replace(targets, size=max(targets.size, width * whole.widest * whole.longest / clip))


def locate(curator: Curator, problem: Problem) -> TargetUnit:
    """Return where targets lie and how far they spread: around the mean, where counts show no centre.

    **Privacy.** Post-processing of released counts and of a mean at the declared bound.
    """
    if "classes" in curator.plan.releases:
        return class_odds(curator, problem)
    if is_few(problem):
        return TargetUnit(0.0, problem.target_bound, False)
    found = target_center(curator, problem)
    if found is None and {"center", "offset"} <= curator.plan.releases.keys():
        found = mean_target(curator, problem, "offset", 1)[0], 0.0, 0.0
    return target_unit(curator, problem, *(found or ()))


def with_weight(curator: Curator, problem: Problem) -> Problem:
    """Return the problem of as many records as all of these weigh, where they have weights.

    A record of weight w is so much of a record in every sum and count, and so are means over all.

    **Privacy.** Post-processing of the release ``"weight"``.
    """
    if "weight" not in curator.plan.releases:
        return problem
    n = problem.population
    mean, noise = float(curator.release("weight")[0]) / n, noise_std(curator, "weight") / n
    left = max(round(n * expected_mean(mean, noise, 1.0, counts=True)), 1)
    return replace(problem, population=left, weight=left / n)


def sum_up(curator: Curator, problem: Problem, affine: Affine, moments: Moments) -> Corrected | None:
    """Return the model by sums at the declared bounds, of targets that counts do not show; or None.

    Among so many zeros that the others drown in counts, sums show what a column tells of them. None where
    nothing of that stands out of noise either, and the constant is the model.

    **Privacy.** Post-processing of the releases ``"long"``, ``"whole"``, ``"gradient"``, ``"offset"``.
    """
    start, asks = mean_target(curator, problem, "offset", 1)[0], curator.plan.releases["whole"].times
    whole = Whole(curator, problem, affine, TargetUnit(start, problem.target_bound, False))
    w, bowl = constant_weights(problem, affine, whole.targets) / whole.units, whole.bowl(moments)
    seen, noise = Slopes(whole, bowl, 0, 0.0).repeat(w, asks)
    quarter = curator.plan.releases["gradient"].times // 4
    for times in (quarter, 2 * quarter):
        more, own = whole.repeat(w * whole.units, "gradient", times)
        share = np.square(noise) / (np.square(noise) + np.square(own))
        seen, noise = share * more + (1.0 - share) * seen, np.sqrt(share) * own
        step = bowl.believe(w, seen, noise)
        if not (step.kept > _STANDING).any():
            return None
    out, left = step.w * whole.units, _left(curator, ("gradient", "offset"))
    means, noises = np.array([whole.mean(out, whole.widest, asks, name) for name, asks in left.items()]).T
    out[-1] -= np.average(means, weights=noises**-2.0) / affine.intercept
    return Corrected(out, 0.0, False, None, step.axes * step.added)


def constant_margin(
    curator: Curator, problem: Problem, names: Sequence[str], least: float
) -> tuple[float, float]:
    """Return the margin of the constant model: the mean of the targets, its logarithm for counts; its noise.

    All that is left of the releases ``names`` is asked for it. What noise could cause is drawn to zero, but
    counts have the ``least`` mean that is seen.
    """
    answers = [mean_target(curator, problem, name, asks) for name, asks in _left(curator, names).items()]
    means, noises = np.array(answers).T
    sure = np.maximum(noises / problem.target_bound, _EXACT) ** -2.0
    mean, noise = np.average(means, weights=sure), public_norm(sure / sure.sum() * noises)
    counts = problem.loss.targets == "counts"
    found = expected_mean(mean, noise, problem.target_bound, counts, is_few(problem) and problem.once)
    return math.log(max(found, min(least, mean + noise))) if counts else found, noise


def _left(curator: Curator, names: Sequence[str]) -> dict[str, int]:
    """Return how often those of these releases that were planned may still be asked."""
    planned = {name: release.times for name, release in curator.plan.releases.items() if name in names}
    return {name: times - curator.used.get(name, 0) for name, times in planned.items()}


def mean_target(curator: Curator, problem: Problem, name: str, asks: int) -> tuple[float, float]:
    """Return the mean of the targets at their declared bound, by so many questions; and its noise.

    Where not even the size of the targets can be seen, the model is the constant: the gradients of rows that
    hold nothing are the residuals, and the mean of all answers of a descent has the noise of a large share.

    **Privacy.** The release ``name``, asked with a map that leaves nothing of the rows.
    """
    clip: float = curator.plan.releases[name].query.clip  # type: ignore[attr-defined]
    predicted = 1.0 if problem.loss.targets == "counts" else 0.0  # where margins are 0
    unit = max(problem.target_bound, predicted) / clip * (1.0 + 2.0**-20)
    params = (np.zeros(2), _FLAT, _CONSTANT, unit)
    answers = [float(curator.release(name, params)[0]) for _ in range(asks)]
    own = unit / problem.population
    mean, noise = predicted - float(np.mean(answers)) * own, noise_std(curator, name) * own / math.sqrt(asks)
    return min(max(mean, -problem.target_bound), problem.target_bound), noise


def _mean_residual(whole: Whole, w: Floats, small: float = 0.0) -> tuple[float, float, float]:
    """Return the mean residual in units of the targets, its expected squared error, and its size at bounds.

    It is asked at the width that is best by what was counted, or at which noise is ``small``, once where that
    is clear, and at the declared bounds, for tails that counts do not show. The two are weighed by variances,
    the first with its bias.
    """
    shares, sizes = whole.targets.far
    spread = noise_std(whole.curator, "offset") / whole.problem.population
    width, bias = whole.widest, 0.0
    if shares.any():  # as if all on one side
        width, bias = chosen_width(np.sort(sizes), one_sided(shares, sizes), 0.0, spread, (1.0, 0.0))
    width = max(width, small * whole.targets.size / max(spread, NOTHING))
    asks, width = _left(whole.curator, ["offset"])["offset"], min(width, whole.widest)
    once = 1 if spread * width < _CLEAR * whole.targets.spread else asks - 1
    narrow, noise = whole.mean(w, width, once)
    wide, most = whole.mean(w, whole.widest, asks - once)
    bias = max((bias / whole.targets.size) ** 2, (narrow - wide) ** 2 - _UNLIKELY**2 * (noise**2 + most**2))
    sure, unsure = max(noise**2 + bias, NOTHING), max(most**2, NOTHING)
    error = 1.0 / (1.0 / sure + 1.0 / unsure)
    return error * (narrow / sure + wide / unsure), error, abs(wide) + most


def _move(whole: Whole, w: Floats) -> tuple[Floats, float, float]:
    """Return the weights with the offset moved by the mean residual, and how far, in spreads of targets.

    That is beyond what noise alone could cause. The last number is the size of that mean at the
    declared bounds with its noise, in units of the targets.
    """
    mean, error, unseen = _mean_residual(whole, w)
    out = w.copy()
    # The mean of most targets is their centre; of others it lies anywhere within their deviation.
    spread = whole.targets.spread / whole.targets.size
    shift = believe(mean, error, max((_SKEW * spread) ** 2, mean**2 - 4.0 * error))
    out[-1] -= shift / whole.own.intercept
    return out, (abs(shift) - 3.0 * math.sqrt(error)) / spread, unseen


def _multiply(whole: Whole, w: Floats) -> tuple[Floats, float, float]:
    """Return the weights of a model of counts with all predictions multiplied, so that their mean is right.

    The mean residual says by what. What they are now say the mean of the targets less that and, where noise
    hides it, the weights for rows of length one. The second number is how far the factor is from 1 at least:
    beyond what noise alone could cause, as a logarithm.
    """
    own, size = w[: whole.own.scale.size], whole.targets.size
    usual = math.exp(whole.own.intercept * float(w[-1]) + 0.5 * float(own @ own) / own.size) / size
    mean, most = (one / size for one in mean_target(whole.curator, whole.problem, "offset", 1))
    off, error, _ = _mean_residual(whole, w, _SMALL * whole.targets.mean / size)
    sure, noise = max((_ROUGH * usual) ** 2, NOTHING), max(math.sqrt(error), NOTHING)
    now = max(np.average([usual, mean + off], weights=[1.0 / sure, 1.0 / (noise**2 + most**2)]), NOTHING)
    mean = max(now - off, noise)
    out, moved = w.copy(), math.log(mean / now)
    # A descent on counts is short of their mean wherever few are large: it is no more likely to be right.
    out[-1] += moved / (1.0 + error / (mean * SLOPE) ** 2) / whole.own.intercept
    return out, abs(moved) - 3.0 * noise / mean, 0.0


def _raise(whole: Whole, w: Floats, least: float) -> tuple[Floats, float, float]:
    """Return the weights of a model of amounts with the offset at which these are as predicted on average.

    The mean of amounts over predictions is asked as wide as its noise is small, as gradients are, or as is
    best by the amounts that were counted.
    """
    asks, spread = _left(whole.curator, ["offset"])["offset"], noise_std(whole.curator, "offset")
    noise = max(spread, NOTHING) / (whole.problem.population * math.sqrt(asks))
    shares, sizes = whole.targets.far
    best, _ = chosen_width(
        np.sort(sizes) / whole.targets.mean, one_sided(shares, sizes), 0.0, noise, (1.0, 0.0)
    )
    width = max(_SMALL / noise, least, best)
    mean, noise = whole.mean(w, min(width, _BEYOND), asks)
    out = w.copy()
    out[-1] += math.log1p(max(-believe(mean, noise**2, SLOPE**2), -SLOPE)) / whole.own.intercept
    return out, abs(mean) - 3.0 * noise, 0.0


def _step(whole: Whole, start: Floats, width: float, asks: int) -> Believed:
    """Return the weights of a model of counts after Newton steps on the whole gradient, offset and all."""
    units, seen = 1.0 / whole.units, list[Floats]()

    def score(w: Floats) -> tuple[list[Floats], float]:
        answer, noise = whole.score(w / units, width)
        seen.append((answer + whole.penalty(w / units))[: units.size])
        return seen, noise

    def bowl_at(w: Floats, last: Bowl | None) -> Bowl:
        return whole.bowl_of_counts(w / units, last)

    entries = np.abs(whole.own.scale) * (whole.problem.data_norm + np.abs(whole.own.shift))
    found = newton_steps(score, bowl_at, start * units, asks, np.pad(entries, (0, units.size - entries.size)))
    return replace(found, w=found.w / units)


def _noise_after(before: Corrected, step: Believed) -> Corrected:
    """Return the weights after a step, with what became of the noise that they had."""
    slope_noise = math.hypot((1.0 - step.slope[0]) * before.slope, math.sqrt(step.slope[0]) * step.slope[1])
    after, d = np.eye(step.w.size), len(step.axes)
    after[:d, :d] -= step.axes @ (step.kept[:, None] * step.axes.T)
    return Corrected(step.w, slope_noise, False, after, step.axes * step.added)
