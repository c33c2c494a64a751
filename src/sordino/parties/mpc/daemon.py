"""The process of a member that waits for plans, runs those that were approved, and goes on after a stop."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInputError, SordinoError
from sordino.parties.mpc.config import PartyConfig, check_partners
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.transcript import open_private, private_folder, read_transcript
from sordino.parties.words import Code, PlanRefusedError, code_of, shown

_COMMAND = [sys.executable, "-c", "from sordino.cli import main; main()", "party", "run"]
MAX_QUESTION = 1 << 20
MAX_WAITING = 64  # proposals kept for their approval
MAX_CALLERS = 32  # connections at once; the oldest gives way
WATCH = 5.0  # seconds between two looks at runs that were stopped
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
    counts: Counter[str] = field(default_factory=Counter)
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
            code = code_of(error, Code.QUESTION)
            self.log("refused", code=code.value, caller=caller[:16], words=shown(str(error), 300))
            return _refused(code)
        except OSError as error:
            self.log("no answer", caller=caller[:16], words=type(error).__name__)
            return _refused(Code.OWN)
        return _refused(Code.QUESTION)

    def log(self, event: str, **facts: str) -> None:
        """Write a line of JSON: the time, who, what happened, and facts of which none is a record's."""
        self.counts[event] += 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.say(json.dumps({"at": now, "party": self.config.name, "event": event, **facts}))

    def go_on(self) -> None:
        """Start the runs again that this member has booked and that were stopped before their end."""
        for path in sorted(self.config.state.glob("*/transcript.jsonl")):
            try:
                story = read_transcript(path)
                stopped = story.is_spent and story.status == "unfinished" and not _is_locked(path.parent)
                if stopped and path.with_name("plan.json").exists():
                    self._start(path.parent.name, path.with_name("plan.json"))
            except SordinoError as error:
                self.log("not resumed", plan=path.parent.name, words=shown(str(error), 300))

    def _start(self, digest: str, plan: Path) -> None:
        folder = private_folder(private_folder(self.config.state) / "proposals")
        with open_private(folder / f"{digest}.log", "ab") as log:
            command = [*_COMMAND, "--config", str(self.path), "--plan", str(plan)]
            self.running[digest] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self.log("started", plan=digest)

    def metrics(self) -> str:
        """Return counts for a monitor (Prometheus text); none depends on a record."""
        stories = [read_transcript(p) for p in sorted(self.config.state.glob("*/transcript.jsonl"))]
        runs = Counter(story.status for story in stories)
        lines = [f'sordino_party_runs{{status="{s}"}} {n}' for s, n in sorted(runs.items())]
        lines += [f'sordino_party_events_total{{event="{e}"}} {n}' for e, n in sorted(self.counts.items())]
        waiting = len(list((self.config.state / "proposals").glob("*.json")))
        alive = sum(p.poll() is None for p in self.running.values())
        lines += [f"sordino_party_releases_total {sum(story.releases for story in stories)}"]
        lines += [f"sordino_party_proposals {waiting}", f"sordino_party_running {alive}"]
        return "\n".join(lines) + "\n"

    def _propose(self, plan: JointPlan, caller: str) -> dict[str, Any]:
        if not self.config.partners.may_propose(caller):
            raise PlanRefusedError("The caller is not among the proposers of this member.", Code.CALLER)
        check_partners(plan, self.config.partners)
        with self._turn:
            saved = self._kept(plan)
            self.config.require_approval(plan)
            process = self.running.get(plan.digest)
            if (process and process.poll() is None) or _is_locked(self.config.state / plan.digest):
                return {"status": "proposed"}  # it was proposed before, and is at work
            if any(p.poll() is None for p in self.running.values()):
                return _refused(Code.BUSY)
            self._start(plan.digest, saved)
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
        ended = (process is None or process.poll() is not None) and not _is_locked(self.config.state / digest)
        path = self.config.state / digest / "transcript.jsonl"
        if not path.exists():
            return {"status": ("died" if process is not None else "unknown") if ended else "starting"}
        story = read_transcript(path)
        stopped = "stopped" if story.is_spent else "died"
        status = story.status if story.status != "unfinished" else (stopped if ended else "running")
        code = {} if status == "settled" or not story.lines else {"code": story.lines[-1].get("code", "")}
        return {"status": status, "releases": story.releases, **code}


def serve(config: PartyConfig, path: Path, ready: threading.Event | None = None) -> None:
    """Answer proposals until interrupted; callers need a certificate that this member's settings know."""
    host, _, port = (config.control or "").rpartition(":")
    if not host or not config.partners.proposers:
        raise InvalidInputError(
            "Expected control = 'host:port' and proposers = [...] in [party] to wait for plans."
        )
    daemon, context = (
        Daemon(config, path, partial(print, flush=True)),
        config.credentials.context(server=True),
    )
    if config.health:
        _tell_health(daemon, config.health)
    threading.Thread(target=_watch, args=(daemon,), daemon=True).start()
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


def _is_locked(folder: Path) -> bool:
    """Tell whether a process is at work on the run of a folder."""
    try:
        with (folder / "lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _watch(daemon: Daemon) -> None:
    while True:
        with daemon._turn:
            daemon.go_on()
        time.sleep(WATCH)


def _tell_health(daemon: Daemon, address: str) -> None:
    """Answer ``/health`` and ``/metrics`` on an address of this machine, to whoever can reach it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            texts = {"/health": lambda: "ok\n", "/metrics": daemon.metrics}
            text = texts[self.path]().encode() if self.path in texts else b""
            self.send_response(200 if text else 404)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words: Any) -> None:
            """Say nothing of who asks."""

    host, _, port = address.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


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
