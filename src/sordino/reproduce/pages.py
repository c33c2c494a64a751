"""A table in Markdown and as a figure, in the layout of the papers: methods down, epsilons across."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sordino.reproduce.tables import MODES, Cell, Made, Row, Table, short, verdict

Cells = Mapping[str, Cell | str]
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
    """Return the page of a table."""
    lines = [f"## {table.source}", "", f"{table.metric}; {table.better} is better. {table.data}"]
    if table.settings:
        lines.append(table.settings)
    lines.append(_said(made))
    lines += ["", "| " + " | ".join(_TITLES) + " |", "|" + "---|" * len(_TITLES)]
    lines += [_line(table, row, cells, verdict(table, row, made)) for row, cells in made]
    lines += ["", f"Reproduce with `{command}`.", ""]
    return "\n".join(lines)


def _said(made: Made) -> str:
    """Say how many runs are behind a number."""
    counts = {len(c.values) for _, cells in made for c in cells.values() if isinstance(c, Cell)}
    if counts <= {1}:
        return "One run a number."
    low, high = min(counts), max(counts)
    runs = str(high) if low == high else f"{low} to {high}"
    return f"Means of {runs} runs, ± their standard error."


def _line(table: Table, row: Row, cells: Cells, found: str) -> str:
    paper = cells["paper"]
    certified = _certified(paper, row.epsilon) if isinstance(paper, Cell) else paper
    written = [_written(cells[mode]) for mode in MODES]
    if row.published_plain is not None:
        written[-1] += f" (printed {row.published_plain:g})"
    claim = f"{row.epsilon:g} ({row.delta:g})"
    published = "a curve" if row.published is None else f"{row.published:g}"
    fields = (row.group, row.method, claim, published, certified, *written)
    return "| " + " | ".join((*fields, found)) + " |"


def _certified(paper: Cell, claim: float) -> str:
    found = (paper.certified.get(relation) for relation in ("add-remove", "replace-one"))
    return " / ".join("no less" if value is None else _bold(value, claim) for value in found)


def _bold(value: float, claim: float) -> str:
    return f"**{short(value)}**" if value > claim else short(value)


def _written(cell: Cell | str) -> str:
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
