"""One member's part of a joint run: check, agree, reserve, contribute, settle, and write it all down."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sordino.accounting import Certificate
from sordino.errors import PartyError, SordinoError
from sordino.execute import LocalExecutor
from sordino.execute.parties import Draw, PartiesExecutor
from sordino.execute.parties.lattice import Lattice
from sordino.kernel import SparseVector
from sordino.kernel.noise import fresh_noise
from sordino.ledger import Ledger
from sordino.parties.codes import Code, PlanRefusedError, code_of
from sordino.parties.mpc.approval import Approvals
from sordino.parties.mpc.config import PartyConfig, load_records
from sordino.parties.mpc.files import open_private
from sordino.parties.mpc.mpyc_engine import MpycEngine
from sordino.parties.mpc.partners import check_partners
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.policy import check_budget, check_fresh, check_plan
from sordino.parties.mpc.transcript import Transcript, commitment, digest_of, read_transcript
from sordino.parties.words import shown
from sordino.runs import PrivacyReport, Promise, Run


@dataclass(frozen=True)
class Outcome:
    """The released arrays, what they guarantee, and where the transcript is."""

    result: dict[str, Any]
    certificate: Certificate
    transcript: Path
    bytes_sent: int
    privacy: PrivacyReport


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
        index = self._index()
        transcript = Transcript(check_fresh(self.config.state, self.plan))
        transcript.write("plan", digest=self.plan.digest, durable=True)
        engine = MpycEngine(
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

    def _index(self) -> int:
        return [m.name for m in self.plan.members].index(self.config.name)

    def _together(
        self,
        engine: MpycEngine,
        index: int,
        transcript: Transcript,
        verdict: SordinoError | None,
        checked: _Checked | None,
    ) -> Outcome:
        committed = "" if checked is None else commitment(checked.arrays, checked.salt)
        self._session(engine, transcript, verdict, committed)
        assert checked is not None  # a refusal has raised by now
        transcript.write("commitment", digest=committed, salt=checked.salt.hex())
        report = checked.promise.report(self._public(), (self._noise_words(),))
        with self._reserved(engine, transcript, checked.promise) as run:
            result = self._learn(engine, index, transcript, checked, run)
            transcript.write("finished")
            # Before the last word: a member that keeps it back cannot keep the model from the others.
            self._write_result(transcript, result, report)
            digest = hashlib.sha256(transcript.shared_digest.encode()).digest()
            _near(engine, digest, _numbers(result), "Comparing transcripts and results")
        transcript.write("settled", durable=True, slack=self.plan.slack)
        return Outcome(result, checked.promise.certificate, transcript.path, engine.bytes_sent, report)

    def _write_result(self, transcript: Transcript, result: dict[str, Any], report: PrivacyReport) -> None:
        folder = transcript.path.parent
        with open_private(folder / "result.npz", "wb") as file:
            np.savez(file, **result)
        with open_private(folder / "report.json", "wb") as file:
            file.write(report.to_json().encode())

    def _public(self) -> tuple[str, ...]:
        """Return what everybody in the plan knows."""
        counts = zip(self.plan.members, self.plan.records)
        return (
            *(f"number of records of {member.name}: {count}" for member, count in counts),
            f"number of features: {self.plan.task.problem.features}",
            *self.plan.task.bounds,
            f"the joint plan {self.plan.digest}",
        )

    def _noise_words(self) -> str:
        share = self.plan.share
        return (
            f"a joint run of {len(self.plan.members)} parties, {share.mode.value}; it holds as long as at "
            f"most {share.threshold} of them put together what they see"
        )

    def _session(
        self, engine: MpycEngine, transcript: Transcript, verdict: SordinoError | None, committed: str
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
    def _reserved(self, engine: MpycEngine, transcript: Transcript, promise: Promise) -> Iterator[Run]:
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

    def _all_reserved(self, engine: MpycEngine, refusal: Code | None) -> None:
        message = json.dumps({"refusal": "" if refusal is None else refusal.value}).encode()
        for member, raw in zip(self.plan.members, engine.exchange(message, "Waiting for reservations")):
            said = _parse(raw)
            if said.get("refusal") != "":
                code = Code.parse(said.get("refusal"))
                raise PlanRefusedError(f"{member.name} could not reserve: {code.words}", code)

    def _learn(
        self, engine: MpycEngine, index: int, transcript: Transcript, checked: _Checked, run: Run
    ) -> dict[str, Any]:
        task, population = self.plan.task, self.plan.public.population

        def agree(lattice: Lattice, release: Any, params: Any, position: int) -> None:
            header = f"{lattice}|{type(release.query).__name__}|{position}|".encode()
            _near(
                engine, hashlib.sha256(header).digest(), _numbers(params), f"Agreeing on release {position}"
            )

        def opened(values: Any) -> None:
            transcript.write("release", opened=digest_of(values))

        meter = _Meter(engine, self.plan.coordinates)
        executor = PartiesExecutor(checked.local, meter, self.plan.share, index, population, agree, opened)
        with np.errstate(all="ignore"):  # a warning from inside a query would tell what a record did there
            iterates = task.solver.run(run.curate(executor), task.problem)
            (last,) = deque(iterates, maxlen=1)
        return task.finish(last)


@dataclass
class _Meter:
    """The engine, as far as delta was paid for: the distance of the noise from the ideal counts numbers."""

    engine: MpycEngine
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
    matrix, targets = load_records(config.data, plan.task.classes)
    place = [m.name for m in plan.members].index(config.name)
    expected = (plan.records[place], plan.task.problem.features)
    if getattr(matrix, "shape", None) != expected:
        raise PlanRefusedError(
            f"The plan counts on {expected[0]} records of {expected[1]} columns here; mine have another "
            "shape. Make a plan with the right public numbers.",
            Code.OWN,
        )
    try:
        return plan.task.records(matrix, targets)
    except SordinoError as error:
        labels = shown(list(plan.task.classes), 300) if plan.task.classes else "numbers"
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


def _near(engine: MpycEngine, header: bytes, mine: Any, what: str) -> None:
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
