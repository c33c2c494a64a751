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
    expected of them at least; ``pace`` is p, and ``bend`` the largest second derivative of the loss. p is
    scaled such that steps add as much noise to a margin as without a metric: ``sum p^2 s = sum s``. Noise
    tilts axes by ``tilt``, the deviation of an entry of the moments over their size, those that it hides
    aside. No record may have the columns that are ``empty``.
    """

    axes: Floats
    sizes: Floats
    expected: Floats
    pace: Floats
    bend: float
    tilt: Floats
    empty: Bools

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
        expected = self._expected(sizes)
        largest = max(float(sizes.max(initial=0.0)), 1e-12)
        pace = 1.0 / (np.where(np.abs(sizes) < ROUNDED * largest, 1e6 * largest, sizes) + self.unsure)
        sizes = np.maximum(sizes, 1e-12 * largest)
        pace *= math.sqrt(sizes.sum() / (np.square(pace) * sizes).sum())
        tilt = np.where(hidden, 0.0, math.sqrt(0.5) * self.noise / sizes)
        return Metric(axes, sizes, expected, pace, bend, tilt, self._empty)

    def _expected(self, sizes: Floats) -> Floats:
        """Return what is expected at least along axes with these moments.

        Noise spreads the moments of a matrix even if all directions are alike. As far as they spread more,
        they differ; what is not known of an axis then is taken off, as noise grows where there is no moment.
        """
        count = max(len(sizes), 1)
        mean = float(sizes.sum()) / count
        spread = float(np.square(sizes - mean).sum()) / count
        differ = max(spread - 0.5 * count * self.noise**2, 0.0)
        share = differ / max(spread, 1e-300)
        return np.maximum(mean + share * (sizes - mean) - math.sqrt(differ * (1.0 - share)), 0.0)

    @property
    def _empty(self) -> Bools:
        """Which columns no record may have: a weight there follows noise for all of the way."""
        own = np.diag(self.matrix)
        found: Bools = own < min(EMPTY[0] * self.noise, EMPTY[1] * float(own.mean()))
        return found


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
