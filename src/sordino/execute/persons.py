"""Records grouped by person: persons are sampled and clipped, not records."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Number
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute.local import LocalExecutor
from sordino.execute.records import DenseRecords, RowwiseRecords, spread_of
from sordino.kernel import Batch, Full, Offer, Question, clip
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.query import (
    WHOLE,
    AffineViews,
    ColumnSums,
    GramSums,
    PartedArrays,
    PartedRows,
    PublicBall,
    PublicMap,
    UnitSums,
    shares_of,
)
from sordino.values import refuse_unreadable

_PERSONS = 256  # so many persons are added up one by one at a time
_ROWS = 1 << 16  # the most rows of a person that count as parts, where the user names no number
MARKERS = ("", "?", "NA", "N/A", "nan", "NaN", "null", "NULL", "None")
"""Texts that stand for a missing value, in tables and in labels of owners."""


@dataclass(frozen=True, eq=False)
class Owners:
    """Which records each person has: those of person p are ``order[edges[p] : edges[p + 1]]``."""

    order: Ints = field(repr=False)
    edges: Ints = field(repr=False)

    @classmethod
    def of(cls, groups: Any, records: int) -> Owners:
        """Read the owner of each of so many records; refuse missing ones."""
        owner = number_owners(groups)
        if owner.shape != (records,):
            raise InvalidInputError(
                f"Expected one group per record, {records} of them, got shape {owner.shape}."
            )
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
        sizes = self.sizes(persons)
        starts = np.repeat(self.edges[persons] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
        count = int(sizes.sum())
        return self.order[starts + np.arange(count)] if count else np.empty(0, dtype=np.int64)


def _require_one_place(rows: Any) -> None:
    if not isinstance(rows, LocalExecutor):
        raise UnsupportedError(
            "Groups need all rows in one place: the records of a person may lie in several parts. Bring the "
            "rows into one place (X.compute())."
        )


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
        (UnitSums,),
        remedy="Use solver='ight', 'sgd-ht', 'svrg-ht' or 'scsg-ht' with groups.",
    )

    local: LocalExecutor = field(repr=False)
    groups: Any = field(repr=False)
    _owners: Owners = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _require_one_place(self.local)
        object.__setattr__(self, "_owners", Owners.of(self.groups, self.local.population))

    @property
    def population(self) -> int:
        return self._owners.persons

    def total(self, question: Question, batch: Batch) -> Any:
        return question.summed(self.records(batch.rows(self.population), apart=question.secure))

    def records(self, persons: Ints | None, apart: bool = False) -> GroupedRecords:
        """Return the records of some persons; ``apart``, what one person adds does not round by another's."""
        chosen = np.arange(self.population) if persons is None else persons
        owner = np.repeat(np.arange(chosen.size), self._owners.sizes(chosen))
        base = (self._by_row if apart else self.local).records(self._owners.rows(chosen))
        return (ApartRecords if apart else GroupedRecords)(base, owner, int(chosen.size))

    @cached_property
    def _by_row(self) -> LocalExecutor:
        """The rows in CSR: a product with one of them does not depend on its place, as blocks of BLAS may."""
        return replace(self.local, matrix=sparse.csr_matrix(self.local.matrix))


class GroupedRecords:
    """Rows with their owners; only sums that are clipped per person can be asked of them."""

    def __init__(self, base: Any, owner: Ints, persons: int) -> None:
        self._base, self._owner, self._persons = base, owner, persons
        self.targets, self.norms, self.weights = base.targets, base.norms, base.weights

    def margins(self, w: Any) -> Floats:
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


def parts_of_rows(rows: int, owners: Owners | None, most: int | None = None) -> Floats:
    """Return the part of its person that each row stands for; zero for rows of a person that are too many."""
    parts = np.full(rows, 1.0 / (most or 1))
    if owners is not None:
        sizes = np.diff(owners.edges)
        place = np.arange(rows) - np.repeat(owners.edges[:-1], sizes)
        if most is None:
            parts[owners.order] = np.repeat(1.0 / np.minimum(sizes, _ROWS), sizes)
        parts[owners.order[place >= (most or _ROWS)]] = 0.0
    # The sum of m rounded parts of 1 / m may be above one by m units in the last place.
    return parts * (1.0 - 2.0**-30)


