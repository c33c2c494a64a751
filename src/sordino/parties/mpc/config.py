"""`party.toml`: everything that one member decides for itself, and what it refuses by it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sordino.accounting.trees import canonical as canonical_event
from sordino.accounting.trees import decode
from sordino.errors import BudgetExceededError, CalibrationError, InvalidInputError, UnsupportedError
from sordino.execute.parties import Mode
from sordino.ledger import Ledger, Status
from sordino.ledger.account import charge_of
from sordino.parties import words
from sordino.parties.mpc.charter import APPROVAL, Approvals, Charter, Rules
from sordino.parties.mpc.links import Credentials, Limits, fingerprint_of
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.shamir import check_threshold
from sordino.parties.mpc.transcript import Story, TranscriptError, read_transcript
from sordino.parties.words import Check, Code, PlanRefusedError, number, one_of, several, whole
from sordino.runs import Promise

# Whom a member runs with, from its own settings: a coordinator cannot add anybody.


@dataclass(frozen=True)
class Partners:
    """A member's own list of the others.

    Parameters
    ----------
    name, fingerprint : this member's own.
    members : the others by name, with the SHA-256 of their certificates: one, or two while a certificate is
        exchanged for another. A plan with anybody else is refused.
    trusted : those of them who will not hand what they see to another member.
    min_trusted : how many of the trusted must take part.
    proposers : who may propose plans to the waiting process, by name or fingerprint.

    **Privacy.** ``threshold`` members can pool what they see without learning more than the opened answers.
    So everybody in a plan who is not trusted counts as one who may, and they must be at most ``threshold``.
    """

    name: str
    fingerprint: str
    members: Mapping[str, Any]
    trusted: tuple[str, ...]
    min_trusted: int = 1
    proposers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        pinned = {name: pins_in(given) for name, given in self.members.items()}
        pinned.setdefault(self.name, (self.fingerprint,))
        object.__setattr__(self, "members", pinned)
        others = [name for name in pinned if name != self.name]
        if self.fingerprint not in pinned[self.name]:
            raise InvalidInputError(f"[members] pins another certificate for {self.name!r} than its own.")
        prints = [pin for pins in pinned.values() for pin in pins]
        if len(set(prints)) < len(prints):
            raise InvalidInputError("Two members of [members] have the same fingerprint.")
        if not set(self.trusted) <= set(others):
            unknown = sorted(set(self.trusted) - set(others))
            raise InvalidInputError(f"Expected trusted members out of {sorted(others)}, got {unknown}.")
        if not 1 <= self.min_trusted <= len(set(self.trusted)):
            raise InvalidInputError(
                f"Expected min_trusted in [1, {len(set(self.trusted))}], the number of trusted members, got "
                f"{self.min_trusted}."
            )
        proposers = [pinned[p] if p in pinned else pins_in(p) for p in self.proposers]
        object.__setattr__(self, "proposers", tuple(pin for pins in proposers for pin in pins))

    def may_ask(self, fingerprint: str) -> bool:
        """Tell whether the holder of this certificate may hear how a plan is going."""
        known = {pin for pins in self.members.values() for pin in pins} | set(self.proposers)
        return bool(fingerprint) and fingerprint in known


def check_partners(plan: JointPlan, partners: Partners) -> None:
    """Refuse a plan of others than one's own list, or with too many who may collude."""
    check_threshold(len(plan.members), plan.share.threshold)
    names, prints = [m.name for m in plan.members], [m.fingerprint for m in plan.members]
    own, threshold = partners.members[partners.name], plan.share.threshold
    others = [(n, f) for n, f in zip(names, prints) if n != partners.name]
    strangers = [(n, f) for n, f in others if f not in partners.members.get(n, ())]
    trusted = [name for name, _ in others if name in partners.trusted]
    suspects = sorted({name for name, _ in others} - set(trusted))
    objections = {
        f"Expected {partners.name!r} once among the plan's parties, got {names}.": (
            names.count(partners.name) != 1
        ),
        "Two parties of the plan have the same name or the same certificate.": (
            len(set(names)) < len(names) or len(set(prints)) < len(prints)
        ),
        f"The plan pins another certificate for {partners.name!r} than mine.": (
            not any(pin in own for name, pin in zip(names, prints) if name == partners.name)
        ),
        **{
            f"{name!r} with the certificate {pin[:16]}... is not in [members] of {partners.name!r}. Whom to "
            "run with is its own decision.": True
            for name, pin in strangers
        },
        f"Expected at least {partners.min_trusted} trusted members (min_trusted), the plan has {trusted}.": (
            len(trusted) < partners.min_trusted
        ),
        f"{suspects} are not trusted and may pool what they see: more than the plan's threshold of "
        f"{threshold}.": len(suspects) > threshold,
    }
    for said, refused in objections.items():
        if refused:
            raise PlanRefusedError(said, Code.MEMBERS)


