"""Draw the rates of the heavy-tails page: python docs/figures/heavy.py   (seed 0, about five minutes).

Writes heavy-mean.svg, heavy-regression.svg and heavy.json beside this file.
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
from benchmarks.heavy import ORDERS, SIZES, excess_risks, mean_errors, slope  # noqa: E402

from sordino.report.plots import log_axis, new_axes  # noqa: E402
from sordino.testing import seeded_noise_not_private  # noqa: E402

ROWS = (3000, 10_000, 30_000, 100_000, 300_000)
LEARNERS = {
    "norms clipped (default)": {},
    "coordinates truncated": {"solver_options": {"gradient": "truncated"}},
    "Huber loss": {"loss": "huber"},
    "disjoint chunks (paper)": {"solver_options": {"split": True}},
}


def measured() -> dict:
    """Return all errors; the noise is seeded and so not private."""
    with seeded_noise_not_private(0):
        means = {str(v): mean_errors(v, False, SIZES, 200) for v in ORDERS}
        risks = {name: excess_risks(options, ROWS, 20) for name, options in LEARNERS.items()}
    return {"sizes": SIZES, "mean": means, "rows": ROWS, "regression": risks}


def draw(x: tuple, curves: dict, rates: dict, label: str, name: str) -> None:
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
    """Measure and write the numbers (not with --draw), then draw."""
    if "--draw" not in sys.argv:
        (HERE / "heavy.json").write_text(json.dumps(measured(), indent=1) + "\n")
    found = json.loads((HERE / "heavy.json").read_text("utf-8"))
    means = {f"v = {v}": y for v, y in found["mean"].items()}
    rates = {f"v = {v}": -float(v) / (1 + float(v)) for v in found["mean"]}
    draw(SIZES, means, rates, "mean absolute error", "heavy-mean.svg")
    flat = dict.fromkeys(found["regression"], -1.0)
    draw(ROWS, found["regression"], flat, "median excess risk", "heavy-regression.svg")


if __name__ == "__main__":
    main()
