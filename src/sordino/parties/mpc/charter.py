"""What all members of a consortium have signed, and who decided what about a plan at one of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInputError
from sordino.execute.parties import Mode
from sordino.ledger.address import person
from sordino.ledger.store import Entry
from sordino.parties import words
from sordino.parties.mpc.links import fingerprint, has_signed, sign
from sordino.parties.mpc.plan import ESTIMATORS, MAX_EPSILON, MAX_FEATURES, MAX_MEMBERS, TEXT, JointPlan
from sordino.parties.mpc.transcript import (
    Story,
    Transcript,
    TranscriptError,
    private_folder,
    read_transcript,
)
from sordino.parties.words import Code, PlanRefusedError, number, several
from sordino.runs.report import Booked

FORMAT = 1
ROLES = ("data", "proposer")


def _is_range(value: Any) -> bool:
    each = number(-words.LARGEST, words.LARGEST)
    return isinstance(value, list) and len(value) == 2 and all(map(each, value)) and value[0] <= value[1]


def _passes(read: Any, value: Any) -> bool:
    try:
        return isinstance(value, str) and len(value) < 20_000 and bool(read(value))
    except ValueError:
        return False


_RULES: dict[str, words.Check] = {
    "consortium": TEXT,
    "expires": lambda text: _passes(lambda day: date.fromisoformat(day).isoformat() == day, text),
    "threshold": words.whole(1, MAX_MEMBERS),
    "min_parties": words.whole(3, MAX_MEMBERS),
    "modes": several(words.one_of(*(mode.value for mode in Mode)), len(Mode)),
    "estimators": several(words.one_of(*ESTIMATORS), len(ESTIMATORS)),
    "max_epsilon": number(1e-9, MAX_EPSILON),
    "max_delta": number(1e-300, 0.5),
    "max_features": words.whole(1, MAX_FEATURES),
    "two_persons_above": number(0.0, MAX_EPSILON),
    "ranges": lambda table: words.mapping(table) and all(map(_is_range, table.values())),
    "members": lambda rows: isinstance(rows, list) and 3 <= len(rows) <= MAX_MEMBERS,
}
_CHARTER = _RULES | {
    "format": words.whole(FORMAT, FORMAT),
    "version": words.whole(1, 10**6),
    "previous": words.matching(f"({words.DIGEST})?"),
}
_MEMBER: dict[str, words.Check] = {
    "name": TEXT,
    # two while a certificate is exchanged for another
    "certificates": several(lambda text: _passes(fingerprint, text), 2),
    "roles": several(words.one_of(*ROLES), len(ROLES)),
    "epsilon": number(0.0, 1e6),
    "delta": number(0.0, 1.0),
}
_DEFAULTS: dict[str, Any] = {
    "min_parties": 3,
    "modes": [mode.value for mode in Mode],
    "max_features": MAX_FEATURES,
    "two_persons_above": MAX_EPSILON,
    "ranges": {},
}


@dataclass(frozen=True)
class Charter:
    """What all members have signed.

    Parameters
    ----------
    text : the words of the charter: plain data, whose canonical form is signed and hashed.
    signatures : by name of the member, in hexadecimal.

    A new version names the digest of the one before. Members join and leave, and certificates are exchanged,
    by a new version only; a name may have two certificates meanwhile. **Privacy.** A charter allows nothing
    by itself: a plan has to be within it *and* within each member's own settings, approvals and ledger.
    """

    text: Mapping[str, Any]
    signatures: Mapping[str, str] = field(default_factory=dict)

    @property
    def canonical(self) -> bytes:
        return b"sordino charter " + words.canonical(self.text)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of what is signed: plans name it."""
        return hashlib.sha256(self.canonical).hexdigest()

    @cached_property
    def members(self) -> dict[str, Mapping[str, Any]]:
        return {row["name"]: row for row in self.text["members"]}

    @cached_property
    def pins(self) -> dict[str, tuple[str, ...]]:
        return {
            name: tuple(fingerprint(pem) for pem in row["certificates"]) for name, row in self.members.items()
        }

    @property
    def authorities(self) -> str:
        """All certificates: whoever has another one does not get through the handshake."""
        return "\n".join(pem.strip() for row in self.members.values() for pem in row["certificates"])

    @property
    def missing(self) -> list[str]:
        signatures = {name: str(self.signatures.get(name, "")) for name in self.members}
        return [
            name
            for name, row in self.members.items()
            if not any(has_signed(pem, self.canonical, signatures[name]) for pem in row["certificates"])
        ]

    def require_in_force(self) -> Charter:
        if self.missing:
            raise PlanRefusedError(
                f"The charter {self.digest[:12]} is not signed by {self.missing}. All members have to: "
                "sordino party charter sign.",
                Code.CHARTER,
            )
        if datetime.now(UTC).date() > date.fromisoformat(self.text["expires"]):
            said = f"The charter {self.digest[:12]} expired on {self.text['expires']}. Propose a new one."
            raise PlanRefusedError(said, Code.CHARTER)
        return self

    def sign_as(self, name: str, key: Path) -> Charter:
        """Return the charter with one more signature, which is one of this member's certificates."""
        if name not in self.members:
            raise InvalidInputError(f"Expected a member of the charter, got {name!r}.")
        found = Charter(self.text, {**self.signatures, name: sign(key, self.canonical)})
        if name in found.missing:
            raise InvalidInputError(f"The charter has another certificate for {name!r} than that of {key}.")
        return found

    def check(self, plan: JointPlan, member: str, spent: Mapping[str, float]) -> None:
        """Refuse a plan beyond this charter; ``spent`` is what plans of it have cost the member so far."""
        self.require_in_force()
        rules, task, ask, own = self.text, plan.text["task"], plan.ask, self.members[member]
        named, params = str(plan.text.get("charter")), plan.model.get_params(deep=False)
        params |= params.get("solver_options") or {}
        strangers = [
            row["name"]
            for row in plan.text["members"]
            if row["fingerprint"] not in self.pins.get(row["name"], ())
            or "data" not in self.members[row["name"]]["roles"]
        ]
        above = {
            "epsilon": (ask.epsilon, rules["max_epsilon"]),
            "delta": (ask.delta, rules["max_delta"]),
            "features": (task["features"], rules["max_features"]),
            "epsilon of all plans": (spent["epsilon"] + ask.epsilon, own["epsilon"]),
            "delta of all plans": (spent["delta"] + ask.delta, own["delta"]),
        }
        # A parameter that a plan leaves out has a value all the same, and one of its estimator's choice.
        ranges = {name: [*ends, params[name]] for name, ends in rules["ranges"].items() if name in params}
        least, threshold = rules["min_parties"], rules["threshold"]
        objections = {
            f"The plan is under the charter {named[:12]}, in force is {self.digest[:12]}.": (
                named != self.digest or plan.text["consortium"] != rules["consortium"]
            ),
            f"{strangers} with that certificate and role are no members of the charter.": strangers,
            **{
                f"Expected {what} <= {bound:g} by the charter, the plan makes it {value:.6g}.": not (
                    value <= bound * (1 + 1e-9)
                )
                for what, (value, bound) in above.items()
            },
            **{
                f"Expected {name} in [{low:g}, {high:g}] by the charter, stated in the plan.": not (
                    isinstance(value, (int, float)) and low <= value <= high
                )
                for name, (low, high, value) in ranges.items()
            },
            f"Expected an estimator out of {rules['estimators']}.": (
                task.get("estimator") not in rules["estimators"]
            ),
            f"Expected a mode out of {rules['modes']}, the plan has {plan.text['mode']!r}.": (
                plan.text["mode"] not in rules["modes"]
            ),
            f"Expected {least} parties and a threshold of {threshold} at least.": (
                plan.share.threshold < threshold or len(plan.members) < least
            ),
        }
        for said, refused in objections.items():
            if refused:
                raise PlanRefusedError(said, Code.CHARTER)

    def require_follows(self, before: Charter | None) -> None:
        expected = ("", 1) if before is None else (before.digest, int(before.text["version"]) + 1)
        if (self.text["previous"], self.text["version"]) != expected:
            raise InvalidInputError(
                f"Expected version {expected[1]} after {expected[0][:12] or 'none'}, got version "
                f"{self.text['version']} after {self.text['previous'][:12] or 'none'}."
            )

    def save(self, path: Path) -> None:
        document = {"charter": self.text, "signatures": self.signatures}
        path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path) -> Charter:
        """Read a charter; every word of it is checked, its signatures are not yet."""
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidInputError(f"Expected a charter at {path}: {type(error).__name__}.") from None
        either = {"charter": words.mapping, "signatures": words.mapping}
        document = words.read_words("a charter", document, either)
        return cls(_check_text(document["charter"]), document["signatures"])


