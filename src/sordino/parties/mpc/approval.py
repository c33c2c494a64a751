"""Who decided what about a plan, and when: every decision is a line of a chain in the state folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInputError
from sordino.ledger.address import person
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.transcript import Transcript, private_folder, read_transcript
from sordino.parties.words import Code, PlanRefusedError, number, read_words

RULE = "by rule"


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(x, str) and x for x in value)


_RULES = {
    "persons": _texts,
    "two_persons_above": number(0.0, 1e6),
    "days": number(1e-3, 10_000),
    "rule": lambda table: isinstance(table, dict),
}
_RULE = {"max_epsilon": number(0.0, 1e6), "estimators": _texts}


@dataclass(frozen=True)
class Rules:
    """``[approval]`` of a member's settings.

    Parameters
    ----------
    persons : who may decide; anybody who can write the state folder, if nobody is named.
    two_persons_above : plans with a larger epsilon need two different persons; the charter may ask for less.
    days : how long an approval holds.
    rule : plans that need nobody: ``max_epsilon`` and ``estimators``.
    """

    persons: tuple[str, ...] = ()
    two_persons_above: float = 1e6
    days: float = 30.0
    rule: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, text: Mapping[str, Any]) -> Rules:
        """Take the section of a file."""
        given = read_words("[approval]", dict(text), {}, _RULES)
        if "rule" in given:
            read_words("[approval.rule]", given["rule"], _RULE)
        return cls(**{**given, "persons": tuple(given.get("persons", ()))})

    def covers(self, plan: JointPlan) -> bool:
        """Tell whether a plan needs nobody's approval."""
        return bool(self.rule) and (
            plan.certificate.epsilon <= self.rule["max_epsilon"]
            and plan.text["task"].get("estimator") in self.rule["estimators"]
        )


@dataclass(frozen=True)
class Approvals:
    """The chain of decisions on plans.

    **Privacy.** A decision is on the digest of the whole text of a plan: one that is edited afterwards is
    another plan. Who decides is what the process says of itself (``SORDINO_PERSON``, or the account). The
    head of the chain is part of each reservation, so that the ledger's own chain shows later changes.
    """

    state: Path
    rules: Rules = field(default_factory=Rules)

    @property
    def path(self) -> Path:
        return self.state / "decisions.jsonl"

    def lines(self) -> tuple[dict[str, Any], ...]:
        """Return all decisions, oldest first, of a chain that holds."""
        return read_transcript(self.path).lines if self.path.exists() else ()

    @property
    def head(self) -> str:
        """The hash of the last decision."""
        return read_transcript(self.path).head if self.path.exists() else ""

    def add(self, plan: JointPlan) -> str:
        """Note that the person at work approves; return who it is."""
        return self._note("approve", plan.digest, self._person(), expires=self._until)

    @property
    def _until(self) -> str:
        return (datetime.now(UTC) + timedelta(days=self.rules.days)).isoformat(timespec="seconds")

    def withdraw(self, digest: str) -> str:
        """Note that a plan is not approved any more: it does not start, and does not go on after a stop."""
        return self._note("withdraw", digest, self._person())

    def _person(self) -> str:
        found = person()
        if self.rules.persons and found not in self.rules.persons:
            raise InvalidInputError(
                f"Expected one of {list(self.rules.persons)} to decide, got {found!r}. Set SORDINO_PERSON."
            )
        return found

    def _note(self, kind: str, digest: str, who: str, **facts: Any) -> str:
        private_folder(self.state)
        chain = Transcript(self.path)
        try:
            chain.write(kind, durable=True, plan=digest, person=who, **facts)
        finally:
            chain.close()
        return who

    def _holding(self, digest: str) -> Iterator[str]:
        """Yield the persons whose approval holds now."""
        now = datetime.now(UTC)
        found: dict[str, None] = {}
        for line in self.lines():
            if line.get("plan") == digest and line["kind"] == "withdraw":
                found.clear()
            elif line.get("plan") == digest and datetime.fromisoformat(line["expires"]) > now:
                found[line["person"]] = None
        yield from found

    def require(self, plan: JointPlan, two: float = 1e6) -> None:
        """Refuse a plan that too few have approved; note it where a rule of this member approves it."""
        holding = set(self._holding(plan.digest))
        several = plan.certificate.epsilon > min(two, self.rules.two_persons_above)
        withdrawn = any(x["kind"] == "withdraw" and x["plan"] == plan.digest for x in self.lines())
        if not (holding or withdrawn or several) and self.rules.covers(plan):
            self._note("approve", plan.digest, RULE, expires=self._until)
            return
        needed = 2 if several else 1
        if len(holding) < needed:
            said = (
                f"The plan {plan.digest[:12]} is not approved here: {len(holding)} of {needed} approvals. "
                "Read it, then: sordino party approve."
            )
            raise PlanRefusedError(said, Code.APPROVAL)
