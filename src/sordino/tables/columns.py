"""The kinds of columns that a table can have; everything they hold is declared, nothing is read from data."""

from __future__ import annotations

import datetime
import itertools
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sordino.runs import Price
from sordino.tables import rules

# Chosen on the donor and the KDD Cup tables (docs/tables.md); Adult only judged it.
KNOTS = 5


@dataclass(frozen=True)
class Column:
    """What all columns share; ``source`` says where the declaration comes from.

    ``learned`` is what was paid for bounds or levels that come from records. It stays with the column, into
    whichever schema that is copied.
    """

    word: ClassVar[str]

    name: str
    learned: tuple[Price, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        rules.check_name(self.name)
        self._set(learned=tuple(self.learned))
        if not all(isinstance(price, Price) and price.receipt for price in self.learned):
            raise rules.refuse(self.name, "learned is not a list of prices with receipts", "Leave it out.")
        rules.check_text(self.name, "source", getattr(self, "source", ""))

    @property
    def unknown(self) -> str | None:
        """What is not declared yet, in words; None where nothing is missing."""
        return None

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Number(Column):
    """A number between public bounds; what lies outside is clipped to them.

    Parameters
    ----------
    name : of the column.
    low, high : the bounds; both None where they are to be learned.
    unit : of measure, for readers.
    missing : "column" gives missing values a column of their own, "zero" leaves all columns at zero, a
        number stands for them.
    source : where the bounds come from.
    knots : how the effect may bend. A number m stands for m equally spaced knots, a list for these values;
        the effect is linear between knots. 1 is a single straight line.
    log : measure it as ``log(1 + x - low)``, for amounts that range over several powers of ten.
    """

    word: ClassVar[str] = "number"

    low: float | None = None
    high: float | None = None
    unit: str | None = None
    missing: str | float = "column"
    source: str = ""
    knots: int | tuple[float, ...] = KNOTS
    log: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = rules.check_bounds(self.name, self.low, self.high)
        self._set(low=low, high=high, knots=self._checked_knots(low, high))
        rules.check_flag(self.name, "log", self.log)
        if self.unit is not None:
            rules.check_text(self.name, "unit", self.unit)
        if isinstance(self.missing, str):
            rules.check_missing(self.name, self.missing, rules.MISSING)
        else:
            rules.check_number(self.name, "missing", self.missing)

    @property
    def unknown(self) -> str | None:
        """The bounds, where they are not declared."""
        return "bounds (low and high)" if self.low is None else None

    def _checked_knots(self, low: float | None, high: float | None) -> int | tuple[float, ...]:
        if not isinstance(self.knots, (list, tuple)):
            return rules.check_whole(self.name, "knots", self.knots, 1, 1000)
        inner = tuple(rules.check_number(self.name, "a knot", knot) for knot in self.knots)
        rising = all(a < b for a, b in itertools.pairwise(inner))
        if not rising or low is None or high is None or not all(low < v < high for v in inner):
            raise rules.refuse(
                self.name, "knots do not rise between low and high", "List values strictly between them."
            )
        return inner


@dataclass(frozen=True)
class Category(Column):
    """One of several declared levels without an order.

    Parameters
    ----------
    name : of the column.
    levels : the declared levels; None where they are to be learned.
    missing : "column", "zero" or "other".
    source : where the levels come from.
    other : what becomes of levels that are not declared: "column" gives them one of their own, together;
        "zero" leaves all columns at zero.
    """

    word: ClassVar[str] = "category"

    levels: tuple[str, ...] | None = None
    missing: str = "column"
    source: str = ""
    other: str = "column"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(levels=rules.check_levels(self.name, self.levels, 1))
        rules.check_other(self.name, self.other)
        also = ("other",) if self.other == "column" else ()
        rules.check_missing(self.name, self.missing, (*rules.MISSING, *also))

    @property
    def unknown(self) -> str | None:
        """The levels, where they are not declared."""
        return "levels" if self.levels is None else None


@dataclass(frozen=True)
class Ordinal(Column):
    """One of several levels in a declared order; its effect bends at up to five of them."""

    word: ClassVar[str] = "ordinal"

    levels: tuple[str, ...] = ()
    missing: str = "column"
    source: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(levels=rules.check_levels(self.name, self.levels or (), 2, learnable=False))
        rules.check_missing(self.name, self.missing, (*rules.MISSING, "other"))


@dataclass(frozen=True)
class Flag(Column):
    """Yes or no: true/false, yes/no, y/n, t/f, 1/0, in any case; what is none of these is missing."""

    word: ClassVar[str] = "flag"

    missing: str = "column"
    source: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        rules.check_missing(self.name, self.missing, rules.MISSING)


@dataclass(frozen=True)
class Date(Column):
    """A day between two public days; others are clipped. ``knots`` as in :class:`Number`, equally spaced."""

    word: ClassVar[str] = "date"

    low: datetime.date | str | None = None
    high: datetime.date | str | None = None
    missing: str = "column"
    source: str = ""
    knots: int = KNOTS

    def __post_init__(self) -> None:
        super().__post_init__()
        low = rules.check_day(self.name, "low", self.low)
        high = rules.check_day(self.name, "high", self.high)
        days = [None if day is None else float(day.toordinal()) for day in (low, high)]
        rules.check_bounds(self.name, *days)
        rules.check_whole(self.name, "knots", self.knots, 1, 1000)
        rules.check_missing(self.name, self.missing, rules.MISSING)
        self._set(low=low, high=high)

    @property
    def unknown(self) -> str | None:
        """The bounds, where they are not declared."""
        return "bounds (low and high)" if self.low is None else None


@dataclass(frozen=True)
class Text(Column):
    """Words, hashed into so many columns; together they have norm one at most."""

    word: ClassVar[str] = "text"

    buckets: int = 256
    missing: str = "zero"
    source: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        rules.check_whole(self.name, "buckets", self.buckets, 2, 2**20)
        rules.check_missing(self.name, self.missing, ("zero", "column"))


@dataclass(frozen=True)
class Target(Column):
    """What is predicted: a category with declared levels, or a number between public bounds.

    Levels that are all whole numbers stay numbers, so that classes are in their order: as texts, "10" would
    come before "2" and the columns of ``predict_proba`` with it.
    """

    word: ClassVar[str] = "target"

    kind: str = "category"
    levels: tuple[str, ...] | tuple[int, ...] | None = None
    low: float | None = None
    high: float | None = None
    unit: str | None = None
    source: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in ("category", "number"):
            raise rules.refuse(self.name, "a target is a category or a number", 'Write kind = "category".')
        other = self.levels if self.kind == "number" else (self.low, self.high)
        if other not in (None, (None, None)):
            raise rules.refuse(
                self.name,
                f"a target that is a {self.kind} has {'low and high' if self.levels else 'levels'} only",
                "Leave out the others.",
            )
        low, high = rules.check_bounds(self.name, self.low, self.high)
        texts = rules.check_levels(self.name, self.levels, 2)
        self._set(levels=rules.whole_levels(self.levels, texts), low=low, high=high)

    @property
    def unknown(self) -> str | None:
        """The levels or bounds, where they are not declared."""
        if self.kind == "category":
            return "levels" if self.levels is None else None
        return "bounds (low and high)" if self.low is None else None


@dataclass(frozen=True)
class Person(Column):
    """Whose record it is: all records of a person together are protected."""

    word: ClassVar[str] = "person"

    source: str = ""


@dataclass(frozen=True)
class Ignored(Column):
    """A column that is not used."""

    word: ClassVar[str] = "ignored"

    source: str = ""


@dataclass(frozen=True)
class Blank(Column):
    """A column of which not even the kind is declared yet: a draft's, to be filled in or learned."""

    word: ClassVar[str] = ""

    source: str = ""

    @property
    def unknown(self) -> str | None:
        """The kind."""
        return "kind"


KINDS: dict[str, type[Column]] = {
    kind.word: kind for kind in (Number, Category, Ordinal, Flag, Date, Text, Target, Person, Ignored)
}
