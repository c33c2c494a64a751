"""The charter of a consortium: who its members are and what may be asked of them, signed by all of them."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInputError
from sordino.execute.parties import Mode
from sordino.parties import words
from sordino.parties.mpc.keys import fingerprint, has_signed, sign
from sordino.parties.mpc.plan import MAX_EPSILON, MAX_MEMBERS, TEXT, JointPlan, canonical
from sordino.parties.mpc.tasks import ESTIMATORS, MAX_FEATURES
from sordino.parties.words import Code, PlanRefusedError

FORMAT = 1
ROLES = ("data", "proposer")
_DIGEST = "[0-9a-f]{64}"


def _several(check: words.Check, most: int) -> words.Check:
    """Return a check for a list of different things that each pass a check."""
    return lambda value: (
        isinstance(value, list)
        and 1 <= len(value) <= most
        and all(map(check, value))
        and len(set(value)) == len(value)
    )


def _ranges(value: Any) -> bool:
    each = words.number(-words.LARGEST, words.LARGEST)
    return words.mapping(value) and all(
        isinstance(r, list) and len(r) == 2 and all(map(each, r)) and r[0] <= r[1] for r in value.values()
    )


def _is_date(value: Any) -> bool:
    try:
        return isinstance(value, str) and date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def _is_certificate(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(value) < 20_000 and bool(fingerprint(value))
    except ValueError:
        return False


_RULES: dict[str, words.Check] = {
    "consortium": TEXT,
    "expires": _is_date,
    "threshold": words.whole(1, MAX_MEMBERS),
    "min_parties": words.whole(3, MAX_MEMBERS),
    "modes": _several(words.one_of(*(mode.value for mode in Mode)), len(Mode)),
    "estimators": _several(words.one_of(*ESTIMATORS), len(ESTIMATORS)),
    "max_epsilon": words.number(1e-9, MAX_EPSILON),
    "max_delta": words.number(1e-300, 0.5),
    "max_features": words.whole(1, MAX_FEATURES),
    "two_persons_above": words.number(0.0, MAX_EPSILON),
    "ranges": _ranges,
    "members": lambda rows: isinstance(rows, list) and 3 <= len(rows) <= MAX_MEMBERS,
}
_CHARTER = _RULES | {
    "format": words.whole(FORMAT, FORMAT),
    "version": words.whole(1, 10**6),
    "previous": words.matching(f"({_DIGEST})?"),
}
_MEMBER: dict[str, words.Check] = {
    "name": TEXT,
    "certificates": _several(_is_certificate, 2),  # two while a certificate is exchanged for another
    "roles": _several(words.one_of(*ROLES), len(ROLES)),
    "epsilon": words.number(0.0, 1e6),
    "delta": words.number(0.0, 1.0),
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
        """The text as it is signed."""
        return b"sordino charter " + canonical(self.text)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of what is signed: plans name it."""
        return hashlib.sha256(self.canonical).hexdigest()

    @cached_property
    def members(self) -> dict[str, Mapping[str, Any]]:
        """The rows of the members by name."""
        return {row["name"]: row for row in self.text["members"]}

    @cached_property
    def pins(self) -> dict[str, tuple[str, ...]]:
        """The fingerprints of each member's certificates."""
        return {
            name: tuple(fingerprint(pem) for pem in row["certificates"]) for name, row in self.members.items()
        }

    @property
    def authorities(self) -> str:
        """All certificates: whoever has another one does not get through the handshake."""
        return "\n".join(pem.strip() for row in self.members.values() for pem in row["certificates"])

    @property
    def missing(self) -> list[str]:
        """The members without a valid signature."""
        return [name for name in self.members if not self._is_signed_by(name)]

    def _is_signed_by(self, name: str) -> bool:
        signature = str(self.signatures.get(name, ""))
        rows = self.members[name]["certificates"]
        return any(has_signed(certificate, self.canonical, signature) for certificate in rows)

    def require_in_force(self) -> Charter:
        """Refuse a charter that somebody has not signed, or that has expired."""
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

    def check(self, plan: JointPlan, member: str, spent: tuple[float, float]) -> None:
        """Refuse a plan beyond this charter; ``spent`` is what plans of it have cost the member so far."""
        self.require_in_force()
        for said in self._objections(plan, member, spent):
            raise PlanRefusedError(said, Code.CHARTER)

    def _objections(self, plan: JointPlan, member: str, spent: tuple[float, float]) -> Iterator[str]:
        text, rules, task = plan.text, self.text, plan.text["task"]
        named = str(text.get("charter"))
        if named != self.digest or text["consortium"] != rules["consortium"]:
            yield f"The plan is under the charter {named[:12]}, in force is {self.digest[:12]}."
        yield from self._strangers(plan)
        yield from self._excesses(plan, member, spent)
        if task.get("estimator") not in rules["estimators"]:
            yield f"Expected an estimator out of {rules['estimators']}."
        if text["mode"] not in rules["modes"]:
            yield f"Expected a mode out of {rules['modes']}, the plan has {text['mode']!r}."
        if plan.share.threshold < rules["threshold"] or len(plan.members) < rules["min_parties"]:
            yield f"Expected {rules['min_parties']} parties and a threshold of {rules['threshold']} at least."

    def _strangers(self, plan: JointPlan) -> Iterator[str]:
        for row in plan.text["members"]:
            if row["fingerprint"] not in self.pins.get(row["name"], ()):
                yield f"{row['name']!r} with that certificate is no member of the charter."
            elif "data" not in self.members[row["name"]]["roles"]:
                yield f"{row['name']!r} has no role 'data' in the charter."

    def _excesses(self, plan: JointPlan, member: str, spent: tuple[float, float]) -> Iterator[str]:
        rules, task = self.text, plan.text["task"]
        own, ask = self.members[member], plan.ask
        bounds = {
            "epsilon": (ask.epsilon, rules["max_epsilon"]),
            "delta": (ask.delta, rules["max_delta"]),
            "features": (task["features"], rules["max_features"]),
            "epsilon of all plans": (spent[0] + ask.epsilon, own["epsilon"]),
            "delta of all plans": (spent[1] + ask.delta, own["delta"]),
        }
        for what, (value, bound) in bounds.items():
            if not value <= bound * (1 + 1e-9):
                yield f"Expected {what} <= {bound:g} by the charter, the plan makes it {value:.6g}."
        for name, (low, high) in rules["ranges"].items():
            value = task.get("params", {}).get(name, low)
            if not (isinstance(value, (int, float)) and low <= value <= high):
                yield f"Expected {name} in [{low:g}, {high:g}] by the charter."

    def require_follows(self, before: Charter | None) -> None:
        """Refuse a version that does not name the one before."""
        expected = ("", 1) if before is None else (before.digest, int(before.text["version"]) + 1)
        if (self.text["previous"], self.text["version"]) != expected:
            raise InvalidInputError(
                f"Expected version {expected[1]} after {expected[0][:12] or 'none'}, got version "
                f"{self.text['version']} after {self.text['previous'][:12] or 'none'}."
            )

    def save(self, path: Path) -> None:
        """Write text and signatures."""
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
        return cls(_checked(document["charter"]), document["signatures"])


