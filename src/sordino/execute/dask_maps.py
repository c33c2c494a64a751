"""Functions of rows in Dask, applied where they lie: predictions, and rows made of several columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dask.array
import numpy as np
from dask import delayed

from sordino.errors import InvalidInputError
from sordino.execute import dask_worker as worker
from sordino.execute.cluster import current_client
from sordino.execute.dask import Placed, Spread, blocks_of, refuse_repeated, spread
from sordino.execute.dask_worker import Facts


def rows_of_columns(columns: Sequence[Any], make: Callable[[tuple[Any, ...]], Any]) -> Spread:
    """Return the rows that a function makes of neighbouring blocks of several collections.

    Parameters
    ----------
    columns : collections with as many records each, in the same order.
    make : is given one block of each and returns as many rows; it is sent to the workers.

    **Privacy.** A block that is given twice in one collection is refused: its records would count twice.
    """
    first = next((c for c in columns if _chunks(c) is not None), None)
    blocks = [blocks_of(_rechunked(column, first)) for column in columns]
    for each in blocks:
        refuse_repeated(each)
    if len({len(each) for each in blocks}) != 1:
        raise InvalidInputError(
            f"Expected as many blocks of every column, got {sorted({len(each) for each in blocks})}. "
            "Bring them to the same partitions first."
        )
    return spread([delayed(parts, pure=False) for parts in zip(*blocks, strict=True)], rows_of=make)[0]


def applied(X: Any, function: Callable[[Any], Any]) -> Any:
    """Return what a function makes of each block of rows: a dask array, whose blocks lie on the workers.

    Sparse results come back as a list of futures. The function is run now: an error is told here, in our
    words, and not in the log of a worker beside the records.
    """
    cluster, blocks = Placed.on(current_client(), X), blocks_of(X)
    found = cluster.stored(worker.applied_to, blocks, function)
    facts: list[Facts] = cluster.results(cluster.each(worker.shape_of, found))
    cluster.freed(found, blocks)
    full = [(one, fact) for one, fact in zip(found, facts, strict=True) if fact.rows]
    if not full:
        raise InvalidInputError("Expected at least one row, got none.")
    if any(fact.sparse for _, fact in full):
        return [one for one, _ in full]
    kind = np.result_type(*{np.dtype(fact.kind) for _, fact in full})
    return dask.array.concatenate([_array(one, fact, kind) for one, fact in full])


def _array(future: Any, fact: Facts, kind: Any) -> Any:
    shape = (fact.rows,) if fact.columns == 0 else (fact.rows, fact.columns)
    return dask.array.from_delayed(future, shape, kind)


def _chunks(column: Any) -> Any:
    """Return the known lengths of an array's blocks; None where they are not known."""
    known = isinstance(column, dask.array.Array) and not np.isnan(sum(column.chunks[0]))
    return column.chunks[0] if known else None


def _rechunked(column: Any, first: Any) -> Any:
    own, wanted = _chunks(column), _chunks(first)
    if own is None or own == wanted:
        return column
    if sum(own) != sum(wanted):
        raise InvalidInputError(f"Expected columns of one length, got {sum(wanted)} and {sum(own)} values.")
    return column.rechunk({0: wanted})
