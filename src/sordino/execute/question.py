"""One release as it is asked of records: what is the same wherever they lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.errors import UnsupportedError
from sordino.kernel import FromSum, Gaussian, NoiseSource, OnLattice, Query, Release


@dataclass(frozen=True)
class Question:
    """A query with its parameters, which are public, and how its terms are added up.

    Parameters
    ----------
    query, params : what is asked.
    lazy : the asker can use an answer on the touched columns only.
    spacing : of the lattice on which terms are truncated to integers; None adds up floating-point numbers.
    """

    query: Query
    params: Any
    lazy: bool
    spacing: float | None = None

    @classmethod
    def of(cls, release: Release, params: Any, sensitivity: float, population: int) -> Question:
        """Return the question of a release; ``population`` bounds the integers of a lattice."""
        # Nothing moves at sensitivity 0 (a difference of equal points), so there is nothing to hide.
        if not (release.mechanism.secure and sensitivity > 0):
            return cls(release.query, params, release.lazy and _is_sparse(params))
        query, mechanism = release.query, release.mechanism
        if not (isinstance(query, OnLattice) and isinstance(mechanism, Gaussian)):
            raise UnsupportedError(
                f"secure_noise=True is not proven for {type(query).__name__}. Set secure_noise=False."
            )
        spacing = mechanism.lattice(sensitivity)
        if population * (sensitivity / spacing) > 2**61:
            raise UnsupportedError("secure_noise=True would overflow 64-bit sums for this many records.")
        return cls(query, params, False, spacing)

    def summed(self, records: Any) -> Any:
        """Return the exact sum over some records; only what adds the noise to it may see it."""
        query: Any = self.query
        if self.spacing is not None:
            return query.evaluate_on_lattice(records, self.params, self.spacing)
        if isinstance(query, FromSum):
            return query.summed(records, self.params)
        return query.evaluate(records, self.params)

    def noised(self, total: Any, release: Release, sensitivity: float, noise: NoiseSource) -> Any:
        """Return the privatised answer from the sum over all records of the batch."""
        mechanism: Any = release.mechanism
        if self.spacing is not None:
            return mechanism.privatise_on_lattice(total, self.spacing, sensitivity, noise)
        if isinstance(self.query, FromSum):
            total = self.query.finished(total, self.params)
        return mechanism.privatise(total, sensitivity, noise)


def _is_sparse(params: Any) -> bool:
    points = params if isinstance(params, tuple) else (params,)
    return not any(isinstance(p, np.ndarray) for p in points)
