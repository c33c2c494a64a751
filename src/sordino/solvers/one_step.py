"""One private Newton step from a public linear model, with the whole error of where it leads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sordino.kernel import Curator, Full, Plan, Release
from sordino.kernel.arrays import Floats
from sordino.problems.robust import Part, PartSizes, PartSum, Sample, symmetric_matrix
from sordino.solvers.heavy.location import noise_of

# Shares of the budget: of the count of sizes, and of the curvature, the least, more for each column and the
# most; the rest is for the score.
_SIZES, _CURVATURE = 0.02, (0.12, 0.01, 0.35)
# The weight of the squares that ride along with the score.
_SQUARES = 0.4
# The clip of curvatures is the size that this share of the records has at most, as far as counts show it.
_SHARE, _CELLS = 0.999, 4
# Directions with less curvature than so many times the spectral norm of its noise are not known: no step is
# made along them, and along each the model may miss this share of what it leaves unexplained.
_KNOWN, _MISSED = 1.0, 0.02


@dataclass(frozen=True, eq=False)
class Step:
    """A move of the weights, the covariance of its error, what the curvature hides; whether it has ends."""

    moved: Floats
    covariance: Floats
    hidden: Floats
    ends: bool = True


@dataclass(frozen=True)
class OneStep:
    r"""One Newton step ``-H^-1 mean(g)`` from a public model, and the covariance of its error.

    H is the released mean curvature, and the scores ``g_i`` are asked in the lengths ``u = H^-1/2 g``, in
    which their errors are alike, with their squares: ``H^-1 (Cov(g) / n + noise) H^-1``, a sandwich, follows.

    No clip shortens a score: scores are as long as the declared bounds allow, ``residual`` times the longest
    row. A shorter clip would need a count of the records beyond it; the noise of that count, ``s`` records,
    leaves ``s longest / n`` open, more than the noise of scores of that length, which get more of the budget.
    Curvatures are clipped by counts: what that takes matters as far as the model is off.

    **Privacy.** Gaussian releases of clipped parts of the rows. A row holds the score of a
    record, or the mean of a person's, and its curvature: functions of that record and of a public model.
    """

    span: Floats
    norm: float
    residual: float
    bent: float

    def plan(self, problem: Sample) -> Plan:
        """Declare a count of sizes, the curvature and the score."""
        least, more, most = _CURVATURE
        curvature = min(least + more * self.span.shape[1], most)
        shares = {
            "sizes": (PartSizes("parts", _CELLS), _SIZES),
            "curvature": (PartSum(), curvature),
            "score": (PartSum(_SQUARES), 1.0 - _SIZES - curvature),
        }
        return problem.planned(
            **{
                name: Release(query, problem.gaussian(math.sqrt(1.0 / share)), Full(), mean=False)
                for name, (query, share) in shares.items()
            }
        )

    def run(self, curator: Curator, problem: Sample) -> Iterator[Step]:
        d, n = self.span.shape[1], problem.population
        curved = Part(slice(d, None), self.bent * self._longest(np.eye(d)) ** 2)
        query: Any = curator.plan.releases["sizes"].query
        counts = np.asarray(curator.release("sizes", curved))
        size = query.quantile(counts, _SHARE, noise_of(curator, "sizes", curved), 1.0)
        curved = replace(curved, size=curved.size * min(1.0, 1.0 if size is None else size))
        curvature = symmetric_matrix(np.asarray(curator.release("curvature", curved)) * (curved.size / n))
        unsure = noise_of(curator, "curvature", curved) * (curved.size / n)
        sizes, axes = np.linalg.eigh(curvature)
        floor = max(_KNOWN * unsure * math.sqrt(2.0 * d), 1e-9 * float(np.abs(sizes).max()), 1e-300)
        known = sizes > floor
        known[-1] = True
        sizes = np.maximum(sizes, floor)
        root = axes[:, known].T / np.sqrt(sizes[known])[:, None]
        score = Part(slice(0, d), self.residual * self._longest(root), root)
        found, k = np.asarray(curator.release("score", score)) / n, len(root)
        noise = noise_of(curator, "score", score) / n
        mean, squares = score.size * found[:k], score.size**2 * symmetric_matrix(found[k:]) / _SQUARES
        moved = -root.T @ mean
        own = _shrunk(squares - np.outer(mean, mean), score.size**2 * noise / _SQUARES)
        spread = own / n + (score.size * noise) ** 2 * np.eye(k)
        hidden = axes[:, ~known] * math.sqrt(_MISSED * float(np.trace(own)) / k / floor)
        tilted = 0.5 * unsure**2 * root @ (float(moved @ moved) * np.eye(d) + np.outer(moved, moved)) @ root.T
        yield Step(moved, root.T @ (spread + tilted) @ root + hidden @ hidden.T, hidden)

    def _longest(self, matrix: Floats) -> float:
        r"""Return a bound of the norm of the matrix times a row in the span, its constant included.

        With ``A x + b`` what a row x in a ball of radius R becomes, ``||A x + b||^2 <= t R^2 + ||b||^2 +
        b^T A (t - A^T A)^-1 A^T b`` for every t above the largest eigenvalue of ``A^T A``: the smallest of
        them is the largest norm, and each is a bound.
        """
        lifted = matrix @ self.span.T
        inner, last = lifted[:, :-1], lifted[:, -1]
        sizes, axes = np.linalg.eigh(inner.T @ inner)
        along, sizes = np.square(axes.T @ (inner.T @ last)), np.maximum(sizes, 0.0)
        levels = max(float(sizes[-1]), 1e-300) * (1.0 + np.exp2(np.arange(-30.0, 31.0)))
        found = levels * self.norm**2 + last @ last + (along / (levels[:, None] - sizes)).sum(axis=1)
        return math.sqrt(float(found.min())) * (1.0 + 1e-9)


def _shrunk(matrix: Floats, noise: float) -> Floats:
    """Return a noisy covariance, nearer to a multiple of the identity as far as it differs by noise alone."""
    size = len(matrix)
    mean = max(float(np.trace(matrix)) / size, noise / size)
    apart = matrix - mean * np.eye(size)
    seen = float(np.square(apart).sum())
    kept = max(0.0, 1.0 - 0.5 * size * (size + 1) * noise**2 / max(seen, 1e-300))
    sizes, axes = np.linalg.eigh(mean * np.eye(size) + kept * apart)
    return np.asarray((axes * np.maximum(sizes, 0.1 * mean)) @ axes.T)
