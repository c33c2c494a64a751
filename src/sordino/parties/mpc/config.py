"""`party.toml`: everything that one member decides for itself."""

from __future__ import annotations

import re
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from sordino.accounting.codec import canonical as canonical_event
from sordino.accounting.codec import decode
from sordino.errors import BudgetExceededError, CalibrationError, InvalidInputError, UnsupportedError
from sordino.execute.parties import Mode
from sordino.ledger import Ledger
from sordino.ledger.account import charge_of
from sordino.parties.mpc.approval import Approvals, Rules
from sordino.parties.mpc.charter import Charter
from sordino.parties.mpc.links import Credentials, Limits, fingerprint_of
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.shamir import check_threshold
from sordino.parties.mpc.transcript import read_transcript
from sordino.parties.words import Code, PlanRefusedError, number, read_words, whole
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

    def may_propose(self, fingerprint: str) -> bool:
        """Tell whether plans are taken from the holder of this certificate."""
        return fingerprint in self.proposers

    def may_ask(self, fingerprint: str) -> bool:
        """Tell whether the holder of this certificate may hear how a plan is going."""
        known = {pin for pins in self.members.values() for pin in pins} | set(self.proposers)
        return bool(fingerprint) and fingerprint in known


def check_partners(plan: JointPlan, partners: Partners) -> None:
    """Refuse a plan of others than one's own list, or with too many who may collude."""
    check_threshold(len(plan.members), plan.share.threshold)
    names = [m.name for m in plan.members]
    prints = [m.fingerprint for m in plan.members]
    if names.count(partners.name) != 1:
        raise _refusal(f"Expected {partners.name!r} once among the plan's parties, got {names}.")
    if len(set(names)) < len(names) or len(set(prints)) < len(prints):
        raise _refusal("Two parties of the plan have the same name or the same certificate.")
    if prints[names.index(partners.name)] not in partners.members[partners.name]:
        raise _refusal(f"The plan pins another certificate for {partners.name!r} than mine.")
    others = [(n, f) for n, f in zip(names, prints) if n != partners.name]
    for name, fingerprint in others:
        if fingerprint not in partners.members.get(name, ()):
            raise _refusal(
                f"{name!r} with the certificate {fingerprint[:16]}... is not in [members] of "
                f"{partners.name!r}. Whom to run with is its own decision."
            )
    trusted = [name for name, _ in others if name in partners.trusted]
    if len(trusted) < partners.min_trusted:
        raise _refusal(
            f"Expected at least {partners.min_trusted} trusted members (min_trusted), the plan has {trusted}."
        )
    suspects, threshold = sorted({n for n, _ in others} - set(trusted)), plan.share.threshold
    if len(suspects) > threshold:
        raise _refusal(
            f"{suspects} are not trusted and may pool what they see: more than the plan's threshold of "
            f"{threshold}."
        )


def _refusal(message: str) -> PlanRefusedError:
    return PlanRefusedError(message, Code.MEMBERS)


def pins_in(given: object) -> tuple[str, ...]:
    """Read one or two SHA-256 fingerprints, with or without the colons of openssl."""
    texts = given if isinstance(given, (list, tuple)) else [given]
    found = tuple(str(text).replace(":", "").lower() for text in texts)
    if not 1 <= len(found) <= 2 or not all(re.fullmatch("[0-9a-f]{64}", pin) for pin in found):
        raise InvalidInputError(
            "Expected a name of [members], or the SHA-256 fingerprint of a certificate (64 hexadecimal "
            f"digits; a list of two while it is exchanged), got {str(given)[:80]!r}."
        )
    return found