@dataclass(frozen=True, eq=False)
class SharedExecutor:
    """Records held in memory, each a part of the person who owns it: parts add up to one at most.

    Parameters
    ----------
    local : the records.
    groups : who owns each record; None where nobody knows, and each person has at most ``most`` of them.
    most : None splits a person evenly over all rows, or the first 65,536; a number counts each of the first
        so many rows in full, as one part in ``most``, and leaves out the others.

    **Privacy.** A person adds a convex combination of what its rows would add as records
    (:class:`PartedRows`), or a part of one; second moments are such sums. Parts are rounded down. Which rows
    a person has, and which are the first, depends on no other person. Of owners that nobody knows, ``most``
    is a declaration, and the guarantee is as true as that.

    **Rounding.** How many rows a person has is secret. For exact noise persons are added up in blocks, of
    which neighbours differ in one. A block of p persons with at most m rows each errs by ``p m + 16``
    roundings of terms that are p reaches long together: no more than a sum of ``p sqrt m`` records.
    """

    local: LocalExecutor = field(repr=False)
    groups: Any = field(repr=False)
    most: int | None = None
    _owners: Owners | None = field(init=False, repr=False, default=None)
    _parts: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _require_one_place(self.local)
        rows = self.local.population
        owners = None if self.groups is None else Owners.of(self.groups, rows)
        object.__setattr__(self, "_owners", owners)
        object.__setattr__(self, "_parts", parts_of_rows(rows, owners, self.most))

    @property
    def population(self) -> int:
        return self.local.population if self._owners is None else self._owners.persons

    @property
    def _root(self) -> int:
        """The root of the most rows of a person that count, rounded up."""
        return math.isqrt((self.most or _ROWS) - 1) + 1

    @property
    def offer(self) -> Offer:
        """Sums over all rows, of which none is a unit by itself."""
        return Offer(
            "rows that are parts of persons",
            (
                PartedRows if sparse.issparse(self.local.matrix) else PartedArrays,
                GramSums,
                AffineViews,
                ColumnSums,
            ),
            roundings=self.population if self._owners is None else max(WHOLE, self._root),
            samplings=(Full,),
            in_parts=True,
            remedy="Use a solver that asks all records at once, or no groups.",
        )

    def total(self, question: Question, batch: Batch) -> Any:
        if not question.secure or self._owners is None:
            return question.summed(SharedRecords(self.local.records(None), self._parts))
        return sum(question.summed(block) for block in self._blocks)

    @cached_property
    def _blocks(self) -> list[SharedRecords]:
        """The rows of so many persons at a time, each computed alike wherever it stands."""
        assert self._owners is not None
        order, persons = self._owners.order, max(1, WHOLE // self._root)
        base, parts = self.local.records(order), self._parts[order]
        base = RowwiseRecords(**vars(base)) if isinstance(base, DenseRecords) else base
        ends = [*self._owners.edges[:-1:persons].tolist(), order.size]
        return [SharedRecords(base.subset(slice(a, b)), parts[a:b]) for a, b in itertools.pairwise(ends)]


class SharedRecords:
    """Rows with their parts.

    Sums of second moments, of columns and of rows through a map are weighted here, others and counts where a
    query adds them up.
    """

    def __init__(self, base: Any, parts: Floats) -> None:
        self._base, self.parts, self.weights, self.count = base, parts, base.weights, base.count
        self.targets, self.norms = base.targets, base.norms
        self.margins, self.weighted_sum = base.margins, base.weighted_sum
        self.scaled_rows, self.weighted_norms = base.scaled_rows, base.weighted_norms

    def by_position(self, size: int) -> list[SharedRecords]:
        """Return these records: they are a block that is rounded once already."""
        return [self]

    def restrict(self, columns: Ints) -> SharedRecords:
        return SharedRecords(self._base.restrict(columns), self.parts)

    def through(self, affine: PublicMap) -> SharedView:
        return SharedView(self._base.through(affine), self.parts)

    def within(self, columns: Ints | None) -> SharedRecords:
        return SharedRecords(self._base.within(columns), self.parts)

    def column_moments(self, square: bool = False) -> tuple[Floats, Floats]:
        found: tuple[Floats, Floats] = self._base.parted_moments(square, shares_of(self))
        return found

    def _rows(self, ball: PublicBall, spread: float = 1.0) -> Iterator[tuple[Floats, Floats]]:
        """Yield the clipped rows, measured in a ball, and their parts as a column."""
        start = 0
        for block in self._base.centred_rows(ball, spread):
            yield block, self.parts[start : start + len(block), None]
            start += len(block)

    def gram(self, ball: PublicBall) -> Floats:
        return np.sum([y.T @ (part * y) for y, part in self._rows(ball)], axis=0)

    def gram_product(self, matrix: Floats, ball: PublicBall) -> Floats:
        return np.sum(
            [y.T @ (part * (y @ matrix)) for y, part in self._rows(ball, spread_of(matrix))], axis=0
        )

    def moments(self, ball: PublicBall) -> tuple[Floats, float]:
        found = [((part * y).sum(axis=0), np.vdot(part * y, y)) for y, part in self._rows(ball)]
        return np.sum([total for total, _ in found], axis=0), float(sum(square for _, square in found))

    def squared_columns(self, ball: PublicBall) -> Floats:
        return np.sum([(part * np.square(y)).sum(axis=0) for y, part in self._rows(ball)], axis=0)


class SharedView:
    """Mapped rows with their parts: what a query has clipped is added up by parts."""

    def __init__(self, view: Any, parts: Floats) -> None:
        self._view, self.parts, self.margins = view, parts, view.margins
        self.targets, self.weights = view.targets, view.weights
        self.sizes, self.norms, self.factors = view.sizes, view.norms, view.factors

    def weighted_sum(self, coefficients: Floats) -> Floats:
        parts = self.parts if coefficients.ndim == 1 else self.parts[:, None]
        return np.asarray(self._view.weighted_sum(coefficients * parts))

    def gram(self, factors: Floats) -> Floats:
        return np.asarray(self._view.gram(factors * self.parts))


class ApartRecords(GroupedRecords):
    """Records of which each person is added up alone, for sums with a written error.

    In one sum the number of a person's records, a secret, would move the rounding of others. So persons are
    added up in chunks, each from its own records, and clipped; then as many vectors as persons are added.
    """

    def unit_sum(self, coefficients: Floats, bound: float) -> Any:
        outputs = np.atleast_2d(coefficients.T)
        total = np.zeros((len(outputs), self._base.columns))
        for part in self.by_position(_PERSONS):
            total += part._sums(np.ascontiguousarray(outputs[:, part.rows]), bound)
        return total[0] if coefficients.ndim == 1 else total

    def by_position(self, size: int) -> list[ApartRecords]:
        """Return the records of ``size`` persons at a time."""
        edges = np.searchsorted(self._owner, np.arange(0, self._persons + size, size))
        parts = []
        for first, (start, stop) in enumerate(itertools.pairwise(edges.tolist())):
            rows, persons = slice(start, stop), min(size, self._persons - first * size)
            parts.append(ApartRecords(self._base.subset(rows), self._owner[rows] - first * size, persons))
            parts[-1].rows = rows
        return parts

    rows: slice = slice(None)

    def _sums(self, outputs: Floats, bound: float) -> Floats:
        """Return the clipped sums of these few persons, one row per output."""
        if not self._owner.size:
            return np.zeros((len(outputs), self._base.columns))
        blocks = [sparse.vstack([block for _, block in self._base.scaled_rows(c)]) for c in outputs]
        sizes = [np.abs(c) * np.where(c == 0.0, 0.0, self.norms) for c in outputs]
        everyone = slice(0, self._owner.size)
        norms = [
            clip.person_norms([(everyone, block)], self._owner, self._persons, size)
            for block, size in zip(blocks, sizes)
        ]
        factors = clip.factors_of(clip.joint_norms(norms), bound)
        return np.stack([clip.person_sums(block, self._owner).T @ factors for block in blocks])


def number_owners(groups: Any) -> Ints:
    """Return a number for the owner of each record; refuse owners that are not known or not told apart.

    Labels (numbers, texts, UUIDs, tuples) are compared as they are, never as texts or floating-point numbers.

    **Privacy.** The only place where persons are told apart. All missing labels would be one person, and
    neighbouring integers beyond 2^53 too: leaving one out would move an answer twice as far as claimed.
    """
    refuse_unreadable(groups)
    if isinstance(groups, (list, tuple)):  # NumPy would make floats of large integers, rows of tuples
        labels = np.fromiter(groups, dtype=object, count=len(groups))
    else:
        exact = isinstance(getattr(groups, "dtype", np.dtype(object)), np.dtype)
        labels = np.asarray(groups, dtype=None if exact or not hasattr(groups, "array") else object)
    if labels.ndim != 1:
        raise InvalidInputError(f"Expected one group per record, got shape {labels.shape}.")
    if labels.dtype.kind in "biufcmMSU":
        distinct, numbers = np.unique(labels, return_inverse=True)
        if distinct.dtype.kind in "mMSU":
            _check_distinct(list(distinct))
        elif distinct.dtype.kind in "fc" and _are_rounded(distinct):
            raise _unknown("numbers in floating point that are nan or too large (2^53 in double precision)")
        return numbers
    known: dict[Any, int] = {}
    try:  # by equality: sorting would tear a person apart where labels have no order, as sets have none
        numbers = np.array([known.setdefault(label, len(known)) for label in labels.tolist()], dtype=np.int64)
    except TypeError:
        raise InvalidInputError(
            "Expected groups of numbers or strings, got labels that cannot be compared."
        ) from None
    _check_distinct(list(known))
    return numbers


def _check_distinct(labels: list[Any]) -> None:
    """Refuse labels of which several may mean one person, or one may mean several."""
    parts = [part for label in labels for part in (label if isinstance(label, tuple) else (label,))]
    if any(is_missing(part) or _marks_a_gap(part) for part in parts):
        raise _unknown("missing ones (None, nan, NaT or NA, an empty text or another that marks a gap)")
    floats = [part for part in parts if isinstance(part, (float, complex, np.inexact))]
    if any(_are_rounded(np.asarray(part)) for part in floats):
        raise _unknown("numbers in floating point that are too large (2^53 in double precision)")
    known = [[kind for kind in (str, bytes, Number) if isinstance(label, kind)] for label in labels]
    if len({kinds[0] if kinds else type(label) for kinds, label in zip(known, labels, strict=True)}) > 1:
        raise _unknown("labels of several kinds, such as 1 and '1'")
    if len({label.strip() for label in labels if isinstance(label, str)} or labels) < len(labels):
        raise _unknown("texts that differ by the spaces around them only")


def _are_rounded(values: NDArray[Any]) -> bool:
    """Tell whether one of some numbers in floating point may stand for another as well, or for none."""
    return not bool((np.abs(values) < 2.0 ** (np.finfo(values.dtype).nmant + 1)).all())


def is_missing(label: Any) -> bool:
    """Tell whether a label is None, nan, NaT or NA."""
    try:
        return label is None or bool(label != label)  # only a missing value does
    except (TypeError, ArithmeticError):  # pandas' NA and a signalling nan do not even say that
        return True


def _marks_a_gap(label: Any) -> bool:
    text = label.decode("latin-1") if isinstance(label, bytes) else label
    return isinstance(text, str) and text.strip() in MARKERS


def _unknown(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"Expected a known person for every record, got groups with {what}. Give each record whose owner is "
        "not known a label of its own, or leave it out; pass integers or strings as labels."
    )


def mean_of_owners(rows: Floats, groups: Any) -> Floats:
    """Return the mean row of each person; row i of the result is that of person i."""
    owners = number_owners(groups)
    if owners.shape != (len(rows),):
        raise InvalidInputError(f"Expected one group per row, {len(rows)} of them, got shape {owners.shape}.")
    sums = np.zeros((int(owners.max(initial=-1)) + 1, rows.shape[1]))
    np.add.at(sums, owners, rows)
    return sums / np.bincount(owners)[:, None]
