"""The noisy power method: products with a few directions, never a d x d matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sordino.kernel import Curator, Full, Plan, Release
from sordino.problems.covariance import GramProduct, PcaProblem
from sordino.solvers.pca.locate import (
    locate,
    moments_release,
    noise_level,
    noise_std,
    spectrum_release,
    weight_of_rest,
)
from sordino.solvers.pca.measured import measured
from sordino.solvers.pca.options import PcaOptions
from sordino.solvers.pca.ritz import Products
from sordino.solvers.pca.spectrum import Principal

# With noise each step takes a share of the budget, and products are added up against it; without any, a step
# costs only time, and adding up earlier products would only hold it back.
STEPS, STEPS_WITHOUT_NOISE = 5, 20


@dataclass(frozen=True)
class Power:
    r"""``V <- orth(A V + noise + momentum * previous products)``, ``steps`` times, p > k columns.

    It is a randomised range finder with power iterations: one pass over the data per step, d x p
    numbers in memory. Earlier products, turned into the present basis, are added with weight
    ``momentum``: they are released already, so this averages their noise away for free.

    **Privacy.** ``steps`` Gaussian releases of ``X^T X V``: a record moves it by at most its squared norm,
    whatever the number of columns.

    References: Hardt and Roth 2013, Hardt and Price 2014. Departure: noise for whole records; theirs,
    which protects a single entry, is ``noise="paper"``.
    """

    columns: int
    steps: int
    momentum: float = 1.0

    @classmethod
    def configured(cls, problem: PcaProblem, options: PcaOptions) -> Power:
        """Fill what the user left open from public facts."""
        noisy = math.isfinite(problem.epsilon)
        steps = (STEPS if noisy else STEPS_WITHOUT_NOISE) if options.max_iter is None else options.max_iter
        momentum = float(noisy) if options.momentum is None else options.momentum
        return cls(options.columns(problem), steps, momentum)

    def plan(self, problem: PcaProblem) -> Plan:
        """Declare the mean and the products."""
        noise = problem.gaussian(weight_of_rest(problem, self.steps, last=True))
        product = Release(self.query(problem), noise, Full(), self.steps)
        return problem.planned(**moments_release(problem), product=product, **spectrum_release(problem))

    def query(self, problem: PcaProblem) -> GramProduct:
        """Return the product that each step asks for."""
        return GramProduct(problem.data_norm)

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        """Yield the axes after each step."""
        place = locate(curator, problem, noise_level(curator, "product", problem, self.columns))
        basis, products = problem.start(self.columns), Products(place, problem)
        memory = np.zeros_like(basis)
        std = noise_std(curator, "product", (basis, place.ball)) / problem.population
        for t in range(self.steps):
            answer = curator.release("product", (basis, place.ball))
            products = products.first(basis, answer, std) if t == 0 else products
            answer = products.about(basis, answer)
            memory = self.momentum * memory + answer
            turned = np.linalg.svd(memory, full_matrices=False)[0]
            found = products.principal(basis.T @ answer, turned, std)
            yield found if t + 1 < self.steps else measured(curator, problem, found)
            memory, basis = memory @ (basis.T @ turned), turned
