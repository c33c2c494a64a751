"""A published table beside ours: rows, the runs behind their cells, verdicts, pages, and results on disk."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from sordino.datasets.loading import read_resource
from sordino.errors import InvalidInputError, NotPrivateWarning
from sordino.kernel import PaperNoise, Plan, Relation
from sordino.runs import Ask, Promise
from sordino.tables.files import replace_file

# ------------------------ A published table beside ours: rows, the runs behind their cells, and the verdict

# What one run yields: "value", and in paper mode the epsilon that the printed noise certifies, by relation;
# kept with its "seed".
Outcome = Mapping[str, float]
Likeness = Literal["same", "like", "stand-in", "another protocol"]
RowCells = Mapping[str, "Runs | str"]
MODES = ("paper", "sound", "default", "plain")
Cells = Mapping[str, "Cell | str"]
Made = Sequence[tuple["Row", Cells]]


@dataclass(frozen=True)
class Runs:
    """The repeated runs behind one cell; cells with the same key share them.

    ``once`` takes a seed of the public choices. The noise is never seeded. ``settings`` say what is run:
    outcomes that were kept with other settings are not used.
    """

    key: str
    once: Callable[[int], Outcome]
    settings: Mapping[str, Any] = field(default_factory=dict)


def run_of(key: str, once: partial[Outcome]) -> Runs:
    """Return runs whose settings are the arguments of their call."""
    return Runs(key, once, {"call": _call_words(once)})


def _call_words(value: Any) -> Any:
    if isinstance(value, partial):
        named = {name: _call_words(one) for name, one in value.keywords.items()}
        parts = [_call_words(value.func), *map(_call_words, value.args)]
        return [*parts, named] if named else parts
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    return value.__name__ if callable(value) else repr(value)


def by_mode(paper: Runs | str, sound: Runs | str, default: Runs | str, plain: Runs | str) -> RowCells:
    """Return the cells of a row: its runs in each mode, or the reason why there are none."""
    return dict(zip(MODES, (paper, sound, default, plain), strict=True))


@dataclass(frozen=True)
class Row:
    """One published number, and how ours are made."""

    group: str
    method: str
    epsilon: float
    delta: float
    published: float | None  # None: drawn in a figure only
    cells: RowCells
    published_plain: float | None = None
    likeness: Likeness | None = None  # None: that of the table


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper.

    Parameters
    ----------
    name : how the command line knows it.
    source : the paper and the number of the table.
    metric : what the numbers are.
    better : whether a smaller or a larger number is better.
    data : what ours were measured on.
    likeness : the paper's set, other rows of it ("like": judged by number *and* by the ratio to the model
        without privacy), another set (judged by that ratio alone), or another protocol (not judged).
    settings : what was chosen here because the paper does not print it.
    tolerance : how far ours may be from a published number of a two-sided table.
    share : the same as a share of the number, for one of which only the order of magnitude is printed, or a
        standard error.
    order : for a figure without numbers, its methods from best to worst, in groups whose order is not shown;
        ``orders`` has those of single sets.
    trivial : by group, what a model that predicts nothing reaches; an order among such models is none.
    two_sided : whether a number on the good side is as wrong as one on the other (slopes, drawn noise).
    """

    name: str
    source: str
    metric: str
    better: Literal["lower", "higher"]
    data: str
    likeness: Likeness
    rows: Sequence[Row]
    settings: str = ""
    repeats: int = 3
    needs: tuple[str, ...] = ()
    order: tuple[tuple[str, ...], ...] = ()
    orders: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    tolerance: float = 0.0
    share: float = 0.0
    trivial: Mapping[str, float] = field(default_factory=dict)
    two_sided: bool = False

    def runs(self) -> dict[str, Runs]:
        """Return what has to be run, by key."""
        cells = (cell for row in self.rows for cell in row.cells.values())
        return {cell.key: cell for cell in cells if isinstance(cell, Runs)}

    def ranks(self, row: Row) -> dict[str, int]:
        """Return the places of the methods of a row's figure, 0 for the best."""
        order = self.orders.get(row.group, self.order)
        return {method: place for place, group in enumerate(order) for method in group}

    def prints(self, row: Row) -> bool:
        """Tell whether a row is the paper's, a number or a curve; others are ours, beside it."""
        return row.published is not None or bool(self.ranks(row))

    def gain(self, ours: float, other: float) -> float:
        """Return by how much one number is better than another."""
        return other - ours if self.better == "lower" else ours - other


