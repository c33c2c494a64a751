"""Fits from disk against reading the files and against the same fits in memory; memory beyond the model.

A pass from disk, one in memory and one that only reads take turns; ratios are of the quickest. Reading is
from the disk itself (the files' pages are given up before) and from the system's cache; the floor of a pass
is the larger one of reading and working.

"Own" memory is what no file backs (RssAnon), at its peak while a fit runs, less what it was before.

Command: python -m benchmarks.disk [megabytes] [MB of memory for a pass]   (400 and 256 by default; seed 0)
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import sordino
from benchmarks.machine import describe

COLUMNS, ENTRIES, BLOCK, PASSES, TURNS = 1_000_000, 75, 20_000, 2, 3
WHOLE_FITS_IN = 2_000  # megabytes that are also fitted in memory
COMMON = {"delta": 1e-8, "data_norm": 1.0, "classes": [-1, 1], "n_nonzero_coefs": 1000}


def blocks(megabytes: int) -> Iterator[tuple[Any, np.ndarray]]:
    """Make CSR blocks in single precision, about so many megabytes together."""
    rng = np.random.default_rng(0)
    for _ in range(max(1, megabytes * 2**20 // (BLOCK * ENTRIES * 8))):
        indices = np.sort(rng.integers(0, COLUMNS, (BLOCK, ENTRIES)), axis=1).astype(np.int32).ravel()
        data = (rng.standard_normal(indices.size) / np.sqrt(ENTRIES)).astype(np.float32)
        pointers = np.arange(0, indices.size + 1, ENTRIES)
        rows = sparse.csr_matrix((data, indices, pointers), (BLOCK, COLUMNS))
        yield rows, rng.choice([-1.0, 1.0], BLOCK)


def memory_now() -> float:
    """Return the memory of this process that no file backs, in MB."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("RssAnon"))) / 1024


def reading(folder: Path, cold: bool) -> None:
    """Read all files of a folder in order; cold: after their pages in the system's cache are given up."""
    buffer = bytearray(1 << 24)
    for file in folder.iterdir():
        with file.open("rb", buffering=0) as opened:
            if cold:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            while opened.readinto(buffer):
                pass


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds and the processor's seconds of a call."""
    wall, used = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - used


class Watch(threading.Thread):
    """Looks at the memory of this process that no file backs, again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._done, self.before = threading.Event(), memory_now()
        self.peak = self.before

    def run(self) -> None:
        """Look until told to stop."""
        while not self._done.wait(0.02):
            self.peak = max(self.peak, memory_now())

    def stop(self) -> float:
        """Return by how many MB it grew."""
        self._done.set()
        self.join()
        return self.peak - self.before


def disk_bytes() -> int:
    """Return the bytes that this process made the disk read."""
    lines = Path("/proc/self/io").read_text("utf-8").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


def watched(call: Callable[[], Any]) -> dict[str, float]:
    """Return seconds, seconds of the processor, gigabytes read from the disk and MB of memory of its own."""
    watch, before = Watch(), disk_bytes()
    watch.start()
    wall, used = timed(call)
    grown = watch.stop()
    read = (disk_bytes() - before) / 1e9
    return {"seconds": wall, "processor": used, "read_gb": read, "own_mb": grown}


def fit(rows: Any, target: np.ndarray, **options: Any) -> None:
    """Fit once."""
    sordino.SparseLogisticRegression(**COMMON, **options).fit(rows, target)


def passes(rows: Any, whole: Any, target: np.ndarray, folder: Path) -> None:
    """Print what passes over all records cost."""
    calls: dict[str, Callable[[], Any]] = {
        "reading from the disk": lambda: reading(folder, True),
        "reading from the cache": lambda: reading(folder, False),
        "a pass from disk": lambda: fit(rows, target, solver="ight", max_iter=PASSES),
    }
    if whole is not None:
        calls["a pass in memory"] = lambda: fit(whole, target, solver="ight", max_iter=PASSES)
    calls["a pass from disk"]()  # compiles
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            found[name].append(timed(call))
    best = {}
    for name, pairs in found.items():
        each = PASSES if "pass" in name else 1
        wall, used = (min(pair[i] for pair in pairs) / each for i in (0, 1))
        middle = float(np.median([pair[0] for pair in pairs])) / each
        best[name] = (wall, used)
        print(f"{name}: {wall:.2f} s at the quickest, {middle:.2f} in the middle, processor {used:.2f} s")
    ours, cold = best["a pass from disk"], best["reading from the disk"]
    print(f"a pass from disk / reading the disk: {ours[0] / cold[0]:.2f} (bar 1.3)")
    if whole is not None:
        alone = best["a pass in memory"]
        floor = max(cold[0], alone[0])
        print(f"a pass from disk / the larger of reading and a pass in memory: {ours[0] / floor:.2f}")
        print(f"processor's time, a pass from disk / in memory: {ours[1] / alone[1]:.2f}")


def batches(rows: Any, target: np.ndarray) -> None:
    """Print what an epoch of mini-batches costs, for batches of two sizes."""
    for size, steps in ((256, 200), (8192, 20)):
        step = partial(fit, rows, target, solver="sgd-ht", solver_options={"batch_size": size})
        long, short = (timed(partial(step, max_iter=count)) for count in (steps + 2, 2))
        epoch = [(a - b) * len(target) / (size * steps) for a, b in zip(long, short, strict=True)]
        print(f"an epoch of sgd-ht, batches of {size}: {epoch[0]:.2f} s, processor {epoch[1]:.2f} s")


def main() -> None:
    """Write a folder, fit from it, and print times and memory."""
    describe()
    megabytes, memory = (int(given) for given in (sys.argv[1:] + ["400", "256"][len(sys.argv) - 1 :])[:2])
    with tempfile.TemporaryDirectory() as place:
        taken = timed(lambda: sordino.to_disk(f"{place}/rows", blocks(megabytes)))
        folder = Path(place) / "rows"
        size = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
        print(f"{size:.0f} MB written in {taken[0]:.1f} s, processor {taken[1]:.1f} s (making rows included)")
        rows = sordino.on_disk(folder, memory=memory << 20)
        target = rows.target.astype(int)
        whole = sparse.vstack(list(rows.blocks())).tocsr() if size < WHOLE_FITS_IN else None
        passes(rows, whole, target, folder)
        batches(rows, target)
        if whole is None:
            found = watched(partial(fit, rows, target, solver="auto", max_iter=3))
            print(
                f"auto, three first steps: {found['seconds']:.1f} s, processor {found['processor']:.1f} s, "
                f"{found['read_gb']:.1f} GB read from the disk, {found['own_mb']:.0f} MB of its own"
            )


if __name__ == "__main__":
    main()
