"""Scores of a model: one table of metrics, and what a noisy mean of bounded rows tells about each.

:data:`METRICS` has one row per metric. A private score, a private search, `sordino evaluate`, `sordino tune`
and the reports read it, so a metric that is the mean of a loss of single records is added by one row.

A metric turns predictions and targets into one bounded row per record (``rows``, within ``radius`` of
``centre``). The rows are all that a release sees; the score and its interval are computed from their noisy
mean (``estimate``). Intervals are for the score on the population
the records were drawn from: they add the error of sampling to that of the noise.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import logit, ndtri, xlogy
from sklearn.base import is_classifier

from sordino.accounting.conversions import default_delta, gaussian_multiplier
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.arrays import Bools, Floats, Ints, public_norm
from sordino.runs import PrivacyReport
from sordino.solvers.heavy.location import NoisyMeans
from sordino.values import among, plain_number, refusing

Estimate = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class Judged:
    """What a model says of each record, and what is true.

    ``codes`` number the true classes, -1 for a label that the model does not know; ``predicted`` are the
    numbers of the predicted classes, or predicted values; ``chances`` the probabilities of the classes.
    """

    codes: Ints
    predicted: Floats
    targets: Floats
    chances: Floats
    margins: Floats


@dataclass(frozen=True)
class ScoreLimits:
    """Public limits: numbers count within [low, high], the error of a number up to ``reach``.

    ``loss`` is a declared bound on the loss of a record, in place of the one that a metric has by itself.
    """

    low: float = -math.inf
    high: float = math.inf
    reach: float = 1.0
    loss: float | None = None
    classes: int = 2
    bins: int = 10

    @classmethod
    def between(cls, low: float, high: float, **other: Any) -> ScoreLimits:
        """Return the limits of targets in [low, high]: an error counts up to half of the range."""
        return cls(low, high, (high - low) / 2.0, **other)

    @property
    def largest(self) -> float:
        """The largest magnitude of a target."""
        return max(abs(self.low), abs(self.high)) if math.isfinite(self.high - self.low) else self.reach

    def error(self, judged: Judged) -> Floats:
        """Return prediction minus target, both within the limits."""
        return np.clip(judged.predicted, self.low, self.high) - np.clip(judged.targets, self.low, self.high)


@dataclass(frozen=True)
class Accuracy:
    """The share of right labels; Wilson's interval, with the noise in its variance."""

    centre: tuple[float, ...] = (0.5,)
    radius: float = 0.5

    def rows(self, judged: Judged) -> Floats:
        """Return 1 for a right label, 0 for a wrong or unknown one."""
        return _right(judged).astype(float)[:, None]

    def estimate(self, found: NoisyMeans, n: int, confidence: float) -> Estimate:
        """Return the share."""
        share = float(found.value[0])
        low, high = share_interval(n * share, n, n * found.noise, 0.0, confidence)
        return min(max(share, 0.0), 1.0), low, high


@dataclass(frozen=True)
class BalancedAccuracy:
    """The mean over the model's classes of the share of right labels in each, from 2 K noisy cells.

    A class with fewer records than the noise counts as one half, give or take one half.
    """

    classes: int
    radius: float = 1.0

    @property
    def centre(self) -> tuple[float, ...]:
        """Zero."""
        return (0.0,) * (2 * self.classes)

    def rows(self, judged: Judged) -> Floats:
        """Return the cell of each record; none for a label that is not known."""
        right = _right(judged)
        return one_hot(
            np.where(right, judged.codes, judged.codes + self.classes), judged.codes, 2 * self.classes
        )

    def estimate(self, found: NoisyMeans, n: int, confidence: float) -> Estimate:
        """Return the mean of the shares; the errors of classes are independent, so their squares add up."""
        cells, noise = n * found.value.reshape(2, self.classes), n * found.noise
        right, totals = cells[0], cells.sum(axis=0)
        # Noise may take a share beyond 1; cut off, the mean would be too low.
        parts = [self._share(r, t, noise, confidence) for r, t in zip(right, totals)]
        shares, below, above = np.array(parts).T
        value = float(shares.mean())
        low = value - math.sqrt(float(below @ below)) / self.classes
        high = value + math.sqrt(float(above @ above)) / self.classes
        return min(max(value, 0.0), 1.0), min(max(low, 0.0), 1.0), max(min(high, 1.0), 0.0)

    def _share(self, right: float, total: float, noise: float, confidence: float) -> Estimate:
        """Return the share of a class and its errors; a class that is below its noise says nothing."""
        if not total > max(1.0, 2.0 * math.sqrt(2.0) * noise):
            return 0.5, 0.5, 0.5
        return right / total, *share_errors(right, total, noise, confidence)


_ASKED = 0.5  # how loud the square of a loss is beside it


@dataclass(frozen=True)
class MeanLoss:
    """The mean of a loss in [0, ``top``], asked from -1 to 1, or with a negative sign of ``top`` less it.

    The mean of its square, asked too, tells how far a sample may be off.
    """

    column: Callable[[Judged], Floats]
    top: float
    sign: float = 1.0
    centre: ClassVar[tuple[float, float]] = (0.0, _ASKED / 2.0)
    radius: ClassVar[float] = math.hypot(1.0, _ASKED / 2.0)

    @property
    def limits(self) -> tuple[float, float]:
        """What the score lies between."""
        return 0.0, self.top

    def rows(self, judged: Judged) -> Floats:
        """Return the loss, from -1 to 1, and its weighted square."""
        values = np.clip(np.nan_to_num(self.column(judged), nan=1.0), -1.0, 1.0)
        return np.column_stack([values, _ASKED * values**2])

    def estimate(self, found: NoisyMeans, n: int, confidence: float) -> Estimate:
        """Return the mean, in the units of the loss."""
        mean, unit = min(max(float(found.value[0]), -1.0), 1.0), self.top / 2.0
        # No law in [-1, 1] has a variance above 1 - mean^2 (Bhatia and Davis).
        spread = (float(found.value[1]) + 2.0 * found.noise) / _ASKED - mean**2
        error = math.sqrt(min(max(spread, 0.0), 1.0 - mean**2) / n + found.noise**2)
        # Losses that no record happens to show may have a share of 3 in n (at 95 %).
        unseen = (1.0 + abs(mean)) * -math.log1p(-confidence) / n
        value, half = self.sign * mean + 1.0, math.hypot(half_width(error, n, confidence), unseen)
        told = (min(max(end, 0.0), 2.0) for end in (value, value - half, value + half))
        score, low, high = (unit * end for end in told)
        return score, low, high