@dataclass(frozen=True)
class Cell:
    """The mean of some runs with its standard error."""

    values: tuple[float, ...]
    certified: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 for a single run."""
        n = len(self.values)
        return 0.0 if n < 2 else math.sqrt(math.fsum((v - self.mean) ** 2 for v in self.values) / (n - 1) / n)


PRINTED: Mapping[str, Any] = read_resource("sordino.literature.reproduce", "printed.toml")


def certify_printed(
    ask: Ask, plan: Callable[[Relation], Plan], noise: Callable[[Plan, Ask], PaperNoise]
) -> dict[str, float]:
    """Return the epsilon that printed noise certifies, by relation; nothing is run."""
    with warnings.catch_warnings(action="ignore", category=NotPrivateWarning):
        made = {relation.value: plan(relation) for relation in Relation}
        return {r: Promise.made(ask, one, noise(one, ask)).certificate.epsilon for r, one in made.items()}


def page_of(name: str, quick: bool = False) -> dict[str, Any]:
    """Return what ``printed.toml`` says of a table; one that is "like" another leaves out what they share."""
    own = PRINTED[name]
    page = {**page_of(own["like"]), **own} if "like" in own else dict(own)
    return page | page.get("quick", {}) if quick else page


def printed_table(
    name: str, rows: Sequence[Row], quick: bool = False, words: Mapping[str, str] | None = None, **known: Any
) -> Table:
    """Return a table with its printed page; ``words`` fill its braces, ``known`` are fields of the table."""
    vocabulary = {**PRINTED["words"], **page_of(name), **(words or {})}
    page = {"better": "lower", **page_of(name, quick), **known}
    for key in ("source", "metric", "data", "settings"):
        while "{" in page[key]:
            page[key] = page[key].format_map(vocabulary)
    page |= {"name": name, "rows": rows}
    return Table(**{one.name: page[one.name] for one in fields(Table) if one.name in page})


def cell_of(outcomes: Sequence[Mapping[str, Any]]) -> Cell:
    """Join the outcomes of repeated runs."""
    certified = {key: one[key] for one in outcomes for key in one.keys() - {"value", "seed", "commit"}}
    return Cell(tuple(outcome["value"] for outcome in outcomes), certified)


# ------------------------------------------------------------- Verdicts: what became of a published number

REPRODUCED, BY_METHOD, BY_DEFAULT = "reproduced", "beaten by the method", "by our default only"
BY_PRINTED, NOT_REPRODUCIBLE, MISSED = "by the printed noise only", "not reproducible", "missed"
NOTHING, UNJUDGED, NOT_RUN = "printed number of a model that predicts nothing", "not judged", "not run"
UNTRIED = "the method itself is not run"
TIED, ONCE, IDLE = "ranked and not apart", "one run", "only the first beat a model that predicts nothing"
KINDS = (REPRODUCED, BY_METHOD, BY_DEFAULT, BY_PRINTED, NOT_REPRODUCIBLE, MISSED, NOTHING, UNJUDGED, NOT_RUN)


@dataclass(frozen=True)
class Verdict:
    """What became of a published number or order of curves: its kind, and why in words."""

    kind: str
    words: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.words}" if self.words else self.kind


def judge(table: Table, made: Made) -> dict[str, Verdict]:
    """Return a verdict for each published number, and one for each figure and epsilon with curves only."""
    found = {}
    for row, _ in made:
        at = "" if row.published is None else f"/{row.method}"
        key = f"{row.group}{at}/{row.epsilon:g}"
        if key not in found and table.prints(row):
            found[key] = verdict(table, row, made)
    return found


def count_kinds(found: Mapping[str, Verdict]) -> dict[str, int]:
    """Return how many verdicts are of each kind."""
    counts = Counter(one.kind for one in found.values())
    return {kind: counts[kind] for kind in KINDS}


def verdict(table: Table, row: Row, made: Made) -> Verdict:
    """Say what became of a published number.

    The method of the row comes first, at the claimed epsilon with sound noise; our default makes up for it,
    and is counted apart. What only the printed noise reaches, which certifies more than the claim, is counted
    apart too. A miss is "not reproducible" where the printed noise misses the number here as well.
    """
    cells = next(cells for other, cells in made if other is row)
    ways = {mode: cell for mode in ("sound", "default") if (cell := _finite(cells[mode])) is not None}
    if not ways:
        return Verdict(NOT_RUN, next((c for c in map(cells.get, MODES[1:]) if isinstance(c, str)), ""))
    if table.likeness == "another protocol" or not table.prints(row):
        return Verdict(UNJUDGED, table.likeness if table.prints(row) else "settings of ours")
    if row.published is None:
        return _order(table, row, made)
    if not (_stands_in(table, row) or _beats_nothing(table, row, Cell((row.published,)))):
        said = {"sound": "by the method", "default": "by default"}
        means = ", ".join(f"{cell.mean:.3g} {said[mode]}" for mode, cell in ways.items())
        return Verdict(NOTHING, f"{row.published:g} for {table.trivial[row.group]:.4g}; ours is {means}")
    standings = {mode: _standing(table, row, cells, cell) for mode, cell in ways.items()}
    if None in standings.values():
        return Verdict(NOT_RUN, "no number without privacy is printed for a set like this one")
    if standings.get("sound") in ("beaten", "reached"):
        return Verdict(BY_METHOD if standings["sound"] == "beaten" else REPRODUCED)
    if standings.get("default") in ("beaten", "reached"):
        return Verdict(BY_DEFAULT, _reach_words(table, row, cells, ways.get("sound")))
    if "sound" not in ways:
        return Verdict(NOT_RUN, f"{_reach_words(table, row, cells, None)}, and our default misses the number")
    kind, reasons = _by_printed(table, row, cells)
    words, plain = [_reach_words(table, row, cells, ways["sound"]), *reasons], cells["plain"]
    if isinstance(plain, Cell) and not _stands_in(table, row) and table.gain(plain.mean, row.published) < 0:
        words.append(f"without privacy {plain.mean:.4g} is reached here")
    return Verdict(kind, "; ".join(words))


def _finite(cell: Cell | str) -> Cell | None:
    return cell if isinstance(cell, Cell) and math.isfinite(cell.mean) else None


def _stands_in(table: Table, row: Row) -> bool:
    return (row.likeness or table.likeness) == "stand-in"


def _units(table: Table, row: Row, cells: Cells) -> list[tuple[float, float, str]]:
    """Return the units in which a row is judged: ours, the paper's, and their name."""
    raw = [] if _stands_in(table, row) else [(1.0, 1.0, "")]
    ours = reference(table, cells)
    if (row.likeness or table.likeness) == "same" or ours is None or not row.published_plain:
        return raw
    name = "the model without privacy" if ours is cells["plain"] else "our best model, a private one,"
    return [*raw, (ours.mean, row.published_plain, f" times {name}")]


