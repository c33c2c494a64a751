"""Plain data of a plan, read word by word: known words only, each of its kind and in its range."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Self

from sordino.errors import InvalidInputError, PartyError, SordinoError


class Code(str, Enum):
    """Why a member does not take part, as the others may hear it.

    **Privacy.** Everything about a member's files, records and ledger is one code, ``OWN`` (a budget that is
    spent has its own: whoever plans with a member has to know it). The words are constants of this file;
    those of an error, which may name a path, a figure or the kind of a record, stay with the member.
    """

    words: str

    def __new__(cls, code: str, words: str) -> Self:
        made = str.__new__(cls, code)
        made._value_, made.words = code, words
        return made

    APPROVAL = "approval", "the plan is not approved there"
    BUDGET = "budget", "the ledger there does not cover it"
    BUSY = "busy", "something else is running or waiting there"
    CHARTER = "charter", "the charter in force there does not allow it"
    CALLER = "caller", "the settings there do not list this caller for it"
    MEMBERS = "members", "the settings there do not allow these members"
    OWN = "own", "for a reason of its own, which it keeps to itself; ask there"
    PEER = "peer", "another member failed or left"
    PLAN = "plan", "the plan cannot be certified or run"
    POLICY = "policy", "the policy there is stricter than the plan"
    QUESTION = "question", "the question was not understood"
    RECIPE = "recipe", "another recipe or protection was agreed on"
    SPENT = "spent", "what was paid for is spent, make a new plan or run"
    WEIGHTS = "weights", "the weights do not fit the model"

    @classmethod
    def parse(cls, said: object) -> Code:
        """Read what a peer sent; anything else than a code is a reason of its own."""
        return next((code for code in cls if code == said), cls.OWN)


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


Check = Callable[[Any], bool]
LARGEST = 2**53  # whole numbers up to here are exact in every part of the computation
_SHOWN = 60


def shown(value: Any, most: int = _SHOWN) -> str:
    """Return plain data as one line of printable ASCII, whatever is in it."""
    text = ascii(value)
    return text if len(text) <= most else f"{text[:most]}..."


def whole(low: int, high: int) -> Check:
    """Return a check for whole numbers of a range."""
    return lambda value: type(value) is int and low <= value <= high


def number(low: float, high: float) -> Check:
    """Return a check for finite numbers of a range."""
    return lambda value: type(value) in (int, float) and math.isfinite(value) and low <= value <= high


def matching(pattern: str) -> Check:
    """Return a check for texts of a form."""
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def one_of(*allowed: str) -> Check:
    """Return a check for one of some words."""
    return lambda value: isinstance(value, str) and value in allowed


def flag(value: Any) -> bool:
    """Tell whether this is true or false."""
    return isinstance(value, bool)


def mapping(value: Any) -> bool:
    """Tell whether this is a table with short names."""
    return isinstance(value, dict) and all(isinstance(k, str) and len(k) <= _SHOWN for k in value)


def labels(value: Any) -> bool:
    """Tell whether these are at least two different class labels, all numbers or all texts."""
    if not isinstance(value, list) or not 2 <= len(value) <= 1000 or len(set(map(repr, value))) < len(value):
        return False
    texts = all(isinstance(v, str) and 0 < len(v) <= 200 for v in value)
    return texts or all(map(number(-LARGEST, LARGEST), value))


def read_words(
    what: str, text: Any, required: Mapping[str, Check], optional: Mapping[str, Check] | None = None
) -> dict[str, Any]:
    """Return a table whose words are all known, or refuse it and name the first word that is wrong."""
    known = {**required, **(optional or {})}
    if not mapping(text):
        raise InvalidInputError(f"Expected {what} to be a table of names.")
    unknown, missing = sorted(set(text) - set(known)), sorted(set(required) - set(text))
    if unknown or missing:
        raise InvalidInputError(
            f"Expected {what} with the words {sorted(known)}; unknown: {shown(unknown)}, missing: {missing}."
        )
    for name, value in text.items():
        if not known[name](value):
            raise InvalidInputError(
                f"Expected {what} with a {name} of the right kind and range, got {shown(value)}."
            )
    return dict(text)
