"""Update rules, one algorithm (family) per file. A row here adds a solver to the library and its tests."""

from __future__ import annotations

from sordino.errors import InvalidInputError
from sordino.problems.problem import Problem
from sordino.solvers.auto import Auto
from sordino.solvers.base import Capabilities, Entry, Options, Solver, check_asked
from sordino.solvers.baselines import Coordinate, FrankWolfe, Peeled, TwoStage
from sordino.solvers.dense import Adam, Agd, Gd, RrpSgd, Sgd, Srm
from sordino.solvers.heavy.learners import HeavyTailedSparse
from sordino.solvers.sparse import Ight, ScsgHt, SgdHt, SvrgHt
from sordino.solvers.transfer import Transfer

SOLVERS: dict[str, Entry] = {
    "adam": Entry.of(Adam),
    "agd": Entry.of(Agd),
    "auto": Entry.of(Auto),
    "coordinate": Entry.of(Coordinate),
    "frank-wolfe": Entry.of(FrankWolfe),
    "gd": Entry.of(Gd),
    "heavy-tailed": Entry.of(HeavyTailedSparse),
    "ight": Entry.of(Ight),
    "ls-adam": Entry.of(Adam).renamed(Adam.smooth, "DP-LSAdam"),
    "ls-sgd": Entry.of(Sgd).renamed(Sgd.smooth, "DP-LSSGD"),
    "peeled": Entry.of(Peeled),
    "rrp-sgd": Entry.of(RrpSgd),
    "scsg-ht": Entry.of(ScsgHt),
    "sgd": Entry.of(Sgd),
    "sgd-ht": Entry.of(SgdHt),
    "srm": Entry.of(Srm),
    "svrg-ht": Entry.of(SvrgHt),
    "transfer": Entry.of(Transfer),
    "two-stage": Entry.of(TwoStage),
}


def make_solver(name: str, problem: Problem, options: Options) -> Solver:
    """Return the named solver, configured for a problem; refuse options that it does not read."""
    capabilities_of(name)
    check_asked(name, SOLVERS, problem, options)
    return SOLVERS[name].make(problem, options)


def capabilities_of(name: str) -> Capabilities:
    """Return what the named solver declares."""
    if not isinstance(name, str) or name not in SOLVERS:
        raise InvalidInputError(f"Expected solver in {sorted(SOLVERS)}, got {name!r}.")
    return SOLVERS[name].capabilities


def solvers_with(**wanted: bool) -> tuple[str, ...]:
    """Return the names of the solvers that declare all of these, as in ``solvers_with(persons=True)``."""
    return tuple(
        name
        for name, entry in SOLVERS.items()
        if all(getattr(entry.capabilities, what) is value for what, value in wanted.items())
    )


__all__ = [
    "SOLVERS",
    "Capabilities",
    "Entry",
    "Options",
    "Solver",
    "capabilities_of",
    "make_solver",
    "solvers_with",
]
