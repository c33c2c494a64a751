"""Which rows are replayed when: some neighbours of all rows in every run, all neighbours in the long one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tests.replay.neighbours import Data, changes, hostile_data, placed
from tests.replay.subjects import LEAD, LONG, Subject

from sordino.auditing.tape import Absent, Neighbour, Recording, Verdict, compare_neighbour, play
from sordino.kernel import Relation

# Rows that every run replays on a cluster, where messages take long: all records, batches, chunks.
SPREAD = (
    "SparseLinearRegression/ight/squared",
    "SparseLinearRegression/sgd-ht/squared",
    "SparseLinearRegression/auto/squared",
    "PCA/oja/center=True",
    "mean/default",
)


@dataclass(frozen=True)
class Case:
    """A row, a relation, and a place where the rows lie."""

    subject: Subject
    relation: str
    place: str
    long: bool

    @property
    def name(self) -> str:
        """The name in the tests' output."""
        return f"{self.subject.name}-{self.relation}-{self.place}"

    @property
    def is_long(self) -> bool:
        """Whether it is replayed in the long run only."""
        level, home = self.subject.level, self.place in ("memory", "persons")
        if self.place == "dask" and self.subject.name not in SPREAD:
            return True
        if level == LONG or (level != LEAD and not home) or self.place == "csr on disk":
            return True
        # A run asks the same under either relation, and a changed record is judged under the other one too.
        again = level != LEAD and len(self.subject.relations) > 1
        return (again or self.place != "memory") and self.relation == Relation.REPLACE_ONE.value

    def judged(self, folder: Path) -> Verdict:
        """Record and replay; refuse nothing, tell everything."""
        data = hostile_data(self.subject.kind, self.place == "persons")
        verdict = Verdict(play(self._run(data, folder)), [], {})
        for neighbour in self._neighbours(data, folder):
            compare_neighbour(verdict, neighbour, self.subject.rounding)
        return verdict

    def recorded(self, folder: Path) -> Recording:
        """Record only."""
        return play(self._run(hostile_data(self.subject.kind, self.place == "persons"), folder))

    def _neighbours(self, data: Data, folder: Path) -> Iterator[Neighbour]:
        zero_out = self.relation == Relation.ADD_REMOVE.value
        most = None if self.long else 4 if self.place == "memory" and self.subject.level == LEAD else 2
        if zero_out:
            for unit in (0, 1, 2, data.units - 1) if self.long else (0, data.units - 1):
                yield Neighbour(f"without unit {unit}", self._run(data, folder), Absent(unit, data.groups))
        for name, other in islice(changes(data, self.long), most):
            yield Neighbour(name, self._run(other, folder), None, 2 if zero_out else 1)

    def _run(self, data: Data, folder: Path) -> Callable[[], Any]:
        return lambda: self.subject.fit(placed(self.place, data, folder), self.relation)


def cases_of(subjects: list[Subject], long: bool) -> list[Case]:
    """Return the cases of every run, or those of the long one."""
    made = [
        Case(subject, relation, place, long)
        for subject in subjects
        for relation in subject.relations
        for place in (*subject.must, *subject.may)
    ]
    return [case for case in made if long or not case.is_long]


def told(case: Case, verdict: Verdict) -> list[str]:
    """Return everything that is wrong with a case; nothing where it holds, or is refused where it may be."""
    found, recording = [str(leak) for leak in verdict.leaks], verdict.recording
    if recording.error is not None and (case.place in case.subject.must or recording.questions):
        found.append(f"it does not run: {recording.error}")
    if recording.error is not None and recording.error.startswith("foreign"):
        found.append(f"an error of no type of ours: {recording.error}")
    return found
