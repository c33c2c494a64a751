"""One member's part of a joint run: check, agree, reserve, contribute, settle, and write it all down."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sordino.accounting import Certificate
from sordino.errors import LedgerError, PartyError, PlanError, SordinoError
from sordino.execute import LocalExecutor
from sordino.execute.parties import Mode, PartiesExecutor
from sordino.execute.parties.engine import Lattice
from sordino.kernel import SparseVector
from sordino.kernel.noise import fresh_noise
from sordino.ledger import Ledger
from sordino.parties.mpc.config import (
    PartyConfig,
    check_budget,
    check_partners,
    check_plan,
    load_records,
    spent_of,
    transcript_path,
)
from sordino.parties.mpc.lasting import Lasting, header_of, parse, require_near
from sordino.parties.mpc.links import PartyLostError
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.shamir import ShamirEngine
from sordino.parties.mpc.transcript import (
    Story,
    Transcript,
    TranscriptError,
    commitment,
    open_private,
    private_folder,
    read_transcript,
)
from sordino.parties.words import Code, PlanRefusedError, code_of, shown
from sordino.runs import Promise, Run
from sordino.runs.journal import Journal, SavedRun, resumed
from sordino.runs.promise import digest_of as digest_of_plan

AHEAD = 4096  # coordinates whose noise is drawn before the first release


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
    _story: Story = field(default=Story(()), repr=False)
    _all_booked: bool = False
    _is_taken: bool = False  # the booking is in the hands of this process

    def run(self) -> Outcome:
        """Take part, or go on with a run that was stopped; raise ``PlanRefusedError`` or ``PartyError``.

        The order is the guarantee: who takes part and that this member approved of it is checked before
        anybody is called or a record is read, nothing is shared before every party's ledger holds the
        reservation of the whole plan, and a reservation is given back only if nothing was asked under it.
        What was opened before a stop is not asked again (:mod:`sordino.parties.mpc.lasting`).
        """
        check_partners(self.plan, self.config.partners)
        self.config.require_approval(self.plan)
        folder = private_folder(self.config.state / self.plan.digest)
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.closing(_lock(folder / "lock")))
            self._find_booking(folder / "transcript.jsonl")
            path = transcript_path(self.config.state, self.plan)
            self._story = read_transcript(path) if path.exists() else Story(())
            verdict, checked = self._judge(stack)
            transcript = Transcript(path)
            stack.callback(transcript.close)
            if not self._story.lines:
                with open_private(path.with_name("plan.json"), "wb") as file:
                    file.write(self.plan.canonical)
                transcript.write("plan", digest=self.plan.digest, durable=True)
            return self._run(transcript, verdict, checked)

    def _run(self, transcript: Transcript, verdict: SordinoError | None, checked: _Checked | None) -> Outcome:
        def meet(engine: ShamirEngine, state: dict[str, Any]) -> list[dict[str, Any]]:
            return self._meet(engine, transcript, state, verdict, checked)

        patience, coordinates = self.config.limits.patience, self.plan.coordinates
        lasting = Lasting(
            self._connected, meet, self._draw_ahead, transcript, coordinates, patience, self.say
        )
        try:
            try:
                lasting.start()
            except PartyLostError as error:
                if not self._story.is_spent:
                    raise
                lasting.wait(error)
            assert checked is not None  # a refusal has raised by now
            return self._together(lasting, transcript, checked)
        except BaseException as error:
            self._leave(transcript, error)
            kind = "refused" if isinstance(error, PlanRefusedError) else "failed"
            transcript.write(kind, durable=True, reason=_reason(error), code=code_of(error).value)
            lasting.close(farewell=True)
            raise
        finally:
            lasting.close()

    def _salt(self) -> bytes:
        """Return random bytes of this member and plan: all attempts commit to the same records alike."""
        path = self.config.state / self.plan.digest / "salt"
        if not path.exists():
            noise = fresh_noise()
            with open_private(path, "xb") as file:
                file.write(noise.integers(256, 32).astype(np.uint8).tobytes())
        return path.read_bytes()

    def _leave(self, transcript: Transcript, error: BaseException) -> None:
        """End what an earlier process has booked where the others do not come back."""
        story = read_transcript(transcript.path)
        if isinstance(error, SordinoError) and story.is_spent and not self._is_taken:
            with contextlib.suppress(SordinoError):
                self._end_booking(self._resumed(transcript, story), transcript, type(error).__name__)

    def _find_booking(self, path: Path) -> None:
        """Write what a process that died between the ledger and its transcript could not write any more."""
        story = read_transcript(path) if path.exists() else Story(())
        if story.status != "unfinished" or not story.find("reserving") or story.find("reserved"):
            return
        with Ledger.open(self.config.ledger, create=False) as ledger:
            entries = ledger.history(self.config.dataset)
        open_ones = [e for e in entries if e.plan_digest == self.plan.digest and not e.status.is_final]
        if open_ones:
            transcript = Transcript(path)
            self._write_booking(transcript, open_ones[-1].sequence, open_ones[-1].epsilon)
            transcript.close()

    def _write_booking(self, transcript: Transcript, sequence: int, epsilon: float) -> None:
        cost = {"epsilon": epsilon, "delta": self.plan.ask.delta, "slack": self.plan.slack}
        transcript.write("reserved", durable=True, sequence=sequence, **cost)

    def _draw_ahead(self, engine: ShamirEngine) -> None:
        """Draw noise before anything is booked: it needs no record, and most of the time goes there."""
        noise, share = fresh_noise(), self.plan.share
        if share.mode is Mode.INSIDE:
            engine.prepare(share.ahead(min(self.plan.coordinates, AHEAD), noise))

    @property
    def _index(self) -> int:
        return [m.name for m in self.plan.members].index(self.config.name)

    def _connected(self) -> ShamirEngine:
        pins = self.config.partners.members
        members = tuple(
            replace(m, second=next((p for p in pins[m.name] if p != m.fingerprint), ""))
            for m in self.plan.members
        )
        config, threshold = self.config, self.plan.share.threshold
        engine = ShamirEngine(
            members, self._index, threshold, config.credentials, config.limits, config.listen
        )
        try:
            engine.connect()
        except BaseException:
            engine.close()
            raise
        self.say(f"Connected with {len(members) - 1} parties.")
        return engine

    def _judge(self, stack: contextlib.ExitStack) -> tuple[SordinoError | None, _Checked | None]:
        """Return the reason to refuse, or nothing and what was checked; nothing is booked yet."""
        config, story = self.config, self._story
        try:
            ledger = stack.enter_context(Ledger.open(config.ledger, create=False))
            spent = spent_of(config.state, self.plan.digest).slack
            promise = check_plan(self.plan, config.policy, spent, ledger, config.dataset)
            if not story.is_spent:
                check_budget(ledger, config.dataset, promise)
            local, known = load_local(config, self.plan), story.find("commitment")
            checked = _Checked(promise, local, self._salt())
            if known and checked.committed != known["digest"]:
                raise PlanRefusedError("The records are not those that this run began with.", Code.OWN)
            return None, checked
        except SordinoError as error:
            return error, None

    def _together(self, lasting: Lasting, transcript: Transcript, checked: _Checked) -> Outcome:
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
        with self._reserved(lasting, transcript, checked.promise) as run:
            found, steps = self._learn(lasting, checked, run)
            if not read_transcript(transcript.path).find("finished"):
                transcript.write("finished")
            model = self.plan.model
            model.__dict__.update(found, privacy_=report, n_iter_=steps)
            # Before the last word: a member that keeps it back cannot keep the model from the others.
            self._write_result(transcript.path.parent, model)
            self._compare(lasting, transcript, numbers_of(found))
        transcript.write("settled", durable=True, slack=self.plan.slack)
        sent = lasting.bytes_sent + (lasting.engine.bytes_sent if lasting.engine else 0)
        return Outcome(model, checked.promise.certificate, transcript.path, sent)

    @staticmethod
    def _compare(lasting: Lasting, transcript: Transcript, found: Any) -> None:
        """Compare transcripts and results with everybody, also with those who had to come back for it."""
        header = hashlib.sha256(transcript.shared_digest.encode()).digest()
        while True:
            try:
                return require_near(lasting.connected, header, found, "Comparing transcripts and results")
            except PartyLostError as error:
                lasting.wait(error)

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

    def _meet(
        self,
        engine: ShamirEngine,
        transcript: Transcript,
        state: dict[str, Any],
        verdict: SordinoError | None,
        checked: _Checked | None,
    ) -> list[dict[str, Any]]:
        """Hear everybody's verdict on the plan; one refusal ends it before anything is reserved."""
        committed = "" if checked is None else checked.committed
        story = read_transcript(transcript.path)
        hello = {"plan": self.plan.digest, "commitment": committed, "booked": story.is_spent, **state}
        hello["refusal"] = "" if verdict is None else code_of(verdict, Code.OWN).value
        heard = [parse(raw) for raw in engine.exchange(json.dumps(hello).encode(), "Agreeing on the plan")]
        for member, said in zip(self.plan.members, heard):
            if said.get("plan") != self.plan.digest:
                raise PartyError(f"{member.name} has another plan than {self.plan.digest[:12]}.", member.name)
            if said.get("refusal"):
                code = Code.parse(said["refusal"])
                why = code.words if verdict is None or member.name != self.config.name else str(verdict)
                raise PlanRefusedError(f"{member.name} refuses the plan: {why}", code)
        commitments = [_digest(said.get("commitment")) for said in heard]
        names, session = [m.name for m in self.plan.members], story.find("session")
        if not session:
            transcript.write("session", parties=names, commitments=commitments)
            assert checked is not None
            transcript.write("commitment", digest=committed, salt=checked.salt.hex())
        before = session.get("commitments", commitments)
        changed = [name for name, old, new in zip(names, before, commitments) if old != new]
        if changed:
            raise PartyError(f"{changed[0]} came back with other records than it began with.", changed[0])
        self._all_booked = all(said.get("booked") is True for said in heard)
        return heard

    @contextlib.contextmanager
    def _reserved(self, lasting: Lasting, transcript: Transcript, promise: Promise) -> Iterator[Run]:
        """Book the whole plan here, and go on only when everybody has; else give it back.

        Between the booking and the curator nothing looks at a record, so that what fails there costs nothing:
        the proof is in ``docs/parties/threat-model.md``.
        """
        story = read_transcript(transcript.path)
        if story.is_spent:
            booked = self._resumed(transcript, story)
        else:
            transcript.write("reserving", durable=True)
            booked = self._booked(lasting, promise)
        _, sequence = booked.place or ("", 0)
        self._is_taken = True
        with booked:
            try:
                if not story.is_spent:
                    self._write_booking(transcript, sequence, promise.certificate.epsilon)
                if not self._all_booked:
                    self._hear_bookings(lasting, None)
                transcript.write("asking", durable=True)
                yield booked
            except BaseException as error:
                self._end_booking(booked, transcript, type(error).__name__)
                raise

    @staticmethod
    def _end_booking(booked: Run, transcript: Transcript, reason: str) -> None:
        """Give a booking back if no answer was ever opened, by its transcript; else it stays spent."""
        if read_transcript(transcript.path).find("opening"):
            booked.fail(reason)
            return
        with contextlib.suppress(SordinoError):  # without its ledger it stays spent
            booked.give_back(only_shares=True)
            transcript.write("returned", durable=True)

    def _booked(self, lasting: Lasting, promise: Promise) -> Run:
        head = self.config.approvals.head[:16]
        words = f"joint plan {self.plan.digest[:12]} of {self.plan.text['consortium']}"[:170]
        try:
            return promise.reserved(f"{words}, decisions {head}", self.plan.digest)
        except SordinoError as error:
            with contextlib.suppress(PlanRefusedError):
                self._hear_bookings(lasting, Code.BUDGET)
            raise PlanRefusedError(f"{self.config.name} could not reserve: {error}", Code.BUDGET) from None

    def _resumed(self, transcript: Transcript, story: Story) -> Run:
        """Take over what an earlier process of this member has booked; a copy of its files comes too late."""
        config, turns = self.config, sum(line["kind"] == "resumed" for line in story.lines)
        ask = replace(self.plan.ask, ledger=config.ledger, dataset_id=config.dataset)
        place = config.dataset, int(story.find("reserved")["sequence"])
        plan, recipe = self.plan.kernel_plan, self.plan.digest
        stated = {name: float(r.mechanism.multiplier or 0.0) for name, r in plan.releases.items()}
        transcript.write("resumed", durable=True)
        for turn in (turns, turns - 1):  # a crash between this line and the ledger leaves one more of these
            saved = SavedRun(recipe, stated, digest_of_plan(plan), place, not fresh_noise().is_private, turn)
            try:
                run = resumed(ask, self.plan.bare_plan, saved, recipe, slack=self.plan.slack)
            except LedgerError:
                if turn < turns:
                    raise
                continue
            run.resumable = False
            return run
        raise AssertionError("unreachable")

    def _hear_bookings(self, lasting: Lasting, refusal: Code | None) -> None:
        message = json.dumps({"refusal": "" if refusal is None else refusal.value}).encode()
        heard = lasting.connected.exchange(message, "Waiting for reservations")
        for member, raw in zip(self.plan.members, heard):
            said = parse(raw)
            if said.get("refusal") != "":
                code = Code.parse(said.get("refusal"))
                raise PlanRefusedError(f"{member.name} could not reserve: {code.words}", code)

    def _learn(self, lasting: Lasting, checked: _Checked, run: Run) -> tuple[dict[str, Any], int]:
        """Ask everything; return the attributes of the fitted model and the number of steps."""
        task, share = self.plan.task, self.plan.share

        def agree(lattice: Lattice, release: Any, params: Any, position: int) -> None:
            lasting.expect(header_of(lattice, type(release.query).__name__, position), numbers_of(params))

        executor = PartiesExecutor(checked.local, lasting, share, self._index, self.plan.records, agree)
        last, steps = task.follow(run.curate(executor))
        return task.finish(last), steps


