"""RESULTS.md: each claim with its number, its command and its date, from the results that are kept.

Command: python docs/figures/results.py   (reads benchmarks/results; --print only shows it)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "benchmarks" / "results"
PAGE = ROOT / "RESULTS.md"
Line = tuple[str, str, str, str]  # claim, number, command, date

HEAD = """# Results

Each claim, its number, the command that measures it and the day it was measured. Made by
`python docs/figures/results.py` from `benchmarks/results`; a test compares the page with a fresh run. What is
not reached is listed like what is.

| claim | number | command | date |
|---|---|---|---|
"""


def kept(name: str) -> Any:
    """Return the contents of a kept file."""
    return json.loads((KEPT / name).read_text("utf-8"))


def guard() -> Iterator[Line]:
    """Accuracies and CPU ratios."""
    data = kept("guard.json")
    for name, found in data["measures"].items():
        if "mean" in found:
            number = f"{found['mean']:.4f} ± {found['error']:.4f}"
            claim = f"{name}, epsilon 1 (± a standard error, ten splits or, on a9a, fits)"
        else:
            number, claim = f"{found['ratio']:.2f}", f"{name}: CPU of a private fit over scikit-learn's own"
        yield claim, number, data["about"]["command"], data["about"]["date"]


def peers() -> Iterator[Line]:
    """Ours beside each peer at epsilon 1."""
    data = kept("peers.json")
    rows = [row for row in data["rows"] if row["epsilon"] == 1.0]
    for task in dict.fromkeys(row["task"] for row in rows):
        here = [row for row in rows if row["task"] == task]
        number = ", ".join(f"{row['method']} {row['mean']:.3f} ± {row['half']:.3f}" for row in here)
        runs = {row["runs"] for row in here}
        claim = f"{task}, epsilon 1 (95 % intervals of {max(runs)} runs; Sordino's defaults of that day)"
        yield claim, number, data["about"]["command"], data["about"]["date"]


def growth() -> Iterator[Line]:
    """How CPU time grows with each size."""
    data = kept("growth.json")
    command, date = data["about"]["command"], data["about"]["date"]
    for solver in ("ight", "auto"):
        found = {
            key.partition(", ")[2]: line for key, line in data["growth"].items() if key.startswith(solver)
        }
        number = ", ".join(f"{size}^{line['exponent']:.2f}" for size, line in found.items())
        claim = f"CPU of a sparse fit by `{solver}` over doublings of one size"
        yield claim, number, command, date
    number = f"m^{data['growth']['parties']['exponent']:.2f}"
    yield "CPU of descent between m parties of 100 records", number, command, date


def behaviour() -> Iterator[Line]:
    """Cells of the behaviour page that hold."""
    data = kept("behaviour.json")
    cells = [cell for subject in data["subjects"].values() for cell in subject["cells"]]
    number = f"{sum(cell['holds'] for cell in cells)} of {len(cells)}"
    newest, command = (
        max(subject["date"] for subject in data["subjects"].values()),
        "python -m benchmarks.behaviour",
    )
    older = [
        f"{name}: `{' '.join(found['command'].split()[3:]) or command}`, {found['date']}"
        for name, found in data["subjects"].items()
        if (found["command"], found["date"]) != (command, newest)
    ]
    number += f" ({'; '.join(older)})" if older else ""
    yield "cells of the behaviour page that hold", number, command, newest


def published() -> Iterator[Line]:
    """Count what became of the published numbers and of the orders of curves, table by table."""
    from sordino.literature.reproduce import TABLES, table_named, verdicts
    from sordino.literature.reproduce.tables import count_words

    for name in sorted(TABLES):
        path = KEPT / "reproduced" / f"{name}.json"
        if not path.exists():
            continue
        document = json.loads(path.read_text("utf-8"))
        quick = document["settings"]["quick"]
        words = count_words(verdicts(name, path.parent, quick=quick))
        command = f"sordino reproduce {name}" + (" --quick" if quick else "")
        yield f"{name} ({table_named(name).source})", words, command, document["about"]["date"]


def defaults() -> Iterator[Line]:
    """Compare published algorithms with nothing set with the best settings of a search."""
    data = kept("defaults.json")
    for solver in dict.fromkeys(cell["solver"] for cell in data["cells"]):
        cells = [cell for cell in data["cells"] if cell["solver"] == solver]
        number = ", ".join(
            f"{c['set']} at {c['epsilon']:g}: {c['ratio']:.2f}{'' if c['setting'] else ' (itself)'}"
            for c in cells
        )
        claim = f"`{solver}` with nothing set: loss over that of the best setting found (itself: nothing set)"
        yield claim, number, data["about"]["command"], data["about"]["date"]


def page() -> str:
    """Return the page."""
    lines = [line for part in (guard, peers, growth, behaviour, defaults, published) for line in part()]
    return HEAD + "\n".join(f"| {a} | {b} | `{c}` | {d} |" for a, b, c, d in lines) + "\n"


def main() -> None:
    """Write the page, or show it."""
    made = page()
    if "--print" in sys.argv:
        print(made)
    else:
        PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
