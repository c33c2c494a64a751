"""Workers killed while they work: a fit equals the undisturbed one or fails, and the ledger agrees."""

import itertools

import numpy as np
import pytest
from benchmarks.clusters import opened
from benchmarks.kills import Killer, Outcome, ProcessKiller, disturbed
from dask import delayed
from tests.asking import asked

from sordino.errors import WorkerError
from sordino.execute.dask import spread
from sordino.kernel import Full, Gaussian, NoiseSource, Release
from sordino.ledger import Ledger
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmGradient


@pytest.mark.long
@pytest.mark.parametrize("processes", [False, True])
def test_lost_workers_change_no_answer_and_the_ledger_tells_what_happened(processes, tmp_path):
    """A hundred kills over twenty fits, of workers in this process and of processes."""
    workers, steps, killer = (6, 300, ProcessKiller) if processes else (2, 150, Killer)
    with opened(workers, processes) as made, Ledger.open(tmp_path / "ledger.db") as ledger:
        *_, found = disturbed(made.cluster, killer, ledger, fits=20, kills=5, steps=steps)
    assert found.sound
    assert sum(found.kills) >= 100
    assert found.ended.count("equal") >= len(found.ended) // 2


def test_an_outcome_is_sound_only_if_the_ledger_agrees_with_each_fit():
    ended = ["equal", "failed", "failed"]
    assert Outcome(ended=ended, booked=[["settled"], ["failed"], []]).sound
    assert not Outcome(ended=["another answer"], booked=[["settled"]]).sound
    assert not Outcome(ended=["failed"], booked=[["settled"]]).sound
    assert not Outcome(ended=["equal"], booked=[[]]).sound
    assert not Outcome(ended=["failed"], booked=[["reserved"]]).sound


@pytest.mark.parametrize("honest", [True, False])
def test_a_source_that_gives_other_rows_when_it_is_read_again_is_refused(honest):
    reads = itertools.count()

    def block():
        return np.full((10, 3), 0.1 if honest else 0.1 + 0.1 * next(reads))

    release = Release(GlmGradient(LOSSES["squared"], 1.0), Gaussian(1.0), Full())
    with opened(2, processes=False) as there:
        rows, y = spread([delayed(block, pure=False)() for _ in range(2)], np.ones(20))
        made = rows.executor(y, 1.0, 0.0, None)
        noise = NoiseSource.seeded_not_private(0)
        first = asked(made, release, np.zeros(3), 1.0, 0, noise)
        lost = next(w for w in there.cluster.workers.values() if w.address in made._groups)
        there.cluster.sync(lost.close, executor_wait=False, nanny=False, reason="killed by a test")
        if honest:
            assert asked(made, release, np.zeros(3), 1.0, 1, noise).shape == first.shape
            return
        with pytest.raises(WorkerError, match="same rows each time"):
            asked(made, release, np.zeros(3), 1.0, 1, noise)
