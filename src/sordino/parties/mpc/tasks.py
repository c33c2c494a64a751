"""What a consortium can learn together: a task from its public description."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from sordino.checks import check_data
from sordino.errors import InvalidInputError, SordinoError
from sordino.execute import LocalExecutor
from sordino.execute.parties import Mode, NoiseShare
from sordino.execute.parties.engine import quantise
from sordino.execute.parties.executor import OFFER
from sordino.kernel import Curator, Full, Norm, Plan, Relation, Release, check_offer, public_generator
from sordino.kernel.arrays import Floats
from sordino.kernel.query import Parts, RecordSums
from sordino.parties import words
from sordino.parties.records import check_records, usual_classes
from sordino.problems.covariance import PcaProblem
from sordino.problems.losses import LOSSES, Loss, target_range
from sordino.problems.minimiser import CertifiedMinimiser
from sordino.problems.problem import Problem
from sordino.solvers import SOLVERS, Options, make_solver
from sordino.solvers.base import LinearFit
from sordino.solvers.pca import PcaOptions, make_pca_solver
from sordino.values import LARGEST, SMALLEST

# MPC Out P: every party's certified minimiser, averaged with weights ``n_j / n``, and noise once


@dataclass(frozen=True)
class WeightedMinimiser:
    r"""``sum_j (n_j / n) theta_j`` with ``theta_j`` the certified minimiser of party j on ``n_j`` records.

    One record moves one ``theta_j`` by ``c C / (n_j lam) + 2 g_j / lam`` with ``g_j`` the certified gradient
    norm, hence the average by ``c C / (n lam) + 2 max_j (n_j g_j) / (n lam)``: the size of the smallest party
    does not matter. (An unweighted average would move by ``c C / (m min n_j lam)``, never less.)

    **Privacy.** Sensitivity in L2 as above; the numbers ``n_j`` are public.

    References: Wang 2021, section 6 (whose noise is calibrated to the L1 norm with an L2 bound).
    """

    loss: Loss
    clip: float
    strength: float
    population: int
    shape: tuple[int, ...]
    row_bound: float

    needs: ClassVar[tuple[type, ...]] = (Parts, RecordSums)
    norm = Norm.L2
    adds_up: ClassVar[bool] = True  # the parties' weighted minimisers do, by definition

    def local(self, records: int) -> CertifiedMinimiser:
        """Return the query of one party."""
        return CertifiedMinimiser(self.loss, self.clip, self.strength, records, self.shape, self.row_bound)

    def contribution(self, params: Any = None) -> float:
        """Return the bound when a record is added or removed."""
        return self.sensitivity(Relation.ADD_REMOVE, params)

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        """Return the bound, which does not depend on how the records are spread."""
        exact = relation.contributions * self.clip / (self.population * self.strength)
        # n_j g_j grows with n_j: the worst party is one that holds everything.
        return exact + 2 * self.local(self.population).tolerance / self.strength

    def evaluate(self, records: Any, params: Any = None) -> Floats:
        if not records.count:
            return np.zeros(self.shape)
        return self.local(records.count).evaluate(records) * (records.count / self.population)


@dataclass(frozen=True)
class OutputPerturbation:
    """One release of the weighted minimiser; its proof needs a curvature of the intercept, too."""

    clip: float
    strength: float

    def plan(self, problem: Problem) -> Plan:
        shape = (problem.loss, self.clip, self.strength, problem.population, problem.shape, problem.row_bound)
        release = Release(WeightedMinimiser(*shape), problem.gaussian(), Full(), mean=False)
        return problem.planned(minimiser=release)

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        yield curator.release("minimiser")


MAX_RELEASES = 10**5
MAX_FEATURES = 2**24
_BOUND = words.number(SMALLEST, LARGEST)
_COUNT = words.whole(1, MAX_RELEASES)
_COMMON = {
    "solver": words.matching("[a-z-]{1,40}"),
    "data_norm": _BOUND,
    "seed": words.whole(0, 2**31),
    "options": words.mapping,
}
KINDS = ("gradient", "output", "pca")
_REQUIRED = {"kind": words.one_of(*KINDS), "features": words.whole(1, MAX_FEATURES)}
_GLM = {"loss": words.one_of(*LOSSES)}
_GLM_OPTIONAL = {
    **_COMMON,
    "classes": words.labels,
    "outputs": words.whole(1, 1000),
    "intercept": words.number(0.0, LARGEST),
    "ridge": words.number(0.0, LARGEST),
    "target_bound": _BOUND,
}
_OPTIONS = {
    "n_nonzero_coefs": words.whole(1, words.LARGEST),
    "max_iter": _COUNT,
    "batch_size": words.whole(1, words.LARGEST),
    "step_size": _BOUND,
    "clip_norm": _BOUND,
}
_PCA_OPTIONS = {
    "max_iter": _COUNT,
    "batch_size": words.whole(1, words.LARGEST),
    "step_size": _BOUND,
    "oversampling": words.whole(0, MAX_FEATURES),
    "momentum": words.number(0.0, 1.0),
}


@dataclass(frozen=True)
class Task:
    """A solver with its problem; ``width`` bounds the coordinates of one answer in its parameters.

    ``classes`` are the declared labels, in their order, of a task that predicts labels.
    """

    solver: Any
    problem: Any
    width: int
    classes: tuple[Any, ...] = field(default=())

    def plan(self) -> Plan:
        """Return the plan, every release of which can be run between parties."""
        plan: Plan = self.solver.plan(self.problem)
        check_offer(plan, OFFER)
        if sum(release.times for release in plan.releases.values()) > MAX_RELEASES:
            raise InvalidInputError(f"Expected at most {MAX_RELEASES} releases in a plan, got more.")
        return plan

    def records(self, matrix: Any, targets: Any) -> LocalExecutor:
        """Check a member's rows and targets at the door, as an estimator does, and return them for sums.

        **Privacy.** What is refused is refused before anything is booked, in words without a value.
        """
        problem = self.problem
        if isinstance(problem, PcaProblem):
            return LocalExecutor(check_data(BaseEstimator(), matrix), None, problem.data_norm)
        matrix, y = check_records(matrix, targets, self.classes)
        if not self.classes:
            y = np.clip(y, *target_range(problem.loss, problem.target_bound))
        return LocalExecutor(matrix, y, problem.data_norm, problem.intercept)

    @property
    def bounds(self) -> tuple[str, ...]:
        """What is cut, and to what, whether the plan declares it or leaves it at its default."""
        rows = f"data_norm = {self.problem.data_norm:g} (rows are clipped to it)"
        if isinstance(self.problem, PcaProblem):
            return (rows,)
        if self.classes:
            return rows, f"class labels: declared, {words.shown(sorted(self.classes), 300)}"
        return rows, f"target_bound = {self.problem.target_bound:g} (targets are clipped to it)"

    def finish(self, last: Any) -> dict[str, Any]:
        """Return what an estimator would hold, by the names of its attributes without their underscores."""
        problem = self.problem
        facts = {"data_norm": np.array(problem.data_norm)}
        if isinstance(problem, PcaProblem):
            return {**last.attributes(problem, min(problem.components, len(last.axes))), **facts}
        found = LinearFit.of(last, problem)
        facts |= {"coef": found.coef, "intercept": found.intercept}
        if found.noise is not None:
            facts["coef_noise"] = found.noise
        if self.classes:
            return {**facts, "classes": np.unique(np.asarray(self.classes))}
        return {**facts, "target_range": np.array(target_range(problem.loss, problem.target_bound))}


@dataclass(frozen=True)
class Public:
    """The public numbers of a budget and a population."""

    population: int
    epsilon: float
    delta: float
    relation: Relation
    unit: str


def make_task(text: Mapping[str, Any], public: Public) -> Task:
    """Return the task that a plan describes; unknown words, and values out of range, are refused."""
    if not isinstance(text, Mapping) or not _REQUIRED["kind"](text.get("kind")):
        raise InvalidInputError(f"Expected a task of a kind in {KINDS} in the plan.")
    try:
        return {"gradient": _glm, "output": _output, "pca": _pca}[text["kind"]](dict(text), public)
    except (TypeError, ValueError, ArithmeticError) as error:
        if isinstance(error, SordinoError):
            raise
        # An option of one solver has a range that only this solver knows.
        raise InvalidInputError(f"Expected options that the solver takes: {type(error).__name__}.") from None


def _glm_problem(text: Mapping[str, Any], public: Public) -> tuple[Problem, tuple[Any, ...]]:
    text = words.read_words("the task", text, {**_REQUIRED, **_GLM}, _GLM_OPTIONAL)
    loss = LOSSES[text["loss"]]
    classes = _classes(loss.targets, text)
    problem = Problem(
        loss=loss,
        population=public.population,
        features=text["features"],
        relation=public.relation,
        epsilon=public.epsilon,
        delta=public.delta,
        outputs=len(classes) if loss.targets == "labels" else 1,
        data_norm=float(text.get("data_norm", 1.0)),
        intercept=float(text.get("intercept", 0.0)),
        ridge=float(text.get("ridge", 0.0)),
        target_bound=float(text.get("target_bound", 1.0)),
        unit=public.unit,
    )
    return problem, classes


def _classes(targets: str, text: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the declared labels; undeclared, they are -1 and 1, or the numbers of so many classes."""
    outputs = text.get("outputs", 1)
    if targets not in ("signs", "labels"):
        if "classes" in text or outputs != 1:
            raise InvalidInputError(f"The loss {text['loss']!r} predicts numbers: it has no classes.")
        return ()
    found = text.get("classes", usual_classes(targets, outputs))
    fits = len(found) == 2 if targets == "signs" else len(found) >= 2
    if not fits or outputs not in (1, len(found)) or (targets == "signs" and outputs != 1):
        raise InvalidInputError(
            f"Expected {'two' if targets == 'signs' else 'two or more'} classes for the loss "
            f"{text['loss']!r}, got {len(found)}. Declare them: classes = [0, 1]."
        )
    return tuple(found)


