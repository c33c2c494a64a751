"""Declared cells: which level of each key a record has. Nothing here is learned from the data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.estimators.statistics_input import checked_numbers
from sordino.execute import held_columns, in_dask
from sordino.execute.grouped import is_missing, number_owners
from sordino.kernel.arrays import Floats, Ints
from sordino.refusals import refuse_masked
from sordino.runs import Price
from sordino.tables.columns import Column
from sordino.tables.frames import framed
from sordino.tables.rules import level_text
from sordino.tables.values import codes_of, flag_of, plain

MOST_CELLS = 1_000_000


@dataclass(frozen=True)
class Levels:
    """The declared levels of one key: labels, or intervals between edges."""

    name: str
    labels: tuple[Any, ...]
    edges: Floats | None = None
    learned: tuple[Price, ...] = ()

    @classmethod
    def of(cls, name: str, values: Any) -> Levels:
        """Check declared labels: at least one, none twice, none missing."""
        if isinstance(values, Column):
            return ColumnLevels(
                name, tuple(getattr(values, "levels", None) or ()), None, values.learned
            ).checked()
        try:
            labels = tuple(v.item() if isinstance(v, np.generic) else v for v in values)
            distinct = len(set(labels)) == len(labels)
        except TypeError:
            raise InvalidInputError(
                f"Expected levels of {name!r} as a list of numbers or texts, got {type(values).__name__}. "
                "Declare them; reading them from the data would leak."
            ) from None
        if isinstance(values, (str, bytes)) or not labels or not distinct or any(map(is_missing, labels)):
            raise InvalidInputError(f"Expected one or more distinct levels of {name!r}, none missing.")
        return cls(name, labels)

    @classmethod
    def between(cls, name: str, edges: Any) -> Levels:
        """Check declared edges: two or more finite numbers that rise."""
        try:
            borders = np.array(edges, dtype=float)
        except (TypeError, ValueError, OverflowError):
            borders = np.empty(0)
        rises = borders.ndim == 1 and borders.size >= 2 and bool((np.diff(borders) > 0).all())
        if not (rises and np.isfinite(borders).all()):
            raise InvalidInputError(f"Expected two or more finite rising edges of {name!r}.")
        last = len(borders) - 2
        labels = tuple(
            f"[{a:g}, {b:g}{']' if i == last else ')'}"
            for i, (a, b) in enumerate(itertools.pairwise(borders))
        )
        return cls(name, labels, borders)

    def codes(self, column: Any) -> Ints:
        """Return the number of each record's level, -1 for what was not declared."""
        refuse_masked(column)
        values = column if isinstance(column, np.ndarray) else np.asarray(column, dtype=object)
        if values.ndim != 1:
            raise InvalidInputError(f"Expected {self.name!r} as one column, got shape {values.shape}.")
        return self._matched(values) if self.edges is None else self._placed(values)

    def _matched(self, values: np.ndarray) -> Ints:
        texts = [isinstance(label, str) for label in self.labels]
        if (values.dtype.kind in "biuf" and all(texts)) or (values.dtype.kind in "SU" and not any(texts)):
            raise InvalidInputError(
                f"Expected levels of {self.name!r} of the kind that the column has: a number never equals a "
                "text, so nothing would be counted."
            )
        known = {label: i for i, label in enumerate(self.labels)}
        if values.dtype.kind in "biuU":
            each, inverse = np.unique(values, return_inverse=True)
            return np.array([known.get(v.item(), -1) for v in each], dtype=np.int64)[inverse.reshape(-1)]
        return np.array([_looked_up(known, v) for v in values.tolist()], dtype=np.int64)

    def _placed(self, values: np.ndarray) -> Ints:
        try:
            numbers = values.astype(float)
        except (TypeError, ValueError, OverflowError):
            raise InvalidInputError(f"Expected numbers in {self.name!r}, got others.") from None
        assert self.edges is not None
        place = np.searchsorted(self.edges, numbers, side="right") - 1
        place[numbers == self.edges[-1]] -= 1  # the last interval holds its upper end
        outside = np.isnan(numbers) | (place < 0) | (place >= len(self.labels))
        return np.where(outside, -1, place).astype(np.int64)


@dataclass(frozen=True)
class Flags(Levels):
    """One level: true."""

    @classmethod
    def named(cls, name: str) -> Flags:
        """Return the level of a column of yes or no."""
        return cls(name, (True,))

    def codes(self, column: Any) -> Ints:
        """Return 0 for what is true, 1 or a word for yes, -1 for all else.

        **Privacy.** Each value is read by itself: were an odd one refused, the refusal would tell of it.
        """
        refuse_masked(column)
        loose = isinstance(column, (list, tuple))
        values = np.fromiter(column, dtype=object, count=len(column)) if loose else np.asarray(column)
        if values.dtype.kind in "mMc" or values.ndim != 1:
            raise InvalidInputError("Expected one column of True and False, or declared levels, got others.")
        if values.dtype.kind not in "biuf":
            values = np.array([flag_of(level_text(plain(value))) for value in values], dtype=np.int64)
        return np.where(values == 1, 0, -1).astype(np.int64)


