"""Declared cells: which level of each key a record has. Nothing here is learned from the data."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.errors import InvalidInputError
from sordino.execute.grouped import is_missing, known_owners
from sordino.kernel.arrays import Floats, Ints
from sordino.refusals import refuse_masked

MOST_CELLS = 1_000_000


@dataclass(frozen=True)
class Levels:
    """The declared levels of one key: labels, or intervals between edges."""

    name: str
    labels: tuple[Any, ...]
    edges: Floats | None = None

    @classmethod
    def of(cls, name: str, values: Any) -> Levels:
        """Check declared labels: at least one, none twice, none missing."""
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


def _looked_up(known: dict[Any, int], value: Any) -> int:
    try:
        return known.get(value, -1)
    except TypeError:  # a list or the like is no level
        return -1


@dataclass(frozen=True, eq=False)
class Keys:
    """The keys of a grouping: declared levels, and the cell of each record (kept out of the repr)."""

    levels: tuple[Levels, ...]
    cell: Ints
    owners: Any = None

    def __repr__(self) -> str:
        return f"Keys({', '.join(f'{k.name}: {len(k.labels)} levels' for k in self.levels)})"

    @classmethod
    def of(cls, columns: Mapping[str, Any], levels: tuple[Levels, ...], owners: Any = None) -> Keys:
        """Number the cells of the product of all levels; a record with an undeclared level has none."""
        shape = tuple(len(level.labels) for level in levels)
        if math.prod(shape) > MOST_CELLS:
            raise InvalidInputError(f"Expected at most {MOST_CELLS:,} cells, got {math.prod(shape):,}.")
        codes = [level.codes(columns[level.name]) for level in levels]
        if len({len(c) for c in codes}) != 1 or not codes[0].size:
            raise InvalidInputError("Expected columns of one length, at least 1, got others.")
        there = np.all([c >= 0 for c in codes], axis=0)
        flat = np.ravel_multi_index(tuple(np.where(there, c, 0) for c in codes), shape)
        return cls(levels, np.where(there, flat, -1), owners)

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

    def kept(self) -> Ints:
        """Return the records that count: all, or the first one of each person.

        **Privacy.** Which record of a person is the first depends on no other person.
        """
        if self.owners is None:
            return np.arange(len(self.cell))
        owners = known_owners(self.owners)
        if owners.shape != self.cell.shape:
            raise InvalidInputError(f"Expected one group per record, {len(self.cell)} of them.")
        if owners.dtype.kind != "O":
            return np.sort(np.unique(owners, return_index=True)[1])
        first: dict[Any, int] = {}
        for i, owner in enumerate(owners):
            first.setdefault(owner, i)
        return np.array(list(first.values()), dtype=np.int64)
