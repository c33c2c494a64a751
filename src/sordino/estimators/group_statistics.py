"""Private counts, histograms, cross tables, and statistics by declared groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sordino.checks import check_count, check_flag, check_mapping
from sordino.errors import InvalidInputError
from sordino.estimators.group_columns import Flags, Keys, Levels
from sordino.estimators.group_results import PrivateTable
from sordino.estimators.results import PrivateFloat
from sordino.estimators.statistics_input import (
    checked_bounds,
    checked_probabilities,
    checked_share,
    prices_of,
    said_bounds,
)
from sordino.execute import executor_of
from sordino.kernel import Relation
from sordino.problems.sample import Sample
from sordino.runs import Ask, run_privately
from sordino.runs.price import each_once
from sordino.solvers.heavy.groups import CellCounts, CellMeans, CellQuantiles, Cells, CellSums


@dataclass(frozen=True)
class Terms:
    """What all statistics of this module share: budget, confidence, relation, ledger."""

    epsilon: float = 1.0
    delta: float | None = None
    confidence: float = 0.95
    relation: str = "add-remove"
    secure_noise: bool = False
    ledger: Any = None
    dataset_id: str | None = None


def count(
    x: Any,
    epsilon: float = 1.0,
    delta: float | None = None,
    *,
    levels: Any = None,
    groups: Any = None,
    confidence: float = 0.95,
    relation: str = "add-remove",
    secure_noise: bool = False,
    ledger: Any = None,
    dataset_id: str | None = None,
) -> PrivateFloat | PrivateTable:
    r"""Return how many records are true, or how many have each declared level.

    Parameters
    ----------
    x : one column: of yes or no (True, 1 or a word for yes counts, all else does not), or of anything with
        ``levels``.
    epsilon, delta : the budget; ``delta=None`` means ``min(1e-5, 1 / (10 n))``.
    levels : the public levels to count; what has another one is not counted. None counts what is true. A
        column of a :class:`sordino.Schema` stands for its own, and for what was paid if they were learned.
    groups : the person who owns each record; then the *first* record of each person counts, and the guarantee
        is for persons.
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
    if levels is not None:
        return group_by(x, levels=levels, groups=groups)._counted(terms)
    table = GroupBy(Keys.of({"group": x}, (Flags.named("group"),), groups))._counted(terms)
    return PrivateFloat(float(table.value[0]), table.privacy, (float(table.low[0]), float(table.high[0])))


def histogram(
    x: Any,
    edges: Any,
    epsilon: float = 1.0,
    delta: float | None = None,
    *,
    groups: Any = None,
    **options: Any,
) -> PrivateTable:
    """Return how many numbers lie between public ``edges``: ``[e0, e1), ..., [ek-1, ek]``, as NumPy has it.

    What lies outside is not counted. Parameters, result, ``options`` (``confidence``, ``relation``,
    ``secure_noise``, ``ledger``, ``dataset_id``) and **Privacy** as in :func:`count`.
    """
    return group_by(x, edges=edges, groups=groups).count(epsilon, delta, **options)


