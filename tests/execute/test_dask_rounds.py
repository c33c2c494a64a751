"""Messages of a round: whichever way they go, each part is in the sum once and the bits are the same."""

from dataclasses import dataclass

import numpy as np
import pytest
from dask import delayed
from distributed import LocalCluster
from tests.asking import asked
from tests.execute.in_parts import InProcess, as_csr, cut, small_data

import sordino
from sordino.errors import PlanError, WorkerError
from sordino.execute import LocalExecutor, dask_worker
from sordino.execute import dask as dask_rounds
from sordino.execute.dask import spread
from sordino.execute.dask_worker import Failed, Job, Kept, Reply, Round
from sordino.kernel import Full, Gaussian, NoiseSource, Poisson, Release
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmGradient

X, NUMBERS, _ = small_data(400)
EDGES = list(range(30, 400, 35))
QUIET = {"dashboard_address": ":0", "worker_dashboard_address": ":0", "silence_logs": 60}
WAYS = ("each by itself", "through the scheduler", "passed on")


@pytest.fixture(scope="module")
def five():
    with (
        LocalCluster(n_workers=5, processes=False, threads_per_worker=2, **QUIET) as made,
        sordino.on_cluster(made) as client,
    ):
        client.cluster_ = made
        yield client


def executors(way, monkeypatch):
    """Return the executor on the cluster, made to go one way, and the same parts here."""
    rows, column = spread([delayed(part) for part in cut(as_csr(X), EDGES)], NUMBERS)
    there = rows.executor(column, 1.0, 0.5, None)
    assert there._direct
    there._direct = way != "through the scheduler"
    if way == "passed on":
        monkeypatch.setattr(dask_rounds, "_LARGE", 0)
    pairs = zip(cut(as_csr(X), EDGES), cut(NUMBERS, EDGES), strict=True)
    return there, InProcess([LocalExecutor(x, y, 1.0, 0.5) for x, y in pairs])


def answers(executor, sampling, w=None):
    release = Release(GlmGradient(LOSSES["squared"], 0.7), Gaussian(1.3), sampling)
    w = np.linspace(0, 1, 9) if w is None else w
    noise = NoiseSource.seeded_not_private(5)
    return [asked(executor, release, w, 0.7, i, noise) for i in range(3)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sampling", [Full(), Poisson(0.3)])
def test_every_way_gives_the_bits_of_the_same_parts_here(way, sampling, five, monkeypatch):
    there, here = executors(way, monkeypatch)
    heads = []
    honest = dask_rounds.DaskExecutor._ask
    monkeypatch.setattr(
        dask_rounds.DaskExecutor, "_ask", lambda self, *a: heads.append(len(a[0])) or honest(self, *a)
    )
    assert np.array_equal(answers(there, sampling), answers(here, sampling))
    assert heads == ([3, 2] if way == "passed on" else [1] * 5) * 3


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_leaves_between_two_rounds_changes_no_bit(way, five, monkeypatch):
    there, here = executors(way, monkeypatch)
    answers(there, Full())
    five.cluster_.scale(len(five.cluster_.worker_spec) + 1)
    homes = list(there._groups)
    gone = next(w for w in five.cluster_.workers.values() if w.address == homes[-1])
    five.cluster_.sync(gone.close, executor_wait=False, nanny=False, reason="lost by a test")
    assert np.array_equal(answers(there, Poisson(0.3)), answers(here, Poisson(0.3)))
    assert homes[-1] not in there._groups


def test_what_does_not_change_is_sent_once_and_again_to_who_forgot_it(five, monkeypatch):
    @dataclass(frozen=True)
    class Constant:
        values: np.ndarray

    value, small = Constant(np.zeros(9000)), Constant(np.zeros(3))
    there, _ = executors(WAYS[0], monkeypatch)
    first, second, third = (there._pack((value, 3.0), again) for again in (False, False, True))
    assert [s[0].value is value for s in (first, second, third)] == [True, False, True]
    assert {s[0].token for s in (first, second, third)} == {first[0].token}
    assert there._pack(small, again=False) is small
    assert isinstance(dask_worker._resolve((Kept("nobody knows"), 1.0)), Kept)
    assert dask_worker._resolve(first) == (value, 3.0)
    assert dask_worker._resolve(second) == (value, 3.0)


def test_a_part_that_came_twice_is_refused_wherever_sums_are_joined():
    one = Reply({(0, 0): np.ones(2)})
    assert dask_worker.join_replies([one, Reply({(0, 1): np.ones(2)})], 2).nodes.keys() == {(1, 0)}
    refused = dask_worker.join_replies([one, one], 2)
    assert isinstance(refused, Failed)
    with pytest.raises(PlanError, match="twice"):
        raise refused.error()


def test_a_round_that_was_stopped_begins_no_other_part():
    part = LocalExecutor(X, NUMBERS, 1.0, 0.5)
    job, asked = Job("here", ("k",), (0,), (None,), (1,)), Round("stopped round", None, 1)
    dask_worker.stop(asked.token)
    assert dask_worker._one(part, job, 0, None, asked.token) == Failed("Cancelled")


def test_an_interrupted_round_is_stopped_on_all_workers(five, monkeypatch):
    there, _ = executors(WAYS[0], monkeypatch)

    async def interrupted(*_):
        raise WorkerError("no matter")

    monkeypatch.setattr(there, "_round", interrupted)
    before = len(dask_worker._stopped)
    with pytest.raises(WorkerError):
        answers(there, Full())
    assert len(dask_worker._stopped) >= min(before + 5, 64)
