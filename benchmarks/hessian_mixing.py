"""Iterative Hessian Mixing (Lev et al. 2026, arXiv 2601.07545) beside AdaSSP and our default.

Command: python -m benchmarks.hessian_mixing [--runs N] [--save benchmarks/results/hessian_mixing.json]

Written from the description of the method, its calibration after the authors' public code: each of T steps
releases a Gaussian sketch of the rows, mixed with
noise until its smallest eigenvalue is at least gamma, which is a Hessian, and a noisy gradient of clipped
residuals. Half of epsilon pays for the sketches (their Renyi divergence of order alpha), half for the
gradients. A rival only: its noise is not drawn by the kernel, so no release here is private.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from benchmarks.adassp import adassp
from sordino import LinearRegression
from sordino.accounting import gaussian_multiplier
from sordino.datasets import unit_rows
from sordino.literature.reproduce.runner import source_commit

DELTA, FAILURE = 1e-5, 0.05
RESULT = Path(__file__).parent / "results" / "hessian_mixing.json"
STEPS = (3, 10)
SHAPES = ((5000, 10), (2000, 50), (20_000, 20))


def sketch_epsilon(gamma: float, size: int, steps: int, delta: float) -> float:
    """Return the epsilon of so many sketches whose smallest eigenvalue is at least gamma, and of that."""

    def at(alpha: float) -> float:
        order = alpha - 1.0
        moved = alpha * math.log1p(-1.0 / gamma) - math.log1p(-alpha / gamma)
        tail = (math.log(1.0 / delta) + order * math.log(order / alpha) - math.log(alpha)) / order
        return steps * size / (2 * order) * moved + tail

    eigenvalue = math.sqrt(2.0 * math.log(1.25 / delta) * size) / gamma
    return float(minimize_scalar(at, bounds=(1 + 1e-6, gamma - 1e-6), method="bounded").fun) + eigenvalue


def hessian_mixing(
    x: Any, y: Any, epsilon: float, delta: float, target: float, steps: int, seed: int
) -> np.ndarray:
    """Return the coefficients; rows of norm at most one, residuals clipped to ``target``."""
    rng, d = np.random.default_rng(seed), x.shape[1]
    size = math.ceil(6 * max(d, math.log(4 * steps / FAILURE)))

    def excess(gamma: float) -> float:
        return sketch_epsilon(gamma, size, steps, delta / 4) - epsilon / 2

    gamma = float(brentq(excess, 2.0, 1e7, rtol=1e-6))
    noise = target * gaussian_multiplier(epsilon / 2, delta / 4) * math.sqrt(steps)
    spread = gamma / math.sqrt(size)
    tail = math.sqrt(2.0 * math.log(4.0 / delta))
    smallest = max(float(np.linalg.eigvalsh(x.T @ x)[0]) - spread * (tail - rng.normal()), 0.0)
    mixed = math.sqrt(max(gamma - smallest, 0.0))
    w = np.zeros(d)
    for _ in range(steps):
        sketch = rng.normal(size=(size, len(x))) @ x + mixed * rng.normal(size=(size, d))
        gradient = x.T @ np.clip(y - x @ w, -target, target) + noise * rng.normal(size=d)
        w = w + np.linalg.solve(sketch.T @ sketch / size, gradient)
    return w


def explained(way: str, n: int, d: int, epsilon: float, seed: int) -> float:
    """Return R^2 on as many rows as were learned from, on the designs of benchmarks.peers."""
    rng = np.random.default_rng(seed)
    x = unit_rows(rng.normal(size=(2 * n, d)))
    y = np.clip(x @ rng.normal(size=d) / 2 + 0.25 * rng.normal(size=2 * n), -2, 2)
    model = LinearRegression(epsilon, DELTA, data_norm=1.0, target_bound=2.0, fit_intercept=False)
    ways: dict[str, Callable[[], Any]] = {
        "sordino": lambda: model.fit(x[:n], y[:n]).coef_,
        "adassp": lambda: adassp(x[:n], y[:n], epsilon, DELTA, 1.0, 2.0, seed),
    }
    for steps in STEPS:
        mixing = partial(hessian_mixing, x[:n], y[:n], epsilon, DELTA, 2.0, steps, seed)
        ways[f"hessian mixing, T = {steps}"] = mixing
    w = ways[way]()
    return 1.0 - float(np.mean((x[n:] @ w - y[n:]) ** 2) / y[n:].var())


def main() -> None:
    """Print and keep mean and standard error of each method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--save", type=Path, default=RESULT)
    asked, rows = parser.parse_args(), []
    for (n, d), epsilon in product(SHAPES, (0.5, 1.0, 4.0)):
        for way in ("sordino", "adassp", *(f"hessian mixing, T = {steps}" for steps in STEPS)):
            found = [explained(way, n, d, epsilon, seed) for seed in range(asked.runs)]
            mean, error = float(np.mean(found)), float(np.std(found, ddof=1) / len(found) ** 0.5)
            rows.append({"n": n, "d": d, "epsilon": epsilon, "method": way, "mean": mean, "error": error})
            print(f"{n:>6} x {d:<3} epsilon {epsilon:<4g} {way:22} {mean:.3f} ± {error:.3f}", flush=True)
    about = {"command": "python -m benchmarks.hessian_mixing", "date": datetime.now(UTC).date().isoformat()}
    about |= {"runs": asked.runs, "commit": source_commit()}
    asked.save.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
