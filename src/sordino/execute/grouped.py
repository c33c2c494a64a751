"""Records grouped by person: persons are sampled and clipped, not records."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Number
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute.local import LocalExecutor
from sordino.kernel import NoiseSource, Offer, Release, clip, contracts
from sordino.kernel.arrays import Floats, Ints
from sordino.refusals import refuse_masked


@dataclass(frozen=True, eq=False)
class Owners:
    """Which records each person has: those of person p are ``order[edges[p] : edges[p + 1]]``."""

    order: Ints = field(repr=False)
    edges: Ints = field(repr=False)

    @classmethod
    def of(cls, groups: Any, records: int) -> Owners:
        """Read the owner of each of so many records; refuse missing ones."""
        labels = known_owners(groups)
        if labels.shape != (records,):
            raise InvalidInputError(
                f"Expected one group per record, {records} of them, got shape {labels.shape}."
            )
        owner = _numbered(labels)
        edges = np.concatenate([[0], np.cumsum(np.bincount(owner))])
        return cls(np.argsort(owner, kind="stable"), edges)

    @property
    def persons(self) -> int:
        """The number of persons, declared public."""
        return int(self.edges.size - 1)

    def sizes(self, persons: Ints) -> Ints:
        """Return how many records some persons have: as secret as the records."""
        return np.asarray(self.edges[persons + 1] - self.edges[persons], dtype=np.int64)

    def rows(self, persons: Ints) -> Ints:
        """Return the records of some persons, person by person."""
        sizes = self.sizes(persons)
        starts = np.repeat(self.edges[persons] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
        count = int(sizes.sum())
        return self.order[starts + np.arange(count)] if count else np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class GroupedExecutor:
    """Records held in memory, each owned by a person; persons are sampled and clipped as a whole.

    Parameters
    ----------
    local : the records.
    groups : who owns each record; any labels, compared only for equality.
    """

    offer: ClassVar[Offer] = Offer(
        "groups of records",
        (contracts.UnitSums,),
        remedy="Use solver='ight', 'sgd-ht', 'svrg-ht' or 'scsg-ht' with groups.",
    )

    local: LocalExecutor = field(repr=False)
    groups: Any = field(repr=False)
    _owners: Owners = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.local, LocalExecutor):
            raise UnsupportedError(
                "Groups need all rows in one place: the records of a person may lie in several parts, and "
                "their sum is clipped as one. Bring the rows into one place (X.compute())."
            )
        object.__setattr__(self, "_owners", Owners.of(self.groups, self.local.population))

    @property
    def population(self) -> int:
        """The number of persons, declared public."""
        return self._owners.persons

    def answer(
        self, release: Release, params: Any, sensitivity: float, position: int, noise: NoiseSource
    ) -> Any:
        """Evaluate the query on the rows of the drawn persons and add the noise."""
        persons = release.sampling.draw(self.population, position, noise)
        value = release.query.evaluate(self.records(persons), params)
        return release.mechanism.privatise(value, sensitivity, noise)

    def records(self, persons: Ints | None) -> GroupedRecords:
        """Return the rows of some persons; for queries only."""
        chosen = np.arange(self.population) if persons is None else persons
        owner = np.repeat(np.arange(chosen.size), self._owners.sizes(chosen))
        return GroupedRecords(self.local.records(self._owners.rows(chosen)), owner, int(chosen.size))


class GroupedRecords:
    """Rows with their owners; only sums that are clipped per person can be asked of them."""

    def __init__(self, base: Any, owner: Ints, persons: int) -> None:
        self._base, self._owner, self._persons = base, owner, persons
        self.targets, self.norms, self.weights = base.targets, base.norms, base.weights

    def margins(self, w: Any) -> Floats:
        """Return the margins of the rows."""
        return self._base.margins(w)

    def unit_sum(self, coefficients: Floats, bound: float) -> Any:
        """Return ``sum_p clip_bound(sum_{i of p} c_i x_i)``, all outputs of a person clipped together."""
        norms = clip.joint_norms([self._norms(c) for c in np.atleast_2d(coefficients.T)])
        scale = clip.factors_of(norms, bound)[self._owner]
        return self._base.weighted_sum(coefficients * (scale if coefficients.ndim == 1 else scale[:, None]))

    def _norms(self, coefficients: Floats) -> Floats:
        """Return the norm of each person's sum, for one output."""
        coefficients = np.ascontiguousarray(coefficients)
        sizes = np.abs(coefficients) * np.where(coefficients == 0.0, 0.0, self.norms)
        blocks = self._base.scaled_rows(coefficients)
        return clip.person_norms(blocks, self._owner, self._persons, sizes)


def known_owners(groups: Any) -> NDArray[Any]:
    """Return the labels as an array; refuse missing or mixed ones, and floats that are not told apart.

    **Privacy.** All missing labels would be one person, and neighbouring integers beyond 2^53 too: several
    persons would share one contribution, and leaving one of them out would move an answer twice as far as
    claimed.
    """
    refuse_masked(groups)
    labels = groups if isinstance(groups, np.ndarray) else np.asarray(groups, dtype=object)
    if labels.dtype.kind == "O" and labels.ndim == 1:
        if any(is_missing(label) for label in labels):
            raise _unknown("missing ones (None, nan, NaT or NA)")
        if len({_kind(label) for label in labels}) > 1:
            raise _unknown("labels of several kinds, such as 1 and '1'")
        if not all(isinstance(label, (str, bytes)) for label in labels):  # their arrays drop zeros
            labels = np.asarray(groups)
    if labels.dtype.kind in "mM" and np.isnat(labels).any():
        raise _unknown("missing ones (NaT)")
    if labels.dtype.kind in "fc" and not (np.abs(labels) < 2.0 ** (np.finfo(labels.dtype).nmant + 1)).all():
        raise _unknown("numbers in floating point that are nan or too large (2^53 in double precision)")
    return labels


def is_missing(label: Any) -> bool:
    """Tell whether a label is None, nan, NaT or NA."""
    try:
        return label is None or bool(label != label)  # only a missing value does
    except TypeError:  # pandas' NA does not even say that
        return True


def _kind(label: Any) -> type:
    return next((kind for kind in (str, bytes, Number) if isinstance(label, kind)), type(label))


def _unknown(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"Expected a known person for every record, got groups with {what}. Give each record whose owner is "
        "not known a label of its own, or leave it out; pass integers or strings as labels."
    )


def _numbered(groups: NDArray[Any]) -> Ints:
    if groups.dtype.kind != "O":
        return np.unique(groups, return_inverse=True)[1]
    try:  # by equality: sorting would tear a person apart where labels have no order, as sets have none
        numbers: dict[Any, int] = {}
        return np.array([numbers.setdefault(label, len(numbers)) for label in groups], dtype=np.int64)
    except TypeError:
        raise InvalidInputError(
            "Expected groups of numbers or strings, got labels that cannot be compared."
        ) from None
