"""Private PCA: the classical mechanisms, the stochastic methods, and the rule that picks among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from sordino.errors import InvalidInputError
from sordino.problems.covariance import PcaProblem
from sordino.solvers.pca.direct import Gauss, ModSulq, Screen
from sordino.solvers.pca.iterative import Oja, Power, Spca, Vrpca
from sordino.solvers.pca.spectrum import PcaOptions, Principal, choose_count, fits_matrix

# What each solver reads of PcaOptions; another one that is set is an error.
_ITERATION = ("max_iter", "oversampling")
READS: dict[str, tuple[str, ...]] = {
    "gauss": (),
    "screen": (),
    "power": (*_ITERATION, "momentum"),
    "spca": (*_ITERATION, "batch_size", "step_size"),
    "vrpca": (*_ITERATION, "batch_size", "step_size"),
    "oja": (*_ITERATION, "step_size"),
    "mod-sulq": (),
}
PCA_SOLVERS: dict[str, Callable[[PcaProblem, PcaOptions], Any]] = {
    "gauss": Gauss.configured,
    "screen": Screen.configured,
    "power": Power.configured,
    "spca": Spca.configured,
    "vrpca": Vrpca.configured,
    "oja": Oja.configured,
    "mod-sulq": ModSulq.configured,
}


def automatic(features: int, sparse: bool = False, noisy: bool = True) -> str:
    """Return the solver for a number of columns, a storage format and a budget: public, so the choice is.

    One noisy matrix beats every iteration (each of its releases gets only a part of the budget), so
    it is taken whenever it fits in memory. Beyond, sparse rows have few columns that matter, and
    screening finds them; dense ones go to the power method, which uses all records in each of few
    releases and never holds a d x d matrix. Without noise no column has to be left out.
    """
    if fits_matrix(features):
        return "gauss"
    return "screen" if sparse and noisy else "power"


def make_pca_solver(name: str, problem: PcaProblem, options: PcaOptions) -> Any:
    """Return the named solver, configured for a problem."""
    if name == "auto":
        name = automatic(problem.features, problem.sparse, math.isfinite(problem.epsilon))
    if name not in PCA_SOLVERS:
        known = ["auto", *PCA_SOLVERS]
        raise InvalidInputError(f"Expected solver in {known}, got {name!r}.")
    check_read(name, options)
    return PCA_SOLVERS[name](problem, options)


def check_read(name: str, options: PcaOptions) -> None:
    """Refuse an option that the solver would ignore, and say which solvers read it."""
    for option, value in vars(options).items():
        if value is not None and option not in READS[name]:
            readers = sorted(solver for solver, reads in READS.items() if option in reads)
            said = "n_oversamples" if option == "oversampling" else option  # as the estimator calls it
            raise InvalidInputError(
                f"Expected {said}=None with the PCA solver {name!r}, which does not read it, got "
                f"{value!r}. It is read by {readers}."
            )


__all__ = [
    "PCA_SOLVERS",
    "READS",
    "PcaOptions",
    "Principal",
    "automatic",
    "choose_count",
    "make_pca_solver",
]
