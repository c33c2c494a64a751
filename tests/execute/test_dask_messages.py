"""What travels in a round, by the byte, and what goes on after one was interrupted: nothing."""

import asyncio
import signal
import threading
import time

import numpy as np
import pytest
from dask import delayed
from distributed import LocalCluster
from distributed.comm.tcp import TCP
from scipy import sparse
from tests.asking import asked
from tests.execute.in_parts import cut, small_data

import sordino
from sordino.execute import dask as dask_rounds
from sordino.execute import dask_worker
from sordino.execute.dask import spread
from sordino.kernel import Full, Gaussian, NoiseSource, Poisson, Release, SparseVector
from sordino.ledger import Ledger
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmGradient

ROWS, ENTRIES = 300, 20
EDGES = [110, 200]
QUIET = {"dashboard_address": ":0", "worker_dashboard_address": ":0", "silence_logs": 60}
X, NUMBERS, LABELS = small_data(ROWS)


@pytest.fixture(scope="module")
def two():
    """Two workers in this process that speak over sockets, so that bytes can be counted."""
    with (
        LocalCluster(n_workers=2, processes=False, threads_per_worker=1, protocol="tcp", **QUIET) as made,
        sordino.on_cluster(made) as client,
    ):
        client.cluster_ = made
        yield client


@pytest.fixture
def sent(monkeypatch):
    """The bytes of each message that is sent, by anybody, from now on."""
    sizes, honest = [], TCP.write

    async def counted(self, *arguments, **named):
        size = await honest(self, *arguments, **named)
        sizes.append(size)
        return size

    monkeypatch.setattr(TCP, "write", counted)
    return sizes


def wide(columns):
    rng = np.random.default_rng(0)
    places = np.sort(rng.integers(0, columns, (ROWS, ENTRIES)), axis=1).ravel()
    return sparse.csr_matrix(
        (np.full(places.size, 0.2), places, np.arange(0, places.size + 1, ENTRIES)), (ROWS, columns)
    )


def bytes_of_a_round(columns, sampling, sent, rounds=3):
    """Return the mean bytes of a lazy round and how many columns came back in the largest."""
    rows, y = spread([delayed(part) for part in cut(wide(columns), EDGES)], NUMBERS)
    executor = rows.executor(y, 1.0, 0.0, None)
    release = Release(GlmGradient(LOSSES["squared"], 0.7), Gaussian(1.0), sampling, lazy=True)
    w, noise = SparseVector(np.array([5, 17]), np.ones(2), columns), NoiseSource.seeded_not_private(0)
    asked(executor, release, w, 0.7, 0, noise)
    sent.clear()
    for position in range(1, rounds + 1):
        asked(executor, release, w, 0.7, position, noise)
    return sum(sent) / rounds


def test_a_step_in_twenty_million_columns_sends_what_its_batch_touched(two, sent):
    touched = ROWS * ENTRIES
    found = bytes_of_a_round(20_000_000, Poisson(0.5), sent)
    assert found < 16 * touched + 30_000  # an index and a value of each, and the words around them
    few, many = (bytes_of_a_round(columns, Full(), sent) for columns in (200_000, 20_000_000))
    assert 8 * touched < many < 1.2 * few
    assert bytes_of_a_round(20_000_000, Poisson(0.1), sent) < many / 2


@pytest.mark.parametrize(("patience", "busy"), [(2.0, 0.0), (0.05, 0.5)], ids=["at once", "sent later"])
def test_an_interrupted_fit_leaves_nothing_running_and_the_ledger_says_failed(
    two, monkeypatch, tmp_path, request, patience, busy
):
    begun, ended, first = [], [], threading.Event()
    honest = dask_worker.part_sum

    def slow(*arguments):
        begun.append(1)
        first.set()
        time.sleep(0.6)
        ended.append(1)
        return honest(*arguments)

    def interrupt():
        first.wait(60)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    parts = [[delayed(part) for part in cut(values, list(range(8, 300, 8)))] for values in (X, LABELS)]
    settings = {"data_norm": 1.0, "classes": ["no", "yes"], "solver": "gd", "max_iter": 2}
    sordino.LogisticRegression(**settings).fit(*parts)  # compiling would keep all messages waiting
    monkeypatch.setattr(dask_worker, "part_sum", slow)
    monkeypatch.setattr(dask_rounds, "_BEAT", patience)
    stopped = dask_rounds.DaskExecutor._tell_all

    async def slowly_stopped(self, token):
        await asyncio.sleep(busy)
        await stopped(self, token)

    monkeypatch.setattr(dask_rounds.DaskExecutor, "_tell_all", slowly_stopped)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in jobs in the background
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        ledger.create("d", sordino.BudgetPolicy(epsilon=5.0, delta=1e-4))
        model = sordino.LogisticRegression(**settings, ledger=ledger, dataset_id="d")
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            model.fit(*parts)
        assert [entry.status.value for entry in ledger.history("d")] == ["failed"]
    time.sleep(1.6)  # the sum that each worker was in the middle of ends
    assert len(begun) == len(ended) < 38  # all take 11 seconds: a busy machine interrupts before
    after = len(begun)
    time.sleep(0.9)
    assert len(begun) == after
    states = {task.state for task in two.cluster_.scheduler.tasks.values()}
    assert states <= {"memory", "released", "forgotten"}
