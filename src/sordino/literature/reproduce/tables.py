"""Results on disk: one JSON file per table, written after every run, so that an interrupted one goes on."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from sordino.errors import InvalidInputError

# ------------------------ A published table beside ours: rows, the runs behind their cells, and the verdict

# What one run yields: "value", and in paper mode the epsilon that the printed noise certifies, by relation;
# kept with its "seed".
Outcome = Mapping[str, float]
Likeness = Literal["same", "like", "stand-in"]
RowCells = Mapping[str, "Runs | str"]
MODES = ("paper", "sound", "default", "plain")
Cells = Mapping[str, "Cell | str"]
Made = Sequence[tuple["Row", Cells]]


@dataclass(frozen=True)
class Runs:
    """The repeated runs behind one cell; cells with the same key share them.

    ``once`` takes a seed of the public choices. The noise is never seeded.
    """

    key: str
    once: Callable[[int], Outcome]


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
    likeness : whether that is the paper's set, a sample of it, or another one.
    settings : what was chosen here because the paper does not print it.
    tolerance : how far ours may be behind a published number, beside two standard errors and 2 % of it.
    rivals : whether the methods at one epsilon do the same thing, so that a better one makes up for a miss.
    order : for a figure without numbers, its methods from best to worst, in groups whose order is not shown.
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
    tolerance: float = 0.0
    rivals: bool = True

    def runs(self) -> dict[str, Runs]:
        """Return what has to be run, by key."""
        cells = (cell for row in self.rows for cell in row.cells.values())
        return {cell.key: cell for cell in cells if isinstance(cell, Runs)}


@dataclass(frozen=True)
class Cell:
    """The mean of some runs with its standard error."""

    values: tuple[float, ...]
    certified: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)

    @property
    def error(self) -> float:
        """The standard error of the mean; 0 for a single run."""
        n = len(self.values)
        if n < 2:
            return 0.0
        return math.sqrt(math.fsum((v - self.mean) ** 2 for v in self.values) / (n - 1) / n)


def cell_of(outcomes: Sequence[Outcome]) -> Cell:
    """Join the outcomes of repeated runs."""
    certified: dict[str, float] = {}
    for outcome in outcomes:
        certified.update({key: value for key, value in outcome.items() if key not in ("value", "seed")})
    return Cell(tuple(outcome["value"] for outcome in outcomes), certified)


def verdict(table: Table, row: Row, made: Made) -> str:
    """Say in words what became of a published number.

    Ours is the better of the sound mode and of the default, both at the claimed epsilon. On another data set
    the distance from the model without privacy is compared instead of the number itself.
    """
    cells = next(cells for other, cells in made if other is row)
    ours = best(table, cells)
    if ours is None:
        return "not reproduced: nothing here runs at this epsilon"
    if row.published is None:
        return _order(table, row, made)
    published, measured = _comparable(table, row, cells, ours)
    if published is None or measured is None:
        return "not comparable: no number without privacy is printed for a set like this one"
    gain = (published - measured) if table.better == "lower" else (measured - published)
    tolerance = max(2 * ours.error / _unit(table, cells), 0.02 * abs(published), table.tolerance)
    if gain >= -tolerance:
        by = "by the same method" if ours is cells["sound"] else "by our default"
        return f"{'better' if gain > tolerance else 'reproduced'}, {by}"
    numbers = " times the model without privacy" if table.likeness == "stand-in" else ""
    reached = f"{measured:.4g}{numbers} is reached, {published:.4g} is printed"
    return "; ".join([f"not reproduced: {reached}", *_why(table, row, cells), *_elsewhere(table, row, made)])


def best(table: Table, cells: Cells) -> Cell | None:
    found = [cell for mode in ("sound", "default") if isinstance(cell := cells[mode], Cell)]
    finite = [cell for cell in found if math.isfinite(cell.mean)]
    if not finite:
        return None
    return (min if table.better == "lower" else max)(finite, key=lambda cell: cell.mean)


def _order(table: Table, row: Row, made: Made) -> str:
    """Compare the sound modes of the methods at one epsilon with the order of the curves in the figure.

    Where the order is another one, say whether the printed noise shows it, and what our default reaches.
    """
    beside = [(r, cells) for r, cells in made if (r.group, r.epsilon) == (row.group, row.epsilon)]
    found = _methods(beside, "sound")
    numbers, shown = _ranking_words(table, found), _shows_order(table, found)
    if shown:
        return "order of the curves reproduced"
    words = "order of the curves not reproduced: here" if shown is False else "no order to see:"
    return "; ".join([f"{words} {numbers}", *_behind(table, beside, found)])


def _behind(table: Table, beside: Made, found: Mapping[str, Cell]) -> Iterator[str]:
    """Yield what the printed noise shows, and our default where it beats all methods."""
    printed = _methods(beside, "paper")
    if len(printed) > 1:
        claim = beside[0][0].epsilon
        worst = max((v for cell in printed.values() for v in cell.certified.values()), default=0.0)
        most = "nothing for some of them" if math.isinf(worst) else f"up to {short(worst)}"
        beyond = f", which certifies {most}," if worst > claim else ""
        shown = "shows it" if _shows_order(table, printed) else "does not show it either"
        yield f"the printed noise{beyond} {shown}: {_ranking_words(table, printed)}"
    ours, reached = beside[0][1]["default"], [cell.mean for cell in found.values()]
    if isinstance(ours, Cell) and all(_reaches(table, ours.mean, value) for value in reached):
        yield f"our default reaches {ours.mean:.3g}"


def _methods(beside: Made, mode: str) -> dict[str, Cell]:
    return {row.method: cell for row, cells in beside if isinstance(cell := cells[mode], Cell)}


def _ranking(table: Table, found: Mapping[str, Cell]) -> list[str]:
    sign = 1.0 if table.better == "lower" else -1.0
    return sorted(found, key=lambda method: sign * found[method].mean)


def _ranking_words(table: Table, found: Mapping[str, Cell]) -> str:
    return ", ".join(f"{method} {found[method].mean:.3g}" for method in _ranking(table, found))


def _shows_order(table: Table, found: Mapping[str, Cell]) -> bool | None:
    """Tell whether methods come in the order of the figure; None where no two of them are apart."""
    here = _ranking(table, found)
    rank = {method: place for place, group in enumerate(table.order) for method in group}
    apart = [pair for pair in combinations(here, 2) if _apart(*(found[method] for method in pair))]
    if any(rank[one] > rank[other] for one, other in apart):
        return False
    return True if any(rank[one] < rank[other] for one, other in apart) else None


def _apart(one: Cell, other: Cell) -> bool:
    """Tell whether two numbers differ by more than two standard errors and 2 %."""
    least = max(2 * math.hypot(one.error, other.error), 0.02 * max(abs(one.mean), abs(other.mean)))
    return not abs(one.mean - other.mean) <= least


def _comparable(table: Table, row: Row, cells: Cells, ours: Cell) -> tuple[float | None, float | None]:
    if table.likeness != "stand-in":
        return row.published, ours.mean
    if row.published is None or row.published_plain is None or not isinstance(cells["plain"], Cell):
        return None, None
    return row.published / row.published_plain, ours.mean / _unit(table, cells)


def _unit(table: Table, cells: Cells) -> float:
    """Return what our numbers are divided by to be compared: on a stand-in, the model without privacy."""
    plain = cells["plain"]
    return plain.mean if table.likeness == "stand-in" and isinstance(plain, Cell) else 1.0


def _why(table: Table, row: Row, cells: Cells) -> list[str]:
    """Explain by numbers: the printed noise, what can be had here without privacy, the same method."""
    assert row.published is not None
    reasons = []
    paper, plain, sound = cells["paper"], cells["plain"], cells["sound"]
    if isinstance(paper, Cell):
        worst = max(paper.certified.values(), default=0.0)
        if worst > row.epsilon:
            found = "nothing" if math.isinf(worst) else short(worst)
            reasons.append(f"the printed noise certifies {found}, not {row.epsilon:g}")
        if missed := _shortfall(table, row, cells, paper):
            reasons.append(f"the printed noise itself reaches {missed} here")
    if isinstance(plain, Cell) and table.likeness != "stand-in":
        if not _reaches(table, plain.mean, row.published):
            reasons.append(f"without privacy {plain.mean:.4g} is reached here")
        elif (known := row.published_plain) is not None and not _reaches(table, plain.mean, known):
            reasons.append(f"without privacy {plain.mean:.4g} is reached here, {known:.4g} is printed")
    if isinstance(sound, Cell) and (missed := _shortfall(table, row, cells, sound)) and not reasons:
        reasons.append(f"the same method with sound noise reaches {missed} here")
    return reasons


def _elsewhere(table: Table, row: Row, made: Made) -> Iterator[str]:
    """Yield our best method at this epsilon where it is at least the best printed one."""
    beside = [
        (other, _comparable(table, other, cells, ours))
        for other, cells in made
        if (other.group, other.epsilon) == (row.group, row.epsilon)
        and (ours := best(table, cells)) is not None
    ]
    pairs = [(p, m, other.method) for other, (p, m) in beside if p is not None and m is not None]
    choose = min if table.better == "lower" else max
    if table.rivals and len(pairs) > 1:
        printed, _, by = choose(pairs, key=lambda pair: pair[0])
        _, reached, method = choose(pairs, key=lambda pair: pair[1])
        if _reaches(table, reached, printed):
            here = f"our best at this epsilon is {reached:.4g} ({method})"
            yield f"{here}, the best printed {printed:.4g} ({by})"


def _shortfall(table: Table, row: Row, cells: Cells, cell: Cell) -> str:
    """Return what a cell reaches where that is less than the published number, in the units compared."""
    published, measured = _comparable(table, row, cells, cell)
    if published is None or measured is None or _reaches(table, measured, published):
        return ""
    return f"{measured:.4g} times that" if table.likeness == "stand-in" else f"{measured:.4g}"


def _reaches(table: Table, value: float, published: float) -> bool:
    return value <= published if table.better == "lower" else value >= published


def short(value: float) -> str:
    """Return a number of about three digits."""
    if math.isinf(value):
        return "no bound"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


# ---------- A table in Markdown and as a figure, in the layout of the papers: methods down, epsilons across

_ROUNDING = 1e-12  # less is what is left of a difference of equal numbers
_TITLES = (
    "data",
    "method",
    "claimed eps (delta)",
    "published",
    "printed noise certifies (add-remove / replace-one)",
    "paper mode",
    "sound, eps as claimed",
    "our default, eps as claimed",
    "not private",
    "verdict",
)


def markdown(table: Table, made: Made, command: str) -> str:
    lines = [f"## {table.source}", "", f"{table.metric}; {table.better} is better. {table.data}"]
    if table.settings:
        lines.append(table.settings)
    lines.append(_run_words(made))
    lines += ["", "| " + " | ".join(_TITLES) + " |", "|" + "---|" * len(_TITLES)]
    lines += [_line(row, cells, verdict(table, row, made)) for row, cells in made]
    lines += ["", f"Reproduce with `{command}`.", ""]
    return "\n".join(lines)


def _run_words(made: Made) -> str:
    """Say how many runs are behind a number."""
    counts = {len(c.values) for _, cells in made for c in cells.values() if isinstance(c, Cell)}
    if counts <= {1}:
        return "One run a number."
    low, high = min(counts), max(counts)
    runs = str(high) if low == high else f"{low} to {high}"
    return f"Means of {runs} runs, ± their standard error."


def _line(row: Row, cells: Cells, said: str) -> str:
    paper = cells["paper"]
    if isinstance(paper, str):
        certified = paper
    else:
        found = [paper.certified.get(relation) for relation in ("add-remove", "replace-one")]
        bold = ["**" if value is not None and value > row.epsilon else "" for value in found]
        known = ["no less" if value is None else short(value) for value in found]
        certified = " / ".join(f"{mark}{word}{mark}" for mark, word in zip(bold, known))
    written = [_cell_words(cells[mode]) for mode in MODES]
    if row.published_plain is not None:
        written[-1] += f" (printed {row.published_plain:g})"
    claim = f"{row.epsilon:g} ({row.delta:g})"
    published = "a curve" if row.published is None else f"{row.published:g}"
    fields = (row.group, row.method, claim, published, certified, *written)
    return "| " + " | ".join((*fields, said)) + " |"


def _cell_words(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return cell
    mean = 0.0 if abs(cell.mean) < _ROUNDING else cell.mean
    return f"{mean:.4g}" + (f" ± {cell.error:.2g}" if cell.error >= _ROUNDING else "")


def figure(table: Table, made: Made, path: Path) -> None:
    """Draw published, sound and default numbers against the claimed epsilon, a panel per group of rows."""
    from matplotlib.figure import Figure

    groups = list(dict.fromkeys(row.group for row, _ in made))
    drawing = Figure(figsize=(5.2 * len(groups), 3.8), layout="constrained")
    for axis, group in zip(drawing.subplots(1, len(groups), squeeze=False)[0], groups):
        _panel(axis, [(row, cells) for row, cells in made if row.group == group])
        axis.set(title=group, xlabel="claimed epsilon", ylabel=table.metric)
    drawing.savefig(path, dpi=110)


def _panel(axis: object, made: list[tuple[Row, Cells]]) -> None:
    for number, method in enumerate(dict.fromkeys(row.method for row, _ in made)):
        rows = [(row, cells) for row, cells in made if row.method == method]
        printed = [(r.epsilon, r.published) for r, _ in rows if r.published is not None]
        _curve(axis, printed, f"C{number}o--", f"{method}, published")
        _curve(axis, _points(rows, "sound"), f"C{number}s-", f"{method}, sound")
    _curve(axis, _points(made, "default"), "k^-", "our default")
    plain = _points(made, "plain")
    if plain:
        axis.axhline(plain[0][1], color="grey", linewidth=1, label="not private, here")  # type: ignore[attr-defined]
    axis.legend(fontsize=7)  # type: ignore[attr-defined]


def _points(made: list[tuple[Row, Cells]], mode: str) -> list[tuple[float, float]]:
    found = {row.epsilon: cell.mean for row, cells in made if isinstance(cell := cells[mode], Cell)}
    return sorted(found.items())


def _curve(axis: object, points: list[tuple[float, float]], style: str, label: str) -> None:
    if points:
        axis.plot(*zip(*points), style, label=label, markersize=4)  # type: ignore[attr-defined]


# ----------------------------------------------------------------------------------------------------------
# Results on disk: one JSON file per table, written after every run, so that an interrupted one goes on.

FORMAT = 1


class Store:
    """The outcomes of the runs of one table, by key; ``settings`` tell whether they may be gone on with.

    ``date`` is the day of the last run (UTC), ``cpu_seconds`` what all of them took.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, {"format": FORMAT, **settings}
        self.date, self.cpu_seconds = "", 0.0
        self._runs: dict[str, list[dict[str, float]]] = {}
        if path.exists():
            self._read_file()

    def outcomes(self, key: str) -> Sequence[Outcome]:
        return tuple(self._runs.get(key, ()))

    def add(self, key: str, outcome: Outcome, cpu_seconds: float = 0.0) -> None:
        """Keep an outcome, on disk when this returns."""
        self._runs.setdefault(key, []).append({name: float(value) for name, value in outcome.items()})
        self.date = time.strftime("%Y-%m-%d", time.gmtime())
        self.cpu_seconds = round(self.cpu_seconds + cpu_seconds, 1)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        about = {"date": self.date, "cpu_seconds": self.cpu_seconds}
        document = {"settings": self.settings, "about": about, "runs": self._runs}
        fresh = self.path.with_suffix(".part")
        fresh.write_text(json.dumps(document, indent=1, allow_nan=True) + "\n", encoding="utf-8")
        os.replace(fresh, self.path)

    def _read_file(self) -> None:
        try:
            document = json.loads(self.path.read_text("utf-8"))
            known, about = dict(document["settings"]), document["about"]
            self.date, self.cpu_seconds = str(about["date"]), float(about["cpu_seconds"])
            runs = {
                key: [{"value": one["value"]} | {name: float(n) for name, n in one.items()} for one in kept]
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
