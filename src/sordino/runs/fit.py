"""From a solver and its problem to a paid-for result: the path every estimator takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import Curator, Executor, NoisyExecutor, PaperNoise, Plan
from sordino.runs.promise import Ask, Promise, enclosing
from sordino.runs.report import PrivacyReport

# ----------------------------------------------------------------------------------------------------------
# Progress on long work: a bar in a terminal or notebook, a line a minute in a pipe, calls of a function.

Callback = Callable[[str, int, int], object]

SECONDS = 60.0
_callback: ContextVar[Callback | None] = ContextVar("callback", default=None)


@contextmanager
def progress(*, callback: Callback) -> Iterator[None]:
    """Call a function after every step of the fits in a block: ``callback(description, done, total)``.

    **Privacy.** ``total`` is the number of planned steps, which is public, and no loss is passed on: it would
    leak. The trials of a private search are silent, because their number is secret. An error that the
    function raises ends the fit; what was booked stays spent.

    Examples
    --------
    >>> import numpy as np, sordino
    >>> steps = []
    >>> with sordino.progress(callback=lambda description, done, total: steps.append((done, total))):
    ...     model = sordino.LogisticRegression(1.0, solver="gd", max_iter=3, data_norm=1.0)
    ...     _ = model.fit(np.eye(90, 3), np.arange(90) % 2)
    >>> steps
    [(1, 3), (2, 3), (3, 3)]
    """
    if not callable(callback):
        raise InvalidInputError(f"Expected callback to be a function, got {type(callback).__name__}.")
    token = _callback.set(callback)
    try:
        yield
    finally:
        _callback.reset(token)


def track(steps: Iterator[Any], total: int, description: str, verbose: int | bool) -> Iterator[Any]:
    """Pass the steps on and show how far the run is; never a loss, which would leak."""
    call, description = _callback.get(), description or "fitting"
    if enclosing() is not None:  # a trial: to show it would tell how many there are
        yield from stopping(steps)
        return
    with _shown(description, total, bool(verbose)) as show:
        for done, step in enumerate(stopping(steps), start=1):
            show(done)
            if call is not None:
                call(description, done, total)
            yield step


class Patience:
    """A wish to stop that waits for the end of a step: inside of compiled code it can crash a process."""

    def __init__(self) -> None:
        self.runs, self.asked = 0, False

    def ask(self) -> None:
        """Stop the run after its present step; at once where none is going on, or when asked again."""
        if self.asked or not self.runs:
            raise KeyboardInterrupt
        self.asked = True

    def heed(self) -> None:
        """Stop, if somebody has asked for it."""
        if self.asked:
            self.asked = False
            raise KeyboardInterrupt


patience = Patience()


def stopping(steps: Iterator[Any]) -> Iterator[Any]:
    """Pass the steps on; end between two of them once somebody has asked for it."""
    patience.runs += 1
    try:
        for step in steps:
            patience.heed()
            yield step
        patience.heed()  # asked for after the last step had been handed on
    finally:
        patience.runs -= 1
        patience.asked = patience.asked and patience.runs > 0  # nothing is left that could hear it


@contextmanager
def _shown(description: str, total: int, verbose: bool) -> Iterator[Callable[[int], object]]:
    """Yield the function that shows how far a run is, as the place where it is shown allows."""
    if not verbose:
        yield lambda done: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal and not (console.is_jupyter and find_spec("ipywidgets")):
        yield _line_a_minute(description, total)
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.update(task, completed=done)


def _line_a_minute(description: str, total: int) -> Callable[[int], None]:
    started = last = time.monotonic()

    def show(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS:
            last = now
            print(
                f"{description}: {done} of {total} steps in {now - started:.0f} s",
                file=sys.stderr,
                flush=True,
            )

    return show


class Plannable(Protocol):
    """A solver: it says what it will ask, and what it does with the answers."""

    def plan(self, problem: Any) -> Plan:
        """Declare every release; no data is touched."""

    def run(self, curator: Curator, problem: Any) -> Iterator[Any]:
        """Yield the iterates; the last one is the result."""


@dataclass(frozen=True)
class Fitted:
    """The last iterate, the number of iterates, and the report."""

    result: Any
    steps: int
    report: PrivacyReport


def run_privately(
    solver: Plannable,
    problem: Any,
    executor: Executor | NoisyExecutor,
    ask: Ask,
    *,
    public: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    paper: PaperNoise | None = None,
    verbose: int | bool = 0,
    description: str = "",
) -> Fitted:
    """Plan, calibrate, certify, reserve, run, settle, report.

    The budget is reserved and committed before the first release; an error after that is recorded
    and stays spent.
    """
    promise = Promise.made(ask, solver.plan(problem), paper)
    report = promise.report(public, notes)
    total = sum(r.times for r in promise.plan.releases.values())
    # A NumPy warning from inside a query would tell what a record did there.
    with np.errstate(all="ignore"), promise.run(executor, description) as curator:
        result, steps = _last(track(solver.run(curator, problem), total, description, verbose))
    return Fitted(result, steps, report)


def _last(iterates: Iterator[Any]) -> tuple[Any, int]:
    result, steps = None, 0
    for steps, result in enumerate(iterates, start=1):  # noqa: B007 - the last one is the result
        pass
    return result, steps
