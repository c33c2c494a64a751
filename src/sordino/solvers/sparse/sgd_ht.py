"""DP-SGD-HT: stochastic gradient hard thresholding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from sordino.kernel import Curator, Plan, Release, Sampling
from sordino.kernel.contracts import Point
from sordino.problems.glm import GlmGradient
from sordino.problems.problem import Problem
from sordino.solvers.base import Options, count
from sordino.solvers.capabilities import BATCHES, Capabilities
from sordino.solvers.momentum import Momentum, chosen_momentum
from sordino.solvers.pace import DENSE, Pace
from sordino.solvers.vectors import hard_threshold, starting_point, vector_sum

EPOCHS = 20


@dataclass(frozen=True)
class SgdHt:
    r"""``w <- H_k(w - step (batch gradient / expected batch size + noise + ridge w))``.

    On sparse data the step never touches more columns than the batch and the iterate hold: see
    :mod:`sordino.kernel.lazy`.

    **Privacy.** ``steps`` Poisson-sampled Gaussian releases.

    References: Liang et al. (DP-SGD-HT). Departures: Poisson batches divided by the expected size
    (the realised size is private); the ridge term is outside the clip; momentum on released iterates.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="mini-batch gradients",
        reads=("n_nonzero_coefs", *BATCHES),
        options=("epochs", "momentum", "momentum_weight"),
        sparse=True,
        dense=True,
        persons=True,
        secure_noise=True,
        lazy=True,
        paper="DP-SGD-HT",
        page="sgd-ht",
    )

    sparsity: int | None
    steps: int
    step: float | None
    clip: float
    sampling: Sampling
    momentum: Momentum = field(default_factory=Momentum)

    @classmethod
    def configured(cls, problem: Problem, options: Options) -> SgdHt:
        """Fill what the user left open from public facts."""
        momentum, extra = chosen_momentum(options, epochs=EPOCHS)
        epoch = max(1, problem.population // options.batch(problem))
        steps = count("epochs", extra["epochs"]) * epoch if options.max_iter is None else options.max_iter
        return cls(
            options.n_nonzero_coefs,
            steps,
            options.step_size,
            options.clip(problem),
            options.minibatches(problem),
            momentum,
        )

    @property
    def _lazy(self) -> bool:
        return self.sparsity is not None

    def plan(self, problem: Problem) -> Plan:
        """Declare the gradients."""
        lazy = self._lazy and problem.outputs == 1 and not problem.secure_noise
        query = GlmGradient(problem.loss, self.clip)
        release = Release(query, problem.gaussian(), self.sampling, self.steps, lazy=lazy)
        return problem.planned(gradient=release)

    def _open_step(self, curator: Curator, problem: Problem) -> float:
        momentum = 0.0 if self.momentum.kind == "none" else self.momentum.beta
        return Pace.of(curator, "gradient", problem, DENSE, momentum).first

    def run(self, curator: Curator, problem: Problem) -> Iterator[Point]:
        """Yield the iterates."""
        lazy = curator.plan.releases["gradient"].lazy
        w = previous = starting_point(problem.shape, problem.n_intercepts, sparse=lazy)
        step = self._open_step(curator, problem) if self.step is None else self.step
        for _ in range(self.steps):
            asked, start = self.momentum.asked_at(w, previous), self.momentum.moved_from(w, previous)
            g = curator.release("gradient", asked)
            if problem.ridge:
                g = vector_sum(g, problem.ridge * asked)
            w, previous = (
                hard_threshold(vector_sum(start, -step * g), self.sparsity, problem.n_intercepts),
                w,
            )
            yield w
