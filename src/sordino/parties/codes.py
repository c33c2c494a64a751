"""What a member says of a refusal to others: one of a few codes, and nothing of its own."""

from __future__ import annotations

from enum import Enum

from sordino.errors import PartyError, SordinoError


class Code(str, Enum):
    """Why a member does not take part, as the others may hear it.

    **Privacy.** Everything about a member's files, records and ledger is one code, ``OWN`` (a budget that is
    spent has its own: whoever plans with a member has to know it). The words are constants of this file;
    those of an error, which may name a path, a figure or the kind of a record, stay with the member.
    """

    APPROVAL = "approval"
    BUDGET = "budget"
    BUSY = "busy"
    CALLER = "caller"
    MEMBERS = "members"
    OWN = "own"
    PEER = "peer"
    PLAN = "plan"
    POLICY = "policy"
    QUESTION = "question"
    RECIPE = "recipe"
    SPENT = "spent"
    WEIGHTS = "weights"

    @property
    def words(self) -> str:
        """The sentence that a code stands for."""
        return _WORDS[self]

    @classmethod
    def parse(cls, said: object) -> Code:
        """Read what a peer sent; anything else than a code is a reason of its own."""
        return cls(said) if isinstance(said, str) and said in set(cls) else cls.OWN


_WORDS = {
    Code.APPROVAL: "the plan is not approved there",
    Code.BUDGET: "the ledger there does not cover it",
    Code.BUSY: "something else is running or waiting there",
    Code.CALLER: "the settings there do not list this caller for it",
    Code.MEMBERS: "the settings there do not allow these members",
    Code.OWN: "for a reason of its own, which it keeps to itself; ask there",
    Code.PEER: "another member failed or left",
    Code.PLAN: "the plan cannot be certified or run",
    Code.POLICY: "the policy there is stricter than the plan",
    Code.QUESTION: "the question was not understood",
    Code.RECIPE: "another recipe or protection was agreed on",
    Code.SPENT: "what was paid for is spent, make a new plan or run",
    Code.WEIGHTS: "the weights do not fit the model",
}


class PlanRefusedError(SordinoError, RuntimeError):
    """A party does not take part; the message says why, here, and ``code`` is what others may hear."""

    def __init__(self, message: str, code: Code = Code.POLICY) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: BaseException, default: Code = Code.OWN) -> Code:
    """Return what others may hear of an error."""
    if isinstance(error, PartyError):
        return Code.PEER
    found = getattr(error, "code", default)
    return found if isinstance(found, Code) else default
