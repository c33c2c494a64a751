"""Draw the rates of the heavy-tails page from what `python -m benchmarks.heavy --save` measured.

Command: python docs/figures/heavy.py   (writes heavy-mean.svg and heavy-regression.svg beside this file)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import matplotlib  # noqa: E402

matplotlib.use("Agg")
matplotlib.rcParams.update({"svg.hashsalt": "sordino", "svg.fonttype": "none", "font.size": 9})

import numpy as np  # noqa: E402
from benchmarks.heavy import slope  # noqa: E402

from sordino.report.plots import log_axis, new_axes  # noqa: E402

KEPT = HERE.parents[1] / "benchmarks" / "results" / "heavy.json"


def draw(x: list, curves: dict, rates: dict, label: str, name: str) -> None:
    """Draw errors as dots and the slopes of the theory as lines through their middles."""
    axis = new_axes(5.5, 3.6)
    for key, y in curves.items():
        theory = np.exp(np.mean(np.log(y))) * (np.array(x) / np.exp(np.mean(np.log(x)))) ** rates[key]
        text = f"{key}: slope {slope(x, y):.2f}, theory {rates[key]:.2f}"
        dots = axis.loglog(x, y, "o", label=text)[0]
        axis.loglog(x, theory, "-", color=dots.get_color(), linewidth=0.8)
    axis.set(xlabel="records (epsilon = 1)", ylabel=label)
    log_axis(axis, "x")
    log_axis(axis, "y")
    axis.legend(fontsize=7)
    axis.figure.savefig(HERE / name, metadata={"Date": None})


def main() -> None:
    """Draw both figures."""
    found = json.loads(KEPT.read_text("utf-8"))
    sizes, rows = found["about"]["sizes"], found["about"]["rows"]
    means = {f"v = {row['v']}": row["errors"] for row in found["means"]}
    rates = {f"v = {row['v']}": -row["v"] / (1 + row["v"]) for row in found["means"]}
    draw(sizes, means, rates, "mean absolute error", "heavy-mean.svg")
    risks = {row["model"].replace("`", ""): row["risks"] for row in found["regressions"]}
    draw(rows, risks, dict.fromkeys(risks, -1.0), "median excess risk", "heavy-regression.svg")


if __name__ == "__main__":
    main()