def reference(table: Table, cells: Cells) -> Cell | None:
    """Return the model without privacy; where a private one is better, that one: the plain one is none."""
    if not isinstance(cells["plain"], Cell):
        return None
    found = [cell for mode in MODES[1:] if (cell := _finite(cells[mode])) is not None]
    return max(found, key=lambda cell: table.gain(cell.mean, 0.0))


def _standing(table: Table, row: Row, cells: Cells, cell: Cell, errors: float = 0.0) -> str | None:
    """Return whether a number is beaten, reached or not; by number and ratio it is the worse of the two.

    One run beats nothing, a model that predicts nothing reaches nothing; ``errors`` are granted besides.
    """
    assert row.published is not None
    order, found, size = ("behind", "reached", "beaten"), [], abs(row.published)
    beside = [r.published for r in table.rows if r.group == row.group and r.published is not None]
    tenth = 0.1 * (max(beside, default=0.0) - min(beside, default=0.0))
    for ours, printed, _ in _units(table, row, cells):
        granted = errors * cell.error / ours
        gain = table.gain(cell.mean / ours, row.published / printed)
        if table.two_sided:
            found.append(int(abs(gain) <= max(table.tolerance, table.share * size) + granted))
            continue
        room = max(min(tenth, 0.05 * size), table.share * size) / printed
        beaten = len(cell.values) > 1 and gain > max(room, 2 * cell.error / ours)
        found.append(2 if beaten else int(gain >= -room - granted))
    return order[min(found) * _beats_nothing(table, row, cell)] if found else None


def _reach_words(table: Table, row: Row, cells: Cells, cell: Cell | None) -> str:
    """Say what the method itself reaches, in all units that count."""
    if cell is None:
        return UNTRIED
    assert row.published is not None
    said = [
        f"{cell.mean / ours:.4g}{name} for {row.published / printed:.4g}"
        for ours, printed, name in _units(table, row, cells)
    ]
    nothing = "" if _beats_nothing(table, row, cell) else ", no better than a model that predicts nothing"
    return f"the method reaches {', and '.join(said)} printed{nothing}"


