"""Parts of one data set, in this process and on a cluster of two workers in its threads."""

import numpy as np
import pytest
from dask import delayed
from distributed import LocalCluster
from scipy import sparse

import sordino
from sordino.execute import LocalExecutor
from sordino.execute.dask import spread
from sordino.execute.local import fold, in_parts, part_sum, total


@pytest.fixture(scope="module")
def cluster():
    """Two workers with one thread each; every fit of the module uses them."""
    quiet = {"dashboard_address": ":0", "worker_dashboard_address": ":0", "silence_logs": 50}
    with (
        LocalCluster(n_workers=2, processes=False, threads_per_worker=1, **quiet) as made,
        sordino.on_cluster(made) as client,
    ):
        yield client


class InProcess:
    """The parts without a cluster: what the answers of a cluster have to equal, bit for bit."""

    def __init__(self, parts, groups=None):
        self.parts, self.groups = parts, groups or [range(len(parts))]
        self.sizes = tuple(part.population for part in parts)
        self.population = sum(self.sizes)
        self.offer = in_parts(parts[0].offer.records == "sparse rows", "parts", "", self.sizes)

    def total(self, question, batch):
        count, shares = len(self.parts), batch.shares
        return total(
            [
                fold({(0, i): part_sum(self.parts[i], question, shares[i]) for i in group}, count)
                for group in self.groups
            ],
            count,
        )


def cut(values, edges):
    """Return consecutive parts of rows or values, sparse or not."""
    ends = [*edges, values.shape[0]]
    return [values[a:b] for a, b in zip([0, *edges], ends, strict=True)]


def uneven(count):
    """Return the edges of five parts, one of them empty."""
    return [count // 6, count // 6, count // 2, count - 3]


def parts_of(problem, matrix, targets):
    """Return one local executor per part."""
    intercept = getattr(problem, "intercept", 0.0)
    edges = uneven(matrix.shape[0])
    pairs = zip(cut(matrix, edges), cut(targets, edges), strict=True)
    return [LocalExecutor(x, y, problem.data_norm, intercept) for x, y in pairs]


def in_process(problem, matrix, targets):
    """Return the executor over parts in this process."""
    return InProcess(parts_of(problem, matrix, targets))


def on_workers(problem, matrix, targets):
    """Return the executor over the same parts on the cluster."""
    edges = uneven(matrix.shape[0])
    rows, column = spread(*([delayed(part) for part in cut(values, edges)] for values in (matrix, targets)))
    return rows.executor(column, problem.data_norm, getattr(problem, "intercept", 0.0), None)


def small_data(n=300, d=8, seed=0):
    """Return rows, numbers to predict and two classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) / 3
    return X, X[:, 0] - X[:, 1] / 2, np.where(X[:, 0] > X[:, 2], "yes", "no")


def as_csr(X):
    return sparse.csr_matrix(np.where(np.abs(X) > 0.2, X, 0.0))
