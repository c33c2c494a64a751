"""What a party checks by itself before it contributes anything."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from sordino.accounting.codec import canonical as canonical_event
from sordino.accounting.codec import decode
from sordino.errors import BudgetExceededError, CalibrationError, InvalidInputError, UnsupportedError
from sordino.execute.parties import Mode
from sordino.ledger import Ledger
from sordino.ledger.charge import charge_of
from sordino.parties.codes import Code, PlanRefusedError
from sordino.parties.mpc.mpyc_engine import check_threshold
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.transcript import read_transcript
from sordino.parties.words import number, read_words, whole
from sordino.runs import Promise

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
        what :class:`sordino.parties.mpc.partners.Partners` demands.
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
    :func:`sordino.parties.mpc.partners.check_partners`.
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
    _at_most("delta", plan.public.delta, policy.max_delta, "max_delta")
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


def check_fresh(state: Path, plan: JointPlan) -> Path:
    """Return the place of the transcript, or refuse a plan that was reserved here before.

    A replay would open the same questions with new noise. An attempt that ended before anything was
    reserved, or whose reservation was given back, opened nothing and may be repeated; its transcript is kept
    beside the new one.
    """
    path = state / plan.digest / "transcript.jsonl"
    if path.exists():
        if read_transcript(path).is_spent:
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