def _right(judged: Judged) -> Bools:
    return (judged.codes == judged.predicted) & (judged.codes >= 0)


def one_hot(cells: Ints, known: Ints | Floats, size: int) -> Floats:
    """Return rows with a one in their cell; zero rows where ``known`` is negative."""
    out = np.zeros((len(cells), size))
    there = np.flatnonzero(known >= 0)
    out[there, cells[there]] = 1.0
    return out


def half_width(error: float, n: int, confidence: float) -> float:
    """Return the half width of a normal interval, a little wider for few records."""
    z = float(ndtri(0.5 + confidence / 2.0))
    return z * error * math.sqrt(1.0 + (z**2 + 1.0) / (2.0 * max(n, 1)))


def share_errors(count: float, total: float, noise: float, confidence: float) -> tuple[float, float]:
    """Return how far a share of noisy counts may be above and below its true value, beyond [0, 1] too."""
    z = float(ndtri(0.5 + confidence / 2.0))
    p = min(max((count + z**2 / 2.0) / (total + z**2), 0.0), 1.0)
    spread = total * p * (1.0 - p) + noise**2 * ((1.0 - p) ** 2 + p**2)
    half = (z * math.sqrt(spread) + 0.5) / total
    low, high = share_interval(count, total, noise, noise, confidence)
    return max(half, count / total - low), max(half, high - count / total)


def share_interval(
    count: float, total: float, noise: float, total_noise: float, confidence: float
) -> tuple[float, float]:
    """Return the shares p for which ``|count - p total|`` is within its error: Wilson's way, with noise.

    The error of ``count - p total`` has variance ``total p (1 - p)`` from sampling and ``noise^2`` if the
    total is known; if not, ``count`` and ``total - count`` have the noise, so it is
    ``noise^2 ((1 - p)^2 + p^2)``. The ends are moved by half a record, since counts are whole. A total that
    may be zero gives [0, 1].
    """
    z = float(ndtri(0.5 + confidence / 2.0))
    known, spread = total_noise == 0.0, (z * noise) ** 2
    size = max(total, 0.0)
    if size <= (0.0 if known else z * math.sqrt(2.0) * total_noise):
        return 0.0, 1.0
    count = min(max(count, 0.0), size)  # noise may leave what a count can be
    square = size**2 + z**2 * size - (0.0 if known else 2.0 * spread)
    linear = -2.0 * count * size - z**2 * size + (0.0 if known else 2.0 * spread)
    constant = count**2 - spread
    inside = linear**2 - 4.0 * square * constant
    if square <= 0.0:
        return 0.0, 1.0
    root = math.sqrt(max(inside, 0.0))
    low, high = (-linear - root) / (2.0 * square), (-linear + root) / (2.0 * square)
    return min(max(low - 0.5 / size, 0.0), 1.0), max(min(high + 0.5 / size, 1.0), 0.0)


# ------------- Scores that are read off histograms: the area under the ROC curve, and the calibration curve

CELLS = 32
# Cells of equal width in the log odds: models of rare events have all their probabilities near zero.
EDGES = np.linspace(-5.0, 5.0, CELLS - 1)


@dataclass(frozen=True)
class AreaUnderCurve:
    """The chance that a positive record scores above a negative one, from a noisy histogram per class.

    Two records in one cell count one half, and widen the interval.
    """

    centre: tuple[float, ...] = (0.0,) * (2 * CELLS)
    radius: float = 1.0

    def rows(self, judged: Judged) -> Floats:
        """Return the cell of each record; a label that is not the second class is negative."""
        cell = np.searchsorted(EDGES, judged.margins)
        return one_hot(cell + CELLS * (judged.codes == 1), np.zeros(len(cell)), 2 * CELLS)

    def estimate(self, found: NoisyMeans, n: int, confidence: float) -> Estimate:
        """Return the area; its variance is that of DeLong for sampling, plus that of the noise."""
        noise = n * found.noise
        cells = n * found.value
        cells = (cells + (n - cells.sum()) / cells.size).reshape(2, CELLS)  # they are known to add up to n
        totals = cells.sum(axis=1)
        if not (totals > max(1.0, 2.0 * noise * math.sqrt(CELLS / 2))).all():
            return 0.5, 0.0, 1.0
        ranks = (np.cumsum(cells, axis=1) - cells / 2.0) / totals[:, None]
        area = float(cells[1] @ ranks[0] / totals[1])
        slopes = np.concatenate([(1.0 - ranks[1] - area) / totals[0], (ranks[0] - area) / totals[1]])
        slopes -= slopes.mean()
        kept = np.maximum(cells, 0.0)
        shares = kept / kept.sum(axis=1, keepdims=True)
        sampling = sum(
            float(s @ (r - s @ r) ** 2) / t for s, r, t in zip(shares, ranks[::-1], totals, strict=True)
        )
        z = float(ndtri(0.5 + confidence / 2.0))
        # At areas near 1 the variance read off few records may be zero; that of one more wrong pair is not.
        sampling = max(sampling, area * (1 - area) / (2.0 * float(totals.max())))
        half = z * math.sqrt(sampling + noise**2 * float(slopes @ slopes)) + 0.5 / float(totals.min())
        hidden = 0.5 * float(shares[0] @ shares[1])
        return min(max(area, 0.0), 1.0), max(area - half - hidden, 0.0), min(area + half + hidden, 1.0)


