"""The rooms of docs/architecture.md and the arrows between them, from the imports that stand in the code.

Command: python docs/figures/architecture.py   (writes table and picture; --print only shows the table)
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "sordino"
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
START, END = "<!-- made by docs/figures/architecture.py -->", "<!-- end of the table -->"

# What stands in a box. Which rooms there are, their floors and their arrows come from the code.
WORDS = {
    "accounting": "certify, calibrate",
    "auditing": "attacks on a fit",
    "cli": "the command sordino",
    "datasets": "public data, designs",
    "estimators": "scikit-learn API",
    "execute": "where the data lives",
    "kernel": "where data meets noise: queries, one clip, mechanisms, plans, the curator",
    "ledger": "budgets on disk",
    "literature": "printed, not proven; tables",
    "nn": "PyTorch",
    "parties": "MPC, Flower",
    "problems": "losses, clipped queries",
    "report": "pages, plots",
    "runs": "the only promises",
    "saving": "model files",
    "solvers": "update rules",
    "tables": "schemas, encoder",
}
# The middle of each box, chosen by eye so that no arrow runs through a box; a new room goes to the right.
MIDDLE = {
    "auditing": 480,
    "cli": 690,
    "report": 250,
    "literature": 860,
    "estimators": 185,
    "nn": 415,
    "parties": 630,
    "saving": 850,
    "runs": 560,
    "solvers": 110,
    "tables": 330,
    "ledger": 660,
    "datasets": 850,
    "problems": 160,
    "execute": 410,
    "accounting": 660,
    "kernel": 410,
}
WIDTH, BOX, TALL, FLOOR = 960, 170, 46, 92
MARKED = {"runs": "#fde9c9", "kernel": "#d9e8f7", "literature": "#eeeeee"}

Graph = dict[str, Counter[str]]


def rooms() -> list[str]:
    """Return the folders of the package."""
    return sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


@cache
def imports() -> Graph:
    """Return how many import statements lead from each room to each other one, those inside functions too."""
    found: Graph = {room: Counter() for room in rooms()}
    for room in found:
        for path in (SOURCE / room).rglob("*.py"):
            for target in _targets(ast.parse(path.read_text("utf-8"))):
                if target in found and target != room:
                    found[room][target] += 1
    return found


def _targets(tree: ast.AST) -> Iterator[str]:
    """Yield the room of each imported module of the package."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (name.split(".")[1] for name in names if name.startswith("sordino."))


def floors(graph: Graph) -> dict[str, int]:
    """Return each room's floor: one above the highest room it imports; a circle is an error."""
    found: dict[str, int] = {}
    while len(found) < len(graph):
        ready = [room for room in graph if room not in found and set(graph[room]) <= set(found)]
        if not ready:
            raise SystemExit(f"These rooms import each other: {sorted(set(graph) - set(found))}.")
        found |= {room: 1 + max((found[below] for below in graph[room]), default=-1) for room in ready}
    return found


def direct(graph: Graph) -> list[tuple[str, str]]:
    """Return the arrows that no longer way over other rooms replaces."""

    def reached(room: str) -> set[str]:
        return set(graph[room]).union(*(reached(below) for below in graph[room]))

    return [
        (room, below)
        for room in graph
        for below in sorted(graph[room])
        if not any(below in reached(other) for other in graph[room] if other != below)
    ]


def table() -> str:
    """Return the table: a row a room from the top floor down, and how often it imports which other."""
    graph = imports()
    levels = floors(graph)
    rows = [["floor", "room", "imports (at least so many statements)"], ["---"] * 3]
    for room in sorted(graph, key=lambda r: (-levels[r], r)):
        below = ", ".join(f"{name} {_at_least(count)}" for name, count in sorted(graph[room].items()))
        rows.append([str(levels[room]), f"`{room}`", below or "nothing"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _at_least(count: int) -> int:
    """Round down to a power of two: the page should not change with every import."""
    return int(2 ** (count.bit_length() - 1))


def picture() -> str:
    """Return the drawing."""
    graph = imports()
    levels = floors(graph)
    top = max(levels.values())
    place = {room: (MIDDLE.get(room, 850), 20 + FLOOR * (top - levels[room])) for room in graph}
    wide = {room: 620 if room == "kernel" else BOX for room in graph}
    height = 20 + FLOOR * top + TALL + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        ' font-family="Helvetica, Arial, sans-serif">',
        "<title>The rooms of Sordino; an arrow points to what a room imports</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *(_arrow(place, wide, *ends) for ends in direct(graph)),
        *(_box(room, *place[room], wide[room]) for room in graph),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _arrow(place: dict[str, tuple[int, int]], wide: dict[str, int], start: str, end: str) -> str:
    (x, y), (to, floor) = place[start], place[end]
    reach = wide[end] / 2 - 14
    to = round(min(max(x, to - reach), to + reach)) if wide[end] > BOX else round(to + (x - to) * 0.12)
    return (
        f'<line x1="{x + round((to - x) * 0.12)}" y1="{y + TALL}" x2="{to}" y2="{floor - 2}" stroke="#555"'
        ' stroke-width="1.3" marker-end="url(#tip)"/>'
    )


def _box(room: str, x: int, y: int, wide: int) -> str:
    return (
        f'<rect x="{x - wide // 2}" y="{y}" width="{wide}" height="{TALL}" rx="6"'
        f' fill="{MARKED.get(room, "#ffffff")}" stroke="#333"/>'
        f'<text x="{x}" y="{y + 19}" text-anchor="middle" font-size="15" font-weight="bold">{room}</text>'
        f'<text x="{x}" y="{y + 36}" text-anchor="middle" font-size="12">{WORDS.get(room, "")}</text>'
    )


def main() -> None:
    """Print the table, or write it between its marks and the picture beside the others."""
    if "--print" in sys.argv:
        print(table())
        return
    text = PAGE.read_text("utf-8")
    before, rest = text.split(START)
    PAGE.write_text(f"{before}{START}\n\n{table()}\n\n{END}{rest.split(END)[1]}", "utf-8")
    PICTURE.write_text(picture(), "utf-8")


if __name__ == "__main__":
    main()
