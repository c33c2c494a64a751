"""Declared tables: what each column means, fixed before any record is read."""

from __future__ import annotations

import datetime
import hashlib
import math
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from sordino.errors import InvalidInputError, SchemaError
from sordino.execute.persons import MARKERS, number_owners
from sordino.ledger.policy import MOST_TEXT
from sordino.runs import Price
from sordino.runs.report import LEARNED, Fact, Source, each_once
from sordino.tables.columns import KINDS, Blank, Column, Exposure, Ignored, Person, Target, Weight, refuse
from sordino.tables.files import INDEXES, DataFile, replace_file, stored_kinds
from sordino.tables.values import Frame, codes_of, factorise, frame_of, numbers_of, require_pandas
from sordino.values import html_table

MOST_COLUMNS = 100_000
MOST_FACTS = 200


def column_digest(column: Column, receipt: str) -> str:
    """Return eight digits that a column and what was learned of it have in common, for one payment."""
    facts = [str(getattr(column, key, "")) for key in ("name", "low", "high")]
    levels = sorted(map(str, getattr(column, "levels", None) or ()))
    return hashlib.sha256(repr([receipt, facts, levels]).encode()).hexdigest()[:8]


@dataclass(frozen=True, repr=False)
class Schema:
    """The declared columns of a table. Everything in it is public and fixed before any data.

    Parameters
    ----------
    columns : :class:`Number`, :class:`Category`, :class:`Ordinal`, :class:`Flag`, :class:`Date`,
        :class:`Text`, at most one :class:`Target`, :class:`Person`, :class:`Weight` and
        :class:`Exposure`, and what is :class:`Ignored`.
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

    @classmethod
    def of(cls, source: Any) -> Any:
        """Return the schema in a TOML file, given by its path; anything else stays what it is."""
        return cls.read(source) if isinstance(source, (str, os.PathLike)) else source

    def __init__(
        self, columns: Iterable[Column], *, markers: Iterable[str] = MARKERS, learned: Iterable[Price] = ()
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
                raise refuse(column.name, "it is declared twice", "Declare each column once.")
            seen.add(column.name)
        for kind in (Target, Person, Weight, Exposure):
            if sum(type(column) is kind for column in self.columns) > 1:
                raise SchemaError(f"Expected at most one {kind.word} column, got several. Ignore the others.")

    @property
    def features(self) -> tuple[Column, ...]:
        """The columns that a model sees."""
        return tuple(c for c in self.columns if not isinstance(c, (Target, Person, Weight, Ignored)))

    @property
    def target(self) -> Target | None:
        """The column that is predicted."""
        return next((c for c in self.columns if isinstance(c, Target)), None)

    @property
    def person(self) -> Person | None:
        """The column that says whose record it is."""
        return next((c for c in self.columns if isinstance(c, Person)), None)

    @property
    def exposure(self) -> Exposure | None:
        """The column that the target is divided by."""
        return next((c for c in self.columns if isinstance(c, Exposure)), None)

    @property
    def weighing(self) -> tuple[Weight, ...]:
        """The columns that say how much a record counts."""
        return tuple(c for c in self.columns if isinstance(c, Weight))

    @property
    def learned(self) -> tuple[Price, ...]:
        """What was paid for bounds and levels that come from records, each payment once."""
        found = each_once(price for column in self.columns for price in column.learned)
        return tuple(replace(price, content=self._content(price)) for price in found)

    def _told_by(self, price: Price) -> list[Column]:
        """Return the columns that say that this price told them."""
        return [c for c in self.columns if c.is_told and price in c.learned[-1:]]

    def attested(self, price: Price) -> str:
        """Return what a ledger keeps of what a price told: the digest of all, and a short one of each column.

        By the short ones a page notices a bound or a level that was learned and does not say so any more.
        """
        each = (column_digest(column, price.receipt) for column in self._told_by(price))
        return f"{price.content}:{''.join(each)}"[:MOST_TEXT]

    def _content(self, price: Price) -> str:
        """Return the digest of the bounds and levels of the columns that say that this price told them."""
        told = self._told_by(price)
        facts = [[str(getattr(c, key, "")) for key in ("name", "low", "high")] for c in told]
        levels = [[*map(str, getattr(c, "levels", None) or ())] for c in told]
        return hashlib.sha256(repr([price.receipt, *sorted(zip(facts, levels))]).encode()).hexdigest()

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
    def facts(self) -> tuple[Fact, ...]:
        """What is declared and where it comes from, line by line, for a report."""
        paid = sum(bool(column.learned) for column in self.columns)
        words = f"{paid} of them learned from records" if paid else "none of them marked as learned"
        origin = Source.LEARNED if paid else Source.DECLARED
        lines = [Fact(f"schema {self.digest[:12]}: {len(self.columns)} columns, {words}", origin)]
        if self.learned:
            prices = "; ".join(map(str, self.learned))
            lines.append(Fact(f"{LEARNED}{prices}; it comes on top of every fit", Source.LEARNED))
        lines += [column.fact for column in self.columns[:MOST_FACTS]]
        more = len(self.columns) - MOST_FACTS
        return (*lines, *([Fact(f"and {more} more columns, see the schema")] * (more > 0)))

    def require_known(self) -> None:
        """Refuse a schema with blanks."""
        if self.unknown:
            first, *others = self.unknown
            also = "".join(f"; {column.name!r}: {column.unknown}" for column in others)
            able = any(column.learnable for column in self.unknown)
            pay = ", or pay for what records can tell with `sordino schema learn`" * able
            remedy = f"Fill it in from what {'the columns mean' if others else 'the column means'}{pay}."
            raise refuse(first.name, f"not declared yet: {first.unknown}{also}", remedy)
        if not self.features:
            raise SchemaError("Expected a schema with at least one column for the model to see, got none.")

    def checked(self, table: Any, *, target: bool = False, person: bool = False) -> Frame:
        """Return a table whose names fit; the target and the person have to be there where asked for.

        With the target, records without it are left out where the schema says so.
        """
        frame = frame_of(table)
        self.check_names(frame.names, target=target, person=person)
        return self._with_targets(frame) if target else frame

    def wanted(self, *, target: bool = False, person: bool = False) -> list[Column]:
        """Return the columns that a table needs: features, and target, weights and person where asked."""
        found: list[Column | None] = [*self.features]
        found += [self.target, *self.weighing] if target else []
        return [column for column in (*found, self.person if person else None) if column is not None]

    def check_names(self, names: Sequence[str], *, target: bool = False, person: bool = False) -> None:
        """Refuse a table that lacks a wanted column or has one that is not declared."""
        present = frozenset(names)
        absent = [c.name for c in self.wanted(target=target, person=person) if c.name not in present]
        if absent:
            raise SchemaError(
                f"The table lacks {_list_words(absent)}. The schema declares {len(absent)} column(s) that "
                "are not there: compare the spelling with the header of the file."
            )
        declared = {*INDEXES, "", *(column.name for column in self.columns)}
        others = [name for name in names if name not in declared]
        if others:
            raise SchemaError(
                f"The table has {_list_words(others)}, which the schema does not declare. Declare each: "
                'what to predict as Target (kind = "target"), what not to use as Ignored (kind = "ignored").'
            )

    def _with_targets(self, frame: Frame) -> Frame:
        """Return the records whose target is no gap, where the others are to be left out."""
        target = self.target
        if target is None or target.missing == "refuse" or target.name not in frame.names:
            return frame
        codes, texts = factorise(frame.column(target.name))
        known = np.array([*(text not in self.markers for text in texts), False])  # a gap's code is -1
        return frame.take(np.flatnonzero(known[codes]))

    def split(self, table: Any, *, bounded: bool = True) -> tuple[Any, np.ndarray | None, np.ndarray | None]:
        """Return the features as a pandas frame, the target and the persons; None for what is not there.

        Labels are as declared, numbers are clipped to the declared bounds where ``bounded``.

        **Privacy.** Each row by itself. A label that is not declared is refused, without being named.
        """
        frame = self._with_targets(self.checked(table))
        series = {column.name: frame.column(column.name) for column in self.features}
        target, person = (c is not None and c.name in frame.names for c in (self.target, self.person))
        return (
            require_pandas().DataFrame(series, copy=False),
            self.targets(frame, bounded=bounded) if target else None,
            self.persons(frame) if person else None,
        )

    def targets(self, frame: Frame, *, bounded: bool = True) -> np.ndarray:
        """Return the target of each row of a checked table; a model is judged by targets as they are."""
        target = self.target
        if target is None:
            raise SchemaError('The schema declares no target. Declare one column with kind = "target".')
        if target.unknown is not None:
            raise refuse(target.name, f"not declared yet: {target.unknown}", "Fill it in.")
        series = frame.column(target.name)
        if target.kind == "category":
            levels = np.array(target.levels)
            codes = codes_of(series, tuple(map(str, levels)), frozenset(self.markers))
            good, out = codes >= 0, levels[np.maximum(codes, 0)]
        else:
            values = numbers_of(target.name, series, self.markers)
            if self.exposure is not None:
                exposure = self._weights(self.exposure, frame)
                values = np.where(exposure > 0.0, values / np.where(exposure > 0.0, exposure, 1.0), 0.0)
            good, out = ~np.isnan(values), np.clip(values, target.low, target.high) if bounded else values
        if not good.all():
            raise refuse(
                target.name,
                "a record has a target that is missing or not declared",
                'Declare it, or write missing = "leave out" for the target in the schema, which leaves out '
                "records without one (sordino schema show SCHEMA lists what is declared).",
            )
        return out

    def weights(self, frame: Frame) -> np.ndarray | None:
        """Return how much each row counts, as a share of the most; None without such columns."""
        found = [self._weights(column, frame) / column.high for column in self.weighing]
        return np.prod(found, axis=0) if found else None

    def _weights(self, column: Weight, frame: Frame) -> np.ndarray:
        values = numbers_of(column.name, frame.column(column.name), self.markers)
        return np.clip(np.nan_to_num(values, nan=0.0), 0.0, column.high)

    def persons(self, frame: Frame) -> np.ndarray | None:
        """Return a number for the person of each row; None without a person column."""
        if self.person is None:
            return None
        series = frame.column(self.person.name)
        texts = {value.strip() for value in series.astype(object) if isinstance(value, str)}
        if not texts.isdisjoint(self.markers):
            raise refuse(self.person.name, "a record has no person", "Leave out such records.")
        try:
            return number_owners(series)
        except InvalidInputError as error:
            raise SchemaError(f"Column {self.person.name!r}: {error}") from None

    def owners_of(self, persons: Any, groups: Any) -> Any:
        """Return the owner of each row: of the person column, or ``groups`` where the table lacks it.

        A schema with a person column never comes down to records: without owners it is refused.
        """
        if self.person is None or (persons is None and groups is not None):
            return None if groups is None else number_owners(groups)
        if groups is not None:
            raise InvalidInputError("Expected groups=None: the schema declares a person column.")
        if persons is None:
            raise refuse(
                self.person.name,
                "it says whose record each one is, and the table lacks it",
                "Keep it in the table, or pass groups=, the owner of each row.",
            )
        return persons

    def to_toml(self) -> str:
        """Return the schema as TOML text, without the fields that have their default value."""
        out: dict[str, Any] = {"format": FORMAT}
        if self.markers != MARKERS:
            out["markers"] = list(self.markers)
        if self.learned:
            out["learned"] = [price.to_dict() for price in self.learned]
        out["columns"] = {column.name: _table(column) for column in self.columns}
        return tomli_w.dumps(out)

    @classmethod
    def from_toml(cls, text: str) -> Schema:
        """Read :meth:`to_toml`, or what somebody wrote by hand; errors name the column and the key."""
        try:
            data = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, TypeError, RecursionError) as error:
            where = str(error)[:200] if isinstance(error, tomllib.TOMLDecodeError) else type(error).__name__
            raise SchemaError(f"The schema is not TOML: {where}. Mend it or draft a new one.") from None
        if data.get("format") != FORMAT:
            raise SchemaError(f"Expected a schema with format = {FORMAT}. Add the line or upgrade sordino.")
        unknown = sorted(set(data) - {"format", "markers", "learned", "columns"})
        columns = data.get("columns")
        if unknown or not isinstance(columns, dict):
            raise SchemaError(
                "Expected format, columns and perhaps markers and learned in a schema, got "
                f"{', '.join(unknown) or 'no columns'}."
            )
        markers = data.get("markers", MARKERS)
        if isinstance(markers, str):
            raise SchemaError('Expected markers as a list of texts, for example markers = ["", "?"].')
        prices = _read_prices(data.get("learned", []))
        made = [_column(name, table, prices) for name, table in columns.items()]
        return cls(made, markers=markers, learned=prices)

    def write(self, path: str | Path) -> None:
        """Write a TOML file, as a whole or not at all."""
        replace_file(Path(path), self.to_toml().encode())

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a TOML file."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            remedy = f"Draft one: sordino schema draft DATA --output {Path(path).name}"
            raise InvalidInputError(
                f"Cannot read the schema {Path(path).name!r}: {reason}. {remedy}"
            ) from None
        except UnicodeDecodeError:
            raise SchemaError(
                f"The schema {Path(path).name!r} is not UTF-8 text. Save it as UTF-8."
            ) from None
        return cls.from_toml(text)

    def __repr__(self) -> str:
        paid = f", learned for {'; '.join(map(str, self.learned))}" if self.learned else ""
        return f"Schema({len(self.columns)} columns, {self.digest[:12]}{paid})"

    def _repr_html_(self) -> str:
        rows = [(c.name, c.word, c.describe(), getattr(c, "source", "")) for c in self.columns]
        return html_table(("column", "kind", "declares", "source"), rows, repr(self))


def _list_words(names: list[str]) -> str:
    rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
    shown = ", ".join(repr(name[:80]) for name in names[:5])
    return f"the column{'s' * (len(names) > 1)} {shown}{rest}"


# ------------------------------------------------------------------------------------- Schemas as TOML text

FORMAT = 1
_TARGET_KIND = "of"  # a target is a category or a number; "kind" says that it is a target


def _table(column: Column) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": column.word}
    for field in fields(column):
        value = getattr(column, field.name)
        if field.name == "name" or value is None or (value == field.default and field.default is not MISSING):
            continue
        if field.name == "kind" and value == "category" and column.unknown is None:  # by its levels
            continue
        key = _TARGET_KIND if isinstance(column, Target) and field.name == "kind" else field.name
        value = [price.receipt for price in value] if key == "learned" else value
        out[key] = list(value) if isinstance(value, tuple) else value
    return out


def _read_prices(said: Any) -> tuple[Price, ...]:
    if not isinstance(said, list):
        raise SchemaError("Expected learned as tables, each with epsilon, delta, relation and unit.")
    try:
        return tuple(map(Price.from_dict, said))
    except InvalidInputError as error:
        raise SchemaError(f"learned: {error}") from None


def _column(name: str, table: Any, prices: tuple[Price, ...]) -> Column:
    if not isinstance(table, dict):
        raise refuse(name, "it is not a table", 'Write [columns.NAME] and kind = "..." below it.')
    values = dict(table)
    word = values.pop("kind", None)
    kind = Blank if word == "" else KINDS.get(str(word))
    if kind is None:
        raise refuse(name, "its kind is not known", f"Write one of {', '.join(KINDS)}.")
    if kind is Target and _TARGET_KIND in values:
        values["kind"] = values.pop(_TARGET_KIND)
    known = {field.name for field in fields(kind)} - {"name"}
    for key in values:
        if key not in known:
            hint = f" Write {kind.hints[0]}." if kind is Target else ""
            known_keys = f"Known are {', '.join(sorted(known - {'kind', 'learned'}))}.{hint}"
            raise refuse(name, f"{key!r} is not known for a {kind.word}", known_keys)
    receipts = values.pop("learned", [])
    paid = tuple(p for p in prices if isinstance(receipts, list) and p.receipt and p.receipt in receipts)
    if not isinstance(receipts, list) or len(paid) < len(receipts):
        raise refuse(
            name,
            "it was learned from records, and the schema does not say for which price",
            "Copy the [[learned]] table of that schema too, with the receipts that stand here.",
        )
    made = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    made["learned"] = paid
    for key, value in made.items():
        if isinstance(value, datetime.datetime):
            raise refuse(name, f"{key} is a time", "Write a date, YYYY-MM-DD.")
    return kind(name, **made)


# ------------------ A schema to fill in: names and stored types of a file, and not one value of its records

_HEAD = """\
# Drafted from the {what} of {name}. No record was read.
# Fill in the blanks. kind is one of {kinds}.
# A number needs low and high, a category levels: low = 0 and high = 120, or levels = ["no", "yes"].
# Bounds and levels come from what a column means, never from looking at the data; say where from in source.
# What you leave out can be learned for a price: sordino schema learn.
"""


def draft_schema(
    source: str | Path | DataFile, *, kinds: Mapping[str, str] | None = None, rest: str = ""
) -> str:
    """Return the TOML text of a schema with blanks to fill in.

    Parameters
    ----------
    source : a CSV, TSV, Parquet or Arrow file.
    kinds : what is known of some columns: ``{"age": "number", "ill": "target"}``.
    rest : the kind of all others; blank by default.

    **Privacy.** Of a CSV file only the first row is read, and it holds no types: kinds stay blank. Parquet
    and Arrow files state types, which are read without the records. A first row that holds a number is
    taken for a record and refused, for its values would become names.
    """
    file = source if isinstance(source, DataFile) else DataFile(str(source))
    given = dict(kinds or {})
    for kind in (*given.values(), *([rest] if rest else [])):
        if kind not in KINDS:
            raise SchemaError(f"Expected kinds among {', '.join(KINDS)}, got {kind!r}.")
    if not file.header and file.kind in ("csv", "tsv"):
        raise file.refuse(
            "a file without a header names no columns. Write the schema by hand, in their order."
        )
    types = stored_kinds(file)
    absent = [name for name in given if name not in types]
    if absent:
        raise refuse(absent[0], f"{file.name} has no such column", "Compare the spelling with its header.")
    what = "stored types" if file.kind in ("parquet", "arrow") else "header"
    tables = [f"{_HEAD.format(what=what, name=file.name, kinds=', '.join(KINDS))}format = {FORMAT}\n"]
    numbered = dict.fromkeys(INDEXES, "ignored")
    end = "; ordered = true" if "person" in given.values() else "\n"  # classes in an order know no persons
    for name, stored in types.items():
        kind = given.get(name) or numbered.get(name) or stored or rest
        lines = [tomli_w.dumps({"columns": {name: {"kind": kind}}}).rstrip()]
        lines += [f"# {hint.partition(end)[0]}" for hint in (KINDS[kind].hints if kind else ())]
        lines += [] if kind in ("ignored", "person") else ['# source = ""']
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)