def pins_in(given: object) -> tuple[str, ...]:
    """Read one or two SHA-256 fingerprints, with or without the colons of openssl."""
    texts = given if isinstance(given, (list, tuple)) else [given]
    found = tuple(str(text).replace(":", "").lower() for text in texts)
    if not 1 <= len(found) <= 2 or not all(re.fullmatch(words.DIGEST, pin) for pin in found):
        raise InvalidInputError(
            "Expected a name of [members], or the SHA-256 fingerprint of a certificate (64 hexadecimal "
            f"digits; a list of two while it is exchanged), got {str(given)[:80]!r}."
        )
    return found


_POLICY: dict[str, Check] = {
    "max_epsilon": number(0.0, 1e6),
    "max_delta": number(0.0, 1.0),
    "slack_delta": number(0.0, 1.0),
    "min_parties": whole(1, 10**6),
    "min_threshold": whole(1, 10**6),
    "modes": several(one_of(*(mode.value for mode in Mode)), len(Mode)),
}


@dataclass(frozen=True)
class Policy:
    """The limits of one party, from its own configuration.

    Parameters
    ----------
    max_epsilon, max_delta : of one plan.
    slack_delta : what all plans together may add to delta by the distance of their noise from a Gaussian;
        it is beside the delta of the ledger.
    min_parties, min_threshold : how many must take part, and how many colluders must learn nothing; beside
        what :class:`sordino.parties.mpc.config.Partners` demands.
    modes : where the noise may come from.
    """

    max_epsilon: float
    max_delta: float
    slack_delta: float = 1e-6
    min_parties: int = 3
    min_threshold: int = 1
    modes: tuple[str, ...] = ("noise-inside", "secure-aggregation")


def check_plan(
    plan: JointPlan,
    policy: Policy,
    spent_slack: float,
    ledger: Ledger | None = None,
    dataset_id: str | None = None,
) -> Promise:
    """Return the promise of a plan, certified here and for this ledger, or refuse.

    Nothing that the plan says about its own privacy is believed: the releases are rebuilt from the task, the
    event and its epsilon are computed again. Who its members are is for
    :func:`sordino.parties.mpc.config.check_partners`.
    """
    check_threshold(len(plan.members), plan.share.threshold)
    least = {
        "parties": (len(plan.members) - plan.share.dropouts, policy.min_parties),  # who stay at least
        "threshold": (plan.share.threshold, policy.min_threshold),
    }
    for what, (value, bound) in least.items():
        if value < bound:
            raise PlanRefusedError(f"Expected {what} >= {bound} by the policy, the plan has {value}.")
    if plan.text["mode"] not in policy.modes:
        raise PlanRefusedError(f"The plan's mode {plan.text['mode']!r} is not among {list(policy.modes)}.")
    event = plan.kernel_plan.event()
    if canonical_event(event) != canonical_event(decode(plan.text["noise"]["event"])):
        stated = "The event that the plan states is not the one of its task and its noise."
        raise PlanRefusedError(stated, Code.PLAN)
    try:
        promise = plan.promise(ledger, dataset_id)
    except CalibrationError as error:
        raise PlanRefusedError(f"More than what the plan claims: {error}", Code.PLAN) from None
    most = {
        "max_epsilon": (promise.certificate.epsilon, policy.max_epsilon),
        "max_delta": (plan.ask.delta, policy.max_delta),
        "slack_delta": (spent_slack + plan.slack, policy.slack_delta),  # of the noise of all plans
    }
    for what, (found, limit) in most.items():
        if not found <= limit * (1 + 1e-9):
            raise PlanRefusedError(f"Expected at most {what} = {limit:g}, the plan makes it {found:.6g}.")
    try:
        plan.check_feasible()
    except (UnsupportedError, InvalidInputError) as error:
        raise PlanRefusedError(f"The plan cannot be run to its end: {error}", Code.PLAN) from None
    return promise