def crosstab(
    rows: Any,
    columns: Any,
    epsilon: float = 1.0,
    delta: float | None = None,
    *,
    levels: Any,
    groups: Any = None,
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
    return group_by(keys, levels=by, groups=groups).count(epsilon, delta, **options)


def group_by(keys: Any, *, levels: Any = None, edges: Any = None, groups: Any = None) -> GroupBy:
    """Return declared groups of records, whose counts, sums, means and quantiles can be asked.

    Parameters
    ----------
    keys : one column, or several by name (a dict or a DataFrame); cells are all combinations of their levels.
        Columns may lie in Dask, all of them and the numbers that are asked about: see the page on clusters.
    levels : the public levels of the column, or of each by name.
    edges : public edges instead, for numbers: intervals as in :func:`histogram`. By name for several keys.
    groups : the person who owns each record, as in :func:`count`.

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
    return GroupBy(Keys.of(columns, known, groups))


@dataclass(frozen=True, eq=False)
class GroupBy:
    """Records in declared groups; made by :func:`group_by`.

    Every method takes the budget and the options of :func:`count` and returns a :class:`PrivateTable` with
    one row per group. One record is in one group at most, so all groups together cost what one does.
    """

    keys: Keys

    def count(self, epsilon: float = 1.0, delta: float | None = None, **options: Any) -> PrivateTable:
        """Return how many records each group has."""
        return self._counted(_terms(epsilon, delta, options))

    def sum(
        self, x: Any, epsilon: float = 1.0, delta: float | None = None, *, bounds: Any, **options: Any
    ) -> PrivateTable:
        """Return the sum of the numbers of each group, clipped to public ``bounds``; intervals hold the sum.

        **Privacy.** One Gaussian release of sensitivity ``max(|low|, |high|)``.
        """
        terms, limits = _terms(epsilon, delta, options), _declared(bounds)
        solver = CellSums(self.keys.size, limits, checked_share("confidence", terms.confidence))
        return self._asked("sum", solver, terms, x, (said_bounds(limits),), bounds)

    def mean(
        self, x: Any, epsilon: float = 1.0, delta: float | None = None, *, bounds: Any, **options: Any
    ) -> PrivateTable:
        """Return the mean of the numbers of each group, clipped to public ``bounds``.

        An interval holds the mean of the law behind the group (after the clip): noise and sampling error. A
        group that hardly stands out of the noise gets an answer near the middle and an interval from bound
        to bound.

        **Privacy.** One Gaussian release of counts, sums and sums of squares.
        """
        terms, limits = _terms(epsilon, delta, options), _declared(bounds)
        solver = CellMeans(self.keys.size, limits, checked_share("confidence", terms.confidence))
        return self._asked("mean", solver, terms, x, (said_bounds(limits),), bounds)

    def quantile(
        self,
        x: Any,
        q: Any,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Any,
        resolution: int = 12,
        **options: Any,
    ) -> PrivateTable:
        """Return quantiles of the numbers of each group between public ``bounds``, any number for one price.

        With several probabilities the table has one row per group and probability. Intervals hold all sample
        quantiles and the law's, as those of :func:`sordino.quantiles`.

        **Privacy.** One Gaussian release of counts and one of a tree of counts per group.
        """
        terms, limits, wanted = _terms(epsilon, delta, options), _declared(bounds), checked_probabilities(q)
        depth = check_count("resolution", resolution, 2, 20, "It is the depth of the tree.") or 12
        confidence = checked_share("confidence", terms.confidence)
        solver = CellQuantiles(self.keys.size, tuple(wanted.tolist()), limits, depth, confidence)
        table = self._asked("quantile", solver, terms, x, (said_bounds(limits),), bounds)
        return _spread(table, wanted, np.ndim(q) == 0)

    def _counted(self, terms: Terms) -> PrivateTable:
        solver = CellCounts(self.keys.size, checked_share("confidence", terms.confidence))
        return self._asked("count", solver, terms, None, ())

    def _asked(
        self, name: str, solver: Any, terms: Terms, values: Any, public: tuple[str, ...], bounds: Any = None
    ) -> PrivateTable:
        rows, unit = self.keys.records(values), self.keys.unit
        secure = check_flag("secure_noise", terms.secure_noise)
        sample = Sample(len(rows), 1, Relation.parse(terms.relation), unit, secure)
        paid = each_once((*(p for k in self.keys.levels for p in k.learned), *prices_of(bounds)))
        booked = terms.ledger, terms.dataset_id
        ask = Ask.checked(terms.epsilon, terms.delta, len(rows), *booked, learned=paid)
        said = [f"number of {unit}s: {len(rows)}"]
        said += [
            f"levels of {k.name}: {len(k.labels)} {'learned' if k.learned else 'declared'}"
            for k in self.keys.levels
        ]
        notes = () if unit == "record" else (f"the first record of each {unit} counts, the others do not",)
        executor = executor_of(rows, None, data_norm=None)
        fitted = run_privately(
            solver, sample, executor, ask, public=(*said, *public), notes=notes, description=name
        )
        found: Cells = fitted.result
        names = tuple(level.name for level in self.keys.levels)
        numbers = (found.value, found.low, found.high)
        shape = self.keys.shape
        return PrivateTable(name, names, self.keys.rows(), *numbers, shape, solver.confidence, fitted.report)


def _spread(table: PrivateTable, wanted: np.ndarray, single: bool) -> PrivateTable:
    """Return the table of (cells, probabilities) as one with a row for each of both."""
    value, low, high = (a.reshape(-1) for a in (table.value, table.low, table.high))
    if single:
        return replace(table, value=value, low=low, high=high)
    rows = tuple((*row, float(q)) for row in table.rows for q in wanted)
    keys, shape = (*table.keys, "q"), (*table.shape, len(wanted))
    return replace(table, keys=keys, rows=rows, value=value, low=low, high=high, shape=shape)


def _terms(epsilon: float, delta: float | None, options: dict[str, Any]) -> Terms:
    try:
        return Terms(epsilon, delta, **options)
    except TypeError:
        raise InvalidInputError(
            "Expected options among confidence, relation, secure_noise, ledger and dataset_id, got another."
        ) from None


def _declared(bounds: Any) -> tuple[float, float]:
    limits = checked_bounds(bounds)
    if limits is None:
        raise InvalidInputError("Expected bounds as two public numbers; numbers are clipped to them.")
    return limits
