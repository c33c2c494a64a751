"""One private pass of Oja's rule: disjoint batches, each answered with the whole budget."""

from __future__ import annotations

from dataclasses import dataclass

from sordino.kernel import Disjoint, Plan, Release
from sordino.problems.covariance import GramProduct, PcaProblem
from sordino.solvers.pca.locate import moments_release, weight_of_rest
from sordino.solvers.pca.options import PcaOptions
from sordino.solvers.pca.spca import Spca

# How many batches the records are cut into, and the step in units of :class:`Products`.
BATCHES, STEP = 5, 10.0


@dataclass(frozen=True)
class Oja(Spca):
    r"""``V <- orth(V + step / t (sum of x x^T V over batch t / its size + noise))``, a record in one batch.

    The batches compose in parallel, so each is answered with all of the budget that the mean leaves; but it
    is small, so its noise is T times that of all records, where a step of :class:`Power` pays sqrt T.

    **Privacy.** One release of the mean and squared norm, then ``steps`` Gaussian releases of disjoint
    batches. Which batch a record is in is public: it is fixed by its position.

    References: Liu, Kong, Jain, Oh 2022 (DP-Oja), Duengler, Sanyal 2025 (several axes). Departures: rows are
    clipped in code, at a radius from a release where theirs follows from the law of the rows.
    """

    @classmethod
    def configured(cls, problem: PcaProblem, options: PcaOptions) -> Oja:
        """Fill what the user left open from public facts."""
        steps = min(BATCHES if options.max_iter is None else options.max_iter, problem.population)
        step = STEP if options.step_size is None else options.step_size
        return cls(options.columns(problem), steps, step, Disjoint(steps))

    def plan(self, problem: PcaProblem) -> Plan:
        """Declare the mean and the batches."""
        noise = problem.gaussian(weight_of_rest(problem))
        batch = Release(GramProduct(problem.data_norm), noise, self.sampling, self.steps)
        return problem.planned(**moments_release(problem), batch=batch)
