"""`sordino party serve`: wait for proposals, run each approved one in a process of its own."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInputError, SordinoError
from sordino.parties.codes import Code, PlanRefusedError, code_of
from sordino.parties.mpc.approval import Approvals
from sordino.parties.mpc.config import PartyConfig
from sordino.parties.mpc.files import open_private, private_folder
from sordino.parties.mpc.partners import check_partners
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.transcript import read_transcript
from sordino.parties.words import shown

_COMMAND = [sys.executable, "-c", "from sordino.cli import main; main()", "party", "run"]
MAX_QUESTION = 1 << 20
MAX_WAITING = 64  # proposals kept for their approval
MAX_CALLERS = 32  # connections at once; the oldest gives way
SECONDS = 10.0  # for a caller's handshake, question and answer together
Callers = dict[ssl.SSLSocket, None]


@dataclass
class Daemon:
    """Answers callers whose certificates are known: what they may do is in this member's own settings.

    **Privacy.** A plan runs if a listed proposer sends it *and* this member approved of exactly this text.
    All else is refused before a record or the ledger is touched.
    """

    config: PartyConfig
    path: Path
    say: Callable[[str], None] = print
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, question: Any, caller: str) -> dict[str, Any]:
        """Return the answer to one question of the holder of a certificate, given by its fingerprint."""
        try:
            if not self.config.partners.may_ask(caller):
                raise PlanRefusedError("The caller is neither a member nor a proposer here.", Code.CALLER)
            if question.get("op") == "run":
                return self._propose(JointPlan.read(question["plan"]), caller)
            if question.get("op") == "status":
                return self._status(str(question["plan"]))
        except (SordinoError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            # The words stay here: they may name a path or a figure. Others hear a code.
            self.say(f"Refused a caller: {shown(str(error), 300)}")
            return _refused(code_of(error, Code.QUESTION))
        except OSError as error:
            self.say(f"A caller had no answer: {type(error).__name__}.")
            return _refused(Code.OWN)
        return _refused(Code.QUESTION)

    def _propose(self, plan: JointPlan, caller: str) -> dict[str, Any]:
        if not self.config.partners.may_propose(caller):
            raise PlanRefusedError("The caller is not among the proposers of this member.", Code.CALLER)
        check_partners(plan, self.config.partners)
        with self._turn:
            saved = self._kept(plan)
            Approvals(self.config.state).require(plan)
            if any(p.poll() is None for p in self.running.values()):
                return _refused(Code.BUSY)
            with open_private(saved.with_suffix(".log"), "ab") as log:
                command = [*_COMMAND, "--config", str(self.path), "--plan", str(saved)]
                self.running[plan.digest] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        return {"status": "proposed"}

    def _kept(self, plan: JointPlan) -> Path:
        """Keep a proposal, so that this member can read it and approve."""
        folder = private_folder(private_folder(self.config.state) / "proposals")
        saved = folder / f"{plan.digest}.json"
        if not saved.exists() and len(list(folder.glob("*.json"))) >= MAX_WAITING:
            said = f"{MAX_WAITING} proposals are kept here. Remove old ones first."
            raise PlanRefusedError(said, Code.BUSY)
        with open_private(saved, "wb") as file:
            file.write(plan.canonical)
        return saved

    def _status(self, digest: str) -> dict[str, Any]:
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise PlanRefusedError("Expected the hash of a plan.", Code.QUESTION)
        process = self.running.get(digest)
        ended = process is None or process.poll() is not None
        path = self.config.state / digest / "transcript.jsonl"
        if not path.exists():
            return {"status": ("died" if process is not None else "unknown") if ended else "starting"}
        story = read_transcript(path)
        status = story.status if story.status != "unfinished" else ("died" if ended else "running")
        code = {} if status == "settled" or not story.lines else {"code": story.lines[-1].get("code", "")}
        return {"status": status, "releases": story.releases, **code}


def serve(config: PartyConfig, path: Path, ready: threading.Event | None = None) -> None:
    """Answer proposals until interrupted; callers need a certificate that this member's settings know."""
    host, _, port = (config.control or "").rpartition(":")
    if not host or not config.partners.proposers:
        raise InvalidInputError(
            "Expected control = 'host:port' and proposers = [...] in [party] to wait for plans."
        )
    daemon, context = Daemon(config, path), config.credentials.context(server=True)
    callers: Callers = {}
    with socket.create_server((host, int(port))) as server:
        print(f"{config.name} waits for plans at {host}:{port}.", flush=True)
        if ready is not None:
            ready.set()
        while True:
            try:
                raw, _ = server.accept()
            except OSError:  # too many files, or a caller that hung up
                time.sleep(0.1)
                continue
            link = context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
            for oldest in list(callers)[: max(0, len(callers) + 1 - MAX_CALLERS)]:
                _hang_up(oldest, callers)
            callers[link] = None
            threading.Thread(target=_handle, args=(daemon, link, callers), daemon=True).start()


def _refused(code: Code) -> dict[str, Any]:
    return {"status": "refused", "code": code.value}


def _hang_up(link: ssl.SSLSocket, callers: Callers) -> None:
    """End a connection, whatever its thread waits for."""
    callers.pop(link, None)
    with contextlib.suppress(OSError):
        socket.socket.shutdown(link, socket.SHUT_RDWR)


def _handle(daemon: Daemon, link: ssl.SSLSocket, callers: Callers) -> None:
    """Answer one question; a caller who sends it drop by drop is cut off all the same."""
    patience = threading.Timer(SECONDS, _hang_up, (link, callers))
    patience.daemon = True
    patience.start()
    try:
        with contextlib.suppress(OSError, ValueError, RecursionError), link:
            link.settimeout(SECONDS)
            link.do_handshake()
            caller = hashlib.sha256(link.getpeercert(True) or b"").hexdigest()
            with link.makefile("rb") as lines:
                answer = daemon.answer(json.loads(lines.readline(MAX_QUESTION)), caller)
            link.sendall(json.dumps(answer).encode() + b"\n")
    finally:
        patience.cancel()
        callers.pop(link, None)
