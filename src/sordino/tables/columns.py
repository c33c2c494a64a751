"""The kinds of columns that a table can have; everything they hold is declared, nothing is read from data."""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, ClassVar

from sordino.errors import SchemaError
from sordino.runs import Price
from sordino.values import as_float

# ---------------------- Checks of what a schema declares; messages name the column, the rule and the remedy

MOST_LEVELS = 100_000
MISSING = ("column", "zero")


def refuse(column: str, rule: str, remedy: str) -> SchemaError:
    """Return the error of one column."""
    return SchemaError(f"Column {column!r}: {rule}. {remedy}")


def check_name(name: Any) -> None:
    """Refuse a name that no table can have."""
    if not isinstance(name, str) or not name or len(name) > 1000 or not is_unicode(name):
        raise SchemaError(
            "Expected the name of a column as a Unicode text of 1 to 1000 characters, got another."
        )


def is_unicode(text: str) -> bool:
    """Tell whether a file can hold a text: half a character (a surrogate) has no encoding."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def check_text(column: str, field: str, value: Any) -> None:
    """Refuse a field of words that holds something else."""
    if not isinstance(value, str) or not is_unicode(value):
        raise refuse(column, f"{field} is {type(value).__name__}, not a Unicode text", "Write it in quotes.")


def check_bounds(column: str, low: Any, high: Any) -> tuple[float | None, float | None]:
    """Return both bounds as floats, or None for both where they are not known yet."""
    if low is None and high is None:
        return None, None
    low, high = check_number(column, "low", low), check_number(column, "high", high)
    if low > high:
        raise refuse(column, f"low = {low:g} is above high = {high:g}", "Swap them.")
    closest = 1e-9 * max(abs(low), abs(high))
    if not max(closest, 1e-300) < high - low < math.inf:
        raise refuse(column, "low and high are too close or too far apart", "Declare other bounds or units.")
    return low, high


def check_number(column: str, field: str, value: Any) -> float:
    """Return a finite number as a float."""
    number = as_float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number):
        raise refuse(
            column,
            f"{field} is not a finite number, got {type(value).__name__}",
            "Declare it from what the column means, not from the data.",
        )
    return number


def check_levels(column: str, levels: Any, least: int, learnable: bool = True) -> tuple[str, ...] | None:
    """Return levels as texts, each once; None where they are not known yet."""
    if levels is None:
        return None
    if isinstance(levels, str) or not isinstance(levels, Iterable):
        raise refuse(column, "levels are not a list", 'Write them as a list: levels = ["a", "b"].')
    found = tuple(level_text(level) for level in levels)
    if any(level is None for level in found):
        raise refuse(column, "a level is not a text, a number or a flag", "Write levels as Unicode text.")
    if not least <= len(found) <= MOST_LEVELS:
        bound = f"expected {least} to {MOST_LEVELS} levels, got {len(found)}"
        if len(found) > MOST_LEVELS:
            raise refuse(column, bound, "Use Text for values without a fixed list.")
        pay = ", or leave out levels and pay for them with `sordino schema learn`" if learnable else ""
        raise refuse(column, bound, f"List them{pay}.")
    if len(set(found)) < len(found):
        raise refuse(column, "a level is declared twice", "Declare each level once.")
    return tuple(str(level) for level in found)


def whole_levels(levels: Any, texts: tuple[str, ...] | None) -> tuple[Any, ...] | None:
    """Return checked levels as whole numbers where all of them were declared as such, else as texts."""
    found = () if texts is None else tuple(levels)
    whole = all(isinstance(level, Integral) and str(level) == text for level, text in zip(found, texts or ()))
    flags = any(isinstance(level, bool) for level in found)
    return tuple(map(int, found)) if found and whole and not flags else texts


def check_missing(column: str, rule: Any, allowed: tuple[str, ...]) -> None:
    """Refuse a rule for missing values that is not known."""
    if not isinstance(rule, str) or rule not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        raise refuse(column, f"the rule for missing values is not one of {words}", f"Use {allowed[0]!r}.")


def check_other(column: str, rule: Any) -> None:
    """Refuse a rule for levels that are not declared, if it is not known."""
    if not isinstance(rule, str) or rule not in MISSING:
        raise refuse(column, "the rule for other levels is not one of 'column', 'zero'", "Use 'column'.")


def check_flag(column: str, field: str, value: Any) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool):
        raise refuse(column, f"{field} is {type(value).__name__}, not true or false", "Write true or false.")


def check_whole(column: str, field: str, value: Any, low: int, high: int) -> int:
    """Return a whole number between two bounds."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not low <= int(value) <= high:
        raise refuse(column, f"{field} is not a whole number in [{low}, {high}]", "Change it.")
    return int(value)


