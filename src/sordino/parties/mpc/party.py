"""One member's part of a joint run: check, agree, reserve, contribute, settle, and write it all down."""

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sordino.accounting import Certificate
from sordino.errors import InvalidInputError, PartyError, SordinoError
from sordino.execute import LocalExecutor
from sordino.execute.parties import Draw, PartiesExecutor
from sordino.execute.parties.engine import Lattice
from sordino.kernel import SparseVector
from sordino.kernel.noise import fresh_noise
from sordino.ledger import Ledger
from sordino.parties.mpc.config import (
    PartyConfig,
    check_budget,
    check_fresh,
    check_partners,
    check_plan,
    load_records,
)
from sordino.parties.mpc.plan import Approvals, JointPlan
from sordino.parties.mpc.shamir import ShamirEngine
from sordino.parties.mpc.transcript import (
    Transcript,
    commitment,
    digest_of,
    open_private,
    private_folder,
    read_transcript,
)
from sordino.parties.words import Code, PlanRefusedError, code_of, shown
from sordino.runs import Promise, Run

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


@dataclass(frozen=True)
class Outcome:
    """The fitted model, which holds its report, what it guarantees, and where the transcript is."""

    model: Any
    certificate: Certificate
    transcript: Path
    bytes_sent: int


@dataclass
class PartyRun:
    """One run of a plan at one member."""

    config: PartyConfig
    plan: JointPlan
    say: Callable[[str], None] = print

    def run(self) -> Outcome:
        """Take part; raise ``PlanRefusedError`` or ``PartyError`` with who and what.

        The order is the guarantee: who takes part and that this member approved of it is checked before
        anybody is called or a record is read, nothing is shared before every party's ledger holds the
        reservation of the whole plan, and a reservation is given back only if nothing was asked under it.
        """
        check_partners(self.plan, self.config.partners)
        Approvals(self.config.state).require(self.plan)
        with contextlib.ExitStack() as stack:
            return self._run(*self._judge(stack))

    def _run(self, verdict: SordinoError | None, checked: _Checked | None) -> Outcome:
        index = [m.name for m in self.plan.members].index(self.config.name)
        transcript = Transcript(check_fresh(self.config.state, self.plan))
        transcript.write("plan", digest=self.plan.digest, durable=True)
        engine = ShamirEngine(
            self.plan.members,
            index,
            self.plan.share.threshold,
            self.config.credentials,
            self.config.limits,
            self.config.listen,
        )
        try:
            engine.connect()
            self.say(f"Connected with {len(self.plan.members) - 1} parties.")
            return self._together(engine, index, transcript, verdict, checked)
        except BaseException as error:
            kind = "refused" if isinstance(error, PlanRefusedError) else "failed"
            transcript.write(kind, durable=True, reason=_reason(error), code=code_of(error).value)
            raise
        finally:
            engine.close()
            transcript.close()

    def _judge(self, stack: contextlib.ExitStack) -> tuple[SordinoError | None, _Checked | None]:
        """Return the reason to refuse, or nothing and what was checked; nothing is booked yet."""
        config = self.config
        try:
            ledger = stack.enter_context(Ledger.open(config.ledger, create=False))
            promise = check_plan(self.plan, config.policy, spent_slack(config.state), ledger, config.dataset)
            check_budget(ledger, config.dataset, promise)
            noise = fresh_noise()
            salt = noise.integers(256, 32).astype(np.uint8).tobytes()
            return None, _Checked(promise, load_local(config, self.plan), salt)
        except SordinoError as error:
            return error, None

    def _together(
        self,
        engine: ShamirEngine,
        index: int,
        transcript: Transcript,
        verdict: SordinoError | None,
        checked: _Checked | None,
    ) -> Outcome:
        committed = "" if checked is None else commitment(checked.arrays, checked.salt)
        self._session(engine, transcript, verdict, committed)
        assert checked is not None  # a refusal has raised by now
        transcript.write("commitment", digest=committed, salt=checked.salt.hex())
        report = checked.promise.report(
            (
                *(
                    f"number of records of {m.name}: {n}"
                    for m, n in zip(self.plan.members, self.plan.records)
                ),
                *self.plan.task.public,
                f"the joint plan {self.plan.digest}",
            ),
            (self._noise_words(),),
        )
        with self._reserved(engine, transcript, checked.promise) as run:
            found, steps = self._learn(engine, index, transcript, checked, run)
            transcript.write("finished")
            model = self.plan.model
            model.__dict__.update(found, privacy_=report, n_iter_=steps)
            # Before the last word: a member that keeps it back cannot keep the model from the others.
            self._write_result(transcript.path.parent, model)
            digest = hashlib.sha256(transcript.shared_digest.encode()).digest()
            _near(engine, digest, _numbers(found), "Comparing transcripts and results")
        transcript.write("settled", durable=True, slack=self.plan.slack)
        return Outcome(model, checked.promise.certificate, transcript.path, engine.bytes_sent)

    @staticmethod
    def _write_result(folder: Path, model: Any) -> None:
        """Write the fitted model and its report, for this member's eyes."""
        model.save(folder / "model.sordino").chmod(0o600)  # in a folder that is this member's own
        with open_private(folder / "report.json", "wb") as file:
            file.write(model.privacy_.to_json().encode())

    def _noise_words(self) -> str:
        share = self.plan.share
        return (
            f"a joint run of {len(self.plan.members)} parties, {share.mode.value}; it holds as long as at "
            f"most {share.threshold} of them put together what they see"
        )

    def _session(
        self, engine: ShamirEngine, transcript: Transcript, verdict: SordinoError | None, committed: str
    ) -> None:
        """Hear everybody's verdict on the plan; one refusal ends it before anything is reserved."""
        refusal = "" if verdict is None else code_of(verdict, Code.OWN).value
        hello = {"plan": self.plan.digest, "refusal": refusal, "commitment": committed}
        heard = [_parse(raw) for raw in engine.exchange(json.dumps(hello).encode(), "Agreeing on the plan")]
        for member, said in zip(self.plan.members, heard):
            if said.get("plan") != self.plan.digest:
                raise PartyError(f"{member.name} has another plan than {self.plan.digest[:12]}.", member.name)
            if said.get("refusal"):
                code = Code.parse(said["refusal"])
                why = code.words if verdict is None or member.name != self.config.name else str(verdict)
                raise PlanRefusedError(f"{member.name} refuses the plan: {why}", code)
        commitments = [_digest(said.get("commitment")) for said in heard]
        names = [m.name for m in self.plan.members]
        transcript.write("session", parties=names, commitments=commitments)

    @contextlib.contextmanager
    def _reserved(self, engine: ShamirEngine, transcript: Transcript, promise: Promise) -> Iterator[Run]:
        """Book the whole plan here, and go on only when everybody has; else give it back.

        Between the booking and the curator nothing looks at a record, so that what fails there costs nothing:
        the proof is in ``docs/parties/threat-model.md``.
        """
        words = f"joint plan {self.plan.digest[:12]} of {self.plan.text['consortium']}"[:200]
        try:
            booked = promise.reserved(words, self.plan.digest)
        except SordinoError as error:
            with contextlib.suppress(PlanRefusedError):
                self._all_reserved(engine, Code.BUDGET)
            raise PlanRefusedError(f"{self.config.name} could not reserve: {error}", Code.BUDGET) from None
        _, sequence = booked.place or ("", 0)
        try:
            transcript.write("reserved", durable=True, sequence=sequence, slack=self.plan.slack)
            self._all_reserved(engine, None)
        except BaseException:
            with contextlib.suppress(SordinoError):  # without its ledger it stays spent
                booked.give_back()
                transcript.write("returned", durable=True, sequence=sequence)
            raise
        with booked:
            yield booked

    def _all_reserved(self, engine: ShamirEngine, refusal: Code | None) -> None:
        message = json.dumps({"refusal": "" if refusal is None else refusal.value}).encode()
        for member, raw in zip(self.plan.members, engine.exchange(message, "Waiting for reservations")):
            said = _parse(raw)
            if said.get("refusal") != "":
                code = Code.parse(said.get("refusal"))
                raise PlanRefusedError(f"{member.name} could not reserve: {code.words}", code)

    def _learn(
        self, engine: ShamirEngine, index: int, transcript: Transcript, checked: _Checked, run: Run
    ) -> tuple[dict[str, Any], int]:
        """Ask everything; return the attributes of the fitted model and the number of steps."""
        task, population = self.plan.task, sum(self.plan.records)

        def agree(lattice: Lattice, release: Any, params: Any, position: int) -> None:
            header = f"{lattice}|{type(release.query).__name__}|{position}|".encode()
            _near(
                engine, hashlib.sha256(header).digest(), _numbers(params), f"Agreeing on release {position}"
            )

        def opened(values: Any) -> None:
            transcript.write("release", opened=digest_of(values))

        meter = _Meter(engine, self.plan.coordinates)
        executor = PartiesExecutor(checked.local, meter, self.plan.share, index, population, agree, opened)
        last, steps = task.follow(run.curate(executor))
        return task.finish(last), steps


