r"""MPC Out P: every party's certified minimiser, averaged with weights ``n_j / n``, and noise once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import Curator, Full, Norm, Plan, Relation, Release
from sordino.kernel.arrays import Floats
from sordino.kernel.contracts import Parts, RecordSums
from sordino.problems.losses import Loss
from sordino.problems.minimiser import CertifiedMinimiser
from sordino.problems.problem import Problem


@dataclass(frozen=True)
class WeightedMinimiser:
    r"""``sum_j (n_j / n) theta_j`` with ``theta_j`` the certified minimiser of party j on ``n_j`` records.

    One record moves one ``theta_j`` by ``c C / (n_j lam) + 2 g_j / lam`` with ``g_j`` the certified gradient
    norm, hence the average by ``c C / (n lam) + 2 max_j (n_j g_j) / (n lam)``: the size of the smallest party
    does not matter. (An unweighted average would move by ``c C / (m min n_j lam)``, never less.)

    **Privacy.** Sensitivity in L2 as above; the numbers ``n_j`` are public.

    References: Wang 2021, section 6 (whose noise is calibrated to the L1 norm with an L2 bound).
    """

    loss: Loss
    clip: float
    strength: float
    population: int
    shape: tuple[int, ...]
    row_bound: float

    needs: ClassVar[tuple[type, ...]] = (Parts, RecordSums)
    norm = Norm.L2
    adds_up: ClassVar[bool] = True  # the parties' weighted minimisers do, by definition

    def local(self, records: int) -> CertifiedMinimiser:
        """Return the query of one party."""
        return CertifiedMinimiser(self.loss, self.clip, self.strength, records, self.shape, self.row_bound)

    def contribution(self, params: Any = None) -> float:
        """Return the bound when a record is added or removed."""
        return self.sensitivity(Relation.ADD_REMOVE, params)

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        """Return the bound, which does not depend on how the records are spread."""
        exact = relation.contributions * self.clip / (self.population * self.strength)
        # n_j g_j grows with n_j: the worst party is one that holds everything.
        return exact + 2 * self.local(self.population).tolerance / self.strength

    def evaluate(self, records: Any, params: Any = None) -> Floats:
        """Return this party's weighted minimiser."""
        if not records.count:
            return np.zeros(self.shape)
        return self.local(records.count).evaluate(records) * (records.count / self.population)


@dataclass(frozen=True)
class OutputPerturbation:
    """One release of the weighted minimiser."""

    clip: float
    strength: float

    def plan(self, problem: Problem) -> Plan:
        """Declare the minimiser."""
        shape = (problem.loss, self.clip, self.strength, problem.population, problem.shape, problem.row_bound)
        release = Release(WeightedMinimiser(*shape), problem.gaussian(), Full(), mean=False)
        return problem.planned(minimiser=release)

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        """Yield the noisy average."""
        yield curator.release("minimiser")