@dataclass(frozen=True, eq=False)
class CalibrationCurve:
    """Said and seen chances of the second class, in cells of the said one.

    Parameters
    ----------
    predicted : the mean predicted probability in each cell; the middle of a cell that holds too little.
    observed : the share of the second class there, ``nan`` in a cell that holds too little.
    low, high : the ends of its interval, each at ``confidence``.
    counts : the noisy number of records in each cell.
    error : the expected calibration error, ``sum counts |observed - predicted| / n``; noise makes it larger.
    privacy : the report.
    """

    predicted: Floats
    observed: Floats
    low: Floats
    high: Floats
    counts: Floats
    error: float
    confidence: float
    privacy: PrivacyReport
    model: str = ""


@dataclass(frozen=True)
class Calibration:
    """Counts by cell and class, and how far the predictions are from the middle of their cell."""

    bins: int
    radius: float = math.sqrt(1.25)

    @property
    def centre(self) -> tuple[float, ...]:
        """Zero."""
        return (0.0,) * (3 * self.bins)

    @property
    def middles(self) -> Floats:
        """The middles of the cells."""
        return (np.arange(self.bins) + 0.5) / self.bins

    def rows(self, judged: Judged) -> Floats:
        """Return cell and class of each record, and its distance from the middle in widths of a cell."""
        chance = np.clip(np.nan_to_num(judged.chances[:, 1], nan=0.0), 0.0, 1.0)
        cell = np.minimum((chance * self.bins).astype(int), self.bins - 1)
        known = np.zeros(len(cell))
        counts = one_hot(cell + self.bins * (judged.codes == 1), known, 2 * self.bins)
        away = one_hot(cell, known, self.bins) * ((chance - self.middles[cell]) * self.bins)[:, None]
        return np.hstack([counts, away])

    def curve(self, found: NoisyMeans, n: int, confidence: float, report: PrivacyReport) -> CalibrationCurve:
        """Return the curve."""
        noise = n * found.noise
        negative, positive, away = n * found.value.reshape(3, self.bins)
        counts = negative + positive
        enough = counts > max(1.0, 2.0 * math.sqrt(2.0) * noise)
        safe = np.where(enough, counts, 1.0)
        observed = np.where(enough, np.clip(positive / safe, 0.0, 1.0), np.nan)
        shift = np.where(enough, np.clip(away / safe, -0.5, 0.5), 0.0)
        predicted = self.middles + shift / self.bins
        ends = [
            share_interval(p, t, noise, noise, confidence) if ok else (0.0, 1.0)
            for p, t, ok in zip(positive, counts, enough)
        ]
        low, high = np.array(ends).T
        gaps = np.abs(np.where(enough, observed - predicted, 0.0))
        error = float(np.maximum(counts, 0.0) @ gaps / n)
        return CalibrationCurve(predicted, observed, low, high, counts, error, confidence, report)


# ----------------------------------------------------------- The table: what a metric is, one row for each


def log_loss(judged: Judged, limits: ScoreLimits) -> Floats:
    """Return ``-log p(y)``; a label that the model does not know costs the bound."""
    known = judged.codes >= 0
    chance = judged.chances[np.arange(len(known)), np.maximum(judged.codes, 0)]
    return np.where(known, -np.log(np.maximum(chance, np.finfo(float).eps)), math.inf)


def deviance(judged: Judged, limits: ScoreLimits) -> Floats:
    """Return the Poisson deviance ``2 (y log(y / m) - y + m)`` of a count y and its prediction m."""
    count = np.maximum(np.clip(judged.targets, limits.low, limits.high), 0.0)
    said = np.maximum(np.clip(judged.predicted, limits.low, limits.high), np.finfo(float).tiny)
    return 2.0 * (xlogy(count, count) - count * np.log(said) - count + said)


# How f, q and t are weighed, and their products: these give narrow intervals, others give as true ones.
_PLANE = np.array([1.0, 0.75, 0.7])
_PAIRS = (np.array([0, 0, 0, 1, 1]), np.array([0, 1, 2, 1, 2]))
_PRODUCTS = np.array([0.9, 0.5, 0.3, 0.2, 1.0])