def _by_printed(table: Table, row: Row, cells: Cells) -> tuple[str, list[str]]:
    """Return the kind of a miss, and what the printed noise shows: an epsilon, a number that is not reached.

    A number that our model without privacy does not reach either may be missed by our protocol. So may one on
    a stand-in, whose settings are ours. A miss by less than two standard errors demonstrates nothing.
    """
    paper, plain = cells["paper"], _finite(cells["plain"])
    if not isinstance(paper, Cell):
        return MISSED, []
    worst = max(paper.certified.values(), default=0.0)
    found = "nothing" if math.isinf(worst) else short(worst)
    said = [f"the printed noise certifies {found}, not {row.epsilon:g}"] if worst > row.epsilon else []
    if math.isfinite(paper.mean) and _standing(table, row, cells, paper) != "behind":
        return BY_PRINTED if said else MISSED, said
    if _stands_in(table, row):
        return MISSED, said
    reachable = plain is None or _standing(table, row, cells, plain) != "behind"
    said.append(f"the printed noise itself reaches {paper.mean:.4g} here")
    tried = [cell for cell in (cells["sound"], paper) if isinstance(cell, Cell)]
    if all(_standing(table, row, cells, cell, errors=2.0) == "behind" for cell in tried):
        return NOT_REPRODUCIBLE if reachable else MISSED, said
    return MISSED, [*said, "not told apart: within two standard errors"]


def _order(table: Table, row: Row, made: Made) -> Verdict:
    """Compare the sound modes of the methods at one epsilon with the order of the curves in the figure."""
    beside = [(r, cells) for r, cells in made if (r.group, r.epsilon) == (row.group, row.epsilon)]
    found, nothing = _methods(table, beside, "sound"), table.trivial.get(row.group)
    here = _ranking_words(found)
    if len(found) < 2:
        return Verdict(NOT_RUN, f"of the curves there is only {here}")
    kind, reasons = _behind(table, beside)
    if nothing is not None and not any(_beats_nothing(table, row, cell) for cell in found.values()):
        words = f"no curve is better than a model that predicts nothing ({nothing:.3g}): {here}"
        kind = kind if kind == BY_PRINTED else MISSED  # the settings are ours
    elif shown := _shows_order(table, row, found):
        words = f"the order of the curves as far as they are apart, {here}"
        kind, reasons = REPRODUCED, _doubts(table, row, found)
    else:
        words = f"here the order is {here}" if shown is False else f"no order to see: {here}"
        kind = MISSED if shown is None and kind == NOT_REPRODUCIBLE else kind
    without = " and ".join(sorted(table.ranks(row).keys() - found.keys()))
    if without and kind in (REPRODUCED, BY_PRINTED):  # a curve that is not there cannot come as the text says
        return Verdict(NOT_RUN, f"no run of {without} is kept; {words}")
    return Verdict(kind, "; ".join([words, *reasons]))


def _behind(table: Table, beside: Made) -> tuple[str, list[str]]:
    """Return the kind of an order that is not seen, and what the printed noise shows."""
    printed, row, kind, said = _methods(table, beside, "paper"), beside[0][0], MISSED, []
    ranks = table.ranks(row)
    if len({ranks[method] for method in printed if method in ranks}) > 1:  # one group alone has no order
        shown = _shows_order(table, row, printed)
        best = [v for m, cell in printed.items() if ranks.get(m) == 0 for v in cell.certified.values()]
        beyond = max(best, default=0.0) > row.epsilon  # noise of others that is too small helps them alone
        kind = NOT_REPRODUCIBLE if shown is False else BY_PRINTED if shown and beyond else MISSED
        words = {True: "shows it", False: "does not show it either", None: "tells no order"}[shown]
        said.append(f"paper mode {words}: {_ranking_words(printed)}")
    return kind, said


def _methods(table: Table, beside: Made, mode: str) -> dict[str, Cell]:
    """Return the curves of a figure from best to worst, without rows of ours that stand beside them."""
    curves = [(row.method, cell) for row, cells in beside if isinstance(cell := cells[mode], Cell)]
    curves.sort(key=lambda curve: -table.gain(curve[1].mean, 0.0))
    return {method: cell for method, cell in curves if not method.endswith("nothing set")}


