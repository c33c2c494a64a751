"""An epoch of mini-batches from files that the system's cache does not hold: rows as they lie, and copied.

Files are taken for larger than memory, and the pages of their rows are given up after each release (pointers,
a hundredth of short rows, stay). Bytes are those that this process made the disk read and write, as multiples
of the files; "own" is memory that no file backs, at its peak, less what it was before. The ways run one after
the other in processes of their own; the last line of a shape is of files that the cache holds.

Command: python -m benchmarks.cold_batches [megabytes] [MB of memory for a pass]   (400 and 256 by default)
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import sordino
from benchmarks.disk import timed, watched
from benchmarks.machine import describe
from sordino.execute import disk

SHAPES = {  # entries of a row, columns, records in a batch
    "sparse rows of 600 bytes": (75, 100_000, 2048),
    "sparse rows of 600 bytes, small batches": (75, 100_000, 256),
    "dense rows of 600 bytes": (150, 150, 2048),
    "dense rows of 16,384 bytes": (4096, 4096, 512),
}
WAYS = ("as they lie", "as chosen", "from the cache")
OPTIONS = {"delta": 1e-8, "data_norm": 1.0, "classes": [-1, 1], "n_nonzero_coefs": 100, "solver": "sgd-ht"}


def blocks(shape: str, megabytes: int) -> Iterator[tuple[Any, np.ndarray]]:
    """Make rows in single precision, about so many megabytes together."""
    rng, (entries, columns, _) = np.random.default_rng(0), SHAPES[shape]
    width = 4 * entries if entries == columns else 8 * entries
    count = 2**24 // width
    for _ in range(max(1, megabytes * 2**20 // (count * width))):
        values = (rng.standard_normal((count, entries)) / np.sqrt(entries)).astype(np.float32)
        if entries < columns:
            indices = np.sort(rng.integers(0, columns, (count, entries)), axis=1).astype(np.int32).ravel()
            pointers = np.arange(0, indices.size + 1, entries)
            values = sparse.csr_matrix((values.ravel(), indices, pointers), (count, columns))
        yield values, rng.choice([-1.0, 1.0], count)


def written_bytes() -> int:
    """Return the bytes that this process gave the disk to write."""
    lines = Path("/proc/self/io").read_text("utf-8").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("write_bytes")))


def give_up(rows: Any) -> None:
    """Have the system forget the pages of some rows."""
    for name in rows._row_files:
        rows._files[name].forget()
        rows._files[name].drop(0, 0)


def measure(folder: str, shape: str, way: str, memory: int) -> None:
    """Print what an epoch costs one way."""
    cold, lost, honest = way != "from the cache", [0.0], disk.DiskExecutor._total
    if cold:
        disk._BEYOND = disk._CACHED = 0.0
    if way == "as they lie":
        disk.DiskExecutor.ahead = lambda *_: 0  # type: ignore[method-assign]

    def total(self: Any, *given: Any) -> Any:
        found = honest(self, *given)
        if cold:
            lost[0] += timed(partial(give_up, self._rows))[1]
        return found

    disk.DiskExecutor._total = total  # type: ignore[method-assign]
    rows = sordino.on_disk(folder, memory=memory << 20)
    target, batch = rows.target.astype(int), SHAPES[shape][2]

    def fit(steps: int) -> None:
        options = {**OPTIONS, "solver_options": {"batch_size": batch}, "max_iter": steps}
        sordino.SparseLogisticRegression(**options).fit(rows, target)

    fit(2)  # compiles
    if cold:
        give_up(rows)
    size = sum(file.stat().st_size for file in Path(folder).iterdir())
    before, lost[0] = written_bytes(), 0.0
    found = watched(lambda: fit(-(-rows.shape[0] // batch)))
    read, put = found["read_gb"] * 1e9 / size, (written_bytes() - before) / size
    print(
        f"  {way}: {read:.1f} times the files read, {put:.1f} written, processor "
        f"{found['processor'] - lost[0]:.1f} s, {found['own_mb']:.0f} MB of its own",
        flush=True,
    )


def main() -> None:
    """Write rows of each shape, and measure each way in a process of its own."""
    if len(sys.argv) == 5:
        measure(*sys.argv[1:4], int(sys.argv[4]))
        return
    describe()
    megabytes, memory = (sys.argv[1:] + ["400", "256"][len(sys.argv) - 1 :])[:2]
    for shape, (_, _, batch) in SHAPES.items():
        with tempfile.TemporaryDirectory() as place:
            folder = str(sordino.to_disk(f"{place}/rows", blocks(shape, int(megabytes))))
            count = sordino.on_disk(folder).shape[0]
            print(f"an epoch of {count:,} {shape}, batches of {batch}:", flush=True)
            for way in WAYS:
                command = [sys.executable, "-m", "benchmarks.cold_batches", folder, shape, way, memory]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