@dataclass(frozen=True)
class RSquared:
    """``1 - E e / V``, ``e = (t - p)^2``, V the variance of t, of targets t and predictions p in [-1, 1].

    Squared errors count as they are: with a clip, which the variance has not, it would be more than R2.

    Asked are the means of ``f = e - t^2 / 2``, ``q = t^2 - 1`` and t. An error near its bound has its target
    at an end, where q is 0: so q costs no noise beside f, and half of what its own noise does to R2 cancels.
    Five products of them tell the error of sampling. The interval is Fieller's, of the ratios r for which
    ``E e - r V`` may be zero: V need not be far above its noise.
    """

    bounds: ScoreLimits
    limits: ClassVar[tuple[float, float]] = (-math.inf, 1.0)

    @property
    def most(self) -> float:
        """The largest squared error of a record: 4, or that of a declared ``loss_bound``."""
        return METRICS["r2"].bound_of(self.bounds) / self.bounds.reach**2

    @property
    def _frame(self) -> tuple[float, float]:
        """The middle and half of the range of f, which is largest where t and p lie apart."""
        t = np.linspace(0.0, 1.0, 201)
        top = float((np.minimum((1.0 + t) ** 2, self.most) - t**2 / 2.0).max())
        return (top - 0.5) / 2.0, (top + 0.5) / 2.0

    @property
    def centre(self) -> tuple[float, ...]:
        """Zero."""
        return (0.0,) * (len(_PLANE) + len(_PRODUCTS))

    @cached_property
    def radius(self) -> float:
        """The largest norm of a row, on a grid of targets: it is convex in f^2, so p is t or at an end."""
        t = np.linspace(-1.0, 1.0, 801)
        corners = (self._asked(t, p) for p in (t, np.ones_like(t), -np.ones_like(t)))
        return 1.001 * max(public_norm(row) for rows in corners for row in rows)  # for what lies between

    def _asked(self, t: Floats, p: Floats) -> Floats:
        middle, half = self._frame
        errors = np.minimum((t - p) ** 2, self.most)
        plane = np.column_stack([(errors - t**2 / 2.0 - middle) / half, t**2 - 1.0, t])
        products = plane[:, _PAIRS[0]] * plane[:, _PAIRS[1]]
        products[:, 0] -= 1.0
        return np.hstack([plane * _PLANE, products * _PRODUCTS])

    def rows(self, judged: Judged) -> Floats:
        """Return f, q, t and their products; a prediction that is no number is as wrong as one can be."""
        low, high, reach = self.bounds.low, self.bounds.high, self.bounds.reach
        pair = (np.clip(values, low, high) for values in (judged.targets, judged.predicted))
        t, p = ((values - (low + high) / 2.0) / reach for values in pair)
        t = np.nan_to_num(t, nan=1.0)
        return self._asked(t, np.where(np.isnan(p), np.where(t > 0.0, -1.0, 1.0), p))

    def _spread(self, found: NoisyMeans, slopes: Floats) -> float:
        """Return an upper estimate of the variance of what one record adds to a sum of f, q and t."""
        means, products = found.value[:3] / _PLANE, found.value[3:] / _PRODUCTS
        second = np.zeros((3, 3))
        second[_PAIRS] = second[_PAIRS[::-1]] = products + np.array([1.0, 0.0, 0.0, 0.0, 0.0])
        second[2, 2] = means[1] + 1.0
        twice = np.where(_PAIRS[0] == _PAIRS[1], 1.0, 2.0)
        weights = twice * slopes[_PAIRS[0]] * slopes[_PAIRS[1]] / _PRODUCTS
        spread = float(slopes @ (second - np.outer(means, means)) @ slopes)
        spread += 2.0 * found.noise * math.hypot(*weights, slopes[2] ** 2 / _PLANE[1])
        # No law has a larger variance than one on the ends of its range (Bhatia and Davis).
        most = (1.0 - means[0] ** 2, -means[1] * (1.0 + means[1]), 1.0 - means[2] ** 2)
        return min(max(spread, 0.0), float(np.abs(slopes) @ np.sqrt(np.maximum(most, 0.0))) ** 2)

    def _parts(self, found: NoisyMeans) -> tuple[float, float, float, float]:
        """Return ``E e - V / 2``, V and ``E t`` and by how much the noise in ``E t`` moves the first two."""
        f, q, mean = (float(value) for value in found.value[:3] / _PLANE)
        middle, half = self._frame
        mean = min(max(mean, -1.0), 1.0)
        square = mean**2 - (found.noise / _PLANE[2]) ** 2  # less what noise adds
        return half * f + middle + square / 2.0, q + 1.0 - square, mean, (2.0 * mean / _PLANE[2]) ** 2

    def hidden(self, found: NoisyMeans, n: int, confidence: float) -> float:
        """Return the deviation of targets below which noise hides their variance."""
        known, turned = half_width(found.noise, n, confidence), self._parts(found)[3]
        return self.bounds.reach * math.sqrt(known * math.hypot(math.sqrt(turned), 1.0 / _PLANE[1]))

    def estimate(self, found: NoisyMeans, n: int, confidence: float) -> Estimate:
        """Return R2 with the ratios that noise and sampling allow; all of them where V may be zero."""
        error, variance, mean, turned = self._parts(found)
        half, ratio = self._frame[1], error / variance if variance > 0.0 else math.inf
        z = half_width(1.0, n, confidence)
        known = (z * found.noise) ** 2
        square = variance**2 - known * (turned + _PLANE[1] ** -2.0)
        if not (variance > 0.0 < square):
            return math.nan, *self.limits
        spread = self._spread(found, np.array([half, -ratio, (2.0 * ratio + 1.0) * mean]))
        linear = error * variance + known * turned / 2.0
        constant = error**2 - z**2 * spread / n - known * (half**2 + turned / 4.0)
        root = math.sqrt(max(linear**2 - square * constant, 0.0))
        value, low, high = (0.5 - r for r in (ratio, (linear + root) / square, (linear - root) / square))
        # Losses that no record happens to show may have a share of 3 in n (at 95 %).
        unseen = -math.log1p(-confidence) / n / variance
        low = value - math.hypot(value - low, unseen * self.most)
        high = value + math.hypot(high - value, unseen * max(1.0 - value, 0.0) * (1.0 + abs(mean)) ** 2)
        return min(value, 1.0), min(low, 1.0), min(high, 1.0)

    def error(self, found: NoisyMeans, n: int, confidence: float) -> Estimate:
        """Return the mean squared error, with its interval."""
        half, unit = self._frame[1], self.bounds.reach**2
        f, variance, *_ = self._parts(found)
        value = f + variance / 2.0
        noise = found.noise * math.hypot(half, 0.5 / _PLANE[1])
        error = math.hypot(math.sqrt(self._spread(found, np.array([half, 0.5, 0.0])) / n), noise)
        unseen = self.most * -math.log1p(-confidence) / n
        reach = math.hypot(half_width(error, n, confidence), unseen)
        ends = (value, max(value - reach, 0.0), min(value + reach, self.most))
        told, low, high = (unit * min(max(end, 0.0), self.most) for end in ends)
        return told, low, high


def score_words(value: float | None, *ends: float) -> str:
    """Return a score as text, with a word where it is not known or lies at an end of what it can be."""
    if value is None or not math.isfinite(value):
        return "not known"
    return plain_number(value, 4) + " (noise may have gone beyond: read the interval)" * (value in ends)


def span_words(low: float, high: float) -> str:
    """Return the ends of an interval as text."""
    return f"{plain_number(low, 4)} to {plain_number(high, 4)}"


def words_of_clip(row: MetricRow, limits: ScoreLimits) -> str:
    """Return that a declared ``loss_bound`` makes R2 larger; nothing where no squared error exceeds it."""
    if (bound := row.bound_of(limits)) >= row.bound(limits):
        return ""
    return (
        f"Squared errors above {bound:g} count as {bound:g} (loss_bound), and the variance of the targets is "
        "not clipped: score and interval are of a number that is R2 or more"
    )