def _checked(text: Any) -> Mapping[str, Any]:
    text = words.read_words("a charter", text, _CHARTER)
    rows = [words.read_words("a member of the charter", row, _MEMBER) for row in text["members"]]
    names = [row["name"] for row in rows]
    prints = [fingerprint(pem) for row in rows for pem in row["certificates"]]
    if len(set(names)) < len(names) or len(set(prints)) < len(prints):
        raise InvalidInputError("Two members of the charter have the same name or certificate.")
    return json.loads(canonical(text)) if text else {}


def proposal(path: Path, before: Charter | None) -> Charter:
    """Make the charter that a file (TOML) describes, as the version after ``before``."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"Expected a charter (TOML) at {path}: {type(error).__name__}.") from None
    any_value = {name: lambda _: True for name in _RULES}
    optional = {name: any_value.pop(name) for name in _DEFAULTS}
    given = {**_DEFAULTS, **words.read_words(f"the charter {path}", given, any_value, optional)}
    rows = given["members"] if isinstance(given["members"], list) else []
    given["members"] = [_with_certificates(path.parent, row) for row in rows]
    version = 1 if before is None else int(before.text["version"]) + 1
    facts = {"format": FORMAT, "version": version, "previous": "" if before is None else before.digest}
    given["expires"] = str(given["expires"])
    return Charter(_checked({**given, **facts}))


def _with_certificates(base: Path, row: Any) -> Any:
    """Return a member with its certificates in place of their paths."""
    if not isinstance(row, dict) or not isinstance(row.get("certificates"), list):
        return row
    try:
        found = [(base / str(path)).read_text("ascii") for path in row["certificates"]]
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"Expected certificates in PEM: {type(error).__name__}.") from None
    return {"roles": ["data"], **row, "certificates": found}


def in_words(charter: Charter, before: Charter | None = None) -> list[str]:
    """Return what somebody who signs has to know, a line for each fact, and what is new in this version."""
    text = charter.text
    lines = [f"Charter {charter.digest} of {words.shown(text['consortium'])}, version {text['version']}"]
    for name, row in charter.members.items():
        lines.append(
            f"  {words.shown(name)}: {', '.join(row['roles'])}; epsilon {row['epsilon']:g}, delta "
            f"{row['delta']:g} for all plans; {'missing' if name in charter.missing else 'signed'}"
        )
        lines += [f"    certificate {pin}" for pin in charter.pins[name]]
    rules = [name for name in _RULES if name not in ("consortium", "members")]
    lines += [f"  {name} = {words.shown(text[name], 2000)}" for name in rules]
    if before is not None:
        gone, come = (sorted(set(a.pins) - set(b.pins)) for a, b in ((before, charter), (charter, before)))
        changed = [n for n in charter.pins if n in before.pins and charter.pins[n] != before.pins[n]]
        new = [name for name in rules if before.text[name] != text[name]]
        news = (("leave", gone), ("join", come), ("exchange certificates", changed), ("other rules", new))
        lines += [f"New: {what}: {words.shown(found, 2000)}" for what, found in news if found]
    return lines
