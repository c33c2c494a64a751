"""From the values of one column to entries of the encoded rows.

A column stores a fixed number of entries per row (words apart), so a million rows are two arrays that are
filled column by column. The entries of one column have Euclidean norm at most one.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import HashingVectorizer

from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.clip import clipped_matrix
from sordino.tables.columns import KNOTS, Category, Column, Date, Flag, Number, Ordinal, Text
from sordino.tables.values import MISSING, OTHER, codes_of, days_of, flags_of, numbers_of, words_of


class Origin(NamedTuple):
    """The column that an encoded one comes from, and what of it: a level, a knot, "other", "missing"."""

    column: str
    part: str


class Entries(NamedTuple):
    """Places within a block, rising along a row, and values; shape (rows, width)."""

    places: Ints
    values: Floats


@dataclass(frozen=True, eq=False)
class Block:
    """The encoded columns of one column of the table.

    Parameters
    ----------
    name : of the column.
    labels : what the regular ones stand for: levels, knots, or nothing for the value itself.
    read : from a pandas Series to positions: level numbers (width 1), or places between knots, nan or a
        negative code for what is missing or not declared.
    levels : positions are level numbers; else a row has weights at the two knots around its position, or
        the position itself where there is one label only.
    other : there is a column for values that are not declared.
    missing : the rule for missing values.
    """

    name: str
    labels: tuple[str, ...]
    read: Callable[[Any], Any]
    levels: bool = False
    other: bool = False
    missing: str = "column"

    @property
    def width(self) -> int:
        """How many entries a row stores."""
        return 1 if self.levels or len(self.labels) == 1 else 2

    @property
    def origins(self) -> list[Origin]:
        """Where the encoded columns come from."""
        extra = ["other"] * self.other + ["missing"] * (self.missing == "column")
        return [Origin(self.name, part) for part in (*self.labels, *extra)]

    @property
    def feature_names(self) -> list[str]:
        """The names of the encoded columns."""
        join = "=" if self.levels else " "
        own = [f"{self.name}{join}{label}".rstrip() for label in self.labels]
        return own + [f"{self.name} {origin.part}" for origin in self.origins[len(own) :]]

    def entries(self, series: Any) -> Entries:
        """Return the entries of each row."""
        positions = self.read(series)
        absent = np.isnan(positions) if positions.dtype.kind == "f" else positions == MISSING
        strange = positions == OTHER if self.levels or self.other else np.zeros(1, dtype=bool)
        regular = np.where(absent | strange, 0, positions)
        out = self._regular(regular)
        self._special(out, strange, len(self.labels) if self.other else None)
        place = len(self.labels) + (self.other and self.missing == "column")
        self._special(out, absent, place if self.missing in ("column", "other") else None)
        return out

    def _regular(self, positions: Any) -> Entries:
        if self.levels:
            return Entries(positions.astype(np.int32)[:, None], np.ones((positions.size, 1)))
        if len(self.labels) == 1:
            return Entries(np.zeros((positions.size, 1), dtype=np.int32), positions.astype(float)[:, None])
        cell = np.minimum(positions.astype(np.int32), len(self.labels) - 2)
        weight = positions - cell
        places, values = np.empty((cell.size, 2), dtype=np.int32), np.empty((cell.size, 2))
        places[:, 0], values[:, 1] = cell, weight
        np.add(cell, 1, out=places[:, 1])
        np.subtract(1.0, weight, out=values[:, 0])
        return Entries(places, values)

    def _special(self, out: Entries, rows: Any, place: int | None) -> None:
        """Write rows that have no position: one at their place, or nothing at all."""
        if not rows.any():
            return
        out.values[rows] = 0.0
        if place is not None:
            out.places[rows] = np.arange(place - self.width + 1, place + 1)
            out.values[rows, -1] = 1.0


@dataclass(frozen=True, eq=False)
class WordBlock:
    """The hashed words of a text, clipped to norm one together."""

    column: Text

    @property
    def origins(self) -> list[Origin]:
        """Where the encoded columns come from."""
        parts = [f"words {bucket}" for bucket in range(self.column.buckets)]
        return [Origin(self.column.name, part) for part in parts]

    @property
    def feature_names(self) -> list[str]:
        """The names of the encoded columns."""
        return [f"{origin.column} {origin.part}" for origin in self.origins]

    def matrix(self, series: Any, dtype: Any) -> sparse.csr_matrix:
        """Return the words of each row, each counted once."""
        hashing = HashingVectorizer(
            n_features=self.column.buckets, norm=None, binary=True, token_pattern=r"(?u)\w+", dtype=dtype
        )
        return clipped_matrix(hashing.transform(words_of(series)), 1.0)


def block_of(column: Column, markers: frozenset[str]) -> Block | WordBlock:
    """Return the block of a column whose bounds and levels are known."""
    name = column.name
    if isinstance(column, Text):
        return WordBlock(column)
    if isinstance(column, Flag):
        return Block(name, ("",), flags_of, missing=column.missing)
    if isinstance(column, Number):
        return _number_block(column, markers)
    if isinstance(column, Date):
        return _date_block(column)
    assert isinstance(column, (Category, Ordinal))
    levels = column.levels or ()
    if isinstance(column, Ordinal):
        return _ordinal_block(column, levels, markers)
    read = _codes_reader(levels, markers)
    return Block(name, levels, read, levels=True, other=column.other == "column", missing=column.missing)


def _codes_reader(levels: tuple[str, ...], markers: frozenset[str]) -> Callable[[Any], Ints]:
    return lambda series: codes_of(series, levels, markers)


def knots_of(column: Number) -> Floats:
    """Return the knots of a column with bounds; the two ends where the effect is a line."""
    low, high = column.low or 0.0, column.high or 0.0
    if isinstance(column.knots, tuple):
        return np.array([low, *column.knots, high])
    if not column.log:
        return np.linspace(low, high, max(column.knots, 2))
    inner = low + np.expm1(np.linspace(0.0, np.log1p(high - low), max(column.knots, 2)))
    return np.array([low, *inner[1:-1], high])


def _number_block(column: Number, markers: frozenset[str]) -> Block:
    knots, fill = knots_of(column), np.nan
    missing = "zero"
    if isinstance(column.missing, str):
        missing = column.missing
    else:
        fill = float(column.missing)

    def read(series: Any) -> Floats:
        values = numbers_of(column.name, series, markers)
        values = np.where(np.isnan(values), fill, values)
        if not column.log:
            return _between(values, knots)
        above = np.clip(values, knots[0], knots[-1]) - knots[0]
        return _between(np.log1p(above), np.log1p(knots - knots[0]))

    labels = ("",) if column.knots == 1 else tuple(f"at {knot:.12g}" for knot in knots)
    return Block(column.name, labels, read, missing=missing)


def _date_block(column: Date) -> Block:
    low, high = (day.toordinal() for day in (column.low, column.high) if isinstance(day, datetime.date))
    knots = np.unique(np.linspace(low, high, max(column.knots, 2)).round())  # whole days, each once
    days = [datetime.date.fromordinal(int(knot)).isoformat() for knot in knots]
    labels = ("",) if column.knots == 1 else tuple(f"at {day}" for day in days)

    def read(series: Any) -> Floats:
        return _between(days_of(column.name, series), knots)

    return Block(column.name, labels, read, missing=column.missing)


def _ordinal_block(column: Ordinal, levels: tuple[str, ...], markers: frozenset[str]) -> Block:
    places = np.linspace(0, len(levels) - 1, min(KNOTS, len(levels))).round()
    read = _codes_reader(levels, markers)

    def positions(series: Any) -> Floats:
        codes = read(series)
        found = np.where(codes == OTHER, float(OTHER), _between(codes.astype(float), places))
        return np.where(codes == MISSING, np.nan, found)

    labels = tuple(f"at {levels[int(place)]}" for place in places)
    return Block(column.name, labels, positions, other=True, missing=column.missing)


def _between(values: Floats, knots: Floats) -> Floats:
    """Return places among the knots, from 0; nan stays nan, what is outside is clipped."""
    return np.asarray(np.interp(values, knots, np.arange(float(knots.size))))
