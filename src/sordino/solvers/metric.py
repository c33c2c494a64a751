"""Lengths in which all directions are alike: a metric from released second moments of the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sordino.kernel import Curator
from sordino.kernel.arrays import Bools, Floats
from sordino.problems.affine import Affine
from sordino.problems.losses import has_length
from sordino.problems.problem import Problem
from sordino.solvers.units import noise_std

# So many records times epsilon for a coefficient leave room to clip all labels alike, and margins not at all.
ROOM = 20.0
# Second moments are asked of so many columns at most, with so many records times epsilon for their root.
COLUMNS, SURE = 256, 100.0
# Directions that noise hides are expected to hold at least this share of what is unsure. Columns that others
# resemble hold less there than their own second moments say: these count by the second share, set on Adult
# and on rows that are alike in all directions, judged on a9a and mushrooms.
HIDDEN, RESEMBLED = 0.02, 0.8
# A column with less than so many deviations of noise in its second moment, and less than this part of the
# mean of all, may be one that no record has.
EMPTY = 2.0, 0.25
# A direction with less than so many rows in it is not hurried: of numbers, of labels (which say less), and
# where there is no noise.
SEEN_NUMBERS, SEEN_LABELS, SEEN_PLAIN = 10.0, 200.0, 0.01
# Without noise a direction with less than this part of the largest is rounding: no step should follow it.
ROUNDED = 1e-9


@dataclass(frozen=True, eq=False)
class Metric:
    r"""Steps along ``P g``, with ``P = V diag(p) V^T`` about the inverse of the second moments of rows.

    ``sizes`` are the released second moments along the axes, the rows of ``axes``, and ``expected`` what is
    expected of them; ``pace`` is p, and ``bend`` the largest second derivative of the loss. p is scaled such
    that steps add as much noise to a margin as without a metric: ``sum p^2 s = sum s``. Of axes that noise
    hides (``hidden``) each column expects another second moment, ``behind``.
    """

    axes: Floats
    sizes: Floats
    expected: Floats
    pace: Floats
    bend: float
    hidden: Bools
    behind: Floats

    def __call__(self, gradient: Floats) -> Floats:
        """Return ``P g``, for each row of several."""
        return ((gradient @ self.axes.T) * self.pace) @ self.axes

    def squared(self, moved: Floats) -> float:
        """Return ``v^T P^-1 v``."""
        return float((np.square(moved @ self.axes.T) / self.pace).sum())

    @property
    def noise(self) -> float:
        """How much isotropic noise has along its own step, in units of a step without a metric."""
        return float(self.pace.mean())

    @property
    def own(self) -> float:
        """How much a row's gradient moves its own margin, in units of a step without a metric."""
        return float((self.pace * self.sizes).sum() / max(self.sizes.sum(), 1e-300))

    @property
    def longest(self) -> float:
        """The longest step that overshoots in no direction."""
        return 1.0 / (self.bend * float((self.pace * self.sizes).max()))

    def columns(self, deviations: Floats) -> Floats:
        """Return the deviations of coordinates, from independent ones along the axes."""
        return np.sqrt(np.square(deviations) @ np.square(self.axes))


