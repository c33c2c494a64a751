"""One paid-for training: a new run, or the rest of a saved one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sordino.execute.processes import Processes
from sordino.execute.torch import ON_DEVICE, TorchExecutor
from sordino.kernel import check_offer
from sordino.nn.checkpoint import Checkpoint, words
from sordino.nn.solvers import NetworkSolver, NetworkTask, Releases, TrainingState
from sordino.runs import Ask, Journal, PrivacyReport, Promise, Run, SavedRun, resumed
from sordino.runs.journal import latest


@dataclass(frozen=True, eq=False)
class Training:
    """Everything that is fixed before a budget is booked, and what the report says about it."""

    solver: NetworkSolver
    task: NetworkTask
    executor: TorchExecutor
    ask: Ask
    public: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    mark: int = 0  # of all records in their order, where processes compare them

    @property
    def recipe(self) -> str:
        """Words for all that decides what is asked, of whom, and how it is noised."""
        task, said = self.task, words(self.solver)
        said += f", one {task.unit}" if task.grouped or task.unit != "record" else ""
        said += ", of several records" if task.grouped else ""
        views = getattr(self.executor, "views", None)
        said += f", {words(views)}" if views is not None else ""
        return said + (", in integers" if task.block is not None else "")

    def report(self, promise: Promise) -> PrivacyReport:
        """Return the guarantee with the words of this training."""
        device = (ON_DEVICE,) if self.executor.device_noise else ()
        return promise.report(self.public, (*self.notes, *device))


@dataclass(eq=False)
class Session:
    """A curator with its run; used in a ``with`` block, once.

    At the end of the block the reservation is settled. On an error it is marked as failed, unless there is
    a checkpoint: then it stays reserved and the run can be resumed. Spent it is in any case.
    """

    run: Run
    curator: Releases
    report: PrivacyReport
    state: TrainingState
    checkpoint: Checkpoint | None = None
    recipe: str = ""
    processes: Processes | None = None
    _journal: Journal | None = field(default=None, repr=False)

    def __enter__(self) -> Session:
        self.run.__enter__()
        self.save(self.state)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._journal is not None:
            self._journal.close()
        self.run.__exit__(kind, error, trace)
        if self.processes is not None:
            self.processes.leave(failed=kind is not None)

    def save(self, state: TrainingState) -> None:
        """Write the checkpoint, if there is one."""
        if self.checkpoint is not None:
            self.checkpoint.save(state, SavedRun.of(self.run, self.recipe), self.curator.used)

    def due(self) -> bool:
        """Tell whether the next checkpoint is due."""
        asked = sum(self.curator.used.values())
        return self.checkpoint is not None and asked % self.checkpoint.every == 0


def open_session(made: Training, description: str, checkpoint: Checkpoint | None = None) -> Session:
    """Calibrate and reserve a new run; the budget is on disk before the first release."""
    solver, task, executor = made.solver, made.task, made.executor
    promise = Promise.made(made.ask, solver.plan(task))
    if checkpoint is not None:
        checkpoint.refuse_existing()
    check_offer(promise.plan, executor.offer)
    run = promise.reserved(description)
    journal = None if checkpoint is None else Journal(checkpoint.journal_path)
    if journal is not None:
        journal.begin(promise.digest)
        run.resumable = True
    curator = run.curate(executor, None if journal is None else journal.note)
    return Session(
        run, curator, made.report(promise), solver.start(task), checkpoint, made.recipe, _journal=journal
    )


def resume_session(made: Training, checkpoint: Checkpoint) -> Session:
    """Go on with a saved run: the same plan and reservation, the next position, fresh noise."""
    checkpoint.require()
    journal = Journal(checkpoint.journal_path)
    try:
        state, saved, used = checkpoint.load(made.executor.device)
        recipe = made.recipe
        journal.require(saved.digest)
        run = resumed(made.ask, made.solver.plan(made.task), saved, recipe)
        curator = run.curate(made.executor, journal.note, latest(journal.counts(), used))
    except BaseException:
        journal.close()
        raise
    return Session(run, curator, made.report(run.promise), state, checkpoint, recipe, _journal=journal)
