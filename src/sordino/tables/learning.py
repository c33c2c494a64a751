"""Bounds and levels that nobody declared, learned from the records for a price."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from sordino.errors import SchemaError
from sordino.execute.local import LocalExecutor, ValueExecutor
from sordino.execute.persons import mean_of_owners
from sordino.kernel import Curator, Plan, Relation, Release, StableCounts
from sordino.kernel.arrays import Floats, Ints
from sordino.problems.covariance import RowMoments
from sordino.problems.robust import Sample
from sordino.problems.scales import REACH, FrequentValues, Grid, NumberTree, ValueKinds
from sordino.runs import Ask, Price, PrivacyReport, Task, run
from sordino.runs.report import Fact, draw_receipt
from sordino.solvers.base import noise_in
from sordino.solvers.heavy.location import border_variances, cells_at, counts_below
from sordino.tables.columns import TOLD, Category, Column, Date, Ignored, Number, Person, Target, Text, day_of
from sordino.tables.schema import Schema
from sordino.tables.values import Frame, factorise
from sordino.values import at_least, at_most

# 2^11 cells, about 6 % wide, on both sides of zero, then 2^7 of one width around what was found: years and
# dates, which differ by little beside what they are, need these.
DEPTH, FINER = 11, 7
_SIDE = np.exp2(np.linspace(-REACH, REACH, 2 ** (DEPTH - 1) - 1))
CELLS = Grid(np.concatenate([[-_SIDE[-1]], -_SIDE[::-1], [0.0], _SIDE, [_SIDE[-1]]]))
# Bounds are the quantiles at this rank and its mirror image, or farther in where noise could reach them.
OUTSIDE, NOISES = 0.01, 3.0
# Where noise forces the ranks farther in than this nothing useful is known.
FARTHEST = 0.25
DIGITS = 3
# The tree ends at this magnitude, and what is smaller than its inverse counts as zero.
FARTHEST_CELL = float(f"{2.0**REACH:.{DIGITS}g}")
REMEDY = "declare low and high, or change the unit"
# Kinds are told roughly: noise beside the other releases, noise widths to be seen, share of numbers.
ROUGH, SEEN, NUMERIC = 2.0, 6.0, 0.8
# The part of delta that pays for values being told that one unit alone has.
RARE = 0.5
# Shares whose noise has a larger deviation than this tell nothing.
HIDDEN = 0.1
# An epsilon above this one is no remedy.
_LARGEST = 1000.0
# The deviation of the noise in a count below a border, in units of that of one node of a tree, by its depth.
_BORDERS = {depth: math.sqrt(float(border_variances(depth).max())) for depth in (DEPTH, FINER)}


class Learned(NamedTuple):
    """A schema with what could be learned filled in, and the guarantee of having looked."""

    schema: Schema
    privacy: PrivacyReport


class End(NamedTuple):
    """The outer border of a cell that holds a private quantile, the width of that cell and the rank."""

    value: float
    width: float
    rank: float


Bounds = tuple[End, End]
"""Released bounds of a column."""


@dataclass(frozen=True)
class ColumnLearner:
    """Noisy trees of counts for the numbers, one release of frequent values for the categories.

    Columns without a kind are asked both ways, and how many of their values are numbers.

    **Privacy.** Gaussian releases and a :class:`StableCounts`. Bounds are read off the trees, so they cost
    nothing more, and so do the cells of the next tree.
    """

    numbers: int
    texts: int
    rare: float
    blanks: int = 0

    def plan(self, problem: Sample) -> Plan:
        """Declare the releases; no data is touched."""
        releases = {}
        if self.numbers:
            for name, depth in (("numbers", DEPTH), ("finer", FINER)):
                releases[name] = Release(NumberTree(self.numbers, depth), problem.gaussian(), mean=False)
        if self.texts:
            stable = StableCounts(delta=self.rare, columns=self.texts)
            releases["levels"] = Release(FrequentValues(self.texts), stable, mean=False)
        if self.blanks:
            rough = problem.gaussian(ROUGH)
            releases["kinds"] = Release(ValueKinds(self.blanks), rough, mean=False)
        return problem.planned(**releases)

    def units_needed(self, plan: Plan, labels: bool) -> float:
        """Return from how many units on a column without gaps can be told, by the noise of a calibrated plan.

        ``labels`` asks for two levels of a target, so for twice as many as one level needs.
        """
        noises = {name: noise_in(plan, name) for name in plan.releases}
        wide, seen = NOISES * math.sqrt(2.0) + NOISES * _BORDERS[DEPTH] / FARTHEST, 0.0
        if self.texts:
            release = plan.releases["levels"]
            threshold = release.mechanism.threshold(release.sensitivity(plan.relation))  # type: ignore[attr-defined]
            seen = (1.0 + labels) * (threshold + NOISES * noises["levels"])
        return max(wide * noises.get("numbers", 0.0), seen, (SEEN + NOISES) * noises.get("kinds", 0.0))

    def run(self, curator: Curator, problem: Sample) -> Iterator[Any]:
        """Yield the bounds and the levels."""
        bounds: list[Bounds | None] = []
        if self.numbers:
            grids = [CELLS] * self.numbers
            for name in ("numbers", "finer"):
                noise, trees = noise_in(curator.plan, name), curator.release(name, grids)
                found = [_ends(t, noise, problem.population, g) for t, g in zip(trees, grids, strict=True)]
                bounds = [_closer(*pair) for pair in zip(bounds or found, found, strict=True)]
                grids = [_finer(ends) for ends in found]
        levels = curator.release("levels") if self.texts else []
        # Whether a column without a kind holds numbers; None where noise hides it.
        kinds: list[bool | None] = []
        if self.blanks:
            least = SEEN * noise_in(curator.plan, "kinds")
            counts = curator.release("kinds").tolist()
            kinds = [None if present < least else number > NUMERIC * present for present, number in counts]
        yield bounds, levels, kinds


def learn_schema(
    schema: Schema,
    table: Any,
    epsilon: float = 0.2,
    delta: float | None = None,
    *,
    relation: str = "add-remove",
    ledger: Any = None,
    dataset_id: str | None = None,
    tell: Callable[[str], object] | None = None,
) -> Learned:
    """Return a schema whose missing bounds and levels are learned from a table.

    Bounds are private quantiles near 1 and 99 %, farther in where the noise is larger; levels are the values
    whose noisy count exceeds a threshold. What the budget cannot tell stays blank. What is declared is not
    touched.

    Parameters
    ----------
    schema : with blanks: numbers, dates or a numeric target without bounds, categories or a target without
        levels, columns without a kind (told apart into numbers and categories only).
    table : the records.
    epsilon, delta : the price, on top of that of every fit; ``delta=None`` means ``min(1e-5, 1/(10 n))``, and
        at most a tenth of the delta that the ledger has for the records: fits need the rest.
    relation, ledger, dataset_id : as in the estimators.
    tell : is called with a sentence on what is asked, what it costs and which epsilon it needs, before any
        is spent.

    Where the noise hides what is asked whatever the records hold, nothing is spent, and the error names the
    epsilon that would do: it follows from the number of records and the budget, which are public.

    **Privacy.** (epsilon, delta)-DP for one record, or for one person where the schema declares them: then
    the first record of each person is used. Half of delta pays for values that one person alone has.
    """
    schema = Schema.of(schema)
    asked = [column for column in schema.unknown if column.learnable]
    if not asked:
        rest = f"but {schema.unknown[0].unknown}, of {schema.unknown[0].name!r}" if schema.unknown else ""
        raise SchemaError(
            f"Every bound and level is declared{rest}: nothing to learn, and nothing was spent."
        )
    frame = schema.checked(table, target=True, person=True)
    persons = schema.persons(frame)
    rows = None if persons is None else np.unique(persons, return_index=True)[1]
    n, unit = (frame.rows, "record") if rows is None else (rows.size, "person")
    if n == 0:
        raise SchemaError("The table has no records: nothing to learn, and nothing was spent.")
    ask = Ask.checked(epsilon, delta, n, ledger, dataset_id).require_number("learn_schema")
    book = ask.open_ledger() if delta is None else None
    tenth = 0.0 if book is None else float(at_least(book.policy(str(dataset_id)).delta / 10, 6))
    ask = replace(ask, delta=min(ask.delta, tenth)) if tenth > 0 else ask
    kind = Relation.parse(relation)
    wanted, sample = Wanted.of(schema), Sample(n, len(asked), kind, unit, secure_noise=True)
    learner = wanted.learner(RARE * ask.delta / kind.contributions)
    executor = wanted.executor(frame, rows, n)
    _require_enough(learner, sample, ask, wanted.has_labels)
    if tell is not None:
        tell(_outlook(learner, sample, ask, wanted))
    receipt = draw_receipt()
    whose = () if rows is None else ("the first record of each person counts, the others do not",)
    task = Task(
        learner,
        sample,
        "learn_schema",
        public=(Fact.number_of(unit, n), "names of the columns"),
        notes=(*(f"column {c.name!r}: {c.unknown} learned" for c in asked), *whose),
        learned=schema.learned,
        receipt=receipt,
    )
    fitted = run(task, executor, ask)
    found = wanted.fill(*fitted.result)
    # Each column that was asked, told or not: which ones were asked followed from what was learned before.
    paid = (*(replace(p, content="") for p in schema.learned), Price.of(fitted.report, receipt))
    blank = {column.name for column in asked}
    columns = [replace(found.get(c.name, c), learned=paid) if c.name in blank else c for c in schema.columns]
    schema = Schema(columns, markers=schema.markers)
    ask.attest(fitted.report, (), schema.attested(schema.learned[-1]))
    return Learned(schema, fitted.report)


def _require_enough(learner: ColumnLearner, sample: Sample, ask: Ask, labels: bool) -> None:
    """Refuse a budget that can tell nothing of so many units, before it is spent."""
    n, unit = sample.population, sample.unit
    least = learner.units_needed(ask.calibrated(learner.plan(sample)), labels)
    if least <= n:
        return
    high = _least_epsilon(learner, sample, ask, labels)
    remedy = f"Pay epsilon = {at_most(high, 2)}" if high < _LARGEST else "No epsilon does"
    raise SchemaError(
        f"{n} {unit}s are too few to learn what is blank with epsilon = {ask.epsilon:g}: {math.ceil(least)} "
        f"are needed at least. Nothing was spent. {remedy}, or declare the bounds and levels."
    )


def _least_epsilon(learner: ColumnLearner, sample: Sample, ask: Ask, labels: bool) -> float:
    """Return from which epsilon on something can be told of so many units, by public numbers."""
    plan, n = learner.plan(sample), sample.population

    def is_enough(epsilon: float) -> bool:
        return learner.units_needed(replace(ask, epsilon=epsilon).calibrated(plan), labels) <= n

    high = ask.epsilon
    while not is_enough(high) and high < _LARGEST:
        high *= 2.0
    low = high / 2.0
    while low > 1e-4 and is_enough(low):
        low, high = low / 2.0, low
    while high < _LARGEST and high / low > 1.02:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _outlook(learner: ColumnLearner, sample: Sample, ask: Ask, wanted: Wanted) -> str:
    """Return what will be asked, what it costs and what it needs, in a sentence."""
    k = len(wanted.blanks)
    asked = {"kinds": k, "bounds": len(wanted.numeric) - k, "levels": len(wanted.texts) - k}
    words = ", ".join(f"{what} of {n} column{'s' * (n > 1)}" for what, n in asked.items() if n)
    least = _least_epsilon(learner, sample, ask, wanted.has_labels)
    return (
        f"Asks for {words}. It costs epsilon {ask.epsilon:g}, delta {ask.delta:g} per {sample.unit}, once; "
        f"{sample.population} {sample.unit}s need epsilon {at_most(least, 2)} at least."
    )


@dataclass(frozen=True)
class Wanted:
    """The columns with blanks, by what is asked of them."""

    blanks: tuple[Column, ...]
    numeric: tuple[Column, ...]
    texts: tuple[Column, ...]
    markers: tuple[str, ...]

    @classmethod
    def of(cls, schema: Schema) -> Wanted:
        """Sort the blanks of a schema; those without a kind come first and are asked both ways."""
        asked = [c for c in schema.unknown if c.learnable]
        blanks = tuple(c for c in asked if not (c.kind if isinstance(c, Target) else c.word))
        numeric = tuple(c for c in asked if c not in blanks and c.is_numeric)
        texts = tuple(c for c in asked if c not in (*blanks, *numeric))
        return cls(blanks, (*blanks, *numeric), (*blanks, *texts), schema.markers)

    @property
    def has_labels(self) -> bool:
        """Whether the labels of a target are asked for."""
        return any(isinstance(column, Target) for column in self.texts)

    def learner(self, rare: float) -> ColumnLearner:
        """Return what asks about these columns."""
        return ColumnLearner(len(self.numeric), len(self.texts), rare, len(self.blanks))

    def executor(self, frame: Frame, rows: Ints | None, n: int) -> ValueExecutor:
        """Return the holder of these columns of a table."""
        chosen = slice(None) if rows is None else rows
        columns = {c.name: frame.column(c.name) for c in (*self.numeric, *self.texts)}
        numbers = tuple(c.numbers(columns[c.name], self.markers)[chosen] for c in self.numeric)
        texts = []
        for codes, found in (factorise(columns[c.name]) for c in self.texts):
            texts.append((codes[chosen], [None if text in self.markers else text for text in found]))
        return ValueExecutor(n, numbers, tuple(texts))

    def fill(
        self, bounds: list[Bounds | None], levels: list[dict[str, float]], kinds: list[bool | None]
    ) -> dict[str, Column]:
        """Return the columns with what was released."""
        k = len(self.blanks)
        found = {c.name: _with_bounds(c, b) for c, b in zip(self.numeric[k:], bounds[k:])}
        found |= {c.name: _with_levels(c, counts) for c, counts in zip(self.texts[k:], levels[k:])}
        for column, numeric, bound, counts in zip(self.blanks, kinds, bounds, levels):
            if numeric is not None:
                numeric = numeric and not (isinstance(column, Target) and len(counts) == 2)  # labels 0 and 1
                word = "number" if numeric else "category"
                made = (Number if numeric else Category)(column.name)
                plain = replace(column, kind=word) if isinstance(column, Target) else made
                found[column.name] = _with_bounds(plain, bound) if numeric else _with_levels(plain, counts)
        return found


def _ends(nodes: Floats, noise: float, population: int, grid: Grid) -> Bounds | None:
    """Return bounds read off a noisy tree of counts; None where its noise hides them."""
    total, depth = float(np.clip(nodes[:2].sum(), 1.0, population)), grid.borders.size.bit_length() - 1
    rank = max(OUTSIDE, NOISES * _BORDERS[depth] * noise / total)
    if rank > FARTHEST:
        return None
    below, borders = counts_below(nodes, depth, total), grid.borders
    low, high = cells_at(below, total, np.array([rank, 1.0 - rank]) * total)[1].tolist()
    widths = np.diff(borders)[[low, high]].tolist()
    return End(float(borders[low]), widths[0], rank), End(float(borders[high + 1]), widths[1], 1.0 - rank)


def _closer(old: Bounds | None, new: Bounds | None) -> Bounds | None:
    """Return of either end the one that the narrower cell tells."""
    if old is None or new is None:
        return old
    low, high = (min(pair, key=lambda end: end.width) for pair in zip(old, new, strict=True))
    return low, high


def _finer(found: Bounds | None) -> Grid:
    """Return cells of one width, as far beyond the ends on both sides as half of what is between them."""
    low, high = (-1.0, 1.0) if found is None else (found[0].value, found[1].value)
    beyond = (high - low) / 2.0
    return Grid(np.linspace(low - beyond, high + beyond, 2**FINER + 1))


def _rounded(low: float, high: float) -> tuple[float, float]:
    """Return two ends in three digits or more, rounded outwards by a hundredth of their distance at most."""
    low, high = (end if abs(end) > 2.0**-REACH else 0.0 for end in (low, high))
    if low == high:
        return (float(f"{low:.{DIGITS}g}"),) * 2
    sizes = (math.log10(min(high - low, abs(end) or math.inf)) for end in (low, high))
    units = [10.0 ** (math.floor(size) + 1 - DIGITS) for size in sizes]
    ends = units[0] * math.floor(low / units[0]), units[1] * math.ceil(high / units[1])
    return float(f"{ends[0]:.15g}"), float(f"{ends[1]:.15g}")


def _with_bounds(column: Any, bounds: Bounds | None) -> Column:
    if bounds is None:
        return replace(column, source="not learned: too few records for this budget")
    low, high = _rounded(bounds[0].value, bounds[1].value)
    source = f"{TOLD}private quantiles at {bounds[0].rank:.2g} and {bounds[1].rank:.2g}, rounded outwards"
    if max(abs(low), abs(high)) >= FARTHEST_CELL:
        if low == high:  # where beyond is not known, and bounds around the end would clip every value
            return replace(column, source=f"not learned: values beyond {low:g}; {REMEDY}")
        source += f", which end at {FARTHEST_CELL:g}; {REMEDY}"
    if low == high:  # zero fills the column
        if not isinstance(column, Date):
            source += f"; what is within {2.0**-REACH:.2g} counts as zero: if not all is zero, {REMEDY}"
        low, high = -0.5, 0.5
    if isinstance(column, Date):
        first = min(day_of(low), datetime.date.max.toordinal() - 1)
        days = [datetime.date.fromordinal(day) for day in (first, max(day_of(high), first + 1))]
        return replace(column, low=days[0], high=days[1], source=source)
    return replace(column, low=low, high=high, source=source)


def _with_levels(column: Any, counts: dict[str, float]) -> Column:
    if isinstance(column, Target) and len(counts) < 2:
        return replace(column, source="not learned: fewer than two labels above the threshold")
    if not counts:
        return replace(column, source="not learned: no value above the threshold")
    source = f"{TOLD}{len(counts)} values whose noisy count exceeds a threshold"
    levels: Any = tuple(counts)
    if isinstance(column, Target) and all(text.removeprefix("-").isdecimal() for text in levels):
        levels = sorted(map(int, levels))  # in their order, as classes are
    return replace(column, levels=levels, source=source)


# ------------------------------------------------- How well a declared schema fits its records, for a price


class Shares(NamedTuple):
    """For each column the noisy shares of records that are clipped or "other", and missing; their noise."""

    columns: tuple[str, ...]
    outside: Floats
    missing: Floats
    noise: float
    privacy: PrivacyReport


@dataclass(frozen=True)
class ShareCounter:
    """One noisy mean of rows with a one where a value is outside of what is declared, or missing.

    **Privacy.** A value is outside or missing or neither, so a row of d columns has norm at most sqrt(d), and
    so has the mean of a person's rows.
    """

    columns: int

    def _query(self) -> RowMoments:
        return RowMoments(math.sqrt(self.columns), 0.01)

    def plan(self, problem: Sample) -> Plan:
        """Declare the release; no data is touched."""
        return problem.planned(shares=Release(self._query(), problem.gaussian()))

    def run(self, curator: Curator, problem: Sample) -> Iterator[Any]:
        """Yield the shares and the deviation of their noise."""
        shares = self._query().read(curator.release("shares"))[0]
        yield np.clip(shares, 0.0, 1.0), noise_in(curator.plan, "shares") / problem.population


def value_shares(
    schema: Schema,
    table: Any,
    epsilon: float = 0.05,
    delta: float | None = None,
    *,
    relation: str = "add-remove",
    ledger: Any = None,
    dataset_id: str | None = None,
) -> Shares:
    """Return how many values of each column are clipped, "other" or missing under a complete schema.

    Parameters are those of :func:`learn_schema`. Where noise would hide the shares nothing is spent, and the
    error names the epsilon that would do.

    **Privacy.** (epsilon, delta)-DP for one record, or for one person where the schema declares them: then a
    person counts once, with the mean of all rows.
    """
    schema = Schema.of(schema)
    schema.require_known()
    # Records without a target are kept: their share is asked too.
    kept = [replace(c, missing="refuse") if isinstance(c, Target) else c for c in schema.columns]
    frame = replace(schema, columns=tuple(kept)).checked(table, target=schema.target is not None, person=True)
    asked = [c for c in schema.columns if not isinstance(c, (Text, Person, Ignored))]
    markers = frozenset(schema.markers)
    rows = np.stack([found for c in asked for found in c.misfits(frame.column(c.name), markers)], axis=1)
    persons = schema.persons(frame)
    rows, unit = (rows, "record") if persons is None else (mean_of_owners(rows, persons), "person")
    ask = Ask.checked(epsilon, delta, len(rows), ledger, dataset_id)
    sample = Sample(len(rows), rows.shape[1], Relation.parse(relation), unit)
    public, counter = (Fact.number_of(unit, len(rows)), *schema.facts), ShareCounter(len(asked))
    noise = noise_in(ask.calibrated(counter.plan(sample)), "shares") / len(rows)
    if noise > HIDDEN:
        raise SchemaError(
            f"{len(rows)} {unit}s are too few to tell shares with epsilon = {ask.epsilon:g}: their noise "
            f"would be {noise:.0%}. Nothing was spent. Pay epsilon = "
            f"{at_most(ask.epsilon * noise / HIDDEN, 2)}."
        )
    task = Task(counter, sample, "schema check", public, learned=schema.learned)
    fitted = run(task, LocalExecutor(rows, None, math.sqrt(len(asked))), ask)
    shares, noise = fitted.result
    return Shares(tuple(c.name for c in asked), shares[0::2], shares[1::2], noise, fitted.report)
