"""Private counts, histograms, cross tables, and statistics by declared groups."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from sordino.errors import InvalidInputError, UnsupportedError, import_extra
from sordino.estimators.statistics import (
    PrivateFloat,
    bounds_fact,
    check_bounds,
    check_numbers,
    check_probabilities,
    check_share,
    prices_of,
)
from sordino.execute import LocalExecutor, executor_of, hold_columns, in_dask
from sordino.execute.persons import SharedExecutor, is_missing
from sordino.kernel import Relation
from sordino.kernel.arrays import Floats, Ints
from sordino.problems.robust import Sample
from sordino.runs import Ask, Price, PrivacyReport, Task, run
from sordino.runs.report import Fact, Source, at_most, each_once
from sordino.solvers import statistic
from sordino.solvers.heavy.ranks import Cells
from sordino.tables.columns import Column, Flag
from sordino.tables.values import codes_of, flag_of, flags_of, frame_of, level_text, plain
from sordino.values import check_count, check_flag, check_mapping, html_table, refuse_unreadable

MOST_CELLS = 1_000_000
_FLOATING = re.compile(r"(torch\.)?(b?float|double|half)", re.IGNORECASE)
"""How NumPy, pandas, polars, Arrow, Dask and torch spell a floating-point type."""


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
            flag = isinstance(values, Flag)
            known = ("no", "yes") if flag else tuple(getattr(values, "levels", None) or ())
            if not known:
                raise InvalidInputError(f"Expected a column with declared levels for {name!r}, got another.")
            return ColumnLevels(name, known, None, values.learned, flag)
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
        labels = [f"[{a:g}, {b:g})" for a, b in itertools.pairwise(borders)]
        return cls(name, (*labels[:-1], f"{labels[-1][:-1]}]"), borders)

    def codes(self, column: Any) -> Ints:
        """Return the number of each record's level, -1 for a level that was not declared."""
        refuse_unreadable(column)
        values = column if isinstance(column, np.ndarray) else np.asarray(column, dtype=object)
        if values.ndim != 1:
            raise InvalidInputError(f"Expected {self.name!r} as one column, got shape {values.shape}.")
        return self._match_levels(values) if self.edges is None else self._place_in_cells(values)

    def _match_levels(self, values: np.ndarray) -> Ints:
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
        return np.array([_level_number(known, v) for v in values.tolist()], dtype=np.int64)

    def _place_in_cells(self, values: np.ndarray) -> Ints:
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

    def codes(self, column: Any) -> Ints:
        """Return 0 for a record whose value is true, 1 or a word for yes, and -1 for other records.

        **Privacy.** Each value is read by itself: were an odd one refused, the refusal would tell of it.
        """
        refuse_unreadable(column)
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

    flag: bool = False  # no and yes, in any of their words

    def codes(self, column: Any) -> Ints:
        """Return the number of each record's level, -1 for a level that was not declared."""
        refuse_unreadable(column)
        series = frame_of({self.name: column}).column(self.name)
        texts = tuple(map(str, self.labels))
        return np.maximum(flags_of(series) if self.flag else codes_of(series, texts, frozenset()), -1)


def _level_number(known: dict[Any, int], value: Any) -> int:
    try:
        return known.get(value, -1)
    except TypeError:  # a list or the like is no level
        return -1


