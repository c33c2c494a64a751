"""The figure of docs/nonconvex.md: test loss against data passes on two data sets.

Command: python docs/figures/nonconvex.py   (draws what ``python -m benchmarks.nonconvex --save`` measured)
"""

from __future__ import annotations

import json
from pathlib import Path

from matplotlib.figure import Figure

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "nonconvex.json"
EPSILON = "0.2"
PUBLISHED = {"a9a": 0.3579, "ijcnn1": 0.2503}
NAMES = {"gd": "gd", "agd": "agd", "sgd": "sgd", "srm": "srm"}
LIMITS = {"a9a": (0.32, 0.6), "ijcnn1": (0.2, 0.5)}


def draw(axes, task, methods):
    """Draw one data set."""
    for method, label in NAMES.items():
        if "path" in methods.get(method, {}):
            passes, losses = zip(*methods[method]["path"])
            axes.plot(passes, losses, marker=".", label=label)
    axes.axhline(PUBLISHED[task], color="gray", linestyle=":", label="published DP-SRM, 4 passes")
    axes.set(xscale="log", xlabel="data passes", ylabel="test loss", ylim=LIMITS[task], title=task)


def main():
    """Draw all data sets side by side."""
    results = json.loads(RESULTS.read_text("utf-8"))
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    panels = figure.subplots(1, len(PUBLISHED), squeeze=False)[0]
    for axes, task in zip(panels, PUBLISHED):
        draw(axes, task, results.get(task, {}).get(EPSILON, {}))
    panels[0].legend(fontsize="small")
    figure.savefig(HERE / "nonconvex.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
