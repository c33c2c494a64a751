"""A data set with hostile records in it, where its rows may lie, and neighbours of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import sordino

N, COLUMNS, PERSONS = 24, 5, 8
FAR = 1e4 * np.array([0.6, -0.3, 0.2, 0.0, 0.7])
HUGE = 1e308 * np.array([1.0, -1.0, 1.0, 1.0, -1.0])


@dataclass(frozen=True, eq=False)
class Data:
    """Records: a row, a target and a weight each, some with owners; ``kind`` is that of the targets."""

    X: Any
    y: np.ndarray
    kind: str
    weights: np.ndarray
    groups: np.ndarray | None = None

    @property
    def units(self) -> int:
        """How many units of privacy there are."""
        return len(self.y) if self.groups is None else len(np.unique(self.groups))

    def changed(self, unit: int, row: np.ndarray, target: float, weight: float = 1.0) -> Data:
        """Return the data with all records of one unit replaced by one record, as often."""
        mine = np.arange(len(self.y)) == unit if self.groups is None else self.groups == unit
        X, y, weights = np.array(self.X, dtype=float), self.y.copy(), self.weights.copy()
        X[mine], y[mine], weights[mine] = row, target, weight
        return replace(self, X=X, y=y, weights=weights)


def hostile_data(kind: str, persons: bool = False) -> Data:
    """Return records of which some are far out, tiny, zero, repeated, or cancel each other.

    The first unit pulls one way with all it has, so that a neighbour can turn it around.
    """
    rng = np.random.default_rng(5)
    X = np.where(rng.random((N, COLUMNS)) < 0.7, rng.normal(size=(N, COLUMNS)), 0.0)
    X[1], X[2], X[3], X[5] = -X[6], 1e-300, 0.0, X[4]
    data = Data(X, targets_of(kind, rng), kind, np.ones(N), np.arange(N) % PERSONS if persons else None)
    return data.changed(0, FAR, largest(kind))


def targets_of(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Return targets of a kind: signs, labels, numbers or counts."""
    made: dict[str, Callable[[], np.ndarray]] = {
        "signs": lambda: rng.choice([-1.0, 1.0], N),
        "labels": lambda: rng.integers(0, 3, N).astype(float),
        "numbers": lambda: rng.normal(size=N),
        "counts": lambda: rng.poisson(1.5, N).astype(float),
    }
    return made[kind]()


def largest(kind: str) -> float:
    """Return the target that pulls most."""
    return {"signs": 1.0, "labels": 2.0, "numbers": 1e300, "counts": 1e9}[kind]


def smallest(kind: str) -> float:
    """Return the target that pulls most to the other side."""
    return {"signs": -1.0, "labels": 0.0, "numbers": -1e300, "counts": 0.0}[kind]


def changes(data: Data, more: bool = False) -> Iterator[tuple[str, Data]]:
    """Yield data sets in which one unit is replaced; the first ones are the worst for most questions."""
    first, last = 0, data.units - 1
    high, low = largest(data.kind), smallest(data.kind)
    yield "turned around", data.changed(first, -FAR, high)
    yield "another target", data.changed(first, FAR, low)
    yield "tiny", data.changed(first, np.full(COLUMNS, 1e-300), high)
    yield "huge, the last", data.changed(last, HUGE, low, 1e300)
    if not more:
        return
    yield "huge", data.changed(first, HUGE, high)
    yield "minus huge", data.changed(first, -HUGE, low)
    yield "zero", data.changed(first, np.zeros(COLUMNS), low)
    yield "subnormal", data.changed(last, np.full(COLUMNS, 5e-324), high, 5e-324)
    yield "a duplicate", data.changed(first, data.X[4], data.y[4])
    yield "cancels another", data.changed(last, -data.X[4], data.y[4])
    yield "all magnitudes", data.changed(first, np.array([1e308, -1e-308, 1.0, 0.0, -1e-170]), low)
    yield "one entry", data.changed(last, np.eye(COLUMNS)[4] * 1e160, high, 1e-300)
    yield "single precision", data.changed(last, np.full(COLUMNS, float(np.finfo(np.float32).max)), low)
    yield "one that cancels", data.changed(1, data.X[6], high)


# ------------------------------------------------------------------------------------ where rows lie


def _wide(X: np.ndarray) -> Any:
    """Return sparse rows with so many columns that answers stay lazy."""
    return sparse.csr_matrix(np.hstack([X, np.zeros((len(X), 120 - X.shape[1]))]))


def _disk(X: np.ndarray, folder: Path) -> Any:
    return sordino.on_disk(sordino.to_disk(folder / f"rows{len(list(folder.iterdir()))}", [(X, None)]))


def _dask(X: np.ndarray, folder: Path) -> Any:
    import dask.array

    return dask.array.from_array(X, chunks=(len(X) // 2 - 1, X.shape[1]))


def _tensors(X: np.ndarray, folder: Path) -> Any:
    import torch

    from sordino.execute.tensors import TensorRows

    return TensorRows(torch.from_numpy(np.array(X)))


PLACES: dict[str, Callable[[np.ndarray, Path], Any]] = {
    "memory": lambda X, folder: X,
    "persons": lambda X, folder: X,
    "csr": lambda X, folder: _wide(X),
    "disk": _disk,
    "csr on disk": lambda X, folder: _disk(_wide(X), folder),
    "tensors": _tensors,
    "dask": _dask,
}


def placed(place: str, data: Data, folder: Path) -> Data:
    """Return the data with their rows where they are to lie."""
    return replace(data, X=PLACES[place](data.X, folder))
