"""Plans between a coordinator and waiting members: a question and an answer over mutual TLS.

The coordinator makes plans and calls members. It is trusted with nothing: members decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInputError, PartyError, SordinoError
from sordino.parties.mpc.charter import Charter
from sordino.parties.mpc.config import PartyConfig, check_partners
from sordino.parties.mpc.lasting import may_be_open
from sordino.parties.mpc.links import Credentials, accept, fingerprint_of, peer_fingerprint
from sordino.parties.mpc.plan import JointPlan, make_plan, seconds_of
from sordino.parties.mpc.transcript import open_private, private_folder, read_transcript
from sordino.parties.words import DIGEST, Code, PlanRefusedError, code_of, read_toml, show

END = ("settled", "failed", "refused", "died")
STATUS = (*END, "proposed", "starting", "running", "unknown", "stopped", "out of reach")
_COMMAND = [sys.executable, "-c", "from sordino.cli import main; main()", "party", "run"]
MAX_QUESTION = 1 << 20
MAX_WAITING = 64  # proposals kept for their approval
WATCH = 5.0  # seconds between two looks at runs that were stopped
SECONDS = 10.0  # for a caller's handshake, question and answer together


def plan_from(path: Path) -> JointPlan:
    required = ("name", "members", "task", "budget")
    text = read_toml("a consortium", path, required, ("threshold", "mode", "charter", "dropouts"))
    if not isinstance(text["members"], list) or not all(isinstance(row, dict) for row in text["members"]):
        raise InvalidInputError(f"Expected [[members]] in {path}.")
    for row in text["members"]:
        if isinstance(row.get("certificate"), str):
            row["fingerprint"] = fingerprint_of(path.parent / row.pop("certificate"))
    if isinstance(text["budget"], dict):
        text["budget"] = {"relation": "add-remove", "unit": "record", **text["budget"]}
    charter = Charter.load(path.parent / text["charter"]) if "charter" in text else None
    if charter is not None:
        text["charter"] = charter.digest
    facts = [text.pop(name) for name in required]
    made = make_plan(*facts, **text)
    if charter is not None:
        for name in {member.name for member in made.members} & set(charter.members):
            charter.check(made, name, {"epsilon": 0.0, "delta": 0.0})  # what was spent, each knows itself
    return made


def run_everywhere(plan_path: Path, config: Path, seconds: float | None) -> Iterator[str]:
    """Propose a plan to all members and yield a line whenever one changes, for ``seconds`` or as long as a
    member waits for one message (or three times the work that the plan expects, if it is more).
    """
    plan, own = JointPlan.load(plan_path), PartyConfig.load(config)
    if seconds is None:
        seconds = own.limits.patience + max(own.limits.work, 3 * seconds_of(plan.coordinates, plan.share))
    members = {show(row["name"])[1:-1]: _pin(row, own) for row in plan.text["members"]}
    for member in members.values():  # all are there, or nobody starts
        ask(member, own.credentials, {"op": "status", "plan": plan.digest})
    for name, member in members.items():
        answer = ask(member, own.credentials, {"op": "run", "plan": plan.text})
        yield f"{name}: {answer.words}"
        if answer.status == "refused":
            raise PartyError(f"{name} refuses the plan. Nothing was reserved there.", name)
    known, began = dict[str, str](), time.monotonic()
    while not (len(known) == len(members) and all(s in END for s in known.values())):
        if time.monotonic() > began + seconds:
            raise PartyError(
                f"The plan did not end within {seconds:g} s: {known}. The members go on; ask for the status."
            )
        for name, member in members.items():
            answer = _status_of(member, own, plan)
            if answer.status != known.get(name):
                known[name] = answer.status
                yield f"{name}: {answer.words}, {answer.releases} release(s)"
        time.sleep(min(10.0, 0.2 + (time.monotonic() - began) / 50))
    if any(s != "settled" for s in known.values()):
        raise PartyError(
            f"The plan was not completed: {known}. What was reserved stays spent where a member had begun to "
            "contribute; `sordino ledger history` says it."
        )


def status_everywhere(plan_path: Path, config: Path) -> Iterator[str]:
    plan, own = JointPlan.load(plan_path), PartyConfig.load(config)
    for row in plan.text["members"]:
        answer = _status_of(_pin(row, own), own, plan)
        yield f"{show(row['name'])[1:-1]}: {answer.words}, {answer.releases} release(s)"


def _status_of(member: dict[str, Any], own: PartyConfig, plan: JointPlan) -> Answer:
    try:
        return ask(member, own.credentials, {"op": "status", "plan": plan.digest})
    except PartyError:  # a daemon may be started again: its run goes on from its files
        return Answer("out of reach")


def was_opened_elsewhere(plan: JointPlan, own: PartyConfig) -> bool | None:
    """Ask the others whether an answer of a plan that is over was opened; None if not all of them say so."""
    others = [_pin(row, own) for row in plan.text["members"] if row["name"] != own.name]
    said = [_status_of(row, own, plan).sharing if "control" in row else "" for row in others]
    return may_be_open(said, plan.share.threshold + plan.share.dropouts)  # who has left was never ready


def _pin(row: dict[str, Any], own: PartyConfig) -> dict[str, Any]:
    return {**row, "pins": {row["fingerprint"], *own.partners.members.get(row["name"], ())}}


@dataclass(frozen=True)
class Answer:
    """What a member said, read as one of the few things it can say."""

    status: str
    code: Code | None = None
    releases: int = 0
    sharing: str = ""

    @property
    def words(self) -> str:
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
        count, sharing = releases if type(releases) is int else 0, str(said.get("sharing", ""))
        return cls(str(status) if known else "unknown", code, count, sharing)


def ask(member: dict[str, Any], credentials: Credentials, question: dict[str, Any]) -> Answer:
    """Send a question by mutual TLS, to the holder of the pinned certificate alone; return its answer."""
    name = show(member["name"])[1:-1]
    host, _, port = str(member.get("control", "")).rpartition(":")
    if not host:
        raise InvalidInputError(f"The plan has no control address for {name}.")
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=10) as raw,
            credentials.context(server=False).wrap_socket(raw) as link,
        ):
            pins = member.get("pins", {member["fingerprint"]})
            if peer_fingerprint(link) not in pins:
                raise PartyError(
                    f"Refused {name} at {host}:{port}: its certificate is not the one that the plan pins.",
                    name,
                )
            link.sendall(json.dumps(question).encode() + b"\n")
            with link.makefile("rb") as lines:
                if raw_answer := lines.readline(1 << 20):
                    return Answer.read(raw_answer)
                raise ConnectionResetError
    except (OSError, ValueError, RecursionError) as error:
        why = getattr(error, "verify_message", "") or type(error).__name__
        if type(error) in (ConnectionResetError, BrokenPipeError, ssl.SSLError, ssl.SSLEOFError):
            why = "it hung up, as if it did not know this certificate; look at that and at both clocks"
        raise PartyError(f"{name} does not answer at {host}:{port}: {why}.", name) from None


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
    told: list[dict[str, str]] = field(default_factory=list)
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
            raise PlanRefusedError("Expected a plan to run, or a question for its status.", Code.QUESTION)
        except (SordinoError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            # The words stay here: they may name a path or a figure. Others hear a code.
            code = code_of(error, Code.QUESTION)
            self.log("refused", code=code.value, caller=caller[:16], words=show(str(error), 300))
        except OSError as error:
            code = Code.OWN
            self.log("no answer", caller=caller[:16], words=type(error).__name__)
        return {"status": "refused", "code": code.value}

    def log(self, event: str, **facts: str) -> None:
        """Write a line of JSON: the time, who, what happened, and facts of which none is a record's."""
        self.counts[event] += 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.say(json.dumps({"at": now, "party": self.config.name, "event": event, **facts}))

    def go_on(self) -> None:
        """Start the runs again that this member has booked and that were stopped before their end."""
        for path in sorted(self.config.state.glob("*/transcript.jsonl")):
            try:
                story, plan = read_transcript(path), path.with_name("plan.json")
                stopped = story.is_spent and story.status == "unfinished" and plan.exists()
                if stopped and not self._is_at_work(path.parent.name):
                    PartyConfig.load(self.path).require_approval(JointPlan.load(plan))  # as they are now
                    self._start(path.parent.name, plan)
            except SordinoError as error:
                facts = {"plan": path.parent.name, "words": show(str(error), 300)}
                if facts not in self.told:  # once, not at every look
                    self.told.append(facts)
                    self.log("not resumed", **facts)

    def end_doubts(self) -> None:
        """End runs that stopped before this member sent a share, where the others know what was opened."""
        for path in sorted(self.config.state.glob("*/transcript.jsonl")):
            with contextlib.suppress(SordinoError):
                if read_transcript(path).is_in_doubt and not self._is_at_work(path.parent.name):
                    plan = path.with_name("plan.json")
                    if was_opened_elsewhere(JointPlan.load(plan), self.config) is not None:
                        self._start(path.parent.name, plan)

    def _start(self, digest: str, plan: Path) -> None:
        folder = private_folder(private_folder(self.config.state) / "proposals")
        with open_private(folder / f"{digest}.log", "ab") as log:
            command = [*_COMMAND, "--config", str(self.path), "--plan", str(plan)]
            self.running[digest] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self.log("started", plan=digest)

    def _is_at_work(self, digest: str) -> bool:
        """Tell whether a process is on a run: one of ours, which may not hold its lock yet, or any."""
        process = self.running.get(digest)
        if process is not None and process.poll() is None:
            return True
        try:
            with (self.config.state / digest / "lock").open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False

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
        if caller not in self.config.partners.proposers:
            raise PlanRefusedError("The caller is not among the proposers of this member.", Code.CALLER)
        check_partners(plan, self.config.partners)
        with self._turn:
            saved = self._keep(plan)
            self.config.require_approval(plan)
            if self._is_at_work(plan.digest):
                return {"status": "proposed"}  # it was proposed before, and is at work
            if read_transcript(self.config.state / plan.digest / "transcript.jsonl").status == "settled":
                raise PlanRefusedError("The plan was run here before, to its end.", Code.SPENT)
            if any(p.poll() is None for p in self.running.values()):
                raise PlanRefusedError("Another run is at work here.", Code.BUSY)
            self._start(plan.digest, saved)
        return {"status": "proposed"}

    def _keep(self, plan: JointPlan) -> Path:
        folder = private_folder(private_folder(self.config.state) / "proposals")
        saved = folder / f"{plan.digest}.json"
        if not saved.exists() and len(list(folder.glob("*.json"))) >= MAX_WAITING:
            said = f"{MAX_WAITING} proposals are kept here. Remove old ones first."
            raise PlanRefusedError(said, Code.BUSY)
        with open_private(saved, "wb") as file:
            file.write(plan.canonical)
        return saved

    def _status(self, digest: str) -> dict[str, Any]:
        if not re.fullmatch(DIGEST, digest):
            raise PlanRefusedError("Expected the hash of a plan.", Code.QUESTION)
        ended = not self._is_at_work(digest)
        path = self.config.state / digest / "transcript.jsonl"
        if not path.exists():
            return {"status": ("died" if digest in self.running else "unknown") if ended else "starting"}
        story = read_transcript(path)
        stopped = "stopped" if story.is_spent else "died"
        status = story.status if story.status != "unfinished" else (stopped if ended else "running")
        code = {} if status == "settled" or not story.lines else {"code": story.lines[-1].get("code", "")}
        return {"status": status, "releases": story.releases, "sharing": story.sharing, **code}


