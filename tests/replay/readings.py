"""Exact answers as vectors whose distance a sensitivity bounds, whatever kind of answer it is."""

from __future__ import annotations

import copy
from typing import Any, TypeAlias

import numpy as np

from sordino.kernel import Norm, SparseVector
from sordino.problems.minimiser import Tilted

Reading: TypeAlias = dict[Any, float] | np.ndarray
"""One vector, by position or by name; an answer may be read at several places, each bounded by itself."""


def read(value: Any, spacing: float | None = None) -> list[Reading]:
    """Return the vectors of an exact answer; ``spacing`` is that of a lattice of integers."""
    if isinstance(value, Tilted):  # an objective: the sensitivity bounds its gradient, wherever it is taken
        points = [np.zeros(value.size), np.ones(value.size), np.linspace(-3.0, 2.0, value.size)]
        inner = value.minimiser
        return [inner.population * inner._gradient(value.records, t, value.at) for t in points]
    if isinstance(value, SparseVector):
        return [np.asarray(value.to_dense())]
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return [{(i, text): float(count) for i, part in enumerate(value) for text, count in part.items()}]
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise AssertionError(f"unknown kind of exact answer: {type(value).__name__}; tell readings.py of it")
    return [array.astype(float).ravel() * (1.0 if spacing is None else spacing)]


def kept(value: Any) -> Any:
    """Return a copy of an exact answer that no later change of the original reaches."""
    if hasattr(value, "clone"):
        return value.clone()
    return value if isinstance(value, Tilted) else copy.deepcopy(value)


def distance(one: list[Reading], other: list[Reading], norm: Norm) -> float:
    """Return how far two exact answers are apart; infinite where their shapes differ."""
    if len(one) != len(other):
        return np.inf
    return max((_distance(a, b, norm) for a, b in zip(one, other, strict=True)), default=0.0)


def _distance(one: Reading, other: Reading, norm: Norm) -> float:
    if isinstance(one, dict) and isinstance(other, dict):
        names = sorted({**one, **other})
        one, other = (np.array([part.get(name, 0.0) for name in names]) for part in (one, other))
    if np.shape(one) != np.shape(other):
        return np.inf
    away = np.asarray(one) - np.asarray(other)
    if not np.isfinite(away).all():
        return np.inf
    order = {Norm.L1: 1, Norm.L2: 2, Norm.LINF: np.inf}[norm]
    return float(np.linalg.norm(away, order)) if away.size else 0.0
