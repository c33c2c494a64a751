"""The public description of a learning task: what a solver may know before it sees any data."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from sordino.kernel import Gaussian, Plan, Relation, Release
from sordino.kernel.arrays import Floats
from sordino.problems.losses import Loss, Penalty, Ridge, has_shares

# With so many records times epsilon for each coefficient the clip of amounts begins to open, up to a factor.
_OPENS, _OPEN = 5000.0, 1e4


class Setting:
    """What every solver may know: how many units there are, and what neighbours differ in.

    ``secure_noise`` asks for exact noise, on a lattice, in every release; ``rows`` is how many records of one
    unit may change at once, where nobody knows whose they are; ``once`` says that a single number may have
    Laplace noise, less than half of Gaussian noise, but members make no other, and added up it costs more.
    """

    population: int
    relation: Relation
    unit: str
    secure_noise: bool = False
    rows: int = 1
    once: bool = False

    def gaussian(self, relative: float = 1.0) -> Gaussian:
        """Return the noise of a vector release, not yet calibrated."""
        return Gaussian(relative=relative)

    def planned(self, **releases: Release) -> Plan:
        """Return the plan of these releases for this task."""
        if self.secure_noise:
            releases = {
                name: replace(release, mechanism=replace(cast(Any, release.mechanism), secure=True))
                for name, release in releases.items()
            }
        if self.rows != 1:
            releases = {name: replace(release, rows=self.rows) for name, release in releases.items()}
        return Plan(releases, self.relation, self.population, self.unit)


@dataclass(frozen=True)
class Problem(Setting):
    """The public description of a learning task: everything here is declared, nothing is measured.

    Parameters
    ----------
    loss : the loss of the linear predictor.
    population : the public number of units.
    features : the number of columns, without the intercept.
    outputs : 1, or the number of classes of a multinomial model.
    data_norm : the norm to which rows are clipped.
    intercept : the constant of the intercept column, 0 for none.
    ridge : the weight of ``||w||^2 / 2``, added outside the clip. :meth:`penalty_gradient` leaves out
        the intercept; solvers whose proof needs a curvature along all coordinates do not.
    penalty : one more function of the coefficients outside the clip; for the dense solvers.
    weight_bound : the largest declared weight of a record's loss.
    weighted, weight : whether records have weights, and their mean, once it is released: ``population`` is
        then how much they all weigh.
    moment_order, moment_bound : of data without bounds, v and u: gradients have ``E|g|^(1+v) <= u``;
        a bound of None is learned.
    sparse : whether rows are stored by their non-zeros.
    table : whether columns are lines, hats, levels and products of a table, with weights that its encoder
        gave them: they are not alike, and nobody may have a level.
    lines : columns from -1 to 1 that others bend, as hats of the same number do.
    free : columns that no penalty weighs on.
    """

    loss: Loss
    population: int
    features: int
    relation: Relation
    epsilon: float
    delta: float
    outputs: int = 1
    data_norm: float = 1.0
    intercept: float = 0.0
    ridge: float = 0.0
    target_bound: float = 1.0
    unit: str = "record"
    secure_noise: bool = False
    weight_bound: float = 1.0
    weighted: bool = False
    weight: float = 1.0
    penalty: Penalty | None = None
    moment_order: float = 1.0
    moment_bound: float | None = None
    sparse: bool = False
    rows: int = 1
    once: bool = False
    table: bool = False
    lines: tuple[int, ...] = ()
    free: tuple[int, ...] = ()

    @property
    def columns(self) -> int:
        """The number of columns with the intercept."""
        return self.features + self.n_intercepts

    @property
    def n_intercepts(self) -> int:
        """The number of trailing columns that are never thresholded."""
        return 1 if self.intercept else 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the coefficients, intercept included."""
        return (self.columns,) if self.outputs == 1 else (self.outputs, self.columns)

    @property
    def row_bound(self) -> float:
        """The largest norm of a row with its intercept entry."""
        return math.hypot(self.data_norm, self.intercept)

    @property
    def gradient_bound(self) -> float:
        """The largest norm of a record's gradient, or the default clip where there is none."""
        if math.isfinite(self.loss.lipschitz):  # errors of numbers are rarely beyond twice their bound
            return min(self.loss.lipschitz, 2.0 * max(self.target_bound, 1e-12)) * self.row_bound
        opened = 1.0
        if has_shares(self.loss):  # an amount may be any number of times what a model predicts
            signal = self.population * self.epsilon / (_OPENS * (self.features + 1))
            opened = min(max(signal, 1.0) ** 0.5, _OPEN)
        return opened * max(self.target_bound, 1e-12) * self.row_bound

    @property
    def curvature(self) -> float:
        """A record's curvature in its margin; where it has no bound, that at the largest count."""
        return min(self.loss.curvature, max(1.0, self.target_bound))

    @property
    def bend(self) -> float:
        """The second derivative that a metric counts on; amounts bend by one where a model is right."""
        return 1.0 if has_shares(self.loss) else self.loss.curvature

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """The functions of the coefficients that are added to the mean loss."""
        ridge = (Ridge(self.ridge),) if self.ridge else ()
        return ridge if self.penalty is None else (*ridge, self.penalty)

    @property
    def penalty_curvature(self) -> float:
        """The largest second derivative of the penalties, for a mean over what records weigh."""
        return sum(p.curvature for p in self.penalties) / self.weight

    def penalty_gradient(self, w: Floats) -> Floats:
        """Return the gradient of the penalties: free, ``w`` is released. The intercept has none."""
        out = sum((p.gradient(w) for p in self.penalties), np.zeros_like(w)) / self.weight
        out[..., [*self.free, *range(w.shape[-1] - self.n_intercepts, w.shape[-1])]] = 0.0
        return out
