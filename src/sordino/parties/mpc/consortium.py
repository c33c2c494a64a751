"""The coordinator's side: it makes plans and calls members, and is trusted with nothing: members decide."""

from __future__ import annotations

import hashlib
import json
import socket
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInputError, PartyError
from sordino.parties.mpc.charter import Charter
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.links import Credentials, fingerprint_of
from sordino.parties.mpc.plan import JointPlan, make_plan
from sordino.parties.mpc.tasks import seconds_of
from sordino.parties.words import Code, read_words, shown

_OPTIONAL = ("threshold", "mode", "charter")
END = ("settled", "failed", "refused", "died")
STATUS = (*END, "proposed", "starting", "running", "unknown", "stopped", "out of reach")


def plan_from(path: Path) -> JointPlan:
    """Make the plan of a consortium file."""
    try:
        text = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"Expected a consortium (TOML) at {path}: {type(error).__name__}.") from None
    any_value = {name: lambda _: True for name in ("name", "members", "task", "budget", *_OPTIONAL)}
    optional = {name: any_value.pop(name) for name in _OPTIONAL}
    text = read_words(f"the consortium {path}", text, any_value, optional)
    if not isinstance(text["members"], list) or not all(isinstance(row, dict) for row in text["members"]):
        raise InvalidInputError(f"Expected [[members]] in {path}.")
    members = [_member(path.parent, dict(row)) for row in text["members"]]
    budget = text["budget"]
    if isinstance(budget, dict):
        budget = {"relation": "add-remove", "unit": "record", **budget}
    parts = text["name"], members, text["task"], budget
    charter = Charter.load(path.parent / text["charter"]).digest if "charter" in text else None
    given = {name: text[name] for name in ("threshold", "mode") if name in text}
    return make_plan(*parts, **given, charter=charter)


def _member(base: Path, row: dict[str, Any]) -> dict[str, Any]:
    """Return a member with its fingerprint in place of the path of its certificate."""
    if isinstance(row.get("certificate"), str):
        row["fingerprint"] = fingerprint_of(base / row.pop("certificate"))
    return row


def run_everywhere(plan_path: Path, config: Path, seconds: float | None) -> Iterator[str]:
    """Propose a plan to all members and yield a line whenever one of them changes.

    ``seconds`` to wait; by default as long as a member waits for one message (``work`` in ``[limits]``), or
    three times the work that the plan expects if it is more.
    """
    plan, own = JointPlan.load(plan_path), PartyConfig.load(config)
    credentials = own.credentials
    if seconds is None:
        seconds = own.limits.patience + max(own.limits.work, 3 * seconds_of(plan.coordinates, plan.share))
    members = [_pinned(row, own) for row in plan.text["members"]]
    for member in members:
        answer = ask(member, credentials, {"op": "run", "plan": plan.text})
        yield f"{shown(member['name'])[1:-1]}: {answer.words}"
        if answer.status == "refused":
            name = member["name"]
            raise PartyError(f"{shown(name)[1:-1]} refuses the plan. Nothing was reserved there.", name)
    known: dict[str, str] = {}
    began = time.monotonic()
    deadline = began + seconds
    while not (len(known) == len(plan.members) and all(s in END for s in known.values())):
        if time.monotonic() > deadline:
            raise PartyError(
                f"The plan did not end within {seconds:g} s: {known}. The members go on; ask for the status."
            )
        for member in members:
            try:
                answer = ask(member, credentials, {"op": "status", "plan": plan.digest})
            except PartyError:  # a daemon may be started again: its run goes on from its files
                answer = Answer("out of reach")
            if answer.status != known.get(member["name"]):
                known[member["name"]] = answer.status
                yield _line(member, answer)
        time.sleep(min(10.0, 0.2 + (time.monotonic() - began) / 50))
    if any(s != "settled" for s in known.values()):
        raise PartyError(
            f"The plan was not completed: {known}. What was reserved stays spent where a member had begun to "
            "contribute; `sordino ledger history` says it."
        )


def status_everywhere(plan_path: Path, config: Path) -> Iterator[str]:
    """Yield the state of a plan at every member."""
    plan, own = JointPlan.load(plan_path), PartyConfig.load(config)
    for row in plan.text["members"]:
        member = _pinned(row, own)
        yield _line(member, ask(member, own.credentials, {"op": "status", "plan": plan.digest}))


def _pinned(row: dict[str, Any], own: PartyConfig) -> dict[str, Any]:
    """Return a member with all certificates by which it may be known."""
    return {**row, "pins": {row["fingerprint"], *own.partners.members.get(row["name"], ())}}


def _line(member: dict[str, Any], answer: Answer) -> str:
    return f"{shown(member['name'])[1:-1]}: {answer.words}, {answer.releases} release(s)"


@dataclass(frozen=True)
class Answer:
    """What a member said, read as one of the few things it can say."""

    status: str
    code: Code | None = None
    releases: int = 0

    @property
    def words(self) -> str:
        """The answer for a person."""
        return self.status if self.code is None else f"{self.status} ({self.code.words})"

    @classmethod
    def read(cls, raw: bytes) -> Answer:
        """Read an answer; words that no member uses become "unknown"."""
        said = json.loads(raw)
        if not isinstance(said, dict):
            raise ValueError("an answer is a table")
        status, releases = said.get("status"), said.get("releases")
        code = Code.parse(said["code"]) if said.get("code") else None
        known = isinstance(status, str) and status in STATUS
        return cls(str(status) if known else "unknown", code, releases if type(releases) is int else 0)


def ask(member: dict[str, Any], credentials: Credentials, question: dict[str, Any]) -> Answer:
    """Send one question to a member's control address, by mutual TLS, and return its answer.

    The question goes to nobody but the holder of the certificate that the plan pins for this member.
    """
    name = shown(member["name"])[1:-1]
    host, _, port = str(member.get("control", "")).rpartition(":")
    if not host:
        raise InvalidInputError(f"The plan has no control address for {name}.")
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=10) as raw,
            credentials.context(server=False).wrap_socket(raw) as link,
        ):
            pins = member.get("pins", {member["fingerprint"]})
            if hashlib.sha256(link.getpeercert(True) or b"").hexdigest() not in pins:
                raise PartyError(
                    f"Refused {name} at {host}:{port}: its certificate is not the one that the plan pins.",
                    name,
                )
            link.sendall(json.dumps(question).encode() + b"\n")
            with link.makefile("rb") as lines:
                return Answer.read(lines.readline(1 << 20))
    except (OSError, ValueError, RecursionError) as error:
        raise PartyError(f"{name} does not answer at {host}:{port}: {type(error).__name__}.", name) from None
