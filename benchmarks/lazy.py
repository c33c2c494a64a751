"""The lazy DP-SGD-HT step against the dense one and against merely reading the batch.

Command: python -m benchmarks.lazy [columns ...]   (47,000, 1,000,000 and 20,000,000 by default; seed 0)
Microseconds of the processor, medians; reading and the lazy step take turns, and the ratio is the middle one
of theirs. The dense step is left out where columns are named.
"""

from __future__ import annotations

import sys
import time

import numba
import numpy as np
from scipy import sparse

from benchmarks.machine import describe
from sordino.execute import LocalExecutor
from sordino.kernel import Curator, Gaussian, NoiseSource, Plan, Poisson, Relation, Release
from sordino.problems.losses import Logistic
from sordino.problems.queries import GlmGradient
from sordino.solvers.steps import hard_threshold, starting_point

BATCH, NONZEROS, KEEP, ROWS, TURNS = 256, 75, 1000, 200_000, 7


def make(features: int, rng: np.random.Generator) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Make a CSR matrix with uniform columns, unit rows."""
    indices = rng.integers(0, features, ROWS * NONZEROS).astype(np.int32)
    data = rng.standard_normal(indices.size).astype(np.float64) / np.sqrt(NONZEROS)
    indptr = np.arange(0, indices.size + 1, NONZEROS, dtype=np.int64)
    return sparse.csr_matrix((data, indices, indptr), (ROWS, features)), rng.choice([-1.0, 1.0], ROWS)


@numba.njit(cache=True)
def read(indptr, indices, data, rows):
    """Touch every non-zero of the rows once: the floor of any step."""
    total = 0.0
    for i in range(rows.size):
        for p in range(indptr[rows[i]], indptr[rows[i] + 1]):
            total += data[p] + indices[p]
    return total


def median(times: list[float]) -> float:
    return float(np.median(times)) * 1e6


def time_steps(executor: LocalExecutor, features: int, lazy: bool, steps: int) -> float:
    """Return the median microseconds of a step."""
    release = Release(GlmGradient(Logistic(), 1.0), Gaussian(), Poisson(BATCH / ROWS), steps, lazy=lazy)
    plan = Plan({"gradient": release}, Relation.ADD_REMOVE, ROWS).at(1.0)
    curator = Curator(executor, plan, NoiseSource.from_os())
    w, times = starting_point((features,), 0, sparse=lazy), []
    for _ in range(steps):
        start = time.process_time()
        g = curator.release("gradient", w)
        w = hard_threshold(w - 1.0 * g, KEEP)
        times.append(time.process_time() - start)
    return median(times[steps // 4 :])


def time_reading(executor: LocalExecutor, repeats: int) -> float:
    """Return the median microseconds of reading a fresh batch."""
    noise, times, x = NoiseSource.from_os(), [], executor.matrix
    for _ in range(repeats):
        rows = Poisson(BATCH / ROWS).draw(ROWS, 0, noise)
        start = time.process_time()
        read(x.indptr, x.indices, x.data, rows)
        times.append(time.process_time() - start)
    return median(times)


def main() -> None:
    """Print the table."""
    describe()
    rng = np.random.default_rng(0)
    print(f"batch {BATCH}, {NONZEROS} non-zeros a row, k = {KEEP}; microseconds per step")
    print(f"{'d':>12} {'read':>8} {'lazy':>8} {'dense':>10} {'lazy/read':>10} {'dense/lazy':>11}")
    lazies = {}
    named = [int(given) for given in sys.argv[1:]]
    for features in named or (47_000, 1_000_000, 20_000_000):
        matrix, y = make(features, rng)
        executor = LocalExecutor(matrix, y, None)
        time_steps(executor, features, True, 20)
        turns = np.array(
            [(time_reading(executor, 100), time_steps(executor, features, True, 100)) for _ in range(TURNS)]
        )
        floor, lazy = np.median(turns, axis=0)
        dense = np.nan
        if not named:
            dense = time_steps(executor, features, False, 40 if features < 10**7 else 8)
        lazies[features] = lazy
        ratio = np.median(turns[:, 1] / turns[:, 0])
        print(
            f"{features:>12,} {floor:>8.0f} {lazy:>8.0f} {dense:>10.0f} {ratio:>10.1f} {dense / lazy:>11.1f}"
        )
    if not named:
        print(f"lazy at 20M / lazy at 47k: {lazies[20_000_000] / lazies[47_000]:.2f} (bar: at most 2.5)")


if __name__ == "__main__":
    main()
