"""What a consortium can learn together, and the document that all parties agree on."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from sordino.accounting import Certificate
from sordino.accounting.trees import encode
from sordino.errors import CalibrationError, InvalidInputError, SordinoError
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
from sordino.execute.parties.executor import OFFER
from sordino.kernel import Curator, Full, NoiseSource, Plan, Relation, Release, check_offer, public_generator
from sordino.kernel.arrays import Floats
from sordino.kernel.query import Parts, RecordSums
from sordino.ledger import Ledger
from sordino.parties import words
from sordino.parties.mpc.links import Member
from sordino.problems.minimiser import CertifiedMinimiser
from sordino.problems.problem import Problem
from sordino.runs import Ask, Promise, Task
from sordino.runs.promise import at_multipliers
from sordino.values import LARGEST, SMALLEST, at_most


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


# ------------------- The document that all parties agree on: who, what, how much, and with how much noise

FORMAT = 3
MAX_MEMBERS = 100
MAX_EPSILON = 100.0
_HOST = r"[A-Za-z0-9._:\[\]-]{1,255}"
_PLAN: dict[str, words.Check] = {
    "format": words.whole(FORMAT, FORMAT),
    "consortium": TEXT,
    "nonce": words.matching("[0-9a-f]{32}"),
    "members": lambda rows: isinstance(rows, list) and 1 <= len(rows) <= MAX_MEMBERS,
    "threshold": words.whole(0, MAX_MEMBERS),
    "mode": words.one_of(*(mode.value for mode in Mode)),
    "task": words.mapping,
    "budget": words.mapping,
    "noise": words.mapping,
}
_MEMBER = {
    "name": TEXT,
    "host": words.matching(_HOST),
    "port": words.whole(1, 65535),
    "records": words.whole(0, words.LARGEST),  # none: a helper, who computes along and holds no data
    "fingerprint": words.matching("[0-9a-f]{64}"),
}
_OPTIONAL = {
    "charter": words.matching("[0-9a-f]{64}"),  # the digest of what all members signed
    "dropouts": words.whole(1, MAX_MEMBERS),  # how many may leave without stopping the run
}
_CONTROL = {"control": words.matching(_HOST + r":[0-9]{1,5}")}
_BUDGET = {
    "epsilon": words.number(1e-9, MAX_EPSILON),
    "delta": words.number(1e-300, 0.5),
    "relation": words.one_of(*(relation.value for relation in Relation)),
    "unit": words.one_of("record", "person"),  # whose record it is no member tells another: rows_per_person
}
_NOISE = {
    "multipliers": lambda table: words.mapping(table) and all(map(words.number(1e-9, 1e12), table.values())),
    "event": words.mapping,
    "slack": words.number(0.0, 1.0),
}


@dataclass(frozen=True)
class JointPlan:
    """A calibrated plan of a consortium; ``text`` is what is hashed and sent; the rest follows from it."""

    text: Mapping[str, Any]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the canonical text: the name of the plan."""
        return hashlib.sha256(self.canonical).hexdigest()

    @property
    def canonical(self) -> bytes:
        return words.canonical(self.text)

    @cached_property
    def members(self) -> tuple[Member, ...]:
        rows = self.text["members"]
        return tuple(Member(r["name"], r["host"], int(r["port"]), r["fingerprint"]) for r in rows)

    @cached_property
    def records(self) -> tuple[int, ...]:
        return tuple(int(row["records"]) for row in self.text["members"])

    @cached_property
    def share(self) -> NoiseShare:
        counts = len(self.members), int(self.text["threshold"]), int(self.text.get("dropouts", 0))
        return NoiseShare(Mode(self.text["mode"]), *counts)

    @property
    def ask(self) -> Ask:
        return Ask(float(self.text["budget"]["epsilon"]), float(self.text["budget"]["delta"]))

    @cached_property
    def learned(self) -> tuple[Any, Task]:
        """The estimator that the document names, not yet fitted, and what its members run together."""
        return joint_task(self.text["task"], sum(self.records), self.text["budget"])

    @property
    def model(self) -> Any:
        return self.learned[0]

    @property
    def task(self) -> Task:
        return self.learned[1]

    @cached_property
    def bare_plan(self) -> Plan:
        """The plan of the task, without noise; every release of it can be run between parties."""
        plan = self.task.plan()
        check_offer(plan, OFFER)
        if plan.unit != self.text["budget"]["unit"]:
            raise InvalidInputError(
                f"Expected unit = {plan.unit!r} in the budget of this task, got another one. A plan protects "
                "persons if it declares rows_per_person among its parameters, else records."
            )
        if sum(release.times for release in plan.releases.values()) > MAX_RELEASES:
            raise InvalidInputError(f"Expected at most {MAX_RELEASES} releases in a plan, got more.")
        return plan

    @cached_property
    def kernel_plan(self) -> Plan:
        """The plan of the task with the noise that the document states."""
        stated = self.text["noise"]["multipliers"]
        return at_multipliers(self.bare_plan, {name: float(noise) for name, noise in stated.items()})

    @cached_property
    def certificate(self) -> Certificate:
        """What the plan certifies, computed here, the distance of the noise from the ideal in delta."""
        return self.promise().certificate

    def promise(self, ledger: Ledger | None = None, dataset_id: str | None = None) -> Promise:
        ask = replace(self.ask, ledger=ledger, dataset_id=dataset_id)
        return Promise.given(ask, self.kernel_plan, slack=self.slack)

    @cached_property
    def rehearsal(self) -> Rehearsal:
        """A run of the plan without data: how many numbers each release opens."""
        return rehearse(self.task, self.bare_plan.at(1.0), self.share)

    @cached_property
    def coordinates(self) -> int:
        """A bound on the numbers that are opened; a run that would open more stops."""
        return self.rehearsal.coordinates(self.task.setting)

    @cached_property
    def slack(self) -> float:
        r"""The part of delta, ``(1 + e^eps) tau``, with tau the distance of all that is opened from its law.

        ``P(M' in S) <= P(M in S) + tau <= e^eps P(M~ in S) + delta + tau <= e^eps P(M~' in S) + delta +
        (1 + e^eps) tau`` for laws M, M~ on neighbours and M', M~' at distance tau from them.
        """
        return (1 + math.exp(self.ask.epsilon)) * self.coordinates * self.share.distance

    def check_feasible(self) -> None:
        """Refuse a plan whose sums would not fit, by a rehearsal with its own noise and without data."""
        rehearse(self.task, self.kernel_plan, self.share)

    def save(self, path: Path) -> None:
        path.write_bytes(self.canonical + b"\n")

    @classmethod
    def load(cls, path: Path) -> JointPlan:
        """Read a document; what it says is not believed but checked by each party."""
        try:
            text = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidInputError(f"Expected a plan at {path}: {type(error).__name__}.") from None
        return cls.read(text)

    @classmethod
    def read(cls, text: Any) -> JointPlan:
        if isinstance(text, dict) and text.get("format") in (1, 2):
            raise InvalidInputError(
                f"The plan has format {text['format']} of version 0.1 and is never converted: members have "
                "approved of its text, and its noise is for the releases of that version. Make a new plan, "
                "with [task] in the words of docs/parties/walk-through.md, 'Plans of version 0.1'."
            )
        words.read_words("a plan", text, _PLAN, _OPTIONAL)
        for row in text["members"]:
            words.read_words("a member of the plan", row, _MEMBER, _CONTROL)
        words.read_words("the budget of the plan", text["budget"], _BUDGET)
        words.read_words("the noise of the plan", text["noise"], _NOISE)
        try:
            found = cls(json.loads(words.canonical(text)))  # a copy: what was checked cannot change any more
        except ValueError:
            raise InvalidInputError("Expected finite numbers in a plan, got infinity or NaN.") from None
        if not 1 <= sum(found.records) <= words.LARGEST:
            raise InvalidInputError(f"Expected 1 to 2^53 records in a plan, got {sum(found.records)}.")
        return found


