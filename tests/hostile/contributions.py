"""Hostile records, every way to hold them, and an exact oracle for what one of them adds to an answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given, settings, target
from hypothesis import strategies as st
from scipy import sparse

from sordino.execute import GroupedExecutor, LocalExecutor
from sordino.execute.records import LazyRecords
from sordino.kernel import Norm, Relation, SparseVector

D = 4
BOTH = (Relation.ADD_REMOVE, Relation.REPLACE_ONE)
MATRICES = ("dense", "dense float32", "csr", "csr float32", "csr stale")

special = st.sampled_from([0.0, 1.0, -1.0, 0.3, 5e-324, -1e-170, 1e-160, 1e155, -1.7e308, math.nan, math.inf])
spread = st.builds(
    lambda sign, digits, exponent: float(sign * digits * 10.0**exponent),
    st.sampled_from([-1.0, 1.0]),
    st.floats(1.0, 9.0),
    st.integers(-320, 307),
)
near = st.floats(-4.0, 4.0, allow_subnormal=False)
numbers = st.one_of(near, spread, special)


@st.composite
def hostile_rows(draw: Any) -> np.ndarray:
    """Draw one row: mixed magnitudes, cancelling pairs, ties, zeros."""
    row = np.array([draw(numbers) for _ in range(D)])
    shape = draw(st.sampled_from(["mixed", "opposite", "tied", "empty", "single"]))
    if shape == "opposite":
        row[1], row[3] = -row[0], -row[2]
    elif shape == "tied":
        row[:] = row[0]
    elif shape == "empty":
        row[:] = 0.0
    elif shape == "single":
        row[1:] = 0.0
    return row


@st.composite
def balanced_records(draw: Any) -> tuple[np.ndarray, float]:
    """Draw a row of any size with a target of about the inverse size: together they are near the clips."""
    size = draw(st.one_of(st.integers(-320, 307), st.integers(-320, -300), st.integers(290, 307)))
    over = draw(st.integers(-13, 12))
    row = np.array([draw(near) for _ in range(D)]) * 10.0**size
    return row, draw(st.sampled_from([-1.0, 1.0])) * 10.0 ** min(max(over - size, -320), 308)


@dataclass(frozen=True)
class Case:
    """A query with parameters, how its records are held, and which ways of asking apply."""

    name: str
    query: Any
    params: Any
    data_norm: float | None = None
    intercept: float = 0.0
    targets: Any = field(default=numbers, repr=False)
    kinds: tuple[str, ...] = MATRICES
    beside: tuple[float, ...] = ()  # a further record that is always there, for queries on pairs
    exact: bool = True  # the bound is a clip; otherwise it is a root that was rounded once

    def __str__(self) -> str:
        return self.name


def held(case: Case, rows: np.ndarray, targets: np.ndarray, kind: str) -> Any:
    """Return the records in one of the ways that users hold them."""
    rows, targets = np.atleast_2d(rows), np.atleast_1d(targets).astype(float)
    if case.beside:
        rows, targets = np.vstack([rows, [case.beside]]), np.append(targets, 1.0)
    with np.errstate(over="ignore", under="ignore"):
        rows = rows.astype(np.float32) if "float32" in kind else rows
    matrix = rows if kind.startswith(("dense", "persons dense")) else sparse.csr_matrix(rows)
    matrix = stale(matrix) if "stale" in kind else matrix
    if kind.startswith("tensor"):
        return tensor_records(case, matrix, targets, kind)
    executor = LocalExecutor(matrix, targets, case.data_norm, case.intercept)
    if kind.startswith("persons"):
        return GroupedExecutor(executor, np.zeros(len(targets), dtype=int)).records(None)
    records = executor.records(None)
    return LazyRecords(records) if kind == "lazy" else records


def tensor_records(case: Case, matrix: Any, targets: np.ndarray, kind: str) -> Any:
    """Return the records as tensors on the processor: the passes of a device."""
    import torch

    from sordino.execute.tensors import TensorExecutor, store_of

    parts = (matrix.indptr, matrix.indices, matrix.data)
    tensor = torch.sparse_csr_tensor(*map(torch.from_numpy, parts), size=matrix.shape)
    if "dense" in kind:
        tensor = torch.from_numpy(matrix.toarray())
    return TensorExecutor(store_of(tensor), targets, case.data_norm, case.intercept)._all


def stale(matrix: Any) -> Any:
    """Return the matrix with every entry stored as eight parts, and a flag that denies it."""
    parts = sparse.csr_matrix(matrix.shape)
    parts.data, parts.indices = np.repeat(matrix.data / 8, 8), np.repeat(matrix.indices, 8)
    parts.indptr = matrix.indptr * 8
    parts.has_canonical_format = parts.has_sorted_indices = True
    return parts


def answer(case: Case, rows: np.ndarray, targets: Any, kind: str) -> np.ndarray:
    """Return the answer on a few records, as it stands in memory."""
    params = case.params
    if kind == "lazy":
        params = tuple(map(as_sparse, params)) if isinstance(params, tuple) else as_sparse(params)
    with np.errstate(all="ignore"):
        value = case.query.evaluate(held(case, rows, targets, kind), params)
    value = value.to_dense() if isinstance(value, SparseVector) else np.asarray(value)
    assert np.isfinite(value).all(), "an answer is not finite"
    return value.ravel()


def as_sparse(w: Any) -> Any:
    """Return a point as the lazy solvers send it; maps, masks that are None and units stay as they are."""
    if not isinstance(w, np.ndarray):
        return w
    return SparseVector(np.arange(w.size), np.asarray(w, dtype=float), w.size)


def share(one: np.ndarray, other: np.ndarray, norm: Norm, bound: float) -> float:
    """Return norm / bound: exact where it decides, rounded up at most in the last digit otherwise."""
    with np.errstate(over="ignore"):
        rough = np.linalg.norm(
            (one / bound - other / bound).astype(float), np.inf if norm is Norm.LINF else 2
        )
    if rough < 0.999:  # fractions would say the same, slowly
        return float(rough)
    vector = [Fraction(float(a)) - Fraction(float(b)) for a, b in zip(one, other)]
    if norm is Norm.LINF:
        return float(max(map(abs, vector)) / Fraction(bound))
    square = sum(v * v for v in vector) / Fraction(bound) ** 2
    root = math.sqrt(square)
    return math.nextafter(1.0, 2.0) if square > 1 and root <= 1.0 else root


EMPTIES = 4  # targets of a record without numbers that are tried: the answer is that on no record, each time


def check(case: Case, kind: str, records: Any, others: Any, empties: list[np.ndarray]) -> None:
    """Fail if a record, or a record put in the place of another, moves the answer beyond its bound.

    ``empties`` are answers on records that are not numbers, which contribute zero whatever their target is.
    """
    if len(empties) < EMPTIES:
        empties.append(answer(case, np.full(np.shape(records[0]), math.nan), records[1], kind))
        np.testing.assert_array_equal(empties[-1], empties[0])
    nothing, one, other = empties[0], answer(case, *records, kind), answer(case, *others, kind)
    room = 1.0 if case.exact else 1.0 + 2.0**-50
    bounds = [case.query.sensitivity(relation, case.params) for relation in BOTH]
    parts = [(one, nothing, bounds[0]), (other, nothing, bounds[0]), (one, other, bounds[1])]
    worst = max(share(x, y, case.query.norm, bound) for x, y, bound in parts)
    target(worst, label=kind)
    assert worst <= room, f"{worst!r} times the bound of {case.name} on {kind}"


def climb(case: Case, kinds: tuple[str, ...], examples: int, **how: Any) -> None:
    """Search for a record that adds more than the bound in one of these ways to hold it, climbing towards it.

    Persons have three records, so these ways hold either persons or single records.
    """
    persons = kinds[0].startswith("persons")
    assert all(kind.startswith("persons") is persons for kind in kinds)
    rows = st.lists(hostile_rows(), min_size=3, max_size=3).map(np.array) if persons else hostile_rows()
    targets = st.lists(case.targets, min_size=3, max_size=3).map(np.array) if persons else case.targets
    record = st.tuples(rows, targets)
    if case.targets is numbers and not persons:
        record = st.one_of(record, balanced_records())

    empties: dict[str, list[np.ndarray]] = {kind: [] for kind in kinds}

    @settings(max_examples=examples, **how)
    @given(record, record)
    def no_record_adds_more_than_the_bound(one: Any, other: Any) -> None:
        for kind in kinds:
            check(case, kind, one, other, empties[kind])

    no_record_adds_more_than_the_bound()
