"""Counts of values that nobody listed beforehand: told where they are large, and only then."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from dp_accounting import dp_event as dp
from scipy.special import ndtri

from sordino.errors import InvalidInputError, PlanError
from sordino.kernel.events import composed, gaussian_event, rare_event
from sordino.kernel.mechanism import Additive
from sordino.kernel.noise import NoiseSource
from sordino.kernel.query import Norm
from sordino.kernel.relation import Relation


@dataclass(frozen=True)
class StableCounts(Additive):
    r"""Gaussian noise on the count of each value that occurs; those above a threshold are told.

    The answer to a query is a dictionary of counts for each of ``columns`` columns, in each of which a unit
    has at most one value and adds at most one to its count.

    **Privacy.** Let D have one unit x more than D'. Counts of values that D' has as well get the same
    independent Gaussian noise in both: a Gaussian release. What is left are values that x alone has, at most
    one per column, with a count of one: under D' nothing is told of them, under D a value is told with
    probability ``P[1 + N(0, s^2) > t] = delta / columns`` for the threshold ``t = 1 + s z``, ``z`` the
    quantile of the normal law at ``1 - delta / columns``; in all with probability ``delta`` at most,
    independently of the first part. So the release is a Gaussian one composed with a (0, delta)-DP one. When
    x is replaced by another, both have values of their own, and delta counts twice. Values are told in the
    order of the alphabet, whatever the order of the records.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)
    delta: float = 0.0  # has to be given
    columns: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.delta < 0.5 or self.columns < 1:
            raise InvalidInputError(
                f"Expected delta in (0, 0.5) and at least one column, got {self.delta} and {self.columns}."
            )

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the Gaussian event and what is told rarely."""
        if self.multiplier is None:
            raise PlanError("The mechanism has no noise multiplier yet. Calibrate the plan first.")
        return composed([gaussian_event(self.multiplier, relation), rare_event(self.delta, relation)])

    def rho(self) -> float:
        """Return 1/2, the cost of the Gaussian part."""
        return 0.5

    def threshold(self, sensitivity: float) -> float:
        """Return what a noisy count has to exceed."""
        return 1.0 - self.scale(sensitivity) * float(ndtri(self.delta / self.columns))

    def privatise(
        self, value: Sequence[dict[str, int]], sensitivity: float, noise: NoiseSource
    ) -> list[dict[str, float]]:
        """Return the noisy counts above the threshold, for each column."""
        if len(value) != self.columns or sensitivity < math.sqrt(self.columns):
            raise InvalidInputError(f"Expected counts of {self.columns} columns and their sensitivity.")
        return [self._told(counts, sensitivity, noise) for counts in value]

    def _told(self, counts: dict[str, int], sensitivity: float, noise: NoiseSource) -> dict[str, float]:
        values = sorted(counts)
        exact = np.array([counts[text] for text in values], dtype=float)
        noisy = exact + self.scale(sensitivity) * noise.normal(exact.shape)
        most = self.threshold(sensitivity)
        return {text: float(count) for text, count in zip(values, noisy) if count > most}