def make_plan(
    consortium: str,
    members: list[dict[str, Any]],
    task: Mapping[str, Any],
    budget: Mapping[str, Any],
    *,
    threshold: int = 1,
    mode: str = "noise-inside",
    **optional: Any,
) -> JointPlan:
    """Calibrate a task for a consortium.

    The noise is the smallest with which the whole run is (epsilon, delta)-DP towards every coalition of
    ``threshold`` parties and everybody outside; see :attr:`JointPlan.slack` for the part of delta it costs.
    ``charter`` and ``dropouts`` are the optional words of a plan.
    """
    noise = NoiseSource.from_os()
    nonce = "".join(f"{word:016x}" for word in noise.integers(2**62, 2))
    text: dict[str, Any] = {
        "format": FORMAT,
        "consortium": consortium,
        "nonce": nonce,
        "members": members,
        "threshold": threshold,
        "mode": mode,
        "task": task,
        "budget": budget,
        "noise": {},
        **optional,
    }
    bare = {**text, "noise": {"multipliers": {}, "event": {}, "slack": 0.0}}
    try:
        plain = json.loads(words.canonical(bare))
    except (TypeError, ValueError):
        raise InvalidInputError("Expected texts, finite numbers, lists and tables in a plan.") from None
    draft = JointPlan.read(plain)
    plan, slack, ask = draft.bare_plan, draft.slack, draft.ask
    if not math.isfinite(ask.epsilon) or not slack < ask.delta / 2:
        raise CalibrationError(
            f"Expected a finite epsilon and a delta above {2 * slack:.3g} for this many coordinates, got "
            f"epsilon={ask.epsilon:g}, delta={ask.delta:g}."
        )
    ready = Promise.made(ask, plan, slack=slack).plan
    text["noise"] = {
        "multipliers": {name: r.mechanism.multiplier for name, r in ready.releases.items()},
        "event": encode(ready.event()),
        "slack": slack,
    }
    made = JointPlan.read(json.loads(words.canonical(text)))
    made.check_feasible()
    return made