@dataclass
class _Meter:
    """The engine, as far as delta was paid for: the distance of the noise from the ideal counts numbers."""

    engine: ShamirEngine
    left: int

    def sum(self, values: Any, draw: Draw) -> Any:
        """Open a sum, unless the plan has counted fewer numbers."""
        self.left -= values.size
        if self.left < 0:
            raise PartyError(
                "The run would open more numbers than its plan has counted. Nothing more is opened."
            )
        return self.engine.sum(values, draw)


def load_local(config: PartyConfig, plan: JointPlan) -> LocalExecutor:
    """Return this member's records as the task of a plan wants them, or refuse it in words without data."""
    classes = list(getattr(plan.model, "classes", None) or ())
    matrix, targets = load_records(config.data, classes)
    place = [m.name for m in plan.members].index(config.name)
    expected = (plan.records[place], plan.task.setting.features)
    if getattr(matrix, "shape", None) != expected:
        raise PlanRefusedError(
            f"The plan counts on {expected[0]} records of {expected[1]} columns here; mine have another "
            "shape. Make a plan with the right public numbers.",
            Code.OWN,
        )
    try:
        rows: LocalExecutor = plan.model.joint_rows(matrix, targets)
        return rows
    except SordinoError as error:
        labels = shown(classes, 300) if classes else "numbers"
        raise PlanRefusedError(
            f"The records here do not fit the plan, whose targets are {labels}: {error} Declare other labels "
            "in the plan (classes = [0, 1]), or drop records by a public rule.",
            Code.OWN,
        ) from None


