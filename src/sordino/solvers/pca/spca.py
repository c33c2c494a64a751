"""DP-SPCA: Oja's rule on mini-batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sordino.kernel import Curator, Plan, Release, Sampling
from sordino.problems.covariance import GramProduct, PcaProblem
from sordino.solvers.pca.locate import locate, moments_release, noise_level, noise_std
from sordino.solvers.pca.options import PcaOptions
from sordino.solvers.pca.ritz import Averaged, Products
from sordino.solvers.pca.spectrum import Principal, by_strength, polar

# In units of :class:`Products`; divided by the number of the step.
EPOCHS, STEP = 4, 5.0


@dataclass(frozen=True)
class Spca:
    r"""``V <- orth(V + step / t (batch sum of x x^T V / expected batch size + noise))``.

    The decaying step averages the noise of the batches.

    **Privacy.** ``steps`` Poisson-sampled Gaussian releases; under replace-one a record counts twice.

    References: Shang et al. (DP-SPCA). Departures: Poisson batches instead of one record (amplification
    is accounted, not assumed); rows clipped in code; the step does not depend on the data.
    """

    columns: int
    steps: int
    step: float
    sampling: Sampling
    decay: bool = True

    @classmethod
    def configured(cls, problem: PcaProblem, options: PcaOptions) -> Spca:
        """Fill what the user left open from public facts."""
        batch = options.batch(problem)
        steps = EPOCHS * max(1, problem.population // batch)
        steps = steps if options.max_iter is None else options.max_iter
        sampling = problem.minibatches(batch)
        step = STEP if options.step_size is None else options.step_size
        return cls(options.columns(problem), steps, step, sampling)

    def plan(self, problem: PcaProblem) -> Plan:
        """Declare the mean and the batches."""
        query = GramProduct(problem.data_norm)
        batch = Release(query, problem.gaussian(), self.sampling, self.steps)
        return problem.planned(**moments_release(problem), batch=batch)

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        """Yield the axes after each step."""
        place = locate(curator, problem, noise_level(curator, "batch", problem, self.columns))
        basis, products = problem.start(self.columns), Products(place, problem)
        inner = Averaged(np.zeros((self.columns, self.columns)))
        std = noise_std(curator, "batch", (basis, place.ball))
        std /= self.sampling.expected(problem.population)
        for t in range(self.steps):
            answer = curator.release("batch", (basis, place.ball))
            products = products.first(basis, answer, std) if t == 0 else products
            products, answer = products.after(answer), products.about(basis, answer)
            inner = inner.with_one(t, basis.T @ answer, std)
            step = (self.step / (t + 1) if self.decay else self.step) / products.unit
            moved = polar(basis + step * answer)
            basis, inner = moved, inner.turned(basis, moved)
            yield products.principal(inner.value, by_strength(basis, inner.value), math.sqrt(inner.variance))