@dataclass(frozen=True, eq=False)
class Keys:
    """The declared levels of a grouping, and each record's cell; in Dask cells are found at each question."""

    levels: tuple[Levels, ...]
    cell: Ints | None
    columns: Sequence[Any] = ()
    owners: Any = None
    most: int | None = None

    def __repr__(self) -> str:
        return f"Keys({', '.join(f'{k.name}: {len(k.labels)} levels' for k in self.levels)})"

    @classmethod
    def of(
        cls, columns: Mapping[str, Any], levels: tuple[Levels, ...], owners: Any = None, most: Any = None
    ) -> Keys:
        """Number the cells of the product of all levels; a record with an undeclared level has none."""
        size = math.prod(len(level.labels) for level in levels)
        if size > MOST_CELLS:
            raise InvalidInputError(f"Expected at most {MOST_CELLS:,} cells, got {size:,}.")
        given = [columns[level.name] for level in levels]
        if not any(map(in_dask, given)):
            return cls(levels, _require_rows(cells_of(levels, given)), (), owners, most)
        if owners is not None or most is not None:
            raise UnsupportedError(
                "Persons need all rows in one place: the records of one may lie in several parts. Bring the "
                "columns into one place (.compute())."
            )
        return cls(levels, None, given)

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
        """Who is protected: persons where they are known, or their largest number of rows is."""
        return "record" if self.owners is None and self.most is None else "person"

    def records(self, values: Any = None) -> Any:
        """Return the cell and the value of each record; of persons, with the part that a row stands for."""
        if self.cell is None:
            columns = [*self.columns, *([] if values is None else [values])]
            return _require_rows(hold_columns(columns, partial(_part, self.levels)))
        x = np.zeros(len(self.cell)) if values is None else self._numbers(values, len(self.cell))
        rows = np.stack([self.cell.astype(float), x], axis=1)
        if self.unit == "record":
            return rows
        return SharedExecutor(LocalExecutor(rows, None, None), self.owners, self.most)

    @staticmethod
    def _numbers(values: Any, count: int) -> Floats:
        data, flat = (None, False) if in_dask(values) else check_numbers(values)
        if not isinstance(data, np.ndarray) or not flat or len(data) != count:
            raise InvalidInputError(f"Expected one number per record, {count} of them.")
        return data[:, 0]


def _require_rows(rows: Any) -> Any:
    if not len(rows):
        raise InvalidInputError("Expected columns of one length, at least 1, got others.")
    return rows


def cells_of(levels: Sequence[Levels], columns: Sequence[Any]) -> Ints:
    """Return the cell of each record, -1 for none."""
    codes = [level.codes(column) for level, column in zip(levels, columns, strict=True)]
    if len({len(c) for c in codes}) != 1:
        raise InvalidInputError("Expected columns of one length, at least 1, got others.")
    there = np.all([c >= 0 for c in codes], axis=0)
    shape = tuple(len(level.labels) for level in levels)
    flat = np.ravel_multi_index(tuple(np.where(there, c, 0) for c in codes), shape)
    return np.where(there, flat, -1)


def _part(levels: tuple[Levels, ...], columns: tuple[Any, ...]) -> Floats:
    """Return the cells and values of one part."""
    keys, values = columns[: len(levels)], columns[len(levels) :]
    if not len(keys[0]):
        return np.zeros((0, 2))
    return Keys(levels, cells_of(levels, keys)).records(*values)


# ------------------------------------------ Released tables: numbers by cell, with intervals and the report


