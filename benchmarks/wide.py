"""The default with k = 1,000 on more and more columns: CPU time, memory and accuracy.

Command: python -m benchmarks.wide [accuracy]   (seed 0; each fit in a process of its own)
100,000 rows with 50 entries in columns drawn uniformly; with `accuracy`: IMDB among 1,000,000 columns, where
the first cut is one gradient, beside 30 steps on all columns (max_iter=30). IMDB is in docs/datasets.md.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import numpy as np
from scipy import sparse

ROWS, NONZEROS, KEPT, BAR = 100_000, 50, 1000, 2.0
WIDTHS = (100_000, 1_000_000, 10_000_000)


def make(columns: int) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Make rows of unit norm whose first entries tell the class."""
    public = np.random.default_rng(0)
    indices = public.integers(0, columns, (ROWS, NONZEROS)).astype(np.int32)
    indices[:, :10] = public.integers(0, 2000, (ROWS, 10))
    weights = np.where(np.arange(2000) % 2, 1.0, -1.0)
    y = weights[indices[:, :10]].sum(axis=1) + public.normal(size=ROWS) > 0
    data = np.full(indices.size, NONZEROS**-0.5)
    rows = sparse.csr_matrix(
        (data, indices.ravel(), np.arange(0, indices.size + 1, NONZEROS)), (ROWS, columns)
    )
    return rows, y.astype(int)


def peak() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fit(columns: int) -> None:
    """Fit once and print CPU seconds, memory beyond the data, and accuracy on the records themselves."""
    from sordino import SparseLogisticRegression

    X, y = make(columns)
    model = SparseLogisticRegression(delta=1e-6, data_norm=1.0, n_nonzero_coefs=KEPT, classes=[0, 1])
    small, _ = make(300 * KEPT)
    model.fit(small[:300], y[:300])  # compile
    before, start = peak(), time.process_time()
    model.fit(X, y)
    cpu, extra = time.process_time() - start, peak() - before
    print(cpu, extra, model.score(X[:20_000], y[:20_000]))


def sizes() -> None:
    """Print a row for each number of columns."""
    print(f"{'columns':>12} {'CPU s':>7} {'MB more':>8} {'accuracy':>9} {'of the first':>13}")
    first = None
    for columns in WIDTHS:
        command = [sys.executable, "-m", "benchmarks.wide", str(columns)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        cpu, extra, accuracy = map(float, answer.split())
        first = first or cpu
        print(f"{columns:>12,} {cpu:>7.2f} {extra:>8.0f} {accuracy:>9.4f} {cpu / first:>9.2f} (bar {BAR:g})")


def accuracy(runs: int = 5) -> None:
    """Print the accuracy on IMDB among many columns, with the cut by one gradient and without it."""
    from sordino import SparseLogisticRegression
    from sordino.datasets import load, log1p_unit

    data = load("imdb")
    train, test = (log1p_unit(part) for part in (data.data, data.test_data))
    for part in (train, test):
        part.resize((part.shape[0], 1_000_000))
    for steps in (None, 30):
        model = SparseLogisticRegression(
            delta=1e-5, data_norm=1.0, n_nonzero_coefs=KEPT, classes=[0, 1], max_iter=steps
        )
        found = [model.fit(train, data.target).score(test, data.test_target) for _ in range(runs)]
        print(f"max_iter={steps}: {np.mean(found):.4f} +- {np.std(found) / np.sqrt(runs - 1):.4f}")


def main() -> None:
    """Print one of the tables, or fit once."""
    from benchmarks.machine import describe

    if sys.argv[1:] == ["accuracy"]:
        accuracy()
    elif sys.argv[1:]:
        fit(int(sys.argv[1]))
    else:
        describe()
        sizes()


if __name__ == "__main__":
    main()
