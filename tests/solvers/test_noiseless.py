"""Without noise a solver is its plain algorithm: the same on all kinds of data, in NumPy, in scikit-learn."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge
from tests.solver_case import SolverCase
from tests.solver_table import CASES, IDS

from sordino.execute.local import DENSE
from sordino.kernel import GumbelTopK, LaplacePeeling
from sordino.problems.problem import Problem
from sordino.problems.queries import GlmDifference, GlmGradient

SELECTIONS = (GumbelTopK, LaplacePeeling)
every_case = pytest.mark.parametrize("case", CASES, ids=IDS)


def _plain(case: SolverCase) -> SolverCase:
    """Return the case with noise that can be switched off: exact noise on a lattice cannot."""
    if not getattr(case.problem, "secure_noise", False):
        return case
    return replace(case, problem=replace(case.problem, secure_noise=False))


def _assert_same_run(case: SolverCase, one: Any, other: Any) -> None:
    ours, theirs = [case.run(seed=4, scale=0.0, executor=e).iterates for e in (one, other)]
    if any(isinstance(r.mechanism, SELECTIONS) for r in case.plan().releases.values()):
        # Equal scores are broken by position, and a run goes its own way from there.
        ours, theirs = [[np.sort(np.abs(w)) for w in run[:1]] for run in (ours, theirs)]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


@every_case
def test_dense_and_sparse_data_give_the_same_run(case):
    case = _plain(case)
    matrix, targets = case.data(case.problem, 4)
    other = matrix.toarray() if sparse.issparse(matrix) else sparse.csr_matrix(matrix)
    _assert_same_run(case, case.execute_on(4), case.executor(case.problem, other, targets))


@every_case
def test_data_in_single_precision_is_computed_with_in_double(case):
    case = _plain(case)
    matrix, targets = case.data(case.problem, 4)
    rounded = matrix.astype(np.float32)
    one = case.executor(case.problem, rounded, targets)
    _assert_same_run(case, one, case.executor(case.problem, rounded.astype(np.float64), targets))


# ------------------------------------------------------------------------------------ plain NumPy


@dataclass
class PlainExecutor:
    """The definition of a clipped gradient sum, record by record, in dense NumPy."""

    case: SolverCase
    matrix: np.ndarray
    targets: np.ndarray

    @property
    def population(self) -> int:
        return len(self.targets)

    @property
    def offer(self):
        return DENSE

    def total(self, question, batch):
        rows, params = batch.rows(self.population), question.params
        points = [np.atleast_2d(_dense(p)) for p in (params if isinstance(params, tuple) else (params,))]
        bound = question.query.contribution(params)
        total = np.zeros_like(points[0])
        for i in range(self.population) if rows is None else rows:
            gradient = self._gradient(i, points[0])
            if len(points) == 2:
                gradient = gradient - self._gradient(i, points[1])
            norm = np.linalg.norm(gradient)
            total += gradient * min(1.0, bound / norm) if norm else 0.0
        return total.reshape(_dense(params[0] if isinstance(params, tuple) else params).shape)

    def _gradient(self, i, w):
        problem, x = self.case.problem, self.matrix[i]
        x = x * min(1.0, problem.data_norm / np.linalg.norm(x)) if np.linalg.norm(x) else x
        x = np.append(x, problem.intercept) if problem.intercept else x
        margins = (w @ x)[None] if problem.outputs > 1 else w @ x
        residual = problem.loss.residual(margins, self.targets[i : i + 1])
        return np.outer(np.ravel(residual), x)


def _dense(point: Any) -> np.ndarray:
    return point.to_dense() if hasattr(point, "to_dense") else np.asarray(point)


def _asks_gradients(case: SolverCase) -> bool:
    queries = [type(r.query) for r in case.plan().releases.values()]
    return isinstance(case.problem, Problem) and all(q in (GlmGradient, GlmDifference) for q in queries)


GRADIENTS = [case for case in CASES if _asks_gradients(case)]


@pytest.mark.parametrize("case", GRADIENTS, ids=[case.id for case in GRADIENTS])
def test_a_run_agrees_with_plain_numpy(case):
    case = _plain(case)
    matrix, targets = case.data(case.problem, 4)
    dense = matrix.toarray() if sparse.issparse(matrix) else matrix
    plain = PlainExecutor(case, dense.astype(float), targets)
    ours, theirs = case.run(seed=4, scale=0.0), case.run(seed=4, scale=0.0, executor=plain)
    for a, b in zip(ours.iterates, theirs.iterates, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-10)


# ----------------------------------------------------------------------------------- scikit-learn

CONVERGED = [case for case in CASES if case.converged is not None]


def _reference(problem: Problem, matrix: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the minimiser of the mean loss plus ``ridge / 2 ||w||^2``, intercept free, by scikit-learn."""
    n = len(targets)
    norms = np.linalg.norm(matrix, axis=1)
    rows = matrix * np.minimum(1.0, problem.data_norm / norms)[:, None]
    has = bool(problem.intercept)
    if problem.loss.name == "squared":
        model = Ridge(alpha=n * problem.ridge, fit_intercept=has, tol=1e-12)
    else:
        model = LogisticRegression(C=1 / (n * problem.ridge), fit_intercept=has, tol=1e-10, max_iter=10_000)
    slopes = np.atleast_2d(model.fit(rows, targets).coef_)
    last = np.reshape(model.intercept_, (-1, 1)) / problem.intercept if has else np.empty((len(slopes), 0))
    return np.hstack([slopes, last])


@pytest.mark.parametrize("case", CONVERGED, ids=[case.id for case in CONVERGED])
def test_many_steps_without_noise_reach_the_minimiser_of_scikit_learn(case):
    case = replace(_plain(case), solver=case.converged)
    matrix, targets = case.data(case.problem, 4)
    last = case.run(seed=4, scale=0.0).iterates[-1]
    dense = matrix.toarray() if sparse.issparse(matrix) else matrix
    np.testing.assert_allclose(last, _reference(case.problem, dense, targets).ravel(), atol=2e-5)
