"""What a round over two workers costs beyond its work, and what two workers gain on heavy rounds.

Rounds of three kinds take turns, so that whatever else the machine does falls on all of them: ours, one by
hand (two tasks of Dask that send a vector back, gathered) and the same release in this process. Wall times
are medians; processor times are of this process, which is driver and scheduler, and of the workers.

Heavy rounds are measured with workers that keep memory which they free, as the page on scale says, and with
workers as Dask starts them.

Command: python -m benchmarks.dask   (seed 0; the ratios are what counts; 5 GB of memory)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
from dask import delayed
from scipy import sparse

from benchmarks.clusters import opened, used
from benchmarks.machine import describe
from sordino.execute import LocalExecutor
from sordino.execute.dask import spread
from sordino.kernel import Curator, Full, Gaussian, NoiseSource, Plan, Relation, Release
from sordino.problems.losses import Logistic
from sordino.problems.queries import GlmGradient

COORDINATES, ROUNDS = 50_000, 60
# Rows, entries a row, rounds, whether workers keep memory.
SHAPES = ((1_000, 20, ROUNDS, True), (1_200_000, 100, 12, True), (1_200_000, 100, 12, False))


def block(rows: int, columns: int, entries: int, seed: int) -> tuple[Any, np.ndarray]:
    """Make CSR rows with uniform columns and labels."""
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, columns, rows * entries).astype(np.int32)
    data = rng.standard_normal(indices.size) / np.sqrt(entries)
    pointers = np.arange(0, indices.size + 1, entries)
    return sparse.csr_matrix((data, indices, pointers), (rows, columns)), rng.choice([-1.0, 1.0], rows)


def in_turns(
    calls: dict[str, Callable[[], Any]], times: int, processes: list[psutil.Process]
) -> dict[str, tuple[float, float, np.ndarray]]:
    """Return the median and least milliseconds of each call, and the processor's, per process."""
    walls: dict[str, list[float]] = {name: [] for name in calls}
    spent = {name: np.zeros(len(processes)) for name in calls}
    for turn in range(times + times // 6):
        for name, call in calls.items():
            before, start = used(processes), time.perf_counter()
            call()
            if turn >= times // 6:  # the first ones warm up
                walls[name].append(time.perf_counter() - start)
                spent[name] += used(processes) - before
    return {
        name: (1e3 * float(np.median(wall)), 1e3 * min(wall), 1e3 * spent[name] / times)
        for name, wall in walls.items()
    }


def asker(executor: Any, w: np.ndarray, times: int) -> Callable[[], Any]:
    """Return a call that asks for one gradient release."""
    release = Release(GlmGradient(Logistic(), 1.0), Gaussian(), Full(), times)
    plan = Plan({"gradient": release}, Relation.ADD_REMOVE, executor.population).at(1.0)
    curator = Curator(executor, plan, NoiseSource.from_os())
    return lambda: curator.release("gradient", w)


def executors(rows: int, entries: int, parts: int = 4) -> tuple[Any, Any]:
    """Return the executor over parts on the workers, which make them, and over the same rows here."""
    made = [block(rows // parts, COORDINATES, entries, seed) for seed in range(parts)]
    pairs = [delayed(block, nout=2)(rows // parts, COORDINATES, entries, seed) for seed in range(parts)]
    X, y = spread(*([pair[i] for pair in pairs] for i in range(2)))
    here = LocalExecutor(sparse.vstack([m for m, _ in made]), np.concatenate([t for _, t in made]), 1.0)
    return X.executor(y, 1.0, 0.0, None), here


def measure(rows: int, entries: int, times: int, keep: bool) -> None:
    """Print overhead and speed-up of rounds over two workers."""
    with opened(keep=keep) as made:
        client, w = made.client, np.zeros(COORDINATES)
        homes = sorted(client.scheduler_info()["workers"])

        def by_hand() -> None:
            client.gather([client.submit(np.negative, w, pure=False, workers=[home]) for home in homes])

        there, here = executors(rows, entries)
        calls = {"ours": asker(there, w, 2 * times), "here": asker(here, w, 2 * times), "hand": by_hand}
        found = in_turns(calls, times, made.processes)
    memory = "memory kept" if keep else "memory given back"
    print(f"{rows:,} rows x {COORDINATES:,} columns, {entries} entries a row, {memory}:")
    for name, (median, least, cpu) in found.items():
        print(
            f"  {name}: {median:.1f} ms (least {least:.1f}); processor: "
            f"driver and scheduler {cpu[0]:.1f} ms, workers {cpu[1]:.1f} and {cpu[2]:.1f} ms"
        )
    (ours, quick, _), (alone, best, _), (hand, _, _) = (found[name] for name in calls)
    extra = ours - alone / 2
    print(f"  overhead {extra:.1f} ms, {extra / hand:.2f} rounds by hand (bar 15 ms)")
    print(f"  speed-up {alone / ours:.2f}, of the quickest {best / quick:.2f} (bar 1.6 at 300 ms)")


def main() -> None:
    """Measure each shape on a cluster of its own."""
    describe()
    for shape in SHAPES:
        measure(*shape)


if __name__ == "__main__":
    main()