def _lock(path: Path) -> Journal:
    """Let one process at a time be at work; whoever only looks holds the lock for a moment."""
    for _ in range(4):
        with contextlib.suppress(PlanError):
            return Journal(path)
        time.sleep(0.25)
    return Journal(path)


def load_local(config: PartyConfig, plan: JointPlan) -> LocalExecutor:
    """Return this member's records as the task of a plan wants them, or refuse it in words without data."""
    classes = list(getattr(plan.model, "classes", None) or ())
    place = [m.name for m in plan.members].index(config.name)
    if not plan.records[place]:
        return _no_rows(plan, classes)
    matrix, targets = load_records(config.data, classes)
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


def _no_rows(plan: JointPlan, classes: list[Any]) -> LocalExecutor:
    """Return the records of a helper: none, in the form that the task wants them."""
    row = np.zeros((1, plan.task.setting.features))
    made = plan.model.joint_rows(row, np.array([classes[0] if classes else 0.0]))
    targets = None if made.targets is None else made.targets[:0]
    return replace(made, matrix=made.matrix[:0], targets=targets)


def check_commitment(config: PartyConfig, path: Path) -> str:
    """Return the commitment of a transcript if this member's records are those it was made for.

    The plan is the one that the run kept beside its transcript.
    """
    story = read_transcript(path)
    known = story.find("commitment")
    if not known:
        raise TranscriptError(f"{path} holds no commitment: the run ended before.")
    local = load_local(config, JointPlan.load(path.with_name("plan.json")))
    found = commitment((local.matrix, local.targets), bytes.fromhex(known["salt"]))
    if found != known["digest"]:
        raise TranscriptError("The records here are not those that the transcript commits to.")
    return found


@dataclass(frozen=True)
class _Checked:
    promise: Promise
    local: LocalExecutor
    salt: bytes

    @cached_property
    def committed(self) -> str:
        return commitment((self.local.matrix, self.local.targets), self.salt)


def numbers_of(values: Any) -> Any:
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
        return np.concatenate([np.zeros(0), *map(numbers_of, values)])
    plain = np.ascontiguousarray(values)
    if plain.dtype.kind in "US":  # words are compared by their hash
        raw = hashlib.sha256(repr(plain.tolist()).encode()).digest()[:6]
        return np.array([float(int.from_bytes(raw, "little"))])
    return plain.astype(np.float64).reshape(-1)


def _digest(said: Any) -> str:
    """Return a commitment that a member sent, if it is one."""
    if not isinstance(said, str) or not re.fullmatch("[0-9a-f]{64}", said):
        raise PartyError("A party sent a commitment that is none.")
    return said


def _reason(error: BaseException) -> str:
    """Return words for the transcript; only our own errors are known to quote no data."""
    return str(error) if isinstance(error, SordinoError) else type(error).__name__