def check_own(config: PartyConfig, plan: JointPlan) -> None:
    """Refuse a plan that this member ran before, with one address for two things, or beyond its ledger."""
    story = read_transcript(config.state / plan.digest / "transcript.jsonl")
    if story.is_spent and story.status != "unfinished":
        raise PlanRefusedError("The plan was run here before. Make a new one.", Code.SPENT)
    row = next(row for row in plan.text["members"] if row["name"] == config.name)
    if f"{row['host']}:{row['port']}" in (row.get("control"), config.control):
        raise PlanRefusedError(f"The plan has port {row['port']} for the run and for control.", Code.PLAN)
    with Ledger.open(config.ledger, create=False) as ledger:
        spent = sum_spending(config.state, plan.digest)["slack"]
        promise = check_plan(plan, config.policy, spent, ledger, config.dataset)
        if not story.is_spent:
            check_budget(ledger, config.dataset, promise)


def check_budget(ledger: Ledger, dataset_id: str, promise: Promise) -> None:
    account, plan, found = ledger.account(dataset_id), promise.plan, promise.certificate
    account.policy.require(plan.relation, plan.unit)
    charge = charge_of(plan.event(), plan.relation, account.filter.orders, (found.epsilon, found.delta))
    try:
        account.book(charge)
    except BudgetExceededError as error:
        raise PlanRefusedError(str(error), Code.BUDGET) from None


def sum_spending(state: Path, besides: str = "") -> dict[str, float]:
    """Return the epsilon, delta and slack of a member's runs together, failed ones too, but for one plan."""
    paths = [path for path in state.glob("*/transcript.jsonl") if path.parent.name != besides]
    booked = [story.find("reserved") for story in map(read_transcript, paths) if story.is_spent]
    names = ("epsilon", "delta", "slack")
    return {name: sum(float(line.get(name, 0.0)) for line in booked) for name in names}


def check_booked(config: PartyConfig, stories: Iterable[Story]) -> None:
    """Refuse a ledger that has no reservation, or gave it back, for a plan whose answers were opened."""
    with Ledger.open(config.ledger, create=False) as ledger:
        entries = ledger.history(config.dataset)
    booked = {entry.plan_digest for entry in entries if entry.status is not Status.RETURNED}
    for plan in {story.find("plan").get("digest", "") for story in stories if story.releases} - booked:
        raise TranscriptError(
            f"Answers of the plan {plan[:12]} were opened, and the ledger of {config.name!r} has no "
            "reservation for it, or gave it back: it counts too little."
        )


def transcript_path(state: Path, plan: JointPlan) -> Path:
    """Return the place of the transcript, or refuse a plan that ended here after it was reserved.

    A replay would open the same questions with new noise. A run that was stopped goes on from its
    transcript. An attempt that ended before anything was reserved, or whose reservation was given back,
    opened nothing and may be repeated; its transcript is kept beside the new one.
    """
    path = state / plan.digest / "transcript.jsonl"
    story = read_transcript(path)
    if story.lines and not (story.is_spent and story.status == "unfinished"):
        if story.is_spent:
            said = f"The plan {plan.digest[:12]} was run here before. Make a new plan: its nonce differs."
            raise PlanRefusedError(said, Code.SPENT)
        path.rename(path.with_name(f"attempt-{len(list(path.parent.glob('attempt-*')))}.jsonl"))
    return path


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


