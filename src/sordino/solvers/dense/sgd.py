"""DP-SGD and DP-LSSGD for dense models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import Curator, Full, Plan, Release, Sampling
from sordino.kernel.arrays import Floats
from sordino.problems.glm import GlmGradient
from sordino.problems.problem import Problem
from sordino.solvers.base import Options, among, count
from sordino.solvers.capabilities import BATCHES, Capabilities
from sordino.solvers.dense.column_smoothing import checked_strength, smoothed
from sordino.solvers.momentum import Momentum, chosen_momentum
from sordino.solvers.pace import DENSE, Pace
from sordino.solvers.vectors import dense

EPOCHS = 20
SCHEDULES = ("constant", "inverse", "inverse-root")
OUTPUTS = ("last", "average")


@dataclass(frozen=True)
class Sgd:
    r"""``w <- w - step_t A^{-1}(batch gradient / expected batch size + noise + penalty'(w))``.

    ``A = I - smoothing * Laplacian`` is the identity without smoothing. ``schedule`` divides the step of
    number t by 1, t or sqrt t; the output is the last iterate or the average of all.

    **Privacy.** ``steps`` Poisson-sampled Gaussian releases of clipped sums. The penalty, momentum,
    smoothing and averaging are post-processing.

    References: Wang, dissertation, chapter 5 (DP-LSSGD). Departures: Poisson batches divided by the
    expected size; the penalty is outside the clip; each output is smoothed apart, without its intercept.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="mini-batch gradients",
        reads=BATCHES,
        options=("epochs", "momentum", "momentum_weight", "output", "schedule", "smoothing"),
        dense=True,
        persons=True,
        secure_noise=True,
        paper="DP-SGD",
    )

    steps: int
    step: float | None
    clip: float
    sampling: Sampling
    momentum: Momentum = field(default_factory=Momentum)
    smoothing: float = 0.0
    schedule: str = "constant"
    output: str = "last"

    @classmethod
    def configured(cls, problem: Problem, options: Options, smoothing: float = 0.0) -> Sgd:
        """Fill what the user left open from public facts."""
        momentum, extra = chosen_momentum(
            options, epochs=EPOCHS, smoothing=smoothing, schedule="constant", output="last"
        )
        steps = epochs_of(extra["epochs"], problem, options)
        return cls(steps, **update_of(problem, options, extra), momentum=momentum)

    @classmethod
    def smooth(cls, problem: Problem, options: Options) -> Sgd:
        """Return the same with smoothing 1 where the user left it open."""
        return cls.configured(problem, options, 1.0)

    def plan(self, problem: Problem) -> Plan:
        """Declare the gradients."""
        query = GlmGradient(problem.loss, self.clip)
        return problem.planned(gradient=Release(query, problem.gaussian(), self.sampling, self.steps))

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        """Yield the iterates, or their running averages."""
        w = previous = mean = np.zeros(problem.shape)
        pace = self._pace(curator, problem) if self.step is None else None
        for t in range(1, self.steps + 1):
            asked, start = self.momentum.asked_at(w, previous), self.momentum.moved_from(w, previous)
            g = curator.release("gradient", asked) + problem.penalty_gradient(dense(asked))
            h = self._step(t, pace.first if pace else self.step)
            h = pace.after(dense(asked), g) if pace and isinstance(self.sampling, Full) else h
            w, previous = start - h * smoothed(g, self.smoothing, problem.n_intercepts), w
            mean = mean + (w - mean) / t
            yield w if self.output == "last" else mean

    def _pace(self, curator: Curator, problem: Problem) -> Pace:
        momentum = 0.0 if self.momentum.kind == "none" else self.momentum.beta
        return Pace.of(curator, "gradient", problem, DENSE, momentum)

    def _step(self, t: int, step: float | None) -> float:
        assert step is not None
        return step / {"constant": 1.0, "inverse": float(t), "inverse-root": t**0.5}[self.schedule]


def epochs_of(epochs: Any, problem: Problem, options: Options, share: int = 200) -> int:
    """Return the number of steps: the asked one, or that of so many passes."""
    if options.max_iter is not None:
        return options.max_iter
    return count("epochs", epochs) * max(1, problem.population // options.batch(problem, share))


def update_of(problem: Problem, options: Options, extra: dict[str, Any]) -> dict[str, Any]:
    """Return what the gradient solvers have in common, checked."""
    return {
        "step": options.step_size,
        "clip": options.clip(problem),
        "sampling": options.minibatches(problem),
        "smoothing": checked_strength(extra["smoothing"]),
        "schedule": among("schedule", extra["schedule"], SCHEDULES),
        "output": among("output", extra["output"], OUTPUTS),
    }
