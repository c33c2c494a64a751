"""Clusters on this machine, opened in one place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dask
import numpy as np
import psutil
from distributed import LocalCluster

import sordino

# Dask has its workers give back all memory that they free. A round then waits for the pages of the next one.
MEMORY = {"MALLOC_TRIM_THRESHOLD_": 2**28, "MALLOC_MMAP_THRESHOLD_": 2**25}
QUIET: dict[str, Any] = {"dashboard_address": ":0", "worker_dashboard_address": ":0", "silence_logs": 60}


@dataclass(frozen=True)
class Opened:
    """A cluster that fits use: its client, and the processes of driver (and scheduler) and of workers."""

    cluster: Any
    client: Any

    @property
    def processes(self) -> list[psutil.Process]:
        """This process, then those of the workers, if they have their own."""
        pids = [nanny.pid for nanny in self.cluster.workers.values() if hasattr(nanny, "pid")]
        return [psutil.Process(), *map(psutil.Process, pids)]


@contextmanager
def opened(workers: int = 2, processes: bool = True, keep: bool = True) -> Iterator[Opened]:
    """Open a cluster of workers of one thread each, in processes of their own or in threads of this one.

    They keep memory that they free, as the page on scale says, unless ``keep`` is False.
    """
    own = dask.config.get("distributed.nanny.pre-spawn-environ")
    # A cluster on one machine gives up workers that need more than 15 seconds to start again.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "300s"}),
        dask.config.set({"distributed.nanny.pre-spawn-environ": own | (MEMORY if keep else {})}),
        LocalCluster(n_workers=workers, processes=processes, threads_per_worker=1, **QUIET) as cluster,
        sordino.on_cluster(cluster) as client,
    ):
        client.wait_for_workers(workers)
        yield Opened(cluster, client)


def used(processes: list[psutil.Process]) -> np.ndarray:
    """Return the seconds of the processor that each process has had."""
    return np.array([sum(process.cpu_times()[:2]) for process in processes])
