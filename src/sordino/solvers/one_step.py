"""One private Newton step from a public linear model, with the whole error of where it leads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from sordino.kernel import Curator, Full, Plan, Release
from sordino.kernel.arrays import Bools, Floats, public_norm
from sordino.problems.robust import Part, PartSizes, PartSum, Sample, symmetric_matrix
from sordino.solvers.base import noise_std

# Shares of the budget: of the count of lengths, and of the curvature the least and the most; the score has
# what is left. Cells of the count to a factor of two.
_LENGTHS, _CURVATURE, _CELLS = 0.03, (0.16, 0.45), 2
# Directions with less curvature than so many deviations of its noise are not known: no step is made along
# them, and along each the model may miss this share of what it leaves unexplained; so are gaps of fewer than
# the last. benchmarks.model_intervals says which of its designs were in view.
_KNOWN, _MISSED, _THERE = 1.5, 0.05, 3.0
# Cleaning of the curvature leaves at least this of the variance of its noise, and of the square of a move so
# much of what the noise of the score would make of it alone is subtracted.
_PARTED, _SURE = 0.5, 0.9
# How much of the model a step of squares may leave behind, and how loud the constant may be in a score.
_LEFT, _LOUD = (0.0, 0.25, 0.5, 0.75, 1.0), (0.35, 0.5, 0.7, 1.0, 1.4, 2.0)


@dataclass(frozen=True, eq=False)
class Step:
    """A move of the weights, the covariance of its error, what the curvature hides; whether it has ends.

    ``there`` says which numbers of a row there are records for, ``means`` what these are on average where the
    curvature is (of squares, over all records), with noise of deviation ``unsure``.
    """

    moved: Floats
    covariance: Floats
    hidden: Floats
    ends: bool
    there: Bools
    means: Floats
    unsure: float

    def shown(self, units: Units) -> list[Bools]:
        """Tell for each column of a table at which corners released means show a share beyond its noise.

        A corner that lies on a line through others needs none.
        """
        out, start = [], 0
        for corners in units.corners:
            rows = np.column_stack([corners, np.ones(len(corners))])
            weights = np.linalg.pinv(rows)
            own, start = self.means[start : start + corners.shape[1]], start + corners.shape[1]
            noise = self.unsure * np.array([public_norm(column) for column in weights[:-1].T])
            apart = np.einsum("ij,ji->i", rows, weights) > 1.0 - 1e-6
            out.append(~apart | (np.append(own, self.means[-1]) @ weights > _THERE * noise))
        return out

    def farthest(self, units: Units) -> float:
        """Return the largest change that it may make to a row, of a table to corners that records have."""
        if not units.corners:
            lifted = np.column_stack([self.moved, self.hidden])
            return max(abs(end) for one in lifted.T for end in units.ends(one))
        moves = np.split(self.moved[:-1], np.cumsum([one.shape[1] for one in units.corners])[:-1])
        found = zip(units.corners, moves, self.shown(units), strict=True)
        return max(
            (float(np.ptp(rows[kept] @ move)) for rows, move, kept in found if kept.any()), default=0.0
        )


@dataclass(frozen=True, eq=False)
class Units:
    """How rows with a constant behind them are measured: in ``rows @ own``, and ``back`` from there.

    The last number of a row is the ``constant``, and ``seldom`` says which others are zero but for a gap or a
    value that is not declared. They fill a ball of radius ``norm``, or they are the
    numbers of ``corners``, one of each side by side, or between these.
    """

    own: Floats
    back: Floats
    norm: float
    constant: float
    seldom: Bools
    corners: tuple[Floats, ...] = ()

    def ends(self, weights: Floats) -> tuple[float, float]:
        """Return the least and the largest margin that these weights give to a row."""
        middle, reach = self.constant * float(weights[-1]), self.norm * public_norm(weights[:-1])
        if not self.corners:
            return middle - reach, middle + reach
        parts = np.split(weights[:-1], np.cumsum([one.shape[1] for one in self.corners])[:-1])
        margins = [rows @ part for rows, part in zip(self.corners, parts, strict=True)]
        return middle + sum(float(m.min()) for m in margins), middle + sum(float(m.max()) for m in margins)

    def longest(self, matrix: Floats) -> float:
        r"""Return a bound of the norm of the matrix times a row, its constant included.

        With ``A x + b`` what a row x in a ball of radius R becomes, ``||A x + b||^2 <= t R^2 + ||b||^2 +
        b^T A (t - A^T A)^-1 A^T b`` for every t above the largest eigenvalue of ``A^T A``: the smallest of
        them is the largest norm, and each is a bound.
        """
        inner, last = matrix[:, :-1], self.constant * matrix[:, -1]
        sizes, axes = np.linalg.eigh(inner.T @ inner)
        along, sizes = np.square(axes.T @ (inner.T @ last)), np.maximum(sizes, 0.0)
        levels = max(float(sizes[-1]), 1e-300) * (1.0 + np.exp2(np.arange(-30.0, 31.0)))
        found = levels * self.norm**2 + last @ last + (along / (levels[:, None] - sizes)).sum(axis=1)
        return math.sqrt(float(found.min())) * (1.0 + 1e-9)


class Curvature(NamedTuple):
    """Axes that a released curvature tells, with their sizes, and hidden ones; the least size.

    ``unsure`` has half the variances of its entries along the axes, ``veiled`` their sum over hidden axes,
    ``there`` says which numbers of a row there are records for, ``told`` whether there is more than noise.
    ``means`` are products with the constant, ``unsure_mean`` is the deviation of their noise.
    """

    axes: Floats
    sizes: Floats
    hidden: Floats
    there: Bools
    floor: float
    unsure: Floats
    veiled: Floats
    told: bool
    means: Floats
    unsure_mean: float


@dataclass(frozen=True, eq=False)
class OneStep:
    r"""One Newton step ``-H^-1 mean(g)`` from a public model, and the covariance of its error.

    H is the released mean curvature, and ``H^-1 (Cov(g) / n + noise) H^-1``, a sandwich, follows from
    released squares of the scores, clipped where counts of their lengths end: their noise is as small as
    scores are short, and shows a rare group with larger errors. Those of squares are asked at the end of the
    step.

    No clip shortens a score or a curvature: scores are as long as the declared bounds allow, ``residual``
    times the longest row. A shorter clip would need a count of the records beyond it; the noise of that
    count, ``s`` records, leaves ``s longest / n`` open, more than the noise of scores of that length, which
    get more of the budget.
    Rows fill a ball, so scores are asked in units of the rows: ``H^-1`` of that noise is nowhere more than in
    lengths of ``H^-1/2 g``, where the direction of least curvature makes all others pay. The noise of the
    curvature is an error too, as far as the step is long.

    Squares lead to the same end from everywhere, and scores are shorter, ``middle`` times a row, at the
    constant amid the targets, which is the model less ``whole``: a step starts between the two, where the
    released curvature says that noise and its own error are least.

    **Privacy.** Gaussian releases of clipped parts of the rows. A row holds the score of a
    record, or the mean of a person's, and its curvature: functions of that record and of a public model.
    """

    units: Units
    residual: float
    bent: float
    squares: float = 0.1
    whole: Floats | None = None
    middle: float = 0.0
    roots: bool = False

    def plan(self, problem: Sample) -> Plan:
        """Declare the curvature, the score, a count of its lengths and its squares."""
        least, most = _CURVATURE
        curvature = least
        if self.whole is not None:  # noise of the curvature along the step, in units of that of the score
            long = public_norm(self.whole) * self.units.longest(np.eye(self.whole.size))
            long /= math.sqrt(2.0) * max(self.middle, 1e-300)
            curvature = min(max(least, long / (1.0 + long)), most)
        shares = {
            "curvature": (PartSum(self.roots), curvature),
            "score": (PartSum(), 1.0 - _LENGTHS - curvature - self.squares),
            "lengths": (PartSizes("parts", _CELLS), _LENGTHS),
            "score-squares": (PartSum(True), self.squares),
        }
        return problem.planned(
            **{
                name: Release(query, problem.gaussian(math.sqrt(1.0 / share)), Full(), mean=False)
                for name, (query, share) in shares.items()
            }
        )

    def run(self, curator: Curator, problem: Sample) -> Iterator[Step]:
        n, found = problem.population, self._curvature(curator, problem.population)
        noise = noise_std(curator, "score", None) / n
        lefts = _LEFT[:1] if self.whole is None else _LEFT
        tries = [Trial(self, found, noise, left, loud) for left in lefts for loud in _LOUD]
        best = min(tries, key=lambda one: one.cost(n))
        score = best.part(best.left)
        moved = -best.back @ np.asarray(curator.release("score", score)) * (best.size / n)
        own, spread = self._squares(curator, n, best, moved)
        missed = math.sqrt(_MISSED * spread / found.floor)
        hidden = missed * found.hidden
        errors = best.back @ (own / n + best.noise(best.square(moved), missed)) @ best.back.T
        covariance = errors + hidden @ hidden.T
        means, unsure = found.means / self.units.constant, found.unsure_mean / self.units.constant
        yield Step(moved - best.left, covariance, hidden, found.told, found.there, means, unsure)

    def _curvature(self, curator: Curator, n: int) -> Curvature:
        d = self.units.own.shape[1]
        size = self.bent * self.units.longest(np.eye(d)) ** 2
        curved = Part(slice(d, None), math.sqrt(size) if self.roots else size)
        unsure = noise_std(curator, "curvature", curved) / n * size
        matrix = symmetric_matrix(np.asarray(curator.release("curvature", curved)) * (size / n))
        there = ~self.units.seldom | (np.diag(matrix) > _THERE * unsure)
        noisy, axes = np.linalg.eigh(matrix[np.ix_(there, there)])
        sizes, axes = _clean_eigenvalues(noisy, unsure), np.eye(d)[:, there] @ axes
        floor = max(_KNOWN * unsure, 1e-9 * float(np.abs(sizes).max()), 1e-300)
        known = sizes > floor
        known[-1] = True
        told, least = bool(known.all() or unsure < sizes.mean()), np.maximum(sizes[known], floor)
        # The variance of an estimate given a noisy one is that of the noise times its derivative (Tweedie).
        gaps, before = (np.abs(np.subtract.outer(one, one)) for one in (sizes, noisy))
        kept = np.where(np.eye(len(noisy)) > 0.0, 1.0, gaps / np.maximum(before, 1e-300))
        left = 0.5 * unsure**2 * np.clip(kept, _PARTED, 1.0)[known]
        veiled = left[:, ~known].sum(axis=1)
        means = np.append(matrix[:-1, -1], matrix[-1, -1] / self.units.constant)
        seen = axes[:, known], least, axes[:, ~known], there, floor, left[:, known], veiled, told
        return Curvature(*seen, means, unsure / math.sqrt(2.0))

    def _squares(self, curator: Curator, n: int, best: Trial, moved: Floats) -> tuple[Floats, float]:
        """Return the mean square of the scores after the move, and that of residuals if all are alike."""
        score, after = best.part(0.0 * moved), best.part(best.left - moved)
        if self.whole is not None and after.size < 1.5 * score.size:
            score = after
        query: Any = curator.plan.releases["lengths"].query
        counts = np.asarray(curator.release("lengths", score))
        near = query.end(counts, noise_std(curator, "lengths", score))
        score = replace(score, size=score.size * near)
        noise = noise_std(curator, "score-squares", score) * score.size**2 / n
        found = np.asarray(curator.release("score-squares", score)) * (score.size**2 / n)
        return _shrunk(symmetric_matrix(found), best.alike, noise)

    def longest_score(self, matrix: Floats, left: Floats) -> float:
        """Return a bound of the norm of the matrix times a score, of a model that leaves this behind."""
        if self.whole is None:
            return self.residual * self.units.longest(matrix)
        largest = self.middle + max(map(abs, self.units.ends(self.whole - left)))
        return min(largest, 1e100) * self.units.longest(matrix)


class Trial:
    """A way to ask the score: from where on, and in which units; ``alike`` are squares of equal residuals."""

    def __init__(self, step: OneStep, found: Curvature, noise: float, left: float, loud: float) -> None:
        axes, sizes = found.axes, found.sizes
        units = np.eye(axes.shape[1]) + (loud**2 - 1.0) * np.outer(axes[-1], axes[-1])
        lengths, turned = np.linalg.eigh(units)
        metric = (turned * np.sqrt(lengths)) @ turned.T
        self._step, self._found, self._metric, self._noise = step, found, metric, noise
        self.root = metric @ axes.T
        self.left = np.zeros(len(axes)) if step.whole is None else left * (axes @ (axes.T @ step.whole))
        self._gone = np.zeros(len(axes)) if step.whole is None else np.where(found.there, 0.0, step.whole)
        self.size = self.part(self.left).size
        self.back = (axes / sizes) @ np.linalg.inv(metric)
        self.alike = (metric * sizes) @ metric
        self._left = float(np.square(axes.T @ self.left) @ sizes)

    def part(self, left: Floats) -> Part:
        """Return the scores of a model that leaves this behind."""
        left = left + self._gone
        size = self._step.longest_score(self.root, left)
        return Part(slice(0, len(left)), size, self.root, left)

    def noise(self, square: Floats, missed: float = 0.0) -> Floats:
        """Return the covariance of the noise of the score, and of the curvature's along a move.

        Along the axes the move has this square; along each hidden one the model misses so much.
        """
        unsure, veiled = self._found.unsure, missed**2 * self._found.veiled
        tilted = np.diag(unsure @ np.diag(square) + veiled) + unsure * square
        sizes, axes = np.linalg.eigh(self._metric @ tilted @ self._metric)
        return np.asarray((axes * (np.maximum(sizes, 0.0) + (self.size * self._noise) ** 2)) @ axes.T)

    def square(self, moved: Floats) -> Floats:
        """Return the square of a move along the axes, less most of what the noise of the score adds to it."""
        along, back = self._found.axes.T @ moved, self._found.axes.T @ self.back
        return np.asarray(np.outer(along, along) - _SURE * (self.size * self._noise) ** 2 * back @ back.T)

    def cost(self, n: int) -> float:
        """Return how wide intervals of the coefficients will be, as far as this way of asking matters."""
        errors = self.back[:-1]
        along = self._found.axes.T @ self.left
        spread = self.noise(np.outer(along, along)) + self._left * self.alike / n
        return float(np.log(np.maximum(np.einsum("ij,jk,ik->i", errors, spread, errors), 1e-300)).sum())


def _clean_eigenvalues(sizes: Floats, noise: float) -> Floats:
    r"""Return the mean squares along the axes of a noisy matrix, given its eigenvalues in their order.

    Noise drives eigenvalues apart. With entries of deviation ``noise``, root 2 less off the diagonal, the
    matrix itself has ``l_i - noise^2 sum_j 1 / (l_i - l_j)`` along the axis of ``l_i`` (Bun, Allez, Bouchaud
    and Potters, 2016), which do not cross.
    """
    gaps = np.subtract.outer(sizes, sizes)
    moved = sizes - noise**2 * (gaps / (np.square(gaps) + 0.5 * noise**2 + 1e-300)).sum(axis=1)
    return np.asarray(optimize.isotonic_regression(moved).x)


def _shrunk(matrix: Floats, alike: Floats, noise: float) -> tuple[Floats, float]:
    """Return a noisy covariance, a multiple of ``alike`` along directions where noise may be the difference.

    And that multiple, the square of a residual. The eigenvalues of symmetric noise fill a half circle up to
    its edge; one beyond it, y, is that of a difference ``sqrt(y^2 - edge^2)`` with the least squared error.
    """
    size, whole = len(matrix), float(np.square(alike).sum())
    spread = max(float((matrix * alike).sum()) / whole, 0.2 * noise / math.sqrt(whole), 1e-200)
    sizes, axes = np.linalg.eigh(matrix - spread * alike)
    sizes = np.sign(sizes) * np.sqrt(np.maximum(np.square(sizes) - 2.0 * size * noise**2, 0.0))
    root = np.linalg.cholesky(0.1 * spread * alike)  # along no direction less than a tenth of what is alike
    inverse = np.linalg.inv(root)
    sizes, axes = np.linalg.eigh(inverse @ (spread * alike + (axes * sizes) @ axes.T) @ inverse.T)
    return np.asarray(root @ (axes * np.maximum(sizes, 1.0)) @ axes.T @ root.T), spread
