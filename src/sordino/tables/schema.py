"""Declared tables: what each column means, fixed before any record is read."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sordino.errors import InvalidInputError, SchemaError
from sordino.execute.grouped import MARKERS, number_owners
from sordino.runs import Price
from sordino.runs.price import each_once
from sordino.tables import rules
from sordino.tables.columns import Column, Ignored, Person, Target
from sordino.tables.frames import Frame, check_names, framed, require_pandas
from sordino.tables.values import codes_of, numbers_of

MOST_COLUMNS = 100_000
MOST_FACTS = 200


@dataclass(frozen=True, repr=False)
class Schema:
    """The declared columns of a table. Everything in it is public and fixed before any data.

    Parameters
    ----------
    columns : :class:`Number`, :class:`Category`, :class:`Ordinal`, :class:`Flag`, :class:`Date`,
        :class:`Text`, at most one :class:`Target` and one :class:`Person`, and what is :class:`Ignored`.
    markers : texts that stand for a missing value, unless a column declares one of them as a level.
    learned : what was paid for bounds and levels that come from the data, where nobody knows for which
        columns: then it sits on each of them. Columns of :func:`learn_schema` carry their own prices.

    Examples
    --------
    >>> from sordino import Schema
    >>> from sordino.tables import Category, Number, Target
    >>> schema = Schema(
    ...     [Number("age", 0, 100), Category("town", ["Bonn", "Rome"]), Target("ill", levels=["no", "yes"])]
    ... )
    >>> [column.name for column in schema.features], round(schema.data_norm, 3)
    (['age', 'town'], 1.414)
    """

    columns: tuple[Column, ...]
    markers: tuple[str, ...] = MARKERS

    def __init__(
        self,
        columns: Iterable[Column],
        *,
        markers: Iterable[str] = MARKERS,
        learned: Iterable[Price] = (),
    ) -> None:
        if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
            raise SchemaError("Expected columns as a list of Number, Category and so on, got another.")
        for name, value in {"columns": columns, "markers": markers}.items():
            object.__setattr__(self, name, tuple(value))
        self._check()
        self._spread(tuple(learned))

    def _spread(self, prices: tuple[Price, ...]) -> None:
        """Put prices that sit on no column onto all of them."""
        if not all(isinstance(price, Price) for price in prices):
            raise SchemaError("Expected learned as a list of sordino.runs.Price, got others.")
        known = set(self.learned)
        loose = [price for price in prices if price not in known]
        if loose:
            # A receipt from what is said here: the same file counts once, however often it is read.
            said = f"{self.to_toml()}{[price.to_dict() for price in loose]}"
            paid = [
                replace(p, receipt=p.receipt or hashlib.sha256(f"{i}{said}".encode()).hexdigest()[:16])
                for i, p in enumerate(loose)
            ]
            columns = tuple(replace(c, learned=each_once((*c.learned, *paid))) for c in self.columns)
            object.__setattr__(self, "columns", columns)

    def _check(self) -> None:
        if not all(isinstance(column, Column) for column in self.columns):
            raise SchemaError("Expected columns as a list of Number, Category and so on, got others.")
        if not all(isinstance(text, str) for text in self.markers):
            raise SchemaError("Expected the markers of missing values as texts, got others.")
        if not 1 <= len(self.columns) <= MOST_COLUMNS:
            raise SchemaError(f"Expected 1 to {MOST_COLUMNS} columns, got {len(self.columns)}.")
        seen: set[str] = set()
        for column in self.columns:
            if column.name in seen:
                raise rules.refuse(column.name, "it is declared twice", "Declare each column once.")
            seen.add(column.name)
        for kind in (Target, Person):
            if sum(isinstance(column, kind) for column in self.columns) > 1:
                raise SchemaError(f"Expected at most one {kind.word} column, got several. Ignore the others.")

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that a model sees."""
        return tuple(c for c in self.columns if not isinstance(c, (Target, Person, Ignored)))

    @property
    def target(self) -> Target | None:
        """The column that is predicted."""
        return next((c for c in self.columns if isinstance(c, Target)), None)

    @property
    def person(self) -> Person | None:
        """The column that says whose record it is."""
        return next((c for c in self.columns if isinstance(c, Person)), None)

    @property
    def learned(self) -> tuple[Price, ...]:
        """What was paid for bounds and levels that come from records, each payment once."""
        return each_once(price for column in self.columns for price in column.learned)

    @property
    def data_norm(self) -> float:
        """A bound on the norm of every encoded row: each column adds at most one to its square."""
        return math.sqrt(max(len(self.features), 1))

    @property
    def unknown(self) -> tuple[Column, ...]:
        """The columns whose bounds or levels are not declared yet."""
        return tuple(column for column in self.columns if column.unknown is not None)

    @property
    def digest(self) -> str:
        """A hash of everything that is declared."""
        return hashlib.sha256(self.to_toml().encode()).hexdigest()

    @property
    def facts(self) -> tuple[str, ...]:
        """What is declared and where it comes from, line by line, for a report."""
        from sordino.tables.words import column_fact, learned_fact

        paid = sum(bool(column.learned) for column in self.columns)
        origin = f"{paid} of them learned from records" if paid else "declared before the fit"
        lines = [f"schema {self.digest[:12]}: {len(self.columns)} columns, {origin}"]
        lines += [learned_fact(self.learned)] if self.learned else []
        lines += [column_fact(column) for column in self.columns[:MOST_FACTS]]
        more = len(self.columns) - MOST_FACTS
        return (*lines, f"and {more} more columns, see the schema") if more > 0 else tuple(lines)

    def require_known(self) -> None:
        """Refuse a schema with blanks."""
        for column in self.unknown:
            raise rules.refuse(
                column.name,
                f"not declared yet: {column.unknown}",
                "Fill it in from what the column means, or pay for it with `sordino schema learn`.",
            )
        if not self.features:
            raise SchemaError("Expected a schema with at least one column for the model to see, got none.")

    def checked(self, table: Any, *, target: bool = False, person: bool = False) -> Frame:
        """Return a table whose names fit; the target and the person have to be there where asked for."""
        needed = [column.name for column in self.features]
        needed += [self.target.name] if target and self.target is not None else []
        needed += [self.person.name] if person and self.person is not None else []
        frame = framed(table)
        check_names(frame.names, tuple(needed), frozenset(column.name for column in self.columns))
        return frame

    def split(self, table: Any, *, bounded: bool = True) -> tuple[Any, np.ndarray | None, np.ndarray | None]:
        """Return the features as a pandas frame, the target and the persons; None for what is not there.

        Labels are as declared, numbers are clipped to the declared bounds where ``bounded``.

        **Privacy.** Each row by itself. A label that is not declared is refused, without being named.
        """
        frame = self.checked(table)
        present = frozenset(frame.names)
        series = {column.name: frame.column(column.name) for column in self.features}
        features = require_pandas().DataFrame(series, copy=False)
        target = None
        if self.target is not None and self.target.name in present:
            target = self._targets(self.target, frame, bounded)
        groups = None
        if self.person is not None and self.person.name in present:
            groups = self._persons(self.person, frame)
        return features, target, groups

    def targets(self, frame: Frame, *, bounded: bool = True) -> np.ndarray:
        """Return the target of each row of a checked table; a model is judged by targets as they are."""
        if self.target is None:
            raise SchemaError('The schema declares no target. Declare one column with kind = "target".')
        return self._targets(self.target, frame, bounded)

    def _targets(self, target: Target, frame: Frame, bounded: bool) -> np.ndarray:
        if target.unknown is not None:
            raise rules.refuse(target.name, f"not declared yet: {target.unknown}", "Fill it in.")
        series = frame.column(target.name)
        if target.kind == "category":
            levels = np.array(target.levels)
            codes = codes_of(series, tuple(map(str, levels)), frozenset(self.markers))
            good, out = codes >= 0, levels[np.maximum(codes, 0)]
        else:
            values = numbers_of(target.name, series, self.markers)
            good, out = ~np.isnan(values), np.clip(values, target.low, target.high) if bounded else values
        if not good.all():
            raise rules.refuse(
                target.name,
                "a record has a target that is missing or not declared",
                "Declare it, or leave out such records by a public rule.",
            )
        return out

    def persons(self, frame: Frame) -> np.ndarray | None:
        """Return a number for the person of each row; None without a person column."""
        return None if self.person is None else self._persons(self.person, frame)

    def owners_of(self, persons: Any, groups: Any) -> Any:
        """Return the owner of each row: of the person column, or ``groups`` where the table lacks it.

        A schema with a person column never comes down to records: without owners it is refused.
        """
        if self.person is None or (persons is None and groups is not None):
            return None if groups is None else number_owners(groups)
        if groups is not None:
            raise InvalidInputError("Expected groups=None: the schema declares a person column.")
        if persons is None:
            raise rules.refuse(
                self.person.name,
                "it says whose record each one is, and the table lacks it",
                "Keep it in the table, or pass groups=, the owner of each row.",
            )
        return persons

    def _persons(self, person: Person, frame: Frame) -> np.ndarray:
        series = frame.column(person.name)
        texts = {value.strip() for value in series.astype(object) if isinstance(value, str)}
        if series.isna().any() or not texts.isdisjoint(self.markers):
            raise rules.refuse(person.name, "a record has no person", "Leave out such records.")
        try:
            return number_owners(series)
        except InvalidInputError as error:
            raise SchemaError(f"Column {person.name!r}: {error}") from None

    def to_toml(self) -> str:
        """Return the schema as TOML text."""
        from sordino.tables.toml import written

        return written(self)

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """Read :meth:`to_toml`, or what somebody wrote by hand."""
        from sordino.tables.toml import parsed

        return parsed(text)

    def write(self, path: str | Path) -> None:
        """Write a TOML file, as a whole or not at all."""
        path = Path(path)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            draft.write_text(self.to_toml(), encoding="utf-8")
            draft.replace(path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            reason = error.strerror or type(error).__name__
            raise InvalidInputError(f"Cannot write the schema {path.name!r}: {reason}.") from None

    @classmethod
    def read(cls, path: str | Path) -> Schema:
        """Read a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise InvalidInputError(f"Cannot read the schema {Path(path).name!r}: {reason}.") from None
        except UnicodeDecodeError:
            raise SchemaError(
                f"The schema {Path(path).name!r} is not UTF-8 text. Save it as UTF-8."
            ) from None
        return cls.from_toml(text)

    def __repr__(self) -> str:
        return f"Schema({len(self.columns)} columns, {self.digest[:12]})"