shown = partial(words.show, most=2000)  # all of it but for very long lists


def in_words(plan: JointPlan) -> list[str]:
    """Return what somebody who approves a plan has to know, a line for each fact.

    Epsilon is computed here, not read. Words of the plan are quoted in printable ASCII: nothing in it can
    begin a line of its own, or move the cursor.
    """
    text, found, threshold = plan.text, plan.certificate, plan.share.threshold
    members = [
        f"  {shown(row['name'])}: {row['records'] or 'a helper without'} records, "
        f"at {shown(row['host'])} port {row['port']}"
        f"{', control ' + shown(row['control']) if 'control' in row else ''}, "
        f"certificate {row['fingerprint']}"
        for row in text["members"]
    ]
    facts = dict(text["task"])
    for inner in ("options", "params"):
        facts |= {f"{inner}.{name}": value for name, value in facts.pop(inner, {}).items()}
    releases = [f"  {r.times} x {name}" for name, r in plan.kernel_plan.releases.items()]
    return [
        f"Plan {plan.digest} of {shown(text['consortium'])}, between",
        *members,
        f"Under the charter {text['charter']}." if "charter" in text else "Under no charter.",
        f"If more than {threshold} of them pool what they see, they learn more than the opened answers.",
        f"The run goes on without the records of those who leave it, {plan.share.dropouts} of them at most.",
        "Task:",
        *(f"  {shown(k)[1:-1]} = {shown(v)}" for k, v in sorted(facts.items())),
        *(f"  {fact}" for fact in plan.task.public),
        *(["  no names of columns: nobody compares their order"] if "columns" not in text["task"] else []),
        f"Opened to all, {plan.coordinates} numbers at most, noise {text['mode']}:",
        *releases,
        f"Work: about {in_time(seconds_of(plan.coordinates, plan.share))} of processor time for each member.",
        f"Cost for one {plan.bare_plan.unit} ({plan.bare_plan.relation.value}): "
        f"epsilon {at_most(found.epsilon)}, delta {at_most(found.delta, 3)}.",
    ]


def in_time(seconds: float) -> str:
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
