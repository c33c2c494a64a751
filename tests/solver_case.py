"""A row of the table of solvers, the data it makes and the spy it runs under."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from sordino.execute import LocalExecutor
from sordino.kernel import Curator, NoiseSource, NoisyExecutor, Offer, Plan, Relation, Release, SparseVector
from sordino.solvers.base import NoisyCoefficients


@dataclass(frozen=True)
class Asked:
    """One question that reached the executor."""

    name: str
    release: Release
    params: Any
    sensitivity: float
    position: int


class Spy:
    """An executor that writes down what it is asked."""

    def __init__(self, inner: Any, plan: Plan) -> None:
        self.inner, self.plan, self.asked = inner, plan, []

    @property
    def population(self) -> int:
        return self.inner.population

    @property
    def offer(self) -> Offer:
        return self.inner.offer

    def total(self, question, batch):
        self.note(question)
        return self.inner.total(question, batch)

    def note(self, question):
        release = question.release
        name = next(n for n, planned in self.plan.releases.items() if planned is release)
        params = scaled(question.params, 1.0)
        self.asked.append(Asked(name, release, params, question.sensitivity, question.position))


class NoisySpy(Spy):
    """The same over an executor that adds the noise itself."""

    def noisy_total(self, question, batch, noise):
        self.note(question)
        return self.inner.noisy_total(question, batch, noise)


@dataclass(frozen=True)
class Run:
    """What one run of a solver left behind."""

    plan: Plan
    asked: list[Asked]
    iterates: list[np.ndarray]
    curator: Curator


def as_array(value: Any) -> np.ndarray:
    """Return an iterate or an answer as a flat array."""
    value = value.value if isinstance(value, NoisyCoefficients) else value
    dense = value.to_dense() if hasattr(value, "to_dense") else value
    return np.asarray(dense, dtype=float).ravel()


def scaled(params: Any, factor: float) -> Any:
    """Return a copy of a question's parameters with its vectors scaled."""
    if isinstance(params, tuple):
        return tuple(scaled(p, factor) for p in params)
    if isinstance(params, np.ndarray) and params.dtype.kind != "f":  # coordinates, not a point
        return params
    return params * factor if isinstance(params, np.ndarray | SparseVector) else params


# ------------------------------------------------------------------------------------ data of a row


def made_targets(problem: Any, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return targets of the kind that the problem's loss wants."""
    loss = getattr(problem, "loss", None)
    if loss is None:
        return np.zeros(count)
    if loss.name in ("logistic", "squared-hinge"):
        return rng.choice([-1.0, 1.0], count)
    if loss.name == "multinomial":
        return rng.integers(0, problem.outputs, count).astype(float)
    return rng.poisson(1.5, count).astype(float) if loss.name == "poisson" else rng.normal(size=count)


def dense_data(problem: Any, seed: int) -> tuple[Any, np.ndarray]:
    """Return rows of which about half are clipped."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(problem.population, problem.features))
    rows *= problem.data_norm / np.sqrt(problem.features)
    return rows, made_targets(problem, problem.population, rng)


def csr_data(problem: Any, seed: int) -> tuple[Any, np.ndarray]:
    """Return CSR rows with four stored entries each."""
    rng = np.random.default_rng(seed)
    entries = 4 * problem.population
    columns = np.concatenate(
        [rng.choice(problem.features, 4, replace=False) for _ in range(problem.population)]
    )
    pointers = np.arange(0, entries + 1, 4)
    rows = sparse.csr_matrix(
        (rng.normal(size=entries) * problem.data_norm / 2, columns, pointers),
        shape=(problem.population, problem.features),
    )
    return rows, made_targets(problem, problem.population, rng)


def csr32_data(problem: Any, seed: int) -> tuple[Any, np.ndarray]:
    """Return CSR rows in single precision."""
    rows, targets = csr_data(problem, seed)
    return rows.astype(np.float32), targets


def local_executor(problem: Any, matrix: Any, targets: Any) -> LocalExecutor:
    """Return the executor that the problem describes."""
    return LocalExecutor(matrix, targets, problem.data_norm, getattr(problem, "intercept", 0.0))


# ---------------------------------------------------------------------------------------- the rows


@dataclass(frozen=True)
class SolverCase:
    """One row of the table.

    Parameters
    ----------
    id : the name in the tests' output.
    solver : makes the solver from the problem.
    problem : the public facts.
    data : makes (matrix, targets) from the problem and a seed.
    executor : makes an executor from the problem and such data; it offers ``records(rows)``.
    converged : makes a solver to be compared with scikit-learn, or None.
    param_scales : the factors by which asked points are scaled in the sensitivity tests.
    tight : by (release, relation), the fraction of the bound that some pair attains (0.99 if absent).
    spends_all : whether a run uses every planned release.
    """

    id: str
    solver: Callable[[Any], Any]
    problem: Any
    data: Callable[[Any, int], tuple[Any, Any]] = dense_data
    executor: Callable[[Any, Any, Any], Any] = local_executor
    converged: Callable[[Any], Any] | None = None
    param_scales: tuple[float, ...] = (1.0, 0.0, 1e-6, 40.0)
    tight: Mapping[tuple[str, Relation], float] = field(default_factory=dict)
    spends_all: bool = True

    def execute_on(self, seed: int) -> Any:
        """Return an executor on the data of one seed."""
        return self.executor(self.problem, *self.data(self.problem, seed))

    def plan(self) -> Plan:
        """Return the plan, not calibrated."""
        return self.solver(self.problem).plan(self.problem)

    def run(self, seed: int, scale: float = 1.3, noise: Any = None, executor: Any = None) -> Run:
        """Run the solver under a spy; ``scale=0`` is without noise."""
        plan = self.plan().at(scale)
        inner = executor or self.execute_on(seed)
        spy = (NoisySpy if isinstance(inner, NoisyExecutor) else Spy)(inner, plan)
        curator = Curator(spy, plan, noise or NoiseSource.seeded_not_private(seed))
        iterates = [as_array(w) for w in self.solver(self.problem).run(curator, self.problem)]
        return Run(plan, spy.asked, iterates, curator)
