"""The document that all parties agree on: who, what, how much, and with how much noise."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sordino.accounting import Certificate
from sordino.accounting.codec import encode
from sordino.errors import CalibrationError, InvalidInputError
from sordino.execute.parties import Mode, NoiseShare
from sordino.kernel import NoiseSource, Plan, Relation
from sordino.ledger import Ledger
from sordino.parties.mpc.links import Member
from sordino.parties.mpc.tasks import Public, Task, make_task
from sordino.runs import Ask, Promise

FORMAT = 1


@dataclass(frozen=True)
class JointPlan:
    """A calibrated plan of a consortium; ``text`` is what is hashed and sent around.

    What is computed from the text (the task, its releases, their certificate) is computed once.
    """

    text: Mapping[str, Any]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the canonical text: the name of the plan."""
        return hashlib.sha256(self.canonical).hexdigest()

    @property
    def canonical(self) -> bytes:
        """The text as it is hashed."""
        return canonical(self.text)

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """The parties in the order of their indices."""
        rows = self.text["members"]
        return tuple(Member(r["name"], r["host"], int(r["port"]), r["fingerprint"]) for r in rows)

    @cached_property
    def records(self) -> tuple[int, ...]:
        """The public number of records of each party."""
        return tuple(int(row["records"]) for row in self.text["members"])

    @cached_property
    def share(self) -> NoiseShare:
        """How the noise is made."""
        return NoiseShare(Mode.parse(self.text["mode"]), len(self.members), int(self.text["threshold"]))

    @cached_property
    def public(self) -> Public:
        """The public numbers."""
        budget = self.text["budget"]
        relation = Relation.parse(budget["relation"])
        return Public(
            sum(self.records), float(budget["epsilon"]), float(budget["delta"]), relation, budget["unit"]
        )

    @cached_property
    def task(self) -> Task:
        """The task."""
        return make_task(self.text["task"], self.public)

    @cached_property
    def bare_plan(self) -> Plan:
        """The plan of the task, without noise."""
        return self.task.plan()

    @cached_property
    def kernel_plan(self) -> Plan:
        """The plan of the task with the noise that the document states."""
        plan, stated = self.bare_plan, self.text["noise"]["multipliers"]
        if set(stated) != set(plan.releases):
            raise InvalidInputError(
                f"Expected noise for the releases {sorted(plan.releases)}, got {sorted(stated)}."
            )
        releases = {
            name: replace(r, mechanism=r.mechanism.at(float(stated[name])))
            for name, r in plan.releases.items()
        }
        return replace(plan, releases=releases)

    @cached_property
    def certificate(self) -> Certificate:
        """What the plan certifies, computed here, the distance of the noise from the ideal in delta."""
        return self.promised().certificate

    def promised(self, ledger: Ledger | None = None, dataset_id: str | None = None) -> Promise:
        """Certify the stated noise now, for a member's own ledger; more than the plan claims is refused."""
        ask = Ask(self.public.epsilon, self.public.delta, ledger, dataset_id)
        return Promise.given(ask, self.kernel_plan, slack=self.slack)

    @cached_property
    def slack(self) -> float:
        """The part of delta that the distance of the noise from a Gaussian takes."""
        return noise_slack(self.share, self.task.coordinates(self.bare_plan), self.public.epsilon)

    def save(self, path: Path) -> None:
        """Write the document."""
        path.write_bytes(self.canonical + b"\n")

    @classmethod
    def load(cls, path: Path) -> JointPlan:
        """Read a document; what it says is not believed but checked by each party."""
        try:
            return cls.read(json.loads(path.read_bytes()))
        except (OSError, ValueError) as error:
            raise InvalidInputError(f"Expected a plan at {path}: {type(error).__name__}.") from None

    @classmethod
    def read(cls, text: Any) -> JointPlan:
        """Take a document that is plain data."""
        keys = {"format", "consortium", "nonce", "members", "threshold", "mode", "task", "budget", "noise"}
        if not isinstance(text, dict) or set(text) != keys or text["format"] != FORMAT:
            raise InvalidInputError(f"Expected a plan of format {FORMAT} with the keys {sorted(keys)}.")
        _check_members(text["members"])
        if type(text["threshold"]) is not int:
            raise InvalidInputError("Expected the threshold of a plan to be an integer.")
        return cls(json.loads(canonical(text)))  # a copy: what was checked cannot change any more


def _check_members(rows: Any) -> None:
    kinds = {"name": str, "host": str, "port": int, "records": int, "fingerprint": str}
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidInputError("Expected a list of members in the plan.")
    for row in rows:
        wrong = sorted(key for key, kind in kinds.items() if type(row.get(key)) is not kind)
        if wrong or row["records"] < 1 or not set(row) <= {*kinds, "control"}:
            raise InvalidInputError(
                f"Expected members of a plan with {sorted(kinds)} and at least one record, wrong: {wrong}."
            )


def canonical(text: Mapping[str, Any]) -> bytes:
    """Return the one encoding of plain data."""
    return json.dumps(text, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def noise_slack(share: NoiseShare, coordinates: int, epsilon: float) -> float:
    r"""Return ``(1 + e^eps) tau`` with tau the distance of everything opened from its ideal law.

    ``P(M' in S) <= P(M in S) + tau <= e^eps P(M~ in S) + delta + tau <= e^eps P(M~' in S) + delta +
    (1 + e^eps) tau`` for laws M, M~ on neighbours and M', M~' at distance tau from them.
    """
    return (1 + math.exp(epsilon)) * coordinates * share.distance


def make_plan(
    consortium: str,
    members: list[dict[str, Any]],
    task: Mapping[str, Any],
    budget: Mapping[str, Any],
    *,
    threshold: int = 1,
    mode: str = "noise-inside",
) -> JointPlan:
    """Calibrate a task for a consortium.

    The noise is the smallest with which the whole run is (epsilon, delta)-DP towards every coalition of
    ``threshold`` parties and everybody outside; see :func:`noise_slack` for the part of delta it costs.
    """
    noise = NoiseSource.from_os()
    nonce = "".join(f"{word:016x}" for word in noise.integers(2**62, 2))
    text: dict[str, Any] = {
        "format": FORMAT,
        "consortium": consortium,
        "nonce": nonce,
        "members": members,
        "threshold": threshold,
        "mode": Mode.parse(mode).value,
        "task": dict(task),
        "budget": dict(budget),
        "noise": {},
    }
    draft = JointPlan(text)
    plan, slack, public = draft.bare_plan, draft.slack, draft.public
    if not math.isfinite(public.epsilon) or not slack < public.delta / 2:
        raise CalibrationError(
            f"Expected a finite epsilon and a delta above {2 * slack:.3g} for this many coordinates, got "
            f"epsilon={public.epsilon:g}, delta={public.delta:g}."
        )
    ready = Promise.made(Ask(public.epsilon, public.delta), plan, slack=slack).plan
    text["noise"] = {
        "multipliers": {name: r.mechanism.multiplier for name, r in ready.releases.items()},
        "event": encode(ready.event()),
        "slack": slack,
    }
    return JointPlan.read(json.loads(canonical(text)))
