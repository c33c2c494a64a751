"""Workers killed while they work: a fit equals the undisturbed one or fails, and the ledger agrees."""

import os
import signal
import threading

import numpy as np
import pytest
from dask import delayed
from distributed import LocalCluster
from tests.execute.in_parts import as_csr, cut, small_data

import sordino
from sordino.errors import WorkerError
from sordino.kernel.noise import seeded_noise_not_private
from sordino.ledger import Ledger

FITS, KILLS = 20, 5
X, _, LABELS = small_data(4000, 30)


class Killer(threading.Thread):
    """Kills a random worker process now and then until it is stopped."""

    def __init__(self, cluster, seed, most):
        super().__init__(daemon=True)
        self.cluster, self.rng, self.left = cluster, np.random.default_rng(seed), most
        self.done, self.killed = threading.Event(), 0

    def run(self):
        while self.left and not self.done.wait(self.rng.exponential(1.0)):
            known = set(self.cluster.scheduler.workers)  # one that is starting would not come back
            alive = [n.pid for n in self.cluster.workers.values() if n.worker_address in known and n.pid]
            if alive:
                os.kill(int(self.rng.choice(alive)), signal.SIGKILL)
                self.killed, self.left = self.killed + 1, self.left - 1


def fitted(ledger, rows):
    model = sordino.SparseLogisticRegression(
        epsilon=2.0,
        delta=1e-6,
        data_norm=1.0,
        n_nonzero_coefs=8,
        solver="sgd-ht",
        batch_size=400,
        max_iter=25,
        classes=["no", "yes"],
        ledger=ledger,
        dataset_id="d",
    )
    with seeded_noise_not_private(7, same_for_every_fit=True):
        return model.fit(rows, [delayed(part) for part in cut(LABELS, EDGES)]).coef_


EDGES = [500, 900, 2000, 2100, 3300]


@pytest.mark.long
def test_killed_workers_change_no_answer_and_the_ledger_tells_what_happened(tmp_path):
    rows = [delayed(part) for part in cut(as_csr(X), EDGES)]
    quiet = {"dashboard_address": None, "worker_dashboard_address": None, "silence_logs": 60}
    outcomes, killed = [], 0
    with (
        LocalCluster(2, processes=True, threads_per_worker=1, **quiet) as cluster,
        sordino.on_cluster(cluster) as client,
        Ledger.open(tmp_path / "ledger.db") as ledger,
    ):
        ledger.create("d", sordino.BudgetPolicy(epsilon=100.0, delta=1e-2))
        undisturbed = fitted(ledger, rows)
        for seed in range(FITS):
            client.wait_for_workers(2)
            killer = Killer(cluster, seed, KILLS)
            killer.start()
            try:
                assert np.array_equal(fitted(ledger, rows), undisturbed)
                outcomes.append("settled")
            except WorkerError:
                outcomes.append("failed")
            finally:
                killer.done.set()
                killer.join()
            killed += killer.killed
        history = [entry.status.value for entry in ledger.history("d")]
    print(f"{killed} kills, {outcomes.count('settled')} fits settled, {outcomes.count('failed')} failed")
    first, *booked = history
    assert first == "settled"
    assert booked.count("settled") == outcomes.count("settled")
    assert set(booked) <= {"settled", "failed"}
    assert killed >= FITS
    assert outcomes.count("settled") >= FITS // 4
