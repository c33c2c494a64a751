"""Does an answer get worse when epsilon or n rises? Fine grids on designs that no constant was chosen on.

A design is a law of records, drawn anew for each fit, and a model with nothing but bounds declared. Its loss
is squared error over the variance, log loss over that of the shares, or the squared error of a mean, over a
grid of epsilons with n = 2,000 and over one of n with epsilon 1. A step of the grid **falls** where the mean
loss is higher than the lowest before it by .02 (of the loss of the constant; for a mean by a half) and by
three standard errors of the difference. Losses are shown at the two ends, falls with their places.

Command: python -m benchmarks.monotone [--fits 8] [--month 2028-06] [--save FILE]
Seeded noise: nothing here is private.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

import sordino
from benchmarks.machine import describe
from sordino.tables import Category, Flag, Number, Target
from sordino.testing import seeded_noise_not_private

EPSILONS = np.geomspace(0.1, 10.0, 13)
SIZES = np.geomspace(250, 16_000, 13).round().astype(int)
RECORDS, DELTA, TESTED = 2000, 1e-6, 4000
FALL, SURE, WORSE = 0.02, 3.0, 0.5

Fit = Callable[[np.random.Generator, int, float], float]


def numbers(
    draw: Callable[[np.random.Generator, int], tuple], norm: float, bound: float, kept: int | None = None
) -> Fit:
    """Return the squared error of a linear regression, sparse or not, over the variance of the targets."""

    def fit(rng: np.random.Generator, n: int, epsilon: float) -> float:
        X, y = draw(rng, n + TESTED)
        bounds = {"data_norm": norm, "target_bound": bound}
        model: Any = sordino.LinearRegression(epsilon, DELTA, **bounds)
        if kept is not None:
            model = sordino.SparseLinearRegression(epsilon, DELTA, n_nonzero_coefs=kept, **bounds)
        model.fit(X[:n], y[:n])
        return float(np.mean(np.square(model.predict(X[n:]) - y[n:])) / np.var(y[n:]))

    return fit


def labels(draw: Callable[[np.random.Generator, int], tuple], norm: float) -> Fit:
    """Return the log loss of a logistic regression over that of the shares of the classes."""

    def fit(rng: np.random.Generator, n: int, epsilon: float) -> float:
        X, y = draw(rng, n + TESTED)
        model = sordino.LogisticRegression(epsilon, DELTA, data_norm=norm, classes=[False, True])
        p, share = model.fit(X[:n], y[:n]).predict_proba(X[n:])[:, 1].clip(1e-6, 1.0 - 1e-6), y[n:].mean()
        lost = -np.mean(np.where(y[n:], np.log(p), np.log1p(-p)))
        return float(lost / -(share * np.log(share) + (1.0 - share) * np.log1p(-share)))

    return fit


def table(rng: np.random.Generator, n: int, epsilon: float) -> float:
    """Return the squared error of a table's default over the variance of the targets."""
    rows = n + TESTED
    found = pd.DataFrame({"dose": rng.uniform(2.0, 9.0, rows), "site": rng.choice(list("pqrs"), rows)})
    found["first"] = rng.random(rows) < 0.3
    bent = np.sqrt(found["dose"]) * np.where(found["site"] == "q", 1.5, 1.0) + found["first"]
    found["gain"] = np.clip(bent + rng.gumbel(size=rows), 0.0, 12.0)
    columns = [Number("dose", 0.0, 10.0), Category("site", list("pqrs")), Flag("first")]
    schema = sordino.Schema([*columns, Target("gain", "number", low=0.0, high=12.0)])
    model = sordino.LinearRegression(epsilon, DELTA, schema=schema).fit(found[:n])
    truth = found["gain"].to_numpy()[n:]
    return float(np.mean(np.square(model.predict(found[n:]) - truth)) / np.var(truth))


def mean(draw: Callable[[np.random.Generator, int], np.ndarray], bounds: tuple[float, float]) -> Fit:
    """Return the squared error of a mean between bounds, beside that of the same sample without noise."""

    def fit(rng: np.random.Generator, n: int, epsilon: float) -> float:
        x = draw(rng, n)
        found: Any = sordino.mean(x, epsilon, bounds=bounds)
        return float(np.square(float(found) - x.mean()))

    return fit


def _mixed(rng: np.random.Generator, n: int) -> tuple:
    X = np.column_stack([rng.uniform(-1.0, 1.0, (n, 3)), rng.random(n) < 0.15, rng.beta(1.0, 6.0, n)])
    return X, (X @ [1.0, -0.5, 0.0, 1.5, 2.0] + rng.laplace(size=n)).clip(-8.0, 8.0)


