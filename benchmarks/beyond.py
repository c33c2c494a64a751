"""Rows that memory does not hold: epochs of ``sgd-ht`` and a fit of ``auto`` against reading the files.

Dense rows in single precision with ten columns that matter. Reading is in order, of all files, after their
pages in the system's cache are given up, before and after the fits. The fits find whatever the system has
kept of the files by then. "Own" memory is what no file backs (RssAnon), at its peak while a fit runs, less
what it was before; bytes are those that this process made the disk read.

Command: python -m benchmarks.beyond --gigabytes 30 --save benchmarks/results/beyond.json   (1 GB by default)
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sordino
from benchmarks.disk import reading, timed, watched
from benchmarks.machine import describe

BLOCK, MATTER, COMMON = 4096, 10, {"epsilon": 1.0, "delta": 1e-8, "data_norm": 1.5, "classes": [-1, 1]}


def block(columns: int, seed: int, rows: int = BLOCK) -> tuple[np.ndarray, np.ndarray]:
    """Make rows of about length one, and labels that ten columns tell: margins have the deviation two."""
    rng = np.random.default_rng(seed)
    X = rng.random((rows, columns), dtype=np.float32)
    X -= np.float32(0.5)
    X *= np.float32(np.sqrt(12 / columns))
    w = np.where(np.arange(MATTER) % 2, -1.0, 1.0) * 2 * np.sqrt(columns / MATTER)
    return X, np.where(rng.random(rows) < 1 / (1 + np.exp(-X[:, :MATTER] @ w)), 1, -1)


def blocks(gigabytes: float, columns: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Make about so many gigabytes."""
    for seed in range(max(1, round(gigabytes * 1e9 / (BLOCK * columns * 4)))):
        yield block(columns, seed)


def fitted(rows: Any, target: np.ndarray, score: dict[str, float], **options: Any) -> None:
    """Fit once, and judge the model on rows that nobody has seen."""
    model = sordino.SparseLogisticRegression(**COMMON, n_nonzero_coefs=MATTER, **options).fit(rows, target)
    score["accuracy"] = float(model.score(*block(rows.shape[1], 10**6)))
    score["releases"] = sum(release.times for release in model.privacy_.releases)


def fits(rows: Any, given: argparse.Namespace) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield what epochs and a whole fit of the default took."""
    target = rows.target.astype(np.int64)
    steps = given.epochs * max(1, rows.shape[0] // given.batch)
    for name, options in (
        ("sgd-ht", {"solver": "sgd-ht", "solver_options": {"batch_size": given.batch}, "max_iter": steps}),
        ("auto", {"solver": "auto", "max_iter": given.auto_steps}),
    ):
        score: dict[str, float] = {}
        fitted(*block(rows.shape[1], 0), {}, **{**options, "max_iter": 2})  # compiles
        found = watched(lambda score=score, options=options: fitted(rows, target, score, **options))
        yield name, {**found, **score}


def measured(folder: Path, given: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Write the rows, read them, fit from them, read them again; yield each as it is done."""
    if not folder.exists():
        taken = timed(lambda: sordino.to_disk(folder, blocks(given.gigabytes, given.columns)))
        yield "making", {"seconds": taken[0], "processor": taken[1]}
    size = sum(file.stat().st_size for file in folder.iterdir())
    rows = sordino.on_disk(folder, memory=given.memory << 20)
    machine = int(Path("/proc/meminfo").read_text("utf-8").split()[1]) * 1024
    count, columns = rows.shape
    yield "files", {"gb": size / 1e9, "rows": count, "columns": columns, "machine_gb": machine / 1e9}
    yield "reading", [timed(lambda: reading(folder, True))[0]]
    yield from fits(rows, given)
    yield "reading", [timed(lambda: reading(folder, True))[0]]


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--auto-steps", type=int, help="of auto, which chooses by itself otherwise")
    parser.add_argument("--memory", type=int, default=1536, help="MB that a pass may use")
    parser.add_argument("--folder", default="sordino-beyond", help="must not be there yet, or hold such rows")
    parser.add_argument("--keep", action="store_true", help="leave the files where they are")
    parser.add_argument("--save")
    given = parser.parse_args()
    shape = {k: v for k, v in vars(given).items() if k not in ("folder", "keep", "save")}
    about = {"command": "python -m benchmarks.beyond", "machine": describe(), **shape}
    kept: dict[str, Any] = {"about": about}
    try:
        for name, found in measured(Path(given.folder), given):
            kept[name] = kept.get(name, []) + found if isinstance(found, list) else found
            print(time.strftime("%H:%M:%S"), name, kept[name], flush=True)
            if given.save:
                Path(given.save).write_text(json.dumps(kept, indent=1) + "\n")
    finally:
        if not given.keep:
            shutil.rmtree(given.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
