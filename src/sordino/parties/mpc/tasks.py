"""What a consortium can learn together: a task from its public description."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from sordino.errors import InvalidInputError, SordinoError
from sordino.estimators.linear import (
    LinearClassifier,
    LinearRegression,
    LogisticRegression,
    SparseLinearRegression,
    SparseLogisticRegression,
)
from sordino.estimators.pca import PCA
from sordino.execute import LocalExecutor
from sordino.execute.parties import Mode, NoiseShare
from sordino.execute.parties.engine import quantise
from sordino.kernel import Curator, Full, Plan, Release, public_generator
from sordino.kernel.arrays import Floats
from sordino.kernel.query import Parts, RecordSums
from sordino.parties import words
from sordino.problems.minimiser import CertifiedMinimiser
from sordino.problems.problem import Problem
from sordino.runs import Task
from sordino.values import LARGEST, SMALLEST


@dataclass(frozen=True)
class WeightedMinimiser(CertifiedMinimiser):
    r"""``sum_j (n_j / n) theta_j`` with ``theta_j`` the certified minimiser of party j on ``n_j`` records.

    One record moves one ``theta_j`` by ``c C / (n_j lam) + 2 g_j / lam`` with ``g_j`` the certified gradient
    norm, hence the average by ``c C / (n lam) + 2 max_j (n_j g_j) / (n lam)``: the size of the smallest party
    does not matter, and the bound is that of one party with all records, for ``n_j g_j`` grows with ``n_j``.
    (An unweighted average would move by ``c C / (m min n_j lam)``, never less.)

    **Privacy.** Sensitivity in L2 as above; the numbers ``n_j`` are public.

    References: Wang 2021, section 6 (whose noise is calibrated to the L1 norm with an L2 bound).
    """

    needs: ClassVar[tuple[type, ...]] = (Parts, RecordSums)
    adds_up: ClassVar[bool] = True  # the parties' weighted minimisers do, by definition

    def error(self, params: Any, count: int) -> float:
        """Return the rounding of the weighted point, at most ``count`` contributions from zero."""
        return 2 * count * 2.0**-53 * self.contribution(params)

    def evaluate(self, records: Any, params: Any = None) -> Floats:
        if not records.count:
            return np.zeros(self.shape)
        found = CertifiedMinimiser.evaluate(replace(self, population=records.count), records)
        return found * (records.count / self.population)


@dataclass(frozen=True)
class OutputPerturbation:
    """MPC Out P: one release of the weighted minimiser; its proof needs a curvature of the intercept, too."""

    clip: float
    strength: float

    def plan(self, problem: Problem) -> Plan:
        query = WeightedMinimiser.of(problem, self.clip, self.strength)
        return problem.planned(minimiser=Release(query, problem.gaussian(), Full(), mean=False))

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        yield curator.release("minimiser")


MAX_RELEASES = 10**5
MAX_FEATURES = 2**24
_BOUND = words.number(SMALLEST, LARGEST)
_WORD = words.matching("[a-z_-]{1,40}")
_WEIGHT = words.number(0.0, LARGEST)
ESTIMATORS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        LinearClassifier,
        LinearRegression,
        LogisticRegression,
        PCA,
        SparseLinearRegression,
        SparseLogisticRegression,
    )
}
# The parameters that a plan may set; what belongs to a budget or to one member's files is not among them.
_PARAMS: dict[str, words.Check] = {
    "alpha": _WEIGHT,
    "center": words.flag,
    "classes": words.labels,
    "data_norm": _BOUND,
    "fit_intercept": words.flag,
    "huber_threshold": _BOUND,
    "loss": _WORD,
    "max_iter": words.whole(1, MAX_RELEASES),
    "n_components": words.whole(1, MAX_FEATURES),
    "n_nonzero_coefs": words.whole(1, words.LARGEST),
    "penalty": _WORD,
    "quantile": words.number(0.0, 1.0),
    "random_state": words.whole(0, 2**31),
    "rows_per_person": words.whole(1, 10**6),  # at all members together
    "solver": _WORD,
    "solver_options": words.mapping,
    "target_bound": _BOUND,
}
_DECLARED = ("classes", "data_norm", "target_bound")
_TASK = {"estimator": words.one_of(*ESTIMATORS), "features": words.whole(1, MAX_FEATURES)}
TEXT = words.matching(r"[^\x00-\x1f\x7f]{1,200}")
_TASK_OPTIONAL = {
    "params": words.mapping,
    "method": words.one_of("output"),
    "columns": words.several(TEXT, MAX_FEATURES),  # their names in order, and that of the target: members
    "target": TEXT,  # whose files have names refuse a plan with others
}


def joint_task(text: Any, population: int, budget: Mapping[str, Any]) -> tuple[Any, Task]:
    """Return the estimator that a plan names, and what members run; refuse what nobody declared."""
    if isinstance(text, Mapping) and "kind" in text:
        raise InvalidInputError(
            "Expected a task that names an estimator, got the kind, loss and options of version 0.1. "
            "Each word has its successor in docs/parties/walk-through.md, 'Plans of version 0.1'."
        )
    text = words.read_words("the task", text, _TASK, _TASK_OPTIONAL)
    if len(text.get("columns", ())) not in (0, text["features"]):
        raise InvalidInputError(
            f"Expected the names of {text['features']} columns in the task, got {len(text['columns'])}."
        )
    params = words.read_words("the parameters", text.get("params", {}), {}, _PARAMS)
    own = {name: budget[name] for name in ("epsilon", "delta", "relation")}
    kind = ESTIMATORS[text["estimator"]]
    params.setdefault("random_state", 0)  # public choices are the same at all members
    try:
        model = kind(**params, **own)
        open_facts = [name for name in _DECLARED if getattr(model, name, "") is None]
        if open_facts:
            raise InvalidInputError(f"Expected {open_facts} among the parameters: members declare them.")
        task: Task = model.joint_task(population, text["features"])
    except (TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, SordinoError):
            raise
        # An option of one solver has a range that only this solver knows.
        raise InvalidInputError(
            f"Expected parameters that {text['estimator']} takes: {type(error).__name__}."
        ) from None
    if text.get("method") != "output":
        return model, task
    problem = task.setting
    if not problem.ridge > 0:
        raise InvalidInputError(f"Expected alpha > 0 for output perturbation, got {problem.ridge}.")
    clip = getattr(task.solver, "clip", None) or problem.gradient_bound
    return model, replace(task, solver=OutputPerturbation(clip, problem.ridge))


# Processor time of a member for one coordinate (python -m benchmarks.parties wire).
SECONDS = {Mode.INSIDE: 2.5e-4, Mode.AGGREGATION: 1e-6}


@dataclass
class Rehearsal:
    """Stands in for a curator: every answer is public noise, and what the release would open is counted.

    **Privacy.** It has no records: one made-up row of zeros gives answers their shapes.
    """

    plan: Plan
    share: NoiseShare
    row: LocalExecutor = field(repr=False)
    largest: Counter[str] = field(default_factory=Counter)

    def release(self, name: str, params: Any = None) -> Any:
        """Return an answer as the plan would give it; refuse one that does not fit the field."""
        release, n = self.plan.releases[name], self.plan.population
        sensitivity = release.sensitivity(self.plan.relation, params)
        found = quantise(release, self.row.records(None), params, sensitivity, n)
        lattice = found.lattice
        self.share.fine_std(lattice)
        self.largest[name] = max(self.largest[name], found.values.size)
        public = public_generator(self.largest.total())
        noise = public.standard_normal(found.values.shape) * lattice.std * lattice.spacing
        answer = found.give_shape(found.values * lattice.spacing + noise)
        return answer / release.sampling.expected(n) if release.mean else answer

    def coordinates(self, setting: Any) -> int:
        """Return a bound on the number of coordinates that are ever opened: those of a model at least."""
        width = setting.features * max(2, getattr(setting, "components", 0))
        width = math.prod(getattr(setting, "shape", (width,)))
        return sum(max(width, self.largest[name]) * r.times for name, r in self.plan.releases.items())


def rehearse(task: Task, plan: Plan, share: NoiseShare) -> Rehearsal:
    setting, loss = task.setting, getattr(task.setting, "loss", None)
    target = None if loss is None else np.full(1, float(loss.targets in ("signs", "labels")))
    intercept = getattr(setting, "intercept", 0.0)
    row = LocalExecutor(np.zeros((1, setting.features)), target, setting.data_norm, intercept)
    rehearsal = Rehearsal(plan, share, row)
    try:
        task.follow(rehearsal)
    except SordinoError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"The plan cannot be run between parties: its rehearsal ended with {type(error).__name__}."
        ) from None
    return rehearsal


def seconds_of(coordinates: int, share: NoiseShare) -> float:
    return coordinates * SECONDS[share.mode] * (share.parties / 3)
