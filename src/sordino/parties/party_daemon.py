"""`sordino party` without a plan: wait for proposals, run each in a process of its own."""

from __future__ import annotations

import contextlib
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
from sordino.parties.mpc_plan import JointPlan
from sordino.parties.party_config import PartyConfig
from sordino.parties.transcript import read_transcript

_COMMAND = [sys.executable, "-c", "from sordino.cli import main; main()", "party"]
MAX_QUESTION = 1 << 20


@dataclass
class Daemon:
    """Answers a coordinator: a proposal starts a process that checks the plan by itself."""

    config: PartyConfig
    path: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, question: Any) -> dict[str, Any]:
        """Return the answer to one question of a coordinator."""
        try:
            if question.get("op") == "run":
                return self._propose(JointPlan.read(question["plan"]))
            if question.get("op") == "status":
                return self._status(str(question["plan"]))
        except (SordinoError, AttributeError, KeyError, TypeError) as error:
            return {"status": "refused", "reason": str(error)}
        return {"status": "refused", "reason": "Expected op 'run' or 'status'."}

    def _propose(self, plan: JointPlan) -> dict[str, Any]:
        with self._turn:
            if any(p.poll() is None for p in self.running.values()):
                return {"status": "refused", "reason": "Another plan is running here."}
            folder = self.config.state / "proposals"
            folder.mkdir(parents=True, exist_ok=True)
            saved = folder / f"{plan.digest}.json"
            plan.save(saved)
            with (folder / f"{plan.digest}.log").open("ab") as log:
                command = [*_COMMAND, "--config", str(self.path), "--plan", str(saved)]
                self.running[plan.digest] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        return {"status": "proposed"}

    def _status(self, digest: str) -> dict[str, Any]:
        if not digest.isalnum():
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
    """Answer proposals until interrupted; callers need a certificate that the authorities signed."""
    host, _, port = (config.control or "").rpartition(":")
    if not host:
        raise InvalidInputError("Expected control = 'host:port' in [party] to wait for plans.")
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
            link.sendall(json.dumps(daemon.answer(question)).encode() + b"\n")
