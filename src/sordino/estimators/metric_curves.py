"""Scores that are read off histograms: the area under the ROC curve, and the calibration curve."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from sordino.estimators.metrics import Estimate, Judged, one_hot, share_interval
from sordino.kernel.arrays import Floats
from sordino.runs import PrivacyReport
from sordino.solvers.row_means import NoisyMeans

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
        ranks = _middle_ranks(cells, totals)
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


def _middle_ranks(cells: Floats, totals: Floats) -> Floats:
    """Return for each class the share of its records below the middle of each cell."""
    return (np.cumsum(cells, axis=1) - cells / 2.0) / totals[:, None]


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
