"""DP-SGD-HT: stochastic gradient hard thresholding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sordino.kernel import Curator, Plan, Release, Sampling
from sordino.problems.glm import GlmGradient
from sordino.problems.problem import Problem
from sordino.solvers.base import Options
from sordino.solvers.project import hard_threshold, starting_point

EPOCHS = 20


@dataclass(frozen=True)
class SgdHt:
    r"""``w <- H_k(w - step (batch gradient / expected batch size + noise + ridge w))``.

    On sparse data the step never touches more columns than the batch and the iterate hold: see
    :mod:`sordino.kernel.lazy`.

    **Privacy.** ``steps`` Poisson-sampled Gaussian releases.

    References: Liang et al. (DP-SGD-HT). Departures: Poisson batches divided by the expected size
    (the realised size is private); the ridge term is outside the clip.
    """

    sparsity: int | None
    steps: int
    step: float
    clip: float
    sampling: Sampling

    @classmethod
    def configured(cls, problem: Problem, options: Options) -> SgdHt:
        """Fill what the user left open from public facts."""
        batch = options.batch(problem)
        steps = EPOCHS * max(1, problem.population // batch) if options.max_iter is None else options.max_iter
        return cls(
            options.n_nonzero_coefs,
            steps,
            options.step(problem),
            options.clip(problem),
            options.minibatches(problem),
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

    def run(self, curator: Curator, problem: Problem) -> Iterator[Any]:
        """Yield the iterates."""
        lazy = curator.plan.releases["gradient"].lazy
        w = starting_point(problem.shape, problem.kept, sparse=lazy)
        for _ in range(self.steps):
            g = curator.release("gradient", w)
            if problem.ridge:
                g = g + problem.ridge * w
            w = hard_threshold(w - self.step * g, self.sparsity, problem.kept)
            yield w
