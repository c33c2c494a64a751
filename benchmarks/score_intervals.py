"""How often the intervals of private scores cover the score on the population.

Command: python -m benchmarks.score_intervals [--repeats 1000]
Laws: two classes balanced, imbalanced, easy, overconfident; five classes; regression with Gaussian,
heavy-tailed, whole-numbered and nearly exact targets. Writes benchmarks/results/score_intervals.json. The
formulas were written with the laws "balanced", "imbalanced", "easy", "gauss" and "good" in view; the others
judge.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

import sordino

OUT = Path(__file__).parent / "results" / "score_intervals.json"
SETTINGS = ((300, 1.0), (3000, 0.3))
LAWS = {
    "balanced": (2, 2.0, 1.0, 1.0),
    "imbalanced": (2, 2.0, 9.0, 1.0),
    "easy": (2, 5.0, 1.0, 1.0),
    "five classes": (5, 2.0, 3.0, 1.0),
    "overconfident": (2, 1.0, 1.0, 4.0),
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
        metrics = ("accuracy", "balanced_accuracy", "log_loss", *(("auc",) if law[0] == 2 else ()))
        for metric in metrics:
            yield name, metric, Softmax(law[0]), lambda p, n, law=law: labelled(p, n, *law), {}
    for law in NUMBERS:
        for metric in ("mse", "r2"):
            yield law, metric, First(), lambda p, n, law=law: numbers(p, n, law), {"bounds": BOUNDS}


def measured(metric, model, make, options, n, epsilon, repeats):
    exact = {"epsilon": float("inf"), "delta": 1e-6, "metric": metric, **options}
    truth = float(sordino.private_score(model, *make(np.random.default_rng(9), 1_000_000), **exact))
    public = np.random.default_rng(1)
    asked = {**exact, "epsilon": epsilon}
    found = [sordino.private_score(model, *make(public, n), **asked) for _ in range(repeats)]
    inside = np.mean([score.interval[0] <= truth <= score.interval[1] for score in found])
    error = np.sqrt(np.mean([(score - truth) ** 2 for score in found]))
    half = np.median([(score.interval[1] - score.interval[0]) / 2 for score in found])
    return {"coverage": round(float(inside), 4), "error": float(f"{error:.3g}"), "half": float(f"{half:.3g}")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=1000)
    repeats = parser.parse_args().repeats
    warnings.simplefilter("ignore")
    results = {"repeats": repeats, "nominal": 0.95, "cells": []}
    for n, epsilon in SETTINGS:
        for law, metric, model, make, options in cells():
            found = measured(metric, model, make, options, n, epsilon, repeats)
            results["cells"].append({"n": n, "epsilon": epsilon, "law": law, "metric": metric, **found})
            print(n, epsilon, law, metric, found, flush=True)
    OUT.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
