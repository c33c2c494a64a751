"""A computation that outlives its connections and processes: what was opened is kept and never asked again.

Each release goes through five steps at every member, each on disk before the next begins:

1. *kept*: the shares of the noised answer are in a file. Nothing that depends on a record was opened.
2. *ready*, when everybody has said that it keeps shares of the same attempt; a member says that, too.
3. *opening*, when everybody has said that it is ready.
4. shares are sent, and the answer is computed.
5. *release*: the answer is in a file, its hash in the transcript.

No answer is computed again after a share of it has left, who has not said that it is ready has not paid, and
members may leave where the plan says how many. docs/parties/threat-model.md proves all three.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sordino.errors import PartyError
from sordino.execute.parties import Draw
from sordino.execute.parties.field import Field
from sordino.kernel.arrays import Ints
from sordino.parties.mpc.links import PartyLostError
from sordino.parties.mpc.shamir import ShamirEngine
from sordino.parties.mpc.transcript import Transcript, digest_of, private_folder, read_transcript
from sordino.runs.journal import replace_durably

PAUSE = 0.5  # seconds between two attempts to meet again
TRIES = 10  # losses in one release; whoever comes back only to be lost again holds up nobody for ever
_NAME = 16  # bytes of the name of an attempt


@dataclass(frozen=True)
class Kept:
    """Answers, and the shares of the last one, in a folder of this member's own."""

    folder: Path

    def answer(self, number: int) -> Ints | None:
        path = private_folder(self.folder) / f"answer-{number}"
        return Field().signed(_numbers(path.read_bytes())) if path.exists() else None

    @property
    def count(self) -> int:
        return len(list(self.folder.glob("answer-*[0-9]")))

    def shares(self, number: int) -> tuple[str, Any] | None:
        """Return the attempt and the shares of an answer, if these are the last."""
        path = self.folder / f"shares-{number}"
        raw = path.read_bytes() if path.exists() else b""
        return (raw[:_NAME].hex(), _numbers(raw[_NAME:])) if raw else None

    def keep(self, what: str, number: int, values: Any, attempt: str = "") -> None:
        """Write shares of an attempt, or an answer."""
        raw = bytes.fromhex(attempt) + Field().dumps(Field().array(values.reshape(-1)))
        replace_durably(private_folder(self.folder) / f"{what}-{number}", lambda file: file.write(raw))

    def forget_shares(self, before: int) -> None:
        for path in self.folder.glob("shares-*"):
            if path.suffix or int(path.name.rpartition("-")[2]) < before:
                path.unlink()


