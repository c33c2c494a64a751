"""The document that all parties agree on: who, what, how much, and with how much noise."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from sordino.accounting import Certificate
from sordino.accounting.trees import encode
from sordino.errors import CalibrationError, InvalidInputError
from sordino.execute.parties import Mode, NoiseShare
from sordino.execute.parties.executor import OFFER
from sordino.kernel import NoiseSource, Plan, Relation, check_offer
from sordino.ledger import Ledger
from sordino.parties import words
from sordino.parties.mpc.links import Member
from sordino.parties.mpc.tasks import MAX_RELEASES, TEXT, Rehearsal, joint_task, rehearse, seconds_of
from sordino.runs import Ask, Promise, Task
from sordino.runs.promise import at_multipliers
from sordino.values import at_most

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
