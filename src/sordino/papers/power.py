"""Private power iteration as printed: noise that protects a single entry of a record."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import Printed
from sordino.problems.covariance import GramProduct, PcaProblem
from sordino.solvers.pca.power import Power


@dataclass(frozen=True)
class EntryLevelProduct(Printed, GramProduct):
    r"""The product with the noise of the private power iteration, which protects one *entry*.

    That noise is ``z ||V||_max``. Declaring ``sqrt(d) ||V||_max >= 1`` as the contribution of a record gives
    the same noise at the multiplier ``z / sqrt(d)``, and an epsilon that is true for records.
    """

    printed: ClassVar[str] = "private power iteration, entry-level noise"

    def contribution(self, params: Any) -> float:
        """Return ``radius^2 sqrt(d) ||V||_max``, at least the true bound for orthonormal V."""
        block, ball = params
        radius = self.row_norm if ball is None else ball.radius
        spread = math.sqrt(len(block)) * float(np.abs(block).max())
        return float(max(super().contribution(params), radius**2 * spread))


@dataclass(frozen=True)
class EntryLevelPower(Power):
    """The noisy power method with entry-level noise and without momentum."""

    def query(self, problem: PcaProblem) -> GramProduct:
        """Return the printed product."""
        return EntryLevelProduct(problem.data_norm)
