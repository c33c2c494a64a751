"""Several processes, and processes that die: nothing is overspent, nothing released is unspent."""

import multiprocessing
import os
import random
import time

import pytest
from tests.ledger.helpers import (
    gaussian,
    open_and_create,
    release_for_ever,
    reserve,
    reserve_all,
    reserve_and_die,
)

from sordino.ledger import BudgetPolicy, Ledger, Status


@pytest.fixture(scope="module")
def context():
    """Return a way to start processes that share nothing with this one but imported modules."""
    method = multiprocessing.get_context("forkserver")
    method.set_forkserver_preload(["sordino.ledger", "tests.ledger.helpers"])
    return method


def race(context, target, processes, *arguments):
    """Start processes at the same moment and return what each one reports."""
    start, results = context.Barrier(processes), context.Queue()
    workers = [context.Process(target=target, args=(*arguments, start, results)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    reports = [results.get(timeout=20) for _ in workers]
    for worker in workers:
        worker.join(timeout=60)
        assert worker.exitcode == 0
    return reports


def test_eight_processes_racing_for_one_budget_never_overspend(context, ledger, address, tmp_path):
    event = gaussian(40.0)
    with Ledger.open(tmp_path / "alone.sqlite") as alone:
        alone.create("survey", BudgetPolicy(1.0, 1e-5))
        expected = 0
        while alone.spent("survey").fraction < 1:
            try:
                reserve(alone, event)
            except RuntimeError:
                break
            expected += 1
    made = race(context, reserve_all, 8, address, event)
    assert sum(made) == expected == len(ledger.history("survey"))
    assert ledger.spent("survey").fraction <= 1
    assert ledger.verify().reservations == expected
    assert ledger.account("survey").renyi == Ledger.open(tmp_path / "alone.sqlite").account("survey").renyi


def test_processes_that_create_the_same_ledger_get_one(context, address):
    sequences = race(context, open_and_create, 6, address)
    assert sorted(sequences) == [1, 2, 3, 4, 5, 6]
    with Ledger.open(address, create=False) as ledger:
        assert ledger.datasets() == ["survey"]
        assert ledger.verify().reservations == 6


def test_a_killed_process_leaves_its_reservation_spent(context, ledger, address):
    worker = context.Process(target=reserve_and_die, args=(address, gaussian()))
    worker.start()
    worker.join(timeout=60)
    spent = ledger.account("survey")
    assert spent.count == 1
    mine = reserve(ledger)
    assert ledger.mark_crashed() == 1
    crashed, alive = ledger.history("survey")
    assert (crashed.status, crashed.reason) == (Status.CRASHED, "the process ended")
    assert alive.status is Status.RESERVED
    assert ledger.account("survey").renyi == tuple(2 * total for total in spent.renyi)
    assert ledger.mark_crashed() == 0
    mine.settle()
    assert ledger.verify().reservations == 2


def killed_at_random_moments(context, address, record, times, seed):
    moments = random.Random(seed)
    for _ in range(times):
        worker = context.Process(target=release_for_ever, args=(address, gaussian(1000.0), str(record)))
        size = record.stat().st_size
        worker.start()
        deadline = time.monotonic() + 30
        while record.stat().st_size == size and time.monotonic() < deadline:
            time.sleep(0.001)  # until it is inside its loop
        time.sleep(moments.uniform(0, 0.02))
        worker.kill()
        worker.join(timeout=60)
        yield [int(line) for line in record.read_text().split()]


@pytest.mark.parametrize("times", [8, pytest.param(50, marks=pytest.mark.long)])
def test_kill_9_at_random_moments_leaves_everything_released_spent(context, ledger, address, tmp_path, times):
    record = tmp_path / "released"
    record.touch()
    for released in killed_at_random_moments(context, address, record, times, seed=7):
        history = {entry.sequence: entry.status for entry in ledger.history("survey")}
        assert set(released) <= set(history)
        assert len(released) == len(set(released))
        # At most the one in flight at each kill was reserved and not released.
        assert len(history) - len(released) <= times
    assert len(released) >= times  # each of them was inside its loop when it was killed
    assert ledger.verify().reservations == len(history)
    assert ledger.spent("survey").fraction <= 1
    open_ones = sum(status is Status.RESERVED for status in history.values())
    assert open_ones <= times
    assert ledger.mark_crashed() == open_ones


def test_a_fork_gets_a_connection_of_its_own(ledger):
    reserve(ledger)
    child = os.fork()
    if child == 0:  # pragma: no cover
        code = 1
        try:
            reserve(ledger)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    reserve(ledger)
    assert [entry.sequence for entry in ledger.history("survey")] == [1, 2, 3]
