"""LogisticRegression on a GPU beside two cores of the processor: the same plan on the same rows.

Command: python -m benchmarks.gpu_linear [rows] [--cpu-rows ROWS]   (seed 0; needs a CUDA device)
Dense rows x 500 in single precision, and CSR rows like IMDB's (25,000 x 75,000, 140 entries a row, repeated
until it is worth measuring). The processor may get fewer dense rows; its time is then scaled by the rows.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")
os.environ.setdefault("MKL_NUM_THREADS", "2")

import argparse
import time
from typing import Any

import numpy as np
import torch
from scipy import sparse

BAR = 20.0


def timed(X: Any, y: Any, prepare: Any = None) -> float:
    """Return the seconds of a fit by the clock, after one on few rows that compiles and warms up."""
    from sordino import LogisticRegression

    model = LogisticRegression(epsilon=1.0, delta=1e-8, data_norm=1.0, classes=[0, 1])
    if prepare is not None:
        model.fit(*prepare)
    torch.cuda.synchronize()
    start = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - start


def dense(rows: int, cpu_rows: int) -> None:
    """Compare on dense rows."""
    torch.manual_seed(0)
    X = torch.randn(rows, 500, device="cuda") / 500**0.5
    y = (X[:, 0] > X[:, 1]).long().cpu().numpy()
    small = (X[:1000], y[:1000])
    there = min(timed(X, y, small), timed(X, y))
    here = timed(X[:cpu_rows].cpu().numpy(), y[:cpu_rows], (small[0].cpu().numpy(), small[1]))
    scaled = here * rows / cpu_rows
    print(
        f"dense {rows:,} x 500: GPU {there:.2f} s, two cores {scaled:.1f} s ({here:.1f} s for "
        f"{cpu_rows:,} rows): {scaled / there:.1f}x (bar {BAR:g})",
        flush=True,
    )


def csr(copies: int) -> None:
    """Compare on sparse rows."""
    public = np.random.default_rng(0)
    n, d, entries = 25_000, 75_000, 140
    columns = np.sort(np.minimum(d * public.random((n, entries)) ** 3, d - 1).astype(np.int32), axis=1)
    one = sparse.csr_matrix(
        (np.full(n * entries, entries**-0.5), columns.ravel(), np.arange(0, n * entries + 1, entries)), (n, d)
    )
    one.sum_duplicates()
    rows = sparse.csr_matrix(sparse.vstack([one] * copies))
    y = public.integers(0, 2, rows.shape[0])
    X = torch.sparse_csr_tensor(rows.indptr, rows.indices, rows.data, rows.shape).to("cuda")
    small = torch.sparse_csr_tensor(one.indptr, one.indices, one.data, one.shape).to("cuda")
    there = min(timed(X, y, (small, y[:n])), timed(X, y))
    here = timed(rows, y, (one[:1000], y[:1000]))
    print(
        f"CSR {rows.shape[0]:,} x {d:,}: GPU {there:.2f} s, two cores {here:.1f} s: {here / there:.1f}x "
        f"(bar {BAR:g})",
        flush=True,
    )


def main() -> None:
    """Print both rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", type=int, nargs="?", default=4_000_000)
    parser.add_argument("--cpu-rows", type=int)
    parser.add_argument("--copies", type=int, default=8)
    chosen = parser.parse_args()
    torch.set_num_threads(2)
    csr(chosen.copies)
    dense(chosen.rows, chosen.cpu_rows or chosen.rows)


if __name__ == "__main__":
    main()
