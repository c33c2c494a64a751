"""One member's part of a joint run: check, agree, reserve, contribute, settle, and write it all down."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sordino.accounting import Certificate
from sordino.errors import PartyError, SordinoError
from sordino.execute import LocalExecutor
from sordino.execute.parties import PartiesExecutor
from sordino.execute.parties.lattice import Lattice
from sordino.kernel import SparseVector
from sordino.kernel.noise import fresh_noise
from sordino.ledger import Ledger
from sordino.parties.mpc.approval import Approvals
from sordino.parties.mpc.config import PartyConfig, load_records
from sordino.parties.mpc.files import open_private
from sordino.parties.mpc.mpyc_engine import MpycEngine
from sordino.parties.mpc.partners import check_partners
from sordino.parties.mpc.plan import JointPlan
from sordino.parties.mpc.policy import PlanRefusedError, check_budget, check_fresh, check_plan
from sordino.parties.mpc.transcript import Transcript, commitment, digest_of, read_transcript
from sordino.problems.covariance import Ball
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
        reservation of the whole plan, and a reservation is never taken back.
        """
        check_partners(self.plan, self.config.partners)
        Approvals(self.config.state).require(self.plan)
        with contextlib.ExitStack() as stack:
            return self._run(*self._judge(stack))

    def _run(self, verdict: str, checked: _Checked | None) -> Outcome:
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
            transcript.write(kind, durable=True, reason=_reason(error))
            raise
        finally:
            engine.close()
            transcript.close()

    def _judge(self, stack: contextlib.ExitStack) -> tuple[str, _Checked | None]:
        """Return the reason to refuse, or nothing and what was checked."""
        config = self.config
        try:
            ledger = stack.enter_context(Ledger.open(config.ledger, create=False))
            spent = spent_slack(config.state)
            promise = check_plan(self.plan, config.policy, spent, ledger, config.dataset)
            check_budget(ledger, config.dataset, promise)
            noise = fresh_noise()
            salt = noise.integers(256, 32).astype(np.uint8).tobytes()
            return "", _Checked(promise, self._local(), salt)
        except SordinoError as error:
            return str(error), None

    def _index(self) -> int:
        return [m.name for m in self.plan.members].index(self.config.name)

    def _local(self) -> LocalExecutor:
        matrix, targets = load_records(self.config.data)
        task, expected = self.plan.text["task"], self.plan.records[self._index()]
        if matrix.shape != (expected, int(task["features"])):
            raise PlanRefusedError(
                f"The plan counts on {expected} records of {task['features']} columns here; mine have "
                "another shape. Make a plan with the right public numbers."
            )
        bounds = float(task.get("data_norm", 1.0)), float(task.get("intercept", 0.0))
        return LocalExecutor(matrix, targets, *bounds)

    def _together(
        self, engine: MpycEngine, index: int, transcript: Transcript, verdict: str, checked: _Checked | None
    ) -> Outcome:
        committed = "" if checked is None else commitment(checked.arrays, checked.salt)
        self._session(engine, transcript, verdict, committed)
        assert checked is not None  # a refusal has raised by now
        transcript.write("commitment", digest=committed, salt=checked.salt.hex())
        with self._reserved(engine, transcript, checked.promise) as run:
            result = self._learn(engine, index, transcript, checked, run)
            transcript.write("finished")
            digest = hashlib.sha256(transcript.shared_digest.encode()).digest()
            _near(engine, digest, _numbers(result), "Comparing transcripts and results")
        transcript.write("settled", durable=True, slack=self.plan.slack)
        with open_private(transcript.path.parent / "result.npz", "wb") as file:
            np.savez(file, **result)
        report = checked.promise.report(self._public(), (self._noise_words(),))
        with open_private(transcript.path.parent / "report.json", "wb") as file:
            file.write(report.to_json().encode())
        return Outcome(result, checked.promise.certificate, transcript.path, engine.bytes_sent, report)

    def _public(self) -> tuple[str, ...]:
        """Return what everybody in the plan knows."""
        task = self.plan.text["task"]
        counts = zip(self.plan.members, self.plan.records)
        return (
            *(f"number of records of {member.name}: {count}" for member, count in counts),
            f"number of features: {task['features']}",
            f"data_norm = {float(task.get('data_norm', 1.0)):g} (rows are clipped to it)",
            f"the joint plan {self.plan.digest}",
        )

    def _noise_words(self) -> str:
        share = self.plan.share
        return (
            f"a joint run of {len(self.plan.members)} parties, {share.mode.value}; it holds as long as at "
            f"most {share.threshold} of them put together what they see"
        )

    def _session(self, engine: MpycEngine, transcript: Transcript, verdict: str, committed: str) -> None:
        """Hear everybody's verdict on the plan; one refusal ends it before anything is reserved."""
        hello = {"plan": self.plan.digest, "refusal": verdict, "commitment": committed}
        heard = [_parse(raw) for raw in engine.exchange(json.dumps(hello).encode(), "Agreeing on the plan")]
        for member, said in zip(self.plan.members, heard):
            if said.get("plan") != self.plan.digest:
                raise PartyError(f"{member.name} has another plan than {self.plan.digest[:12]}.", member.name)
            if said.get("refusal"):
                raise PlanRefusedError(f"{member.name} refuses the plan: {said['refusal']}")
        commitments = [str(said.get("commitment")) for said in heard]
        names = [m.name for m in self.plan.members]
        transcript.write("session", parties=names, commitments=commitments)

    @contextlib.contextmanager
    def _reserved(self, engine: MpycEngine, transcript: Transcript, promise: Promise) -> Iterator[Run]:
        """Book the whole plan here, and go on only when everybody has."""
        words = f"joint plan {self.plan.digest[:12]} of {self.plan.text['consortium']}"[:200]
        try:
            booked = promise.reserved(words, self.plan.digest)
        except SordinoError as error:
            self._all_reserved(engine, str(error))
            raise PlanRefusedError(f"{self.config.name} could not reserve: {error}") from None
        with booked:
            _, sequence = booked.place or ("", 0)
            transcript.write("reserved", durable=True, sequence=sequence, slack=self.plan.slack)
            self._all_reserved(engine, "")
            yield booked

    def _all_reserved(self, engine: MpycEngine, refusal: str) -> None:
        message = json.dumps({"refusal": refusal}).encode()
        for member, raw in zip(self.plan.members, engine.exchange(message, "Waiting for reservations")):
            said = _parse(raw)
            if said.get("refusal") != "":
                raise PlanRefusedError(f"{member.name} could not reserve: {said.get('refusal')}")

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

        executor = PartiesExecutor(checked.local, engine, self.plan.share, index, population, agree, opened)
        iterates = task.solver.run(run.curate(executor), task.problem)
        (last,) = deque(iterates, maxlen=1)
        return task.result(last)


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
    found = [read_transcript(path).find("reserved") for path in state.glob("*/transcript.jsonl")]
    return sum(float(line.get("slack", 0.0)) for line in found)


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
    if isinstance(values, Ball):
        values = (values.radius, values.center)
    if values is None:
        return np.zeros(0)
    if isinstance(values, tuple):
        return np.concatenate([np.zeros(0), *map(_numbers, values)])
    if isinstance(values, SparseVector):
        values = values.to_dense()
    return np.ascontiguousarray(values, dtype=np.float64).reshape(-1)


def _parse(raw: bytes) -> dict[str, Any]:
    try:
        said = json.loads(raw)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise PartyError("A party sent a message that is not understood.")
    return said


def _reason(error: BaseException) -> str:
    """Return words for the transcript; only our own errors are known to quote no data."""
    return str(error) if isinstance(error, SordinoError) else type(error).__name__
