"""What a replay may not show: anything but exact answers that are at most a sensitivity apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sordino.auditing.facts import facts_of, first_difference
from sordino.auditing.tape import Absent, Heard, Recording, distance, play

# The rounding of sums of few dozen bounded doubles and of the norm of their difference, in sensitivities.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Neighbour:
    """A data set that differs in one unit: other data, or the same without a unit that is ``absent``.

    Answers may move by ``steps`` sensitivities: two where a unit is replaced and the relation is
    add-remove, for one leaves and another comes.
    """

    name: str
    run: Callable[[], Any]
    absent: Absent | None = None
    steps: int = 1


@dataclass(frozen=True)
class Leak:
    """A way in which two neighbours are told apart."""

    kind: str
    neighbour: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.neighbour}): {self.what}"


@dataclass(frozen=True)
class Verdict:
    """The recording, what gave neighbours away, and how near a sensitivity their answers came."""

    recording: Recording
    leaks: list[Leak]
    nearest: dict[str, float]


def compare_neighbour(
    verdict: Verdict, neighbour: Neighbour, rounding: float = ROUNDING, forced: int | None = None
) -> Recording:
    """Replay the recording of a verdict on one neighbour, and add to the verdict what tells the two apart."""
    recorded, most = verdict.recording, neighbour.steps * (1.0 + rounding)
    replayed = play(neighbour.run, recorded, neighbour.absent, forced=forced)
    verdict.leaks.extend(
        Leak(kind, neighbour.name, what) for kind, what in _differences(recorded, replayed, most)
    )
    for ours, theirs in zip(recorded.questions, replayed.questions, strict=False):
        near = share(ours, theirs) / max(neighbour.steps, 1)
        verdict.nearest[ours.name] = max(verdict.nearest.get(ours.name, 0.0), near)
    return replayed


def compare_others(
    recorded: Recording, left: Recording, again: Callable[..., Recording], gone: Absent, rounding: float
) -> Iterable[str]:
    """Yield where others count otherwise because of a unit that is left out.

    It leaves the recorded data set, and ``again`` one that differs in this unit alone: the same records are
    left, whatever a program did to them before it asked. Where a program has moved records about, another
    unit leaves both, and what that one adds is the same.
    """
    there = again(gone, forced=gone.unit)
    yield from (f"{kind}: {what}" for kind, what in _differences(left, there, float("inf")))
    pairs = [*zip(left.questions, there.questions, strict=False)]
    apart = [number for number, pair in enumerate(pairs) if not share(*pair) <= rounding]
    other = again(forced=gone.unit) if apart else there
    for number in apart:
        ours, theirs = pairs[number]
        added = [_added(one.questions[number:], side) for one, side in ((recorded, ours), (other, theirs))]
        if not distance(added[0], added[1], ours.norm) <= 4 * rounding * ours.sensitivity:
            yield f"what others add to {ours.name} depends on one unit"


def _added(asked: list[Heard], left: Heard) -> list[Any]:
    """Return what the unit that left had added to a sum; nan where no number tells."""
    known = asked and asked[0].vector.shape == left.vector.shape and left.vector.dtype != object
    return [asked[0].vector - left.vector if known else np.array([np.nan])]


def _differences(recorded: Recording, replayed: Recording, most: float) -> Iterable[tuple[str, str]]:
    if recorded.error != replayed.error:
        yield "error", f"{_class(recorded.error)} became {_class(replayed.error)}, or other words of it"
    if recorded.words != replayed.words:
        counts = f"{len(recorded.words)} and {len(replayed.words)} lines"
        yield "words", f"what is printed or warned of differs: {counts}"
    plans = [
        [facts_of((sorted(p.releases), p.relation, p.population, p.unit)) for p in one.plans]
        for one in (recorded, replayed)
    ]
    if plans[0] != plans[1]:
        yield "plans", f"{len(recorded.plans)} plans and {len(replayed.plans)}, or not the same ones"
    names = [[question.name for question in one.questions] for one in (recorded, replayed)]
    if names[0] != names[1]:
        yield "questions", f"{names[0]} became {names[1]}"
    for ours, theirs in zip(recorded.questions, replayed.questions, strict=False):
        yield from _differences_of_one(ours, theirs, most)
    away = first_difference(recorded.state, replayed.state)
    if away is not None:
        yield "state", f"differs at {_place(away)}"


def _differences_of_one(ours: Heard, theirs: Heard, most: float) -> Iterable[tuple[str, str]]:
    for kind, one, other in (
        ("questions", ours.facts, theirs.facts),
        ("parameters", ours.params, theirs.params),
        ("answers", ours.answer, theirs.answer),
    ):
        away = first_difference(one, other)
        if away is not None:
            yield kind, f"{ours.name} differs at {_place(away)}"
    if ours.exact is None or theirs.exact is None:
        yield "exact answer", f"that of {ours.name} passed no mechanism"
    elif not share(ours, theirs) <= most:
        yield "sensitivity", f"{ours.name} moved by {share(ours, theirs):.6g} of its sensitivity"


def share(ours: Heard, theirs: Heard) -> float:
    """Return how far the exact answers are apart, in sensitivities."""
    moved = distance(ours.exact or [], theirs.exact or [], ours.norm)
    if ours.sensitivity == 0:
        return 0.0 if moved == 0 else float("inf")
    return moved / ours.sensitivity


def _place(path: str) -> str:
    """Return the first attribute of a path: names further down may be values of a record."""
    return path.lstrip(".").partition(".")[0]


def _class(error: str | None) -> str:
    """Return the class of an error: its words may quote a record."""
    return "no error" if error is None else error.partition(":")[0]
