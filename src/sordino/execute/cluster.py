"""Which cluster `fit` uses for data that lie in Dask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sordino.errors import InvalidInputError, import_extra


@contextmanager
def on_cluster(cluster: Any, *, security: Any = None) -> Iterator[Any]:
    """Use a Dask cluster for every fit inside the block, and for what Dask computes there.

    Parameters
    ----------
    cluster : a ``distributed.Client``, the address of a scheduler, or a cluster such as ``LocalCluster``.
    security : a ``distributed.Security`` with certificates for TLS, where ``cluster`` is no client.

    Without it `fit` uses the client that was made last in this process.

    **Privacy.** The scheduler and its workers are trusted with the records: see the threat model. The
    guarantee of a fit is towards those who see its answers.

    Examples
    --------
    >>> import numpy as np, dask.array, sordino
    >>> from distributed import LocalCluster
    >>> X = dask.array.from_array(np.eye(4)[np.arange(400) % 4], chunks=(100, 4))
    >>> made = LocalCluster(n_workers=2, processes=False, dashboard_address=":0")
    >>> with made as cluster, sordino.on_cluster(cluster):
    ...     model = sordino.LinearRegression(data_norm=1.0, target_bound=1.0).fit(X, X[:, 2])
    >>> model.coef_.shape
    (4,)
    """
    distributed = import_extra("distributed", "dask")
    own = not isinstance(cluster, distributed.Client)
    client = distributed.Client(cluster, security=security, set_as_default=False) if own else cluster
    try:
        with client.as_current():  # what a model predicts there is computed there too
            yield client
    finally:
        if own:
            client.close()


def current_client() -> Any:
    """Return the client of the block around, or the one that was made last."""
    try:
        client = import_extra("distributed", "dask").default_client()
    except ValueError:
        raise InvalidInputError(
            "Expected a Dask client for data that lie in Dask, got none. Make one first "
            "(client = distributed.Client(...)), or fit inside `with sordino.on_cluster(address):`."
        ) from None
    if client.asynchronous:
        raise InvalidInputError(
            "Expected a client that waits for its answers, got one with asynchronous=True."
        )
    return client
