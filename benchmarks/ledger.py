"""Reservations a second: several processes on one SQLite file, beside the disk's own floor.

Every reservation is one durable transaction, so no ledger can be faster than the disk can
synchronise one small write after another. Run: `python -m benchmarks.ledger`.
"""

import argparse
import multiprocessing
import os
import sqlite3
import tempfile
import time
from pathlib import Path

from benchmarks.machine import describe
from sordino.kernel.events import Relation, gaussian_event
from sordino.ledger import BudgetPolicy, Ledger

TARGET = 200.0
CERTIFICATE = (0.01, 1e-9)


def fsync_floor(folder: Path, seconds: float = 1.0) -> float:
    """Return durable 4 KiB appends a second, from one process and without a database."""
    handle = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        os.write(handle, b"0" * 4096)
        os.fsync(handle)
        count += 1
    os.close(handle)
    return count / seconds


def sqlite_floor(folder: Path, seconds: float = 1.0) -> float:
    """Return durable one-row transactions a second of bare SQLite, from one process."""
    connection = sqlite3.connect(folder / "floor.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (value TEXT)")
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        connection.execute("INSERT INTO rows VALUES (?)", ("0" * 500,))
        count += 1
    connection.close()
    return count / seconds


def reserve_until(path, barrier, seconds, counts):
    """Reserve and settle in a loop for a while; put the number and the slowest wait in a queue."""
    ledger = Ledger.open(path)
    event = gaussian_event(1e6, Relation.ADD_REMOVE)
    stated = {"relation": "add-remove", "unit": "record", "certificate": CERTIFICATE}
    ledger.reserve("benchmark", event, **stated)  # warm caches before the clock starts
    barrier.wait()
    stop, count, slowest = time.perf_counter() + seconds, 0, 0.0
    while (start := time.perf_counter()) < stop:
        ledger.reserve("benchmark", event, **stated)
        slowest = max(slowest, time.perf_counter() - start)
        count += 1
    counts.put((count, slowest))
    ledger.close()


def reservations(folder: Path, processes: int, seconds: float = 3.0) -> tuple[float, float]:
    """Return reservations a second of several processes together, and the slowest one in s."""
    path = folder / f"ledger-{processes}.sqlite"
    with Ledger.open(path) as ledger:
        ledger.create("benchmark", BudgetPolicy(epsilon=1.0, delta=1e-5))
    context = multiprocessing.get_context("spawn")
    barrier, counts = context.Barrier(processes), context.Queue()
    arguments = (str(path), barrier, seconds, counts)
    workers = [context.Process(target=reserve_until, args=arguments) for _ in range(processes)]
    for worker in workers:
        worker.start()
    results = [counts.get() for _ in workers]
    for worker in workers:
        worker.join()
    with Ledger.open(path) as ledger:
        made = sum(count for count, _ in results)
        assert ledger.verify().reservations == made + processes
    return made / seconds, max(slowest for _, slowest in results)


def main(folder: str | None = None) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        place = Path(name)
        describe()
        print(f"# SQLite {sqlite3.sqlite_version}")
        print(f"fsync floor        {fsync_floor(place):8.0f} synchronised 4 KiB writes/s")
        print(f"SQLite floor       {sqlite_floor(place):8.0f} one-row transactions/s, 1 process")
        for processes in (1, 4, 8):
            rate, slowest = reservations(place, processes)
            note = f"(target {TARGET:.0f}: {'met' if rate >= TARGET else 'MISSED'})"
            note = note if processes == 4 else ""
            print(
                f"{processes} process(es)       {rate:8.0f} reservations/s, slowest "
                f"{slowest * 1e3:.0f} ms {note}".rstrip()
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", help="where to put the ledger: its disk is what is measured")
    main(parser.parse_args().folder)