@dataclass(frozen=True)
class _Checked:
    promise: Promise
    local: LocalExecutor
    salt: bytes

    @property
    def arrays(self) -> tuple[Any, Any]:
        return self.local.matrix, self.local.targets


def spent_slack(state: Path) -> float:
    """Return what the runs of this member have added to delta so far, failed ones included."""
    found = [read_transcript(path) for path in state.glob("*/transcript.jsonl")]
    return sum(float(story.find("reserved").get("slack", 0.0)) for story in found if story.is_spent)


def _near(engine: ShamirEngine, header: bytes, mine: Any, what: str) -> None:
    """Go on if everybody has the same header, and the same public numbers but for rounding.

    Members' processors may round what they compute from the answers differently. That is harmless: each
    record is clipped at the point its own party uses, and the noise is in the header and enough for all.
    """
    for member, raw in zip(engine.members, engine.exchange(header + mine.tobytes(), what)):
        theirs = np.frombuffer(raw[len(header) :]) if len(raw) == len(header) + mine.nbytes else None
        close = theirs is not None and np.allclose(theirs, mine, rtol=1e-6, atol=1e-9)
        if raw[: len(header)] != header or not close:
            raise PartyError(f"{what}: {member.name} is at another point of the run.", member.name)


def _numbers(values: Any) -> Any:
    """Return the numbers in public parameters or results as one vector."""
    if isinstance(values, dict):
        values = tuple(values[k] for k in sorted(values))
    if isinstance(values, SparseVector):
        values = values.to_dense()
    if is_dataclass(values):
        values = tuple(getattr(values, f.name) for f in fields(values) if f.init)
    if values is None:
        return np.zeros(0)
    if isinstance(values, (tuple, list)):
        return np.concatenate([np.zeros(0), *map(_numbers, values)])
    plain = np.ascontiguousarray(values)
    if plain.dtype.kind in "US":  # words are compared by their hash
        raw = hashlib.sha256(repr(plain.tolist()).encode()).digest()[:6]
        return np.array([float(int.from_bytes(raw, "little"))])
    return plain.astype(np.float64).reshape(-1)


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        said = json.loads(raw)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise PartyError("A party sent a message that is not understood.")
    return said


def _digest(said: Any) -> str:
    """Return a commitment that a member sent, if it is one."""
    if not isinstance(said, str) or not re.fullmatch("[0-9a-f]{64}", said):
        raise PartyError("A party sent a commitment that is none.")
    return said


def _reason(error: BaseException) -> str:
    """Return words for the transcript; only our own errors are known to quote no data."""
    return str(error) if isinstance(error, SordinoError) else type(error).__name__