def serve(config: PartyConfig, path: Path, ready: threading.Event | None = None) -> None:
    """Answer proposals until interrupted; callers need a certificate that this member's settings know."""
    host, _, port = (config.control or "").rpartition(":")
    if not host or not config.partners.proposers:
        raise InvalidInputError(
            "Expected control = 'host:port' and proposers = [...] in [party] to wait for plans."
        )
    daemon = Daemon(config, path, partial(print, flush=True))
    context = config.credentials.context(server=True)
    if config.health:
        _tell_health(daemon, config.health)
    threading.Thread(target=_watch, args=(daemon,), daemon=True).start()
    with socket.create_server((host, int(port))) as server:
        print(f"{config.name} waits for plans at {host}:{port}.", flush=True)
        if ready is not None:
            ready.set()
        asyncio.run(accept(server, partial(_hear, daemon, context)))


async def _hear(daemon: Daemon, context: ssl.SSLContext, raw: socket.socket) -> None:
    """Answer one question; a caller who sends it drop by drop is cut off all the same."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(MAX_QUESTION)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport: Any = None
    try:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            async with asyncio.timeout(SECONDS):
                transport, _ = await loop.connect_accepted_socket(
                    lambda: protocol, raw, ssl=context, ssl_handshake_timeout=SECONDS
                )
                caller = peer_fingerprint(transport.get_extra_info("ssl_object"))
                question = json.loads(await reader.readline())
                answer = await asyncio.to_thread(daemon.answer, question, caller)
                writer = asyncio.StreamWriter(transport, protocol, reader, loop)
                writer.write(json.dumps(answer).encode() + b"\n")
                writer.close()
                await writer.wait_closed()
    finally:
        raw.close() if transport is None else transport.abort()


def _watch(daemon: Daemon) -> None:
    for turn in itertools.count():
        with daemon._turn:
            daemon.go_on()
        if turn % 12 == 0:
            daemon.end_doubts()
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
