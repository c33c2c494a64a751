"""Workers killed while they work: a fit equals the undisturbed one or fails, and the ledger agrees."""

import itertools
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
from sordino.execute.dask import spread
from sordino.kernel import Full, Gaussian, NoiseSource, Release
from sordino.kernel.noise import seeded_noise_not_private
from sordino.ledger import Ledger
from sordino.problems.glm import GlmGradient
from sordino.problems.losses import LOSSES

FITS, KILLS = 20, 5
EDGES = [500, 900, 2000, 2100, 3300]
QUIET = {"dashboard_address": ":0", "worker_dashboard_address": ":0", "silence_logs": 60}
X, _, LABELS = small_data(4000, 30)


class Killer(threading.Thread):
    """Takes a random worker away at random moments, and gives the cluster a new one."""

    def __init__(self, cluster, seed, most):
        super().__init__(daemon=True)
        self.cluster, self.rng, self.left = cluster, np.random.default_rng(seed), most
        self.done, self.killed = threading.Event(), 0

    def run(self):
        while self.left and not self.done.wait(self.rng.exponential(0.5)):
            known = set(self.cluster.scheduler.workers)
            alive = [w for w in self.cluster.workers.values() if w.address in known]
            if len(alive) < 2:  # somebody is left to go on; without anybody a fit fails, as it should
                continue
            lost = alive[self.rng.integers(len(alive))]
            self.cluster.scale(len(self.cluster.worker_spec) + 1)
            self.cluster.sync(lost.close, executor_wait=False, nanny=False, reason="killed by a test")
            self.killed, self.left = self.killed + 1, self.left - 1


def fitted(ledger, rows):
    model = sordino.SparseLogisticRegression(
        epsilon=2.0,
        delta=1e-6,
        data_norm=1.0,
        n_nonzero_coefs=8,
        solver="sgd-ht",
        batch_size=400,
        max_iter=40,
        classes=["no", "yes"],
        ledger=ledger,
        dataset_id="d",
    )
    with seeded_noise_not_private(7, same_for_every_fit=True):
        return model.fit(rows, [delayed(part) for part in cut(LABELS, EDGES)]).coef_


@pytest.mark.long
def test_lost_workers_change_no_answer_and_the_ledger_tells_what_happened(tmp_path):
    rows = [delayed(part) for part in cut(as_csr(X), EDGES)]
    outcomes, killed = [], 0
    with (
        LocalCluster(n_workers=2, processes=False, threads_per_worker=1, **QUIET) as cluster,
        sordino.on_cluster(cluster),
        Ledger.open(tmp_path / "ledger.db") as ledger,
    ):
        ledger.create("d", sordino.BudgetPolicy(epsilon=100.0, delta=1e-2))
        undisturbed = fitted(ledger, rows)
        for seed in range(FITS):
            killer = Killer(cluster, seed, KILLS)
            killer.start()
            try:
                same = np.array_equal(fitted(ledger, rows), undisturbed)
                outcomes.append("settled" if same else "wrong")
            except WorkerError:
                outcomes.append("failed")
            finally:
                killer.done.set()
                killer.join()
            killed += killer.killed
        first, *booked = [entry.status.value for entry in ledger.history("d")]
    print(f"{killed} kills, {outcomes.count('settled')} fits settled, {outcomes.count('failed')} failed")
    assert "wrong" not in outcomes
    assert first == "settled"
    assert booked.count("settled") == outcomes.count("settled")
    assert set(booked) <= {"settled", "failed"}
    assert killed >= FITS
    assert outcomes.count("settled") >= FITS // 2


@pytest.mark.long
def test_a_worker_process_that_is_killed_is_replaced_by_another(tmp_path):
    rows = [delayed(part) for part in cut(as_csr(X), EDGES)]
    with (
        LocalCluster(n_workers=2, processes=True, threads_per_worker=1, **QUIET) as cluster,
        sordino.on_cluster(cluster),
        Ledger.open(tmp_path / "ledger.db") as ledger,
    ):
        ledger.create("d", sordino.BudgetPolicy(epsilon=100.0, delta=1e-2))
        undisturbed = fitted(ledger, rows)
        victim = next(iter(cluster.workers.values())).pid
        timer = threading.Timer(0.5, os.kill, (victim, signal.SIGKILL))
        timer.start()
        assert np.array_equal(fitted(ledger, rows), undisturbed)
        timer.join()


@pytest.mark.parametrize("honest", [True, False])
def test_a_source_that_gives_other_rows_when_it_is_read_again_is_refused(honest):
    reads = itertools.count()

    def block():
        return np.full((10, 3), 0.1 if honest else 0.1 + 0.1 * next(reads))

    release = Release(GlmGradient(LOSSES["squared"], 1.0), Gaussian(1.0), Full())
    with (
        LocalCluster(n_workers=2, processes=False, threads_per_worker=1, **QUIET) as cluster,
        sordino.on_cluster(cluster),
    ):
        rows, y = spread([delayed(block, pure=False)() for _ in range(2)], np.ones(20))
        made = rows.executor(y, 1.0, 0.0, None)
        noise = NoiseSource.seeded_not_private(0)
        first = made.answer(release, np.zeros(3), 1.0, 0, noise)
        lost = next(w for w in cluster.workers.values() if w.address in made._groups)
        cluster.sync(lost.close, executor_wait=False, nanny=False, reason="killed by a test")
        if honest:
            assert made.answer(release, np.zeros(3), 1.0, 1, noise).shape == first.shape
            return
        with pytest.raises(WorkerError, match="same rows each time"):
            made.answer(release, np.zeros(3), 1.0, 1, noise)
