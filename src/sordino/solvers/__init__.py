"""Update rules, one algorithm (family) per file. A row here adds a solver to the library and its tests."""

from __future__ import annotations

from collections.abc import Callable

from sordino.errors import InvalidInputError
from sordino.problems.problem import Problem
from sordino.solvers.base import Options, Solver
from sordino.solvers.ight import Ight
from sordino.solvers.sgd_ht import SgdHt

SOLVERS: dict[str, Callable[[Problem, Options], Solver]] = {
    "ight": Ight.configured,
    "sgd-ht": SgdHt.configured,
}


def make_solver(name: str, problem: Problem, options: Options) -> Solver:
    """Return the named solver, configured for a problem."""
    if name not in SOLVERS:
        raise InvalidInputError(f"Expected solver in {sorted(SOLVERS)}, got {name!r}.")
    return SOLVERS[name](problem, options)


__all__ = ["SOLVERS", "Options", "Solver", "make_solver"]
