"""What a replay may not show: anything but exact answers that are at most a sensitivity apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tests.replay.absent import Absent
from tests.replay.facts import first_difference
from tests.replay.readings import distance
from tests.replay.tape import Question, Recording, play

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


def judge(run: Callable[[], Any], neighbours: Iterable[Neighbour], rounding: float = ROUNDING) -> Verdict:
    """Record a run, replay it on its neighbours, and return everything that tells them apart."""
    recorded = play(run)
    nearest: dict[str, float] = {}
    leaks: list[Leak] = []
    for neighbour in neighbours:
        replayed = play(neighbour.run, recorded, neighbour.absent)
        most = neighbour.steps * (1.0 + rounding)
        leaks += [Leak(kind, neighbour.name, what) for kind, what in _told(recorded, replayed, most)]
        for ours, theirs in zip(recorded.questions, replayed.questions, strict=False):
            share = _share(ours, theirs) / max(neighbour.steps, 1)
            nearest[ours.name] = max(nearest.get(ours.name, 0.0), share)
    return Verdict(recorded, leaks, nearest)


def _told(recorded: Recording, replayed: Recording, most: float) -> Iterable[tuple[str, str]]:
    if recorded.error != replayed.error:
        yield "error", f"{_brief(recorded.error)} became {_brief(replayed.error)}"
    if recorded.words != replayed.words:
        yield "words", f"{recorded.words[:3]} became {replayed.words[:3]}"
    if recorded.plans != replayed.plans:
        yield "plans", f"{len(recorded.plans)} plans and {len(replayed.plans)}, or not the same ones"
    names = [[question.name for question in one.questions] for one in (recorded, replayed)]
    if names[0] != names[1]:
        yield "questions", f"{names[0]} became {names[1]}"
    for ours, theirs in zip(recorded.questions, replayed.questions, strict=False):
        yield from _told_by_one(ours, theirs, most)
    away = first_difference(recorded.state, replayed.state)
    if away is not None:
        yield "state", f"differs at {away}"


def _told_by_one(ours: Question, theirs: Question, most: float) -> Iterable[tuple[str, str]]:
    for kind, one, other in (
        ("questions", ours.facts, theirs.facts),
        ("parameters", ours.params, theirs.params),
        ("answers", ours.answer, theirs.answer),
    ):
        away = first_difference(one, other)
        if away is not None:
            yield kind, f"{ours.name} differs at {away}"
    if ours.exact is None or theirs.exact is None:
        yield "exact answer", f"that of {ours.name} passed no mechanism"
    elif not _share(ours, theirs) <= most:
        yield "sensitivity", f"{ours.name} moved by {_share(ours, theirs):.6g} of its sensitivity"


def _share(ours: Question, theirs: Question) -> float:
    """Return how far the exact answers are apart, in sensitivities."""
    moved = distance(ours.exact or [], theirs.exact or [], ours.norm)
    if ours.sensitivity == 0:
        return 0.0 if moved == 0 else float("inf")
    return moved / ours.sensitivity


def _brief(error: str | None) -> str:
    return "no error" if error is None else repr(error[:300])