def _glm(text: Mapping[str, Any], public: Public) -> Task:
    problem, classes = _glm_problem(text, public)
    wanted = dict(text.get("options", {}))
    given = {name: wanted.pop(name) for name in _OPTIONS if name in wanted}
    words.read_words("the options", given, {}, _OPTIONS)
    name = text.get("solver", "ight")
    if name not in SOLVERS:
        raise InvalidInputError(f"Expected solver in {sorted(SOLVERS)}, got {words.shown(name)}.")
    options = Options(**given, extra=wanted, random_state=text.get("seed", 0))
    return Task(make_solver(name, problem, options), problem, math.prod(problem.shape), classes)


def _output(text: Mapping[str, Any], public: Public) -> Task:
    problem, classes = _glm_problem(text, public)
    options = words.read_words("the options", text.get("options", {}), {}, {"clip_norm": _BOUND})
    clip = float(options.get("clip_norm", problem.gradient_bound))
    if not problem.ridge > 0:
        raise InvalidInputError(f"Expected ridge > 0 for output perturbation, got {problem.ridge}.")
    solver = OutputPerturbation(clip, problem.ridge)
    return Task(solver, problem, math.prod(problem.shape), classes)


def _pca(text: Mapping[str, Any], public: Public) -> Task:
    required = {**_REQUIRED, "components": words.whole(1, MAX_FEATURES)}
    text = words.read_words("the task", text, required, {**_COMMON, "center": words.flag})
    problem = PcaProblem(
        population=public.population,
        features=text["features"],
        components=text["components"],
        relation=public.relation,
        epsilon=public.epsilon,
        delta=public.delta,
        data_norm=float(text.get("data_norm", 1.0)),
        center=text.get("center", True),
        unit=public.unit,
        random_state=text.get("seed", 0),
    )
    options = PcaOptions(**words.read_words("the options", text.get("options", {}), {}, _PCA_OPTIONS))
    solver = make_pca_solver(text.get("solver", "power"), problem, options)
    return Task(solver, problem, problem.features * max(2, options.columns(problem)))


