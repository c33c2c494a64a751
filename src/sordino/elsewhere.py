"""Fitted models applied to rows that lie in Dask, where they lie."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sordino.execute import apply_by_block, in_dask

Method = TypeVar("Method", bound=Callable[..., Any])


def where_rows_lie(method: Method) -> Method:
    """Let a method of a fitted model, which treats each row by itself, take rows that lie in Dask.

    It then returns a dask array in their order. NumPy does not warn of overflow, which would tell of one row.
    """

    @wraps(method)
    def either(self: Any, X: Any) -> Any:
        if in_dask(X):
            check_is_fitted(self)
            return apply_by_block(X, Applied(pack((_call, self, method.__name__))))
        with np.errstate(all="ignore"):
            return method(self, X)

    return either  # type: ignore[return-value]


@dataclass(frozen=True)
class Applied:
    """A function and its first arguments, packed, as workers are asked to apply it to parts of rows."""

    payload: bytes = field(repr=False)

    def __call__(self, block: Any) -> Any:
        function, *given = unpack(self.payload)
        return function(*given, block)


def _call(model: Any, method: str, block: Any) -> Any:
    return getattr(model, method)(block)


def pack(value: Any) -> bytes:
    """Return a model, or what holds one, as bytes; None stands for each ledger in it."""
    import cloudpickle  # type: ignore[import-untyped]

    from sordino.ledger import Ledger

    class Bare(cloudpickle.Pickler):
        def persistent_id(self, obj: Any) -> str | None:
            return "ledger" if isinstance(obj, Ledger) else None

    out = io.BytesIO()
    Bare(out).dump(value)
    return out.getvalue()


def unpack(payload: bytes) -> Any:
    """Return what was packed by :func:`pack`, in a process that trusts who sent it."""

    class Loads(pickle.Unpickler):
        def persistent_load(self, _: str) -> None:
            return None

    return Loads(io.BytesIO(payload)).load()
