"""The second moments of mapped rows: which directions are long, and which columns resemble each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import ClippedSum, Relation
from sordino.kernel.arrays import Floats
from sordino.kernel.clip import factors_of
from sordino.kernel.contracts import AffineViews
from sordino.problems.affine import Affine, affine_reach
from sordino.problems.glm import weighted
from sordino.problems.losses import Loss, expected_number


@dataclass(frozen=True)
class MappedGram(ClippedSum):
    r"""``sum_i z_i z_i^T`` for the mapped rows ``z_i`` of the map ``params``, their constant entry left out.

    **Privacy.** ``||z z^T||_F = ||z||^2 <= 1``: a row is clipped by its map, its square once more, with the
    constant entry counted in. Replacing a row moves the sum by
    ``sqrt(||z||^4 + ||y||^4 - 2 (z . y)^2) <= sqrt 2``.
    """

    needs: ClassVar[tuple[type, ...]] = (AffineViews,)

    def contribution(self, params: Any) -> float:
        """Return 1."""
        return 1.0

    def reach(self, params: Any) -> float:
        """Return how large the terms are that are added up for a record: squares of rows and shift apart."""
        return affine_reach(1.0, params) ** 2

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return 1, or sqrt 2 for a replaced record."""
        return math.sqrt(relation.contributions)

    def evaluate(self, records: AffineViews, params: Affine) -> Floats:
        """Return the sum, symmetric to the last bit."""
        view = records.through(params)
        with np.errstate(over="ignore", invalid="ignore"):
            factors = factors_of(view.norms * view.norms, 1.0)
            return view.gram(factors)


@dataclass(frozen=True)
class MappedCurvature(MappedGram):
    r"""``sum_i min(mu_i / cap, 1) z_i z_i^T``: the curvature of a loss of counts, with the constant entry.

    ``params = (w, affine, cap)``; ``mu_i`` is the count that the released weights predict for a record.

    **Privacy.** The weight of a record is between 0 and 1 and looks at this record alone:
    ``||a z z^T - b y y^T||_F^2 = a^2 ||z||^4 + b^2 ||y||^4 - 2 a b (z . y)^2 <= 2``, as without weights.
    """

    loss: Loss

    def reach(self, params: Any) -> float:
        """Return how large the terms are that are added up for a record."""
        return super().reach(params[1])

    def evaluate(self, records: AffineViews, params: Any) -> Floats:
        """Return the sum, symmetric to the last bit."""
        w, affine, cap = params
        view = records.through(affine)
        with np.errstate(over="ignore", invalid="ignore"):
            share = weighted(expected_number(self.loss, view.margins(w)) / cap, view.weights)
            share = np.where(share > 0.0, np.minimum(share, 1.0), 0.0)  # nan is not above 0
            factors = factors_of(view.norms * view.norms, 1.0) * share
            inner = view.gram(factors)
            if not affine.intercept:
                return inner
            last = affine.intercept * view.weighted_sum(factors)
        out = np.pad(inner, (0, 1))
        out[-1, :], out[:, -1] = last, last
        return out
