"""Nothing tells neighbours apart but exact answers, and those by at most their sensitivity.

Every estimator, solver, relation and place of the rows: the releases on one data set are recorded, their
noisy answers replayed on hostile neighbours, and questions, parameters, exact answers, errors, warnings and
fitted state compared. A new solver is covered by its row in the registry.
"""

import contextlib
from functools import cache

import dask
import pytest
from distributed import LocalCluster
from tests.replay.cases import cases_of, told
from tests.replay.subjects import all_rows

import sordino

ROWS = all_rows()
SHORT, EVERY = cases_of(ROWS, long=False), cases_of(ROWS, long=True)


@pytest.fixture(scope="module")
def cluster():
    """Start a cluster in this process when the first case wants one."""
    with contextlib.ExitStack() as stack:

        @cache
        def started():
            quiet = {"dashboard_address": ":0", "worker_dashboard_address": ":0", "silence_logs": 50}
            # a busy machine forgets to send signs of life
            patient = {"distributed.scheduler.worker-ttl": None}
            stack.enter_context(dask.config.set(patient))
            made = LocalCluster(n_workers=2, processes=False, threads_per_worker=1, **quiet)
            stack.enter_context(made)
            return stack.enter_context(sordino.on_cluster(made))

        yield lambda: started().wait_for_workers(2, timeout=60)


def replayed(case, folder, cluster):
    if case.place == "dask":
        cluster()
    return told(case, case.judged(folder))


@pytest.mark.parametrize("case", SHORT, ids=lambda case: case.name)
def test_nothing_tells_neighbours_apart(case, tmp_path, cluster):
    assert replayed(case, tmp_path, cluster) == []


@pytest.mark.long
@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_nothing_tells_many_neighbours_apart(case, tmp_path, cluster):
    assert replayed(case, tmp_path, cluster) == []