def _ranking_words(found: Mapping[str, Cell]) -> str:
    """Return methods from best to worst, each with its number and the epsilon that its noise certifies."""
    worst = {m: f" (certified: {short(max(c.certified.values()))})" for m, c in found.items() if c.certified}
    return ", ".join(f"{m} {c.mean:.3g}{worst.get(m, '')}" for m, c in found.items())


def _beats_nothing(table: Table, row: Row, cell: Cell) -> bool:
    """Tell whether a number is better than that of a model that predicts nothing, by 2 % and two errors."""
    nothing = table.trivial.get(row.group)
    if nothing is None:
        return True
    return table.gain(cell.mean, nothing) > max(2 * cell.error, 0.02 * abs(nothing))


def _shows_order(table: Table, row: Row, found: Mapping[str, Cell]) -> bool | None:
    """Tell whether methods come in the order of the figure; None where no two of them are apart."""
    rank = table.ranks(row)
    apart = [
        (one, other)
        for one, other in combinations([method for method in found if method in rank], 2)
        if _beats_nothing(table, row, found[one]) and _apart(found[one], found[other])
    ]
    if any(rank[one] > rank[other] for one, other in apart):
        return False
    return True if any(rank[one] < rank[other] for one, other in apart) else None


def _doubts(table: Table, row: Row, found: Mapping[str, Cell]) -> list[str]:
    """Return what makes less of a reproduced order: ties, single runs, rivals that predict nothing."""
    rank = table.ranks(row)
    ranked = [method for method in found if method in rank]
    pairs = [(a, b) for a, b in combinations(ranked, 2) if rank[a] != rank[b]]
    ties = [f"{a} / {b}" for a, b in pairs if not _apart(found[a], found[b])]
    once = [method for method in ranked if len(found[method].values) == 1]
    said = [f"{words}: {', '.join(names)}" for words, names in ((TIED, ties), (ONCE, once)) if names]
    idle = not any(rank[method] and _beats_nothing(table, row, found[method]) for method in ranked)
    return [*said, IDLE] if idle else said


def _apart(one: Cell, other: Cell) -> bool:
    """Tell whether two numbers differ by two standard errors and 2 %; one run varies like the other's."""
    pairs = ((one, other), (other, one))
    errors = [a.error if len(a.values) > 1 else b.error * math.sqrt(len(b.values)) for a, b in pairs]
    least = max(2 * math.hypot(*errors), 0.02 * max(abs(one.mean), abs(other.mean)))
    return not abs(one.mean - other.mean) <= least


def short(value: float) -> str:
    """Return a number of about three digits."""
    if math.isinf(value):
        return "no bound"
    if value >= 1e5:
        return f"{value:.1e}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


# ------------------------ A table in Markdown, in the layout of the papers: methods down, epsilons across

_ROUNDING = 1e-12  # less is what is left of a difference of equal numbers
_TITLES = (
    "| data | method | claimed eps (delta) | published | printed noise certifies (add-remove / replace-one) "
    "| paper mode | sound, eps as claimed | our default, eps as claimed | not private | verdict |"
)


def markdown(table: Table, made: Made, command: str) -> str:
    lines = [f"## {table.source}", "", f"{table.metric}; {table.better} is better. {table.data}"]
    if table.settings:
        lines.append(table.settings)
    runs = max((len(c.values) for _, cells in made for c in cells.values() if isinstance(c, Cell)), default=1)
    words = f"Means of up to {runs} runs, ± their standard error; a number of one run says so."
    lines += [words if runs > 1 else "One run a number.", "", count_words(judge(table, made)), ""]
    lines += [_TITLES, "|" + "---|" * (_TITLES.count("|") - 1)]
    before = None
    for row, cells in made:
        said = verdict(table, row, made)
        lines.append(_line(table, row, cells, "as above" if said == before else str(said), runs > 1))
        before = said if row.published is None else None
    lines += ["", f"Reproduce with `{command}`.", ""]
    return "\n".join(lines)


def count_words(found: Mapping[str, Verdict]) -> str:
    """Say how many published numbers or orders of curves were reached, and by what."""
    counts = {kind: f"{kind} {count}" for kind, count in count_kinds(found).items() if count}
    if without := sum(one == Verdict(BY_DEFAULT, UNTRIED) for one in found.values()):
        counts[BY_DEFAULT] += f" (the method itself run in {count_kinds(found)[BY_DEFAULT] - without})"
    return f"Of {len(found)} published numbers or orders of curves: {', '.join(counts.values())}."


