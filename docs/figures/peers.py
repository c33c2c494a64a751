"""The table of docs/comparison.md: ours beside the peers, from the run that is kept.

Command: python docs/figures/peers.py   (writes it into the page; --print only shows it)
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE, KEPT = ROOT / "docs" / "comparison.md", ROOT / "benchmarks" / "results" / "peers.json"
START, END = "<!-- made by docs/figures/peers.py -->", "<!-- end of the table -->"
HEAD = ("task", "method", "epsilon 1", "epsilon 4", "CPU, s (least to most)", "CPU over ours", "peak, MB")
Row = dict[str, Any]


def lines(rows: list[Row]) -> list[list[str]]:
    """Return a line for each task and method; time and memory are those at epsilon 1."""
    found = []
    for task in dict.fromkeys(row["task"] for row in rows):
        here = [row for row in rows if row["task"] == task]
        ours = next(row for row in here if row["method"] == "sordino" and row["epsilon"] == 1.0)
        for method in dict.fromkeys(row["method"] for row in here):
            of = {row["epsilon"]: row for row in here if row["method"] == method}
            one = of.get(1.0) or of[float("inf")]
            scores = [_score(of.get(epsilon, one)) for epsilon in (1.0, 4.0)]
            spent = f"{_short(one['cpu'])} ({' to '.join(map(_short, one['cpu_range']))})"
            found.append([task, method, *scores, spent, _ratio(one, ours), f"{one['peak_mb']:.0f}"])
    return found


def _score(row: Row) -> str:
    return f"{row['mean']:.3f} ± {row['half']:.3f}"


def _ratio(one: Row, ours: Row) -> str:
    """Return the ratio of the medians, with the least and the most that the ranges allow."""
    if one is ours:
        return "1"
    (low, high), (our_low, our_high) = one["cpu_range"], ours["cpu_range"]
    return f"{_short(one['cpu'] / ours['cpu'])} ({_short(low / our_high)} to {_short(high / our_low)})"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def table() -> str:
    """Return the table with what was run, and where."""
    kept = json.loads(KEPT.read_text("utf-8"))
    about, rows = kept["about"], kept["rows"]
    said = f"`{about['command']}`, {about['date']}, {about['machine']}:"
    written = [HEAD, ["---"] * len(HEAD), *lines(rows)]
    return "\n".join([said, "", *("| " + " | ".join(cells) + " |" for cells in written)])


def page(text: str) -> str:
    """Return the page with a fresh table."""
    block = f"{START}\n\n{table()}\n\n{END}"
    return re.sub(f"{re.escape(START)}.*?{re.escape(END)}", lambda _: block, text, flags=re.S)


def main() -> None:
    """Write the table, or show it."""
    if "--print" in sys.argv:
        print(table())
    else:
        PAGE.write_text(page(PAGE.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