@dataclass(frozen=True, eq=False, repr=False)
class PrivateTable:
    """Numbers by cell that were released together.

    Attributes
    ----------
    statistic : what the numbers are, for example "count" or "mean".
    keys : the names of the keys.
    rows : the labels of each cell, in the order of the numbers.
    value, low, high : the numbers and the ends of their intervals, each of which holds by itself.
    shape : the number of levels of each key (and of probabilities, for several quantiles).
    confidence : of the intervals.
    privacy : the :class:`sordino.PrivacyReport`.
    model : the digest of the model, of scores.
    """

    statistic: str
    keys: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    value: Floats
    low: Floats
    high: Floats
    shape: tuple[int, ...]
    confidence: float
    privacy: PrivacyReport = field(repr=False)
    model: str = field(default="", repr=False)

    def __repr__(self) -> str:
        lines = [f"{', '.join(map(str, row))}: {v:.6g}" for row, v in zip(self.rows[:8], self.value.ravel())]
        more = ", ..." if len(self.rows) > 8 else ""
        what = f"{self.statistic} by {', '.join(self.keys)}, epsilon={at_most(self.privacy.epsilon)}"
        return f"PrivateTable({what}; {', '.join(lines)}{more})"

    def __len__(self) -> int:
        return len(self.rows)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """Return the numbers with one axis per key."""
        return np.array(self.value.reshape(self.shape), dtype=dtype)

    def __getitem__(self, label: Any) -> float:
        """Return the number of a cell by its label, or by a tuple of labels."""
        return float(self.value[self._place(label)])

    def interval(self, label: Any) -> tuple[float, float]:
        """Return the interval of a cell by its label, or by a tuple of labels."""
        place = self._place(label)
        return float(self.low[place]), float(self.high[place])

    def _place(self, label: Any) -> int:
        row = label if isinstance(label, tuple) else (label,)
        if row not in self.rows:
            raise InvalidInputError(
                f"Expected a cell by {', '.join(self.keys)}, such as {self.rows[0]!r}, got {label!r}."
            )
        return self.rows.index(row)

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per cell: its labels, the number and the two ends."""
        names = (*self.keys, self.statistic, "low", "high")
        numbers = zip(self.value.tolist(), self.low.tolist(), self.high.tolist(), strict=True)
        return [
            dict(zip(names, (*row, *cell), strict=True)) for row, cell in zip(self.rows, numbers, strict=True)
        ]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per cell."""
        return import_extra("pandas", "pandas").DataFrame.from_records(self.records())

    def plot(self, axes: Any = None) -> Any:
        """Draw the numbers with their intervals as error bars; only released numbers are drawn."""
        if axes is None:
            from matplotlib.figure import Figure

            axes = Figure(figsize=(6, 1.2 + 0.28 * len(self.rows)), layout="constrained").subplots()
        where = np.arange(len(self.rows))[::-1]
        reach = np.abs(np.stack([self.value - self.low, self.high - self.value]))
        axes.errorbar(self.value, where, xerr=reach, fmt="o", color="tab:blue", ecolor="0.6", capsize=2)
        axes.set_yticks(where, [", ".join(map(str, row)) for row in self.rows])
        axes.set_ylabel(", ".join(self.keys))
        axes.set_xlabel(
            f"{self.statistic}, {self.confidence:.0%} intervals "
            f"(epsilon = {at_most(self.privacy.epsilon, 3)})"
        )
        return axes

    def _repr_html_(self) -> str:
        rows = [[f"{x:.6g}" if isinstance(x, float) else str(x) for x in r.values()] for r in self.records()]
        caption = f"{self.confidence:.0%} intervals; epsilon = {at_most(self.privacy.epsilon)}"
        return html_table((*self.keys, self.statistic, "low", "high"), rows, caption)


@dataclass(frozen=True)
class Terms:
    """What all statistics of this module share: budget, confidence, relation, ledger."""

    epsilon: float = 1.0
    delta: float | None = None
    confidence: float = 0.95
    relation: str = "add-remove"
    secure_noise: bool = True
    ledger: Any = None
    dataset_id: str | None = None
    learned: tuple[Price, ...] = ()
    title: str = ""


