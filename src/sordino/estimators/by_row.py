"""Whether a model treats each row by itself, tried on made-up rows: real ones would tell about themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from sordino.kernel import public_generator
from sordino.tables import Schema
from sordino.tables.frames import require_pandas

_COUNT = 16


def mixes_rows(call: Callable[[Any], Any], rows: Any) -> bool:
    """Tell whether a function gives rows another result together than one by one.

    Where it does not take these rows nothing is known, and the answer is no.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            whole = _plain(call(rows))
            alone = np.concatenate([_plain(call(_row(rows, i))) for i in range(len(whole))])
        except Exception:
            return False
    if whole.shape != alone.shape:
        return True
    if whole.dtype.kind in "fc":
        return not np.allclose(whole, alone, 1e-4, 1e-5, equal_nan=True)
    return not np.array_equal(whole, alone)


def made_up(X: Any, schema: Schema | None = None) -> Any:
    """Return some rows of the kind of X: of its shape and types, and of no value in it."""
    public = public_generator(0)
    if schema is not None:
        columns = {column.name: _declared(column, public) for column in schema.features}
        return require_pandas().DataFrame(columns)
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        columns = {name: _entries((_COUNT,), kind, public) for name, kind in X.dtypes.items()}
        return require_pandas().DataFrame(columns)
    shape = tuple(getattr(X, "shape", None) or np.shape(X))[1:]
    if hasattr(X, "new_tensor"):
        return X.new_tensor(_entries((_COUNT, *shape), np.dtype(float), public).tolist())
    rows = _entries((_COUNT, *shape), getattr(X, "dtype", None) or np.asarray(X[:1]).dtype, public)
    return type(X)(rows) if sparse.issparse(X) else rows


def _declared(column: Any, public: Any) -> Any:
    """Return made-up entries of a declared column."""
    if column.word == "number":
        return public.uniform(column.low, column.high, _COUNT)
    known = {"flag": ("true", "false"), "text": ("some", "words"), "date": ()}
    levels = known.get(column.word) or getattr(column, "levels", None) or (column.low, column.high)
    return [levels[i % len(levels)] for i in range(_COUNT)]


def _entries(shape: tuple[int, ...], kind: Any, public: Any) -> Any:
    """Return made-up numbers of a type, small whole ones where it holds no fractions; else texts."""
    letter = getattr(kind, "kind", "O")
    if letter in "biu":
        return public.integers(0, 2, shape).astype(kind)
    if letter == "f":
        return public.uniform(0.1, 1.0, shape).astype(kind)
    return np.resize(np.array(["some words", "others"], dtype=object), shape)


def _plain(values: Any) -> np.ndarray:
    return np.asarray(values.toarray() if sparse.issparse(values) else values)


def _row(rows: Any, i: int) -> Any:
    return rows.iloc[i : i + 1] if hasattr(rows, "iloc") else rows[i : i + 1]
