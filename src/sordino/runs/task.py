"""What is run, and the one way to run it: plan, certify, book, release, settle, report, finish."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import Executor, NoisyExecutor, PaperNoise, Plan
from sordino.runs.promise import Ask, Promise, enclosing
from sordino.runs.report import Booked, Price, PrivacyReport, most_declared


@dataclass(frozen=True, eq=False)
class Task:
    """Everything about a run but its records and its budget.

    Parameters
    ----------
    solver : what asks, usually a row of :mod:`sordino.solvers`.
    setting : all that a solver may know before it asks: sizes, bounds, the relation, who is protected.
    name : what the ledger, the progress bar and the report call the run.
    public : the public facts that the report lists.
    notes : what else the report says.
    learned : what was paid before for public facts that are not declared; it comes on top.
    finish : turns the last iterate into what the caller keeps, in the user's units: the fitted attributes of
        an estimator, by name.
    paper : published noise in place of a calibrated one.
    receipt : names the payment on the ledger, where later runs read what this one learns.

    **Privacy.** Public facts only. ``finish`` sees released numbers alone.
    """

    solver: Any
    setting: Any
    name: str
    public: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    learned: tuple[Price, ...] = ()
    finish: Callable[[Any], Any] = lambda last: last
    paper: PaperNoise | None = None
    receipt: str = ""

    def plan(self) -> Plan:
        """Return every release of the run; no data is touched."""
        plan: Plan = self.solver.plan(self.setting)
        return plan

    def follow(self, curator: Any, verbose: int | bool = 0) -> tuple[Any, int]:
        """Ask everything; return the last iterate and the number of iterates."""
        total = sum(release.times for release in curator.plan.releases.values())
        last, steps = None, 0
        # A NumPy warning from inside a query would tell what a record did there.
        with np.errstate(all="ignore"):
            iterates = track(self.solver.run(curator, self.setting), total, self.name, verbose)
            for steps, last in enumerate(iterates, start=1):  # noqa: B007 - the last one is the result
                pass
        return last, steps


@dataclass(frozen=True)
class Fitted:
    """What a task was finished to, the number of iterates, and the report."""

    result: Any
    steps: int
    report: PrivacyReport


def run(task: Task, rows: Executor | NoisyExecutor, ask: Ask, *, verbose: int | bool = 0) -> Fitted:
    """Plan, calibrate, certify, reserve, ask, settle, report: the one way from a task to its result.

    The budget is reserved and committed before the first release; an error after that is recorded
    and stays spent.
    """
    promise = Promise.made(replace(ask, learned=ask.find_paid(task.learned)), task.plan(), task.paper)
    report = promise.report(task.public, task.notes)
    booked = Booked(task.name, task.receipt, report.status, most=most_declared(report.public))
    with promise.run(rows, str(booked)) as curator:
        last, steps = task.follow(curator, verbose)
    return Fitted(task.finish(last), steps, report)


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
    call = _callback.get()
    if enclosing() is not None:  # a trial: to show it would tell how many there are
        yield from stopping(steps)
        return
    with _progress(description, total, bool(verbose)) as show:
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
def _progress(description: str, total: int, verbose: bool) -> Iterator[Callable[[int], object]]:
    """Yield the function that shows how far a run is, as the place where it is shown allows."""
    if not verbose:
        yield lambda done: None
        return
    terminal = sys.stderr.isatty() or os.environ.get("FORCE_COLOR")  # as rich, which takes long to import
    if not terminal and not ("IPython" in sys.modules and find_spec("ipywidgets")):
        yield _line_a_minute(description, total)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.update(task, completed=done)


def _line_a_minute(description: str, total: int) -> Callable[[int], None]:
    started = last = time.monotonic()

    def show(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS:
            last = now
            words = f"{description}: {done} of {total} steps in {now - started:.0f} s"
            print(words, file=sys.stderr, flush=True)

    return show
