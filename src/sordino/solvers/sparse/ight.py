"""DP-IGHT: iterative gradient hard thresholding on all records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from sordino.kernel import Curator, Full, Plan, Release
from sordino.kernel.contracts import Point
from sordino.problems.glm import GlmGradient
from sordino.problems.problem import Problem
from sordino.solvers.base import Options
from sordino.solvers.capabilities import STEPS, Capabilities
from sordino.solvers.momentum import Momentum, chosen_momentum
from sordino.solvers.vectors import dense, hard_threshold, starting_point


@dataclass(frozen=True)
class Ight:
    r"""``w <- H_k(w - step (mean clipped gradient + noise + ridge w))``, ``steps`` times.

    **Privacy.** ``steps`` Gaussian releases of a clipped sum over all records; thresholding, the ridge term
    and momentum are post-processing. Also known as DP-GD-HT.

    References: Wang and Gu 2019 (DP-IGHT). Departures: the gradient is clipped, so the bound holds for
    every data set and not only with high probability; momentum on released iterates.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="the gradient on all records",
        reads=("n_nonzero_coefs", *STEPS),
        options=("momentum", "momentum_weight"),
        sparse=True,
        dense=True,
        persons=True,
        secure_noise=True,
        paper="DP-IGHT = DP-GD-HT",
        page="ight",
    )

    sparsity: int | None
    steps: int
    step: float
    clip: float
    momentum: Momentum = field(default_factory=Momentum)

    @classmethod
    def configured(cls, problem: Problem, options: Options) -> Ight:
        """Fill what the user left open from public facts."""
        momentum, _ = chosen_momentum(options)
        steps = 50 if options.max_iter is None else options.max_iter
        return cls(options.n_nonzero_coefs, steps, options.step(problem), options.clip(problem), momentum)

    def plan(self, problem: Problem) -> Plan:
        """Declare the gradients."""
        query = GlmGradient(problem.loss, self.clip)
        return problem.planned(gradient=Release(query, problem.gaussian(), Full(), self.steps))

    def run(self, curator: Curator, problem: Problem) -> Iterator[Point]:
        """Yield the iterates."""
        w = previous = starting_point(problem.shape, problem.n_intercepts, sparse=False)
        for _ in range(self.steps):
            asked, start = self.momentum.asked_at(w, previous), self.momentum.moved_from(w, previous)
            g = curator.release("gradient", asked) + problem.penalty_gradient(dense(asked))
            w, previous = hard_threshold(start - self.step * g, self.sparsity, problem.n_intercepts), w
            yield w