# Processor time of a member for one coordinate (python -m benchmarks.parties wire).
SECONDS = {Mode.INSIDE: 6e-4, Mode.AGGREGATION: 1e-6}


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
        lattice.field_bits(self.share.parties)
        self.share.fine_std(lattice)
        self.largest[name] = max(self.largest[name], found.values.size)
        public = public_generator(self.largest.total())
        noise = public.standard_normal(found.values.shape) * lattice.std * lattice.spacing
        answer = found.shaped(found.values * lattice.spacing + noise)
        return answer / release.sampling.expected(n) if release.mean else answer

    def coordinates(self, width: int) -> int:
        """Return a bound on the number of coordinates that are ever opened, counting ``width`` at least."""
        return sum(max(width, self.largest[name]) * r.times for name, r in self.plan.releases.items())


def rehearse(task: Task, plan: Plan, share: NoiseShare) -> Rehearsal:
    """Run a plan that has its noise without data; raise if it cannot finish."""
    target = None if not hasattr(task.problem, "loss") else np.zeros(1)
    if task.classes:
        target = np.ones(1)
    intercept = getattr(task.problem, "intercept", 0.0)
    row = LocalExecutor(np.zeros((1, task.problem.features)), target, task.problem.data_norm, intercept)
    rehearsal = Rehearsal(plan, share, row)
    try:
        with np.errstate(all="ignore"):
            for _ in task.solver.run(rehearsal, task.problem):
                pass
    except SordinoError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"The plan cannot be run between parties: its rehearsal ended with {type(error).__name__}."
        ) from None
    return rehearsal


def seconds_of(coordinates: int, share: NoiseShare) -> float:
    """Return about how much processor time a run takes at each member."""
    return coordinates * SECONDS[share.mode] * (share.parties / 3)
