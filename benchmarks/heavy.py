"""Heavy tails: rates of means and regressions, wrong bounds, a real data set, speed.

Command: python -m benchmarks.heavy [--save benchmarks/results/heavy.json]   (seed 0 for data and noise)
         (`python docs/figures/kept.py` and `heavy.py` make tables and figures of docs/heavy-tails.md from it)
Set SORDINO_DATA to a folder with the donor_pva and kddcup99 data sets for the real ones.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import sordino
from benchmarks.machine import about
from sordino.datasets import Lognormal, Pareto, StudentT, load
from sordino.errors import DataNotFoundError
from sordino.literature.reproduce.heavy import excess_risks, mean_errors, slope
from sordino.testing import seeded_noise_not_private

SIZES = (1000, 2154, 4641, 10_000, 21_544, 46_415, 100_000)
ORDERS = (0.3, 0.5, 0.7, 1.0)
GIFTS = (
    "RECENT_AVG_GIFT_AMT",
    "LIFETIME_AVG_GIFT_AMT",
    "LIFETIME_MAX_GIFT_AMT",
    "LIFETIME_MIN_GIFT_AMT",
    "LIFETIME_GIFT_AMOUNT",
    "LIFETIME_GIFT_COUNT",
    "MONTHS_SINCE_LAST_GIFT",
    "RECENT_RESPONSE_PROP",
)


def wrong_bound(factor: float, order: float, n: int = 10_000, repeats: int = 200) -> float:
    """Return how many times larger the error is at a fixed bound off by a factor than with "auto"."""
    law, rng = Pareto(1.03 + order), np.random.default_rng(0)
    rows = law.draw(rng, (repeats, n))
    ours = [sordino.mean(x, 1.0, 1e-6, moment_order=order) for x in rows]
    right = float(np.median([m.threshold for m in ours]))
    theirs = [sordino.mean(x, 1.0, 1e-6, threshold=right * factor) for x in rows]
    error = [np.mean(np.abs(np.array(m) - law.mean)) for m in (theirs, ours)]
    return float(error[0] / error[1])


LEARNERS: dict[str, dict[str, Any]] = {
    "norms clipped (default)": {},
    "coordinates truncated": {"solver_options": {"gradient": "truncated"}},
    "Huber loss": {"loss": "huber"},
    "disjoint chunks (`split=True`)": {"solver_options": {"split": True}},
}
ROWS, DESIGNS = (3000, 10_000, 30_000, 100_000, 300_000), 20


def means(repeats: int = 200) -> list[dict[str, Any]]:
    """Return the errors of means of Pareto(1.03 + v) numbers, their slopes, and what a wrong bound costs."""
    rows = []
    for v in ORDERS:
        auto, known = (mean_errors(v, told, SIZES, repeats) for told in (False, True))
        worse = [wrong_bound(factor, v) for factor in (10.0, 0.1)]
        slopes = {"auto": slope(SIZES, auto), "known": slope(SIZES, known)}
        rows.append(
            {"v": v, **slopes, "errors": auto, "ten times too large": worse[0], "too small": worse[1]}
        )
    return rows


def regressions() -> list[dict[str, Any]]:
    """Return excess risks with Student-t(2.2) features and noise; the theory's slope is -1 (v = 1)."""
    found = {name: excess_risks(options, ROWS, DESIGNS) for name, options in LEARNERS.items()}
    return [{"model": name, "slope": slope(ROWS, risks), "risks": risks} for name, risks in found.items()]


def designs() -> list[dict[str, Any]]:
    """Return relative errors of the coefficients beside the sparse model with its default clipping."""
    rows = []
    for name, law in {
        "Student-t(2.2)": StudentT(2.2),
        "lognormal(1)": Lognormal(1.0),
        "Pareto(2.5)": Pareto(2.5),
    }.items():
        rng = np.random.default_rng(0)
        X = law.draw(rng, (20_000, 10)) - law.mean
        w = rng.normal(size=10)
        y = X @ w + law.draw(rng, (20_000,)) - law.mean
        found = []
        for model in (sordino.HeavyTailedRegressor(1.0, 1e-6), sordino.SparseLinearRegression(1.0, 1e-6)):
            errors = [np.linalg.norm(model.fit(X, y).coef_ - w) / np.linalg.norm(w) for _ in range(5)]
            found.append(float(np.median(errors)))
        rows.append({"law": name, "heavy": found[0], "sparse": found[1]})
    return rows