_LIST: Check = lambda value: isinstance(value, list) and all(map(_text, value))  # noqa: E731
SECTIONS: dict[str, tuple[dict[str, Check], dict[str, Check]]] = {
    "party": (
        dict.fromkeys(("name", "state"), _text),
        {**dict.fromkeys(("listen", "control", "charter", "health"), _text), "proposers": _LIST},
    ),
    "tls": (dict.fromkeys(("certificate", "key"), _text), {"authorities": _text}),
    "data": (dict.fromkeys(("path", "dataset"), _text), {}),
    "ledger": ({"path": _text}, {}),
    "policy": (
        {"max_epsilon": _POLICY["max_epsilon"], "max_delta": _POLICY["max_delta"], "trusted": _LIST},
        {**_POLICY, "min_trusted": whole(1, 10**6)},
    ),
    "limits": (
        {},
        {**dict.fromkeys(("connect", "message", "work"), number(1e-3, 1e6)), "patience": number(0.0, 1e6)},
    ),
    "approval": ({}, APPROVAL),
}
"""The words of each section: those that must be there, and those that may. ``[members]`` has any names."""


@dataclass(frozen=True)
class PartyConfig:
    """A member's own settings; paths are relative to the file."""

    name: str
    state: Path
    data: Path
    dataset: str
    ledger: str
    policy: Policy
    partners: Partners
    credentials: Credentials
    limits: Limits
    listen: str | None = None
    control: str | None = None
    health: str | None = None
    charter: Charter | None = None
    rules: Rules = field(default_factory=Rules)

    @property
    def approvals(self) -> Approvals:
        return Approvals(self.state, self.rules)

    def check_charter(self, plan: JointPlan) -> None:
        if self.charter is not None:
            self.charter.check(plan, self.name, sum_spending(self.state, plan.digest))
        elif "charter" in plan.text:
            raise PlanRefusedError("The plan names a charter, my settings have none.", Code.CHARTER)

    def require_approval(self, plan: JointPlan) -> None:
        self.check_charter(plan)
        common = {} if self.charter is None else {"two": self.charter.text["two_persons_above"]}
        self.approvals.require(plan, **common)

    @classmethod
    def load(cls, path: Path) -> PartyConfig:
        optional = {"members", "limits", "approval"}
        text = words.read_toml("a party's settings", path, set(SECTIONS) - optional, optional)
        for section, (required, more) in SECTIONS.items():
            words.read_words(f"[{section}] of {path}", text.get(section, {}), required, more)
        base, party, tls, policy = path.parent, text["party"], text["tls"], dict(text["policy"])
        charter = Charter.load(base / party["charter"]).require_in_force() if "charter" in party else None
        missing = "members" not in text or "authorities" not in tls
        if missing if charter is None else "members" in text:
            raise InvalidInputError(
                f"Expected [members] and authorities in [tls] of {path}, or a charter instead of both. "
                "[members] names whom this member runs with, with the fingerprints of their certificates."
            )
        proposers, members = list(party.get("proposers", ())), text.get("members", {})
        authorities, pinned = base / tls.get("authorities", ""), ""
        if charter is not None:
            authorities, pinned, members = None, charter.authorities, charter.pins
            proposers += [name for name, row in charter.members.items() if "proposer" in row["roles"]]
        credentials = Credentials(base / tls["certificate"], base / tls["key"], authorities, pinned)
        trust = tuple(policy.pop("trusted")), policy.pop("min_trusted", 1)
        ledger = text["ledger"]["path"]
        return cls(
            name=party["name"],
            state=base / party["state"],
            data=base / text["data"]["path"],
            dataset=text["data"]["dataset"],
            ledger=ledger if "://" in ledger else str(base / ledger),
            policy=Policy(**policy),
            partners=Partners(
                party["name"], fingerprint_of(credentials.certificate), members, *trust, tuple(proposers)
            ),
            credentials=credentials,
            limits=Limits(**text.get("limits", {})),
            charter=charter,
            rules=Rules(**text.get("approval", {})),
            **{name: party[name] for name in ("listen", "control", "health") if name in party},
        )