def count(
    x: Any,
    epsilon: float = 1.0,
    delta: float | None = None,
    *,
    levels: Any = None,
    groups: Any = None,
    rows_per_person: int | None = None,
    confidence: float = 0.95,
    relation: str = "add-remove",
    secure_noise: bool = True,
    ledger: Any = None,
    dataset_id: str | None = None,
) -> PrivateFloat | PrivateTable:
    r"""Return how many records are true, or how many have each declared level.

    Parameters
    ----------
    x : one column: of yes or no (True, 1 or a word for yes counts, all else does not; a column whose type is
        floating-point is refused), or of anything with ``levels``.
    epsilon, delta : the budget; ``delta=None`` means ``min(1e-5, 1 / (10 n))``.
    levels : the public levels to count; what has another one is not counted. None counts what is true. A
        column of a :class:`sordino.Schema` stands for its own, and for what was paid if they were learned.
    groups : the person who owns each record; then each person counts once, split evenly over all rows, and
        the guarantee is for persons.
    rows_per_person : so many rows of each person count in full, one by one, for so many times the noise.
        Without ``groups`` it is a declaration: nobody has more rows. The guarantee is for persons.
    confidence : of the intervals, which hold the number in these data; each holds by itself.
    relation, secure_noise, ledger, dataset_id : as in :func:`sordino.mean`.

    Returns
    -------
    PrivateFloat or PrivateTable
        A whole number with ``privacy`` and ``interval``, or a table of them. The noisy counts are rounded to
        whole numbers from 0 to n: post-processing, which costs nothing.

    **Privacy.** (epsilon, delta)-DP for one record (one person with ``groups``): one Gaussian release of
    sensitivity 1 (sqrt 2 where a record is replaced). The number of records (persons) is public.

    Examples
    --------
    >>> import numpy as np, sordino
    >>> found = sordino.count(np.arange(1000) < 300, epsilon=1.0)
    >>> found.interval[0] <= found <= found.interval[1]
    True
    """
    terms = Terms(epsilon, delta, confidence, relation, secure_noise, ledger, dataset_id)
    owned: dict[str, Any] = {"groups": groups, "rows_per_person": rows_per_person}
    if levels is not None:
        return group_by(x, levels=levels, **owned)._release_table("count", "counts", terms)
    if _FLOATING.match(str(getattr(x, "dtype", getattr(x, "type", "")))):  # the declared type, not values
        raise InvalidInputError(
            "Expected one column of yes and no, got one of floating-point numbers, of which hardly any is a "
            "yes. Pass what you count (x == 1, x > 65), levels=[...], or ask for a histogram."
        )
    keys = Keys.of({"group": x}, (Flags("group", (True,)),), groups, check_most(rows_per_person))
    table = GroupBy(keys)._release_table("count", "counts", terms)
    return PrivateFloat(float(table.value[0]), table.privacy, (float(table.low[0]), float(table.high[0])))


def histogram(
    x: Any,
    edges: Any,
    epsilon: float = 1.0,
    delta: float | None = None,
    *,
    groups: Any = None,
    rows_per_person: int | None = None,
    **options: Any,
) -> PrivateTable:
    """Return how many numbers lie between public ``edges``: ``[e0, e1), ..., [ek-1, ek]``, as NumPy has it.

    What lies outside is not counted. Parameters, result, ``options`` (``confidence``, ``relation``,
    ``secure_noise``, ``ledger``, ``dataset_id``) and **Privacy** as in :func:`count`.
    """
    keys = group_by(x, edges=edges, groups=groups, rows_per_person=rows_per_person)
    return keys.count(epsilon, delta, **options)


def crosstab(
    rows: Any,
    columns: Any,
    epsilon: float = 1.0,
    delta: float | None = None,
    *,
    levels: Any,
    groups: Any = None,
    rows_per_person: int | None = None,
    **options: Any,
) -> PrivateTable:
    """Return how many records have each pair of declared levels; ``levels`` are two lists of them.

    ``np.asarray(table)`` has one row per level of ``rows``. Parameters, result, ``options`` and **Privacy**
    as in :func:`histogram`.
    """
    try:
        first, second = levels
    except (TypeError, ValueError):
        raise InvalidInputError("Expected levels as two lists, of the rows and of the columns.") from None
    keys, by = {"rows": rows, "columns": columns}, {"rows": first, "columns": second}
    owned: dict[str, Any] = {"groups": groups, "rows_per_person": rows_per_person}
    return group_by(keys, levels=by, **owned).count(epsilon, delta, **options)


def check_most(rows: Any) -> int | None:
    """Return how many rows of a person count, checked."""
    return check_count("rows_per_person", rows, 1, 10**9, "It is the most rows that one person has.")


