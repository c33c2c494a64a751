"""Runs that survive a crash without asking any question twice.

Two files: the checkpoint (released values only) is replaced as a whole every few steps; the journal
gets one line *before* each release. After a crash the state is that of the checkpoint, the position that of
the journal: releases in between are spent and not repeated.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch

from sordino.errors import InvalidInputError, PlanError
from sordino.nn.solvers import TrainingState

FORMAT = 1


class Journal:
    """Counts releases on disk; only one process may hold it."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a+b")  # noqa: SIM115 - held, and locked, as long as the run
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise PlanError(
                f"Another process is training with the checkpoint of {path.name!r}. Wait for it."
            ) from None

    def counts(self) -> dict[str, int]:
        """Return the highest count of each release.

        A line without its end was cut off by the crash: its release was not asked, because a line is on
        disk as a whole before that.
        """
        self._file.seek(0)
        text = self._file.read().decode("utf-8")
        found: dict[str, int] = {}
        for line in text.split("\n")[:-1]:
            name, _, count = line.partition(" ")
            if count.isdigit():
                found[name] = max(found.get(name, 0), int(count))
        if text and not text.endswith("\n"):
            self._file.write(b"\n")  # or the next line would grow onto the broken one
        return found

    def note(self, name: str, count: int) -> None:
        """Write that release ``name`` is about to be asked for the ``count``-th time."""
        self._file.write(f"{name} {count}\n".encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Give up the file and its lock."""
        self._file.close()


@dataclass(frozen=True)
class Saved:
    """What a checkpoint holds besides the state."""

    used: dict[str, int]
    multipliers: dict[str, float]
    recipe: str
    report: str
    reservation: tuple[str, int] | None


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A run on disk, under ``path`` and ``path.journal``."""

    path: Path
    every: int = 50

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        if self.every < 1:
            raise InvalidInputError(f"Expected a checkpoint every >= 1 steps, got {self.every}.")

    @property
    def journal_path(self) -> Path:
        """Where releases are counted."""
        return self.path.with_name(self.path.name + ".journal")

    def refuse_existing(self) -> None:
        """Refuse to start a second run over a first one."""
        if self.path.exists() or self.journal_path.exists():
            raise PlanError(f"The checkpoint {self.path.name!r} exists. Call resume, or choose another path.")

    def require(self) -> None:
        """Refuse to go on with half of a run."""
        if not self.path.exists() or not self.journal_path.exists():
            raise PlanError(
                f"Expected the checkpoint {self.path.name!r} and its journal, found not both: without the "
                "journal nobody knows which releases are spent."
            )

    def save(self, state: TrainingState, saved: Saved) -> None:
        """Replace the checkpoint as a whole."""
        content = {
            "format": FORMAT,
            "state": {"vector": state.vector, "average": state.average, **_named(state.slots)},
            "weight": state.weight,
            "random": _generators(),
            **vars(saved),
        }
        draft = self.path.with_name(self.path.name + ".new")
        with open(draft, "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self.path)

    def load(self, device: torch.device) -> tuple[TrainingState, Saved]:
        """Return the saved state; only tensors and plain values are read."""
        content = torch.load(self.path, map_location=device, weights_only=True)
        if content["format"] != FORMAT:
            raise PlanError(f"Expected a checkpoint of format {FORMAT}, got {content['format']}.")
        _restore(content["random"])
        state = content["state"]
        slots = {k.removeprefix("slot "): v for k, v in state.items() if k.startswith("slot ")}
        keys = ("used", "multipliers", "recipe", "report", "reservation")
        loaded = TrainingState(state["vector"], slots, state["average"], content["weight"])
        return loaded, Saved(*(content[key] for key in keys))


def latest(counts: Mapping[str, int], saved: Mapping[str, int]) -> dict[str, int]:
    """Return the larger of two counts of each release."""
    return {name: max(counts.get(name, 0), saved.get(name, 0)) for name in {*counts, *saved}}


def words(value: Any) -> str:
    """Return a text of a solver that is the same in every process; functions go by name."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(f"{f.name}={words(getattr(value, f.name))}" for f in fields(value))
        return f"{type(value).__name__}({inner})"
    return getattr(value, "__qualname__", None) or repr(value)


def _named(slots: dict[str, Any]) -> dict[str, Any]:
    return {f"slot {name}": value for name, value in slots.items()}


def _generators() -> dict[str, Any]:
    """Return the state of torch's own generators: dropout goes on where it stopped."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def _restore(generators: dict[str, Any]) -> None:
    torch.set_rng_state(generators["cpu"].cpu())
    if generators["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([state.cpu() for state in generators["cuda"]])
