"""A fit that is killed at any moment leaves a true ledger."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

from sordino import BudgetPolicy, Ledger, SparseLogisticRegression
from sordino.errors import BudgetExceededError
from sordino.kernel import curator

KILLS = 50


def fit_once(path: str, dataset: str) -> None:
    public = np.random.default_rng(0)
    X = public.normal(size=(200, 4))
    y = (X[:, 0] > 0).astype(int)
    SparseLogisticRegression(
        epsilon=0.01, delta=1e-9, solver="ight", max_iter=5, ledger=path, dataset_id=dataset
    ).fit(X, y)


def seconds_of_a_fit(path: str) -> float:
    fit_once(path, "rehearsal")  # compiles and loads everything before the forks
    start = time.perf_counter()
    fit_once(path, "rehearsal")
    return time.perf_counter() - start


def wait_for_a_start(log) -> None:
    deadline = time.monotonic() + 30
    while log.stat().st_size == 0 and time.monotonic() < deadline:
        time.sleep(0.001)


def fit_for_ever(path: str, log: int) -> None:
    """Fit again and again; note each fit (S) and each release (R) before it can be seen."""
    plain = curator.answer

    def noted(*args):
        answer = plain(*args)
        os.write(log, b"R")
        return answer

    curator.answer = noted
    while True:
        os.write(log, b"S")
        try:
            fit_once(path, "ward")
        except BudgetExceededError:
            os.write(log, b"B")
            time.sleep(0.01)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to kill many short-lived processes")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_no_release_without_a_reservation_and_no_overspending_when_killed_at_random(tmp_path):
    path = str(tmp_path / "budget.db")
    ledger = Ledger.open(path)
    ledger.create("ward", BudgetPolicy(epsilon=0.5, delta=1e-5))
    ledger.create("rehearsal", BudgetPolicy(epsilon=0.5, delta=1e-5))
    window = 2 * seconds_of_a_fit(path)
    public = np.random.default_rng(1)
    released = started = 0
    for kill in range(KILLS):
        log_path = tmp_path / f"log-{kill}"
        log = os.open(log_path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        child = os.fork()
        if child == 0:  # pragma: no cover - the child is killed
            try:
                fit_for_ever(path, log)
            finally:
                os._exit(1)
        os.close(log)
        wait_for_a_start(log_path)
        time.sleep(public.uniform(0.0, window))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        fits = log_path.read_bytes().split(b"S")[1:]
        started += len(fits)
        seen = sum(b"R" in fit for fit in fits)
        released += seen
        window *= 0.8 if seen else 1.5  # about half of the kills come before a release, whatever the load
    booked = sum(entry.epsilon > 0 for entry in ledger.history("ward"))  # models have lines of their own
    assert released > KILLS / 4  # the kills did not all come too early to matter
    assert released <= booked <= started
    assert {entry.status for entry in ledger.history("ward")} <= {"reserved", "settled", "crashed"}
    ledger.verify("ward")
    assert ledger.spent("ward").epsilon <= 0.5
