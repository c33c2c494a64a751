"""Several records of one person: the unit of privacy is the person."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute.local import LocalExecutor
from sordino.kernel import NoiseSource, Release

Floats = NDArray[np.float64]
_SAFETY = 1.0 - 2.0**-40


@dataclass(frozen=True, eq=False)
class GroupedExecutor:
    """Records held in memory, each owned by a person; persons are sampled and clipped as a whole.

    Parameters
    ----------
    local : the records.
    groups : who owns each record; any labels, compared only for equality.
    """

    local: LocalExecutor = field(repr=False)
    groups: Any = field(repr=False)
    _order: Any = field(init=False, repr=False)
    _edges: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        groups = np.asarray(self.groups)
        if groups.shape != (self.local.population,):
            raise InvalidInputError(
                f"Expected one group per record, {self.local.population} of them, got shape {groups.shape}."
            )
        _, owner = np.unique(groups, return_inverse=True)
        order = np.argsort(owner, kind="stable")
        edges = np.concatenate([[0], np.cumsum(np.bincount(owner))])
        object.__setattr__(self, "_order", order)
        object.__setattr__(self, "_edges", edges)

    @property
    def population(self) -> int:
        """The number of persons, declared public."""
        return int(self._edges.size - 1)

    def answer(
        self, release: Release, params: Any, sensitivity: float, position: int, noise: NoiseSource
    ) -> Any:
        """Evaluate the query on the rows of the drawn persons and add the noise."""
        if getattr(release.mechanism, "secure", False):
            raise UnsupportedError("secure_noise=True is not proven for groups. Set secure_noise=False.")
        persons = release.sampling.draw(self.population, position, noise)
        value = release.query.evaluate(self.records(persons), params)
        return release.mechanism.privatise(value, sensitivity, noise)

    def records(self, persons: NDArray[np.int64] | None) -> GroupedRecords:
        """Return the rows of some persons; for queries only."""
        chosen = np.arange(self.population) if persons is None else persons
        sizes = self._edges[chosen + 1] - self._edges[chosen]
        owner = np.repeat(np.arange(chosen.size), sizes)
        starts = np.repeat(self._edges[chosen] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
        rows = self._order[starts + np.arange(owner.size)] if owner.size else np.empty(0, dtype=np.int64)
        return GroupedRecords(self.local.records(rows), owner, int(chosen.size))


class GroupedRecords:
    """Rows with their owners; only sums that are clipped per person can be asked of them."""

    def __init__(self, base: Any, owner: NDArray[np.int64], persons: int) -> None:
        self._base, self._owner, self._persons = base, owner, persons
        self.targets, self.norms, self.weights = base.targets, base.norms, base.weights

    def margins(self, w: Any) -> Floats:
        """Return the margins of the rows."""
        return self._base.margins(w)

    def clipped_unit_sum(self, coefficients: Floats, bound: float) -> Any:
        """Return ``sum_p clip_bound(sum_{i of p} c_i x_i)``, all outputs of a person clipped together."""
        norms = np.sqrt(sum(self._squares(c) for c in coefficients.reshape(len(coefficients), -1).T))
        factor = np.ones(self._persons)
        np.divide(bound * _SAFETY, norms, out=factor, where=norms > bound * _SAFETY)
        scale = factor[self._owner]
        return self._base.weighted_sum(coefficients * (scale if coefficients.ndim == 1 else scale[:, None]))

    def _squares(self, coefficients: Floats) -> Floats:
        """Return the squared norm of each person's sum, for one output; a person may straddle two blocks."""
        out, first, carried = np.zeros(self._persons), 0, None
        for rows, block in self._base.scaled_rows(coefficients):
            owner = self._owner[rows] - first
            member = sparse.csr_matrix((np.ones(owner.size), (owner, np.arange(owner.size))))
            sums = sparse.csr_matrix(member @ block)
            if carried is not None:
                sums = sums + sparse.vstack([carried, sparse.csr_matrix((sums.shape[0] - 1, sums.shape[1]))])
            out[first : first + sums.shape[0]] = np.asarray(sums.multiply(sums).sum(axis=1)).reshape(-1)
            carried, first = sums[-1], first + sums.shape[0] - 1
        return out

    def __getattr__(self, name: str) -> NoReturn:
        raise UnsupportedError(
            f"This solver asks for {name!r}, which is not proven for groups of records. "
            "Use solver='ight', 'sgd-ht', 'svrg-ht' or 'scsg-ht' with groups."
        )
