"""Hostile data sets, their neighbours, and how far a query moves between them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy import sparse
from tests.solver_case import Asked, SolverCase, as_array, scaled

from sordino.execute.records import CsrRecords, LazyRecords
from sordino.kernel import Norm, Question, Relation, Release
from sordino.problems.covariance import Ball

SPECIAL = [0.0, 1.0, -1.0, 0.3, 1e-3, -1e-170, 5e-324, 40.0, -1e8, 1e30, 1e155, -1e300]
NOT_FINITE = [math.nan, math.inf, -math.inf]
KINDS = ["dense", "dense float32", "csr", "csr float32", "csr stored twice"]

numbers = st.one_of(
    st.sampled_from(SPECIAL), st.floats(-4, 4), st.sampled_from(NOT_FINITE), st.floats(allow_nan=False)
)


@st.composite
def data_sets(draw, features: int, loss: str | None, outputs: int = 1):
    """Draw (rows, targets) and one more record that may replace the first; a nan row is an absent one."""
    count = draw(st.integers(1, 5)) + 1
    rows, targets = np.zeros((count, features)), np.zeros(count)
    for i in range(count):
        columns = draw(st.lists(st.integers(0, features - 1), max_size=3))
        rows[i, columns] = [draw(numbers) for _ in columns]
        targets[i] = draw(_targets(loss, outputs))
    if draw(st.booleans()) and count > 2:  # a record that occurs twice
        rows[1], targets[1] = rows[0], targets[0]
    return (rows[:-1], targets[:-1]), (rows[-1], targets[-1])


def _targets(loss: str | None, outputs: int):
    if loss in ("logistic", "squared-hinge"):
        return st.sampled_from([-1.0, 1.0, 1.0, -1.0, math.nan])
    if loss == "multinomial":
        return st.sampled_from([*map(float, range(outputs)), math.nan, -7.0])
    return numbers


def replaced(data: Any, record: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the data set with its first record replaced."""
    rows, targets = data[0].copy(), data[1].copy()
    rows[0], targets[0] = record
    return rows, targets


