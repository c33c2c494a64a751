"""DP-IGHT: iterative gradient hard thresholding on all records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from sordino.kernel import Curator, Full, Plan, Release
from sordino.kernel.contracts import Point
from sordino.problems.glm import GlmGradient
from sordino.problems.problem import Problem
from sordino.solvers.base import Options, share
from sordino.solvers.capabilities import STEPS, Capabilities
from sordino.solvers.momentum import Momentum, chosen_momentum
from sordino.solvers.pace import DENSE, SPARSE, Pace
from sordino.solvers.vectors import dense, hard_threshold, starting_point

LATE = 0.8  # thresholding starts after this share of the steps


@dataclass(frozen=True)
class Ight:
    r"""``w <- H_k(w - step (mean clipped gradient + noise + ridge w))``, ``steps`` times.

    A step size that is left open follows :class:`sordino.solvers.pace.Pace`, with Nesterov's momentum, and
    thresholding starts late: the noise of early steps would choose the support.

    **Privacy.** ``steps`` Gaussian releases of a clipped sum over all records; thresholding, the ridge term
    and momentum are post-processing. Also known as DP-GD-HT.

    References: Wang and Gu 2019 (DP-IGHT). Departures: the gradient is clipped, so the bound holds for
    every data set and not only with high probability; momentum on released iterates.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="the gradient on all records",
        reads=("n_nonzero_coefs", *STEPS),
        options=("momentum", "momentum_weight", "threshold_after"),
        sparse=True,
        dense=True,
        persons=True,
        secure_noise=True,
        paper="DP-IGHT = DP-GD-HT",
        page="ight",
    )

    sparsity: int | None
    steps: int
    step: float | None
    clip: float
    momentum: Momentum = field(default_factory=Momentum)
    threshold_after: float = 0.0

    @classmethod
    def configured(cls, problem: Problem, options: Options) -> Ight:
        """Fill what the user left open from public facts."""
        open_ = options.step_size is None
        momentum, extra = chosen_momentum(
            options, "nesterov" if open_ else "none", threshold_after=LATE if open_ else 0.0
        )
        return cls(
            options.n_nonzero_coefs,
            50 if options.max_iter is None else options.max_iter,
            options.step_size,
            options.clip(problem),
            momentum,
            share("threshold_after", extra["threshold_after"]),
        )

    def plan(self, problem: Problem) -> Plan:
        """Declare the gradients."""
        query = GlmGradient(problem.loss, self.clip)
        return problem.planned(gradient=Release(query, problem.gaussian(), Full(), self.steps))

    def run(self, curator: Curator, problem: Problem) -> Iterator[Point]:
        """Yield the iterates."""
        w = previous = starting_point(problem.shape, problem.n_intercepts, sparse=False)
        noise = DENSE if self.sparsity is None else SPARSE
        pace = Pace.of(curator, "gradient", problem, noise) if self.step is None else None
        for t in range(1, self.steps + 1):
            asked, start = self.momentum.asked_at(w, previous), self.momentum.moved_from(w, previous)
            g = curator.release("gradient", asked) + problem.penalty_gradient(dense(asked))
            h = self.step if pace is None else pace.after(dense(asked), g)
            kept = self.sparsity if t > self.threshold_after * self.steps else None
            w, previous = hard_threshold(start - h * g, kept, problem.n_intercepts), w
            yield w
