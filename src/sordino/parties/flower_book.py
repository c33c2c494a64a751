"""One client's plan for one federated run, on disk: what was paid, and which rounds are spent.

A client's process may end between two rounds, and usually does: Flower starts a new one for each message. So
the plan, its reservation and the number of rounds that were begun live in a folder. A round is written down
*before* its first release: after a crash it counts as spent, whatever of it was released.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sordino.accounting import PrivacyReport, canonical
from sordino.errors import PlanError, PlanSpentError
from sordino.estimators.fitting import Budget, calibrated_plan, reserve_budget
from sordino.kernel import Plan
from sordino.kernel.noise import NoiseSource, fresh_noise
from sordino.ledger import Ledger, Reservation, Status
from sordino.parties.flower_recipe import FederatedRecipe

FORMAT = 1
_CLOSED = "closed"


@dataclass(frozen=True)
class Saved:
    """What the folder holds about a run; public numbers only."""

    run: str
    recipe: str
    multipliers: dict[str, float]
    report: str
    reservation: tuple[str, int] | None


@dataclass(frozen=True)
class Turn:
    """A round that was written down and may now be computed, once."""

    plan: Plan
    report: PrivacyReport
    noise: NoiseSource
    attempt: int


class RoundBook:
    """The rounds of one client.

    Parameters
    ----------
    folder : a folder of this client alone. It holds one run; with a ledger it may hold one after the other,
        because the ledger bounds them together.
    budget : what the run may spend, and the client's own ledger.

    **Privacy.** The whole plan is reserved before the first round. Losing the folder loses no privacy: a run
    that is not in it is planned and reserved anew, and noise never comes from the folder.
    """

    def __init__(self, folder: str | os.PathLike[str], budget: Budget) -> None:
        self.folder, self.budget = Path(folder), budget

    @contextmanager
    def turn(self, run: str, recipe: FederatedRecipe, plan: Plan) -> Iterator[Turn]:
        """Write down the next round and hand it out; at the end of the last one the ledger is settled."""
        with self._locked():
            saved = self._saved()
            if saved is None or saved.run != run:
                saved = self._begin(saved, run, recipe, plan)
            opened = _reopened(saved, run, recipe, plan)
            attempt = self._next(recipe, saved)
            report = PrivacyReport.from_json(saved.report)
            noise = fresh_noise()  # a new key for each round: no noise is used twice
            if report.seeded != (not noise.is_private):
                raise PlanError("The folder was begun with another kind of noise. Use a new folder.")
            self._append(str(attempt + 1))
            yield Turn(opened, report, noise, attempt)
            if attempt + 1 == recipe.rounds:
                self._settle(saved)

    def close(self, run: str) -> None:
        """End the run early: no more rounds, and the ledger is settled. What was reserved stays spent."""
        if not self.folder.exists():
            return
        with self._locked():
            saved = self._saved()
            if saved is not None and saved.run == run:
                self._append(_CLOSED)
                self._settle(saved)

    @property
    def report(self) -> PrivacyReport | None:
        """What the run in the folder guarantees."""
        saved = self._saved()
        return None if saved is None else PrivacyReport.from_json(saved.report)

    @property
    def rounds_begun(self) -> int:
        """How many rounds of the run in the folder are spent."""
        lines = self._lines() if self._journal.exists() else []
        return max((int(line) for line in lines if line.isdigit()), default=0)

    def _begin(self, old: Saved | None, run: str, recipe: FederatedRecipe, plan: Plan) -> Saved:
        if old is not None and self.budget.ledger is None:
            raise PlanError(
                f"The folder {self.folder.name!r} belongs to another run, and without a ledger nothing "
                "bounds their sum. Pass a ledger, or decide for a new run with a new folder."
            )
        plan, certificate = calibrated_plan(plan, self.budget)
        report = PrivacyReport.from_plan(
            plan,
            certificate,
            fresh_noise(),
            public=(f"number of records: {plan.population}", "the recipe and the model's shape"),
            notes=("federated: local noise, each gradient counts as released to the server",),
        )
        words = f"{recipe.algorithm()} run {run}"
        booked = reserve_budget(plan, certificate, self.budget, words)
        multipliers = {n: float(r.mechanism.multiplier or 0.0) for n, r in plan.releases.items()}
        place = None if booked is None else (booked.dataset_id, booked.sequence)
        saved = Saved(run, recipe.digest, multipliers, report.to_json(), place)
        self._write("rounds", "")  # before the run: a run without its journal is refused
        self._write("run.json", json.dumps({"format": FORMAT, **asdict(saved)}))
        return saved

    def _next(self, recipe: FederatedRecipe, saved: Saved) -> int:
        if _CLOSED in self._lines():
            raise PlanSpentError("The run was closed on this client. Start a new run.")
        if self.rounds_begun >= recipe.rounds:
            self._settle(saved)
            raise PlanSpentError(
                f"This client has paid for {recipe.rounds} rounds and all of them are spent. For more, agree "
                "on a recipe with more rounds and start a new run."
            )
        return self.rounds_begun

    def _settle(self, saved: Saved) -> None:
        if saved.reservation is None:
            return
        path = isinstance(self.budget.ledger, (str, os.PathLike))
        ledger = Ledger.open(self.budget.ledger) if path else self.budget.ledger
        dataset_id, sequence = saved.reservation
        entry = next((e for e in ledger.history(dataset_id) if e.sequence == sequence), None)
        if entry is None:
            raise PlanError("The ledger has no reservation of this run. Pass the ledger it was booked on.")
        if entry.status not in (Status.SETTLED, Status.FAILED):
            Reservation(ledger, entry).settle()

    @property
    def _journal(self) -> Path:
        return self.folder / "rounds"

    def _saved(self) -> Saved | None:
        if not (self.folder / "run.json").exists():
            return None
        if not self._journal.exists():
            raise PlanError("The folder has a run but no journal: nobody knows which rounds are spent.")
        data = json.loads((self.folder / "run.json").read_text("utf-8"))
        if data.pop("format") != FORMAT:
            raise PlanError(f"Expected a folder of format {FORMAT}. Use the version that began the run.")
        place = data.pop("reservation")
        return Saved(**data, reservation=None if place is None else (place[0], place[1]))

    def _lines(self) -> list[str]:
        # A line without its end was cut off by a crash, before its round released anything.
        return self._journal.read_text("utf-8").split("\n")[:-1]

    def _append(self, line: str) -> None:
        with open(self._journal, "r+b") as file:
            kept = file.read().rpartition(b"\n")
            file.truncate(len(kept[0] + kept[1]))
            file.seek(0, os.SEEK_END)
            file.write(f"{line}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def _write(self, name: str, text: str) -> None:
        """Replace a file as a whole, on disk when this returns."""
        draft = self.folder / f"{name}.new"
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self.folder / name)
        here = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(here)
        finally:
            os.close(here)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PlanError(
                    f"Another process is at work in the folder {self.folder.name!r}. Wait for it."
                ) from None
            yield


def _reopened(saved: Saved, run: str, recipe: FederatedRecipe, plan: Plan) -> Plan:
    """Return the plan with the noise it was paid for; a plan that has changed is refused."""
    if saved.recipe != recipe.digest:
        raise PlanError("The run in the folder has another recipe. A recipe cannot change during a run.")
    releases = {
        name: replace(r, mechanism=r.mechanism.at(saved.multipliers[name]))
        for name, r in plan.releases.items()
    }
    plan = replace(plan, releases=releases)
    if canonical(PrivacyReport.from_json(saved.report).event) != canonical(plan.event()):
        raise PlanError("The plan is not the one that was paid for: the number of records has changed.")
    return plan
