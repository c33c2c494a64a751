"""The table of all solvers in docs/solvers/index.md, made from benchmarks/results/solver_bars.json.

Command: python docs/figures/solver_bars.py
"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULT, PAGE = ROOT / "benchmarks" / "results" / "solver_bars.json", ROOT / "docs" / "solvers" / "index.md"
START, END = "<!-- made by docs/figures/solver_bars.py -->", "<!-- end of the results -->"

HEAD = """Accuracy, or R² for numbers, at epsilon {epsilon:g}, delta 1e-5, of at most {rows:,} training rows
(`{command} --save benchmarks/results/solver_bars.json`, {date}; seeded noise, the median of {fits} fits).
Red: the loss on test records (log loss, squared error) is not below that of the best constant."""


def results(data: dict) -> str:
    """Return the words and the table: a row a solver, the default first."""
    fits = {(fit["set"], fit["solver"]): fit for fit in data["fits"]}
    sets = list(dict.fromkeys(fit["set"] for fit in data["fits"]))
    solvers = sorted({fit["solver"] for fit in data["fits"]}, key=lambda name: (name != "auto", name))
    rows = [["solver", *sets], ["---"] * (len(sets) + 1)]
    rows += [[f"`{solver}`", *(_cell(fits.get((s, solver))) for s in sets)] for solver in solvers]
    rows.append(["best constant", *(f"{fits[s, solvers[0]]['constant']:.3f}" for s in sets)])
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    worse = sum(fit["gain"] <= 0 for fit in data["fits"])
    counted = f"{len(data['fits']) - worse} of {len(data['fits'])} beat the best constant."
    return f"{HEAD.format(**data['about'])}\n\n{table}\n\n{counted}"


def _cell(fit: dict | None) -> str:
    if fit is None:
        return ""
    text = f"{fit['score']:.3f}"
    return text if fit["gain"] > 0 else f'<span style="color:#c62828">{text}</span>'


def page(text: str, data: dict) -> str:
    """Return the page with the table between its marks."""
    before, rest = text.split(START)
    return f"{before}{START}\n\n{results(data)}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8"), json.loads(RESULT.read_text("utf-8"))), "utf-8")