@dataclass(frozen=True, eq=False)
class Moments:
    """Released second moments of mapped rows with their constant entry, and what is unsure of them.

    ``unsure`` is about a direction that the moments themselves choose, ``noise`` about one chosen before;
    whole rows have about ``stretch`` times the moments of these, which are clipped.
    """

    matrix: Floats
    unsure: float
    noise: float
    stretch: float = 1.0

    @classmethod
    def of(cls, released: Floats, noise: float, seen: float, population: int, constant: float) -> Moments:
        """Return the moments of a released sum, with symmetric noise of this deviation.

        A direction is sure beyond the spectral norm of the noise and the part that ``seen`` rows have in it.
        """
        unsure = noise * math.sqrt(2.0 * len(released)) + seen
        matrix = released / population
        if constant:
            matrix = np.pad(matrix, (0, 1))
            matrix[-1, -1] = constant**2
        return cls(matrix, unsure / population, noise / population)

    @property
    def deviations(self) -> Floats:
        """How far the margin moves with each weight: what no row has grows with noise, and says nothing."""
        return np.sqrt(np.maximum(np.diag(self.matrix), 0.0))

    def narrowed(self, kept: Bools) -> Moments:
        """Return the moments of some coordinates."""
        return replace(self, matrix=self.matrix[np.ix_(kept, kept)])

    def resized(self, factor: float, features: int) -> Moments:
        """Return the moments of rows times ``factor``, the constant left as it is."""
        factors = np.where(np.arange(len(self.matrix)) < features, factor, 1.0)
        matrix = self.matrix * np.outer(factors, factors)
        return replace(self, matrix=matrix, unsure=self.unsure * factor**2, noise=self.noise * factor**2)

    def metric(self, opened: Bools | None, bend: float, penalty: Floats | float = 0.0) -> Metric:
        """Return the metric on the open coordinates, for a loss with a penalty of this second derivative."""
        kept = np.arange(len(self.matrix)) if opened is None else np.flatnonzero(opened)
        bent = (self.matrix + penalty / bend)[np.ix_(kept, kept)]
        sizes, vectors = np.linalg.eigh(bent)
        axes = np.zeros((len(kept), len(self.matrix)))
        axes[:, kept] = vectors.T
        hidden = sizes < self.unsure
        expected, behind = self._expected(sizes, axes, hidden)
        largest = max(float(sizes.max(initial=0.0)), 1e-12)
        pace = 1.0 / (np.where(np.abs(sizes) < ROUNDED * largest, 1e6 * largest, sizes) + self.unsure)
        sizes = np.maximum(sizes, 1e-12 * largest)
        pace *= math.sqrt(sizes.sum() / (np.square(pace) * sizes).sum())
        return Metric(axes, sizes, expected, pace, bend, hidden, behind)

    def _expected(self, sizes: Floats, axes: Floats, hidden: Bools) -> tuple[Floats, Floats]:
        """Return what is expected along the axes, and by each column behind the noise.

        Axes that noise hides share what is left of the trace. A column that few rows have holds less than
        its share: its own second moment along these axes, which is far surer than any axis, counts as far as
        such moments differ by more than noise.
        """
        least = HIDDEN * self.unsure
        if not hidden.any():
            return sizes, np.full(axes.shape[1], least)
        left = float(sizes[hidden].mean())
        parts = np.square(axes[hidden])
        own = (sizes[hidden] @ parts) / np.maximum(parts.sum(axis=0), 1e-12)
        differ = max(float(np.square(own - left).mean()), 1e-300)
        own = left + max(0.0, 1.0 - self.noise**2 / differ) * (own - left)
        behind = np.maximum(RESEMBLED * np.minimum(own, left), least)
        # A column that may as well be empty is bent by nothing: its weight follows noise for all of the way.
        own = np.diag(self.matrix)
        empty = own < min(EMPTY[0] * self.noise, EMPTY[1] * float(own.mean()))
        behind = np.where(empty, 0.0, behind)
        return np.where(hidden, max(left, least), sizes), behind


def has_metric(problem: Problem) -> bool:
    """Return whether second moments are worth their share: few columns, many records.

    Their spectral noise is about ``root d / (n epsilon)`` in units of the largest possible direction.
    """
    d, signal = problem.features, problem.population * problem.epsilon
    room = problem.population * min(problem.epsilon, 1.0) >= ROOM * d * problem.outputs
    return has_length(problem.loss) and d <= COLUMNS and room and signal >= SURE * math.sqrt(d)


def second_moments(curator: Curator, problem: Problem, affine: Affine, stretch: float) -> Moments | None:
    """Return the released second moments of the mapped rows, where they were planned."""
    if "second" not in curator.plan.releases:
        return None
    seen = SEEN_NUMBERS if problem.loss.targets == "numbers" else SEEN_LABELS
    seen = SEEN_PLAIN if math.isinf(problem.epsilon) else seen
    noise, n = noise_std(curator, "second"), problem.population
    moments = Moments.of(curator.release("second", affine), noise, seen, n, affine.intercept)
    return replace(moments, stretch=stretch)


def penalty_bend(problem: Problem, affine: Affine) -> Floats | float:
    """Return a bound on the second derivative of the penalties in mapped weights."""
    if not problem.penalties:
        return 0.0
    along = np.diag(affine.scale)
    if affine.intercept:
        along = np.pad(along, (0, 1))
        along[-1] = np.append(-affine.scale * affine.shift, affine.intercept) / problem.intercept
    return problem.penalty_curvature * along.T @ along