def absent(data: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the data set whose first record contributes nothing: it is not a number."""
    return replaced(data, (math.nan, data[1][0]))


def stored(rows: np.ndarray, kind: str) -> Any:
    """Return the rows in one of the kinds that users bring."""
    with np.errstate(over="ignore"):
        rows = rows.astype(np.float32) if kind.endswith("float32") else rows
    if kind.startswith("dense"):
        return rows
    matrix = sparse.csr_matrix(rows)
    return matrix if kind != "csr stored twice" else _stored_twice(matrix)


def _stored_twice(matrix: Any) -> Any:
    """Return the same matrix with each entry as the sum of two stored halves."""
    data, columns = np.repeat(matrix.data / 2, 2), np.repeat(matrix.indices, 2)
    return sparse.csr_matrix((data, columns, matrix.indptr * 2), shape=matrix.shape)


def asked_for(case: SolverCase, question: Asked, factor: float) -> Any:
    """Return the parameters of a question with its points scaled."""
    return scaled(question.params, factor)


def answers(case: SolverCase, release: Release, params: Any, data: Any, kind: str) -> list[np.ndarray]:
    """Return the exact answers on a data set, on every path that the executor has."""
    executor = case.executor(case.problem, stored(data[0], kind), data[1])
    records = executor.records(None)
    out = [as_array(release.query.evaluate(records, params))]
    if release.lazy and isinstance(records, CsrRecords) and not isinstance(params, np.ndarray):
        out.append(as_array(release.query.evaluate(LazyRecords(records), params)))
    return out


def lattice_answer(case: SolverCase, release: Release, params: Any, data: Any, kind: str, sensitivity: float):
    """Return the integers that secure noise is added to, and the sensitivity that it is for."""
    executor = case.executor(case.problem, stored(data[0], kind), data[1])
    release = replace(release, mechanism=release.mechanism.at(1.3))
    question = Question(release, params, sensitivity, 0, case.problem.population)
    value = question.summed(executor.records(None))
    return [int(v) for v in np.ravel(value)], question.spacing, question.room(value)


def norm_of(vector: np.ndarray, norm: Norm) -> float:
    """Return the norm in which a sensitivity is declared."""
    order = {Norm.L1: 1, Norm.L2: 2, Norm.LINF: np.inf}[norm]
    return float(np.linalg.norm(vector, order)) if vector.size else 0.0


def assert_within(release: Release, relation: Relation, params: Any, one: list, other: list) -> None:
    """Fail if two neighbours are further apart than the query declares."""
    declared = release.query.sensitivity(relation, params)
    assert declared <= release.sensitivity(relation, params) * (1 + 1e-12)
    for a, b in zip(one, other, strict=True):
        assert np.isfinite(a).all(), "an answer is not finite"
        assert np.isfinite(b).all(), "an answer is not finite"
        moved = norm_of(a - b, release.query.norm)
        assert moved <= declared * (1 + 1e-9), f"moved {moved}, declared {declared}"


def assert_within_exactly(declared: float, spacing: float, one: list[int], other: list[int]) -> None:
    """Fail if two vectors of integers are further apart than declared, without any rounding."""
    squares = sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
    assert squares * Fraction(spacing) ** 2 <= Fraction(declared) ** 2


def bad_records(case: SolverCase, params: Any) -> list[tuple[np.ndarray, float]]:
    """Return records that come close to a bound: large, along the axes and along the asked points."""
    features = case.problem.features
    axis = np.eye(1, features)[0]
    points = params if isinstance(params, tuple) else (params,)
    directions = [axis, np.eye(1, features, 1)[0] if features > 1 else axis, np.ones(features)]
    for point in points:
        if hasattr(point, "to_dense") or (isinstance(point, np.ndarray) and point.dtype.kind == "f"):
            rows = np.atleast_2d(point.to_dense() if hasattr(point, "to_dense") else point)
            if isinstance(points[-1], Ball) and np.ndim(point) == 2:  # a block: its columns are directions
                rows = rows.T
            rows = [_on_all_columns(row, points, features) for row in rows]
            directions += [row for row in rows if np.linalg.norm(row) > 0]
        if isinstance(point, np.ndarray) and point.dtype.kind == "i":  # along released coordinates
            chosen = np.isin(np.arange(features), point % case.problem.columns)
            directions += [chosen.astype(float)]
    if len(points) == 2 and len(directions) == 5:  # a difference: its bound is attained along it
        directions.append(directions[3] - directions[4])
    units = [v / np.linalg.norm(v) for v in directions if np.linalg.norm(v) > 0]
    large = 2 * (case.problem.data_norm or 1e6)
    sizes = [s * large * v for v in units for s in (1.0, -1.0)]
    sizes += [1e-3 * axis]  # a count of sizes moves between large and small
    if getattr(case.problem, "intercept", 0.0):  # all entries as large as that of the intercept
        sizes += [s * case.problem.intercept * np.sign(v) for v in units for s in (1.0, -1.0)]
    return [(row, y) for row in sizes for y in _extreme_targets(case)]


def _on_all_columns(row: np.ndarray, points: tuple, features: int) -> np.ndarray:
    """Return a point without its intercept, on all columns: a map may have dropped some."""
    maps = [getattr(point, "affine", point) for point in points]
    listed = [getattr(one, "columns", one) for one in maps]
    listed = [one for one in listed if isinstance(one, np.ndarray) and one.dtype.kind == "i"]
    if len(row) >= features or not listed:
        return row[:features]
    out = np.zeros(features)
    out[listed[0]] = row[: len(listed[0])]
    return out


def _extreme_targets(case: SolverCase) -> list[float]:
    loss = getattr(getattr(case.problem, "loss", None), "name", None)
    if loss in ("logistic", "squared-hinge"):
        return [1.0, -1.0]
    if loss == "multinomial":
        return [float(c) for c in range(case.problem.outputs)]
    return [0.0] if loss is None else [1e6, -1e6, 0.0]


def bad_answers(case: SolverCase, release: Release, params: Any) -> list[tuple[Any, np.ndarray]]:
    """Return bad records with the answer on each alone; the last is none, but the answer may be not zero."""
    records = [*bad_records(case, params), (np.full(case.problem.features, math.nan), 0.0)]
    return [
        (one, answers(case, release, params, (one[0][None], np.array(one[1:])), "dense")[0])
        for one in records
    ]


def worst_pair(case: SolverCase, release: Release, relation: Relation, params: Any, answered: Any = ()):
    """Return how far two bad records move the answer, as (fraction of the bound, record, other)."""
    declared = release.query.sensitivity(relation, params)
    answered = answered or bad_answers(case, release, params)
    last = len(answered) - 1
    if relation is Relation.REPLACE_ONE:
        pairs = [(a, b) for a in range(last) for b in range(a)]
    else:
        pairs = [(a, last) for a in range(last)]
    moved = [norm_of(answered[a][1] - answered[b][1], release.query.norm) for a, b in pairs]
    best = int(np.argmax(moved))
    a, b = pairs[best]
    return (moved[best] / declared if declared else 1.0), answered[a][0], answered[b][0]