def check_day(column: str, field: str, value: Any) -> datetime.date | None:
    """Return a declared date, given as one or as ISO text."""
    if value is None or (isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)):
        return value
    if isinstance(value, str):
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            pass
    raise refuse(column, f"{field} is not a date", "Write it as YYYY-MM-DD.")


def level_text(value: Any) -> str | None:
    """Return a level, or a value of a table, as the text that levels are compared by; None for others.

    A text with half a character (a surrogate) is none: no file could hold it, nor a schema that learned it.
    Whole numbers read alike whether a file holds 1 or 1.0: a column with gaps turns one into the other.
    """
    if isinstance(value, str):
        return value.strip() if is_unicode(value) else None
    if isinstance(value, (bool, datetime.date)):
        return str(value)
    if not isinstance(value, (Real, Decimal)) or (isinstance(value, Decimal) and value.is_nan()):
        return None
    number = as_float(value)
    return str(int(number)) if abs(number) < 2**53 and number == int(number) else str(number)


# ----------------------------------------------------------------------------------------------------------
# The kinds of columns that a table can have; everything they hold is declared, nothing is read from data.


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
        check_name(self.name)
        self._set(learned=tuple(self.learned))
        if not all(isinstance(price, Price) and price.receipt for price in self.learned):
            raise refuse(self.name, "learned is not a list of prices with receipts", "Leave it out.")
        check_text(self.name, "source", getattr(self, "source", ""))

    @property
    def unknown(self) -> str | None:
        """What is not declared yet, in words; None where nothing is missing."""
        return None

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Number(Column):
    """A number between public bounds. A value outside of them is clipped to the nearer bound.

    Parameters
    ----------
    name : of the column.
    low, high : the bounds; both None where they are to be learned.
    unit : of measure, for readers.
    missing : "column" gives missing values a column of their own, "zero" leaves all columns at zero, a
        number stands for them.
    source : where the bounds come from.
    knots : how the effect may bend. A number m stands for m equally spaced knots, a list for these values;
        the effect is linear between knots. 1 is a single straight line; None leaves it to the model.
    log : measure it as ``log(1 + x - low)``, for amounts that range over several powers of ten.
    """

    word: ClassVar[str] = "number"

    low: float | None = None
    high: float | None = None
    unit: str | None = None
    missing: str | float = "column"
    source: str = ""
    knots: int | tuple[float, ...] | None = None
    log: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = check_bounds(self.name, self.low, self.high)
        self._set(low=low, high=high, knots=self._checked_knots(low, high))
        check_flag(self.name, "log", self.log)
        if self.unit is not None:
            check_text(self.name, "unit", self.unit)
        if isinstance(self.missing, str):
            check_missing(self.name, self.missing, MISSING)
        else:
            check_number(self.name, "missing", self.missing)

    @property
    def unknown(self) -> str | None:
        """The bounds, where they are not declared."""
        return "bounds (low and high)" if self.low is None else None

    def _checked_knots(self, low: float | None, high: float | None) -> int | tuple[float, ...] | None:
        if not isinstance(self.knots, (list, tuple)):
            return None if self.knots is None else check_whole(self.name, "knots", self.knots, 1, 1000)
        inner = tuple(check_number(self.name, "a knot", knot) for knot in self.knots)
        rising = all(a < b for a, b in itertools.pairwise(inner))
        if not rising or low is None or high is None or not all(low < v < high for v in inner):
            raise refuse(
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
        self._set(levels=check_levels(self.name, self.levels, 1))
        check_other(self.name, self.other)
        also = ("other",) if self.other == "column" else ()
        check_missing(self.name, self.missing, (*MISSING, *also))

    @property
    def unknown(self) -> str | None:
        """The levels, where they are not declared."""
        return "levels" if self.levels is None else None


@dataclass(frozen=True)
class Ordinal(Column):
    """One of several levels in a declared order; its effect bends at some of them, or at all."""

    word: ClassVar[str] = "ordinal"

    levels: tuple[str, ...] = ()
    missing: str = "column"
    source: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(levels=check_levels(self.name, self.levels or (), 2, learnable=False))
        check_missing(self.name, self.missing, (*MISSING, "other"))


@dataclass(frozen=True)
class Flag(Column):
    """Yes or no: true/false, yes/no, y/n, t/f, 1/0, in any case. Another value counts as missing."""

    word: ClassVar[str] = "flag"

    missing: str = "column"
    source: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_missing(self.name, self.missing, MISSING)


@dataclass(frozen=True)
class Date(Column):
    """A day between two public days; others are clipped. ``knots`` as in :class:`Number`, equally spaced."""

    word: ClassVar[str] = "date"

    low: datetime.date | str | None = None
    high: datetime.date | str | None = None
    missing: str = "column"
    source: str = ""
    knots: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        low = check_day(self.name, "low", self.low)
        high = check_day(self.name, "high", self.high)
        days = [None if day is None else float(day.toordinal()) for day in (low, high)]
        check_bounds(self.name, *days)
        if self.knots is not None:
            check_whole(self.name, "knots", self.knots, 1, 1000)
        check_missing(self.name, self.missing, MISSING)
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
        check_whole(self.name, "buckets", self.buckets, 2, 2**20)
        check_missing(self.name, self.missing, ("zero", "column"))


@dataclass(frozen=True)
class Target(Column):
    """What is predicted: a category with declared levels, or a number between public bounds.

    Without a ``kind`` levels make it a category and bounds a number; without these it is to be learned.
    Levels that are all whole numbers stay numbers, so that classes are in their order: as texts, "10" would
    come before "2" and the columns of ``predict_proba`` with it. ``missing="leave out"`` leaves out the
    records whose target is a gap, each by itself, and the number of the others is public; "refuse" refuses
    them.
    """

    word: ClassVar[str] = "target"

    kind: str = ""
    levels: tuple[str, ...] | tuple[int, ...] | None = None
    low: float | None = None
    high: float | None = None
    unit: str | None = None
    source: str = ""
    missing: str = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind == "" and (self.levels is not None or self.low is not None or self.high is not None):
            self._set(kind="number" if self.levels is None else "category")
        if self.kind not in ("", "category", "number"):
            raise refuse(self.name, "a target is a category or a number", 'Write kind = "category".')
        check_missing(self.name, self.missing, ("refuse", "leave out"))
        other = self.levels if self.kind == "number" else (self.low, self.high)
        if other not in (None, (None, None)):
            raise refuse(
                self.name,
                f"a target that is a {self.kind} has {'low and high' if self.levels else 'levels'} only",
                "Leave out the others.",
            )
        low, high = check_bounds(self.name, self.low, self.high)
        texts = check_levels(self.name, self.levels, 2)
        self._set(levels=whole_levels(self.levels, texts), low=low, high=high)

    @property
    def unknown(self) -> str | None:
        """The kind, the levels or the bounds, where they are not declared."""
        if not self.kind:
            return "category or number"
        if self.kind == "category":
            return "levels" if self.levels is None else None
        return "bounds (low and high)" if self.low is None else None


@dataclass(frozen=True)
class Person(Column):
    """Whose record it is: all records of a person together are protected."""

    word: ClassVar[str] = "person"

    source: str = ""


@dataclass(frozen=True)
class Weight(Column):
    """How much a record counts: a survey weight, clipped to [0, ``high``]; a gap counts as zero."""

    word: ClassVar[str] = "weight"

    high: float = 1.0
    source: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.high, (int, float)) or not 0.0 < float(self.high) < 1e100:
            raise refuse(self.name, "high is no number above 0", "Write the largest public value: high = 4.")
        self._set(high=float(self.high))


@dataclass(frozen=True)
class Exposure(Weight):
    r"""How long, or how much, the target was counted over: a model learns the rate, target over exposure.

    A record counts by its exposure, clipped to [0, ``high``]. For ``loss="poisson"`` this *is* an offset:
    ``e exp(m) - y m = e (exp(m) - (y / e) m)``. Bounds of the target are those of the rate.
    """

    word: ClassVar[str] = "exposure"


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
    kind.word: kind
    for kind in (Number, Category, Ordinal, Flag, Date, Text, Target, Person, Weight, Exposure, Ignored)
}
