"""Workers killed at random moments while models are fitted: every fit has to equal the undisturbed one.

Or it fails with ``WorkerError`` and the ledger says "failed". Nothing else is allowed to happen: no other
answer, no other error, no booking that is left open.

Command: python -m benchmarks.kills --save benchmarks/results/dask_kills.json   (a hundred kills of processes;
about ten minutes on two quiet cores)
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from dask import delayed
from scipy import sparse

import sordino
from benchmarks.clusters import opened
from sordino.errors import WorkerError
from sordino.kernel.noise import seeded_noise_not_private
from sordino.ledger import Ledger

EDGES = (500, 900, 2000, 2100, 3300)
ROWS, COLUMNS = 4000, 30


@dataclass
class Outcome:
    """How fits ended while workers were killed, and what the ledger says of each."""

    kills: list[int] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    booked: list[list[str]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether every fit was equal and is settled, or failed and says so; or failed before it booked."""
        allowed = {"equal": [["settled"]], "failed": [["failed"], []]}
        both = zip(self.ended, self.booked, strict=True)
        return all(booked in allowed.get(end, []) for end, booked in both)


class Killer(threading.Thread):
    """Takes a random worker away at random moments, and gives the cluster a new one."""

    pause = 0.1

    def __init__(self, cluster: Any, seed: int, most: int) -> None:
        super().__init__(daemon=True)
        self.cluster, self.rng, self.left = cluster, np.random.default_rng(seed), most
        self.done, self.killed, self.dead = threading.Event(), 0, set[int]()

    def run(self) -> None:
        """Kill until enough are dead or the fit is over; one worker is left each time."""
        while self.left and not self.done.wait(self.rng.exponential(self.pause)):
            known = set(self.cluster.scheduler.workers)
            alive = [w for w in list(self.cluster.workers.values()) if self.address(w) in known]
            if len(alive) >= 2:
                self.kill(alive[self.rng.integers(len(alive))])
                self.killed, self.left = self.killed + 1, self.left - 1

    def address(self, lost: Any) -> str | None:
        """Return where a worker is reached, None for one that is not ready."""
        return str(lost.address)

    def kill(self, lost: Any) -> None:
        """Close a worker in this process without a word to those who wait for it."""
        self.cluster.scale(len(self.cluster.worker_spec) + 1)
        self.cluster.sync(lost.close, executor_wait=False, nanny=False, reason="killed by a test")


class ProcessKiller(Killer):
    """Kills the process of a random worker (SIGKILL), each once; its nanny starts another."""

    pause = 0.7

    def address(self, lost: Any) -> str | None:
        """Return where a worker is reached; one killed while it starts would be given up by its nanny."""
        ready = lost.status.name == "running" and getattr(lost.process, "status", None) is not None
        alive = ready and lost.process.status.name == "running" and lost.pid is not None
        return lost.worker_address if alive and lost.pid not in self.dead else None

    def kill(self, lost: Any) -> None:
        """Kill."""
        pid = lost.pid
        if pid is not None:  # else it ended by itself just now
            self.dead.add(pid)
            os.kill(pid, signal.SIGKILL)


def data() -> tuple[Any, np.ndarray]:
    """Return sparse rows and two classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, COLUMNS)) / 3
    return sparse.csr_matrix(np.where(np.abs(X) > 0.2, X, 0.0)), np.where(X[:, 0] > X[:, 2], "yes", "no")


def fitted(ledger: Any, rows: Any, labels: Any, steps: int) -> np.ndarray:
    """Return the coefficients of a seeded fit."""
    model = sordino.SparseLogisticRegression(
        epsilon=2.0,
        delta=1e-6,
        data_norm=1.0,
        n_nonzero_coefs=8,
        solver="sgd-ht",
        solver_options={"batch_size": 400},
        max_iter=steps,
        classes=["no", "yes"],
        ledger=ledger,
        dataset_id="d",
    )
    with seeded_noise_not_private(7, same_for_every_fit=True):
        found: np.ndarray = model.fit(rows, labels).coef_
    return found


def disturbed(
    cluster: Any, killer: type[Killer], ledger: Any, fits: int, kills: int, steps: int
) -> Iterator[Outcome]:
    """Fit again and again while workers are killed, more often than asked while kills are missing.

    What happened until then is told after each fit.
    """
    cuts = [0, *EDGES, ROWS]
    X, y = data()
    rows, labels = ([delayed(v[a:b]) for a, b in itertools.pairwise(cuts)] for v in (X, y))
    ledger.create("d", sordino.BudgetPolicy(epsilon=1000.0, delta=1e-2))
    workers = len(cluster.scheduler.workers)
    undisturbed, found, known = fitted(ledger, rows, labels, steps), Outcome(), 1
    for seed in itertools.count():
        if (seed >= fits and sum(found.kills) >= fits * kills) or seed > 2 * fits:
            break
        _wait_for(cluster, workers)
        thread, start = killer(cluster, seed, kills), time.perf_counter()
        thread.start()
        try:
            same = np.array_equal(fitted(ledger, rows, labels, steps), undisturbed)
            found.ended.append("equal" if same else "another answer")
        except WorkerError as error:
            found.ended.append("failed")
            found.words.append(str(error))
        finally:
            thread.done.set()
            thread.join()
        found.kills.append(thread.killed)
        found.seconds.append(round(time.perf_counter() - start, 1))
        history = [entry for entry in ledger.history("d") if entry.epsilon]  # models have lines of their own
        found.booked.append([entry.status.value for entry in history[known:]])
        known = len(history)
        yield found


def _wait_for(cluster: Any, workers: int) -> None:
    """Let workers that were killed in an earlier fit come back; start others only where two are not left.

    On a busy machine a worker needs minutes to start, and others started beside it would make that worse.
    """
    for seconds in (120.0, 300.0):
        end = time.monotonic() + seconds
        while len(cluster.scheduler.workers) < workers and time.monotonic() < end:
            time.sleep(0.2)
        if len(cluster.scheduler.workers) >= 2:
            return
        cluster.scale(len(cluster.worker_spec) + workers)


def main() -> None:
    """Kill, print what happened, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=20)
    parser.add_argument("--kills", type=int, default=5, help="for each fit, as long as it lasts")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--save")
    given = parser.parse_args()
    with (
        opened(given.workers) as made,
        tempfile.TemporaryDirectory() as folder,
        Ledger.open(Path(folder) / "ledger.db") as ledger,
    ):
        asked = (given.fits, given.kills, given.steps)
        for found in disturbed(made.cluster, ProcessKiller, ledger, *asked):
            told(found, vars(given))


def told(found: Outcome, asked: dict[str, Any]) -> None:
    """Print what happened until now, and keep it."""
    last = f"{found.kills[-1]} kills, {found.ended[-1]}, {found.seconds[-1]} s"
    sums = {"kills": sum(found.kills), **Counter(found.ended), "sound": found.sound}
    print(f"fit {len(found.ended)}: {last}; until now {sums}", flush=True)
    if asked["save"]:
        options = " ".join(f"--{name} {value}" for name, value in asked.items())
        kept = {"about": {"command": f"python -m benchmarks.kills {options}"}, "total": sums, **asdict(found)}
        Path(asked["save"]).write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
