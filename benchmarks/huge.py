"""DP-SGD-HT on a million rows and twenty million columns, memory-mapped.

Command: python -m benchmarks.huge [rows]   (1,000,000 rows by default; seed 0)
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time

from benchmarks.machine import describe
from benchmarks.sparse_design import make_sparse_classification, open_sparse_classification
from sordino import SparseLogisticRegression

COLUMNS, NONZEROS, EPOCHS, BATCH = 20_000_000, 75, 5, 256


def peak() -> float:
    """Return the peak memory of this process in MB, mapped pages included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Fit five epochs and print time per step and memory."""
    describe()
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        make_sparse_classification(rows, COLUMNS, NONZEROS, path=folder, random_state=0)
        data = open_sparse_classification(folder, COLUMNS)
        X, y = data.data, data.target
        size = (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes) / 2**20
        steps = EPOCHS * rows // BATCH
        start, cpu = time.perf_counter(), time.process_time()
        model = SparseLogisticRegression(
            epsilon=1.0,
            delta=1e-8,
            solver="sgd-ht",
            n_nonzero_coefs=1000,
            solver_options={"batch_size": BATCH, "step_size": 10.0},
            max_iter=steps,
            data_norm=1.0,
            classes=[-1, 1],
        ).fit(X, y)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        print(
            f"{rows:,} x {COLUMNS:,}, {NONZEROS} non-zeros a row ({size:.0f} MB): {steps:,} steps in "
            f"{wall:.1f} s ({cpu:.1f} s CPU), {1e6 * wall / steps:.0f} microseconds a step; "
            f"peak {peak():.0f} MB, {peak() - size:.0f} MB beyond the data (bar 1000); "
            f"{len(model.support_)} coefficients"
        )


if __name__ == "__main__":
    main()
