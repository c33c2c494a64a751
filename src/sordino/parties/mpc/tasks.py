"""What a consortium can learn together: a task from its public description."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.errors import InvalidInputError
from sordino.execute.parties.executor import OFFER
from sordino.kernel import Plan, Relation, SparseVector, check_offer
from sordino.parties.mpc.output import OutputPerturbation
from sordino.problems.covariance import PcaProblem
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.solvers import SOLVERS, Options, make_solver
from sordino.solvers.pca import PcaOptions, Principal, make_pca_solver


@dataclass(frozen=True)
class Task:
    """A solver with its problem; ``width`` bounds the coordinates of one release."""

    solver: Any
    problem: Any
    width: int

    def plan(self) -> Plan:
        """Return the plan, every release of which can be run between parties."""
        plan: Plan = self.solver.plan(self.problem)
        check_offer(plan, OFFER)
        return plan

    def coordinates(self, plan: Plan) -> int:
        """Return a bound on the number of coordinates that are ever opened."""
        return self.width * sum(release.times for release in plan.releases.values())

    def result(self, last: Any) -> dict[str, Any]:
        """Return the last iterate as arrays by name."""
        if isinstance(last, Principal):
            return {"components": last.axes, "variances": last.variances, "mean": last.mean}
        return {"coefficients": last.to_dense() if isinstance(last, SparseVector) else np.asarray(last)}


@dataclass(frozen=True)
class Public:
    """The public numbers of a budget and a population."""

    population: int
    epsilon: float
    delta: float
    relation: Relation
    unit: str


def make_task(text: Mapping[str, Any], public: Public) -> Task:
    """Return the task that a plan describes; unknown words are refused."""
    kind = text.get("kind")
    if kind not in TASKS:
        raise InvalidInputError(f"Expected a task of kind {sorted(TASKS)}, got {kind!r}.")
    return TASKS[kind](dict(text), public)


def _glm_problem(text: Mapping[str, Any], public: Public) -> Problem:
    if text["loss"] not in LOSSES:
        raise InvalidInputError(f"Expected loss in {sorted(LOSSES)}, got {text['loss']!r}.")
    return Problem(
        loss=LOSSES[text["loss"]],
        population=public.population,
        features=int(text["features"]),
        relation=public.relation,
        epsilon=public.epsilon,
        delta=public.delta,
        outputs=int(text.get("outputs", 1)),
        data_norm=float(text.get("data_norm", 1.0)),
        intercept=float(text.get("intercept", 0.0)),
        ridge=float(text.get("ridge", 0.0)),
        target_bound=float(text.get("target_bound", 1.0)),
        unit=public.unit,
    )


_OPTIONS = ("n_nonzero_coefs", "max_iter", "batch_size", "step_size", "clip_norm")


def _glm(text: Mapping[str, Any], public: Public) -> Task:
    problem = _glm_problem(text, public)
    wanted = dict(text.get("options", {}))
    given = {name: wanted.pop(name) for name in _OPTIONS if name in wanted}
    name = text.get("solver", "ight")
    if name not in SOLVERS:
        raise InvalidInputError(f"Expected solver in {sorted(SOLVERS)}, got {name!r}.")
    options = Options(**given, extra=wanted, random_state=int(text.get("seed", 0)))
    return Task(make_solver(name, problem, options), problem, math.prod(problem.shape))


def _output(text: Mapping[str, Any], public: Public) -> Task:
    problem = _glm_problem(text, public)
    clip = float(text.get("options", {}).get("clip_norm", problem.gradient_bound))
    if not problem.ridge > 0:
        raise InvalidInputError(f"Expected ridge > 0 for output perturbation, got {problem.ridge}.")
    return Task(OutputPerturbation(clip, problem.ridge), problem, math.prod(problem.shape))


def _pca(text: Mapping[str, Any], public: Public) -> Task:
    problem = PcaProblem(
        population=public.population,
        features=int(text["features"]),
        components=int(text["components"]),
        relation=public.relation,
        epsilon=public.epsilon,
        delta=public.delta,
        data_norm=float(text.get("data_norm", 1.0)),
        center=bool(text.get("center", True)),
        unit=public.unit,
        random_state=int(text.get("seed", 0)),
    )
    options = PcaOptions(**text.get("options", {}))
    solver = make_pca_solver(text.get("solver", "power"), problem, options)
    return Task(solver, problem, problem.features * max(2, options.columns(problem)))


TASKS: dict[str, Callable[[Mapping[str, Any], Public], Task]] = {
    "gradient": _glm,
    "output": _output,
    "pca": _pca,
}