def _check_text(text: Any) -> Mapping[str, Any]:
    text = words.read_words("a charter", text, _CHARTER)
    rows = [words.read_words("a member of the charter", row, _MEMBER) for row in text["members"]]
    names = [row["name"] for row in rows]
    prints = [fingerprint(pem) for row in rows for pem in row["certificates"]]
    if len(set(names)) < len(names) or len(set(prints)) < len(prints):
        raise InvalidInputError("Two members of the charter have the same name or certificate.")
    found: dict[str, Any] = json.loads(words.canonical(text))
    return found


def proposal(path: Path, before: Charter | None) -> Charter:
    """Make the charter that a file (TOML) describes, as the version after ``before``."""
    given = _DEFAULTS | words.read_toml("the charter", path, set(_RULES) - set(_DEFAULTS), _DEFAULTS)
    rows = given["members"] if isinstance(given["members"], list) else []
    given["members"] = [_with_certificates(path.parent, row) for row in rows]
    version = 1 if before is None else int(before.text["version"]) + 1
    facts = {"format": FORMAT, "version": version, "previous": "" if before is None else before.digest}
    return Charter(_check_text({**given, **facts, "expires": str(given["expires"])}))


def _with_certificates(base: Path, row: Any) -> Any:
    if not isinstance(row, dict) or not isinstance(row.get("certificates"), list):
        return row
    try:
        found = [(base / str(path)).read_text("ascii") for path in row["certificates"]]
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"Expected certificates in PEM: {type(error).__name__}.") from None
    return {"roles": ["data"], **row, "certificates": found}


