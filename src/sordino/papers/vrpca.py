"""DP-VRPCA as printed: an exact snapshot and one record's difference, under one noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from dp_accounting import dp_event as dp

from sordino.errors import UnsupportedError
from sordino.kernel import Curator, Full, NoiseSource, Norm, Plan, Printed, Relation, Release
from sordino.kernel.arrays import Floats
from sordino.kernel.contracts import GramSums, Parts
from sordino.kernel.mechanism import Additive
from sordino.problems.covariance import Ball, PcaProblem, Quadratic, operator_norm
from sordino.solvers.pca.locate import locate, noise_std
from sordino.solvers.pca.ritz import Products
from sordino.solvers.pca.spectrum import Principal, by_strength, polar
from sordino.solvers.pca.vrpca import Vrpca

_NAME = "DP-VRPCA, step as printed"
# The exact product of the last anchor, one per set of records: a snapshot holds for many steps.
_SNAPSHOTS: WeakKeyDictionary[Any, tuple[Floats, Ball, Floats]] = WeakKeyDictionary()


@dataclass(frozen=True)
class SnapshotAndDifference(Printed, Quadratic):
    r"""``A V~ / n + sum over a batch of x x^T (V - V~)``; ``params = (V - V~, V~, ball)``.

    **Privacy.** In units of the contribution ``c = r^2 max(2, ||V - V~||, 2 ||V~||)`` a record adds at most
    ``1 / (2 n)`` always and at most 1 more when it is in the batch, whatever the blocks are; the 2 is the
    most that two bases can need, because the printed noise never shrinks. :meth:`evaluate` does not return an
    answer: only :class:`OneRecordOverSnapshot` can draw the batch, and it adds the noise.
    """

    needs: ClassVar[tuple[type, ...]] = (GramSums, Parts)
    printed: ClassVar[str] = _NAME

    row_norm: float

    def contribution(self, params: Any) -> float:
        """Return twice the squared radius; more where the blocks are not differences of bases."""
        moved, anchor, ball = params
        return float(ball.radius**2 * max(2.0, operator_norm(moved), 2 * operator_norm(anchor)))

    def evaluate(self, records: Any, params: Any) -> Step:
        """Return the step of these records, not drawn yet."""
        return Step(records, *params)


@dataclass(frozen=True, eq=False)
class Step:
    """The records and blocks of one step, for the mechanism only."""

    records: Any
    moved: Floats
    anchor: Floats
    ball: Ball

    def with_batch(self, rows: Any, population: int) -> Floats:
        """Return the exact step whose batch is these rows."""
        batch: Floats = self.records.taken(rows).gram_product(self.moved, self.ball)
        return self._snapshot() / population + batch

    def _snapshot(self) -> Floats:
        known = _SNAPSHOTS.get(self.records)
        if known is None or known[1] is not self.ball or not np.array_equal(known[0], self.anchor):
            product: Floats = self.records.gram_product(self.anchor, self.ball)
            known = (self.anchor.copy(), self.ball, product)
            _SNAPSHOTS[self.records] = known
        return known[2]


@dataclass(frozen=True)
class OneRecordOverSnapshot(Printed, Additive):
    """Draws a batch of (on average) one record and adds Gaussian noise to the whole step.

    A record moves the snapshot by 1/n always and the difference by up to 2 with probability 1/n: a mixture of
    Gaussians, which is what the event says.
    """

    printed: ClassVar[str] = _NAME
    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)
    population: int = 1

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the mixture, in units of the contribution, which is 2."""
        if relation is not Relation.ADD_REMOVE:
            raise UnsupportedError(
                "The printed DP-VRPCA step is accounted for relation 'add-remove' only. "
                "Use noise='sound', or relation='add-remove'."
            )
        if self.scale(1.0) == 0:
            return dp.NonPrivateDpEvent()
        mean, rate = 0.5 / self.population, 1 / self.population
        return dp.MixtureOfGaussiansDpEvent(self.scale(1.0), [mean, 1 + mean], [1 - rate, rate])

    def rho(self) -> float:
        """Return 1/2, the cost of a step that holds the record."""
        return 0.5

    def privatise(self, value: Step, sensitivity: float, noise: NoiseSource) -> Floats:
        """Draw the batch and add the noise."""
        rows = noise.bernoulli_rows(value.records.count, 1 / self.population)
        exact = value.with_batch(rows, self.population)
        return exact + self.scale(sensitivity) * noise.normal(exact.shape)


@dataclass(frozen=True)
class PrintedVrpca(Vrpca):
    """``V <- orth(V + step (A V~ + x x^T (V - V~) + noise))``, one release per step."""

    @classmethod
    def of(cls, solver: Vrpca, **settings: Any) -> PrintedVrpca:
        """Return the printed form of a solver."""
        return replace(cls(**vars(solver)), **settings)

    def plan(self, problem: PcaProblem) -> Plan:
        """Declare the steps."""
        query = SnapshotAndDifference(problem.data_norm)
        noise = OneRecordOverSnapshot(population=problem.population)
        return problem.planned(step=Release(query, noise, Full(), self.epochs * self.inner, mean=False))

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        """Yield the axes after each step; their variances come from the noisy steps too."""
        place = locate(curator, problem, 0.0)
        basis, step = problem.start(self.columns), self.step / place.ball.radius**2
        inner = np.zeros((self.columns, self.columns))
        for epoch in range(self.epochs):
            anchor = basis
            std = noise_std(curator, "step", (basis - anchor, anchor, place.ball))
            for t in range(self.inner):
                answer = curator.release("step", (basis - anchor, anchor, place.ball))
                inner += 2 / (epoch * self.inner + t + 2) * (basis.T @ answer - inner)
                basis = polar(basis + step / (epoch + 1) * answer)
                yield Products(place, problem).principal(inner, by_strength(basis, inner), std)
