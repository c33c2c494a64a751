"""Blocks of a file with some columns alone, kept in memory for the passes that ask for no others."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
from scipy import sparse

from sordino.execute.affine_view import LocalView, same_map
from sordino.execute.records import DenseRecords, LocalRecords
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.contracts import PublicMap

_FACTS = 10 * 8  # bytes for a record besides its row: norms, factors, targets, what its last map made of them


def asked_columns(params: Any) -> Ints | None:
    """Return the columns of the first public map among parameters that drops all others."""
    for value in params if isinstance(params, tuple) else (params,):
        affine = getattr(value, "affine", value)
        columns = getattr(affine, "columns", None)
        if isinstance(columns, np.ndarray) and getattr(affine, "rest", None) is None:
            return columns
    return None


class Narrow:
    """The records of a block with some columns alone, which the last map of them is remembered for."""

    def __init__(self, columns: Ints, records: LocalRecords) -> None:
        self.columns, self.records = columns, records
        self._view: tuple[PublicMap, LocalView] | None = None

    @property
    def bytes(self) -> int:
        """How much memory they take, about."""
        x = self.records.matrix
        arrays = (x.data, x.indices, x.indptr) if sparse.issparse(x) else (x,)
        return sum(int(array.nbytes) for array in arrays) + _FACTS * self.records.count

    def view(self, affine: PublicMap) -> LocalView:
        """Return the rows through a map of these columns."""
        known = self._view
        if known is None or not same_map(known[0], affine):
            known = self._view = (affine, LocalView(self.records, affine))
        return known[1]

    def places(self, columns: Ints) -> Ints | None:
        """Return where some columns are among these, which rise; None where one of them is not."""
        places = np.searchsorted(self.columns, columns)
        found = np.append(self.columns, -1)[places]
        return places if np.array_equal(found, columns) else None

    def narrowed(self, columns: Ints) -> Narrow | None:
        """Return the records with these columns; None where some of them are not here."""
        if np.array_equal(columns, self.columns):
            return self
        places = self.places(columns)
        return None if places is None else Narrow(columns, with_columns(self.records, places))


class NarrowRecords:
    """Answers what is asked of the columns that were kept; whatever else is asked, the block is read."""

    def __init__(self, kept: Narrow, whole: Callable[[], Any]) -> None:
        self._kept, self._whole = kept, whole

    @property
    def targets(self) -> Floats:
        """The targets."""
        return self._kept.records.targets

    @property
    def weights(self) -> Floats | None:
        """The weights of the records' losses."""
        return self._kept.records.weights

    def through(self, affine: PublicMap) -> Any:
        """Return the rows through a public affine map."""
        mine = affine.rest is None and np.array_equal(affine.columns, self._kept.columns)  # type: ignore[arg-type]
        return self._kept.view(affine) if mine else self._whole().through(affine)

    def within(self, columns: Ints | None) -> Any:
        """Return the records with some columns and the intercept."""
        mine = columns is not None and np.array_equal(columns, self._kept.columns)
        return self._kept.records if mine else self._whole().within(columns)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole(), name)


class Kept:
    """Blocks by their first row, as many as there is room for.

    A solver that has chosen some of very many columns asks for them again and again: what is kept of a block
    answers in its place, also where it chooses among these once more.

    **Privacy.** Rows are those that were clipped when their block was read, less some columns; their norms
    stay those of whole rows. What is kept is exactly what reading again would give.
    """

    def __init__(self, room: int) -> None:
        self._room, self._lock = room, Lock()
        self._parts: dict[int, Narrow] = {}

    def records(self, start: int, columns: Ints, whole: Callable[[], LocalRecords]) -> Any:
        """Return the records of a block for a question about some columns; ``whole`` reads it."""
        known = self._parts.pop(start, None)
        if known is not None:
            self._add(known.bytes)
        part = None if known is None else known.narrowed(columns)
        if part is None:
            read = whole()
            if self._room < _FACTS * read.count:
                return read
            part, whole = Narrow(columns, with_columns(read, columns)), lambda: read
        if self._add(-part.bytes):
            self._parts[start] = part
        return NarrowRecords(part, whole)

    def has(self, start: int, columns: Ints) -> bool:
        """Tell whether a block need not be read for a question about these columns."""
        known = self._parts.get(start)
        return known is not None and known.places(columns) is not None

    def _add(self, freed: int) -> bool:
        """Take room or give it back; tell whether there was enough."""
        with self._lock:
            enough = self._room + freed >= 0
            self._room += freed if enough else 0
        return enough


def with_columns(records: LocalRecords, columns: Ints) -> LocalRecords:
    """Return records with some columns, in memory of their own; their norms stay those of whole rows."""
    if sparse.issparse(records.matrix):
        return records.within(columns)
    return DenseRecords(
        np.ascontiguousarray(records.matrix[:, columns]),
        records.targets,
        records.norms,
        records.scale,
        records.intercept,
        len(columns),
        weights=records.weights,
        row_norms=records.row_norms,
        positions=records.positions,
    )