def words_without_r2(squares: RSquared, found: NoisyMeans, n: int, level: float) -> str:
    """Return why R2 is not known, where it is not, and the squared error, which the same release tells."""
    if math.isfinite(squares.estimate(found, n, level)[1]):
        return ""
    told = squares.error(found, n, level)
    return (
        "R2 is not known: it is a share of the variance of the targets, and noise hides deviations below "
        f"{plain_number(squares.hidden(found, n, level), 4)}. What was paid for is known: the mean squared "
        f"error is {score_words(*told)}, {100 * level:g} % interval {span_words(*told[1:])}. Pay more, or "
        "declare tighter bounds of the targets"
    )


# ---------------- What a constant would score, beside the score: from shares of classes or moments of targets

_ASIDE = 0.5  # the size of what the baseline needs, in radii of the score: 12 % more noise in the score


def entropy(shares: Floats) -> float:
    """Return the log loss of predicting noisy shares of classes."""
    kept = np.maximum(shares, 0.0)
    kept = kept / max(float(kept.sum()), 1e-12)
    return -float(xlogy(kept, kept).sum())


def level_distance(shares: Floats, most: float = math.inf) -> float:
    """Return how many levels (up to ``most``) the best constant is off, by noisy shares in their order."""
    # Shares below zero count too: without them the noise of far levels would add up.
    whole, places = shares + (1.0 - shares.sum()) / len(shares), np.arange(len(shares))
    return float((np.minimum(np.abs(places[:, None] - places), most) @ whole).min())


@dataclass(frozen=True)
class Beside:
    """A metric with further columns, from which the score of the best constant is read.

    ``aside`` makes them, of norm at most one; ``constant`` reads it off their noisy means up to ``rounding``,
    and ``spread``, given its gradient too, at least the variance of a record's part of it.
    """

    inner: Any
    size: int
    aside: Callable[[Judged], Floats]
    constant: Callable[[Floats], float]
    spread: Callable[[Floats, Floats], float]
    rounding: float = 0.0
    weight: float = _ASIDE

    @property
    def centre(self) -> tuple[float, ...]:
        """That of the metric, and zeros."""
        return (*self.inner.centre, *(0.0,) * self.size)

    @property
    def radius(self) -> float:
        """Both radii together."""
        return float(self.inner.radius) * math.hypot(1.0, self.weight)

    def rows(self, judged: Judged) -> Floats:
        """Return the rows of the metric and the further columns."""
        aside = np.nan_to_num(self.aside(judged)) * (self.weight * self.inner.radius)
        return np.hstack([self.inner.rows(judged), aside])

    def inner_means(self, found: NoisyMeans) -> NoisyMeans:
        """Return the means of the metric by itself."""
        return NoisyMeans(found.value[: -self.size], found.noise)

    def estimate(self, found: NoisyMeans, n: int, confidence: float) -> Estimate:
        """Return the score of the metric."""
        estimate: Estimate = self.inner.estimate(self.inner_means(found), n, confidence)
        return estimate

    def baseline(self, found: NoisyMeans, n: float) -> tuple[float, float]:
        """Return what the best constant scores, less what noise adds, and the deviation, by parabolas.

        The deviation is that of the noise and of drawing n records.
        """
        scale = self.weight * self.inner.radius
        noisy, step = float(found.noise > 0.0), found.noise / scale or 1e-9
        means, steps = found.value[-self.size :] / scale, step * np.eye(self.size)
        value = self.constant(means)
        up, down = (np.array([self.constant(means + s) - value for s in ends]) for ends in (steps, -steps))
        sampling = math.sqrt(max(self.spread(means, (up - down) / (2.0 * step)), 0.0) / n)
        known, added = noisy * (up - down) / 2.0, noisy * (up + down) / 2.0
        deviation = math.hypot(*known, *math.sqrt(2.0) * added, self.rounding, sampling)
        return float(value - added.sum()), deviation


def count_outside(inner: Any, limits: ScoreLimits) -> Beside:
    """Return a metric of numbers that also counts the targets outside of their bounds, for 3 % more noise."""

    def aside(judged: Judged) -> Floats:
        inside = (judged.targets >= limits.low) & (judged.targets <= limits.high)
        return (~inside).astype(np.float64)[:, None]

    return Beside(inner, 1, aside, lambda means: float(means[0]), lambda *_: 0.0, weight=_ASIDE / 2.0)


def outside_words(limits: ScoreLimits, share: float, noise: float) -> str:
    """Return that a score is of clipped targets, by the noisy share outside; nothing where noise hides it."""
    if share <= max(3.0 * noise, 0.001):
        return ""
    return (
        f"{100.0 * min(share, 1.0):.2g} % of the targets (noise +-{200.0 * noise:.1g}) lie outside of "
        f"{limits.low:g} to {limits.high:g}: the score is of targets clipped to these bounds. Declare wider "
        "ones (bounds=, --bounds, the schema)"
    )


def spread_of_shares(shares: Floats, slopes: Floats) -> float:
    """Return the variance of a record's part of a function of shares, given its gradient."""
    kept = np.maximum(shares, 0.0)
    kept = kept / max(float(kept.sum()), 1e-12)
    return float(kept @ slopes**2 - (kept @ slopes) ** 2)


def beside_classes(inner: Any, classes: int, constant: Callable[[Floats], float]) -> Beside:
    """Return a metric of labels with the shares of the classes beside it."""

    def aside(judged: Judged) -> Floats:
        return one_hot(judged.codes, judged.codes, classes)

    return Beside(inner, classes, aside, constant, spread_of_shares)


def beside_moments(inner: Any, limits: ScoreLimits) -> Beside:
    """Return a metric of numbers with mean and mean square of the targets beside it, for their variance."""
    middle, half = (limits.low + limits.high) / 2.0, limits.reach

    def aside(judged: Judged) -> Floats:
        t = (np.clip(judged.targets, limits.low, limits.high) - middle) / half
        return np.column_stack([t, t**2]) / math.sqrt(2.0)

    def variance(means: Floats) -> float:
        mean, square = math.sqrt(2.0) * means
        return half**2 * float(square - mean**2)

    def spread(means: Floats, _: Floats) -> float:
        value, largest = variance(means), half**2 * (1.0 + abs(float(math.sqrt(2.0) * means[0]))) ** 2
        return value * (largest - value)  # no law of errors up to the largest has more (Bhatia and Davis)

    return Beside(inner, 2, aside, variance, spread)


