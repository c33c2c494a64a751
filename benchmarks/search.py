"""A search beside the default without one, at the same total epsilon: accuracy, or R2, on a test set.

Command: python -m benchmarks.search [--runs 5] [--only digits]
Splits and made-up rows are seeded by the run, noise is fresh. (1, 1e-5)-DP in total, one record added or
removed. All sets were in view when it was decided what one fit gives; none of them judges. Needs the
table Computers (docs/datasets.md); where it is absent it is left out. Writes benchmarks/results/search.json.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import warnings
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import sordino
from sordino.datasets import load, unit_rows

OUT = Path(__file__).parent / "results" / "search.json"
EPSILON, DELTA = 1.0, 1e-5
ALPHAS, STEPS = [0.0, 0.001, 0.01, 0.1], [10, 30, 100]


def digits(seed):
    X, y = load("digits", return_X_y=True)
    return train_test_split(unit_rows(X), y, test_size=0.25, random_state=seed)


def breast_cancer(seed):
    X, y = load("breast_cancer", return_X_y=True)
    X = unit_rows(StandardScaler().fit_transform(X))  # a bar's protocol; not private by itself
    return train_test_split(X, y, test_size=0.25, random_state=seed)


def computers(seed):
    """Prices of computers in thousands, from seven numbers in the units of public bounds."""
    with gzip.open(Path(os.environ.get("SORDINO_DATA", ".")) / "tables" / "Computers.csv.gz", "rt") as file:
        rows = [line.strip().replace('"', "").split(",") for line in file][1:]
    price, *columns = np.array([[row[i] for i in (1, 2, 3, 4, 5, 9, 10)] for row in rows], dtype=float).T
    X = np.array(columns).T / np.array([100.0, 2000.0, 32.0, 17.0, 350.0, 35.0])
    return train_test_split(X, price / 1000.0, test_size=0.25, random_state=seed)


def few_numbers(seed, n=4000, d=100, count=5):
    """Numbers that depend on a few of many columns."""
    public = np.random.default_rng(seed)
    X, w = public.normal(size=(n + 4000, d)), np.zeros(d)
    w[:count] = 1.0 / np.sqrt(count)
    y = X @ w + 0.5 * public.normal(size=len(X))
    return X[:n], X[n:], y[:n], y[n:]


def few_labels(seed, n=8000, d=150, count=8):
    """Labels that depend on a few of many columns, each column like the one before it."""
    public = np.random.default_rng(seed)
    X = public.normal(size=(n + 4000, d))
    for column in range(1, d):
        X[:, column] = 0.5 * X[:, column - 1] + np.sqrt(0.75) * X[:, column]
    w = np.zeros(d)
    w[public.choice(d, count, replace=False)] = 1.0
    y = (public.uniform(size=len(X)) < 1.0 / (1.0 + np.exp(-X @ w))).astype(int)
    return X[:n], X[n:], y[:n], y[n:]


def alike(seed, n=2000, d=40):
    """Numbers from many columns that are nearly one another: a penalty helps."""
    public = np.random.default_rng(seed)
    X = public.normal(size=(n + 4000, 4)) @ public.normal(size=(4, d)) + 0.3 * public.normal(
        size=(n + 4000, d)
    )
    y = X @ public.normal(size=d) / np.sqrt(4.0 * d) + public.normal(size=len(X))
    return X[:n], X[n:], y[:n], y[n:]


LABELS, NUMBERS = sordino.LogisticRegression, sordino.LinearRegression
# set, maker, estimator, its declared bounds, grids
SETS = {
    "digits": (
        digits,
        LABELS,
        {"data_norm": 1.0, "classes": np.arange(10)},
        {"alpha": ALPHAS[:3], "max_iter": STEPS, "data_norm": [0.5, 1.0, 2.0]},
    ),
    "few numbers": (
        few_numbers,
        sordino.SparseLinearRegression,
        {"data_norm": 15.0, "target_bound": 4.0},
        {"n_nonzero_coefs": [2, 5, 10, 30], "alpha": ALPHAS},
    ),
    "breast cancer": (
        breast_cancer,
        sordino.SparseLogisticRegression,
        {"data_norm": 1.0, "classes": [0, 1]},
        {"alpha": ALPHAS, "n_nonzero_coefs": [3, 10, 20], "max_iter": STEPS, "data_norm": [0.5, 1.0, 2.0]},
    ),
    "few labels": (
        few_labels,
        sordino.SparseLogisticRegression,
        {"data_norm": 15.0, "classes": [0, 1]},
        {"n_nonzero_coefs": [4, 8, 16, 50], "alpha": ALPHAS},
    ),
    "computers": (
        computers,
        NUMBERS,
        {"data_norm": 2.0, "target_bound": 5.0},
        {"alpha": ALPHAS, "max_iter": STEPS, "data_norm": [1.0, 2.0, 4.0]},
    ),
    "columns alike": (alike, NUMBERS, {"data_norm": 20.0, "target_bound": 6.0}, {"alpha": ALPHAS}),
}


def measured(name, runs):
    """Return the scores of the default and of a search over each grid."""
    make, kind, bounds, grids = SETS[name]
    found = {"no search": [], **{grid: [] for grid in grids}}
    for run in range(runs):
        X, Xt, y, yt = make(run)
        model = kind(epsilon=EPSILON, delta=DELTA, **bounds)
        found["no search"].append(model.fit(X, y).score(Xt, yt))
        for grid, values in grids.items():
            how = {
                "random_state": run,
                **json.loads(os.environ.get("HOW", "{}")),
                "target_bound": bounds.get("target_bound"),
            }
            search = sordino.PrivateSearchCV(kind(**bounds), {grid: values}, EPSILON, DELTA, **how).fit(X, y)
            found[grid].append(search.score(Xt, yt))
    return found


def main():
    """Measure all sets, or one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=SETS)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = json.loads(OUT.read_text()) if OUT.exists() and asked.only else {}
    for name in [asked.only] if asked.only else SETS:
        try:
            scores = measured(name, asked.runs)
        except FileNotFoundError as error:
            print(f"{name}: {error} is absent")
            continue
        kept[name] = {
            grid: {"mean": round(float(np.mean(s)), 4), "worst": round(min(s), 4), "runs": len(s)}
            for grid, s in scores.items()
        }
        for grid, s in kept[name].items():
            print(f"{name:>14} {grid:>16} {s['mean']:.3f} worst {s['worst']:.3f}", flush=True)
    OUT.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
