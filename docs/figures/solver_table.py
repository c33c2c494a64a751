"""The tables of docs/solvers/index.md, made from what the solvers of the registry declare.

Command: python docs/figures/solver_table.py   (writes the tables into the page; --print only shows them)
"""

from __future__ import annotations

import sys
from pathlib import Path

from sordino.nn.solvers import OPTIMIZERS
from sordino.solvers import SOLVERS, Entry

PAGE = Path(__file__).resolve().parents[1] / "solvers" / "index.md"
START, END = "<!-- made by docs/figures/solver_table.py -->", "<!-- end of the table -->"
MARKS = ("sparse", "dense", "persons", "weights", "lazy")
OTHERS = {"pca": "`PCA`", "heavy": "`HeavyTailedRegressor`, `HeavyTailedClassifier`", "networks": "networks"}


def tables() -> str:
    """Return a table of the linear solvers, the default first, and one of each other family."""
    able = {name: row.capabilities for name, row in SOLVERS["linear"].items()}
    head = ["solver", "read it as", "asks for", "reads", *(m.replace("_", " ") for m in MARKS), "counts"]
    lines = [head, ["---"] * len(head)]
    for name in sorted(able, key=lambda n: (n != "auto", not able[n].sparse, n)):
        marks = [*(bool(getattr(able[name], m)) for m in MARKS), able[name].knows("poisson")]
        lines.append([*_start(name, SOLVERS["linear"][name]), *("yes" if mark else "" for mark in marks)])
    parts = [_text(lines)]
    assert OPTIMIZERS, "sordino.nn adds its rows when it is imported"
    for family, who in OTHERS.items():
        head = ["solver", "read it as", "asks for", "reads", "own options"]
        rows = [
            [*_start(name, row), ", ".join(f"`{option}`" for option in row.capabilities.options)]
            for name, row in SOLVERS[family].items()
            if row.stands_for is None
        ]
        parts.append(f"Solvers of {who}:\n\n" + _text([head, ["---"] * len(head), *rows]))
    return "\n\n".join(parts)


def _start(name: str, row: Entry) -> list[str]:
    reads = ", ".join(f"`{option}`" for option in row.capabilities.reads)
    return [f"[`{name}`]({row.capabilities.page}.md)", row.capabilities.paper, row.capabilities.asks, reads]


def _text(rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    """Print the tables, or write them between their marks."""
    if "--print" in sys.argv:
        print(tables())
        return
    text = PAGE.read_text("utf-8")
    before, rest = text.split(START)
    PAGE.write_text(f"{before}{START}\n\n{tables()}\n\n{END}{rest.split(END)[1]}", "utf-8")


if __name__ == "__main__":
    main()
