"""Accuracy of the sparse estimators with their defaults, beside the bars and beside no privacy.

Command: python -m benchmarks.accuracy [--runs 10] [--save]   (splits seeded by the run, noise fresh; five
times as many on digits and breast cancer, where a test set of 171 rows makes ten runs a lottery)
Needs a9a, imdb and rcv1_sample (docs/datasets.md). (epsilon, 1e-5), one record added or removed. --save keeps
benchmarks/results/accuracy.json, from which `python docs/figures/front.py --draw` makes a table of README.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks.machine import about
from sordino import SparseLinearRegression, SparseLogisticRegression
from sordino.datasets import load, log1p_unit, make_sparse_linear_model, unit_rows

SAVED = Path(__file__).parent / "results" / "accuracy.json"


def digits(seed):
    X, y = load("digits", return_X_y=True)
    return train_test_split(unit_rows(X), (y >= 5).astype(int), test_size=0.3, random_state=seed)


def breast_cancer(seed):
    X, y = load("breast_cancer", return_X_y=True)
    X = unit_rows(StandardScaler().fit_transform(X))  # the bar's protocol; not private by itself
    return train_test_split(X, y, test_size=0.3, random_state=seed)


def fixed(name, prepare=lambda X: X):
    data = load(name)
    parts = prepare(data.data), prepare(data.test_data), data.target, data.test_target
    return lambda seed: parts


# data set, data_norm, k, {epsilon: bar on the accuracy}
ROWS = (
    ("digits", digits, 1.0, None, {1.0: 0.85, 2.0: 0.86}),
    ("breast cancer", breast_cancer, 1.0, None, {1.0: 0.955}),
    ("a9a", lambda: fixed("a9a"), 3.75, None, {1.0: 0.8495 - 0.005}),
    ("imdb", lambda: fixed("imdb", log1p_unit), 1.0, None, {1.0: 0.855, 4.0: 0.87}),
    ("imdb", lambda: fixed("imdb", log1p_unit), 1.0, 5000, {1.0: 0.83, 4.0: 0.86}),
    ("rcv1", lambda: fixed("rcv1_sample"), 1.0, 1000, {1.0: 1 - 0.072, 2.0: 1 - 0.058, 8.0: 1 - 0.050}),
    ("rcv1", lambda: fixed("rcv1_sample"), 1.0, 500, {1.0: 1 - 0.078, 2.0: 1 - 0.062, 8.0: 1 - 0.056}),
)


def without_privacy(X, Xt, y, yt) -> float:
    """Return the accuracy of scikit-learn's model on a split."""
    return LogisticRegression(max_iter=500).fit(X, y).score(Xt, yt)


def classification(runs: int) -> list[dict[str, Any]]:
    """Return a row for each data set, k and epsilon: mean accuracy, standard error, CPU seconds a fit."""
    rows = []
    for name, split, data_norm, k, bars in ROWS:
        small = name in ("digits", "breast cancer")
        split, repeats = (split, 5 * runs) if small else (split(), runs)
        plain = float(np.mean([without_privacy(*split(run)) for run in range(repeats if small else 1)]))
        for epsilon, bar in bars.items():
            scores, spent = [], []
            for run in range(repeats):
                X, Xt, y, yt = split(run)
                model = SparseLogisticRegression(
                    epsilon=epsilon, delta=1e-5, n_nonzero_coefs=k, data_norm=data_norm
                )
                start = time.process_time()
                model.fit(X, y)
                spent.append(time.process_time() - start)
                scores.append(model.score(Xt, yt))
            error = float(np.std(scores, ddof=1) / np.sqrt(repeats)) if repeats > 1 else 0.0
            row = {"data": name, "n": X.shape[0], "d": X.shape[1], "k": k, "epsilon": epsilon}
            row |= {"mean": float(np.mean(scores)), "error": error, "runs": repeats, "bar": bar}
            rows.append({**row, "plain": plain, "cpu": float(np.median(spent))})
            verdict = "holds" if row["mean"] >= bar else "MISS"
            print(
                f"{name:>14} k {k or 'all':>5} epsilon {epsilon:g}: {row['mean']:.4f} +- {error:.4f}, "
                f"bar {bar:.4f} {verdict}, plain {plain:.4f}, {rows[-1]['cpu']:.2f} s of CPU",
                flush=True,
            )
    return rows


def regression(runs: int) -> dict[str, Any]:
    """Paper 002's design: relative error and support recovery at epsilon 2, delta .01.

    The rival is plain ``ight`` with the best steps, step size and clip of a grid *with hindsight*: what an
    oracle that sees the true coefficients would choose.
    """
    designs = [make_sparse_linear_model(5000, 5000, 30, random_state=run) for run in range(runs)]
    error, spread, found = recovery(designs * 3)
    print(
        f"n = d = 5000, s = 30, eps 2, delta .01: relative error {error:.3f} +- {spread:.3f}, "
        f"support found {found:.0%}"
    )
    grid = [
        {"solver": "ight", "max_iter": steps, "solver_options": {"step_size": step, "clip_norm": clip}}
        for steps in (10, 20, 40)
        for step in (0.3, 0.5, 1.0)
        for clip in (10.0, 20.0, 40.0, 60.0)
    ]
    best = min(grid, key=lambda options: recovery(designs, **options)[0])
    oracle, _, found = recovery(designs * 3, **best)
    verdict = "holds" if error <= 1.25 * oracle else "MISS"
    print(f"  best of {len(grid)} in hindsight: {oracle:.3f}, support found {found:.0%}, {best}")
    print(f"  ratio {error / oracle:.2f}, bar 1.25: {verdict}")
    return {"mean": error, "error": spread, "best in hindsight": oracle, "settings": best}


def recovery(designs: list, **options) -> tuple[float, float, float]:
    """Return the mean relative error, its standard error and the share of the support that was found."""
    errors, found = [], []
    for data in designs:
        model = SparseLinearRegression(
            epsilon=2.0,
            delta=1e-2,
            n_nonzero_coefs=30,
            data_norm=60.0,
            target_bound=10.0,
            fit_intercept=False,
            **options,
        )
        model.fit(data.data, data.target)
        errors.append(np.linalg.norm(model.coef_ - data.coef) / np.linalg.norm(data.coef))
        found.append(np.isin(np.flatnonzero(data.coef), model.support_).mean())
    return float(np.mean(errors)), float(np.std(errors) / np.sqrt(len(designs))), float(np.mean(found))


def main() -> None:
    """Print all rows, and keep them."""
    import warnings

    warnings.simplefilter("ignore")  # delta >= 1/n is the protocol of the bars
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--save", action="store_true")
    asked = parser.parse_args()
    said = about("python -m benchmarks.accuracy --save")
    SparseLogisticRegression(1.0, 1e-5, data_norm=1.0).fit(*digits(0)[::2])  # loads compiled code
    found = {"about": said, "rows": classification(asked.runs), "regression": regression(min(asked.runs, 3))}
    if asked.save:
        SAVED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