@dataclass(frozen=True)
class ColumnLevels(Levels):
    """The levels of a column of a schema, with which values are compared as an encoder does: as texts."""

    def checked(self) -> ColumnLevels:
        """Refuse a column without levels."""
        if not self.labels:
            raise InvalidInputError(f"Expected a column with declared levels for {self.name!r}, got another.")
        return self

    def codes(self, column: Any) -> Ints:
        """Return the number of each record's level, -1 for what was not declared."""
        refuse_masked(column)
        series = framed({self.name: column}).column(self.name)
        return np.maximum(codes_of(series, tuple(map(str, self.labels)), frozenset()), -1)


def _looked_up(known: dict[Any, int], value: Any) -> int:
    try:
        return known.get(value, -1)
    except TypeError:  # a list or the like is no level
        return -1


@dataclass(frozen=True, eq=False)
class Keys:
    """The declared levels of a grouping; a subclass holds which records are in which cell."""

    levels: tuple[Levels, ...]

    def __repr__(self) -> str:
        return f"Keys({', '.join(f'{k.name}: {len(k.labels)} levels' for k in self.levels)})"

    @classmethod
    def of(cls, columns: Mapping[str, Any], levels: tuple[Levels, ...], owners: Any = None) -> Keys:
        """Number the cells of the product of all levels; a record with an undeclared level has none."""
        size = math.prod(len(level.labels) for level in levels)
        if size > MOST_CELLS:
            raise InvalidInputError(f"Expected at most {MOST_CELLS:,} cells, got {size:,}.")
        given = [columns[level.name] for level in levels]
        if any(map(in_dask, given)):
            return KeysThere(levels, given, owners)
        cell = cells_of(levels, given)
        if not cell.size:
            raise InvalidInputError("Expected columns of one length, at least 1, got others.")
        return KeysHere(levels, cell, owners)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of levels of each key."""
        return tuple(len(level.labels) for level in self.levels)

    @property
    def size(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    def rows(self) -> tuple[tuple[Any, ...], ...]:
        """Return the labels of each cell."""
        return tuple(itertools.product(*(level.labels for level in self.levels)))

    @property
    def unit(self) -> str:
        """Who is protected."""
        return "record"

    def records(self, values: Any = None) -> Any:
        """Return the records that count, wherever they lie: the cell of each and its value, or zero."""
        raise NotImplementedError  # pragma: no cover


def cells_of(levels: Sequence[Levels], columns: Sequence[Any]) -> Ints:
    """Return the cell of each record, -1 for none."""
    codes = [level.codes(column) for level, column in zip(levels, columns, strict=True)]
    if len({len(c) for c in codes}) != 1:
        raise InvalidInputError("Expected columns of one length, at least 1, got others.")
    there = np.all([c >= 0 for c in codes], axis=0)
    shape = tuple(len(level.labels) for level in levels)
    flat = np.ravel_multi_index(tuple(np.where(there, c, 0) for c in codes), shape)
    return np.where(there, flat, -1)


@dataclass(frozen=True, eq=False, repr=False)
class KeysHere(Keys):
    """The cell of each record, in this process."""

    cell: Ints
    owners: Any = None

    @property
    def unit(self) -> str:
        """Persons where they are known."""
        return "record" if self.owners is None else "person"

    def records(self, values: Any = None) -> Floats:
        """Return the cell and the value of each record that counts."""
        x = np.zeros(len(self.cell)) if values is None else self._numbers(values)
        kept = self.kept()
        return np.stack([self.cell[kept].astype(float), x[kept]], axis=1)

    def _numbers(self, values: Any) -> Floats:
        data, flat = (None, False) if in_dask(values) else checked_numbers(values)
        if not isinstance(data, np.ndarray) or not flat or len(data) != len(self.cell):
            raise InvalidInputError(f"Expected one number per record, {len(self.cell)} of them.")
        return data[:, 0]

    def kept(self) -> Ints:
        """Return the records that count: all, or the first one of each person.

        **Privacy.** Which record of a person is the first depends on no other person.
        """
        if self.owners is None:
            return np.arange(len(self.cell))
        owners = number_owners(self.owners)
        if owners.shape != self.cell.shape:
            raise InvalidInputError(f"Expected one group per record, {len(self.cell)} of them.")
        return np.sort(np.unique(owners, return_index=True)[1])


@dataclass(frozen=True, eq=False, repr=False)
class KeysThere(Keys):
    """Columns that lie in Dask; cells are numbered where they lie, each time a statistic is asked."""

    columns: Sequence[Any]
    owners: Any = None

    def __post_init__(self) -> None:
        if self.owners is not None:
            raise UnsupportedError(
                "Persons need all rows in one place: the records of one may lie in several parts. Bring the "
                "columns into one place (.compute())."
            )

    def records(self, values: Any = None) -> Any:
        """Return the rows on the workers."""
        columns = [*self.columns, *([] if values is None else [values])]
        rows = held_columns(columns, partial(_part, self.levels))
        if not len(rows):
            raise InvalidInputError("Expected columns of one length, at least 1, got others.")
        return rows


def _part(levels: tuple[Levels, ...], columns: tuple[Any, ...]) -> Floats:
    """Return the cells and values of one part."""
    keys, values = columns[: len(levels)], columns[len(levels) :]
    if not len(keys[0]):
        return np.zeros((0, 2))
    return KeysHere(levels, cells_of(levels, keys)).records(*values)