def group_by(
    keys: Any,
    *,
    levels: Any = None,
    edges: Any = None,
    groups: Any = None,
    rows_per_person: int | None = None,
) -> GroupBy:
    """Return declared groups of records, whose counts, sums, means and quantiles can be asked.

    Parameters
    ----------
    keys : one column, or several by name (a dict or a DataFrame); cells are all combinations of their levels.
        Columns may lie in Dask, all of them and the numbers that are asked about: see the page on clusters.
    levels : the public levels of the column, or of each by name.
    edges : public edges instead, for numbers: intervals as in :func:`histogram`. By name for several keys.
    groups, rows_per_person : the person who owns each record, and how many rows of a person count, as in
        :func:`count`.

    **Privacy.** Free: nothing is read from the data but which declared level a record has. A record with
    another one is in no group. Each statistic that is asked is paid for by itself.

    Examples
    --------
    >>> import sordino
    >>> wards = sordino.group_by(["a", "b", "a", "a"] * 500, levels=["a", "b"])
    >>> table = wards.mean([20.0, 30.0, 22.0, 24.0] * 500, epsilon=1.0, bounds=(0, 100))
    >>> [row[0] for row in table.rows]
    ['a', 'b']
    """
    if isinstance(keys, Mapping) or (hasattr(type(keys), "columns") and getattr(keys, "ndim", 2) == 2):
        columns = {str(name): keys[name] for name in getattr(keys, "columns", keys)}
        names = list(columns)
        labels = {} if levels is None else check_mapping("levels", levels)
        borders = {} if edges is None else check_mapping("edges", edges)
    else:
        names, columns = ["group"], {"group": keys}
        labels, borders = ({} if d is None else {"group": d} for d in (levels, edges))
    if not names or sorted([*labels, *borders]) != sorted(names):
        raise InvalidInputError(
            "Expected levels or edges for every key, and for no other column. Declare them; reading them "
            "from the data would leak."
        )
    known = tuple(Levels.of(n, labels[n]) if n in labels else Levels.between(n, borders[n]) for n in names)
    return GroupBy(Keys.of(columns, known, groups, check_most(rows_per_person)))


