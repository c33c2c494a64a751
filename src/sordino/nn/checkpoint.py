"""Checkpoints of a training: a crash loses no budget, and no question is asked twice.

Two files: the checkpoint (released values only) is replaced as a whole every few steps; the journal
gets one line *before* each release. After a crash the state is that of the checkpoint, the position that of
the journal: releases in between are spent and not repeated.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch

from sordino.errors import InvalidInputError, PlanError
from sordino.execute.draws import TURN, generators, restore
from sordino.nn.solvers import TrainingState
from sordino.runs import SavedRun

FORMAT = 3


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
        """Refuse to start a second run over a first one, or where nothing can be written."""
        if not os.access(self.path.parent, os.W_OK | os.X_OK):
            raise InvalidInputError(
                f"Expected a checkpoint in a folder that can be written to, got {self.path.name!r} elsewhere."
            )
        if self.path.exists() or self.journal_path.exists():
            raise PlanError(f"The checkpoint {self.path.name!r} exists. Call resume, or choose another path.")

    def require(self) -> None:
        """Refuse to go on with half of a run."""
        if not self.path.exists() or not self.journal_path.exists():
            raise PlanError(
                f"Expected the checkpoint {self.path.name!r} and its journal, found not both: without the "
                "journal nobody knows which releases are spent."
            )

    def save(self, state: TrainingState, saved: SavedRun, used: dict[str, int]) -> None:
        """Replace the checkpoint as a whole."""
        content = {
            "format": FORMAT,
            "state": {"vector": state.vector, "average": state.average, **_named(state.slots)},
            "weight": state.weight,
            "random": generators(),
            "used": used,
            "run": asdict(saved),
        }
        draft = self.path.with_name(self.path.name + ".new")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self.path)

    def load(self, device: torch.device) -> tuple[TrainingState, SavedRun, dict[str, int]]:
        """Return the saved state; only tensors and plain values are read."""
        try:
            content = torch.load(self.path, map_location=device, weights_only=True)
            if content["format"] != FORMAT:
                raise PlanError(f"Expected a checkpoint of format {FORMAT}, got {content['format']}.")
            state = content["state"]
            slots = {k.removeprefix("slot "): v for k, v in state.items() if k.startswith("slot ")}
            loaded = TrainingState(state["vector"], slots, state["average"], content["weight"])
            found = loaded, SavedRun(**content["run"]), content["used"]
            with TURN:
                restore(content["random"])
        except (PlanError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a torn file fails in many ways
            kind = type(error).__name__
        else:
            return found
        raise PlanError(
            f"Expected a whole checkpoint, got {self.path.name!r} torn or of another kind ({kind}). What "
            "the run has booked stays spent. Restore the file, or train anew under another path."
        )


def words(value: Any) -> str:
    """Return a text of a solver that is the same in every process; functions go by name."""
    if is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(f"{f.name}={words(getattr(value, f.name))}" for f in fields(value))
        return f"{type(value).__name__}({inner})"
    return getattr(value, "__qualname__", None) or repr(value)


def _named(slots: dict[str, Any]) -> dict[str, Any]:
    return {f"slot {name}": value for name, value in slots.items()}