_LIMITS = {
    "max_epsilon": number(0.0, 1e6),
    "max_delta": number(0.0, 1.0),
    "slack_delta": number(0.0, 1.0),
    "min_parties": whole(1, 10**6),
    "min_threshold": whole(1, 10**6),
    "modes": lambda modes: all(mode in {m.value for m in Mode} for mode in modes),
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

    def __post_init__(self) -> None:
        read_words("[policy]", asdict(self), _LIMITS)


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
    _at_least("parties", len(plan.members), policy.min_parties)
    _at_least("threshold", plan.share.threshold, policy.min_threshold)
    if Mode.parse(plan.text["mode"]).value not in policy.modes:
        raise PlanRefusedError(f"The plan's mode {plan.text['mode']!r} is not among {list(policy.modes)}.")
    event = plan.kernel_plan.event()
    if canonical_event(event) != canonical_event(decode(plan.text["noise"]["event"])):
        stated = "The event that the plan states is not the one of its task and its noise."
        raise PlanRefusedError(stated, Code.PLAN)
    slack = plan.slack
    if spent_slack + slack > policy.slack_delta:
        raise PlanRefusedError(
            f"The noise of all plans would be {spent_slack + slack:.3g} from the ideal one, above "
            f"slack_delta = {policy.slack_delta:g}."
        )
    try:
        promise = plan.promised(ledger, dataset_id)
    except CalibrationError as error:
        raise PlanRefusedError(f"More than what the plan claims: {error}", Code.PLAN) from None
    _at_most("epsilon", promise.certificate.epsilon, policy.max_epsilon, "max_epsilon")
    _at_most("delta", plan.ask.delta, policy.max_delta, "max_delta")
    try:
        plan.check_feasible()
    except (UnsupportedError, InvalidInputError) as error:
        raise PlanRefusedError(f"The plan cannot be run to its end: {error}", Code.PLAN) from None
    return promise


def check_budget(ledger: Ledger, dataset_id: str, promise: Promise) -> None:
    """Refuse a plan that the ledger would refuse, without booking it."""
    account, plan, found = ledger.account(dataset_id), promise.plan, promise.certificate
    account.policy.require(plan.relation, plan.unit)
    charge = charge_of(plan.event(), plan.relation, account.filter.orders, (found.epsilon, found.delta))
    try:
        account.book(charge)
    except BudgetExceededError as error:
        raise PlanRefusedError(str(error), Code.BUDGET) from None


@dataclass(frozen=True)
class Costs:
    """What the runs of a member have cost so far, failed ones included: sums over its transcripts."""

    epsilon: float = 0.0
    delta: float = 0.0
    slack: float = 0.0


def spent_of(state: Path, besides: str = "") -> Costs:
    """Return what the runs in a state folder cost together, but for the plan ``besides``."""
    paths = [path for path in state.glob("*/transcript.jsonl") if path.parent.name != besides]
    booked = [story.find("reserved") for story in map(read_transcript, paths) if story.is_spent]
    names = [f.name for f in fields(Costs)]
    return Costs(*(sum(float(line.get(name, 0.0)) for line in booked) for name in names))


def transcript_path(state: Path, plan: JointPlan) -> Path:
    """Return the place of the transcript, or refuse a plan that ended here after it was reserved.

    A replay would open the same questions with new noise. A run that was stopped goes on from its
    transcript. An attempt that ended before anything was reserved, or whose reservation was given back,
    opened nothing and may be repeated; its transcript is kept beside the new one.
    """
    path = state / plan.digest / "transcript.jsonl"
    story = read_transcript(path) if path.exists() else None
    if story is not None and not (story.is_spent and story.status == "unfinished"):
        if story.is_spent:
            said = f"The plan {plan.digest[:12]} was run here before. Make a new plan: its nonce differs."
            raise PlanRefusedError(said, Code.SPENT)
        path.rename(path.with_name(f"attempt-{len(list(path.parent.glob('attempt-*')))}.jsonl"))
    return path


def _at_least(what: str, value: int, bound: int) -> None:
    if value < bound:
        raise PlanRefusedError(f"Expected {what} >= {bound} by the policy, the plan has {value}.")


def _at_most(what: str, value: float, bound: float, name: str) -> None:
    if not value <= bound * (1 + 1e-9):
        raise PlanRefusedError(f"Expected {what} <= {bound:g} ({name}), the plan has {value:.6g}.")


SECTIONS: dict[str, set[str] | None] = {
    "party": {"name", "state", "listen", "control", "proposers", "charter", "health"},
    "tls": {"certificate", "key", "authorities"},
    "data": {"path", "dataset"},
    "ledger": {"path"},
    "policy": {*_LIMITS, "trusted", "min_trusted"},
    "limits": {"connect", "message", "work", "patience"},
    "members": None,  # any names
    "approval": {"persons", "two_persons_above", "days", "rule"},
}
OPTIONAL = {"limits", "approval"}


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
        """The decisions on plans."""
        return Approvals(self.state, self.rules)

    def check_charter(self, plan: JointPlan) -> None:
        """Refuse a plan that is not within the charter, or that names one where there is none."""
        if self.charter is not None:
            spent = spent_of(self.state, plan.digest)
            self.charter.check(plan, self.name, (spent.epsilon, spent.delta))
        elif "charter" in plan.text:
            raise PlanRefusedError("The plan names a charter, my settings have none.", Code.CHARTER)

    def require_approval(self, plan: JointPlan) -> None:
        """Refuse a plan beyond the charter, or that too few persons approved of."""
        self.check_charter(plan)
        common = {} if self.charter is None else {"two": self.charter.text["two_persons_above"]}
        self.approvals.require(plan, **common)

    @classmethod
    def load(cls, path: Path) -> PartyConfig:
        """Read and check a file."""
        try:
            text = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidInputError(f"Expected a party's settings at {path}: {error}") from None
        party, base = text.get("party", {}), path.parent
        charter = Charter.load(base / party["charter"]).require_in_force() if "charter" in party else None
        if charter is not None:
            text.setdefault("members", dict(charter.pins))
        _check_words(path, text, charter is not None)
        data, tls = text["data"], text["tls"]
        ledger = str(text["ledger"]["path"])
        authorities = base / tls["authorities"] if charter is None else None
        pinned = "" if charter is None else charter.authorities
        credentials = Credentials(base / tls["certificate"], base / tls["key"], authorities, pinned)
        given = {k: v for k, v in text["policy"].items() if k not in ("trusted", "min_trusted")}
        modes = {"modes": tuple(given["modes"])} if "modes" in given else {}
        return cls(
            name=str(party["name"]),
            state=base / party["state"],
            data=base / data["path"],
            dataset=str(data["dataset"]),
            ledger=ledger if "://" in ledger else str(base / ledger),
            policy=Policy(**{**given, **modes}),
            partners=_partners(text, credentials, charter),
            credentials=credentials,
            limits=Limits(**text.get("limits", {})),
            listen=party.get("listen"),
            control=party.get("control"),
            health=party.get("health"),
            charter=charter,
            rules=Rules.read(text.get("approval", {})),
        )


def _partners(text: Mapping[str, Any], credentials: Credentials, charter: Charter | None) -> Partners:
    policy, party = text["policy"], text["party"]
    proposers = list(party.get("proposers", ()))
    if charter is not None:
        if dict(text["members"]) != charter.pins:
            raise InvalidInputError("Expected no [members] beside a charter: it names them.")
        proposers += [name for name, row in charter.members.items() if "proposer" in row["roles"]]
    return Partners(
        name=str(party["name"]),
        fingerprint=fingerprint_of(credentials.certificate),
        members={str(name): value for name, value in text["members"].items()},
        trusted=tuple(policy["trusted"]),
        min_trusted=int(policy.get("min_trusted", 1)),
        proposers=tuple(proposers),
    )


def _check_words(path: Path, text: Mapping[str, Any], charter: bool) -> None:
    missing = sorted(set(SECTIONS) - set(text) - OPTIONAL)
    unknown = sorted(set(text) - set(SECTIONS))
    closed = {section: words for section, words in SECTIONS.items() if words is not None}
    unknown += [f"{s}.{w}" for s, words in closed.items() for w in sorted(set(text.get(s, ())) - words)]
    if missing or unknown:
        raise InvalidInputError(
            f"{path}: missing sections {missing}, unknown words {unknown}. [members] names whom this member "
            "runs with, with the fingerprints of their certificates."
        )
    own_files = {"certificate", "key"} | (set() if charter else {"authorities"})
    required: dict[str, Any] = {"party": ("name", "state"), "tls": own_files, "data": closed["data"]}
    required |= {"ledger": ("path",), "policy": ("max_epsilon", "max_delta", "trusted")}
    for section, words in required.items():
        absent = sorted(w for w in words if w not in text[section])
        if absent:
            raise InvalidInputError(f"{path}: the section [{section}] needs {absent}.")


def load_records(path: Path, classes: Sequence[Any] = ()) -> tuple[Any, Any]:
    """Return a matrix and its targets: an ``.npz`` with X and y, or a CSV whose last column is y.

    The last column of a CSV is text if the declared ``classes`` are texts.
    """
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return arrays["X"], arrays.get("y")
        if not any(isinstance(label, str) for label in classes):
            table = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
            return table[:, :-1], table[:, -1]
        with path.open(encoding="utf-8") as lines:
            columns = [line.count(",") for _, line in zip(range(2), lines)][-1]
        matrix = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2, usecols=range(columns))
        return matrix, np.loadtxt(path, delimiter=",", skiprows=1, ndmin=1, usecols=columns, dtype=str)
    except (OSError, ValueError, KeyError, IndexError, zipfile.BadZipFile):
        # Which error it was may be decided by one record, and so may its words.
        raise InvalidInputError(
            f"Expected an .npz with X and y, or a CSV with a header, at {path}."
        ) from None
