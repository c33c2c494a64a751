"""Scores of a model as means of bounded rows: what each record adds, and what their noisy mean tells.

A metric turns predictions and targets into one bounded row per record. The rows are all that a release sees;
the score and its interval are computed from their noisy mean. Intervals are for the score on the population
the records were drawn from: they add the error of sampling to that of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtri

from sordino.kernel.arrays import Bools, Floats, Ints
from sordino.runs import PrivacyReport
from sordino.solvers.heavy.location import NoisyMeans

Estimate = tuple[float, float, float]
LOG_LOSS_BOUND = 4.0
"""Where the log loss of a record is clipped: a chance of .018."""


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


class Metric(Protocol):
    """One score."""

    asks: tuple[str, ...]

    @property
    def centre(self) -> tuple[float, ...]: ...

    @property
    def radius(self) -> float: ...

    def rows(self, judged: Judged) -> Floats:
        """Return one row per record, within ``radius`` of ``centre``."""

    def estimate(self, found: NoisyMeans, n: int, confidence: float) -> Estimate:
        """Return the score and the ends of its interval."""


@dataclass(frozen=True)
class Accuracy:
    """The share of right labels; Wilson's interval, with the noise in its variance."""

    asks: tuple[str, ...] = ("labels",)
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
    """The mean over the model's classes of the share of right labels in each.

    Each record is in one of 2 K cells: its class, and whether the model is right. A class with fewer records
    than the noise counts as one half, give or take one half.
    """

    classes: int
    asks: tuple[str, ...] = ("labels",)
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


@dataclass(frozen=True)
class Smooth:
    """A smooth function of the means of columns in [-1, 1]; their products tell how far a sample may be off.

    ``columns`` computes them, ``function`` returns the score and its gradient, which makes its variance
    ``g' Cov g / n + |g|^2 noise^2``; without a gradient nothing is known about the score but its limits.
    """

    size: int
    columns: Callable[[Judged], Floats]
    function: Callable[[Floats, float], tuple[float, Floats | None]]
    limits: tuple[float, float]
    asks: tuple[str, ...]
    weight: float = 0.5

    @property
    def pairs(self) -> tuple[Ints, Ints]:
        """The columns of each product."""
        return np.triu_indices(self.size)

    @property
    def centre(self) -> tuple[float, ...]:
        """0 for columns, half the weight for squares, which are in [0, 1]."""
        left, right = self.pairs
        return (*(0.0,) * self.size, *(np.where(left == right, self.weight / 2, 0.0).tolist()))

    @property
    def radius(self) -> float:
        """The norm of all of them at their largest."""
        left, right = self.pairs
        squares = np.where(left == right, 0.25, 1.0).sum() * self.weight**2
        return math.sqrt(self.size + float(squares))

    def rows(self, judged: Judged) -> Floats:
        """Return the columns and their weighted products."""
        values = np.clip(np.nan_to_num(self.columns(judged), nan=1.0), -1.0, 1.0)
        left, right = self.pairs
        return np.hstack([values, self.weight * values[:, left] * values[:, right]])

    def estimate(self, found: NoisyMeans, n: int, confidence: float) -> Estimate:
        """Return the score by the delta method."""
        means = np.clip(found.value[: self.size], -1.0, 1.0)
        value, gradient = self.function(means, found.noise)
        low, high = self.limits
        if gradient is None:
            return min(max(value, low), high), low, high
        spread = self._spread(found, means, gradient)
        error = math.sqrt(spread / n + float(gradient @ gradient) * found.noise**2)
        # Losses that no record happens to show may have a share of 3 in n (at 95 %).
        unseen = float(np.abs(gradient) @ (1.0 + np.abs(means))) * -math.log1p(-confidence) / n
        half = math.hypot(half_width(error, n, confidence), unseen)
        return min(max(value, low), high), max(value - half, low), min(value + half, high)

    def _spread(self, found: NoisyMeans, means: Floats, gradient: Floats) -> float:
        """Return an upper estimate of the variance of what one record adds to the score."""
        left, right = self.pairs
        second = np.zeros((self.size, self.size))
        second[left, right] = second[right, left] = found.value[self.size :] / self.weight
        spread = float(gradient @ (second - np.outer(means, means)) @ gradient)
        products = np.where(left == right, 1.0, 2.0) * gradient[left] * gradient[right]
        spread += 2.0 * found.noise / self.weight * math.sqrt(float(products @ products))
        # No law in [-1, 1] has a variance above 1 - mean^2 (Bhatia and Davis); deviations add up at most.
        largest = float(np.abs(gradient) @ np.sqrt(1.0 - means**2)) ** 2
        return min(max(spread, 0.0), largest)


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

    Two records in one cell count one half; the interval is widened by what that can hide.
    """

    asks: tuple[str, ...] = ("margins",)
    radius: float = 1.0

    @property
    def centre(self) -> tuple[float, ...]:
        """Zero."""
        return (0.0,) * (2 * CELLS)

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


@dataclass(frozen=True)
class Calibration:
    """Counts by cell and class, and how far the predictions are from the middle of their cell."""

    bins: int
    asks: tuple[str, ...] = ("chances",)
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
