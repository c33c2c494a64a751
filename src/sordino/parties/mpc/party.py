"""One member's part of a joint run: check, agree, reserve, contribute, settle, and write it all down."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

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
    sum_spending,
    transcript_path,
)
from sordino.parties.mpc.control import was_opened_elsewhere
from sordino.parties.mpc.lasting import TRIES, Lasting, parse, require_near
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
from sordino.parties.words import DIGEST, Code, PlanRefusedError, code_of, show
from sordino.runs import Promise, Run
from sordino.runs.journal import Journal, SavedRun, resumed
from sordino.runs.promise import digest_of as digest_of_plan
from sordino.runs.report import Booked, Fact, Source, most_declared
from sordino.tables.files import DataFile, read_matrix, read_names

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
    _transcript: Transcript = field(init=False, repr=False)
    _lasting: Lasting = field(init=False, repr=False)
    _promise: Promise = field(init=False, repr=False)
    _local: LocalExecutor = field(init=False, repr=False)
    _commitment: dict[str, str] = field(default_factory=dict, repr=False)
    _all_booked: bool = False
    _is_taken: bool = False  # the booking is in the hands of this process

    @property
    def _folder(self) -> Path:
        return self.config.state / self.plan.digest

    @property
    def _path(self) -> Path:
        return self._folder / "transcript.jsonl"

    @property
    def _story(self) -> Story:
        return read_transcript(self._path)

    @property
    def _index(self) -> int:
        return [m.name for m in self.plan.members].index(self.config.name)

    def run(self) -> Outcome:
        """Take part, or go on with a run that was stopped; raise ``PlanRefusedError`` or ``PartyError``.

        The order is the guarantee: who takes part and that this member approved of it is checked before
        anybody is called or a record is read, nothing is shared before every party's ledger holds the
        reservation of the whole plan, and a reservation is given back only if nothing was asked under it.
        What was opened before a stop is not asked again (:mod:`sordino.parties.mpc.lasting`).
        """
        if self._story.is_in_doubt:
            self._end_doubt()
        check_partners(self.plan, self.config.partners)
        self.config.require_approval(self.plan)
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.closing(_lock(private_folder(self._folder) / "lock")))
            self._find_booking()
            path = transcript_path(self.config.state, self.plan)
            verdict = self._judge(stack)
            self._transcript = stack.enter_context(contextlib.closing(Transcript(path)))
            if not self._story.lines:
                shutil.rmtree(self._folder / "answers", ignore_errors=True)  # shares that nobody opened
                with open_private(path.with_name("plan.json"), "wb") as file:
                    file.write(self.plan.canonical)
                self._transcript.write("plan", digest=self.plan.digest, durable=True)
            plan, names = self.plan, [m.name for m in self.plan.members]
            counts, patience = dict(zip(names, plan.records)), self.config.limits.patience
            facts = self._transcript, plan.coordinates, patience, self.say, counts, plan.share.dropouts
            self._lasting = Lasting(self._connect, partial(self._meet, verdict), self._draw_ahead, *facts)
            stack.callback(self._lasting.close)
            try:
                self._start()
                return self._learn()
            except BaseException as error:
                # End what an earlier process has booked where the others do not come back, and say why.
                ours = isinstance(error, SordinoError)
                if ours and self._story.is_spent and not self._is_taken:
                    with contextlib.suppress(SordinoError):
                        self._end_booking(self._resume(), type(error).__name__)
                kind = "refused" if isinstance(error, PlanRefusedError) else "failed"
                # Only our own errors are known to quote no data.
                reason = str(error) if ours else type(error).__name__
                self._transcript.write(kind, durable=True, reason=reason, code=code_of(error).value)
                self._lasting.close(farewell=True)
                raise

    def _start(self) -> None:
        try:
            self._lasting.start()
        except PartyLostError as error:
            if not self._story.is_spent:
                raise
            self._lasting.wait(error)

    def _find_booking(self) -> None:
        """Write what a process that died between the ledger and its transcript could not write any more."""
        story = self._story
        if story.status != "unfinished" or not story.find("reserving") or story.find("reserved"):
            return
        with Ledger.open(self.config.ledger, create=False) as ledger:
            entries = ledger.history(self.config.dataset)
        open_ones = [e for e in entries if e.plan_digest == self.plan.digest and not e.status.is_final]
        if open_ones:
            with contextlib.closing(Transcript(self._path)) as transcript:
                self._write_booking(transcript, open_ones[-1].sequence, open_ones[-1].epsilon)

    def _write_booking(self, transcript: Transcript, sequence: int, epsilon: float) -> None:
        cost = {"epsilon": epsilon, "delta": self.plan.ask.delta, "slack": self.plan.slack}
        transcript.write("reserved", durable=True, sequence=sequence, **cost)

    def _draw_ahead(self, engine: ShamirEngine) -> None:
        """Draw noise before anything is booked: it needs no record, and most of the time goes there."""
        noise, share = fresh_noise(), self.plan.share
        if share.mode is Mode.INSIDE:
            engine.prepare(share.ahead(min(self.plan.coordinates, AHEAD), noise))

    def _connect(self, gone: set[str]) -> ShamirEngine:
        config, pins = self.config, self.config.partners.members
        members = tuple(
            replace(m, second=next((p for p in pins[m.name] if p != m.fingerprint), ""))
            for m in self.plan.members
            if m.name not in gone
        )
        points = tuple(i for i, m in enumerate(self.plan.members, start=1) if m.name not in gone)
        facts = self.plan.share.threshold, config.credentials, config.limits, config.listen
        engine = ShamirEngine(members, points.index(self._index + 1), *facts, points)
        try:
            engine.connect()
        except BaseException:
            engine.close()
            raise
        self.say(f"Connected with {len(members) - 1} parties.")
        return engine

    def _judge(self, stack: contextlib.ExitStack) -> SordinoError | None:
        """Return the reason to refuse, or nothing where all was checked; nothing is booked yet."""
        config, story, salt = self.config, self._story, self._folder / "salt"
        try:
            ledger = stack.enter_context(Ledger.open(config.ledger, create=False))
            spent = sum_spending(config.state, self.plan.digest)["slack"]
            self._promise = check_plan(self.plan, config.policy, spent, ledger, config.dataset)
            if not story.is_spent:
                check_budget(ledger, config.dataset, self._promise)
            self._local = load_local(config, self.plan)
            if not salt.exists():  # one for the plan: all attempts commit to the same records alike
                noise = fresh_noise()
                with open_private(salt, "xb") as file:
                    file.write(noise.integers(256, 32).astype(np.uint8).tobytes())
            committed = commitment((self._local.matrix, self._local.targets), salt.read_bytes())
            self._commitment = {"digest": committed, "salt": salt.read_bytes().hex()}
            if story.find("commitment").get("digest", committed) != committed:
                raise PlanRefusedError("The records are not those that this run began with.", Code.OWN)
            return None
        except SordinoError as error:
            return error

    def _learn(self) -> Outcome:
        """Ask everything together with the others, and write the fitted model and its report."""
        plan, share, lasting, folder = self.plan, self.plan.share, self._lasting, self._folder
        counts = zip(plan.members, plan.records)
        report = self._promise.report(
            (
                *(Fact(f"number of records of {member.name}: {n}", Source.COUNTED) for member, n in counts),
                *plan.task.public,
                f"the joint plan {plan.digest}",
            ),
            (
                f"a joint run of {len(plan.members)} parties, {share.mode.value}; it holds as long as at "
                f"most {share.threshold} of them put together what they see",
            ),
        )

        def agree(lattice: Lattice, release: Any, params: Any, position: int) -> None:
            about = f"{lattice}|{type(release.query).__name__}|{position}".encode()
            lasting.expect(hashlib.sha256(about).digest(), numbers_of(params))

        with self._reserve() as run:
            executor = PartiesExecutor(self._local, lasting, share, self._index, plan.records, agree)
            last, steps = plan.task.follow(run.curate(executor))
            found, model = plan.task.finish(last), plan.model
            if not self._story.find("finished"):
                self._transcript.write("finished")
            model.__dict__.update(found, privacy_=report, n_iter_=steps)
            # Before the last word: a member that keeps it back cannot keep the model from the others.
            model.save(folder / "model.sordino").chmod(0o600)  # in a folder that is this member's own
            with open_private(folder / "report.json", "wb") as file:
                file.write(report.to_json().encode())
            self._compare(numbers_of(found))
        self._transcript.write("settled", durable=True, slack=plan.slack)
        sent = lasting.bytes_sent + (lasting.engine.bytes_sent if lasting.engine else 0)
        return Outcome(model, self._promise.certificate, self._transcript.path, sent)

    def _compare(self, found: Any) -> None:
        """Compare transcripts and results with everybody, also with those who had to come back for it."""
        header = hashlib.sha256(self._transcript.shared_digest.encode()).digest()
        for left in reversed(range(TRIES)):
            try:
                require_near(self._lasting.connected, header, found, "Comparing transcripts and results")
                return
            except PartyLostError as error:
                if not left:
                    raise PartyError(str(error), error.party) from None
                self._lasting.wait(error)

    def _meet(
        self, verdict: SordinoError | None, engine: ShamirEngine, state: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Hear everybody's verdict on the plan; one refusal ends it before anything is reserved."""
        committed, story = self._commitment.get("digest", ""), self._story
        hello = {"plan": self.plan.digest, "commitment": committed, "booked": story.is_spent, **state}
        hello["refusal"] = "" if verdict is None else code_of(verdict, Code.OWN).value
        heard = [parse(raw) for raw in engine.exchange(json.dumps(hello).encode(), "Agreeing on the plan")]
        for member, said in zip(engine.members, heard):
            if said.get("plan") != self.plan.digest:
                raise PartyError(f"{member.name} has another plan than {self.plan.digest[:12]}.", member.name)
            if said.get("refusal"):
                code = Code.parse(said["refusal"])
                is_own = verdict is not None and member.name == self.config.name
                why = str(verdict) if is_own else code.words
                raise PlanRefusedError(
                    f"{member.name} refuses the plan: {why}", code if is_own else Code.PEER
                )
        commitments = [str(said.get("commitment")) for said in heard]
        if not all(re.fullmatch(DIGEST, text) for text in commitments):
            raise PartyError("A party sent a commitment that is none.")
        names, session = [m.name for m in engine.members], story.find("session")
        if not session:
            self._transcript.write("session", parties=names, commitments=commitments)
            self._transcript.write("commitment", False, **self._commitment)
        before = dict(zip(session.get("parties", names), session.get("commitments", commitments)))
        changed = [name for name, new in zip(names, commitments) if before[name] != new]
        if changed:
            raise PartyError(f"{changed[0]} came back with other records than it began with.", changed[0])
        self._all_booked = all(said.get("booked") is True for said in heard)
        return heard

    @contextlib.contextmanager
    def _reserve(self) -> Iterator[Run]:
        """Book the whole plan here, and go on only when everybody has; else give it back.

        Between the booking and the curator nothing looks at a record, so that what fails there costs nothing:
        the proof is in ``docs/parties/threat-model.md``.
        """
        is_spent = self._story.is_spent
        if is_spent:
            booked = self._resume()
        else:
            self._transcript.write("reserving", durable=True)
            booked = self._book()
        _, sequence = booked.place or ("", 0)
        self._is_taken = True
        with booked:
            try:
                if not is_spent:
                    self._write_booking(self._transcript, sequence, self._promise.certificate.epsilon)
                if not self._all_booked:
                    self._hear_bookings(None)
                self._transcript.write("asking", durable=True)
                yield booked
            except BaseException as error:
                self._end_booking(booked, type(error).__name__)
                raise

    def _end_booking(self, booked: Run, reason: str) -> None:
        """Give a booking back if nobody heard that this member is ready to open. Where others may have opened
        an answer, or these files may be an old copy, it stays reserved until they say so
        (:meth:`_end_doubt`); else it stays spent.
        """
        story = self._story
        if story.find("opening") or (self.plan.share.dropouts and story.find("kept")):
            self._transcript.write("spent", durable=True)
            booked.fail(reason)
        elif story.is_known_to_others:
            booked.pause()
        else:
            self._give_back(booked)

    def _give_back(self, booked: Run) -> None:
        with contextlib.suppress(SordinoError):  # without its ledger it stays spent
            booked.give_back(only_shares=True)
            self._transcript.write("returned", durable=True)

    def _end_doubt(self) -> NoReturn:
        """Ask the others whether an answer was opened in a run that ended before this member opened one."""
        found = was_opened_elsewhere(self.plan, self.config)
        if found is None:
            raise PlanRefusedError("Not all members have said yet whether they opened an answer.", Code.SPENT)
        with (
            contextlib.closing(_lock(self._folder / "lock")),
            contextlib.closing(Transcript(self._path)) as self._transcript,
        ):
            if found:
                self._transcript.write("spent", durable=True)
                self._resume().fail("opened elsewhere")
                why = "Others have opened an answer: what was reserved stays spent. Make a new plan."
            else:
                self._give_back(self._resume())
                why = "Nothing was opened: what was reserved is given back. The plan may be run again."
            self._transcript.write("failed", durable=True, reason=why, code=Code.SPENT.value)
        raise PlanRefusedError(why, Code.SPENT)

    def _book(self) -> Run:
        head = self.config.approvals.story.head[:16]
        words = f"joint plan {self.plan.digest[:12]} of {self.plan.text['consortium']}"[:170]
        booked = Booked(f"{words}, decisions {head}", most=most_declared(self.plan.task.public))
        try:
            return self._promise.reserved(str(booked), self.plan.digest)
        except SordinoError as error:
            with contextlib.suppress(PlanRefusedError):
                self._hear_bookings(Code.BUDGET)
            raise PlanRefusedError(f"{self.config.name} could not reserve: {error}", Code.BUDGET) from None

    def _resume(self) -> Run:
        """Take over what an earlier process of this member has booked; a copy of its files comes too late."""
        config, story = self.config, self._story
        turns = sum(line["kind"] == "resumed" for line in story.lines)
        ask = replace(self.plan.ask, ledger=config.ledger, dataset_id=config.dataset)
        place = config.dataset, int(story.find("reserved")["sequence"])
        plan, recipe = self.plan.kernel_plan, self.plan.digest
        stated = {name: float(r.mechanism.multiplier or 0.0) for name, r in plan.releases.items()}
        self._transcript.write("resumed", durable=True)
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

    def _hear_bookings(self, refusal: Code | None) -> None:
        message = json.dumps({"refusal": "" if refusal is None else refusal.value}).encode()
        heard = self._lasting.connected.exchange(message, "Waiting for reservations")
        for member, raw in zip(self._lasting.connected.members, heard):
            said = parse(raw)
            if said.get("refusal") != "":
                code = Code.parse(said.get("refusal"))
                raise PlanRefusedError(f"{member.name} could not reserve: {code.words}", Code.PEER)


