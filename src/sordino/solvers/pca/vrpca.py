"""DP-VRPCA: variance reduction with a snapshot that is paid for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from sordino.kernel import Curator, Full, Plan, Release, Sampling
from sordino.problems.covariance import GramProduct, PcaProblem
from sordino.solvers.pca.locate import (
    locate,
    moments_release,
    noise_level,
    noise_std,
    weight_of_rest,
)
from sordino.solvers.pca.options import PcaOptions
from sordino.solvers.pca.ritz import Averaged, Products
from sordino.solvers.pca.spectrum import Principal, by_strength, polar

# The step is in units of :class:`Products`, divided by the number of the epoch.
EPOCHS, INNER, STEP = 4, 3, 1.0


@dataclass(frozen=True)
class Vrpca:
    r"""Per epoch a noisy snapshot ``G = A V~``, then ``V <- orth(V + step (G + batch of x x^T (V - V~)))``.

    The correction's noise shrinks with ``||V - V~||_op``: that is what variance reduction is worth under
    privacy.

    **Privacy.** ``epochs`` Gaussian releases of the snapshot and ``epochs * inner`` Poisson-sampled ones
    of the correction, whose bound is computed from released bases and enforced by clipping rows.

    References: Shang et al. (DP-VRPCA). Departures: the paper's snapshot is exact and unpaid, and its
    noise ignores the correction: see ``noise="paper"``.
    """

    columns: int
    epochs: int
    inner: int
    step: float
    sampling: Sampling
    correction: float = 0.3

    @classmethod
    def configured(cls, problem: PcaProblem, options: PcaOptions) -> Vrpca:
        """Fill what the user left open from public facts."""
        epochs = EPOCHS if options.max_iter is None else options.max_iter
        sampling = problem.minibatches(options.batch(problem))
        step = STEP if options.step_size is None else options.step_size
        return cls(options.columns(problem), epochs, INNER, step, sampling)

    def plan(self, problem: PcaProblem) -> Plan:
        """Declare the mean, the snapshots and the corrections."""
        query = GramProduct(problem.data_norm)
        noise = problem.gaussian(weight_of_rest(problem, self.epochs))
        snapshot = Release(query, noise, Full(), self.epochs)
        releases = {**moments_release(problem), "snapshot": snapshot}
        if self._corrections:
            small = problem.gaussian(self.correction * math.sqrt(self._corrections))
            releases["correction"] = Release(query, small, self.sampling, self._corrections)
        return problem.planned(**releases)

    @property
    def _corrections(self) -> int:
        return (self.epochs - 1) * (self.inner - 1)

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        """Yield the axes after each step."""
        place = locate(curator, problem, noise_level(curator, "snapshot", problem, self.columns))
        basis, products = problem.start(self.columns), Products(place, problem)
        std = noise_std(curator, "snapshot", (basis, place.ball)) / problem.population
        for epoch in range(self.epochs):
            anchor = basis
            answer = curator.release("snapshot", (anchor, place.ball))
            products = products if epoch else products.first(anchor, answer, std)
            products, answer = products.after(answer), products.about(anchor, answer)
            inner = Averaged(anchor.T @ answer)
            for t in range(self.inner if epoch else 1):
                v = answer
                if t > 0:  # the first correction is zero by definition, so it is not released at all
                    drift = curator.release("correction", (basis - anchor, place.ball))
                    v = answer + products.about(basis - anchor, drift)
                # From a random basis the first snapshot is all that is known: a whole power step.
                moved = polar(basis + self.step / epoch / products.unit * v) if epoch else polar(answer)
                basis, inner = moved, inner.turned(basis, moved)
                yield products.principal(inner.value, by_strength(basis, inner.value), std)
