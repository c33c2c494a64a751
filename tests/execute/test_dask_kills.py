"""Workers killed while they work: a fit equals the undisturbed one or fails, and the ledger agrees."""

import itertools
import os
import signal
import threading

import dask
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

    pause = 0.1

    def __init__(self, cluster, seed, most):
        super().__init__(daemon=True)
        self.cluster, self.rng, self.left = cluster, np.random.default_rng(seed), most
        self.done, self.killed = threading.Event(), 0

    def run(self):
        while self.left and not self.done.wait(self.rng.exponential(self.pause)):
            known = set(self.cluster.scheduler.workers)
            alive = [w for w in self.cluster.workers.values() if self.address(w) in known]
            if len(alive) < 2:  # somebody is left to go on; without anybody a fit fails, as it should
                continue
            self.kill(alive[self.rng.integers(len(alive))])
            self.killed, self.left = self.killed + 1, self.left - 1

    def address(self, lost):
        return lost.address

    def kill(self, lost):
        self.cluster.scale(len(self.cluster.worker_spec) + 1)
        self.cluster.sync(lost.close, executor_wait=False, nanny=False, reason="killed by a test")


class ProcessKiller(Killer):
    """Kills the process of a random worker; its nanny starts another."""

    pause = 0.5

    def address(self, lost):
        # One that was killed while it starts would be given up by its nanny, not started again.
        ready = lost.status.name == "running" and getattr(lost.process, "status", None) is not None
        return lost.worker_address if ready and lost.process.status.name == "running" else None

    def kill(self, lost):
        os.kill(lost.pid, signal.SIGKILL)


def fitted(ledger, rows, steps=150):
    model = sordino.SparseLogisticRegression(
        epsilon=2.0,
        delta=1e-6,
        data_norm=1.0,
        n_nonzero_coefs=8,
        solver="sgd-ht",
        batch_size=400,
        max_iter=steps,
        classes=["no", "yes"],
        ledger=ledger,
        dataset_id="d",
    )
    with seeded_noise_not_private(7, same_for_every_fit=True):
        return model.fit(rows, [delayed(part) for part in cut(LABELS, EDGES)]).coef_


def disturbed(cluster, killer, ledger, fits, steps):
    """Return how fits ended while workers were killed, how many were, and what the ledger says."""
    rows = [delayed(part) for part in cut(as_csr(X), EDGES)]
    outcomes, killed = [], 0
    ledger.create("d", sordino.BudgetPolicy(epsilon=1000.0, delta=1e-2))
    undisturbed = fitted(ledger, rows, steps)
    for seed in range(fits):
        thread = killer(cluster, seed, KILLS)
        thread.start()
        try:
            same = np.array_equal(fitted(ledger, rows, steps), undisturbed)
            outcomes.append("settled" if same else "wrong")
        except WorkerError as error:
            outcomes.append("failed")
            print(f"fit {seed}: {error}")
        finally:
            thread.done.set()
            thread.join()
        killed += thread.killed
    print(f"{killed} kills, {outcomes.count('settled')} fits settled, {outcomes.count('failed')} failed")
    return outcomes, killed, [entry.status.value for entry in ledger.history("d")]


@pytest.mark.long
@pytest.mark.parametrize("processes", [False, True])
def test_lost_workers_change_no_answer_and_the_ledger_tells_what_happened(processes, tmp_path):
    """A hundred kills over twenty fits of workers in this process; fewer of processes, which start slowly."""
    fits, steps, killer = (3, 600, ProcessKiller) if processes else (FITS, 150, Killer)
    # A cluster on one machine gives up workers that need more than 15 seconds to start again.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "300s"}),
        LocalCluster(n_workers=2, processes=processes, threads_per_worker=1, **QUIET) as cluster,
        sordino.on_cluster(cluster),
        Ledger.open(tmp_path / "ledger.db") as ledger,
    ):
        outcomes, killed, (first, *booked) = disturbed(cluster, killer, ledger, fits, steps)
    assert "wrong" not in outcomes
    assert first == "settled"
    assert booked.count("settled") == outcomes.count("settled")
    assert set(booked) <= {"settled", "failed"}
    assert killed >= fits
    assert outcomes.count("settled") >= fits // 2


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
