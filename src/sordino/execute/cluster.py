"""Which cluster `fit` uses for data that lie in Dask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from sordino.errors import InvalidInputError, require_extra

_chosen: ContextVar[Any] = ContextVar("sordino_cluster", default=None)


@contextmanager
def on_cluster(cluster: Any, *, security: Any = None) -> Iterator[Any]:
    """Use a Dask cluster for every fit inside the block.

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
    distributed = _distributed()
    own = not isinstance(cluster, distributed.Client)
    client = distributed.Client(cluster, security=security, set_as_default=False) if own else cluster
    token = _chosen.set(client)
    try:
        yield client
    finally:
        _chosen.reset(token)
        if own:
            client.close()


def current_client() -> Any:
    """Return the client of the block around, or the one that Dask would use."""
    chosen = _chosen.get()
    try:
        client = _distributed().default_client() if chosen is None else chosen
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


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise require_extra("distributed", "dask") from None
    return distributed