def beside_cells(inner: Any, limits: ScoreLimits) -> Beside:
    """Return a metric of numbers with a histogram of the targets beside it, for the distance from a median.

    A record is shared by the edges of its cell; the best edge is mostly within an eighth of a cell.
    """
    width, bound = 2.0 * limits.reach / CELLS, METRICS["mae"].bound_of(limits)

    def aside(judged: Judged) -> Floats:
        within = np.nan_to_num(np.clip(judged.targets, limits.low, limits.high), nan=limits.high)
        places = np.minimum((within - limits.low) / width, CELLS)
        cells = np.minimum(places.astype(int), CELLS - 1)
        lower, upper = (one_hot(cells + k, places, CELLS + 1) for k in (0, 1))
        return lower + (places - cells)[:, None] * (upper - lower)

    def constant(shares: Floats) -> float:
        return width * level_distance(shares, bound / width)

    return Beside(inner, CELLS + 1, aside, constant, spread_of_shares, width / 16.0)


def beside_rate(inner: Any, limits: ScoreLimits) -> Beside:
    """Return the deviance with the means of y and y log y beside it: the best constant is a mean."""
    top = max(limits.largest, 1.0)
    units = math.sqrt(2.0) * np.array([top, max(top * math.log(top), 1.0)])

    def aside(judged: Judged) -> Floats:
        counts = np.clip(judged.targets, 0.0, top)
        return np.column_stack([counts, xlogy(counts, counts)]) / units

    def constant(means: Floats) -> float:
        mean, product = units * means
        return 2.0 * float(product - xlogy(max(mean, 0.0), max(mean, 1e-300)))

    def spread(means: Floats, _: Floats) -> float:
        value, mean = constant(means), max(float(units[0] * means[0]), 1e-12)
        ends = (mean, xlogy(top, top / mean) - top + mean)  # a record of nobody, and of the largest count
        return value * (2.0 * max(ends) - value)  # as of squared errors

    return Beside(inner, 2, aside, constant, spread)


def _sklearn(name: str, *parts: str) -> Callable[[Judged], float]:
    """Return an exact score of public records, by a function of scikit-learn."""

    def exact(judged: Judged) -> float:
        from sklearn import metrics

        return float(getattr(metrics, name)(*(getattr(judged, part) for part in parts)))

    return exact


def _exact_area(judged: Judged) -> float:
    from sklearn.metrics import roc_auc_score

    return float(
        roc_auc_score(judged.codes == 1, judged.chances[:, 1] if judged.chances.size else judged.margins)
    )


def _exact_curve(judged: Judged, bins: int = 10) -> tuple[float, dict[str, Any]]:
    """Return the expected calibration error and the curve: said and seen chances by cell of the said one."""
    chances, hits = judged.chances[:, 1], (judged.codes == 1).astype(float)
    cells = np.minimum((chances * bins).astype(int), bins - 1)
    counts = np.bincount(cells, minlength=bins)
    kept = counts > 0
    said, seen = (
        np.bincount(cells, values, minlength=bins)[kept] / counts[kept] for values in (chances, hits)
    )
    curve = {"predicted": said, "observed": seen, "counts": counts[kept]}
    return float(counts[kept] @ np.abs(seen - said) / counts.sum()), curve


@dataclass(frozen=True)
class MetricRow:
    """A row of the table.

    Parameters
    ----------
    name, alias : what it is called here, and in scikit-learn's ``scoring``; ``neg_...`` names the negative.
    asks : what is asked of a model: its "labels", "chances", "margins" or "values" (of a regressor).
    words : what each record adds, for a report.
    loss : the loss of each record, from predictions and limits; None where the score is no mean of losses,
        and then a private search cannot use it.
    bound : at which loss of a record it is clipped, where nobody declares another ``loss_bound``.
    gain : whether more is better; a mean of losses is then told as ``1 - loss``.
    share : whether a report draws it on a scale from 0 to 1.
    private : how it is read off noisy means; None: as the mean of the clipped loss.
    exact : the score of public records; None: the mean of the loss.
    pairs : whether it is for two classes only.
    constant : what the best constant scores, where that is known without looking, by the number of classes.
    beside : adds what the baseline is read off to how the score is.
    middle : of targets, the number that scores best as a constant.
    """

    name: str
    alias: str
    asks: Literal["labels", "chances", "margins", "values"]
    words: str
    loss: Callable[[Judged, ScoreLimits], Floats] | None = None
    bound: Callable[[ScoreLimits], float] = field(default=lambda limits: 1.0)
    gain: bool = False
    share: bool = False
    private: Callable[[ScoreLimits], Any] | None = None
    exact: Callable[[Judged], Any] | None = None
    pairs: bool = False
    constant: Callable[[int], float] | None = None
    beside: Callable[[Any, ScoreLimits], Beside] | None = None
    middle: Callable[[Floats], Any] = field(default_factory=lambda: np.mean)

    @property
    def numbers(self) -> bool:
        """Whether it is for regressors."""
        return self.asks == "values"

    def bound_of(self, limits: ScoreLimits) -> float:
        """Return where the loss of a record is clipped."""
        return self.bound(limits) if limits.loss is None else limits.loss

    def metric(self, limits: ScoreLimits) -> Any:
        """Return how the score is read off a noisy mean."""
        if self.private is not None:
            return self.private(limits)
        sign, top = (-1.0, 1.0) if self.gain else (1.0, self.bound_of(limits))

        return MeanLoss(lambda judged: self.column(judged, limits), top, sign)

    def with_constant(self, limits: ScoreLimits) -> Any:
        """Return what is asked: the score, what the best constant scores, and targets out of bounds."""
        inner = self.metric(limits)
        beside = inner if self.beside is None else self.beside(inner, limits)
        return count_outside(beside, limits) if self.numbers else beside

    def column(self, judged: Judged, limits: ScoreLimits) -> Floats:
        """Return the clipped loss of each record, from -1 to 1."""
        bound = self.bound_of(limits)
        return 2.0 * np.minimum(self.losses(judged, limits), bound) / bound - 1.0

    def losses(self, judged: Judged, limits: ScoreLimits) -> Floats:
        """Return the loss of each record, without the clip."""
        if self.loss is None:
            raise UnsupportedError(f"{self.name!r} is no mean of losses of single records.")
        with np.errstate(all="ignore"):
            return self.loss(judged, limits)

    def shares(self, judged: Judged, limits: ScoreLimits) -> Floats:
        """Return 1 for a record without loss, 0 for one whose loss is the bound, less beyond."""
        return 1.0 - self.losses(judged, limits) / self.bound_of(limits)

    def natural(self, share: float, limits: ScoreLimits) -> float:
        """Return a mean share in the units of the metric."""
        return share if self.gain else (1.0 - share) * self.bound_of(limits)

    def is_worse(self, name: str, value: Any, ends: Any, baseline: Any) -> bool | None:
        """Tell whether a score is worse than the best constant's; None where that cannot be told."""
        if baseline is None or abs(baseline[0]) < 4.0 * baseline[1] or not np.isfinite(ends).all():
            return None
        if len(ends) and max(ends[0] - baseline[0], baseline[0] - ends[1]) <= 2.0 * baseline[1]:
            return None
        return bool(value < baseline[0] if self.gain or name.startswith("neg_") else value > baseline[0])

    def verdict(self, name: str, value: Any, ends: Any, baseline: Any) -> str:
        """Return what is said of a score beside the best constant's; nothing where it is better."""
        if (worse := self.is_worse(name, value, ends, baseline)) is None:
            return "" if baseline is None or not len(ends) else UNTOLD
        return "the score is worse than that of the best constant" if worse else ""

    def exact_constant(self, judged: Judged) -> float | None:
        """Return what the best constant scores on public records; None where nobody knows."""
        if self.beside is None:
            return None if self.constant is None else self.constant(int(judged.codes.max(initial=0)) + 1)
        if self.numbers:
            best = np.full(len(judged.targets), self.middle(judged.targets))
            return self.exactly(replace(judged, predicted=best))
        beside = self.beside(self, ScoreLimits(classes=int(judged.codes.max(initial=0)) + 1))
        return float(beside.constant(beside.aside(judged).mean(axis=0)))

    def exactly(self, judged: Judged) -> Any:
        """Return the score of public records: a number, or an error and its curve."""
        if self.exact is not None:
            return self.exact(judged)
        loss = float(np.mean(self.losses(judged, ScoreLimits())))
        return 1.0 - loss if self.gain else loss


