"""Anything as a flat list of (path, value): two things are the same if their lists are."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import FunctionType, MethodType
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from sordino.kernel.noise import NoiseSource

Facts: TypeAlias = tuple[tuple[str, Any], ...]
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_OPAQUE = (NoiseSource, type(threading.Lock()), type(threading.RLock()))


def facts_of(value: Any) -> Facts:
    """Return everything that can be read off a value, down to the bits of its numbers."""
    return tuple(_facts(value, "", []))


def first_difference(one: Facts, other: Facts) -> str | None:
    """Return where two lists of facts differ first; None where they do not."""
    ours, theirs, none = dict(one), dict(other), object()
    apart = (path for path in {**ours, **theirs} if ours.get(path, none) != theirs.get(path, none))
    return next((path or "value" for path in apart), None)


def numbers_of(value: Any, above: tuple[int, ...] = ()) -> np.ndarray:
    """Return all floating-point numbers of a value as one vector."""
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.dtype.kind == "f":
        return array.ravel().astype(float)
    opaque = callable(value) and not hasattr(value, "state_dict")  # a network has its weights
    if isinstance(value, _PLAIN) or array.dtype != object or opaque or id(value) in above:
        return np.zeros(0)
    found = [numbers_of(part, (*above, id(value))) for _, part in _parts(value)]
    return np.concatenate([np.zeros(0), *found])


def _facts(value: Any, path: str, above: list[int]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, _PLAIN):
        yield path, (type(value).__name__, repr(value))  # nan is like nan, 0.0 is unlike -0.0
    elif isinstance(value, Enum | type) or (callable(value) and not hasattr(value, "__dict__")):
        yield path, repr(value)
    elif id(value) in above:
        yield path, ("again", len(above) - above.index(id(value)))
    elif not isinstance(value, _OPAQUE):
        yield path, type(value).__name__
        for key, part in _parts(value):
            yield from _facts(part, f"{path}.{key}", [*above, id(value)])


def _parts(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, functools.partial):
        value = (value.func, value.args, value.keywords)
    if isinstance(value, MethodType | FunctionType):  # what it has kept of where it was made
        yield "name", value.__qualname__
        kept = [value.__self__] if isinstance(value, MethodType) else inspect.getclosurevars(value).nonlocals
        value = (kept, getattr(value, "__defaults__", None), getattr(value, "__kwdefaults__", None))
    if hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor
        value = (
            value.detach().cpu().numpy() if value.layout.__repr__() == "torch.strided" else value.to_dense()
        )
    if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        array = np.asarray(value)
        yield "array", (str(array.dtype), array.shape, array.tobytes())
        yield from vars(value).items() if hasattr(value, "__dict__") else ()
    elif sparse.issparse(value):
        yield "sparse", (value.shape, value.toarray().tobytes())
    elif isinstance(value, Mapping):
        yield from sorted(value.items(), key=lambda item: repr(item[0]))
    elif isinstance(value, list | tuple | np.ndarray):
        yield from enumerate(value)
    elif isinstance(value, set | frozenset):
        yield "set", sorted(map(repr, value))
    else:
        yield from _members(value)


def _members(value: Any) -> Iterator[tuple[Any, Any]]:
    if is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "get_params"):
        yield from ((f.name, getattr(value, f.name)) for f in fields(value) if hasattr(value, f.name))
    elif hasattr(value, "__dict__") and (hasattr(value, "get_params") or not callable(value)):
        yield from sorted(vars(value).items())
    elif hasattr(value, "__dict__") and hasattr(value, "state_dict"):  # a network: its numbers
        yield from value.state_dict().items()
    elif hasattr(type(value), "__slots__"):
        yield from ((s, getattr(value, s)) for s in type(value).__slots__ if hasattr(value, s))
    else:
        yield "name", getattr(value, "__qualname__", type(value).__name__)
