"""From a solver and its problem to a paid-for result: the one path every estimator takes."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sordino.accounting import Certificate, PaperClaim, PrivacyReport, calibrate, certify
from sordino.errors import InvalidInputError, NotPrivateWarning, PrivacyWarning
from sordino.estimators.outer_search import search_notes
from sordino.estimators.progress import track
from sordino.kernel import Curator, Executor, PaperNoise, Plan, Relation
from sordino.kernel.noise import fresh_noise
from sordino.ledger import Ledger


@dataclass(frozen=True)
class Budget:
    """What a fit may spend and where it is booked."""

    epsilon: float
    delta: float
    ledger: Any = None
    dataset_id: str | None = None

    @classmethod
    def checked(
        cls,
        epsilon: Any,
        delta: Any,
        population: int,
        ledger: Any = None,
        dataset_id: str | None = None,
    ) -> Budget:
        """Validate what the user asked for; ``delta=None`` means ``min(1e-5, 1 / (10 n))``."""
        epsilon = _number("epsilon", epsilon)
        if not epsilon > 0:
            raise InvalidInputError(
                f"Expected epsilon > 0, got {epsilon}. Use a positive number, or float('inf') for no privacy."
            )
        if delta is None:
            delta = min(1e-5, 0.1 / population)
        delta = _number("delta", delta)
        if not 0 < delta < 1:
            raise InvalidInputError(
                f"Expected delta in (0, 1), got {delta}. Use delta=None for min(1e-5, 1/(10 n))."
            )
        if delta >= 1 / population and math.isfinite(epsilon):
            warnings.warn(
                f"delta = {delta:g} is at least 1/n: a mechanism that publishes whole records with this "
                "probability would satisfy it. Use delta=None for min(1e-5, 1/(10 n)).",
                PrivacyWarning,
                stacklevel=4,
            )
        if (ledger is None) != (dataset_id is None):
            raise InvalidInputError("Expected ledger and dataset_id together, got only one of them.")
        return cls(epsilon, delta, ledger, dataset_id)


@dataclass(frozen=True)
class Fitted:
    """The last iterate, the number of iterates, and the report."""

    result: Any
    steps: int
    report: PrivacyReport


def run_privately(
    solver: Any,
    problem: Any,
    executor: Executor,
    budget: Budget,
    *,
    public: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    paper: PaperNoise | None = None,
    verbose: int | bool = 0,
    description: str = "",
) -> Fitted:
    """Plan, calibrate, reserve, run, settle, report.

    The budget is reserved and committed before the first release; an error after that is recorded
    and stays spent.
    """
    plan, certificate = calibrated_plan(solver.plan(problem), budget, paper)
    noise = fresh_noise()
    report = PrivacyReport.from_plan(
        plan,
        certificate,
        noise,
        public=public,
        notes=(*notes, *search_notes(), *(f"not proven here: {name}" for name in plan.printed)),
        paper_claim=None if paper is None else PaperClaim(budget.epsilon, paper.formula),
    )
    reservation = reserve_budget(plan, certificate, budget, description)
    try:
        curator = Curator(executor, plan, noise, printed=() if paper is None else paper.printed)
        total = sum(r.times for r in plan.releases.values())
        result, steps = _last(track(solver.run(curator, problem), total, description, verbose))
    except BaseException as error:
        if reservation is not None:
            reservation.fail(type(error).__name__)
        raise
    if reservation is not None:
        reservation.settle()
    return Fitted(result, steps, report)


def _last(iterates: Iterator[Any]) -> tuple[Any, int]:
    result, steps = None, 0
    for steps, result in enumerate(iterates, start=1):  # noqa: B007 - the last one is the result
        pass
    return result, steps


def calibrated_plan(plan: Plan, budget: Budget, paper: PaperNoise | None = None) -> tuple[Plan, Certificate]:
    """Return the plan with its noise, and the certificate of it."""
    if paper is None:
        plan = calibrate(plan, budget.epsilon, budget.delta)
        return plan, certify(plan.event(), budget.delta, plan.relation)
    releases = {
        name: replace(r, mechanism=r.mechanism.at(paper.multipliers[name]))
        for name, r in plan.releases.items()
    }
    plan = replace(plan, releases=releases)
    certificate = certify(plan.event(), budget.delta, plan.relation)
    warnings.warn(
        f"noise='paper' runs the published formula ({paper.formula}): it claims epsilon = "
        f"{budget.epsilon:g}, what it certifies is epsilon = {certificate.epsilon:.4g}.",
        NotPrivateWarning,
        stacklevel=4,
    )
    return plan, certificate


def reserve_budget(plan: Plan, certificate: Certificate, budget: Budget, description: str) -> Any:
    """Book the plan on the ledger, if there is one; on disk when this returns."""
    return reserve_event(plan.event(), plan.relation, plan.unit, certificate, budget, description)


def reserve_event(
    event: Any, relation: Relation, unit: str, certificate: Certificate, budget: Budget, description: str
) -> Any:
    """Book an event on the ledger, if there is one; on disk when this returns."""
    if budget.ledger is None:
        return None
    path = isinstance(budget.ledger, (str, os.PathLike))
    ledger = Ledger.open(budget.ledger) if path else budget.ledger
    return ledger.reserve(
        budget.dataset_id,
        event,
        relation=relation,
        unit=unit,
        certificate=(certificate.epsilon, certificate.delta),
        description=description,
    )


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or (not isinstance(value, (int, float)) and not hasattr(value, "__float__")):
        raise InvalidInputError(f"Expected {name} to be a number, got {type(value).__name__}.")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidInputError(f"Expected {name} to be a number, got {type(value).__name__}.") from None
    if math.isnan(number):
        raise InvalidInputError(f"Expected {name} to be a number, got nan.")
    return number


__all__ = [
    "Budget",
    "Fitted",
    "PaperNoise",
    "calibrated_plan",
    "reserve_budget",
    "reserve_event",
    "run_privately",
]
