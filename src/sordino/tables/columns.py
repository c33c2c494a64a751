"""The kinds of columns that a table can have: what each declares, how its values are read and encoded.

A kind is one class of this file. Everything it holds is declared, nothing is read from data.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from sordino.errors import SchemaError
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.clip import clipped_matrix
from sordino.runs import Price
from sordino.runs.report import Fact, Source
from sordino.tables.files import AS_IS, NUMBER, TEXT
from sordino.tables.values import (
    MISSING,
    OTHER,
    codes_of,
    days_of,
    flags_of,
    is_unicode,
    level_text,
    numbers_of,
)
from sordino.values import as_float

if TYPE_CHECKING:
    from sordino.tables.encoder import Basis

MOST_LEVELS = 100_000
GAPS = ("column", "zero")
BOUNDS = "bounds (low and high)"
TOLD = "learned: "
"""How the source of a column begins whose bounds or levels were paid for."""
_EPOCH = datetime.date(2000, 1, 1).toordinal()
Knots = int | tuple[float, ...]

# ------------------------------------------------- From the values of a column to entries of encoded rows
# A column stores a fixed number of entries per row (words apart), so a million rows are two arrays that are
# filled column by column. The entries of one column have Euclidean norm at most one.


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
    points : the values at the positions 0, 1, 2 and so on: knots, ends of a line, or levels.
    missing : the rule for missing values.
    levels : positions are level numbers; else a row has weights at the two knots around its position, or
        the position itself where there is one label only.
    curved : it is a number, a date or an ordinal, whose line has a weight and which brings a tent into pairs.
    other : there is a column for values that are not declared.
    shares : of the range at each knot, for the line; two equal steps where there are no knots.
    log : shares are those of logarithms.
    basis : where there is one, a line from -1 to 1 stands before the knots, and lines and knots have weights.
    """

    name: str
    labels: tuple[str, ...]
    read: Callable[[Any], Any]
    points: tuple[Any, ...]
    missing: str
    levels: bool = False
    curved: bool = False
    other: bool = False
    shares: Floats = field(default_factory=lambda: np.array([0.0, 1.0]))
    log: bool = False
    basis: Basis | None = None

    @property
    def signed(self) -> bool:
        """Whether one column, from -1 to 1, is all of it: a line, a flag or two levels, of a basis."""
        return self.basis is not None and len(self.labels) == 1 + self.levels

    @property
    def parts(self) -> tuple[str, ...]:
        """What the regular columns stand for."""
        if self.signed:
            return (self.labels[-1],)
        return ("", *self.labels) if self.basis is not None and not self.levels else self.labels

    @property
    def width(self) -> int:
        """How many entries a row stores."""
        if self.levels or len(self.labels) == 1:
            return 1
        return 2 if self.basis is None else 3

    @property
    def origins(self) -> list[Origin]:
        """Where the encoded columns come from."""
        extra = ["other"] * self.other + ["missing"] * (self.missing == "column")
        return [Origin(self.name, part) for part in (*self.parts, *extra)]

    @property
    def feature_names(self) -> list[str]:
        """The names of the encoded columns."""
        own = [self._name(part) for part in self.parts]
        return own + [f"{self.name} ({origin.part})" for origin in self.origins[len(own) :]]

    def _name(self, part: str) -> str:
        return f"{self.name}{'=' if self.levels else ' '}{part}".rstrip()

    def entries(self, positions: Any) -> Entries:
        """Return the entries of each row, given their positions."""
        absent, strange = self._split(positions)
        out = self._regular(np.where(absent | strange, 0, positions))
        place = len(self.parts)
        after = place + (self.other and self.missing == "column")
        gap = after if self.missing in ("column", "other") else None
        for rows, at in ((strange, place if self.other else None), (absent, gap)):
            if rows.any():  # rows without a position: one at their place, or nothing at all
                out.values[rows] = 0.0
                if at is not None:
                    out.places[rows] = np.arange(at - self.width + 1, at + 1)
                    out.values[rows, -1] = 1.0
        return out

    def _split(self, positions: Any) -> tuple[Any, Any]:
        """Return which rows have no value, and which one that is not declared."""
        absent = np.isnan(positions) if positions.dtype.kind == "f" else positions == MISSING
        return absent, positions == OTHER if self.levels or self.other else np.zeros(1, dtype=bool)

    def _regular(self, positions: Any) -> Entries:
        if self.width == 1:
            first: Any = positions if self.levels and not self.signed else np.zeros(positions.size)
            values = np.ones((positions.size, 1)) if self.levels else positions.astype(float)[:, None]
            values = self._line(positions) if self.signed else values
            return Entries(first.astype(np.int32)[:, None], values)
        cell = np.minimum(positions.astype(np.int32), len(self.labels) - 2)
        weight, before = positions - cell, self.width - 2
        places, values = np.empty((cell.size, self.width), dtype=np.int32), np.empty((cell.size, self.width))
        np.add(cell, before, out=places[:, -2])
        np.add(cell, before + 1, out=places[:, -1])
        values[:, -1] = weight
        np.subtract(1.0, weight, out=values[:, -2])
        if self.basis is not None:
            places[:, 0], values[:, :1] = 0, self._line(positions)
            values[:, 1:] *= self.basis.curve
        return Entries(places, values)

    def _line(self, positions: Any) -> Floats:
        """Return the share of the range from -1 to 1, as one column."""
        shares = np.interp(positions, np.arange(float(self.shares.size)), self.shares)
        return np.asarray(2.0 * shares - 1.0)[:, None]

    def grid(self, rest: bool = True) -> tuple[tuple[Any, ...], Any]:
        """Return values between which effects are straight, or all levels, and their positions.

        What has no column among the regular ones, other levels and gaps of a category, counts as ``rest``.
        """
        count = len(self.points)
        if isinstance(self.points[0], float):  # a pair may bend in the middle of the range
            every = np.arange(float(count))
            middle = np.interp(0.5, self.shares, every)  # a knot up to rounding, mostly
            positions = np.unique(np.append(every, middle if abs(middle - middle.round()) > 1e-9 else every))
            values = np.interp(positions, every, self.points)
            if self.log:
                shares = np.interp(positions, every, self.shares) * np.log1p(values[-1] - values[0])
                values = np.where(positions % 1.0 > 0.0, values[0] + np.expm1(shares), values)
            return tuple(values.tolist()), positions
        if not self.levels and self.labels != ("",):  # ordered levels
            return self.points, np.arange(float(count))
        more = {"(other)": OTHER} if self.other and rest else {}
        more |= {"(missing)": MISSING} if self.missing == "column" and rest else {}
        return (*self.points, *more), np.array([*range(count), *more.values()])

    @cached_property
    def contrasts(self) -> tuple[str, ...]:
        """What the column brings into its pairs: a line and a tent, minus or plus one, or its levels."""
        if self.curved:
            return self.name, f"{self.name} middle"
        return tuple(map(self._name, self.labels[-1:] if self.signed else self.labels))

    def contrast(self, positions: Any) -> Entries:
        """Return what each row brings into the pairs of the column; undeclared values bring none."""
        absent, strange = self._split(positions)
        known = ~(absent | strange)
        regular = np.where(known, positions, 0)
        if self.levels and not self.signed:
            places: Any = regular.astype(np.int32)[:, None]
            return Entries(places, known.astype(float)[:, None])
        line = self._line(regular)
        both = [line, 1.0 - 2.0 * np.abs(line)][: len(self.contrasts)]
        values = np.hstack(both) * known[:, None]
        return Entries(np.broadcast_to(np.arange(len(both), dtype=np.int32), values.shape), values)


