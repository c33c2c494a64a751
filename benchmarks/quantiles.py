"""Errors of quantiles between declared bounds beside the textbook's exponential mechanism, in one run.

Command: python -m benchmarks.quantiles [--repeats 12] [--save]
The textbook gives each quantile an equal share of epsilon and chooses an interval between two records with
probability proportional to its width times ``exp(-epsilon / 2 * ranks away)``, then a point in it. Columns:
ages, normal, lognormal and tied ones, on whose like shares of the budget were chosen; two clusters, a Weibull
law with exponent .5 and a beta law with most records at its ends judge. Bounds are as tight as the column's
meaning allows, or wider by a factor. Errors are mean distances from the sample's quantile; the textbook
answers ten times on each draw. "ratio" is ours over the textbook's, "coverage" that of 95 % intervals. Where
both are below a thousandth of the column's deviation, which a tie decides, the ratio is 1.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sordino
from sordino.testing import seeded_noise_not_private

OUT = Path(__file__).parent / "results" / "quantiles.json"
Draw = Callable[[np.random.Generator, int], np.ndarray]
COLUMNS: dict[str, tuple[Draw, tuple[float, float]]] = {
    "ages": (lambda r, n: r.integers(18, 91, n).astype(float), (0.0, 120.0)),
    "normal": (lambda r, n: r.normal(50.0, 10.0, n).clip(0.0, 100.0), (0.0, 100.0)),
    "lognormal": (lambda r, n: r.lognormal(0.0, 1.0, n).clip(0.0, 50.0), (0.0, 50.0)),
    "tied": (lambda r, n: r.poisson(2.0, n).clip(0, 15).astype(float), (0.0, 15.0)),
    "two clusters": (lambda r, n: r.normal(r.choice([20.0, 70.0], n), 4.0).clip(0.0, 100.0), (0.0, 100.0)),
    "weibull(0.5)": (lambda r, n: r.weibull(0.5, n).clip(0.0, 200.0), (0.0, 200.0)),
    "beta(0.5)": (lambda r, n: r.beta(0.5, 0.5, n), (0.0, 1.0)),
}
SETTINGS = ((100, 0.3), (100, 4.0), (1000, 0.1), (1000, 1.0), (10_000, 0.1), (10_000, 1.0))
FACTORS = (1.0, 10.0, 1e5)
ASKED = ((0.5,), (0.1, 0.5, 0.9))


def textbook(
    x: np.ndarray, q: float, epsilon: float, bounds: tuple[float, float], rng: np.random.Generator, draws: int
) -> np.ndarray:
    """Return draws of the plain mechanism for one quantile."""
    ends = np.concatenate([[bounds[0]], np.sort(x), [bounds[1]]])
    with np.errstate(divide="ignore"):
        logs = np.log(np.diff(ends)) - epsilon / 2.0 * np.abs(np.arange(x.size + 1) - q * x.size)
    weights = np.exp(logs - logs.max())
    chosen = rng.choice(logs.size, draws, p=weights / weights.sum())
    return np.asarray(rng.uniform(ends[chosen], ends[chosen + 1]))


def measured(
    draw: Draw, bounds: tuple[float, float], n: int, epsilon: float, q: np.ndarray, repeats: int
) -> list[dict[str, float]]:
    """Return, for each quantile, the error, the textbook's, their ratio and the coverage of the interval."""
    rng, found = np.random.default_rng(n), []
    for _ in range(repeats):
        x = draw(rng, n)
        truth, ours = (
            np.quantile(x, q, method="inverted_cdf"),
            sordino.quantiles(x, q, epsilon, bounds=bounds),
        )
        plain = [textbook(x, one, epsilon / q.size, bounds, rng, 10) for one in q]
        low, high = ours.interval
        away = np.abs(np.array(plain) - truth[:, None]).mean(axis=1)
        found.append((np.abs(np.asarray(ours) - truth), away, (low <= truth) & (truth <= high)))
    errors, plain, covered = np.mean(found, axis=0)
    least = float(draw(rng, 10_000).std()) / 1000.0
    ratio = np.maximum(errors, least) / np.maximum(plain, least)
    names = ("error", "textbook", "ratio", "coverage")
    return [dict(zip(names, map(_short, row), strict=True)) for row in zip(errors, plain, ratio, covered)]


def _short(number: float) -> float:
    return float(f"{number:.3g}")


def cells(repeats: int) -> Iterator[dict[str, Any]]:
    """Yield what was measured, cell by cell."""
    with seeded_noise_not_private(7):
        for name, factor, (n, epsilon), q in itertools.product(COLUMNS, FACTORS, SETTINGS, ASKED):
            draw, (low, high) = COLUMNS[name]
            wide = (low - (factor - 1.0) * (high - low) / 2.0, high + (factor - 1.0) * (high - low) / 2.0)
            rows = measured(draw, wide, n, epsilon, np.array(q), repeats)
            for one, row in zip(q, rows, strict=True):
                asked = {"column": name, "factor": factor, "n": n, "epsilon": epsilon, "of": len(q), "q": one}
                yield asked | row


def summary(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the ratios by what was asked, the number of records times epsilon and the width of bounds."""
    groups = itertools.product((1, 3), (True, False), ((0, 90), (90, 2000), (2000, 1e9)), FACTORS)
    for of, middle, (least, most), factor in groups:
        mine = [
            c["ratio"]
            for c in found
            if (c["of"], c["q"] == 0.5, c["factor"]) == (of, middle, factor)
            and least <= c["n"] * c["epsilon"] < most
        ]
        if mine:
            usual, within = np.median(mine), np.mean(np.array(mine) <= 1.25)
            kind = "median" if middle else "q = .1 and .9"
            yield (
                f"{kind} of {of}, n x epsilon from {least:g}, bounds x {factor:g}: ratio {usual:.2f} in "
                f"the middle, {max(mine):.2f} at most, {within:.0%} of {len(mine)} up to 1.25"
            )
    covered = [cell["coverage"] for cell in found]
    yield f"least coverage {min(covered):.3f}, mean {np.mean(covered):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--save", action="store_true")
    asked = parser.parse_args()
    found = []
    for cell in cells(asked.repeats):
        found.append(cell)
        print(" ".join(map(str, cell.values())), flush=True)
    print("\n".join(summary(found)))
    if asked.save:
        OUT.write_text(json.dumps({"repeats": asked.repeats, "cells": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
