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
