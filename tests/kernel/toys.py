"""Small queries and executors for the tests of the kernel; no sensitivity here is 1."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import ClippedSum, NoiseSource, Norm, Offer
from sordino.kernel.query import GramSums, Parts, RecordSums


def source(seed=21):
    return NoiseSource.seeded_not_private(seed)


@dataclass(frozen=True)
class Total(ClippedSum):
    """The sum of records that are clipped to norm 2.7; ``params`` multiplies everything."""

    bound: float = 2.7
    norm: Norm = Norm.L2

    def contribution(self, params):
        return self.bound * (1.0 if params is None else params)

    def evaluate(self, records, params):
        factor = 1.0 if params is None else params
        clipped = [
            r * min(1.0, self.bound / np.linalg.norm(r)) for r in records if np.isfinite(r).all() and r.any()
        ]
        return factor * np.sum(clipped, axis=0) if clipped else np.zeros(records.shape[1])


@dataclass
class Memory:
    """An executor on an array in memory that keeps what it was asked."""

    matrix: Any
    offer: ClassVar[Offer] = Offer("toys", (RecordSums, GramSums, Parts))

    def __post_init__(self):
        self.log = []

    @property
    def population(self):
        return len(self.matrix)

    def total(self, question, batch):
        self.log.append((question.release, question.params, question.sensitivity, question.position))
        rows = batch.rows(self.population)
        return question.summed(self.matrix if rows is None else self.matrix[rows])
