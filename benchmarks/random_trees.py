"""Private forests beside curves and pairs: totally random trees with noisy leaves, the best of nine settings.

Command::

    python -m benchmarks.random_trees            # epsilon 1, the tables of benchmarks.curves, 3 repeats

Splits are drawn from the declared bounds and levels, so they are free; a record adds (1, y) to one leaf of
each tree, one Gaussian release for all trees. Numbers of trees (1, 10, 40) and depths (3, 5, 8) are those
that score best on the test records: what a private choice could reach at most. Scores are those of
benchmarks.curves.
"""

from __future__ import annotations

import argparse
import math
import warnings

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from benchmarks import curves
from benchmarks.model_intervals import DELTA, gaussian_multiplier
from sordino import LinearRegression, LogisticRegression, Schema

SETTINGS = [(trees, depth) for trees in (1, 10, 40) for depth in (3, 5, 8)]


def coded(features: pd.DataFrame, schema: Schema) -> np.ndarray:
    """Return each column from 0 to 1: a share of its range, or the place of its level; gaps are -1."""
    out = np.full((len(features), len(schema.features)), -1.0)
    for j, column in enumerate(schema.features):
        if column.word == "number":
            values = pd.to_numeric(features[column.name], errors="coerce").to_numpy(float)
            share = np.clip((values - column.low) / (column.high - column.low), 0, 1)
            out[:, j] = np.where(np.isnan(share), -1.0, share)
        else:
            places = {level: i for i, level in enumerate(column.levels)}
            out[:, j] = [places.get(str(v), -1) / len(places) for v in features[column.name]]
    return out


def leaves(rows: np.ndarray, depth: int, public: np.random.Generator) -> np.ndarray:
    """Return the leaf of each row in one random tree: a split for each node, drawn before any record."""
    node = np.zeros(len(rows), dtype=int)
    for level in range(depth):
        columns = public.integers(0, rows.shape[1], 2**level)
        cuts = public.uniform(0, 1, 2**level)
        node = 2 * node + (rows[np.arange(len(rows)), columns[node]] > cuts[node])
    return node


def predict(
    train: np.ndarray, y: np.ndarray, test: np.ndarray, trees: int, depth: int, epsilon: float, seed: int
) -> np.ndarray:
    """Return the mean over trees of noisy leaf means; y is between -1 and 1."""
    public, noise = np.random.default_rng(seed), np.random.default_rng()
    spread = gaussian_multiplier(epsilon) * math.sqrt(2.0 * trees)
    out = np.zeros(len(test))
    for _ in range(trees):
        both = leaves(np.vstack([train, test]), depth, public)
        own, others = both[: len(train)], both[len(train) :]
        count = np.bincount(own, minlength=2**depth) + spread * noise.normal(size=2**depth)
        total = np.bincount(own, y, minlength=2**depth) + spread * noise.normal(size=2**depth)
        middle = total.sum() / max(count.sum(), 1.0)
        few = 2.0 * spread
        mean = (total + few * middle) / np.maximum(np.maximum(count, 0.0) + few, 1.0)
        out += np.clip(mean, -1, 1)[others] / trees
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[*curves.CHOSEN, *curves.JUDGES])
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in chosen.only:
        table, schema = curves.read(name)
        scores, ours = np.zeros((chosen.repeats, len(SETTINGS))), []
        for repeat in range(chosen.repeats):
            train, test = curves.parts(name, table, repeat, 0)
            (a, y, _), (b, z, _) = schema.split(train), schema.split(test, bounded=False)
            number = schema.target.kind == "number"
            low, high = (schema.target.low, schema.target.high) if number else (0.0, 1.0)
            y, z = (y, z) if number else (y == schema.target.levels[1], z == schema.target.levels[1])
            rows, others = coded(a, schema), coded(b, schema)
            for i, (trees, depth) in enumerate(SETTINGS):
                found = predict(
                    rows, 2 * (y - low) / (high - low) - 1, others, trees, depth, chosen.epsilon, repeat
                )
                found = low + (found + 1) * (high - low) / 2
                score = 1 - np.square(z - found).mean() / z.var() if number else roc_auc_score(z, found)
                scores[repeat, i] = score
            kind = LinearRegression if number else LogisticRegression
            model = kind(chosen.epsilon, DELTA, schema=schema).fit(train)
            ours.append(curves.score(model, test, schema)[0])
        best = int(np.argmax(scores.mean(axis=0)))
        print(
            f"{name}: random trees {scores.mean(axis=0)[best]:.3f} ({SETTINGS[best][0]} of depth "
            f"{SETTINGS[best][1]}), ours {np.mean(ours):.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