@dataclass(frozen=True, eq=False)
class GroupBy:
    """Records in declared groups; made by :func:`group_by`.

    Every method takes the budget and the options of :func:`count` and returns a :class:`PrivateTable` with
    one row per group. One record is in one group at most, so all groups together cost what one does.
    """

    keys: Keys

    def count(self, epsilon: float = 1.0, delta: float | None = None, **options: Any) -> PrivateTable:
        """Return how many records each group has."""
        return self._release_table("count", "counts", _terms(epsilon, delta, options))

    def sum(
        self, x: Any, epsilon: float = 1.0, delta: float | None = None, *, bounds: Any, **options: Any
    ) -> PrivateTable:
        """Return the sum of the numbers of each group, clipped to public ``bounds``; intervals hold the sum.

        **Privacy.** One Gaussian release of sensitivity ``max(|low|, |high|)``.
        """
        return self._release_table("sum", "sums", _terms(epsilon, delta, options), x, bounds)

    def mean(
        self, x: Any, epsilon: float = 1.0, delta: float | None = None, *, bounds: Any, **options: Any
    ) -> PrivateTable:
        """Return the mean of the numbers of each group, clipped to public ``bounds``.

        An interval holds the mean of the law behind the group (after the clip): noise and sampling error. A
        group that hardly stands out of the noise gets an answer that says nothing and an interval from
        bound to bound.

        **Privacy.** One Gaussian release of counts, sums and sums of squares.
        """
        return self._release_table("mean", "means", _terms(epsilon, delta, options), x, bounds)

    def quantile(
        self,
        x: Any,
        q: Any,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Any,
        resolution: int | None = None,
        **options: Any,
    ) -> PrivateTable:
        """Return quantiles of the numbers of each group between public ``bounds``, any number for one price.

        With several probabilities the table has one row per group and probability. Intervals hold all sample
        quantiles and the law's, as those of :func:`sordino.quantiles`.

        **Privacy.** Selections by rank, one for all groups, and Gaussian counts of groups and of their cells.
        """
        terms, wanted = _terms(epsilon, delta, options), check_probabilities(q)
        depth = check_count("resolution", resolution, 2, 20, "There are 2**resolution cells.")
        own = {"probabilities": tuple(wanted.tolist()), "depth": depth}
        table = self._release_table("quantile", "quantiles", terms, x, bounds, **own)
        return _spread(table, wanted, np.ndim(q) == 0)

    def _release_table(
        self, name: str, solved: str, terms: Terms, values: Any = None, bounds: Any = None, **own: Any
    ) -> PrivateTable:
        """Run a row of the registry; all but counts have numbers and bounds of them."""
        public: tuple[str, ...] = ()
        if solved != "counts":
            limits = check_bounds(bounds)
            if limits is None:
                raise InvalidInputError("Expected bounds as two public numbers; numbers are clipped to them.")
            own["bounds"], public = limits, (bounds_fact(limits, bounds),)
        own |= {"cells": self.keys.size, "confidence": check_share("confidence", terms.confidence)}
        rows, unit = self.keys.records(values), self.keys.unit
        secure = check_flag("secure_noise", terms.secure_noise)
        n = rows.population if unit == "person" else len(rows)
        sample = Sample(n, 1, Relation.parse(terms.relation), unit, secure)
        known = (p for k in self.keys.levels for p in k.learned)
        paid = each_once((*known, *prices_of(bounds), *terms.learned))
        title = terms.title or name
        ask = Ask.checked(terms.epsilon, terms.delta, n, terms.ledger, terms.dataset_id)
        if solved == "quantiles":
            own |= {"epsilon": ask.epsilon, "once": ask.ledger is None}
        said, notes = self._whose(n)
        said += [
            Fact(f"levels of {k.name}: {len(k.labels)} {origin}", origin)
            for k in self.keys.levels
            for origin in [Source.LEARNED if k.learned else Source.DECLARED]
        ]
        task = Task(statistic(solved, sample, **own), sample, title, (*said, *public), notes, paid)
        fitted = run(task, rows if unit == "person" else executor_of(rows, None, data_norm=None), ask)
        found: Cells = fitted.result
        names = tuple(level.name for level in self.keys.levels)
        # Rows that count in full were one part in `most`.
        full = (self.keys.most or 1) if name in ("count", "sum") else 1
        numbers = (full * found.value, full * found.low, full * found.high)
        shape = self.keys.shape
        return PrivateTable(name, names, self.keys.rows(), *numbers, shape, terms.confidence, fitted.report)

    def _whose(self, n: int) -> tuple[list[Fact], tuple[str, ...]]:
        """Return the public facts and the notes on who counts how."""
        if self.keys.unit == "record":
            return [Fact.number_of("record", n)], ()
        most = self.keys.most
        if most is None:
            return [Fact.number_of("person", n)], ("each person counts once, split evenly over all rows",)
        if self.keys.owners is None:
            said = Fact(f"no person has more than {most} rows, declared", most=most)
            return [Fact.number_of("record", n), said], ()
        return [Fact.number_of("person", n)], (f"each row counts, of a person {most} rows at most",)


def _spread(table: PrivateTable, wanted: np.ndarray, single: bool) -> PrivateTable:
    """Return the table of (cells, probabilities) as one with a row for each of both."""
    value, low, high = (a.reshape(-1) for a in (table.value, table.low, table.high))
    if single:
        return replace(table, value=value, low=low, high=high)
    rows = tuple((*row, float(q)) for row in table.rows for q in wanted)
    keys, shape = (*table.keys, "q"), (*table.shape, len(wanted))
    return replace(table, keys=keys, rows=rows, value=value, low=low, high=high, shape=shape)


def _terms(epsilon: float, delta: float | None, options: dict[str, Any]) -> Terms:
    unknown = [name for name in options if name not in Terms.__dataclass_fields__]
    if unknown:
        raise InvalidInputError(
            "Expected options among confidence, relation, secure_noise, ledger and dataset_id, got "
            f"{unknown[0]!r}; levels, edges, groups and rows_per_person belong in group_by(...)."
        )
    return Terms(epsilon, delta, **options)
