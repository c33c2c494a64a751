"""One training in several processes: the first runs the session, the others follow it step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sordino.errors import SordinoError, WorkerError
from sordino.execute.processes import Processes, fingerprint
from sordino.execute.torch import TorchExecutor
from sordino.execute.torch_persons import PersonExecutor
from sordino.kernel import Plan, Question
from sordino.nn.checkpoint import words
from sordino.nn.session import Session, Training
from sordino.nn.solvers import Releases, TrainingState
from sordino.runs import PrivacyReport


class Leading:
    """The curator of the first process: what it releases is shared with the others."""

    def __init__(self, curator: Releases, processes: Processes) -> None:
        self._curator, self._processes = curator, processes

    @property
    def plan(self) -> Plan:
        """The plan, which is public."""
        return self._curator.plan

    @property
    def used(self) -> dict[str, int]:
        """How often each release was asked so far."""
        return self._curator.used

    def release(self, name: str, params: Any = None) -> Tensor:
        """Ask one planned question of all processes."""
        return self._processes.shared(self._curator.release(name, params))


class Following:
    """Stands where the curator is in the other processes: adds up a part, and is given what was released."""

    def __init__(self, executor: TorchExecutor, plan: Plan, used: dict[str, int]) -> None:
        self._executor, self.plan, self._used = executor, plan, Counter(used)

    @property
    def used(self) -> dict[str, int]:
        """How often each release was asked so far."""
        return dict(self._used)

    def release(self, name: str, params: Any = None) -> Tensor:
        """Add up this process's part of a question, and return what the first process has released."""
        processes = self._executor.processes
        assert processes is not None
        with self._executor.hidden():
            # Rows and lattice are those that the first process says: no sensitivity is needed here.
            asked = Question(self.plan.releases[name], params, 0.0, self._used[name], self.plan.population)
            self._executor.summed(asked, None)
        self._used[name] += 1
        point = params if isinstance(params, Tensor) else params[0]
        return processes.shared(torch.empty_like(point))


@dataclass(frozen=True)
class Opening:
    """What the first process tells the others when the budget is booked; all of it is public or released."""

    report: PrivacyReport
    used: dict[str, int]
    state: TrainingState


@dataclass(eq=False)
class FollowingSession:
    """A session without books: no run, no journal, no checkpoint."""

    curator: Following
    report: PrivacyReport
    state: TrainingState
    processes: Processes

    def __enter__(self) -> FollowingSession:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.processes.leave(failed=kind is not None)

    def save(self, state: TrainingState) -> None:
        """Leave it to the first process."""

    def due(self) -> bool:
        """Leave it to the first process."""
        return False


def together(made: Training, opened: Callable[[], Session]) -> Session | FollowingSession:
    """Return the session of this process; the budget is booked once, by the first, after all have agreed."""
    processes = made.executor.processes
    if processes is None:
        return opened()
    processes.agreed(_facts(made))
    if not processes.first:
        return _followed(made, processes)
    try:
        session = opened()
    except BaseException as error:
        processes.told(str(error) if isinstance(error, SordinoError) else type(error).__name__)
        raise
    session.curator, session.processes = Leading(session.curator, processes), processes
    start = _moved(session.state, torch.device("cpu"))
    try:
        processes.told(Opening(session.report, session.curator.used, start))
    except WorkerError:
        with session:  # it is booked: its end goes to the ledger
            raise
    return session


def _followed(made: Training, processes: Processes) -> FollowingSession:
    heard = processes.told()
    if not isinstance(heard, Opening):
        raise WorkerError(f"The first process has refused this training: {heard}")
    curator = Following(made.executor, made.solver.plan(made.task), heard.used)
    return FollowingSession(curator, heard.report, _moved(heard.state, made.executor.device), processes)


def _moved(state: TrainingState, device: torch.device) -> TrainingState:
    slots = {name: value.to(device) for name, value in state.slots.items()}
    return TrainingState(state.vector.to(device), slots, state.average.to(device), state.weight)


def _facts(made: Training) -> dict[str, Any]:
    """Return what all processes must share, in words for an error."""
    task, network = made.task, made.task.engine.network
    return {
        "number of records": task.population,
        "model": (network.names, tuple(map(tuple, network.shapes))),
        "parameters at the start": fingerprint(network.flat().cpu()),
        "setting": (words(made.solver), task.relation.value, task.unit, made.executor.chunk),
        "data": made.mark,
        "owners of records": _owners(made.executor),
    }


def _owners(executor: TorchExecutor) -> int | None:
    """Return a number for who owns which records: a person of one process must be one of the others too."""
    if not isinstance(executor, PersonExecutor):
        return None
    assert executor.owners is not None
    return fingerprint([torch.from_numpy(executor.owners.order), torch.from_numpy(executor.owners.edges)])
