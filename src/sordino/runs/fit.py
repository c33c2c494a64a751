"""From a solver and its problem to a paid-for result: the path every estimator takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from sordino.kernel import Curator, Executor, NoisyExecutor, PaperNoise, Plan
from sordino.runs.ask import Ask
from sordino.runs.progress import track
from sordino.runs.promise import Promise
from sordino.runs.report import PrivacyReport


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
