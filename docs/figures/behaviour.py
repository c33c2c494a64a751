"""Write docs/behaviour.md from benchmarks/results/behaviour.json; what fails is red.

Command: python docs/figures/behaviour.py
"""

from __future__ import annotations

import json
from collections import defaultdict
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULT, PAGE = ROOT / "benchmarks" / "results" / "behaviour.json", ROOT / "docs" / "behaviour.md"
SHOWN = 8

HEAD = """# Behaviour

Whoever works with private data cannot look at it to notice that an answer is off. So the library is tried as
a statistician would try it: every estimator and statistic, on designs of many shapes, at epsilon 0.1 to 10
and without noise. Answers should not get worse with more budget or more rows, not depend on units, shifts,
order or rounding, never be far below a constant, agree with scikit-learn without noise, and every interval
should cover. A cell that fails is red.

This page is made by `python docs/figures/behaviour.py` from `benchmarks/results/behaviour.json`, which
`{command} --save benchmarks/results/behaviour.json` writes (n = {rows} rows, {fits} fits, {repeats} repeats
per cell; designs in `benchmarks/behaviour_designs.py`, laws in `benchmarks/laws.py`). A score is the
accuracy, R², or the variance captured relative to the best axes.

What is known of failures: most rows here have no leading direction, so the axes of PCA are arbitrary and its
score moves by 0.03 between fits. At epsilon 0.1 and 2,000 rows a tenth of the records far away, or a
lognormal tail, cannot be seen in the histogram of scales, and an interval that allowed for it would be wide
for everybody; a regression whose targets are off zero cannot see their median either and predicts near zero.
A quantile on ties is found to a cell of the grid at one epsilon and exactly at another, so its tiny error
may grow.
"""


def page(result: dict) -> str:
    """Return the page."""
    found: dict[str, dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for cell in result["cells"]:
        found[cell["subject"]][cell["check"]].append(cell)
    failed = sum(not cell["holds"] for cell in result["cells"])
    out = [HEAD.format(**result["about"]), f"{len(result['cells'])} cells, {failed} of them fail.\n"]
    for subject, checks in found.items():
        out += [f"## {subject}\n", "| check | asked | holds | worst | fails at |", "|---|---|---|---|---|"]
        out += [_row(check, cells) for check, cells in checks.items()]
        out.append("")
    return "\n".join(out)


def _row(check: str, cells: list[dict]) -> str:
    failed = [cell for cell in cells if not cell["holds"]]
    holds = f"{len(cells) - len(failed)} of {len(cells)}"
    worst = max(failed or cells, key=lambda cell: _badness(cell))
    names = [f"{escape(c['where'])} ({c['found']:.3g})" for c in failed[:SHOWN]]
    names += [f"and {len(failed) - SHOWN} more"] * (len(failed) > SHOWN)
    cells_text = [check, escape(cells[0]["asked"]), holds, f"{worst['found']:.3g}", "; ".join(names)]
    if failed:
        cells_text = [cells_text[0], cells_text[1], *(_red(text) for text in cells_text[2:])]
    return f"| {' | '.join(cells_text)} |"


def _badness(cell: dict) -> float:
    """Return how far a cell is on the wrong side: large is bad where at most so much is asked."""
    return -cell["found"] if cell["asked"].startswith(">=") else cell["found"]


def _red(text: str) -> str:
    return f'<span style="color:#c62828">{text}</span>'


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RESULT.read_text("utf-8"))), "utf-8")