@dataclass(frozen=True, eq=False)
class WordBlock:
    """The hashed words of a text, clipped to norm one together."""

    name: str
    buckets: int

    @property
    def origins(self) -> list[Origin]:
        """Where the encoded columns come from."""
        return [Origin(self.name, f"words {bucket}") for bucket in range(self.buckets)]

    @property
    def feature_names(self) -> list[str]:
        """The names of the encoded columns."""
        return [f"{self.name} {origin.part}" for origin in self.origins]

    def matrix(self, series: Any, dtype: Any) -> Any:
        """Return the words of each row, each counted once, as a CSR matrix."""
        from sklearn.feature_extraction.text import HashingVectorizer

        hashing = HashingVectorizer(
            n_features=self.buckets, norm=None, binary=True, token_pattern=r"(?u)\w+", dtype=dtype
        )
        words = [value if isinstance(value, str) else "" for value in series.astype(object)]
        return clipped_matrix(hashing.transform(words), 1.0)


# ---------------------- Checks of what a schema declares; messages name the column, the rule and the remedy


def refuse(column: str, rule: str, remedy: str) -> SchemaError:
    """Return the error of one column."""
    return SchemaError(f"Column {column!r}: {rule}. {remedy}")


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


def check_whole(column: str, field: str, value: Any, low: int, high: int) -> int:
    """Return a whole number between two bounds."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not low <= int(value) <= high:
        raise refuse(column, f"{field} is not a whole number in [{low}, {high}]", "Change it.")
    return int(value)


# ----------------------------------------------------------------------------------------------- The kinds


@dataclass(frozen=True)
class Column:
    """What all columns share; ``source`` says where the declaration comes from.

    ``learned`` is what was paid for bounds or levels that come from records. It stays with the column, into
    whichever schema that is copied. A kind says ``word``, its name in a schema; ``words``, what it declares;
    ``gaps``, the rules for missing values; ``stored``, what a file's column is read as;
    ``hints``, the lines of a draft; ``curved``, whether its effect may bend; ``examples``, values that stand
    for all where no levels are declared; ``learnable``, whether records tell its blanks.
    """

    word: ClassVar[str]
    words: ClassVar[str] = "{0.word}"
    gaps: ClassVar[tuple[str, ...]] = GAPS
    stored: ClassVar[str] = TEXT
    hints: ClassVar[tuple[str, ...]] = ()
    curved: ClassVar[bool] = False
    examples: ClassVar[tuple[str, ...]] = ()
    learnable: ClassVar[bool] = True

    name: str
    learned: tuple[Price, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str) or not name or len(name) > 1000 or not is_unicode(name):
            raise SchemaError(
                "Expected the name of a column as a Unicode text of 1 to 1000 characters, got another."
            )
        self._set(learned=tuple(self.learned))
        if not all(isinstance(price, Price) and price.receipt for price in self.learned):
            raise refuse(self.name, "learned is not a list of prices with receipts", "Leave it out.")
        unit = getattr(self, "unit", None)
        for key, text in (("source", getattr(self, "source", "")), ("unit", "" if unit is None else unit)):
            if not isinstance(text, str) or not is_unicode(text):
                rule = f"{key} is {type(text).__name__}, not a Unicode text"
                raise refuse(self.name, rule, "Write it in quotes.")
        if hasattr(self, "missing") and (isinstance(self.missing, str) or self.word != "number"):
            self._require_one_of(self.gaps)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _require_one_of(self, allowed: tuple[str, ...], rule: str = "missing") -> None:
        """Refuse a rule for missing values, or for other levels, that is not known."""
        value = getattr(self, rule)
        if not isinstance(value, str) or value not in allowed:
            what = "missing values" if rule == "missing" else "other levels"
            words = ", ".join(repr(word) for word in allowed)
            raise refuse(self.name, f"the rule for {what} is not one of {words}", f"Use {allowed[0]!r}.")

    @property
    def unknown(self) -> str | None:
        """What is not declared yet, in words; None where nothing is missing."""
        if getattr(self, "levels", ()) is None:
            return "levels" if self.learnable else "levels in their order, which no record tells"
        return BOUNDS if getattr(self, "low", 0) is None else None

    @property
    def is_told(self) -> bool:
        """Whether its bounds or levels are what was paid for: of a copy, its source says so."""
        return bool(self.learned) and str(vars(self).get("source")).startswith(TOLD)

    @property
    def fact(self) -> Fact:
        """What it declares, and where that comes from, for a report."""
        origin = Source.LEARNED if self.is_told else Source.DECLARED
        words = (
            f"column {self.name!r}: {self.describe()} ({getattr(self, 'source', '') or 'source not stated'})"
        )
        return Fact(words, origin, leaves_out=getattr(self, "missing", "") == "leave out")

    @property
    def is_numeric(self) -> bool:
        """Whether its values are measured between bounds."""
        return hasattr(self, "low")

    def describe(self) -> str:
        """Return what it declares."""
        blank = f"{self.word or 'blank'}, {self.unknown} not declared"
        return self._words() if self.unknown is None else blank

    def _words(self) -> str:
        return self.words.format(self)

    def _describe_range(self) -> str:
        column: Any = self
        return f"[{column.low:.12g}, {column.high:.12g}]{' ' + column.unit if column.unit else ''}"

    def _describe_levels(self) -> str:
        levels = getattr(self, "levels", None) or ()
        return f"{len(levels)} levels: {', '.join(map(str, levels))}"

    def knots_or(self, default: int) -> Knots:
        """Return the knots that it declares, else the default; 1 where its effect cannot bend."""
        return (getattr(self, "knots", None) or default) if self.curved else 1

    @property
    def contrast_size(self) -> int:
        """How many columns it brings into its pairs: line and tent, minus or plus one, or its levels."""
        return 1 + self.curved

    def size(self, knots: int) -> int:
        """Return how many columns it becomes; those for gaps and other levels do not count."""
        own = self.knots_or(knots)
        count = len(own) + 2 if isinstance(own, tuple) else own
        return 1 + count * (count > 1) if self.curved else self.contrast_size

    def block(self, knots: Knots, markers: frozenset[str]) -> Block | WordBlock:
        """Return how it is encoded."""
        raise SchemaError(f"Column {self.name!r}: a {self.word} column is not encoded.")

    def numbers(self, series: Any, markers: Iterable[str]) -> Floats:
        """Return values on the scale of its bounds; nan for a gap."""
        return numbers_of(self.name, series, markers)

    @property
    def ends(self) -> tuple[float, float]:
        """Its bounds on that scale."""
        column: Any = self
        return column.low, column.high

    def invent(self, public: Any, count: int, others: tuple[str, ...] = ()) -> Any:
        """Return made-up values of what it declares, on which a model is tried in place of records.

        ``others`` are drawn as often as declared levels, where it has any.
        """
        found = self.examples or (*(getattr(self, "levels", None) or ()), *others)
        return np.array(found, dtype=object)[public.integers(0, len(found), count)]

    def misfits(self, series: Any, markers: frozenset[str]) -> tuple[Floats, Floats]:
        """Return ones for values outside of what is declared, and ones for those that are missing."""
        if self.is_numeric:
            values, (low, high) = self.numbers(series, markers), self.ends
            return ((values < low) | (values > high)).astype(float), np.isnan(values).astype(float)
        codes = codes_of(series, tuple(map(str, getattr(self, "levels", None) or ())), markers)
        return (codes == OTHER).astype(float), (codes == MISSING).astype(float)

    def _bend(
        self, knots: Knots, scale: Floats, points: Iterable[Any], values: Callable[[Any], Floats],
        missing: str, other: bool = False,
    ) -> Block:  # fmt: skip
        """Return the block of values between knots: ``points``, which are read at ``scale``."""
        points = tuple(points)
        words = (f"at {point:.12g}" if isinstance(point, float) else f"at {point}" for point in points)

        def read(series: Any) -> Floats:
            found = values(series)
            places = np.interp(found, scale, np.arange(float(scale.size)))  # what is outside is clipped
            return np.where(found == OTHER, float(OTHER), places) if other else np.asarray(places)

        shares = np.asarray((scale - scale[0]) / (scale[-1] - scale[0]))
        labels = ("",) if knots == 1 else tuple(words)
        return Block(self.name, labels, read, points, missing, curved=True, other=other, shares=shares)


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
    stored: ClassVar[str] = NUMBER
    hints: ClassVar[tuple[str, ...]] = ("low =", "high =", 'unit = ""')
    curved: ClassVar[bool] = True

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
        self._set(low=low, high=high, knots=self._check_knots(low, high))
        if not isinstance(self.log, bool):
            rule = f"log is {type(self.log).__name__}, not true or false"
            raise refuse(self.name, rule, "Write true or false.")
        if not isinstance(self.missing, str):
            check_number(self.name, "missing", self.missing)

    def _check_knots(self, low: float | None, high: float | None) -> Knots | None:
        if not isinstance(self.knots, (list, tuple)):
            return None if self.knots is None else check_whole(self.name, "knots", self.knots, 1, 1000)
        inner = tuple(check_number(self.name, "a knot", knot) for knot in self.knots)
        rising = all(a < b for a, b in itertools.pairwise(inner))
        if not rising or low is None or high is None or not all(low < v < high for v in inner):
            raise refuse(
                self.name, "knots do not rise between low and high", "List values strictly between them."
            )
        return inner

    def _words(self) -> str:
        return f"number in {self._describe_range()}{', on a logarithmic scale' if self.log else ''}"

    def invent(self, public: Any, count: int, others: tuple[str, ...] = ()) -> Any:
        return public.uniform(self.low, self.high, count)

    def block(self, knots: Knots, markers: frozenset[str]) -> Block:
        """Return weights of the two knots around a value."""
        low, high = self.ends
        inner = knots if isinstance(knots, tuple) else np.linspace(low, high, max(knots, 2))[1:-1]
        if self.log and not isinstance(knots, tuple):
            inner = low + np.expm1(np.linspace(0.0, np.log1p(high - low), max(knots, 2)))[1:-1]
        at = np.array([low, *inner, high])
        named = isinstance(self.missing, str)
        fill = np.nan if named else float(self.missing)

        def values(series: Any) -> Floats:
            found = self.numbers(series, markers)
            found = np.where(np.isnan(found), fill, found)
            return np.log1p(np.clip(found, low, high) - low) if self.log else found

        missing = str(self.missing) if named else "zero"
        scale = np.log1p(at - low) if self.log else at
        return replace(self._bend(knots, scale, at.tolist(), values, missing), log=self.log)


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
    gaps: ClassVar[tuple[str, ...]] = (*GAPS, "other")
    hints: ClassVar[tuple[str, ...]] = ("levels = []",)

    levels: tuple[str, ...] | None = None
    missing: str = "column"
    source: str = ""
    other: str = "column"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(levels=check_levels(self.name, self.levels, 1))
        self._require_one_of(GAPS, "other")
        self._require_one_of((*GAPS, "other") if self.other == "column" else GAPS)

    def _words(self) -> str:
        return f"category, {self._describe_levels()}{'; others count as none' * (self.other == 'zero')}"

    @property
    def contrast_size(self) -> int:
        """One for two levels, else as many as there are."""
        count = len(self.levels or ())
        return 1 if count == 2 else count

    def block(self, knots: Knots, markers: frozenset[str]) -> Block:
        """Return a one at the level of a value."""
        levels = self.levels or ()

        def read(series: Any) -> Ints:
            return codes_of(series, levels, markers)

        return Block(self.name, levels, read, levels, self.missing, levels=True, other=self.other == "column")


@dataclass(frozen=True)
class Ordinal(Column):
    """One of several levels in a declared order; its effect bends at some of them, or at all."""

    word: ClassVar[str] = "ordinal"
    gaps: ClassVar[tuple[str, ...]] = (*GAPS, "other")
    hints: ClassVar[tuple[str, ...]] = ("levels = []  # in their order",)
    curved: ClassVar[bool] = True
    learnable: ClassVar[bool] = False

    levels: tuple[str, ...] | None = None
    missing: str = "column"
    source: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(levels=check_levels(self.name, self.levels, 2, learnable=False))

    def _words(self) -> str:
        return f"ordinal, {self._describe_levels()}"

    def block(self, knots: Knots, markers: frozenset[str]) -> Block:
        """Return weights of the two knots, which are levels, around a value."""
        levels = self.levels or ()
        count = knots if isinstance(knots, int) else len(levels)
        places = np.linspace(0, len(levels) - 1, min(max(count, 2), len(levels))).round()

        def values(series: Any) -> Floats:
            codes = codes_of(series, levels, markers)
            return np.where(codes == MISSING, np.nan, codes.astype(float))

        points = (levels[int(place)] for place in places)
        return self._bend(knots, places, points, values, self.missing, other=True)


@dataclass(frozen=True)
class Flag(Column):
    """Yes or no: true/false, yes/no, y/n, t/f, on/off, 1/0, in any case.

    Another value of a table in memory counts as missing; a file that holds one is refused.
    """

    word: ClassVar[str] = "flag"
    words: ClassVar[str] = "yes or no (true, t, y, 1; false, f, n, 0), all else missing"
    examples: ClassVar[tuple[str, ...]] = ("true", "false")

    missing: str = "column"
    source: str = ""

    def block(self, knots: Knots, markers: frozenset[str]) -> Block:
        """Return a one for yes."""
        return Block(self.name, ("",), flags_of, ("no", "yes"), self.missing)

    def misfits(self, series: Any, markers: frozenset[str]) -> tuple[Floats, Floats]:
        """Return ones for values that are missing, as all others than yes and no are."""
        gaps = (flags_of(series) == MISSING).astype(float)
        return np.zeros(len(gaps)), gaps


@dataclass(frozen=True)
class Date(Column):
    """A day between two public days; others are clipped. ``knots`` as in :class:`Number`, equally spaced."""

    word: ClassVar[str] = "date"
    words: ClassVar[str] = "date from {0.low} to {0.high}"
    hints: ClassVar[tuple[str, ...]] = ("low = 2000-01-01", "high = 2030-01-01")
    curved: ClassVar[bool] = True

    low: datetime.date | str | None = None
    high: datetime.date | str | None = None
    missing: str = "column"
    source: str = ""
    knots: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set(low=self._check_day("low"), high=self._check_day("high"))
        days: Any = self.low, self.high
        check_bounds(self.name, *(day and float(day.toordinal()) for day in days))
        if self.knots is not None:
            check_whole(self.name, "knots", self.knots, 1, 1000)

    def _check_day(self, field: str) -> datetime.date | None:
        """Return a declared date, given as one or as ISO text."""
        value = getattr(self, field)
        if value is None or (isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)):
            return value
        if isinstance(value, str):
            try:
                return datetime.date.fromisoformat(value)
            except ValueError:
                pass
        raise refuse(self.name, f"{field} is not a date", "Write it as YYYY-MM-DD.")

    def numbers(self, series: Any, markers: Iterable[str]) -> Floats:
        """Return days since the year 2000; nan for a gap."""
        return days_of(self.name, series) - _EPOCH

    @property
    def ends(self) -> tuple[int, int]:
        """Both days, counted as :meth:`numbers` does."""
        low, high = vars(self)["low"], vars(self)["high"]
        return low.toordinal() - _EPOCH, high.toordinal() - _EPOCH

    def invent(self, public: Any, count: int, others: tuple[str, ...] = ()) -> Any:
        days = public.integers(self.ends[0], self.ends[1] + 1, count) + _EPOCH
        return np.array([datetime.date.fromordinal(int(day)) for day in days], dtype=object)

    def block(self, knots: Knots, markers: frozenset[str]) -> Block:
        """Return weights of the two knots around a day."""
        count = knots if isinstance(knots, int) else len(knots)
        at = np.unique(np.linspace(*self.ends, max(count, 2)).round())  # whole days, each once
        days = [datetime.date.fromordinal(int(day) + _EPOCH).isoformat() for day in at]
        return self._bend(knots, at, days, lambda series: self.numbers(series, ()), self.missing)


def day_of(number: float) -> int:
    """Return a day as ``date.toordinal`` counts it, of one counted as :meth:`Date.numbers` does."""
    first, last = datetime.date.min.toordinal(), datetime.date.max.toordinal()
    return int(min(max(round(number) + _EPOCH, first), last))


@dataclass(frozen=True)
class Text(Column):
    """Words, hashed into so many columns; together they have norm one at most."""

    word: ClassVar[str] = "text"
    words: ClassVar[str] = "words hashed into {0.buckets} columns"
    gaps: ClassVar[tuple[str, ...]] = ("zero", "column")
    examples: ClassVar[tuple[str, ...]] = ("some words", "others")
    hints: ClassVar[tuple[str, ...]] = ("buckets = 256",)

    buckets: int = 256
    missing: str = "zero"
    source: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self.name, "buckets", self.buckets, 2, 2**20)

    def size(self, knots: int) -> int:
        """Return how many columns it becomes."""
        return self.buckets

    def block(self, knots: Knots, markers: frozenset[str]) -> WordBlock:
        """Return its words, hashed."""
        return WordBlock(self.name, self.buckets)


@dataclass(frozen=True)
class Target(Column):
    """What is predicted: a category with declared levels, or a number between public bounds.

    Without a ``kind`` levels make it a category and bounds a number; without these it is to be learned.
    Levels that are all whole numbers stay numbers, so that classes are in their order: as texts, "10" would
    come before "2" and the columns of ``predict_proba`` with it. ``ordered`` says that levels are listed in
    their order (:class:`sordino.OrderedLogisticRegression`). ``missing="leave out"`` leaves out the
    records whose target is a gap, each by itself, and the number of the others is public; "refuse" refuses
    them.
    """

    word: ClassVar[str] = "target"
    gaps: ClassVar[tuple[str, ...]] = ("refuse", "leave out")
    hints: ClassVar[tuple[str, ...]] = (
        'levels = ["no", "yes"]  # or, for a number, low = and high =; ordered = true for levels in an order',
        'missing = "leave out"  # where records without a target may be left out',
    )

    kind: str = ""
    levels: tuple[str, ...] | tuple[int, ...] | None = None
    low: float | None = None
    high: float | None = None
    unit: str | None = None
    source: str = ""
    missing: str = "refuse"
    ordered: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.ordered, bool) or (self.ordered and self.levels is None):
            raise refuse(self.name, "ordered is not true or false, or has no levels", "List them in order.")
        if self.kind == "" and (self.levels is not None or self.low is not None or self.high is not None):
            self._set(kind="number" if self.levels is None else "category")
        if self.kind not in ("", "category", "number"):
            raise refuse(self.name, "a target is a category or a number", 'Write kind = "category".')
        other = self.levels if self.kind == "number" else (self.low, self.high)
        if other not in (None, (None, None)):
            raise refuse(
                self.name,
                f"a target that is a {self.kind} has {'low and high' if self.levels else 'levels'} only",
                "Leave out the others.",
            )
        low, high = check_bounds(self.name, self.low, self.high)
        given, texts = self.levels, check_levels(self.name, self.levels, 2)
        self._set(levels=texts, low=low, high=high)
        whole = (
            isinstance(level, Integral) and str(level) == text
            for level, text in zip(given or (), texts or ())
        )
        if texts and all(whole) and not any(isinstance(level, bool) for level in given or ()):
            self._set(levels=tuple(map(int, given or ())))

    @property
    def stored(self) -> str:  # type: ignore[override]
        """A number where it is one."""
        return NUMBER if self.is_numeric else TEXT

    @property
    def is_numeric(self) -> bool:
        """Whether it is a number."""
        return self.kind == "number"

    @property
    def unknown(self) -> str | None:
        """The kind, the levels or the bounds, where they are not declared."""
        if not self.kind:
            return "category or number: give levels, or low and high"
        rest, what = (self.low, BOUNDS) if self.is_numeric else (self.levels, "levels")
        return what if rest is None else None

    def _words(self) -> str:
        rule = "; records without it are left out" if self.missing == "leave out" else ""
        order = "; in this order" if self.ordered else ""
        known = self._describe_range() if self.is_numeric else f"{self._describe_levels()}{order}"
        return f"target, {known}{rule}"


@dataclass(frozen=True)
class Person(Column):
    """Whose record it is: all records of a person together are protected."""

    word: ClassVar[str] = "person"
    stored: ClassVar[str] = AS_IS  # ids stay as the file has them

    source: str = ""


@dataclass(frozen=True)
class Weight(Column):
    """How much a record counts: a survey weight, clipped to [0, ``high``]; a gap counts as zero."""

    word: ClassVar[str] = "weight"
    words: ClassVar[str] = "{0.word} in [0, {0.high:g}]"
    stored: ClassVar[str] = NUMBER
    low: ClassVar[float] = 0.0

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
