"""The figure of the front page, test accuracy against epsilon on four data sets by default, and its table.

Command: python docs/figures/front.py   (digits: five splits; the others two fits; points move a little;
--draw only draws the numbers of docs/images/front.json again, and writes the table from
benchmarks/results/accuracy.json into README.md)
Needs the data sets a9a, imdb and rcv1_sample (see docs/datasets.md).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from sordino import SparseLogisticRegression
from sordino.datasets import load, log1p_unit, unit_rows
from sordino.report.plots import log_axis, style_axes

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
START, END = "<!-- accuracy: made by docs/figures/front.py -->", "<!-- end of accuracy -->"
NAMES = {
    "digits": "digits 0-4 / 5-9",
    "imdb": "IMDB",
    "rcv1": "RCV1 sample",
}


def digits(seed):
    X, y = load("digits", return_X_y=True)
    return train_test_split(unit_rows(X), (y >= 5).astype(int), test_size=0.3, random_state=seed)


def bunch(name, prepare=lambda X: X):
    def split(seed):
        data = load(name)
        return prepare(data.data), prepare(data.test_data), data.target, data.test_target

    return split


TASKS = {
    "digits 0-4 / 5-9": (digits, 1.0, 5),
    "a9a": (bunch("a9a"), 3.75, 2),
    "IMDB reviews, d = 74,849": (bunch("imdb", log1p_unit), 1.0, 2),
    "RCV1 sample, d = 47,236": (bunch("rcv1_sample"), 1.0, 2),
}


def measure(split, data_norm, repeats):
    plain, private = [], {epsilon: [] for epsilon in EPSILONS}
    for seed in range(repeats):
        X, Xt, y, yt = split(seed)
        plain.append(LogisticRegression(max_iter=300).fit(X, y).score(Xt, yt))
        for epsilon in EPSILONS:
            model = SparseLogisticRegression(epsilon=epsilon, delta=1e-5, data_norm=data_norm)
            private[epsilon].append(model.fit(X, y).score(Xt, yt))
    return float(np.mean(plain)), [float(np.mean(private[e])) for e in EPSILONS]


def draw(results):
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = style_axes(figure.subplots())
    for name, (plain, private) in results.items():
        (line,) = axes.plot(EPSILONS, private, "o-", label=name)
        axes.axhline(plain, color=line.get_color(), linestyle=":", linewidth=1.2)
    axes.set(xlabel="epsilon (delta = 1e-5, one record added or removed)", ylabel="test accuracy")
    axes.set_title("Default settings; dotted: scikit-learn's LogisticRegression without privacy", fontsize=11)
    log_axis(axes, at=EPSILONS)
    axes.legend(loc="lower right")
    figure.savefig(IMAGES / "front.png", dpi=120)


def table(kept):
    """Return the table of the front page with a sentence on its runs."""
    about, rows = kept["about"], kept["rows"]
    runs = {row["runs"] for row in rows}
    lines = [
        "Defaults only, delta = 1e-5, one record added or removed, mean ± standard error over "
        f"{min(runs)} runs ({max(runs)} on digits and breast cancer), the median of their times;",
        f"`{about['command']}`, {about['date']}, {about['machine']}. `k` is `n_nonzero_coefs`.",
        "",
        "| data | k | epsilon | accuracy | without privacy | CPU seconds a fit |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        name = f"{NAMES.get(row['data'], row['data'])}, {row['n']:,} x {row['d']:,}"
        kept_coefs = f"{row['k']:,}" if row["k"] else "all"
        numbers = f"{row['mean']:.4f} ± {row['error']:.4f} | {row['plain']:.4f} | {row['cpu']:.2f}"
        lines.append(f"| {name} | {kept_coefs} | {row['epsilon']:g} | {numbers} |")
    return "\n".join(lines)


def page(text):
    """Return the front page with a fresh table."""
    made = table(json.loads((ROOT / "benchmarks" / "results" / "accuracy.json").read_text("utf-8")))
    block = f"{START}\n\n{made}\n\n{END}"
    return re.sub(f"{re.escape(START)}.*?{re.escape(END)}", lambda _: block, text, flags=re.S)


def main():
    numbers = IMAGES / "front.json"
    if "--draw" not in sys.argv:
        results = {name: measure(*task) for name, task in TASKS.items()}
        numbers.write_text(json.dumps(results, indent=1))
    draw(json.loads(numbers.read_text()))
    readme = ROOT / "README.md"
    readme.write_text(page(readme.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
