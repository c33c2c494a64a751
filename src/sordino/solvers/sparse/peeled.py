"""Peeled gradient steps: choose the support of the next iterate privately, then ask for its values only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import (
    Curator,
    Disjoint,
    Full,
    GumbelTopK,
    LaplacePeeling,
    Plan,
    Release,
    Sampling,
    SparseVector,
)
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.contracts import Point
from sordino.problems.problem import Problem
from sordino.problems.scores import (
    MovedScores,
    RestrictedGradient,
    flat_coordinates,
    intercept_coordinates,
    pick,
)
from sordino.solvers.base import Options, among, distinguishable
from sordino.solvers.capabilities import STEPS as STEP_OPTIONS
from sordino.solvers.capabilities import Capabilities
from sordino.solvers.vectors import starting_point

STEPS = 5
LONGER = 20.0  # times one over the curvature of a row: a few columns have a small part of it
OFTEN = 4.0  # times the same, for an intercept: its column is a quarter of a row


@dataclass(frozen=True)
class Peeled:
    r"""The k largest entries of ``w - step gradient`` by Gumbel noise, then their values by Gaussian noise.

    **Privacy.** Per step: a one-shot Gumbel top-k (``k / (2 z^2)`` zCDP; entry-wise bound ``clip``) and a
    Gaussian release of k values (and the intercepts) of norm at most ``min(sqrt(k) clip, norm_clip)``, at the
    same cost. ``selection="laplace"`` is the paper's Peeling: k rounds of noisy maxima and Laplace values.
    ``split=True`` gives each step its own part of the records (parallel composition).

    References: Cai, Wang, Zhang 2021; Tao et al. (Algorithm 5). Departures: gradients are clipped by one
    factor per record instead of truncated entry by entry; all records in each step by default, which
    under zCDP needs noise in proportion to sqrt(T) / n instead of T / n.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="the next support, then its values",
        reads=("n_nonzero_coefs", *STEP_OPTIONS),
        options=("selection", "split"),
        sparse=True,
        lazy=True,
        paper="Peeling",
        page="peeled",
    )

    sparsity: int
    steps: int
    step: float
    clip: float
    norm_clip: float
    selection: str = "gumbel"
    split: bool = False
    often: float | None = None

    @classmethod
    def configured(cls, problem: Problem, options: Options) -> Peeled:
        """Fill what the user left open from public facts."""
        extra = options.chosen(selection="gumbel", split=False)
        free = problem.features * problem.outputs
        steps = STEPS if options.max_iter is None else options.max_iter
        if extra["split"] and steps > problem.population:
            raise InvalidInputError(
                f"Expected max_iter <= the {problem.population} records with split=True, got {steps}."
            )
        return cls(
            distinguishable(problem, min(free, options.n_nonzero_coefs or 50), free),
            steps,
            LONGER * options.step(problem) if options.step_size is None else options.step_size,
            options.peak(problem) / (2.0 if options.clip_norm is None else 1.0),
            problem.gradient_bound,
            among("selection", extra["selection"], ("gumbel", "laplace")),
            among("split", extra["split"], (True, False)),
            OFTEN * options.step(problem),
        )

    def plan(self, problem: Problem) -> Plan:
        """Declare the selections and the values."""
        n = self._sampling.expected(problem.population)
        scores = MovedScores(
            problem.loss, self.clip, problem.ridge * n, problem.features, weight=n / self.step
        )
        lazy = problem.outputs == 1 and self.selection == "gumbel"
        top = Release(scores, self._select(), self._sampling, self.steps, mean=False, lazy=lazy)
        if self.selection == "laplace" and not problem.n_intercepts:
            return problem.planned(support=top)
        values = RestrictedGradient(problem.loss, self.clip, self.norm_clip)
        return problem.planned(
            support=top, values=Release(values, problem.gaussian(), self._sampling, self.steps)
        )

    def run(self, curator: Curator, problem: Problem) -> Iterator[Point]:
        """Yield the iterates."""
        w = starting_point(problem.shape, problem.n_intercepts, sparse=curator.plan.releases["support"].lazy)
        step = self._peel if self.selection == "laplace" else self._select_and_ask
        for _ in range(self.steps):
            w = step(curator, problem, w)
            yield w

    def _select_and_ask(self, curator: Curator, problem: Problem, w: Point) -> Point:
        chosen = curator.release("support", w)
        chosen = flat_coordinates(chosen, problem.features, problem.columns)
        return self._asked(curator, problem, w, chosen, np.empty(0))

    def _peel(self, curator: Curator, problem: Problem, w: Point) -> Point:
        peeled = curator.release("support", w)  # in units of the sum: records / step times the iterate
        at = flat_coordinates(peeled.indices, problem.features, problem.columns)
        values = peeled.values * (self.step / self._sampling.expected(problem.population))
        return self._asked(curator, problem, w, at, values)

    def _asked(self, curator: Curator, problem: Problem, w: Point, chosen: Ints, known: Floats) -> Point:
        """Return the iterate with support ``chosen``, asking for values that are not ``known``."""
        open_ = np.concatenate(
            [chosen[known.size :], intercept_coordinates(problem.shape, problem.n_intercepts)]
        )
        moved = np.empty(0)
        if open_.size:
            slope = curator.release("values", (w, open_)) + problem.ridge * pick(w, open_)
            moved = pick(w, open_) - self._lengths(chosen.size - known.size, open_.size) * slope
        at, values = np.concatenate([chosen[: known.size], open_]), np.concatenate([known, moved])
        out = SparseVector(at, values, math.prod(problem.shape))
        return out if isinstance(w, SparseVector) else out.to_dense().reshape(problem.shape)

    def _lengths(self, chosen: int, asked: int) -> Floats:
        """Return the steps: an intercept, which all records share, would overshoot with that of a column."""
        often = self.step if self.often is None else self.often
        return np.repeat([self.step, often], [chosen, asked - chosen])

    @property
    def _sampling(self) -> Sampling:
        return Disjoint(self.steps) if self.split else Full()

    def _select(self) -> Any:
        if self.selection == "laplace":
            return LaplacePeeling(count=self.sparsity)
        # sqrt(k) makes the selection cost as much zCDP as the values.
        return GumbelTopK(relative=math.sqrt(self.sparsity), count=self.sparsity, absolute=True)
