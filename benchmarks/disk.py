"""Fits from disk against reading the file: time per pass and memory beyond the model.

Command: python -m benchmarks.disk [megabytes]   (400 by default; seed 0)
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import sordino
from benchmarks.machine import describe

COLUMNS, ENTRIES, BLOCK, PASSES, MEMORY = 1_000_000, 75, 20_000, 5, 1 << 28


def blocks(megabytes: int) -> Iterator[tuple[Any, np.ndarray]]:
    """Make CSR blocks in single precision, about so many megabytes together."""
    rng = np.random.default_rng(0)
    for _ in range(max(1, megabytes * 2**20 // (BLOCK * ENTRIES * 12))):
        indices = rng.integers(0, COLUMNS, BLOCK * ENTRIES).astype(np.int32)
        data = (rng.standard_normal(indices.size) / np.sqrt(ENTRIES)).astype(np.float32)
        pointers = np.arange(0, indices.size + 1, ENTRIES)
        rows = sparse.csr_matrix((data, indices, pointers), (BLOCK, COLUMNS))
        yield rows, rng.choice([-1.0, 1.0], BLOCK)


def peak() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def reading(folder: Path) -> float:
    """Return the seconds to read all files of a folder in order."""
    start = time.perf_counter()
    for file in folder.iterdir():
        with file.open("rb", buffering=0) as opened:
            buffer = bytearray(1 << 24)
            while opened.readinto(buffer):
                pass
    return time.perf_counter() - start


def main() -> None:
    """Write a folder, fit from it twice, and print times and memory."""
    describe()
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    with tempfile.TemporaryDirectory() as place:
        start = time.perf_counter()
        folder = sordino.to_disk(f"{place}/rows", blocks(megabytes))
        size = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
        print(f"{size:.0f} MB written in {time.perf_counter() - start:.1f} s")
        rows = sordino.on_disk(folder, memory=MEMORY)
        before, floor = peak(), reading(folder)
        n = rows.shape[0]
        common = {"delta": 1e-8, "data_norm": 1.0, "classes": [-1, 1], "n_nonzero_coefs": 1000}
        for name, options in (
            ("ight", {"solver": "ight", "max_iter": PASSES}),
            ("sgd-ht", {"solver": "sgd-ht", "batch_size": 256, "max_iter": 400}),
        ):
            start = time.perf_counter()
            sordino.SparseLogisticRegression(**common, **options).fit(rows, rows.target.astype(int))
            took = time.perf_counter() - start
            each = took / PASSES if name == "ight" else took * n / (256 * 400)
            print(
                f"{name}: {each:.2f} s a pass, {each / floor:.1f} x reading it ({floor:.2f} s, cached); "
                f"peak {peak():.0f} MB, {peak() - before:.0f} MB more than before the fit"
            )


if __name__ == "__main__":
    main()
