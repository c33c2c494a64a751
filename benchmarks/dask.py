"""What a round over two workers costs beyond its work, and what two workers gain on heavy rounds.

Command: python -m benchmarks.dask   (seed 0; medians; the ratios are what counts)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from dask import delayed
from distributed import LocalCluster
from scipy import sparse

import sordino
from benchmarks.machine import describe
from sordino.execute import LocalExecutor
from sordino.execute.dask import spread
from sordino.kernel import Curator, Full, Gaussian, NoiseSource, Plan, Relation, Release
from sordino.problems.glm import GlmGradient
from sordino.problems.losses import Logistic

COORDINATES, ROUNDS = 50_000, 60


def block(rows: int, columns: int, entries: int, seed: int) -> tuple[Any, np.ndarray]:
    """Make CSR rows with uniform columns and labels."""
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, columns, rows * entries).astype(np.int32)
    data = rng.standard_normal(indices.size) / np.sqrt(entries)
    pointers = np.arange(0, indices.size + 1, entries)
    return sparse.csr_matrix((data, indices, pointers), (rows, columns)), rng.choice([-1.0, 1.0], rows)


def median(call: Callable[[], Any], times: int) -> float:
    """Return the median milliseconds of a call."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return 1e3 * float(np.median(taken[times // 6 :]))


def round_of(executor: Any, w: np.ndarray, times: int) -> float:
    """Return the median milliseconds of one gradient release."""
    release = Release(GlmGradient(Logistic(), 1.0), Gaussian(), Full(), times)
    plan = Plan({"gradient": release}, Relation.ADD_REMOVE, executor.population).at(1.0)
    curator = Curator(executor, plan, NoiseSource.from_os())
    return median(lambda: curator.release("gradient", w), times)


def main() -> None:
    """Print overhead and speed-up."""
    describe()
    with (
        LocalCluster(n_workers=2, processes=True, threads_per_worker=1, dashboard_address=":0") as cluster,
        sordino.on_cluster(cluster) as client,
    ):
        client.wait_for_workers(2)
        unit = median(lambda: client.submit(int, 1, pure=False).result(), ROUNDS)
        print(f"one empty task of Dask: {unit:.1f} ms (what this machine needs for a message and back)")
        w = np.zeros(COORDINATES)
        homes = sorted(client.scheduler_info()["workers"])

        def by_hand() -> None:
            client.gather([client.submit(np.negative, w, pure=False, workers=[home]) for home in homes])

        floor = median(by_hand, ROUNDS)
        print(f"a round by hand, two tasks that send back a vector of {COORDINATES:,}: {floor:.1f} ms")
        for rows, entries, times in ((1_000, 20, ROUNDS), (400_000, 100, 6)):
            made = [block(rows // 4, COORDINATES, entries, seed) for seed in range(4)]
            pairs = [delayed(block, nout=2)(rows // 4, COORDINATES, entries, seed) for seed in range(4)]
            X, y = spread(*([pair[i] for pair in pairs] for i in range(2)))  # made where they lie
            there = X.executor(y, 1.0, 0.0, None)
            here = LocalExecutor(
                sparse.vstack([m for m, _ in made]), np.concatenate([t for _, t in made]), 1.0
            )
            ours, alone = round_of(there, w, times), round_of(here, w, times)
            print(
                f"{rows:,} rows x {COORDINATES:,} columns, {entries} entries a row: {alone:.1f} ms here, "
                f"{ours:.1f} ms on two workers (overhead {ours - alone / 2:.1f} ms, bar 15, "
                f"{(ours - alone / 2) / floor:.1f} rounds by hand; "
                f"speed-up {alone / ours:.2f}, bar 1.6 where a round takes 300 ms)"
            )


if __name__ == "__main__":
    main()
