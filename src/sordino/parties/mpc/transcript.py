"""What happened in a run, kept by every party, chained by hashes and comparable afterwards."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np

from sordino.errors import InvalidInputError, SordinoError
from sordino.parties.words import canonical

_FLAGS = {
    "wb": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}


def private_folder(path: Path) -> Path:
    """Make a folder, and take everybody else's rights on it away if it was there before."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.name == "posix":
        path.chmod(0o700)
    return path


def open_private(path: Path, mode: str) -> IO[Any]:
    """Open a file for writing; it is its owner's alone from its first byte on."""
    handle = os.open(path, _FLAGS[mode] | getattr(os, "O_NOFOLLOW", 0), 0o600)
    if os.name == "posix":
        os.fchmod(handle, 0o600)
    return os.fdopen(handle, mode)


# What is the same at all parties; the rest (times, salts, reservations) is each party's own.
SHARED = ("plan", "session", "release", "finished")


class TranscriptError(SordinoError, RuntimeError):
    """A transcript was changed, or two of them tell different stories."""


class Transcript:
    """An append-only file of JSON lines; each line holds the hash of the one before.

    A file that is there is continued; a last line that a crash cut off is taken away first.

    **Privacy.** It holds hashes of opened values and commitments, never records. The salt of this party's
    commitment is in it: keep the file as you keep the data. Only its owner can read it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        private_folder(path.parent)
        story = read_transcript(path)
        self._file = open_private(path, "ab")
        self._file.truncate(story.length)
        self._last = story.head
        self._shared = hashlib.sha256(b"sordino transcript")
        for line in story.shared():
            self._shared.update(canonical(line))

    @property
    def shared_digest(self) -> str:
        return self._shared.hexdigest()

    def write(self, kind: str, durable: bool = False, **facts: Any) -> None:
        """Add a line; ``durable`` lines are on disk when this returns."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = canonical({"kind": kind, "at": now, "previous": self._last, **facts})
        self._last = hashlib.sha256(line).hexdigest()
        if kind in SHARED:
            self._shared.update(canonical({"kind": kind, **facts}))
        self._file.write(line + b"\n")
        self._file.flush()
        if durable:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class Story:
    """A transcript that was read back and whose chain holds."""

    lines: tuple[dict[str, Any], ...]
    head: str = "0" * 64
    length: int = 0

    @property
    def status(self) -> str:
        """How it ended: "settled", "failed", "refused", or "unfinished"; what ended once does not go on."""
        ends = [x["kind"] for x in self.lines if x["kind"] in ("settled", "failed", "refused")]
        return ends[-1] if ends else "unfinished"

    @property
    def is_spent(self) -> bool:
        """Whether the plan was booked here and not given back before anything was asked."""
        return bool(self.find("reserved")) and not self.find("returned")

    @property
    def sharing(self) -> str:
        """How far a run that is over came: "unready", "ready", "opening" (shares were sent); else ""."""
        steps = [step for step in ("opening", "ready") if self.find(step)] or ["unready"]
        return "" if self.status == "unfinished" and not self.find("returned") else steps[0]

    @property
    def is_known_to_others(self) -> bool:
        """Whether others may know more: of one who was ready, or whose files may be an old copy put back."""
        return bool(self.find("ready") or self.find("resumed"))

    @property
    def is_in_doubt(self) -> bool:
        """Whether only the others know if an answer was opened, and nobody has asked them yet."""
        is_over = self.sharing in ("unready", "ready") and not self.find("spent")
        return self.is_spent and is_over and self.is_known_to_others

    @property
    def releases(self) -> int:
        return sum(line["kind"] == "release" for line in self.lines)

    def shared(self) -> list[dict[str, Any]]:
        private = ("at", "previous")
        return [{k: v for k, v in x.items() if k not in private} for x in self.lines if x["kind"] in SHARED]

    def find(self, kind: str) -> dict[str, Any]:
        return next((line for line in self.lines if line["kind"] == kind), {})


def read_transcript(path: Path) -> Story:
    """Read a transcript, if it is there, and check its chain; a torn last line of a crash is left out."""
    previous, lines, length = "0" * 64, [], 0
    try:
        raw = path.read_bytes().split(b"\n") if path.exists() else [b""]
    except OSError as error:
        raise InvalidInputError(f"Expected a transcript at {path}: {type(error).__name__}.") from None
    for number, text in enumerate(raw[:-1], start=1):
        try:
            line = json.loads(text)
        except ValueError:
            raise TranscriptError(f"Line {number} of {path} is not JSON: the file was changed.") from None
        sound = isinstance(line, dict) and isinstance(line.get("kind"), str)
        if not sound or line.get("previous") != previous:
            raise TranscriptError(f"Line {number} of {path} does not follow the line before: it was changed.")
        previous = hashlib.sha256(text).hexdigest()
        lines.append(line)
        length += len(text) + 1
    return Story(tuple(lines), previous, length)


def compare(stories: Sequence[Story]) -> int:
    """Check that transcripts of several parties tell the same story; return the number of releases.

    A party that stopped earlier may know less, but nothing else; if answers were opened, only one who was
    left behind can have its reservation back.
    """
    longest = max((story.shared() for story in stories), key=len)
    releases = sum(line["kind"] == "release" for line in longest)
    for number, story in enumerate(stories, start=1):
        mine = story.shared()
        if mine != longest[: len(mine)]:
            raise TranscriptError(f"Transcript {number} disagrees with the others on what was released.")
        own, session = story.find("commitment"), story.find("session")
        if own and session and own["digest"] not in session["commitments"]:
            raise TranscriptError(f"Transcript {number} holds a commitment that the others never saw.")
        if story.find("returned") and releases and not any(other.find("dropped") for other in stories):
            raise TranscriptError(
                f"Transcript {number} gave its reservation back, and {releases} answer(s) of its plan were "
                "opened: its ledger counts too little. Count the epsilon of the plan as spent there."
            )
    return releases


def commitment(arrays: Sequence[Any], salt: bytes) -> str:
    """Return a salted hash of the data of a party: binding, and it tells nothing without the salt."""
    found = hashlib.sha256(salt)
    for array in arrays:
        plain = np.ascontiguousarray(array)
        found.update(f"{plain.dtype.str}{plain.shape}".encode())
        found.update(plain.tobytes())
    return found.hexdigest()


def digest_of(values: Any) -> str:
    return hashlib.sha256(",".join(str(int(v)) for v in np.ravel(values)).encode()).hexdigest()
