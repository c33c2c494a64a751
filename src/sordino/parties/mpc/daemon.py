"""`sordino party serve`: wait for proposals, run each approved one in a process of its own."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import ssl
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInputError, SordinoError
from sordino.parties.mpc.approval import Approvals
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.files import open_private, private_folder
from sordino.parties.mpc.partners import check_partners
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.policy import PlanRefusedError
from sordino.parties.mpc.transcript import read_transcript

_COMMAND = [sys.executable, "-c", "from sordino.cli import main; main()", "party", "run"]
MAX_QUESTION = 1 << 20
MAX_WAITING = 64  # proposals kept for their approval


@dataclass
class Daemon:
    """Answers callers whose certificates are known: what they may do is in this member's own settings.

    **Privacy.** A plan runs if a listed proposer sends it *and* this member approved of exactly this text.
    All else is refused before a record or the ledger is touched.
    """

    config: PartyConfig
    path: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, question: Any, caller: str) -> dict[str, Any]:
        """Return the answer to one question of the holder of a certificate, given by its fingerprint."""
        try:
            if not self.config.partners.may_ask(caller):
                raise PlanRefusedError("This caller is neither a member nor a proposer here.")
            if question.get("op") == "run":
                return self._propose(JointPlan.read(question["plan"]), caller)
            if question.get("op") == "status":
                return self._status(str(question["plan"]))
        except (SordinoError, AttributeError, KeyError, TypeError, ValueError) as error:
            return {"status": "refused", "reason": str(error)}
        return {"status": "refused", "reason": "Expected op 'run' or 'status'."}

    def _propose(self, plan: JointPlan, caller: str) -> dict[str, Any]:
        if not self.config.partners.may_propose(caller):
            raise PlanRefusedError("This caller is not among the proposers of this member.")
        check_partners(plan, self.config.partners)
        with self._turn:
            saved = self._kept(plan)
            Approvals(self.config.state).require(plan)
            if any(p.poll() is None for p in self.running.values()):
                return {"status": "refused", "reason": "Another plan is running here."}
            with open_private(saved.with_suffix(".log"), "ab") as log:
                command = [*_COMMAND, "--config", str(self.path), "--plan", str(saved)]
                self.running[plan.digest] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        return {"status": "proposed"}

    def _kept(self, plan: JointPlan) -> Path:
        """Keep a proposal, so that this member can read it and approve."""
        folder = private_folder(private_folder(self.config.state) / "proposals")
        saved = folder / f"{plan.digest}.json"
        if not saved.exists() and len(list(folder.glob("*.json"))) >= MAX_WAITING:
            raise PlanRefusedError(f"{MAX_WAITING} proposals are kept here. Remove old ones first.")
        with open_private(saved, "wb") as file:
            file.write(plan.canonical)
        return saved

    def _status(self, digest: str) -> dict[str, Any]:
        if not (digest.isascii() and digest.isalnum()):
            raise InvalidInputError("Expected the hash of a plan.")
        process = self.running.get(digest)
        ended = process is None or process.poll() is not None
        path = self.config.state / digest / "transcript.jsonl"
        if not path.exists():
            return {"status": ("died" if process is not None else "unknown") if ended else "starting"}
        story = read_transcript(path)
        status = story.status if story.status != "unfinished" else ("died" if ended else "running")
        reason = story.lines[-1].get("reason", "") if story.lines else ""
        return {"status": status, "releases": story.releases, "reason": reason}


def serve(config: PartyConfig, path: Path, ready: threading.Event | None = None) -> None:
    """Answer proposals until interrupted; callers need a certificate that this member's settings know."""
    host, _, port = (config.control or "").rpartition(":")
    if not host or not config.partners.proposers:
        raise InvalidInputError(
            "Expected control = 'host:port' and proposers = [...] in [party] to wait for plans."
        )
    daemon, context = Daemon(config, path), config.credentials.context(server=True)
    with socket.create_server((host, int(port))) as server:
        print(f"{config.name} waits for plans at {host}:{port}.", flush=True)
        if ready is not None:
            ready.set()
        while True:
            raw, _ = server.accept()
            threading.Thread(target=_handle, args=(daemon, context, raw), daemon=True).start()


def _handle(daemon: Daemon, context: ssl.SSLContext, raw: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError), raw:
        raw.settimeout(10)
        with context.wrap_socket(raw, server_side=True) as link, link.makefile("rb") as lines:
            question = json.loads(lines.readline(MAX_QUESTION))
            answer = daemon.answer(question, hashlib.sha256(link.getpeercert(True) or b"").hexdigest())
            link.sendall(json.dumps(answer).encode() + b"\n")