def _lock(path: Path) -> Journal:
    """Let one process at a time be at work; whoever only looks holds the lock for a moment."""
    for _ in range(4):
        with contextlib.suppress(PlanError):
            return Journal(path)
        time.sleep(0.25)
    return Journal(path)


def load_local(config: PartyConfig, plan: JointPlan) -> LocalExecutor:
    """Return this member's records as the task of a plan wants them, or refuse it in words without data.

    The file is an NPZ with X and y, or one with named columns of which the last is y. A helper has none.
    """
    classes = list(getattr(plan.model, "classes", None) or ())
    place, features = [m.name for m in plan.members].index(config.name), plan.task.setting.features
    if not plan.records[place]:
        made = plan.model.joint_rows(np.zeros((1, features)), np.array([classes[0] if classes else 0.0]))
        targets = None if made.targets is None else made.targets[:0]
        return replace(made, matrix=made.matrix[:0], targets=targets)
    file = DataFile(str(config.data))
    named = file.kind not in ("npz", "libsvm")
    labels = named and any(isinstance(label, str) for label in classes)
    names = read_names(file) if named else []
    _check_names(plan, names)
    found = read_matrix(file, target=names[-1] if named else None, labels=labels)
    if found.X.shape != (plan.records[place], features):
        what = "records" if found.X.shape[1] == features else "columns"
        raise PlanRefusedError(
            f"The plan counts on {plan.records[place]} records of {features} columns here; mine have another "
            f"number of {what}. Make a plan with the right public numbers.",
            Code.OWN,
        )
    try:
        rows: LocalExecutor = plan.model.joint_rows(found.X, found.y)
        return rows
    except SordinoError as error:
        said = show(classes, 300) if classes else "numbers"
        raise PlanRefusedError(
            f"The records here do not fit the plan, whose targets are {said}: {error} Declare other labels "
            "in the plan (classes = [0, 1]), or drop records by a public rule.",
            Code.OWN,
        ) from None


def _check_names(plan: JointPlan, names: list[str]) -> None:
    """Refuse a file whose header is not the one that the plan states; a file without names has none."""
    task = plan.text["task"]
    stated = dict(enumerate(task.get("columns", ()))) | (
        {plan.task.setting.features: task["target"]} if "target" in task else {}
    )
    for place, name in stated.items():
        if names and names[place : place + 1] != [name]:
            raise PlanRefusedError(
                f"Column {place + 1} of the file here does not have the name {show(name)} that the plan "
                "gives it. Write the file with the columns of the plan, in its order and its units.",
                Code.OWN,
            )


def check_commitment(config: PartyConfig, path: Path) -> str:
    """Return the commitment of a transcript, by its kept plan, if this member's records are those of it."""
    known = read_transcript(path).find("commitment")
    if not known:
        raise TranscriptError(f"{path} holds no commitment: the run ended before.")
    local = load_local(config, JointPlan.load(path.with_name("plan.json")))
    found = commitment((local.matrix, local.targets), bytes.fromhex(known["salt"]))
    if found != known["digest"]:
        raise TranscriptError("The records here are not those that the transcript commits to.")
    return found


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
