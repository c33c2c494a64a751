"""What rounds cost, per row, entry, coordinate and message; what that predicts for other shapes and clusters.

Constants are measured on some shapes and judged on others. They are seconds of the processor, which other
work on the machine changes little; on machines of their own the wall time of a round is what
:meth:`Constants.round_of` returns.

Command: python -m benchmarks.scale   (seed 0; about a minute)
         python -m benchmarks.scale --workers 2 4 8   (rounds on so many processes, and a line through them)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, log2, log10
from typing import Any

import numpy as np
from dask import delayed
from scipy import sparse

from benchmarks.clusters import opened, used
from benchmarks.machine import describe
from sordino.execute import LocalExecutor
from sordino.execute.dask import spread
from sordino.kernel import Curator, Full, Gaussian, NoiseSource, Plan, Relation, Release
from sordino.problems.losses import Logistic
from sordino.problems.queries import GlmGradient

SIZES = (
    1e4,
    1e5,
    5e5,
    1e6,
    1e7,
)  # of columns: random ones are slower where they do not fit into the caches
LINK = 1.25e9  # bytes per second of a network, an assumption: 10 Gbit/s
JUDGED_HERE = ((60_000, 30, 30_000), (20_000, 90, 200_000), (15_000, 60, 3_000_000))
JUDGED_THERE = ((40_000, 40, 200_000), (120_000, 20, 20_000), (60_000, 60, 50_000))


@dataclass(frozen=True)
class Constants:
    """Seconds of the processor; ``entry`` for each of :data:`SIZES`."""

    row: float
    row_there: float  # more for a row at a worker, where memory is given back after each round
    entry: tuple[float, ...]
    coordinate: float  # noise and sums of an answer in one process
    message: tuple[float, float]  # for each worker and round: at the driver, at the worker
    sent: tuple[float, float]  # for each coordinate of an answer of one worker: at the driver, at the worker

    def entry_at(self, columns: float) -> float:
        """Return the seconds for an entry, between the decades that were measured."""
        return float(np.interp(log10(columns), [log10(d) for d in SIZES], self.entry))

    def work(self, rows: float, entries: float, columns: float) -> float:
        """Return the seconds for a pass over some rows."""
        return rows * (self.row + entries * self.entry_at(columns))

    def here(self, rows: float, entries: float, columns: float) -> float:
        """Return the seconds for a gradient of all rows in one process."""
        return self.work(rows, entries, columns) + columns * self.coordinate

    def driver(self, workers: int, columns: float) -> float:
        """Return the seconds of driver and scheduler for a round in which each worker is asked by itself."""
        return workers * (self.message[0] + columns * self.sent[0]) + columns * self.coordinate

    def worker(self, workers: int, rows: float, entries: float, columns: float) -> float:
        """Return the seconds of each worker for a round."""
        there = rows / workers * self.row_there + self.work(rows / workers, entries, columns)
        return self.message[1] + columns * self.sent[1] + there

    def round_of(self, workers: int, rows: float, entries: float, columns: float, threads: int = 1) -> float:
        """Return the seconds of a round on machines of their own, over a network of :data:`LINK`.

        From 4 MB on workers pass messages on: the driver hears two, and each level of the tree of workers
        sends and adds up an answer once more.
        """
        each = rows / workers / threads
        work = each * self.row_there + self.work(each, entries, columns)
        if workers * columns * 8 < 1 << 22:
            return self.driver(workers, columns) + self.message[1] + columns * self.sent[1] + work
        hop = self.message[1] + columns * (self.sent[0] + self.sent[1]) + 2 * 2 * 8 * columns / LINK
        return self.driver(2, columns) + ceil(log2(workers)) * hop + work


def rows_of(rows: int, entries: int, columns: int, seed: int) -> Any:
    """Make CSR rows with uniform columns."""
    rng = np.random.default_rng(seed)
    indices = np.sort(rng.integers(0, columns, (rows, entries)), axis=1).astype(np.int32).ravel()
    data = rng.standard_normal(indices.size) / np.sqrt(entries)
    return sparse.csr_matrix((data, indices, np.arange(0, indices.size + 1, entries)), (rows, columns))


def labels_of(rows: int, seed: int) -> np.ndarray:
    """Make labels."""
    return np.random.default_rng(seed).choice([-1.0, 1.0], rows)


def asked(executor: Any, columns: int, times: int) -> Iterator[None]:
    """Ask for one gradient after another."""
    release = Release(GlmGradient(Logistic(), 1.0), Gaussian(), Full(), times)
    plan = Plan({"gradient": release}, Relation.ADD_REMOVE, executor.population).at(1.0)
    curator, w = Curator(executor, plan, NoiseSource.from_os()), np.full(columns, 1e-3)
    for _ in range(times):
        yield curator.release("gradient", w)


def measured_here(rows: int, entries: int, columns: int, times: int = 5) -> float:
    """Return the median seconds of the processor for a gradient in this process."""
    executor = LocalExecutor(rows_of(rows, entries, columns, 0), labels_of(rows, 0), 1.0)
    taken, last = [], time.thread_time()
    for _ in asked(executor, columns, times + 2):
        now = time.thread_time()
        taken.append(now - last)
        last = now
    return float(np.median(taken[2:]))


def entry_here(columns: int, rows: int = 20_000, times: int = 7) -> float:
    """Return the seconds for an entry: of rows with 100 of them against rows with 20, in turns."""
    many, few = (
        asked(LocalExecutor(rows_of(rows, e, columns, 0), labels_of(rows, 0), 1.0), columns, times + 1)
        for e in (100, 20)
    )
    taken = []
    for _ in range(times + 1):
        start = time.thread_time()
        next(many)
        middle = time.thread_time()
        next(few)
        taken.append(2 * middle - start - time.thread_time())
    return float(np.median(taken[1:])) / (80 * rows)


def measured_there(processes: list[Any], rows: int, entries: int, columns: int, times: int) -> np.ndarray:
    """Return the mean seconds of the processor for a round: of the driver, and of a worker."""
    make, label = delayed(rows_of), delayed(labels_of)
    count = max(4, len(processes) - 1)
    parts = [rows // count] * count
    X, y = spread(
        [make(part, entries, columns, seed) for seed, part in enumerate(parts)],
        [label(part, seed) for seed, part in enumerate(parts)],
    )
    rounds = asked(X.executor(y, 1.0, 0.0, None), columns, times + 8)
    for _ in range(8):
        next(rounds)
    idle = _rate(processes)
    before, start = used(processes), time.perf_counter()
    for _ in rounds:
        pass
    spent = used(processes) - before - idle * (time.perf_counter() - start)
    return np.array([spent[0], spent[1:].mean()]) / times


def _rate(processes: list[Any], seconds: float = 3.0) -> np.ndarray:
    """Return how much of the processor a cluster needs that is asked nothing: its heartbeats."""
    before, start = used(processes), time.perf_counter()
    time.sleep(seconds)
    return (used(processes) - before) / (time.perf_counter() - start)


def constants(processes: list[Any]) -> Constants:
    """Measure."""
    coordinate = (measured_here(10, 2, 2_000_000) - measured_here(10, 2, 200_000)) / 1_800_000
    row = (measured_here(200_000, 2, 10_000) - measured_here(20_000, 2, 10_000)) / 180_000
    entry = [entry_here(int(columns)) for columns in SIZES]
    measured_there(processes, 400, 10, 1_000, 20)  # compiles and connects
    pairs = [[measured_there(processes, 400, 10, d, 60) for d in (1_000, 200_000)] for _ in range(3)]
    small, large = np.median(pairs, axis=0)
    each = np.array([2, 1])  # two workers for one driver
    message = small / each
    sent = (large - small - [200_000 * coordinate, 0]) / 199_000 / each
    found = Constants(row - 2 * entry[0], 0.0, tuple(entry), coordinate, tuple(message), tuple(sent))
    shape = (200_000, 4, 10_000)
    extra = measured_there(processes, *shape, times=30)[1] - found.worker(2, *shape)
    return replace(found, row_there=2 * extra / shape[0])


def judge(found: Constants, processes: list[Any]) -> None:
    """Compare predictions with shapes that no constant was measured on."""
    for shape in JUDGED_HERE:
        true, said = measured_here(*shape), found.here(*shape)
        print(f"  here, {shape}: {1e3 * true:.1f} ms, predicted {1e3 * said:.1f} ({said / true - 1:+.0%})")
    for shape in JUDGED_THERE:
        true = measured_there(processes, *shape, times=50)
        said = np.array([found.driver(2, shape[2]), found.worker(2, *shape)])
        both = [1e3 * (cost[0] + 2 * cost[1]) for cost in (true, said)]
        off = both[1] / both[0] - 1
        print(
            f"  two workers, {shape}: {both[0]:.1f} ms, predicted {both[1]:.1f} ({off:+.0%}); "
            f"of this the driver {1e3 * true[0]:.1f}, predicted {1e3 * said[0]:.1f}"
        )


def several(counts: list[int], rows: int = 120_000, entries: int = 20, columns: int = 20_000) -> None:
    """Print what rounds cost on several numbers of processes, and what a line through them says of 100."""
    found = []
    for workers in counts:
        with opened(workers) as made:
            measured_there(made.processes, 400, 10, 1_000, 20)  # compiles and connects
            found.append(measured_there(made.processes, rows, entries, columns, 200))
        driver, worker = 1e3 * found[-1]
        print(
            f"  {workers} workers, {(rows, entries, columns)}: driver {driver:.1f} ms, each worker "
            f"{worker:.1f} ms, {2 * 8 * columns * workers / 1e6:.2f} MB a round",
            flush=True,
        )
    driver, worker = np.array(found).T
    (each, once), (share, fixed) = np.polyfit(counts, driver, 1), np.polyfit(1 / np.array(counts), worker, 1)
    print(
        f"  driver {1e3 * once:.1f} ms and {1e3 * each:.2f} a worker; a worker {1e3 * fixed:.1f} ms and 1/W"
    )
    print(f"  of {1e3 * share:.1f}: on 100 workers {1e3 * (once + 100 * each + fixed + share / 100):.0f} ms")


def main() -> None:
    """Print constants, how well they predict, and what they say of a large cluster."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", help="Measure rounds on so many processes.")
    asked_for = parser.parse_args().workers
    describe()
    if asked_for:
        several(asked_for)
        return
    with opened() as made:
        processes = made.processes
        found = constants(processes)
        entry = ", ".join(f"{1e9 * e:.1f}" for e in found.entry)
        print(f"a row: {1e9 * found.row:.0f} ns, {1e9 * found.row_there:.0f} ns more at a worker")
        print(f"an entry: {entry} ns at {SIZES} columns")
        print(f"a coordinate of an answer: {1e9 * found.coordinate:.1f} ns (noise and sums)")
        message, sent = 1e3 * np.array(found.message), 1e9 * np.array(found.sent)
        print(f"a message to a worker and back: {message[0]:.1f} ms driver, {message[1]:.1f} ms worker")
        print(f"a coordinate sent: {sent[0]:.1f} ns driver, {sent[1]:.1f} ns worker")
        judge(found, processes)
    for workers in (1, 10, 100, 1000):
        seconds = found.round_of(workers, 1e9, 100, 1e7)
        print(f"  1e9 rows x 1e7 columns, 100 entries a row, {workers} threads: {seconds:.1f} s a round")


if __name__ == "__main__":
    main()
