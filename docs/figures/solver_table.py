"""The table of docs/solvers/index.md, made from what the solvers declare.

Command: python docs/figures/solver_table.py   (writes the table into the page; --print only shows it)
"""

from __future__ import annotations

import sys
from pathlib import Path

from sordino.solvers import SOLVERS, capabilities_of

PAGE = Path(__file__).resolve().parents[1] / "solvers" / "index.md"
START, END = "<!-- made by docs/figures/solver_table.py -->", "<!-- end of the table -->"
MARKS = ("sparse", "dense", "persons", "weights", "secure_noise", "lazy")


def table() -> str:
    """Return the table: a row a solver, the default first."""
    head = ["solver", "read it as", "asks for", "reads", *(m.replace("_", " ") for m in MARKS), "counts"]
    rows = [head, ["---"] * len(head)]
    for name in sorted(SOLVERS, key=lambda n: (n != "auto", not capabilities_of(n).sparse, n)):
        able = capabilities_of(name)
        reads = ", ".join(f"`{option}`" for option in able.reads)
        link = f"[`{name}`]({able.page}.md)"
        marks = [*(bool(getattr(able, m)) for m in MARKS), able.knows("poisson")]
        rows.append([link, able.paper, able.asks, reads, *("yes" if mark else "" for mark in marks)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    """Print the table, or write it between its marks."""
    if "--print" in sys.argv:
        print(table())
        return
    text = PAGE.read_text("utf-8")
    before, rest = text.split(START)
    PAGE.write_text(f"{before}{START}\n\n{table()}\n\n{END}{rest.split(END)[1]}", "utf-8")


if __name__ == "__main__":
    main()
