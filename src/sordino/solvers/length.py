"""The right length of a model: slope and offset of its own margins, from a few released numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import softmax

from sordino.kernel import Curator
from sordino.kernel.arrays import Floats, public_norm
from sordino.problems.affine import Affine, MarginFit, OwnPart
from sordino.problems.losses import has_labels, has_odds, has_shares, sigmoid
from sordino.problems.problem import Problem
from sordino.problems.queries import ALIKE, log_shares
from sordino.solvers.base import noise_std
from sordino.solvers.descent import (
    NOTHING,
    ROOM,
    Leg,
    Moments,
    TargetUnit,
    chosen_width,
    coefficient_noise,
    noise_factor,
    one_sided,
    travel_length,
)

# ----------------------------------------------------------------------------------------------------------
# What more records and budget change for label models: how much is clipped, what is asked of the classes.
# A clip below the largest contribution weighs records. Weights that depend on rows alone leave log odds as
# they are where the model is true; where labels are wrong, or log odds are no line, the weighted model is
# another one. So the clips open with the public number of records times epsilon, and the estimate tends to
# the plain one on every bounded distribution.

# From so many records times epsilon on, the last question weighs its records less: by which power of this
# number the clip grows, and how much at most (log odds of 38 are then asked about as they are), but for the
# root of what there is beyond so many times as many.
_ENOUGH, _OPENING, _WIDEST, _VERY_MANY = 1000.0, 0.9, 64.0, 200.0
# From so many for each coefficient on, gradients are clipped less. Those of amounts are clipped at so many
# predictions, and open faster: nothing else sees few that are a hundred times as large.
_GRADIENTS, _AMOUNTS, _FEW_LARGE = 300.0, 2.0, 200.0
# The share of the budget that asks how frequent the classes are, for so many records times epsilon; fewer
# need more of it, up to the second share (so many times as much of several classes, which have a noise each),
# and very few all of it: below the last number not even equal classes can be told from noise.
_CLASSES, _FEW_CLASSES, _ENOUGH_CLASSES, _SEVERAL, _VERY_FEW = 0.01, 0.05, 4000.0, 3, 17.0
# So many records outside of the most frequent class are needed to learn which they are: in deviations of a
# count with all of the budget, and of the released one. The odds that classes are alike, if that is all.
_LEARNABLE, _TOLD, _EVEN = 2.0, 0.5, 6.0
# A mean of uneven counts is so many bounds over records times epsilon, or it is all that is asked. Their mean
# square is so many times their mean and its square; at most 2 times the larger for Poisson counts. Of amounts
# few that nobody sees may be as much as all others below the last number.
_LEARNABLE_MEAN, _UNEVEN, _LEARNABLE_LEAST = 80.0, 3.0, 5.0


def has_room(problem: Problem, coefficients: int) -> float:
    """Return by how much so many coefficients can be told from noise, at most 1."""
    return min(1.0, problem.population * problem.epsilon / (ROOM * coefficients))


def opened_length(problem: Problem, clip: float, coefficients: int, telling: float = 1.0) -> float:
    """Return the clip of the last question about a model of so many coefficients.

    Records tell of log odds by ``telling``, as much as those of equal classes or less.
    """
    if not has_odds(problem.loss):
        return clip
    if math.isinf(problem.epsilon):
        return 1e6 * clip
    signal = telling * problem.population * problem.epsilon * has_room(problem, coefficients)
    opened = max(1.0, signal / _ENOUGH)  # few long rows may have longer log odds
    return clip * min(opened**_OPENING, _WIDEST * max(1.0, opened / _VERY_MANY) ** 0.5)


def opened_gradient(problem: Problem, clip: float, coefficients: int, longest: float) -> float:
    """Return the clip of a gradient in so many coefficients, of rows that are at most so long.

    Those of numbers and counts are corrected later.
    """
    signal = problem.population * problem.epsilon
    if has_shares(problem.loss):
        return _AMOUNTS * min(max(signal / (_FEW_LARGE * (coefficients + 1)), 1.0) ** 0.75, 1e6)
    if not has_labels(problem.loss):
        return clip
    wider = max(1.0, signal / (_GRADIENTS * coefficients)) ** 0.5
    return max(clip, min(clip * min(wider, 1e6), problem.loss.lipschitz * longest))


def class_share(problem: Problem) -> float:
    """Return the share of the budget for the frequencies of the classes."""
    signal = max(problem.population * problem.epsilon, 1e-12)
    few = min(_CLASSES * _ENOUGH_CLASSES / signal, _FEW_CLASSES) * min(max(problem.outputs - 1, 1), _SEVERAL)
    return max(_CLASSES, few, min((_VERY_FEW / signal) ** 2, 1.0))


def class_odds(curator: Curator, problem: Problem) -> TargetUnit:
    """Return the log odds of the constant model, by released class sums.

    With more to ask they are a start, and classes are taken as alike that noise does not tell apart; with
    nothing else to ask they are the answer.
    """
    n, alike = problem.population, ALIKE ** (1.0 - class_share(problem))
    means = curator.release("classes") / n, noise_std(curator, "classes") / n
    return TargetUnit(log_shares(*means, alike), means=means)


def learnable(curator: Curator, problem: Problem, targets: TargetUnit) -> bool:
    """Return whether records outside of the most frequent class, or a mean of counts, stand out of noise."""
    if "classes" not in curator.plan.releases:
        signal = targets.mean * problem.population * problem.epsilon / problem.target_bound
        uneven = targets.spread**2 > _UNEVEN * targets.mean * max(targets.mean, 1.0) > 0.0
        least = _LEARNABLE_MEAN if uneven and not has_shares(problem.loss) else _LEARNABLE_LEAST
        return problem.loss.targets != "counts" or signal >= least
    odds = np.append(0.0, targets.center) if problem.outputs == 1 else np.asarray(targets.center)
    others = problem.population * (1.0 - softmax(odds).max())
    least = (_LEARNABLE * math.sqrt(class_share(problem)) + _TOLD) * (len(odds) - 1)  # each has its noise
    return class_share(problem) < 1.0 and bool(others >= least * noise_std(curator, "classes"))


def constant_odds(curator: Curator, problem: Problem, names: Sequence[str], targets: TargetUnit) -> Any:
    """Return the log odds of the classes, by their sums and by gradients at rows that hold only the constant.

    **Privacy.** The releases ``names``, asked with a map that leaves nothing of the rows.
    """
    found = [_class_means(curator, problem, name) for name in names if name in curator.plan.releases]
    found += [] if targets.means is None else [targets.means]
    sure = np.array([max(noise, 1e-9) ** -2.0 for _, noise in found])
    means = np.average([mean for mean, _ in found], axis=0, weights=sure)
    return log_shares(means, float(sure.sum() ** -0.5), alike=_EVEN)


def _class_means(curator: Curator, problem: Problem, name: str) -> tuple[Floats, float]:
    """Return by how much each class is more frequent than all are on average, and the noise of that."""
    release = curator.plan.releases[name]
    clip: float = release.query.clip  # type: ignore[attr-defined]
    largest = 0.5 if problem.outputs == 1 else 1.0  # a residual at log odds of 0
    constant = min(1.0, clip / largest * (1.0 - 2.0**-20))
    flat = Affine(np.zeros(1), np.zeros(1), constant, np.zeros(1, dtype=np.int64))
    w = np.zeros((*problem.shape[:-1], 2))
    mask = np.broadcast_to([False, True], w.shape)
    answers = [np.asarray(curator.release(name, (w, flat, mask, 1.0))) for _ in range(release.times)]
    own = 1.0 / (constant * problem.population)
    means, noise = -own * np.mean(answers, axis=0), own * noise_std(curator, name) / math.sqrt(release.times)
    if problem.outputs == 1:
        return np.array([-means[0], means[0]]), noise * math.sqrt(2.0)
    return means, noise


CLIP = 0.4
# Labels are asked about so often, first in so many narrow questions.
_LABELS_STEPS, _NARROW_STEPS = 7, 2
# The norm of a mean gradient that is expected where something can be learned (less where the unit of
# targets had to be found), and its smallest part in a margin, however many coordinates share it.
_LABELS_SIGNAL, _NUMBERS_SIGNAL, _SEEN = 0.12, 0.03, 0.125
# How far slope and offset are from what is expected of them: standard deviations before any release. The
# slope of several classes is surer where all labels were clipped alike.
_LABELS_SPREAD, _CLASSES_SPREAD, _NUMBERS_SPREAD = (0.5, 0.3), (0.25, 0.3), (0.5, 0.1)
# With fewer records times epsilon than these, descent on two classes stops short of the odds that can be
# learned: a slope larger by so much is expected, and one that is further from it.
_FEW, _SHORT, _WIDER = 16_000.0, 0.2, 0.3
# The share of the last question, of numbers and of labels. So many records times epsilon tell the slope
# from noise; fewer need more, up to the largest share of two classes, and of several.
_SHARE, _LABELS_SHARE, _LARGEST_SHARES, _ENOUGH_FOR_LENGTH = 0.02, 0.06, (0.10, 0.05), 4000.0
# The mean second derivative of clipped log odds and clipped numbers, and what choosing columns adds to the
# part that a record has in its own margin.
_LABELS_BEND, _NUMBERS_BEND, _CHOSEN = 0.04, 0.5, 1.5
# How uncertain that part is, in units of the gradient.
_OWN_ERROR = 0.001
# A tail that the clip of numbers would take counts as a bias by so much; with fewer records times
# epsilon than the second number the clip opens less.
_TAIL, _ENOUGH_TO_WIDEN = 0.2, 2000.0
# The clip of numbers is so many times the distance of the nearest targets to their mean.
_BEYOND_NEAREST = 1.25
# Up to what a step may make log odds longer as one in one over their length, and from what on it is far.
_LONGER, _FAR = 0.25, 0.2
# The curvature at long log odds is small, and a step that makes them shorter by more goes too far.
_SHORTER = 0.5
# Margins are measured from where they are zero, of slopes of so much at least.
_NEAREST = 0.1
# A narrow question finds a slope that is off by about so much where the model is not true.
_UNTRUE = 0.3
_SURE, _DENIED = 3.0, 4.0
# A clip counts as a doubt by so much of what it takes of the largest gradients; a descent has at most this
# part of its way left, by bends at so much of its final length (chosen on six designs, judged on ten).
_LOST, _LEFT, _ON_THE_WAY = 0.25, 0.99, math.sqrt(0.5)
# A descent on numbers with little noise has arrived, or lacks this part of its squared length.
_NEARLY, _ARRIVED = 0.06, 1e-12
# Rows of which the mean square is this part of the largest are about as long as the longest.
_ALIKE = 3.0
# Rows so many times as long as most may hide, and cost so much of log loss, before a model says so.
_FARTHER, _RUINED = 16.0, 0.35
# The least slope, in standard deviations of what is known of it.
_LEAST = 0.1


@dataclass(frozen=True, eq=False)
class Descended:
    """A model before its last question: mapped weights, the map, the unit of the targets, how it came about.

    ``gradient`` is the query of the last descent.
    """

    w: Floats
    affine: Affine
    targets: TargetUnit
    legs: tuple[Leg, ...]
    gradient: Any
    moments: Moments | None = None

    @property
    def home(self) -> Any:
        """The margin that predicts the centre of the targets."""
        return self.targets.center / self.targets.size if self.affine.intercept else 0.0

    @property
    def offset(self) -> Any:
        """The margin of the centre of the data."""
        return self.affine.intercept * self.w[..., -1] if self.affine.intercept else 0.0

    @property
    def ratio(self) -> float:
        """The signal that is expected in a coordinate, over its noise."""
        last = self.legs[-1].descent
        signal = _NUMBERS_SIGNAL if self.gradient.loss.targets == "numbers" else _LABELS_SIGNAL * self.telling
        return signal * math.sqrt(len(last.taken)) / max(last.noise.std, 1e-12)

    def spread(self, few: float) -> Floats:
        """Return how far slope and offset may be from what is expected."""
        if self.gradient.loss.targets == "numbers":
            return np.array(_NUMBERS_SPREAD)
        if self.gradient.fair and self.w.ndim == 2:
            return np.array(_CLASSES_SPREAD)
        return np.array([_LABELS_SPREAD[0] + _WIDER * few, _LABELS_SPREAD[1] / math.sqrt(self.telling)])

    @property
    def telling(self) -> float:
        """How much records of two classes tell of their log odds, by released shares: 1 of equal ones."""
        two = self.targets.means and self.w.ndim == 1
        return float(np.cosh(0.5 * self.targets.center) ** -2.0) if two else 1.0

    @property
    def alike(self) -> float:
        """How far rows are about as long as the longest, by released squares of mapped ones: at most 1."""
        if self.moments is None:
            return 1.0
        squares = float(np.trace(self.moments.matrix[: self.affine.scale.size, : self.affine.scale.size]))
        return min(max(_ALIKE * squares, self.moments.unsure, NOTHING), 1.0)

    @property
    def coordinates(self) -> int:
        """How many coordinates were open last."""
        return self.legs[-1].descent.noise.coordinates


def arrival(curator: Curator, problem: Problem, model: Descended) -> tuple[float, float, float]:
    """Return what is doubted of slope and offset that a descent on log odds found, and the part of its noise.

    A descent that no clip misled and that arrived has both right, but for its noise. What it had left of the
    way follows from its steps and the released moments. The second number is of the squares of margins, the
    third the part of it along them that unequal classes add: records of a rare one lie on one side of the
    margins, where slope and offset are hard to tell apart (exact for normal margins and a very rare class).

    **Privacy.** Post-processing of released and public numbers.
    """
    descent, moments, constant = model.legs[-1].descent, model.moments, model.affine.intercept
    metric = descent.metric
    if metric is None or moments is None or len(model.legs) > 1:
        return 1.0, 0.0, 0.0
    w, odds = np.atleast_2d(model.w), np.reshape(model.offset, (-1, 1))
    along = np.where(np.arange(w.shape[1]) < model.affine.scale.size, w, 0.0) @ metric.axes.T
    squares = metric.sizes * np.square(along)
    length = np.sqrt(squares.sum(axis=1, keepdims=True))
    # Long log odds bend little along themselves, few rows may have them all; on the way they were shorter.
    flat = np.sqrt(1.0 + math.pi / 8.0 * np.square(_ON_THE_WAY * length) / model.alike)
    shares, largest, lean = softmax(odds / flat + 0.0 * length, axis=0), problem.loss.lipschitz, 0.0 * length
    if problem.outputs == 1:
        shares, largest = sigmoid(odds / flat), float(sigmoid(np.abs(odds) + length)[0, 0])
        lean = 0.5 * np.square(_ON_THE_WAY * length * (1.0 - 2.0 * shares))
    lost = max(1.0 - model.gradient.clip / (largest * math.hypot(1.0, constant)), 0.0)
    bends = (1.0 - lost) * metric.rates * shares * (1.0 - shares) / flat**3 * metric.expected
    slow, nothing = bends * (1.0 + lean - np.sqrt(lean * (lean + 2.0))), np.zeros_like(along)
    noise, leaning, start = (
        np.square(descent.spread(*law)) for law in ((bends, nothing), (slow, nothing), (slow, nothing + 1.0))
    )
    left, whole = np.clip(np.sqrt(np.maximum(start - leaning, 0.0)), 0.0, _LEFT), max(squares.sum(), NOTHING)
    felt = metric.sizes * np.square(metric.rates) / whole
    more = float((felt * (leaning - noise) * squares).sum() / whole)
    chance = float((felt * noise).sum()) + more
    unseen = _SURE * noise_std(curator, "sizes") / problem.population  # rows that counts may not show
    longer = moments.stretch - 1.0 + unseen * max(model.affine.longest(problem.data_norm) - 1.0, 0.0)
    short = float((squares * left / (1.0 - left)).sum() / whole)
    return min(1.0, _LOST * lost + longer + short + chance), chance, more


def hidden_rows(curator: Curator, problem: Problem, model: Descended, w: Floats) -> float:
    """Return the share of records that counts may not show, where their margins are guesses; or 0.

    They may be as long as declared, and half of them wrong: that may cost more than all others gain.
    """
    longest = float(model.affine.scale.min()) * problem.data_norm  # in any column
    share = _SURE * noise_std(curator, "sizes") / problem.population
    margin = longest * public_norm(w[..., : model.affine.scale.size])
    farther, cost = longest > _FARTHER, margin
    if not has_odds(problem.loss):  # the squared hinge
        farther, cost = has_labels(problem.loss), 0.5 * (1.0 + margin) ** 2
    guessed = farther and 0.5 * share * cost > _RUINED
    return min(share, 1.0) if guessed else 0.0


def length_share(problem: Problem, coefficients: int) -> float:
    """Return the share of the last question: with it the error of the slope is the same for all n epsilon."""
    few = _ENOUGH_FOR_LENGTH / max(problem.population * problem.epsilon, 1e-12)
    if not has_odds(problem.loss):
        return min(max(_SHARE * few**2, _SHARE), _LABELS_SHARE)
    least = _SHARE + (_LABELS_SHARE - _SHARE) * has_room(problem, coefficients)
    return min(max(_SHARE * few**2, least), _LARGEST_SHARES[problem.outputs > 1])


def length_query(problem: Problem, coefficients: int) -> MarginFit:
    """Return the last question about a model of so many coefficients."""
    clip = opened_length(problem, CLIP, coefficients)
    return MarginFit(problem.loss, clip, bool(problem.intercept) and problem.outputs == 1)


def constant_weights(problem: Problem, affine: Affine, targets: TargetUnit) -> Floats:
    """Return the mapped weights of the model that predicts the centre of targets, or the mean of counts."""
    w, mean = np.zeros(problem.shape), targets.mean if problem.loss.targets == "counts" else 0.0
    if affine.intercept:
        low = 1.0 if problem.loss.name == "poisson" else 0.0
        margin = math.log(mean) if mean > low else targets.center / targets.size
        w[..., -1] = margin / affine.intercept
    return w


@dataclass(frozen=True, eq=False)
class Lengthened:
    """The weights at the released slope and offset, the slope, its noise, the mean bend of the loss."""

    w: Floats
    slope: float
    slope_noise: float
    bend: float


def lengthen(curator: Curator, problem: Problem, model: Descended) -> Lengthened:
    """Return the model at the released slope and offset.

    Before anything is released, slope and offset are expected to be those of the best linear shrinkage: a
    model of noise has the slope 0. Where not even the size of the targets stood out of its noise, the
    constant is the model.

    **Privacy.** Post-processing of the release ``"length"``.
    """
    if "length" not in curator.plan.releases:
        counts = problem.loss.targets == "counts" and not problem.table  # nobody may have a level
        rate = model.targets.mean / model.targets.size if counts else 0.0
        rate = 1.0 if has_shares(problem.loss) else rate
        kept = 1.0 if "whole" in curator.plan.releases else kept_share(problem, model, rate)
        w = np.where(np.arange(model.w.size) < model.affine.scale.size, kept * model.w, model.w)
        return Lengthened(w, kept, 0.0, rate)
    if not model.targets.seen:
        return Lengthened(constant_weights(problem, model.affine, model.targets), 0.0, 0.0, 0.0)
    offset = model.home + _wiener(0.5 * model.ratio) * (model.offset - model.home)
    pairs = problem.outputs == 1 and has_odds(problem.loss)
    few = min(1.0, _FEW / max(problem.population * problem.epsilon, 1e-12)) if pairs else 0.0
    asked = MarginQuestion.of(curator, problem, model, offset)
    doubt, chance, more = arrival(curator, problem, model) if asked.odds else (1.0, 0.0, 0.0)
    few *= doubt
    slope = (1.0 + _SHORT * few) * _wiener(model.ratio * max(model.coordinates**-0.5, _SEEN))
    slope *= 1.0 - (1.0 - doubt) * chance
    expected = np.array([slope, offset] if asked.two else [slope])
    spread = model.spread(few)[: expected.size]
    if problem.loss.targets == "numbers" and "whole" in curator.plan.releases:
        arrived = _NEARLY if problem.table else max(noise_share(model, _NUMBERS_BEND), _ARRIVED)
        spread[0] *= math.sqrt(max(1.0 - slope, arrived))
    prior = np.diag(1.0 / spread)
    if asked.two and asked.odds:  # longer log odds are so everywhere but in those of the class shares
        prior[1, 0] = -prior[1, 1] * _wiener(0.5 * model.ratio) * (offset - model.home)
    unsure = min(math.hypot(doubt, math.sqrt(chance)), 1.0)
    found = recalibrate(asked, expected, prior, length_steps(problem), asked.odds, unsure)
    w = model.w * found.point[0]
    if model.affine.intercept:
        moved = found.point[1] if asked.two else asked.rest + found.point[0] * (offset - asked.rest)
        w[..., -1] = moved / model.affine.intercept
    widened = problem.loss.targets == "numbers" and asked.own.narrow != 1.0  # than in the descent
    bend = found.curvature[1, 1] if asked.two and not widened else mean_bend(problem)
    noise = math.hypot(found.noise, doubt * (1.0 - doubt) / prior[0, 0], math.sqrt(more))  # a doubt is left
    return Lengthened(w, float(found.point[0]), noise, min(max(float(bend), 0.0), 1.0))


def noise_share(model: Descended, bend: float) -> float:
    """Return the least part of the squares of margins that is noise of a descent in a metric; 0 without one.

    Along axes of little curvature a metric takes long steps, and noise adds up there: of a hundred columns
    that follow three factors a descent may have more of it than signal.
    """
    metric, d = model.legs[-1].descent.metric, model.affine.scale.size
    factor = noise_factor(model.legs, bend, None)
    if metric is None or factor is None:
        return 0.0
    noise, total = (
        float(metric.expected @ np.square(metric.axes[:, :d] @ part).sum(axis=1))
        for part in (factor[:d], model.w[:d, None])
    )
    return min(noise / max(total, NOTHING), 1.0)


def kept_share(problem: Problem, model: Descended, bend: float) -> float:
    """Return the share of the slopes of counts that is no noise of the plan, nor chance of the records.

    That is James and Stein's. Without a metric all directions count as alike.
    """
    w, (shares, sizes), mean = model.w[: model.affine.scale.size], model.targets.far, model.targets.mean
    if math.isinf(problem.epsilon) or problem.loss.targets != "counts" or not min(mean, bend):
        return 1.0
    metric, count = model.legs[-1].descent.metric, max(int(np.count_nonzero(w)), 1)
    largest = model.gradient.clip * model.targets.size / bend
    chance = max(float(shares @ np.square(np.minimum(sizes, largest) / mean)) - 1.0, 0.0)
    if metric is None:
        noise = coefficient_noise(model.legs, bend, w.shape, None)
        total = max(float(w @ w) / count, NOTHING)
        share = float(noise @ noise) / count / total
    else:
        total = max(float(metric.expected @ np.square(metric.axes[:, : w.size] @ w)), NOTHING)
        share = noise_share(model, bend)
    return max(1.0 - share - count * chance / problem.population / total, 0.0)


def length_steps(problem: Problem) -> int:
    """Return how often slope and offset are asked for: of labels in narrow questions first, then in wide."""
    if not has_odds(problem.loss):
        return 3
    return _LABELS_STEPS if math.isfinite(problem.epsilon) else 20


@dataclass(frozen=True, eq=False)
class MarginQuestion:
    """What is asked about the margins of a model at a slope and an offset.

    Log odds are asked about as they are there, from a centre: a narrow clip takes least of the records that
    are near it, and they should be those that tell most.
    """

    curator: Curator
    problem: Problem
    model: Descended
    offset: Any
    own: OwnPart

    @classmethod
    def of(cls, curator: Curator, problem: Problem, model: Descended, offset: Any) -> MarginQuestion:
        """Return the question, for numbers with a wider clip where nothing corrects slopes later."""
        own = own_part(problem, model)
        if problem.loss.targets == "numbers" and "whole" not in curator.plan.releases:
            own = replace(own, narrow=_wider(curator, problem, model))
        return cls(curator, problem, model, offset, own)

    @property
    def query(self) -> Any:
        """The query, with its clip."""
        return self.curator.plan.releases["length"].query

    @property
    def two(self) -> bool:
        """Whether the offset is asked for, besides the slope."""
        return bool(self.query.offset)

    @property
    def odds(self) -> bool:
        """Whether margins are log odds."""
        return has_odds(self.problem.loss)

    @property
    def rest(self) -> Any:
        """The part of a fixed offset that does not grow with the slope: that of the class shares."""
        return self.model.home if self.odds else self.offset

    def __call__(self, point: Floats, center: float, number: int) -> Answer:
        """Return the answer at a point."""
        size = max(float(point[0]), _NEAREST) if self.odds else 1.0
        away = size * (center if self.two else self.offset - self.rest)
        narrow = self.own.narrow * self._narrow(number)
        own = replace(self.own, end=self.own.end - away, travel=size * self.own.travel, narrow=narrow)
        w = size * self.model.w
        if self.model.affine.intercept:
            w[..., -1] = away / self.model.affine.intercept
        plain, slope = self.model.affine.coefficients(w, self.problem.intercept), float(point[0]) / size
        left = point[1] - slope * away if self.two else self.rest
        released = self.curator.release("length", (plain, left, slope, self.model.targets.size, own))
        gradient, curvature = self.query.unpack(released / self.problem.population, narrow)
        if self.odds:  # longer margins cost more of the penalties, too
            slopes = plain[..., : self.model.affine.scale.size]
            gradient[0] += float(np.sum(plain * self.problem.penalty_gradient(slope * plain)))
            curvature[0, 0] += self.problem.penalty_curvature * float(np.sum(np.square(slopes)))
        back = np.array([[1.0, -float(away)], [0.0, size]]) / size if self.two else np.eye(1) / size
        return self._answer(point, (gradient, curvature), own, back)

    def _narrow(self, number: int) -> float:
        """Return how much narrower than declared a question of this number is clipped."""
        if not self.odds or number >= _NARROW_STEPS:
            return 1.0
        wider = min(max(self.own.narrow * self.query.clip / CLIP, 1.0), _WIDEST)
        return wider ** (-0.5 * self.model.alike)

    def _answer(self, point: Floats, seen: tuple[Floats, Floats], own: OwnPart, back: Floats) -> Answer:
        """Return derivatives in slope and offset, ``back`` from those that were seen, with their errors."""
        gradient, curvature = seen
        spread = noise_std(self.curator, "length") / self.problem.population
        noise, unsure = self.query.unpack(np.full(self.query.size, spread), own.narrow)
        curvature = curvature + np.diag(np.maximum(np.diag(unsure - curvature), 0.0))
        errors = np.maximum(np.hypot(noise, _OWN_ERROR * own.travel), 1e-9)  # a prior is nothing beside data
        sure = np.linalg.inv(back) / errors[:, None]
        errors[0] = math.hypot(errors[0], _UNTRUE * curvature[0, 0])
        careful = np.linalg.inv(back) / errors[:, None]
        return Answer(point, back @ gradient, back @ curvature @ back.T, sure, careful, own.narrow)


def _wider(curator: Curator, problem: Problem, model: Descended) -> float:
    """Return how many times wider numbers are clipped in the last question: nothing corrects slopes later.

    Released counts of targets say what a clip would take; as if all of it were on one side.
    """
    shares, sizes = model.targets.far
    release = curator.plan.releases["length"]
    if not shares.any():
        return 1.0
    spread = noise_std(curator, "length") / (CLIP * problem.population * math.sqrt(release.times))
    width, _ = chosen_width(np.sort(sizes), one_sided(shares, sizes), 0.0, spread, (_TAIL, 0.0))
    room = min(1.0, problem.population * problem.epsilon / _ENOUGH_TO_WIDEN)
    unit = CLIP * model.targets.size
    return max(max(1.0, width / unit) ** room, _BEYOND_NEAREST * model.targets.nearest / unit)


def mean_bend(problem: Problem) -> float:
    """Return the mean second derivative of a clipped loss that is expected before any is released."""
    return _LABELS_BEND if has_odds(problem.loss) else _NUMBERS_BEND


def own_part(problem: Problem, model: Descended) -> OwnPart:
    """Return how a record got into the margins that it is asked about.

    A mean gradient was followed for ``travel``, a record's share of it is 1 / n; but all shares together
    fit no more than there are coefficients. The second derivatives of the log odds of several classes add up,
    for a record, to about those of two.
    """
    free = mean_bend(problem) * min(problem.outputs, 2) / model.coordinates
    chosen = _CHOSEN if len(model.legs) > 1 else 1.0
    travel = chosen / (problem.population * (1.0 / travel_length(model.legs) + free))
    if math.isinf(problem.epsilon):  # the plain model is the one that fits its own records
        travel = 0.0
    gradient = model.gradient
    planned = replace(problem, population=round(problem.population / problem.weight))  # whatever these weigh
    told = opened_length(problem, 1.0, model.coordinates, model.telling)
    whole = opened_length(planned, 1.0, model.coordinates)
    return OwnPart(model.affine, travel, model.home, model.offset, gradient.clip, gradient.fair, told / whole)


@dataclass(frozen=True, eq=False)
class Answer:
    """What was released about slope and offset at a point.

    ``sure`` is a root of the precision of the gradient, ``careful`` of one that is about a true model alone,
    ``width`` the clip of the question.
    """

    point: Floats
    gradient: Floats
    curvature: Floats
    sure: Floats
    careful: Floats
    width: float

    @cached_property
    def bend(self) -> Floats:
        """The curvature, as :func:`_mean_bend` returns it."""
        return _mean_bend([self])


@dataclass(frozen=True, eq=False)
class Recalibrated:
    """Slope and offset, the curvature there, and the deviation of the noise of the slope."""

    point: Floats
    curvature: Floats
    noise: float


def recalibrate(
    ask: Callable[[Floats, float, int], Answer],
    expected: Floats,
    prior: Floats,
    asks: int,
    odds: bool,
    unsure: float = 1.0,
) -> Recalibrated:
    r"""Return the slope (and offset) after Newton steps from what is ``expected``.

    ``ask`` releases gradient and curvature at a point. The point is the mean of its posterior under a normal
    law around ``expected`` with the root ``prior`` of its precision, and normal noise: where nothing can be
    learned, ``expected`` is the answer. While answers do not deny it, this part of the law is ``unsure``.
    Steps that make ``odds`` longer go farther; their offset is expected to move with the slope as the
    curvature says that it must for the same shares of the classes.

    **Privacy.** Post-processing of what ``ask`` released.
    """
    point, prior, answers, wider, center, short = expected, prior.copy(), [], unsure, 0.0, True
    for number in range(asks):
        answers.append(ask(point, center, number))
        found = _posterior(answers, expected, prior / max(wider, 1.0))
        # What is farther from what was expected than noise could move it was not to be expected.
        away, noise = prior[0, 0] * (found.point[0] - expected[0]), prior[0, 0] * _DENIED * found.noise
        wider = max(wider if wider > 1.0 else unsure, math.sqrt(max(away**2 - noise**2, 0.0)))
        if wider < 1.0:
            found = _posterior(answers, expected, prior / wider)
        moved, far = found.point - point, 0.0
        if not odds:
            moved = np.clip(moved, -1.0, 1.0)
        else:  # once they were too long, farther steps would only go back and forth
            short = short and number < asks - 1 and moved[0] > 0.0
            center, (moved, far) = _center(found), longer(moved, point, found, short)
            prior[1:, 0] = -prior[1:, 1:].sum(axis=1) * center  # for the same shares of the classes
        answers = [] if far > _FAR else answers  # those before are about another place
        point = point + moved
        point[0] = max(point[0], _LEAST * found.noise)  # at zero the margins would lose their order
    return replace(found, point=point)


def _center(found: Recalibrated) -> float:
    """Return where records tell most of the slope: their weighted centre, of margins that have one."""
    if len(found.point) < 2:
        return 0.0
    even = found.point[1] / max(found.point[0], _NEAREST)
    seen = -found.curvature[0, 1] / max(found.curvature[1, 1], 1e-300)
    return float(np.clip(seen, min(even, 0.0), max(even, 0.0)))


def longer(moved: Floats, point: Floats, found: Recalibrated, short: bool) -> tuple[Floats, float]:
    """Return a Newton step as far as it holds, and by how much at least it changes the length of margins.

    Of classes that hardly overlap the loss is a square in one over the length of their log odds; a Newton
    step in the length goes a third of the way. So a step that makes log odds longer is taken as one in one
    over the length, as far as the curvature says that it is along the point and noise does not explain it,
    while log odds were ``short`` wherever they were asked about.
    """
    most = np.maximum(np.abs(point), 1.0)
    moved = np.clip(moved, -most, most)
    moved = moved * min(1.0, _SHORTER * float(point[0]) / max(-float(moved[0]), NOTHING))
    along = float(point @ found.curvature @ moved) / max(float(point @ found.curvature @ point), 1e-300)
    chance = found.noise / max(point[0], _NEAREST)
    share = min(max(along - chance, 0.0), _LONGER) * short
    more = (1.0 - 2.0 * share) / (1.0 - 3.0 * share) - 1.0 - share
    return moved + more * point, abs(along) - _SURE * chance


def _posterior(answers: list[Answer], expected: Floats, prior: Floats) -> Recalibrated:
    """Return the mean of slope and offset by answers with noise, and by what is expected of them.

    Narrow questions say the same as wide ones where the model is true, with less noise; as far as wide ones
    deny it, they are not believed.
    """
    wide = [a for a in answers if a.width == answers[-1].width]
    narrow, bent = [a for a in answers if a.width != answers[-1].width], _mean_bend(wide)
    # Where log odds are long they bend little: an answer counts as its own curvature and the mean one say.
    parts = [(a, a.sure, 0.5 * (bent + a.bend)) for a in wide]
    if narrow:
        found, theirs = _posterior(narrow, expected, prior), _mean_bend(narrow)
        missed = np.mean([a.sure @ (a.gradient + bent @ (found.point - a.point)) for a in wide], axis=0)
        doubt = max(len(wide) * float(missed @ missed) - 2.0 * len(missed), 0.0)
        parts += [(a, a.careful / (1.0 + doubt), theirs) for a in narrow]
    seen = np.concatenate([sure @ own for _, sure, own in parts])
    values = [sure @ (own @ a.point - a.gradient) for a, sure, own in parts]
    inverse = np.linalg.pinv(np.concatenate([prior, seen]))
    noise = inverse[0, len(prior) :]
    point: Floats = inverse @ np.concatenate([prior @ expected, *values])
    return Recalibrated(point, bent, math.sqrt(float(noise @ noise)))


def _mean_bend(answers: list[Answer]) -> Floats:
    """Return the mean curvature, or the nearest one without negative eigenvalues."""
    values, vectors = np.linalg.eigh(np.mean([a.curvature for a in answers], axis=0))
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def _wiener(ratio: float) -> float:
    """Return the factor that a noisy number of this ratio of signal to noise is best shrunk by."""
    return ratio**2 / (1.0 + ratio**2)
