"""The coordinator's side: it makes plans and calls members, and is trusted with nothing: members decide."""

from __future__ import annotations

import json
import socket
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInputError, PartyError
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.links import Credentials, fingerprint_of
from sordino.parties.mpc.plan import JointPlan, make_plan

END = ("settled", "failed", "refused", "died")


def plan_from(path: Path) -> JointPlan:
    """Make the plan of a consortium file."""
    try:
        text = tomllib.loads(path.read_text("utf-8"))
        members = [_member(path.parent, dict(row)) for row in text["members"]]
        parts = text["name"], members, text["task"], _budget(text["budget"])
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInputError(
            f"Expected name, members, task and budget in {path}: {type(error).__name__} {error}."
        ) from None
    return make_plan(*parts, threshold=text.get("threshold", 1), mode=text.get("mode", "noise-inside"))


def _budget(text: dict[str, Any]) -> dict[str, Any]:
    return {"relation": "add-remove", "unit": "record", **text}


def _member(base: Path, row: dict[str, Any]) -> dict[str, Any]:
    """Return a member with its fingerprint in place of the path of its certificate."""
    if "certificate" in row:
        row["fingerprint"] = fingerprint_of(base / row.pop("certificate"))
    keys = {"name", "host", "port", "records", "fingerprint"}
    if not keys <= set(row) <= keys | {"control"}:
        raise ValueError(f"a member needs {sorted(keys)}, got {sorted(row)}")
    return row


def run_everywhere(plan_path: Path, config: Path, seconds: float) -> Iterator[str]:
    """Propose a plan to all members and yield a line whenever one of them changes."""
    plan, credentials = JointPlan.load(plan_path), PartyConfig.load(config).credentials
    for member in plan.text["members"]:
        answer = ask(member, credentials, {"op": "run", "plan": plan.text})
        reason = f" ({answer['reason']})" if answer.get("reason") else ""
        yield f"{member['name']}: {answer.get('status')}{reason}"
        if answer.get("status") == "refused":
            raise PartyError(
                f"{member['name']} refuses the plan{reason}. Nothing was reserved.", member["name"]
            )
    known: dict[str, str] = {}
    deadline = time.monotonic() + seconds
    while not (len(known) == len(plan.members) and all(s in END for s in known.values())):
        if time.monotonic() > deadline:
            raise PartyError(f"The plan did not end within {seconds:g} s: {known}.")
        for member in plan.text["members"]:
            answer = ask(member, credentials, {"op": "status", "plan": plan.digest})
            if answer.get("status") != known.get(member["name"]):
                known[member["name"]] = str(answer.get("status"))
                yield _line(member, answer)
        time.sleep(0.2)
    if any(s != "settled" for s in known.values()):
        raise PartyError(f"The plan was not completed: {known}. What was reserved stays spent.")


def status_everywhere(plan_path: Path, config: Path) -> Iterator[str]:
    """Yield the state of a plan at every member."""
    plan, credentials = JointPlan.load(plan_path), PartyConfig.load(config).credentials
    for member in plan.text["members"]:
        yield _line(member, ask(member, credentials, {"op": "status", "plan": plan.digest}))


def _line(member: dict[str, Any], answer: dict[str, Any]) -> str:
    reason = f" ({answer['reason']})" if answer.get("reason") else ""
    return f"{member['name']}: {answer.get('status')}, {answer.get('releases', 0)} release(s){reason}"


def ask(member: dict[str, Any], credentials: Credentials, question: dict[str, Any]) -> dict[str, Any]:
    """Send one question to a member's control address, by mutual TLS, and return its answer."""
    host, _, port = str(member.get("control", "")).rpartition(":")
    if not host:
        raise InvalidInputError(f"The plan has no control address for {member['name']}.")
    try:
        with (
            socket.create_connection((host, int(port)), timeout=10) as raw,
            credentials.context(server=False).wrap_socket(raw) as link,
        ):
            link.sendall(json.dumps(question).encode() + b"\n")
            with link.makefile("rb") as lines:
                answer = json.loads(lines.readline(1 << 20))
    except (OSError, ValueError) as error:
        raise PartyError(
            f"{member['name']} does not answer at {host}:{port}: {type(error).__name__}.", member["name"]
        ) from None
    return dict(answer)
