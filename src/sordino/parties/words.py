"""Plain data of a plan, read word by word: known words only, each of its kind and in its range."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
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

    APPROVAL = "approval", "the plan is not approved there, or not by enough persons, or not any more"
    BUDGET = "budget", "the ledger there does not cover it"
    BUSY = "busy", "something else is running or waiting there"
    CHARTER = "charter", "the charter in force there does not allow it"
    CALLER = "caller", "the settings there do not list this caller for it"
    MEMBERS = "members", "the settings there do not allow these members"
    OWN = "own", "for a reason of its own, which it keeps to itself; ask there"
    PEER = "peer", "another member refused, failed or left"
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
    if isinstance(error, PartyError):
        return Code.PEER
    found = getattr(error, "code", default)
    return found if isinstance(found, Code) else default


Check = Callable[[Any], bool]
LARGEST = 2**53  # whole numbers up to here are exact in every part of the computation
DIGEST = "[0-9a-f]{64}"  # a SHA-256


def show(value: Any, most: int = 60) -> str:
    """Return plain data as one line of printable ASCII, whatever is in it."""
    text = ascii(value)
    return text if len(text) <= most else f"{text[:most]}..."


def canonical(text: Mapping[str, Any]) -> bytes:
    """Return plain data as the one JSON text of it, which is hashed and signed."""
    return json.dumps(text, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def whole(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def number(low: float, high: float) -> Check:
    return lambda value: type(value) in (int, float) and low <= value <= high  # no number is below NaN


def matching(pattern: str) -> Check:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


class OneOf(tuple[str, ...]):
    """A check that can list what it allows."""

    def __call__(self, value: Any) -> bool:
        return isinstance(value, str) and value in self


def one_of(*allowed: str) -> Check:
    return OneOf(allowed)


def flag(value: Any) -> bool:
    return isinstance(value, bool)


def mapping(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(k, str) and len(k) <= 60 for k in value)


def several(check: Check, most: int, least: int = 1) -> Check:
    return lambda value: (
        isinstance(value, list)
        and least <= len(value) <= most
        and all(map(check, value))
        and len(set(map(repr, value))) == len(value)
    )


def labels(value: Any) -> bool:
    return any(
        several(check, 1000, 2)(value) for check in (matching("(?s:.{1,200})"), number(-LARGEST, LARGEST))
    )


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
            f"Expected {what} with the words {sorted(known)}; unknown: {show(unknown)}, missing: {missing}."
        )
    for name, value in text.items():
        if not (check := known[name])(value):
            wanted = f"out of {list(check)}" if isinstance(check, OneOf) else "of the right kind and range"
            if isinstance(value, list) and len(set(map(repr, value))) < len(value):
                wanted += ", nothing twice"
            raise InvalidInputError(f"Expected {what} with a {name} {wanted}, got {show(value)}.")
    return dict(text)


def read_toml(what: str, path: Path, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Any]:
    """Return the table of a file whose words are all known; whoever uses a value checks it."""
    try:
        text = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"Expected {what} (TOML) at {path}: {type(error).__name__}.") from None
    known, more = ({name: lambda _: True for name in names} for names in (required, optional))
    return read_words(f"{what} {path}", text, known, more)
