"""The table and the figure of docs/nonconvex.md: test loss against data passes on two data sets.

Command: python docs/figures/nonconvex.py   (draws what ``python -m benchmarks.nonconvex --save`` measured)
"""

from __future__ import annotations

import json
from pathlib import Path

from matplotlib.figure import Figure

from sordino.report.plots import log_axis, style_axes

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "nonconvex.json"
EPSILON = "0.2"
PUBLISHED = {"a9a": 0.3579, "ijcnn1": 0.2503}
NAMES = {"gd": "gd", "agd": "agd", "sgd": "sgd", "srm": "srm"}
LIMITS = {"a9a": (0.32, 0.6), "ijcnn1": (0.2, 0.5)}


START, END = "<!-- table -->\n", "<!-- end of table -->"
PRINTED = {
    "gd": ("0.4155 / .0953", "0.3859 / .0866", "0.3160 / .0184", "0.2717 / .0171"),
    "agd": ("0.3713 / .0437", "0.3627 / .0402", "0.2645 / .0133", "0.2416 / .0397"),
    "rrp-sgd": ("0.4019 / .2175", "0.3861 / .1454", "0.3110 / .0175", "0.3033 / .0160"),
    "srm": ("0.3579 / .0528", "0.3506 / .0502", "0.2503 / .0117", "0.2341 / .0082"),
}


def table(results):
    """Return the table: test loss / gradient norm (passes), the printed numbers below."""
    columns = [(task, epsilon) for task in PUBLISHED for epsilon in ("0.2", "0.5")]
    lines = ["| test loss / gradient norm | " + " | ".join(f"{t}, ε = {e}" for t, e in columns) + " |"]
    lines.append("|---|" + "---|" * len(columns))
    for method in ("gd", "agd", "rrp-sgd", "sgd", "srm"):
        cells = [results[t][e][method] for t, e in columns]
        counts = [round(c["passes"][0]) for c in cells]
        passes = " to ".join(str(n) for n in sorted({min(counts), max(counts)}))
        shown = [
            f"{c['loss'][0]:.4f} ±{c['loss'][1]:.4f} / {c['gradient'][0]:.4f} ±{c['gradient'][1]:.4f}"
            for c in cells
        ]
        lines.append(f"| `{method}`, {passes} passes | " + " | ".join(shown) + " |")
        if method in PRINTED:
            lines.append("| *printed* | " + " | ".join(f"*{cell}*" for cell in PRINTED[method]) + " |")
    return "\n".join(lines) + "\n"


def draw(axes, task, methods):
    """Draw one data set."""
    for method, label in NAMES.items():
        if "path" in methods.get(method, {}):
            passes, losses = zip(*methods[method]["path"])
            axes.plot(passes, losses, marker=".", label=label)
    axes.axhline(PUBLISHED[task], color="gray", linestyle=":", label="published DP-SRM, 4 passes")
    axes.set(xlabel="data passes", ylabel="test loss", ylim=LIMITS[task], title=task)
    log_axis(style_axes(axes))


def main():
    """Draw all data sets side by side, and write the table into the page."""
    results = json.loads(RESULTS.read_text("utf-8"))
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    panels = figure.subplots(1, len(PUBLISHED), squeeze=False)[0]
    for axes, task in zip(panels, PUBLISHED):
        draw(axes, task, results.get(task, {}).get(EPSILON, {}))
    panels[0].legend(fontsize="small")
    page = HERE.parent / "nonconvex.md"
    before, _, rest = page.read_text("utf-8").partition(START)
    page.write_text(before + START + table(results) + END + rest.partition(END)[2], "utf-8")
    figure.savefig(HERE / "nonconvex.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
