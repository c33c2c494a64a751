"""One paid-for training: calibrate, reserve, open the curator, settle. Or go on with a saved one."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any

from sordino.accounting import PrivacyReport, canonical
from sordino.errors import PlanError
from sordino.estimators.fitting import Budget, calibrated_plan, reserve_budget
from sordino.execute.torch import ON_DEVICE, TorchExecutor
from sordino.kernel import Curator, Plan
from sordino.kernel.noise import fresh_noise
from sordino.ledger import Ledger
from sordino.ledger.records import Status
from sordino.ledger.reservation import Reservation
from sordino.nn.checkpoint import Checkpoint, Journal, Saved, latest, words
from sordino.nn.solvers import NetworkSolver, NetworkTask, TrainingState


@dataclass(eq=False)
class Session:
    """A curator with its reservation; used in a ``with`` block.

    At the end of the block the reservation is settled. On an error it is marked as failed, unless there is
    a checkpoint: then it stays reserved and the run can be resumed. Spent it is in any case.
    """

    curator: Curator
    report: PrivacyReport
    state: TrainingState
    reservation: Reservation | None = None
    checkpoint: Checkpoint | None = None
    recipe: str = ""
    _journal: Journal | None = field(default=None, repr=False)

    def __enter__(self) -> Session:
        self.save(self.state)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._journal is not None:
            self._journal.close()
        if self.reservation is None:
            return
        if kind is None:
            self.reservation.settle()
        elif self.checkpoint is None:
            self.reservation.fail(kind.__name__)

    def save(self, state: TrainingState) -> None:
        """Write the checkpoint, if there is one."""
        if self.checkpoint is None:
            return
        booked = self.reservation
        saved = Saved(
            self.curator.used,
            {n: float(r.mechanism.multiplier or 0.0) for n, r in self.curator.plan.releases.items()},
            self.recipe,
            self.report.to_json(),
            None if booked is None else (booked.dataset_id, booked.sequence),
        )
        self.checkpoint.save(state, saved)

    def due(self) -> bool:
        """Tell whether the next checkpoint is due."""
        asked = sum(self.curator.used.values())
        return self.checkpoint is not None and asked % self.checkpoint.every == 0


def open_session(
    solver: NetworkSolver,
    task: NetworkTask,
    executor: TorchExecutor,
    budget: Budget,
    *,
    public: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    description: str = "",
    checkpoint: Checkpoint | None = None,
) -> Session:
    """Calibrate and reserve a new run; the budget is on disk before the first release."""
    plan, certificate = calibrated_plan(solver.plan(task), budget)
    noise = fresh_noise()
    notes = (*notes, ON_DEVICE) if executor.device_noise else notes
    report = PrivacyReport.from_plan(plan, certificate, noise, public=public, notes=notes)
    if checkpoint is not None:
        checkpoint.refuse_existing()
    reservation = reserve_budget(plan, certificate, budget, description)
    journal = None if checkpoint is None else Journal(checkpoint.journal_path)
    curator = Curator(executor, plan, noise, journal=None if journal is None else journal.note)
    state, recipe = solver.start(task), words(solver)
    return Session(curator, report, state, reservation, checkpoint, recipe, journal)


def resume_session(
    solver: NetworkSolver,
    task: NetworkTask,
    executor: TorchExecutor,
    budget: Budget,
    checkpoint: Checkpoint,
) -> Session:
    """Go on with a saved run: the same plan and reservation, the next position, fresh noise."""
    checkpoint.require()
    journal = Journal(checkpoint.journal_path)
    try:
        return _resumed(solver, task, executor, budget, checkpoint, journal)
    except BaseException:
        journal.close()
        raise


def _resumed(
    solver: NetworkSolver,
    task: NetworkTask,
    executor: TorchExecutor,
    budget: Budget,
    checkpoint: Checkpoint,
    journal: Journal,
) -> Session:
    state, saved = checkpoint.load(executor.device)
    if saved.recipe != words(solver):
        raise PlanError("The checkpoint belongs to another recipe. Resume with its own settings.")
    plan = _replanned(solver.plan(task), saved)
    report = PrivacyReport.from_json(saved.report)
    if canonical(report.event) != canonical(plan.event()):
        raise PlanError("The checkpoint belongs to another plan: the data or the relation differ.")
    reservation = _reopened(budget, saved, plan)
    noise = fresh_noise()  # a new key from the operating system: no noise is used twice
    report = replace(report, seeded=report.seeded or not noise.is_private)
    used = latest(journal.counts(), saved.used)
    curator = Curator(executor, plan, noise, used=used, journal=journal.note)
    return Session(curator, report, state, reservation, checkpoint, saved.recipe, journal)


def _replanned(plan: Plan, saved: Saved) -> Plan:
    releases = {
        name: replace(r, mechanism=r.mechanism.at(saved.multipliers[name]))
        for name, r in plan.releases.items()
    }
    return replace(plan, releases=releases)


def _reopened(budget: Budget, saved: Saved, plan: Plan) -> Reservation | None:
    if saved.reservation is None:
        return None
    if budget.ledger is None:
        raise PlanError("The checkpoint was booked on a ledger. Pass that ledger to resume it.")
    path = isinstance(budget.ledger, (str, os.PathLike))
    ledger = Ledger.open(budget.ledger) if path else budget.ledger
    dataset_id, sequence = saved.reservation
    entry = next((e for e in ledger.history(dataset_id) if e.sequence == sequence), None)
    if entry is None or entry.event_json != canonical(plan.event()):
        raise PlanError("The ledger has no reservation for this checkpoint. Pass its own ledger.")
    if entry.status in (Status.SETTLED, Status.FAILED):
        raise PlanError(
            f"The reservation of this checkpoint is {entry.status.value}. A finished run cannot be resumed."
        )
    return Reservation(ledger, entry)