def charter_in_words(charter: Charter, before: Charter | None = None) -> list[str]:
    """Return what somebody who signs has to know, a line for each fact, and what is new in this version."""
    text = charter.text
    lines = [f"Charter {charter.digest} of {words.show(text['consortium'])}, version {text['version']}"]
    for name, row in charter.members.items():
        lines.append(
            f"  {words.show(name)}: {', '.join(row['roles'])}; epsilon {row['epsilon']:g}, delta "
            f"{row['delta']:g} for all plans; {'missing' if name in charter.missing else 'signed'}"
        )
        lines += [f"    certificate {pin}" for pin in charter.pins[name]]
    rules = [name for name in _RULES if name not in ("consortium", "members")]
    lines += [f"  {name} = {words.show(text[name], 2000)}" for name in rules]
    if before is not None:
        old, new = _facts(before), _facts(charter)
        for what in {**old, **new}:
            if old.get(what) != new.get(what):
                said = (words.show(facts[what], 2000) if what in facts else "absent" for facts in (old, new))
                lines.append(f"New: {what}: {' -> '.join(said)}")
    return lines


def _facts(charter: Charter) -> dict[str, Any]:
    """Return every fact of a charter but its number and the one before; a certificate is its fingerprint."""
    facts = {what: charter.text[what] for what in _RULES if what != "members"}
    for name, row in charter.members.items():
        own = {**row, "certificates": list(charter.pins[name])}
        facts |= {f"{words.show(name)}, {word}": own[word] for word in _MEMBER}
    return facts