def _waits(rng: np.random.Generator, n: int) -> tuple:
    X = rng.random((n, 2))
    return X, (rng.gamma(0.7, 1.0 + 3.0 * X[:, 0])).clip(0.0, 40.0)


def _wide(rng: np.random.Generator, n: int) -> tuple:
    X = rng.choice([-1.0, 0.0, 1.0], (n, 30)) / np.sqrt(30.0)
    return X, (4.0 * X[:, :4].sum(axis=1) + rng.logistic(size=n)).clip(-10.0, 10.0)


def _few_of_many(rng: np.random.Generator, n: int) -> tuple:
    X = rng.uniform(-1.0, 1.0, (n, 20))
    return X, (X[:, 3:6] @ [1.5, -1.0, 2.0] + rng.normal(size=n)).clip(-8.0, 8.0)


def _odds(rng: np.random.Generator, n: int) -> tuple:
    X = np.column_stack([rng.uniform(-1.0, 1.0, (n, 2)), rng.random((n, 2)) < 0.2])
    return X, rng.random(n) < expit(X @ [2.0, 0.0, 1.0, -1.0])


def _rare(rng: np.random.Generator, n: int) -> tuple:
    X = rng.normal(size=(n, 5)).clip(-2.5, 2.5)
    return X, rng.random(n) < 0.02 + 0.96 * expit(X[:, 0] - X[:, 1] - 3.0)


DESIGNS: dict[str, Fit] = {
    "numbers, mixed columns": numbers(_mixed, 2.5, 8.0),
    "numbers, gamma of two columns": numbers(_waits, 1.5, 40.0),
    "numbers, 30 grades": numbers(_wide, 1.0, 10.0),
    "numbers, 3 of 20 columns": numbers(_few_of_many, 4.5, 8.0, 3),
    "labels, four columns": labels(_odds, 2.0),
    "labels, one in ten, flipped": labels(_rare, 5.6),
    "a table": table,
    "mean of waits": mean(lambda rng, n: rng.weibull(0.8, n).clip(0.0, 30.0), (0.0, 30.0)),
    "mean of mostly zeros": mean(
        lambda rng, n: (rng.random(n) < 0.1) * rng.uniform(0.0, 50.0, n), (0.0, 60.0)
    ),
}


def losses(fit: Fit, cells: list[tuple[int, float]], fits: int, first: int) -> np.ndarray:
    """Return the losses of all fits in all cells."""
    found = np.zeros((len(cells), fits))
    for place, (n, epsilon) in enumerate(cells):
        for seed in range(fits):
            rng = np.random.default_rng([first, place, seed])
            with seeded_noise_not_private(first + 1000 * place + seed), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[place, seed] = fit(rng, n, epsilon)
    return found


def falls(found: np.ndarray, squares: bool) -> list[int]:
    """Return the cells that are worse than the best one before them."""
    means, errors = found.mean(axis=1), found.std(axis=1, ddof=1) / np.sqrt(found.shape[1])
    out = []
    for place in range(1, len(means)):
        best = int(np.argmin(means[:place]))
        least = WORSE * means[best] if squares else FALL
        if means[place] - means[best] > max(least, SURE * np.hypot(errors[place], errors[best])):
            out.append(place)
    return out


def main() -> int:
    """Run all designs over both grids and print what falls."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fits", type=int, default=8)
    parser.add_argument("--month", default="2028-06", help="names the draws")
    parser.add_argument("--save", default="")
    asked = parser.parse_args()
    first, start, kept = zlib.crc32(asked.month.encode()) % 10**8, time.process_time(), []
    grids = {
        "epsilon": (EPSILONS, [(RECORDS, float(e)) for e in EPSILONS]),
        "n": (SIZES, [(int(n), 1.0) for n in SIZES]),
    }
    for name, fit in DESIGNS.items():
        for axis, (grid, cells) in grids.items():
            found = losses(fit, cells, asked.fits, first)
            bad = falls(found, name.startswith("mean"))
            means = found.mean(axis=1)
            kept.append(
                {
                    "design": name,
                    "grid": axis,
                    "losses": means.tolist(),
                    "falls": [float(grid[k]) for k in bad],
                }
            )
            said = ", ".join(f"{grid[k]:.3g} ({means[k]:.3g} after {means[:k].min():.3g})" for k in bad)
            print(f"{name}, {axis}: {means[0]:.3g} to {means[-1]:.3g}; falls: {said or 'none'}", flush=True)
    falling = sum(len(one["falls"]) for one in kept)
    print(f"{falling} of {len(kept) * (len(SIZES) - 1)} steps fall, {time.process_time() - start:.0f} s")
    if asked.save:
        whole = {"machine": describe(), "asked": vars(asked), "designs": kept}
        Path(asked.save).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return int(falling > 0)


if __name__ == "__main__":
    sys.exit(main())
