"""One paid-for training: a new run, or the rest of a saved one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sordino.errors import InvalidInputError, PlanError, SordinoError, WorkerError
from sordino.execute.draws import TURN, generators, restore
from sordino.execute.processes import fingerprint
from sordino.execute.torch import ON_DEVICE, TorchExecutor
from sordino.kernel import Plan, Question, check_offer
from sordino.nn.solvers import NetworkSolver, NetworkTask, Releases, TrainingState
from sordino.runs import Ask, Journal, PrivacyReport, Promise, Run, SavedRun, resumed
from sordino.runs.journal import replace_durably
from sordino.runs.report import Booked, most_declared

# Two files: the checkpoint (released values only) is replaced as a whole every few steps; the journal gets
# one line *before* each release. After a crash the state is that of the checkpoint, the position that of
# the journal: releases in between are spent and not repeated.

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
        slots = {f"slot {name}": value for name, value in state.slots.items()}
        content = {
            "format": FORMAT,
            "state": {"vector": state.vector, "average": state.average, **slots},
            "weight": state.weight,
            "random": generators(),
            "used": used,
            "run": asdict(saved),
        }
        replace_durably(self.path, lambda file: torch.save(content, file))

    def load(self, device: torch.device) -> tuple[TrainingState, SavedRun, dict[str, int]]:
        """Return the saved state; only tensors and plain values are read."""
        try:
            content = torch.load(self.path, map_location=device, weights_only=True)
            if content["format"] != FORMAT:
                raise PlanError(
                    f"Expected a checkpoint of format {FORMAT}, got {content['format']}. Finish the run with "
                    "the version of Sordino that began it: what it has booked is of that version's plan."
                )
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
    watch: Any = None  # scores and callbacks of a trainer

    @property
    def recipe(self) -> str:
        """Words for all that decides what is asked, of whom, and how it is noised."""
        task, said = self.task, words(self.solver)
        said += f", one {task.unit}" if task.grouped or task.unit != "record" else ""
        said += ", of several records" if task.grouped else f" of {task.rows} records" * (task.rows > 1)
        views = self.executor.views
        said += f", {words(views)}" if views is not None else ""
        said += f", {words(task.correlation.mechanism)}" if task.correlation is not None else ""
        return said + (", in integers" if task.block is not None else "")

    def report(self, promise: Promise) -> PrivacyReport:
        """Return the guarantee with the words of this training."""
        device = (ON_DEVICE,) if self.executor.device_noise else ()
        return promise.report(self.public, (*self.notes, *device))


@dataclass(eq=False)
class Session:
    """A curator with its run; used in a ``with`` block, once.

    At the end of the block the reservation is settled. On an error it is marked as failed, unless there is
    a checkpoint: then it stays reserved and the run can be resumed. Spent it is in any case. Of several
    processes only the first has a run: the others keep no books.
    """

    made: Training
    curator: Releases
    report: PrivacyReport
    state: TrainingState
    run: Run | None = None
    checkpoint: Checkpoint | None = None
    _journal: Journal | None = field(default=None, repr=False)

    def __enter__(self) -> Session:
        if self.run is not None:
            self.run.__enter__()
        self.save(self.state)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._journal is not None:
            self._journal.close()
        if self.run is not None:
            self.run.__exit__(kind, error, trace)
        if (processes := self.made.executor.processes) is not None:
            processes.leave(failed=kind is not None)

    def save(self, state: TrainingState) -> None:
        """Write the checkpoint, if there is one."""
        if self.run is not None and self.checkpoint is not None:
            self.checkpoint.save(state, SavedRun.of(self.run, self.made.recipe), self.curator.used)

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
    report = made.report(promise)
    run = promise.reserved(str(Booked(description, most=most_declared(report.public))))
    journal = None if checkpoint is None else Journal(checkpoint.journal_path)
    if journal is not None:
        journal.begin(promise.digest)
        run.resumable = True
    curator = run.curate(executor, None if journal is None else journal.note)
    return Session(made, curator, report, solver.start(task), run, checkpoint, journal)


def resume_session(made: Training, checkpoint: Checkpoint) -> Session:
    """Go on with a saved run: the same plan and reservation, the next position, fresh noise."""
    checkpoint.require()
    journal = Journal(checkpoint.journal_path)
    try:
        state, saved, used = checkpoint.load(made.executor.device)
        journal.require(saved.digest)
        run = resumed(made.ask, made.solver.plan(made.task), saved, made.recipe)
        spent = Counter(journal.counts()) | Counter(used)  # of each release the larger count
        curator = run.curate(made.executor, journal.note, spent)
    except BaseException:
        journal.close()
        raise
    return Session(made, curator, made.report(run.promise), state, run, checkpoint, journal)


class Following:
    """Stands where the curator is in the other processes: adds up a part, and is given what was released."""

    def __init__(self, executor: TorchExecutor, plan: Plan, used: dict[str, int]) -> None:
        self._executor, self.plan, self._used = executor, plan, Counter(used)

    @property
    def used(self) -> dict[str, int]:
        return dict(self._used)

    def release(self, name: str, params: Any = None) -> Tensor:
        """Add up this process's part of a question, and return what was released (of shards, its own)."""
        release = self.plan.releases[name]
        # Rows, lattice and noise are those that the first process says: no sensitivity is needed here.
        answer = self._executor.follow(
            Question(release, params, 0.0, self._used[name], self.plan.population, None, False)
        )
        self._used[name] += 1
        return answer / release.sampling.expected(self.plan.population) if release.mean else answer


def together(made: Training, opened: Callable[[], Session]) -> Session:
    """Return the session of this process; the budget is booked once, by the first, after all have agreed."""
    processes = made.executor.processes
    if processes is None:
        return opened()
    task, network, owners = made.task, made.task.engine.network, made.executor.owners
    parts = () if owners is None else (owners.order, owners.edges)
    processes.require_agreement(
        {
            "number of records": task.population,
            "model": (network.names, tuple(map(tuple, network.shapes))),
            "parameters at the start": 0 if network.sharded else fingerprint(network.flat().cpu()),
            "setting": (words(made.solver), task.relation.value, task.unit, task.rows),
            "data": made.mark,
            "owners of records": fingerprint([torch.from_numpy(part) for part in parts]),
        }
    )
    if not processes.first:
        heard = processes.broadcast()
        if isinstance(heard, str):
            raise WorkerError(f"The first process has refused this training: {heard}")
        report, used, state = heard
        state = made.solver.start(task) if network.sharded else state
        curator = Following(made.executor, made.solver.plan(made.task), used)
        return Session(made, curator, report, _move(state, made.executor.device))
    try:
        session = opened()
    except BaseException as error:
        processes.broadcast(str(error) if isinstance(error, SordinoError) else type(error).__name__)
        raise
    start = _move(session.state, torch.device("cpu"))  # public or released, as all that is told
    try:
        processes.broadcast((session.report, session.curator.used, start))
    except WorkerError:
        with session:  # it is booked: its end goes to the ledger
            raise
    return session


def _move(state: TrainingState, device: torch.device) -> TrainingState:
    slots = {name: value.to(device) for name, value in state.slots.items()}
    return TrainingState(state.vector.to(device), slots, state.average.to(device), state.weight)
