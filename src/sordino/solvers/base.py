"""What every solver is: a plan made from public facts, and a run that sees only noisy answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from sordino.kernel import Curator, FixedSize, Full, Plan, Poisson, Sampling
from sordino.problems.problem import Problem


class Solver(Protocol):
    """An algorithm of the library."""

    def plan(self, problem: Problem) -> Plan:
        """Declare every release; no data is touched."""

    def run(self, curator: Curator, problem: Problem) -> Iterator[Any]:
        """Yield the iterates; the last one is the result."""


@dataclass(frozen=True)
class Options:
    """What a user may fix; None means: by a rule that looks at public facts only."""

    n_nonzero_coefs: int | None = None
    max_iter: int | None = None
    batch_size: int | None = None
    step_size: float | None = None
    clip_norm: float | None = None
    sampling: str = "poisson"

    def clip(self, problem: Problem) -> float:
        """Return the clip norm: the asked one, or the bound of the gradient."""
        return problem.gradient_bound if self.clip_norm is None else self.clip_norm

    def step(self, problem: Problem) -> float:
        """Return the step size: the asked one, or one over the largest curvature."""
        if self.step_size is not None:
            return self.step_size
        curvature = min(problem.loss.curvature, 1.0) * problem.row_bound**2 + problem.ridge
        return 1.0 / curvature

    def batch(self, problem: Problem) -> int:
        """Return the (expected) batch size."""
        wanted = max(64, problem.population // 200) if self.batch_size is None else self.batch_size
        return min(wanted, problem.population)

    def minibatches(self, problem: Problem) -> Sampling:
        """Return how mini-batches are drawn."""
        size = self.batch(problem)
        if size >= problem.population:
            return Full()
        if self.sampling == "fixed":
            return FixedSize(size)
        return Poisson(size / problem.population)
