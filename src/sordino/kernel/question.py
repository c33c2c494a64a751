"""One release as it is asked of records: what is the same wherever they lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sordino.errors import UnsupportedError
from sordino.kernel.contracts import Answer
from sordino.kernel.mechanism import Gaussian
from sordino.kernel.query import FromSum, OnLattice, Query
from sordino.kernel.release import Release


@dataclass(frozen=True)
class Question:
    """A release with its parameters, all of it public.

    Parameters
    ----------
    release, params : what is asked.
    sensitivity : how far the answers of neighbours can be apart.
    position : how often the release was asked before.
    population : the number of units, which bounds the integers of a lattice.
    """

    release: Release
    params: Any
    sensitivity: float
    position: int
    population: int

    @property
    def query(self) -> Query:
        """The query of the release."""
        return self.release.query

    @property
    def lazy(self) -> bool:
        """Whether the asker can use an answer on the touched columns only."""
        return self.release.lazy and self.spacing is None and _is_sparse(self.params)

    @cached_property
    def spacing(self) -> float | None:
        """The spacing of the lattice of integers that terms are truncated to; None adds up doubles."""
        mechanism = self.release.mechanism
        # Nothing moves at sensitivity 0 (a difference of equal points), so there is nothing to hide.
        if not (mechanism.secure and self.sensitivity > 0):
            return None
        if not (isinstance(self.query, OnLattice) and isinstance(mechanism, Gaussian)):
            raise UnsupportedError(
                f"secure_noise=True is not proven for {type(self.query).__name__}. Set secure_noise=False."
            )
        spacing = mechanism.lattice(self.sensitivity)
        if self.population * (self.sensitivity / spacing) > 2**61:
            raise UnsupportedError("secure_noise=True would overflow 64-bit sums for this many records.")
        return spacing

    def summed(self, records: Any) -> Answer:
        """Return the exact sum over some records; only what adds the noise to it may see it."""
        return exact_sum(self.query, records, self.params, self.spacing)

    def noised(self, total: Any, noise: Any) -> Answer:
        """Return the privatised answer from the sum over all records of the batch."""
        mechanism: Any = self.release.mechanism
        if self.spacing is not None:
            return mechanism.privatise_on_lattice(total, self.spacing, self.sensitivity, noise)
        if isinstance(self.query, FromSum):
            total = self.query.finished(total, self.params)
        return mechanism.privatise(total, self.sensitivity, noise)


def exact_sum(query: Any, records: Any, params: Any, spacing: float | None) -> Answer:
    """Return the sum of a query over some records, on a lattice if it has a spacing."""
    if spacing is not None:
        return query.evaluate_on_lattice(records, params, spacing)
    return query.summed(records, params) if isinstance(query, FromSum) else query.evaluate(records, params)


def _is_sparse(params: Any) -> bool:
    points = params if isinstance(params, tuple) else (params,)
    return not any(isinstance(p, np.ndarray) for p in points)