# What persons of a member decide about plans: every decision is a line of a chain in the state folder.

RULE = "by rule"
_TEXTS = several(lambda text: isinstance(text, str) and bool(text), 1000, 0)
_RULE = {"max_epsilon": number(0.0, 1e6), "estimators": _TEXTS}
APPROVAL: dict[str, words.Check] = {
    "persons": _TEXTS,
    "two_persons_above": number(0.0, 1e6),
    "days": number(1e-3, 10_000),
    "rule": lambda table: bool(words.read_words("[approval.rule]", table, _RULE)),
}


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

    def covers(self, plan: JointPlan) -> bool:
        return bool(self.rule) and (
            plan.certificate.epsilon <= self.rule["max_epsilon"]
            and plan.text["task"].get("estimator") in self.rule["estimators"]
        )


@dataclass(frozen=True)
class Approvals:
    """The chain of decisions on plans.

    **Privacy.** A decision is on the digest of the whole text of a plan: one that is edited afterwards is
    another plan. Who decides is what the process says of itself (``SORDINO_PERSON``, or the account). The
    head of the chain is part of each reservation, so that :meth:`require_heads` finds what was changed or
    dropped of the decisions before the last one of them.
    """

    state: Path
    rules: Rules = field(default_factory=Rules)

    @property
    def story(self) -> Story:
        """All decisions, oldest first, of a chain that holds."""
        return read_transcript(self.state / "decisions.jsonl")

    def require_heads(self, entries: Iterable[Entry]) -> None:
        """Refuse decisions that are not those whose heads stand in the reservations of a ledger."""
        story, line = self.story, 0
        heads = [*(row["previous"][:16] for row in story.lines), story.head[:16]]
        for entry in entries:
            _, found, head = Booked.read(entry.description).name.rpartition(", decisions ")
            if found and head not in heads:
                raise TranscriptError(
                    f"Reservation {entry.sequence} on the ledger was made under decisions that "
                    f"{self.state / 'decisions.jsonl'} does not hold: a line after line {line} was changed "
                    "or dropped later."
                )
            line = heads.index(head) if found else line

    def add(self, plan: JointPlan) -> str:
        """Note that the person at work approves; return who it is."""
        return self._note("approve", plan.digest, self._person())

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

    def _note(self, kind: str, digest: str, who: str) -> str:
        end = datetime.now(UTC) + timedelta(days=self.rules.days)
        facts = {"expires": end.isoformat(timespec="seconds")} if kind == "approve" else {}
        chain = Transcript(private_folder(self.state) / "decisions.jsonl")
        try:
            chain.write(kind, durable=True, plan=digest, person=who, **facts)
        finally:
            chain.close()
        return who

    def require(self, plan: JointPlan, two: float = 1e6) -> None:
        """Refuse a plan that too few have approved; note it where a rule of this member approves it."""
        decided = [line for line in self.story.lines if line.get("plan") == plan.digest]
        last = max((i for i, line in enumerate(decided, start=1) if line["kind"] == "withdraw"), default=0)
        now = datetime.now(UTC)
        standing = {x["person"] for x in decided[last:] if datetime.fromisoformat(x["expires"]) > now}
        persons = standing & set(self.rules.persons) if self.rules.persons else standing - {RULE}
        needed, by_rule = 1, bool(self.rules.rule) and not last
        if persons or by_rule:  # nothing is computed of a plan that nobody here has read
            needed += plan.certificate.epsilon > min(two, self.rules.two_persons_above)
            if needed == 1 and not persons and self.rules.covers(plan):
                if RULE not in standing:
                    self._note("approve", plan.digest, RULE)
                return
        if len(persons) < needed:
            said = (
                f"The plan {plan.digest[:12]} is not approved here: {len(persons)} of {needed} approvals are "
                f"in force, {len(decided)} decision(s) were made. Read it, then: sordino party approve."
            )
            raise PlanRefusedError(said, Code.APPROVAL)