def _numbers(raw: bytes) -> Any:
    return Field().loads(raw, len(raw) // Field.width)


@dataclass
class Lasting:
    """The engine of a run as its executor sees it; a lost connection is waited for.

    ``connect`` returns an engine that is connected with all but those who have left, ``meet`` agrees with
    everybody on plan and answers and returns how far each one is, ``ahead`` draws noise before a record is
    asked. ``left`` counts the numbers that delta was paid for.
    """

    connect: Callable[[set[str]], ShamirEngine]
    meet: Callable[[ShamirEngine, dict[str, Any]], list[dict[str, Any]]]
    ahead: Callable[[ShamirEngine], None]
    transcript: Transcript
    left: int
    patience: float
    say: Callable[[str], None]
    records: Mapping[str, int] = field(default_factory=dict)
    dropouts: int = 0
    engine: ShamirEngine | None = None
    number: int = 0
    bytes_sent: int = 0
    _ask: tuple[bytes, Any] = field(default=(b"", None), repr=False)

    @property
    def kept(self) -> Kept:
        return Kept(self.transcript.path.parent / "answers")

    @property
    def _story(self) -> Any:
        return read_transcript(self.transcript.path)

    def expect(self, header: bytes, mine: Any) -> None:
        """Hear what the next release is about; all members must say the same."""
        self._ask = header, mine

    def start(self) -> None:
        """Meet everybody, for the first time or again, and bring the answers of all to the same number."""
        for number in range(self._story.releases, self.kept.count):  # the crash came between file and line
            answer = self.kept.answer(number)
            assert answer is not None
            self.transcript.write("release", opened=digest_of(answer))
        gone = sorted(x["member"] for x in self._story.lines if x["kind"] == "dropped")
        engine = self.engine = self.connect(set(gone))
        done = self.kept.count
        sent = any(x["kind"] == "opening" and x["number"] == done for x in self._story.lines)
        last = [found[0] if (found := self.kept.shares(n)) else "" for n in (done - 1, done)]
        state = {"done": done, "sent": sent, "kept": last}
        heard = self.meet(engine, {**state, **({"gone": gone} if gone else {})})
        if any(said.get("gone", []) != gone for said in heard):
            raise PartyLostError("Members do not agree yet on who has left.")
        counts = [n for n in (said.get("done") for said in heard) if type(n) is int and n >= 0]
        if len(counts) < len(heard) or max(counts) > min(counts) + 1:
            raise PartyError("The members do not agree on how many answers were opened. The run is over.")
        low = min(counts)
        if max(counts) > low or any(said.get("sent") is True for said in heard):
            if any(not said or said != last[low - done + 1] for said in _attempts(heard, low)):
                raise PartyError(f"Answer {low} may be open, and not all have its shares. The run is over.")
            self._open(low)
        self.ahead(engine)

    def sum(self, values: Ints, draw: Draw) -> Any:
        """Return an answer that is kept, or open it, however often connections are lost meanwhile."""
        number, self.number = self.number, self.number + 1
        self.left -= values.size
        if self.left < 0:
            raise PartyError(
                "The run would open more numbers than its plan has counted. Nothing more is opened."
            )
        tries = 0
        while (found := self.kept.answer(number)) is None:
            try:
                self._release(number, values, draw.part(2**63 + tries))
            except PartyLostError as error:
                tries += 1
                if tries % TRIES == 0:
                    self._drop(error)
                self.wait(error)
        if found.size != values.size:
            raise PartyError("A kept answer has another length than its release. The run is over.")
        found = found.reshape(values.shape)
        if not self.dropouts:
            return found
        # Those who had left did not contribute: what is left stands for all records.
        here = {x["attempt"]: x["members"] for x in self._story.lines if x["kind"] == "kept"}
        *_, opened = (x for x in self._story.lines if x["kind"] == "opening" and x["number"] == number)
        part = sum(self.records[name] for name in here[opened["attempt"]])
        return found * (sum(self.records.values()) / part)

    def wait(self, error: PartyLostError) -> None:
        """Meet the others again, as long as patience allows, or without one who is lost, if the plan does."""
        until = time.monotonic() + self.patience
        while True:
            if time.monotonic() >= until:
                until = self._drop(error) + self.patience
            self.say(f"{error} Waiting for it.")
            self.close()
            time.sleep(PAUSE)
            try:
                return self.start()
            except PartyLostError as again:
                error = again

    def _drop(self, error: PartyLostError) -> float:
        """Go on without a lost member for good, or end the run; return the time."""
        gone = [x["member"] for x in self._story.lines if x["kind"] == "dropped"]
        if error.party not in self.records or error.party in gone or len(gone) >= self.dropouts:
            raise PartyError(str(error), error.party)
        self.transcript.write("dropped", durable=True, member=error.party)
        self.say(f"{error.party} has left. The run goes on without it.")
        return time.monotonic()

    def _release(self, number: int, values: Ints, draw: Draw) -> None:
        engine, own = self.connected, hashlib.sha256(draw.coin).digest()[:_NAME]
        heard = require_near(engine, *self._ask, f"Agreeing on release {number}", own)
        attempt = hashlib.sha256(b"".join(heard)).digest()[:_NAME].hex()
        if self.dropouts:  # of the members of the plan, those who are here
            live = [point - 1 for point in engine.points]
            draw = replace(draw, reaches=tuple(draw.reaches[i] for i in live), party=engine.index)
        shares, names = engine.secret_sum(values, draw), [m.name for m in engine.members]
        self.transcript.write("kept", durable=True, number=number, attempt=attempt, members=names)
        self.kept.keep("shares", number, shares, attempt)
        self.kept.forget_shares(number)
        self._agree(f"kept {number} {attempt}")
        self._open(number)

    def _agree(self, said: str) -> None:
        engine = self.connected
        for member, raw in zip(engine.members, engine.exchange(said.encode(), "Keeping shares")):
            if raw != said.encode():
                raise PartyError(f"{member.name} is at another release.", member.name)

    def _open(self, number: int) -> None:
        found = self.kept.shares(number)
        if found is None:
            raise PartyError(f"Answer {number} may be open, and its shares are not here. The run is over.")
        attempt, shares = found
        # Whoever may leave, an honest one of those who stay has written *opening* before a share is sent.
        said = "opening" if self.dropouts else "ready"
        self.transcript.write(said, durable=True, number=number, attempt=attempt)
        self._agree(f"{said} {number} {attempt}")
        if not self.dropouts:
            self.transcript.write("opening", durable=True, number=number, attempt=attempt)
        opened = self.connected.open(shares)
        before = self.kept.answer(number)
        if before is None:
            self.kept.keep("answer", number, opened)
            self.transcript.write("release", opened=digest_of(opened))
        elif not np.array_equal(before, opened):
            raise PartyError("An answer that was opened before is another one now. The run is over.")

    @property
    def connected(self) -> ShamirEngine:
        if self.engine is None:
            raise PartyLostError("The connections are closed.")
        return self.engine

    def close(self, farewell: bool = False) -> None:
        """Close all connections; ``farewell`` says that this member will not come back."""
        if self.engine is not None:
            self.bytes_sent += self.engine.bytes_sent
            with contextlib.suppress(Exception):
                self.engine.close(farewell)
            self.engine = None


def require_near(engine: Any, header: bytes, mine: Any, what: str, own: bytes = b"") -> list[bytes]:
    """Go on if everybody has the same header, and the same public numbers but for rounding.

    Return what each member adds of its own, as many bytes as ``own`` has. Members' processors may round what
    they compute from the answers differently. That is harmless: each record is clipped at the point its own
    party uses, and the noise is in the header and enough for all.
    """
    begin, heard = len(header) + len(own), []
    for member, raw in zip(engine.members, engine.exchange(header + own + mine.tobytes(), what)):
        theirs = np.frombuffer(raw[begin:]) if len(raw) == begin + mine.nbytes else None
        close = theirs is not None and np.allclose(theirs, mine, rtol=1e-6, atol=1e-9)
        if raw[: len(header)] != header or not close:
            raise PartyError(f"{what}: {member.name} is at another point of the run.", member.name)
        heard.append(raw[len(header) : begin])
    return heard


def _attempts(heard: list[dict[str, Any]], number: int) -> list[Any]:
    kept = [(said.get("kept"), number - said["done"] + 1) for said in heard]
    return [two[place] if isinstance(two, list) and len(two) == 2 else "" for two, place in kept]


def may_be_open(said: Iterable[str], threshold: int) -> bool | None:
    """Tell whether an answer may be open, from how far each of the others came in a run that is over.

    It is for one who sent nothing, by its own files: one word of an opening, and an answer may be open.
    If ``threshold + 1`` were never ready, an honest one of them was not, and nobody honest sends before it
    heard that from all. If everybody sent nothing, nobody honest did. In both cases those who lie have only
    their own ``threshold`` shares. None: not known yet.
    """
    words = list(said)
    if "opening" in words:
        return True
    return None if words.count("unready") <= threshold and {*words} - {"unready", "ready"} else False


def parse(raw: bytes) -> dict[str, Any]:
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise PartyError("A party sent a message that is not understood.")
    return said
