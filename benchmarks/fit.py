"""One full-batch private fit on a text-sized CSR matrix: CPU time and peak memory.

Command: python -m benchmarks.fit   (seed 0)
"""

from __future__ import annotations

import resource
import time

import numpy as np
from scipy import sparse

from benchmarks.machine import describe

ROWS, COLUMNS, NONZEROS, STEPS = 25_000, 75_000, 140, 100


def make() -> tuple[sparse.csr_matrix, np.ndarray]:
    """Make rows of unit norm with frequent and rare columns."""
    public = np.random.default_rng(0)
    indices = np.minimum(COLUMNS * public.random(ROWS * NONZEROS) ** 3, COLUMNS - 1).astype(np.int32)
    data = np.full(indices.size, 1 / np.sqrt(NONZEROS))
    indptr = np.arange(0, indices.size + 1, NONZEROS, dtype=np.int32)
    return sparse.csr_matrix((data, indices, indptr), (ROWS, COLUMNS)), public.integers(0, 2, ROWS)


def peak() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print CPU seconds and memory beside their bars."""
    from sordino import SparseLogisticRegression

    describe()
    X, y = make()
    size = (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) / 2**20
    SparseLogisticRegression(solver="ight", max_iter=2).fit(X[:500], y[:500])  # compile
    for solver in ("ight", "auto"):
        before, start = peak(), time.process_time()
        SparseLogisticRegression(
            solver=solver, max_iter=STEPS, n_nonzero_coefs=1000, delta=1e-6, classes=[0, 1]
        ).fit(X, y)
        cpu, extra = time.process_time() - start, peak() - before
        floor = STEPS * 2 * size / 1024
        print(
            f"{solver:>5}: {ROWS:,} x {COLUMNS:,}, {NONZEROS} non-zeros a row, {STEPS} steps: {cpu:.2f} s CPU"
            f" (bar 3), memory beyond the data's {size:.0f} MB: {extra:.0f} MB (bar 150); "
            f"floor: {floor:.1f} GB to read twice a step"
        )


if __name__ == "__main__":
    main()
