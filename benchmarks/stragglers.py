"""Slow and lost workers: the real executor with delays put in, against what a round should take.

Each part of eight workers, in the threads of this process, waits a hundredth of a second before it adds up
its rows; some are slow. A round should take as long as the slowest of them, and a worker that is lost should
cost one more round, the reading of its parts and the moment until that is seen. Answers have to be the same
bits as without any of it.

Command: python -m benchmarks.stragglers   (seed 0; about a minute)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from dask import delayed

from benchmarks.clusters import opened
from benchmarks.machine import describe
from sordino.execute import dask_worker
from sordino.execute.dask import spread
from sordino.kernel import Full, Gaussian, NoiseSource, Question, Release
from sordino.kernel.curator import answer
from sordino.problems.losses import Logistic
from sordino.problems.queries import GlmGradient

WORKERS, ROUNDS, USUAL, READING = 8, 100, 0.01, 0.05


class Delays:
    """Makes each sum of a part take a while: the part's own time in this round."""

    def __init__(self, law: Callable[[np.random.Generator], float]) -> None:
        self._law, self._honest, self._lock = law, dask_worker.part_sum, threading.Lock()
        self._rng, self.waited = np.random.default_rng(0), [0.0]

    def __enter__(self) -> Delays:
        dask_worker.part_sum = self._slow
        return self

    def __exit__(self, *_: object) -> None:
        dask_worker.part_sum = self._honest

    def _slow(self, *arguments: Any) -> Any:
        with self._lock:
            pause = self._law(self._rng)
            self.waited[-1] = max(self.waited[-1], pause)
        time.sleep(pause)
        return self._honest(*arguments)


def block(seed: int) -> np.ndarray:
    """Read a part, which takes a while."""
    time.sleep(READING)
    return np.random.default_rng(seed).normal(size=(200, 50)) / 10


def run(cluster: Any, law: Callable[[np.random.Generator], float], lose_every: int | None) -> tuple[Any, ...]:
    """Return the last answer, the seconds of each round, the longest delay in it, and how many were lost."""
    X, y = spread([delayed(block)(seed) for seed in range(WORKERS)], np.ones(200 * WORKERS))
    executor = X.executor(y, 1.0, 0.0, None)
    release, noise = (
        Release(GlmGradient(Logistic(), 1.0), Gaussian(1.0), Full()),
        NoiseSource.seeded_not_private(0),
    )
    taken, lost = [], 0
    with Delays(law) as delays:
        for number in range(ROUNDS):
            if lose_every and number % lose_every == lose_every - 1:
                lost += 1
                _lose(cluster, next(iter(executor._groups)))
            delays.waited.append(0.0)
            start = time.perf_counter()
            question = Question(release, np.zeros(50), 1.0, number, executor.population)
            found = answer(executor, question, noise)
            taken.append(time.perf_counter() - start)
    return found, np.array(taken), np.array(delays.waited[1:]), lost


def _lose(cluster: Any, address: str) -> None:
    cluster.scale(len(cluster.worker_spec) + 1)
    gone = next(w for w in cluster.workers.values() if w.address == address)
    cluster.sync(gone.close, executor_wait=False, nanny=False, reason="lost by a simulation")


def main() -> None:
    """Print what slow and lost workers cost."""
    describe()
    laws: dict[str, tuple[Callable[[np.random.Generator], float], int | None]] = {
        "nobody slow": (lambda rng: USUAL, None),
        "lognormal delays (sigma .5)": (lambda rng: USUAL * rng.lognormal(0.0, 0.5), None),
        "one sum in a hundred takes ten times": (
            lambda rng: USUAL * (10 if rng.random() < 0.01 else 1),
            None,
        ),
        "a worker lost every ten rounds": (lambda rng: USUAL, 10),
    }
    first = None
    for name, (law, lose_every) in laws.items():
        with opened(WORKERS, processes=False) as made:
            answer, taken, slowest, lost = run(made.cluster, law, lose_every)
        first = answer if first is None else first
        print(
            f"{name}: {1e3 * taken.mean():.1f} ms a round (median {1e3 * np.median(taken):.1f}, worst "
            f"{1e3 * taken.max():.1f}); the slowest delay alone {1e3 * slowest.mean():.1f}; "
            f"{lost} workers lost; same bits: {np.array_equal(answer, first)}"
        )


if __name__ == "__main__":
    main()