def gifts() -> list[dict[str, Any]]:
    """Return test errors for the last gift of a donor, from raw amounts and counts."""
    raw = load("donor_pva", encoding="raw", target="amount").data
    X = np.stack([np.asarray(raw[c], dtype=float) for c in GIFTS], axis=1)
    y = np.asarray(raw["LAST_GIFT_AMT"], dtype=float)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:15_000], order[15_000:]
    sparse, heavy = sordino.SparseLinearRegression, sordino.HeavyTailedRegressor
    models: dict[str, Any] = {
        "`HeavyTailedRegressor()`": heavy(1.0, 1e-6),
        '`HeavyTailedRegressor(loss="huber", huber_threshold=5)`': heavy(
            1.0, 1e-6, loss="huber", huber_threshold=5.0
        ),
        "`SparseLinearRegression()`, default clipping": sparse(1.0, 1e-6),
        "the same, `data_norm=100, target_bound=100`": sparse(1.0, 1e-6, data_norm=100.0, target_bound=100.0),
        "the same, `data_norm=1000, target_bound=100`": sparse(
            1.0, 1e-6, data_norm=1000.0, target_bound=100.0
        ),
        "`HeavyTailedRegressor(epsilon=inf, max_iter=500)`": heavy(float("inf"), 1e-6, max_iter=500),
    }
    rows = []
    for name, model in models.items():
        scores = []
        for _ in range(5):
            error = model.fit(X[train], y[train]).predict(X[test]) - y[test]
            spread = np.sum((y[test] - y[test].mean()) ** 2)
            scores.append((np.mean(np.abs(error)), 1 - np.sum(error**2) / spread))
        absolute, explained = np.median(scores, axis=0)
        rows.append({"model": name, "mae": float(absolute), "r2": float(explained)})
    return rows


def bytes_sent() -> list[dict[str, Any]]:
    """Return means of columns of KDD Cup 99, five private ones beside the true one and the largest value."""
    raw, rows = load("kddcup99", encoding="raw").data, []
    for column in ("duration", "dst_bytes", "src_bytes"):
        x = np.asarray(raw[column], dtype=float)
        runs = [float(sordino.mean(x, 1.0)) for _ in range(5)]
        rows.append({"column": column, "mean": float(x.mean()), "private": runs, "largest": float(x.max())})
    return rows


def bounded(repeats: int = 150) -> list[dict[str, Any]]:
    """Return how intervals of means between declared bounds hold, and errors beside other ways to ask."""

    def normal(rng: Any, n: int) -> Any:
        return rng.normal(size=n)

    def outlying(rng: Any, n: int) -> Any:
        return np.where(rng.random(n) < 0.01, 50.0, rng.normal(size=n))

    def exponential(rng: Any, n: int) -> Any:
        return rng.exponential(size=n)

    rows, rng = [], np.random.default_rng(0)
    for name, draw, truth, bounds, n, epsilon in (
        ("N(0, 1), 1 % at 50", outlying, 0.5, (-60.0, 60.0), 1000, 1.0),
        ("N(0, 1), 1 % at 50", outlying, 0.5, (-60.0, 60.0), 5000, 0.3),
        ("N(0, 1)", normal, 0.0, (-60.0, 60.0), 1000, 1.0),
        ("exponential", exponential, 1.0, (0.0, 20.0), 1000, 1.0),
    ):
        plain = {"center": sum(bounds) / 2, "threshold": (bounds[1] - bounds[0]) / 2}
        ways: dict[str, dict[str, Any]] = {"error": {"bounds": bounds}, "plain": plain, "without bounds": {}}
        found: dict[str, list[Any]] = {way: [] for way in ways}
        for _ in range(repeats):
            x = draw(rng, n)
            for way, options in ways.items():
                found[way].append(sordino.mean(x, epsilon, 1e-6, **options))
        ends = [m.interval for m in found["error"]]
        coverage = float(np.mean([low <= truth <= high for low, high in ends]))
        errors = {way: float(np.mean(np.abs(np.array(m, dtype=float) - truth))) for way, m in found.items()}
        about_it = {"law": name, "bounds": bounds, "n": n, "epsilon": epsilon, "repeats": repeats}
        rows.append({**about_it, "coverage": coverage, **errors})
    return rows


def speed() -> list[dict[str, Any]]:
    """Return the time of the mean of a million numbers, the first call and three more."""
    x, rows = Pareto(2.2).draw(np.random.default_rng(0), (1_000_000,)), []
    for call in range(4):
        start, wall = time.process_time(), time.perf_counter()
        sordino.mean(x, 1.0)
        rows.append({"call": call, "cpu": time.process_time() - start, "wall": time.perf_counter() - wall})
    return rows


PARTS = (speed, bounded, designs, gifts, bytes_sent, regressions, means)


def main() -> None:
    """Print all figures, and keep them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path)
    asked = parser.parse_args()
    kept: dict[str, Any] = {
        "about": about("python -m benchmarks.heavy", designs=DESIGNS, rows=ROWS, sizes=SIZES)
    }
    for part in PARTS:
        try:
            kept[part.__name__] = part()
        except DataNotFoundError as error:
            print(f"no real data: {error}")
            continue
        for row in kept[part.__name__]:
            print(part.__name__, row, flush=True)
    if asked.save:
        asked.save.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with seeded_noise_not_private(0):
        main()