HIDDEN_SCORE = "noise hides it: pay more, or score more records"
UNTOLD = "the score cannot be told from that of the best constant"
LOG_LOSS_BOUND = 4.0
"""Where the log loss of a record is clipped: a chance of .018."""

METRICS = {
    row.name: row
    for row in (
        MetricRow(
            "accuracy", "accuracy", "labels", "right or wrong",
            lambda judged, _: 1.0 - _right(judged).astype(float),
            gain=True, share=True, private=lambda _: Accuracy(),
            beside=lambda inner, limits: beside_classes(inner, limits.classes, max),
        ),
        MetricRow(
            "balanced_accuracy", "balanced_accuracy", "labels", "its class, right or wrong",
            gain=True, share=True, private=lambda limits: BalancedAccuracy(limits.classes),
            exact=_sklearn("balanced_accuracy_score", "codes", "predicted"), constant=lambda k: 1.0 / k,
        ),
        MetricRow(
            "rank_error", "rank_error", "labels", "levels between the said and the true class",
            lambda judged, limits: np.where(
                judged.codes < 0, limits.classes - 1.0, np.abs(judged.codes - judged.predicted)
            ),
            lambda limits: limits.classes - 1.0,
            beside=lambda inner, limits: beside_classes(inner, limits.classes, level_distance),
        ),
        MetricRow(
            "log_loss", "neg_log_loss", "chances", "-log p(y)", log_loss, lambda _: LOG_LOSS_BOUND,
            beside=lambda inner, limits: beside_classes(inner, limits.classes, entropy),
        ),
        MetricRow(
            "auc", "roc_auc", "margins", "its class and one of 32 cells of the log odds",
            gain=True, share=True, private=lambda _: AreaUnderCurve(), exact=_exact_area, pairs=True,
            constant=lambda _: 0.5,
        ),
        MetricRow(
            "calibration", "calibration", "chances", "its class and one of `bins` cells",
            private=lambda limits: Calibration(limits.bins), exact=_exact_curve, pairs=True,
        ),
        MetricRow(
            "mse", "neg_mean_squared_error", "values", "squared error",
            lambda judged, limits: limits.error(judged) ** 2, lambda limits: limits.reach**2,
            beside=beside_moments,
        ),
        MetricRow(
            "mae", "neg_mean_absolute_error", "values", "absolute error",
            lambda judged, limits: np.abs(limits.error(judged)), lambda limits: limits.reach,
            beside=beside_cells, middle=np.median,
        ),
        MetricRow(
            "deviance", "neg_mean_poisson_deviance", "values", "Poisson deviance of a count",
            deviance, lambda limits: 2.0 * limits.largest, beside=beside_rate,
        ),
        MetricRow(
            "r2", "r2", "values",
            "squared error, target and their squares, targets and predictions clipped to their bounds "
            "(R2 is 1 - mean squared error / variance of targets)",
            bound=lambda limits: 4.0 * limits.reach**2,  # that of the whole range: no error is larger
            gain=True, share=True, private=RSquared,
            exact=_sklearn("r2_score", "targets", "predicted"), constant=lambda _: 0.0,
        ),
    )
}  # fmt: skip


def metric_names(model: Any = None) -> tuple[str, ...]:
    """Return every name of a metric, for all models or for this kind; scikit-learn's names come last."""
    rows = [row for row in METRICS.values() if model is None or row.numbers != is_classifier(model)]
    return tuple(dict.fromkeys([row.name for row in rows] + [row.alias for row in rows]))


def metric_row(name: str) -> MetricRow | None:
    """Return the row of a name, ours or scikit-learn's."""
    return next((row for row in METRICS.values() if name in (row.name, row.alias)), None)


