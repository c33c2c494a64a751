"""How often the intervals of private scores cover the score on the population.

Command: python -m benchmarks.score_intervals [--repeats 1000] [--only auc]
Laws: two classes balanced, imbalanced, easy, overconfident; five classes; regression with Gaussian,
heavy-tailed, whole-numbered and nearly exact targets; "tied" margins are whole numbers. Of a calibration
curve the worst cell counts. Writes benchmarks/results/score_intervals.json. The formulas were written with
the laws "balanced", "imbalanced", "easy", "gauss" and "good" in view; the others judge.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

import sordino
from sordino.estimators.evaluation import limits_of
from sordino.estimators.metrics import METRICS, judge
from sordino.solvers.heavy.location import NoisyMeans

OUT = Path(__file__).parent / "results" / "score_intervals.json"
SETTINGS = ((300, 1.0), (3000, 0.3))
LAWS = {
    "balanced": (2, 2.0, 1.0, 1.0),
    "imbalanced": (2, 2.0, 9.0, 1.0),
    "easy": (2, 5.0, 1.0, 1.0),
    "five classes": (5, 2.0, 3.0, 1.0),
    "overconfident": (2, 1.0, 1.0, 4.0),
    "tied": (2, 2.0, 2.0, 1.0),
}
NUMBERS = ("gauss", "heavy", "whole", "good")
BOUNDS = (-5.0, 5.0)


class Softmax(ClassifierMixin, BaseEstimator):
    """A public classifier: the columns are its margins."""

    def __init__(self, classes=2):
        self.classes = classes
        self.classes_ = np.arange(classes)

    def predict_proba(self, X):
        z = np.exp(X - X.max(axis=1, keepdims=True))
        return z / z.sum(axis=1, keepdims=True)

    def predict(self, X):
        return X.argmax(axis=1)


class First(RegressorMixin, BaseEstimator):
    """A public regressor: the first column."""

    def predict(self, X):
        return X[:, 0]


def labelled(public, n, classes, distance, imbalance, scale):
    weights = np.ones(classes)
    weights[0] = imbalance
    y = public.choice(classes, size=n, p=weights / weights.sum())
    X = public.normal(size=(n, classes))
    X[np.arange(n), y] += distance
    return X * scale, y


def whole(public, n, *law):
    X, y = labelled(public, n, *law)
    return np.round(X), y


def numbers(public, n, law):
    x = public.normal(size=n)
    noise = {
        "gauss": lambda: public.normal(size=n) / 2,
        "heavy": lambda: public.standard_t(2.2, size=n) / 2,
        "whole": lambda: public.normal(size=n),
        "good": lambda: public.normal(size=n) / 20,
    }[law]()
    return x[:, None], np.round(x + noise) if law == "whole" else x + noise


def cells():
    for name, law in LAWS.items():
        metrics = (
            "accuracy",
            "balanced_accuracy",
            "log_loss",
            *(("auc", "calibration") if law[0] == 2 else ()),
        )
        made = whole if name == "tied" else labelled
        for metric in metrics:
            yield name, metric, Softmax(law[0]), lambda p, n, law=law, made=made: made(p, n, *law), {}
    for law in NUMBERS:
        for metric in ("mse", "r2"):
            yield law, metric, First(), lambda p, n, law=law: numbers(p, n, law), {"bounds": BOUNDS}


def measured(metric, model, make, options, n, epsilon, repeats):
    """Return coverage, error and half width; the noise is that of the plan, drawn here a thousand times."""
    exact = {"epsilon": float("inf"), "delta": 1e-6, "metric": metric, **options}
    truth = sordino.private_score(model, *make(np.random.default_rng(9), 1_000_000), **exact)
    public = np.random.default_rng(1)
    plan = sordino.private_score(model, *make(public, n), **{**exact, "epsilon": epsilon}).privacy
    row = METRICS[metric]
    chosen = row.metric(limits_of(row, model, None, options.get("bounds"), 10))
    noise = chosen.radius * plan.releases[0].noise_multiplier / n
    if metric == "calibration":
        curves = [_curve(chosen, row.asks, model, make, public, n, noise, plan) for _ in range(repeats)]
        return _worst(curves, truth)
    truth = float(truth)
    found = np.array([_one(chosen, row.asks, model, make, public, n, noise) for _ in range(repeats)])
    inside = np.mean((found[:, 1] <= truth) & (truth <= found[:, 2]))
    error = np.sqrt(np.nanmean((found[:, 0] - truth) ** 2))  # of those that are known
    half = np.median((found[:, 2] - found[:, 1]) / 2)
    return {"coverage": round(float(inside), 4), "error": float(f"{error:.3g}"), "half": _finite(half)}


def _finite(value):
    return float(f"{value:.3g}") if np.isfinite(value) else "inf"  # nothing but the limits is known


def _noisy(chosen, asks, model, make, public, n, noise):
    X, y = make(public, n)
    rows = chosen.rows(judge(model, X, y, asks))
    return NoisyMeans(rows.mean(axis=0) + noise * public.normal(size=rows.shape[1]), noise)


def _one(chosen, asks, model, make, public, n, noise):
    return chosen.estimate(_noisy(chosen, asks, model, make, public, n, noise), n, 0.95)


def _curve(chosen, asks, model, make, public, n, noise, report):
    return chosen.curve(_noisy(chosen, asks, model, make, public, n, noise), n, 0.95, report)


def _worst(curves, truth):
    """Return coverage, error and half width of the cell that is covered least; one that is not told, is."""
    low, high, seen = (np.array([getattr(c, name) for c in curves]) for name in ("low", "high", "observed"))
    right = truth.observed
    told = ~np.isnan(seen) & ~np.isnan(right)
    inside = ~told | ((low <= right) & (right <= high))
    worst = int(np.argmin(inside.mean(axis=0)))
    there = told[:, worst]
    if not there.any():
        return {"coverage": 1.0, "error": "none told", "half": "inf"}
    error = np.sqrt(np.mean((seen[there, worst] - right[worst]) ** 2))
    half = np.median((high - low)[there, worst] / 2)
    return {
        "coverage": round(float(inside.mean(axis=0)[worst]), 4),
        "error": float(f"{error:.3g}"),
        "half": _finite(half),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--only", help="A metric or a law; the kept cells of others stay as they are.")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    results = {"repeats": asked.repeats, "nominal": 0.95, "cells": []}
    if asked.only is not None:
        kept = json.loads(OUT.read_text())["cells"]
        results["cells"] = [cell for cell in kept if asked.only not in (cell["law"], cell["metric"])]
    for n, epsilon in SETTINGS:
        for law, metric, model, make, options in cells():
            if asked.only in (None, law, metric):
                found = measured(metric, model, make, options, n, epsilon, asked.repeats)
                results["cells"].append({"n": n, "epsilon": epsilon, "law": law, "metric": metric, **found})
                print(n, epsilon, law, metric, found, flush=True)
    OUT.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
