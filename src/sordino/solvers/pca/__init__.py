"""Private PCA: the classical mechanisms, the stochastic methods, and the rule that picks among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sordino.errors import InvalidInputError
from sordino.problems.covariance import PcaProblem
from sordino.solvers.pca.gauss import Gauss
from sordino.solvers.pca.options import PcaOptions, fits_matrix
from sordino.solvers.pca.power import Power
from sordino.solvers.pca.screen import Screen
from sordino.solvers.pca.spca import Spca
from sordino.solvers.pca.spectrum import Principal, choose_count
from sordino.solvers.pca.sulq import ModSulq
from sordino.solvers.pca.vrpca import Vrpca

PCA_SOLVERS: dict[str, Callable[[PcaProblem, PcaOptions], Any]] = {
    "gauss": Gauss.configured,
    "screen": Screen.configured,
    "power": Power.configured,
    "spca": Spca.configured,
    "vrpca": Vrpca.configured,
    "mod-sulq": ModSulq.configured,
}


def automatic(features: int, sparse: bool = False) -> str:
    """Return the solver for a number of columns and a storage format: public, so the choice is.

    One noisy matrix beats every iteration (each of its releases gets only a part of the budget), so
    it is taken whenever it fits in memory. Beyond, sparse rows have few columns that matter, and
    screening finds them; dense ones go to the power method, which uses all records in each of few
    releases and never holds a d x d matrix.
    """
    if fits_matrix(features):
        return "gauss"
    return "screen" if sparse else "power"


def make_pca_solver(name: str, problem: PcaProblem, options: PcaOptions) -> Any:
    """Return the named solver, configured for a problem."""
    name = automatic(problem.features, problem.sparse) if name == "auto" else name
    if name not in PCA_SOLVERS:
        known = ["auto", *PCA_SOLVERS]
        raise InvalidInputError(f"Expected solver in {known}, got {name!r}.")
    return PCA_SOLVERS[name](problem, options)


__all__ = [
    "PCA_SOLVERS",
    "PcaOptions",
    "Principal",
    "automatic",
    "choose_count",
    "make_pca_solver",
]