def find_metric(parameter: str, name: str | None, model: Any) -> tuple[MetricRow, float]:
    """Return the row of a name and the sign of its score; None is the accuracy of a classifier, or r2.

    Of a model of classes in an order None is the ``rank_error``, which it minimises.

    An alias that begins with ``neg_`` names the negative of a loss, as in scikit-learn.
    """
    usual = "rank_error" if hasattr(model, "levels_") else "accuracy"
    name = (usual if is_classifier(model) else "r2") if name is None else name
    among(parameter, name, metric_names())
    row = metric_row(name) or METRICS["accuracy"]
    if not hasattr(model, "predict"):
        said = "predicts nothing, so it has no score. Score a classifier or regressor fitted on its output."
        raise InvalidInputError(f"{type(model).__name__} {said}")
    if is_classifier(model) == row.numbers:
        kind, known = "a regressor" if row.numbers else "a classifier", ", ".join(metric_names(model))
        raise InvalidInputError(
            f"Expected {kind} for {parameter}={name!r}, got a {type(model).__name__}, which has: {known}."
        )
    classes = np.size(getattr(model, "classes_", (0, 1)))
    if row.pairs and classes != 2:
        raise UnsupportedError(f"{parameter}={name!r} is for two classes, the model has {classes}.")
    return row, -1.0 if name.startswith("neg_") else 1.0


_USEFUL = 0.2  # an R2 with an interval of more than so much on each side tells little
# R2 of a constant moves by at most so much noise times the half range^2 over the variance
_SLOPE = math.hypot(2.0, 0.5 / _PLANE[1], 2.0 / _PLANE[2])


def outlook(schema: Any, n: int, epsilon: float) -> str:
    """Return how well a score of so many will be known for a price, in words.

    **Privacy.** From public numbers only: how many there are, epsilon, and the declared bounds of the target.
    """
    target, unit = schema.target, "records" if schema.person is None else "persons"
    number, classes = target.kind == "number", ScoreLimits(classes=len(target.levels or ()))
    limits = ScoreLimits.between(target.low, target.high) if number else classes
    chosen = METRICS["r2" if number else "accuracy"].with_constant(limits)
    noise = gaussian_multiplier(epsilon, default_delta(n)) * chosen.radius / n
    start = f"With {n:,} {unit} and epsilon {epsilon:g}, noise leaves"
    if not number:
        error = 2.0 * math.hypot(noise, 0.5 / math.sqrt(n))
        few = " So few tell little." * (error > _USEFUL / 2.0)
        return f"{start} the accuracy of a score known to +-{plain_number(error, 2)}.{few}"
    least = limits.reach * math.sqrt(2.0 * _SLOPE * noise / _USEFUL)
    few = " So few tell little between such bounds." * (least > limits.reach / 2.0)
    low, high = plain_number(target.low), plain_number(target.high)
    return (
        f"{start} the R2 of a score known to +-{_USEFUL:g} if the standard deviation of {target.name} is "
        f"{plain_number(least, 2)} or more, of bounds {low} to {high}.{few}"
    )


# ------------------------------------------------------------------------ What a model says of the records


def predict_quietly(model: Any, method: str, X: Any, n: int) -> Any:
    """Return predictions, one for each row, without a warning: one on some rows would tell of one of them."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = np.asarray(refusing(lambda: getattr(model, method)(X), X, None, model))
    if len(found) != n:
        raise InvalidInputError(f"Expected one prediction per row, {n} of them, got {len(found)}.")
    return found


def judge(model: Any, X: Any, y: Any, asks: str, predict: Any = predict_quietly) -> Judged:
    """Return what the metric needs of the predictions, and nothing else."""
    n = refusing(lambda: row_count(X), X, y, model)
    soft = hasattr(model, "predict_proba") or asks == "chances"
    method = "predict" if asks in ("values", "labels") else "predict_proba" if soft else "decision_function"
    if not hasattr(model, method):
        raise UnsupportedError(f"This metric needs a model with {method}, {type(model).__name__} has none.")
    targets = refusing(lambda: np.asarray(y), X, y, model)
    if targets.shape != (n,) or n == 0:
        raise InvalidInputError(f"Expected one target per row, got {n} rows and y of shape {targets.shape}.")
    none = np.zeros(0)
    if asks == "values":
        values = refusing(lambda: targets.astype(float), X, y, model)
        said = predict(model, method, X, n).astype(float)
        return Judged(none.astype(int), said.reshape(n), values, none, none)
    order = getattr(model, "levels_", model.classes_) if asks == "labels" else model.classes_
    codes, said = _codes(targets, order), predict(model, method, X, n)
    if asks == "labels":
        return Judged(codes, _codes(said, order).astype(float), none, none, none)
    if not soft:
        return Judged(codes, none, none, none, np.nan_to_num(said, nan=-math.inf))
    margins = logit(np.clip(said[:, 1], 1e-12, 1.0 - 1e-12)) if asks == "margins" else none
    return Judged(codes, none, none, said, np.nan_to_num(margins, nan=-math.inf))


def _codes(labels: Any, classes: Any) -> Ints:
    """Return the numbers of the labels among the classes; -1 for others."""
    kinds = [np.asarray(a).dtype.kind for a in (labels, classes)]
    numeric = [kind in "biuf" for kind in kinds]
    if numeric[0] != numeric[1] and "O" not in kinds:
        raise InvalidInputError("Expected y with labels of the type of the model's classes_, got others.")
    known = {label: number for number, label in enumerate(np.asarray(classes).tolist())}
    try:
        return np.array([known.get(label, -1) for label in np.asarray(labels).tolist()], dtype=np.int64)
    except TypeError:
        raise InvalidInputError("Expected one label per row, got values that are none.") from None


def row_count(X: Any) -> int:
    """Return the number of rows of an array, a table or a dictionary of columns."""
    if isinstance(X, dict):
        X = next(iter(X.values()), ())
    shape = getattr(X, "shape", None)
    return int(shape[0]) if isinstance(shape, tuple) and shape else len(X)
