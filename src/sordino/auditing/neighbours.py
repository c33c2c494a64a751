"""A data set in which one unit is hostile, and neighbours of it, for data of any of the usual kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier

from sordino.errors import AuditError
from sordino.tables.schema import Schema
from sordino.tables.values import frame_of, require_pandas

FAR, HUGE, TINY = 1e4, 1e308, 1e-300
FEW = 20
"""Targets of at most so many whole numbers or texts are labels: a neighbour has one of them."""


@dataclass(frozen=True, eq=False)
class Records:
    """What a fit is given: parts with one entry per record (rows, targets), and who owns each record.

    A ``column`` of the rows may say so: it stays as it is on all neighbours.
    """

    parts: tuple[Any, ...]
    groups: Any = None
    column: str | None = None

    @classmethod
    def of(cls, data: Any, groups: Any, most: int | None, schema: Schema | None = None) -> Records:
        """Take apart what a user calls data; of many records some, spread evenly, of a person all or none."""
        parts = data if isinstance(data, tuple) else (data,)
        parts = parts if schema is None else (_table(parts[0], schema), *parts[1:])
        parts = tuple(np.asarray(part) if isinstance(part, list) else part for part in parts)
        counts = {_count(part) for part in parts if part is not None}
        if len(counts) != 1 or min(counts) < 2:
            raise AuditError("Expected data of at least two records, with as many targets as rows.")
        made = cls(parts, None if groups is None else np.asarray(groups), _column(parts[0], groups, schema))
        return made if most is None or _count(parts[0]) <= most else made.resized(most)

    def resized(self, count: int) -> Records:
        """Return about so many records: some of them, spread evenly, or all again and again."""
        n, owners = _count(self.parts[0]), self.owners
        if not all(map(_is_known, self.parts)) or (count > n and owners is not None):
            return self
        kept = np.linspace(0, self.units - 1, max(2, count * self.units // n)).astype(int)
        rows = kept if owners is None else np.flatnonzero(np.isin(owners, kept))
        some = (part.iloc if hasattr(part, "iloc") else part for part in self.parts)
        parts = tuple(None if part is None else part[rows] for part in some)
        return replace(self, parts=parts, groups=None if self.groups is None else self.groups[rows])

    @property
    def units(self) -> int:
        """How many units of privacy there are."""
        return _count(self.parts[0]) if self.owners is None else int(self.owners.max()) + 1

    @property
    def widest(self) -> int:
        """The unit that has the most records."""
        return 0 if self.owners is None else int(np.argmax(np.bincount(self.owners)))

    @property
    def owners(self) -> Any:
        """The number of the unit of each record; None where each record is one."""
        if self.groups is None and self.column is None:
            return None
        labels = np.asarray(self.parts[0][self.column]) if self.groups is None else self.groups
        if labels.dtype != object:
            return np.unique(labels, return_inverse=True)[1]
        known: dict[Any, int] = {}
        return np.array([known.setdefault(label, len(known)) for label in labels.tolist()])

    def changed(self, unit: int, canary: tuple[Any, ...]) -> Records:
        """Return the data with every record of a unit replaced by one record."""
        owners = np.arange(_count(self.parts[0])) if self.owners is None else self.owners
        mine = np.flatnonzero(owners == unit)
        made = (p if p is None else _put(p, mine, entry) for p, entry in zip(self.parts, canary, strict=True))
        return replace(self, parts=tuple(made))

    def canaries(self, unit: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield hostile records; those that are most at odds with each other come first."""
        first, *rest = self.parts
        other = (unit + 1) % _count(first)
        ends = [ends_of(part) for part in rest]
        seen = first if self.column is None else first.drop(columns=self.column)
        for name, row in _rows(seen, other) if _is_known(first) else ():
            for side, word in ((1, "high"), (0, "low"))[: 2 if rest and rest[0] is not None else 1]:
                yield f"{name}, target {word}" if rest else name, (row, *(end[side] for end in ends))

    def opposite(self, canary: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the record that is most at odds with a canary."""
        first, *rest = canary
        if isinstance(first, np.ndarray):
            row: Any = -first
        elif isinstance(first, dict):
            row = {name: _other_end(self.parts[0][name], value) for name, value in first.items()}
        else:
            row = _other_end(self.parts[0], first)
        return row, *(_other_end(part, entry) for part, entry in zip(self.parts[1:], rest, strict=True))

    def turned(self, canary: tuple[Any, ...], number: int) -> tuple[Any, ...]:
        """Return a canary whose row points elsewhere: one of a list of directions that never ends."""
        row = canary[0]
        if not isinstance(row, np.ndarray) or row.ndim != 1 or row.dtype.kind != "f":
            return canary
        waves = np.cos((number + 1) * 1.618 * np.arange(1, row.size + 1))
        return (FAR * np.where(np.abs(waves) > (number % 3) / 3, waves, 0.0), *canary[1:])


def crowds(model: Any) -> Iterator[Records]:
    """Yield records for an estimator: waves with a crowd that pulls all one way, then waves alone.

    A record against the crowd is the worst one for most losses: its residual stays large. A solver that asks
    what its first answers make worth asking asks most where nothing is extreme. Components are found in a
    ball that is released first: with few records, its noise is most of what a canary would show.
    """
    if not hasattr(model, "fit") or getattr(model, "schema", None) is not None:
        raise AuditError("Expected data: records are made up for estimators of arrays only.")
    columns, labels = getattr(model, "n_features_in_", 5), _labels(model)
    count = 2000 if hasattr(model, "n_components") else 200
    waves = np.cos(np.outer(np.arange(1, count + 1), np.arange(1, columns + 1)) * 1.618)
    for many in (np.arange(count) > count // 10, np.zeros(count, dtype=bool)):
        rows = waves.copy()
        rows[many], rows[1], rows[2] = FAR, TINY, 0.0
        if labels is None:
            yield Records((rows, np.where(many, 0.9, np.cos(3.0 * np.arange(count)))))
        else:
            yield Records((rows, np.where(many, labels[-1], np.resize(np.asarray(labels), count))))


def silence(records: Records, canary: tuple[Any, ...]) -> Records:
    """Return a canary among records whose rows and numbers are zero: nobody else pulls."""
    kept = (part if part is None or part.dtype.kind != "f" else np.zeros_like(part) for part in records.parts)
    return replace(records, parts=tuple(kept)).changed(0, canary)


def lift(records: Records, canary: tuple[Any, ...]) -> Records:
    """Return a record at odds with twenty others, all on one axis; the rest say nothing.

    They keep the axis among those that a solver selects, and bend the loss little, so that what the record
    adds to each step adds up in the last one.
    """
    axis, ends = FAR * np.eye(len(canary[0]))[0], [ends_of(part) for part in records.parts[1:]]
    made = silence(records, (axis, *(low for low, _ in ends)))
    for unit in range(1, 21):
        made = made.changed(unit, (axis, *(high for _, high in ends)))
    return made


def one_each(model: Any, count: int) -> Records:
    """Return canaries: each has a column of its own and one of two extreme targets, in turn."""
    labels = [-FAR, FAR] if _labels(model) is None else [*_labels(model)]
    return Records((FAR * np.eye(count), np.resize(np.asarray(labels)[[0, -1]], count)))


def _labels(model: Any) -> Any:
    known = getattr(model, "classes_", None) if getattr(model, "classes", None) is None else model.classes
    return [0, 1] if known is None and is_classifier(model) else known


def _table(table: Any, schema: Schema) -> Any:
    """Return a table of any kind in pandas, without the records that a schema leaves out."""
    named = schema.target is not None and schema.target.name in frame_of(table).names
    frame = schema.checked(table, target=named)
    return require_pandas().DataFrame({name: frame.column(name) for name in frame.names})


def _column(rows: Any, groups: Any, schema: Schema | None) -> str | None:
    """Return the column that says who owns each record: by the schema, or the one that is ``groups``."""
    person = None if schema is None else schema.person
    names = rows.columns if hasattr(rows, "columns") else ()
    if groups is None:
        return person.name if person is not None and person.name in names else None
    return next((name for name in names if np.array_equal(np.asarray(rows[name]), groups)), None)


def _count(part: Any) -> int:
    return int(part.shape[0]) if hasattr(part, "shape") else len(part)


def _is_known(part: Any) -> bool:
    return part is None or isinstance(part, np.ndarray) or sparse.issparse(part) or hasattr(part, "iloc")


def _put(part: Any, mine: Any, entry: Any) -> Any:
    if sparse.issparse(part):
        made = sparse.lil_matrix(part, dtype=float)
        made[mine] = entry
        return sparse.csr_matrix(made)
    made = part.copy()
    if hasattr(made, "columns"):
        for name, value in entry.items():
            made.iloc[mine, made.columns.get_loc(name)] = value
    elif hasattr(made, "iloc"):
        made.iloc[mine] = entry
    else:
        made = made.astype(float) if made.dtype.kind == "f" else made
        made[mine] = entry
    return made


def _rows(part: Any, other: int) -> Iterator[tuple[str, Any]]:
    """Yield hostile rows for a part, of the kind of its own."""
    if hasattr(part, "columns"):
        ends = {name: ends_of(part[name]) for name in part.columns}
        yield "largest", {name: end[1] for name, end in ends.items()}
        yield "smallest", {name: end[0] for name, end in ends.items()}
        yield "another's", {name: part[name].iloc[other] for name in part.columns}
        return
    numbers = sparse.issparse(part) or (isinstance(part, np.ndarray) and part.dtype.kind == "f")
    if not numbers or getattr(part, "ndim", 2) == 1:
        yield from zip(("largest", "smallest"), ends_of(part)[::-1], strict=True)
        return
    signs = np.where(np.arange(part.shape[1]) % 2, -1.0, 1.0)
    yield "far out", FAR * signs
    yield "turned around", -FAR * signs
    yield "all one way", FAR * np.abs(signs)
    yield "one entry", FAR * np.eye(part.shape[1])[0]
    yield "huge", HUGE * signs
    yield "tiny", TINY * signs
    yield "zero", 0.0 * signs


def _other_end(part: Any, value: Any) -> Any:
    low, high = ends_of(part)
    return low if value == high else high


def ends_of(part: Any) -> tuple[Any, Any]:
    """Return two values at odds with each other that are valid where the others are."""
    if part is None:
        return None, None
    values = np.asarray(part.dropna() if hasattr(part, "dropna") else part)
    known = np.unique(values[values == values])
    if not known.size:
        return None, None
    if values.dtype.kind != "f" or (known.size <= FEW and np.all(known == np.round(known))):
        return known[0], known[-1]
    return (-(HUGE**0.97), HUGE**0.97) if known[0] < 0 else (0.0, 1e9)
