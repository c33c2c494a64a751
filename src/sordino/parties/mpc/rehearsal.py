"""A run of a plan without data, before anything is booked: how much it opens, and whether its sums fit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sordino.errors import InvalidInputError, SordinoError
from sordino.execute import LocalExecutor
from sordino.execute.parties import Mode, NoiseShare
from sordino.execute.parties.lattice import quantise
from sordino.kernel import Plan, public_generator
from sordino.parties.mpc.tasks import Task

# Processor time of a member for one coordinate (python -m benchmarks.parties wire).
SECONDS = {Mode.INSIDE: 6e-3, Mode.AGGREGATION: 1e-5}


@dataclass
class Rehearsal:
    """Stands in for a curator: every answer is public noise, and what the release would open is counted.

    **Privacy.** It has no records: one made-up row of zeros gives answers their shapes.
    """

    plan: Plan
    share: NoiseShare
    row: LocalExecutor = field(repr=False)
    largest: Counter[str] = field(default_factory=Counter)

    def release(self, name: str, params: Any = None) -> Any:
        """Return an answer as the plan would give it; refuse one that does not fit the field."""
        release, n = self.plan.releases[name], self.plan.population
        sensitivity = release.sensitivity(self.plan.relation, params)
        found = quantise(release, self.row.records(None), params, sensitivity, n)
        lattice = found.lattice
        lattice.field_bits(self.share.parties)
        self.share.fine_std(lattice)
        self.largest[name] = max(self.largest[name], found.values.size)
        public = public_generator(self.largest.total())
        noise = public.standard_normal(found.values.shape) * lattice.std * lattice.spacing
        answer = found.shaped(found.values * lattice.spacing + noise)
        return answer / release.sampling.expected(n) if release.mean else answer

    def coordinates(self, width: int) -> int:
        """Return a bound on the number of coordinates that are ever opened, counting ``width`` at least."""
        return sum(max(width, self.largest[name]) * r.times for name, r in self.plan.releases.items())


def rehearse(task: Task, plan: Plan, share: NoiseShare) -> Rehearsal:
    """Run a plan that has its noise without data; raise if it cannot finish."""
    target = None if not hasattr(task.problem, "loss") else np.zeros(1)
    if task.classes:
        target = np.ones(1)
    intercept = getattr(task.problem, "intercept", 0.0)
    row = LocalExecutor(np.zeros((1, task.problem.features)), target, task.problem.data_norm, intercept)
    rehearsal = Rehearsal(plan, share, row)
    try:
        with np.errstate(all="ignore"):
            for _ in task.solver.run(rehearsal, task.problem):
                pass
    except SordinoError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"The plan cannot be run between parties: its rehearsal ended with {type(error).__name__}."
        ) from None
    return rehearsal


def seconds_of(coordinates: int, share: NoiseShare) -> float:
    """Return about how much processor time a run takes at each member."""
    return coordinates * SECONDS[share.mode] * (share.parties / 3)