def _line(table: Table, row: Row, cells: Cells, said: str, several: bool) -> str:
    paper = cells["paper"]
    if isinstance(paper, str):
        certified = paper
    else:
        found = [paper.certified.get(relation) for relation in ("add-remove", "replace-one")]
        bold = ["**" if value is not None and value > row.epsilon else "" for value in found]
        known = ["no less" if value is None else short(value) for value in found]
        certified = " / ".join(f"{mark}{word}{mark}" for mark, word in zip(bold, known))
        certified = certified if paper.certified else "not known"
    written = [_cell_words(cells[mode], several) for mode in MODES]
    if (best := reference(table, cells)) is not None and best is not cells["plain"]:
        written[-1] += ", worse than a private model: no reference"
    if row.published_plain is not None:
        written[-1] += f" (printed {row.published_plain:g})"
    claim = f"{row.epsilon:g} ({row.delta:g})"
    drawn = "a curve" if table.prints(row) else "not printed"
    published = drawn if row.published is None else f"{row.published:g}"
    fields = (row.group, row.method, claim, published, certified, *written)
    return "| " + " | ".join((*fields, said)) + " |"


def _cell_words(cell: Cell | str, several: bool) -> str:
    if isinstance(cell, str):
        return cell
    mean = 0.0 if abs(cell.mean) < _ROUNDING else cell.mean
    once = " (one run)" if several and len(cell.values) == 1 else ""
    return f"{mean:.4g}" + (f" ± {cell.error:.2g}" if cell.error >= _ROUNDING else once)


# ----------------------------------------------------------------------------------------------------------
# Results on disk: one JSON file per table, written after every run, so that an interrupted one goes on.

FORMAT = 2


class Store:
    """The outcomes of the runs of one table, by key, each with its seed and the commit that made it.

    Outcomes are kept with the settings of their runs: those of other settings are neither used nor kept when
    new ones come. ``date`` is the day of the last run (UTC), ``cpu_seconds`` what all of them took.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.settings = path, {"format": FORMAT, **about}
        self.date, self.cpu_seconds = "", 0.0
        self._runs: dict[str, dict[str, Any]] = {}
        if path.exists():
            self._read_file()

    def outcomes(self, runs: Runs) -> Sequence[Mapping[str, Any]]:
        """Return the outcomes that were made with the settings of these runs."""
        kept = self._runs.get(runs.key)
        return tuple(kept["outcomes"]) if kept and kept["settings"] == rounded_settings(runs.settings) else ()

    def add(self, runs: Runs, outcome: Outcome, commit: str = "", cpu_seconds: float = 0.0) -> None:
        """Keep an outcome, on disk when this returns."""
        one = {name: float(value) for name, value in outcome.items()} | {"commit": commit}
        known = list(self.outcomes(runs))
        self._runs[runs.key] = {"settings": rounded_settings(runs.settings), "outcomes": [*known, one]}
        self.date = time.strftime("%Y-%m-%d", time.gmtime())
        self.cpu_seconds = round(self.cpu_seconds + cpu_seconds, 1)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        about = {"date": self.date, "cpu_seconds": self.cpu_seconds}
        document = {"settings": self.settings, "about": about, "runs": self._runs}
        replace_file(self.path, (json.dumps(document, indent=1, allow_nan=True) + "\n").encode())

    def _read_file(self) -> None:
        try:
            document = json.loads(self.path.read_text("utf-8"))
            known, about = dict(document["settings"]), document["about"]
            self.date, self.cpu_seconds = str(about["date"]), float(about["cpu_seconds"])
            runs = {
                key: {
                    "settings": rounded_settings(kept["settings"]),
                    "outcomes": [{**one, "value": float(one["value"])} for one in kept["outcomes"]],
                }
                for key, kept in document["runs"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                f"{self.path} is not a file of results. Move it away, or name another folder."
            ) from error
        if known != self.settings:
            wanted = self.settings
            names = sorted(n for n in known.keys() | wanted.keys() if known.get(n) != wanted.get(n))
            others = ", ".join(f"{n} {known.get(n)!r}, now {wanted.get(n)!r}" for n in names)
            raise InvalidInputError(
                f"{self.path} was made with other settings ({others}). Move it away, name another folder, or "
                "run it as before."
            )
        self._runs = runs


def rounded_settings(settings: Mapping[str, Any]) -> Any:
    """Return settings as JSON, numbers to six digits: the last of a root differ between machines."""
    text = json.dumps(settings, sort_keys=True)
    return json.loads(text, parse_float=lambda digits: float(f"{float(digits):.6g}"))
