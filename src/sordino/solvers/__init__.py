"""Update rules, one algorithm (family) per file. A row here adds a solver to the library and its tests."""

from __future__ import annotations

from collections.abc import Callable

from sordino.errors import InvalidInputError
from sordino.problems.problem import Problem
from sordino.solvers.auto import Auto
from sordino.solvers.base import Options, Solver
from sordino.solvers.dense.adam import Adam
from sordino.solvers.dense.agd import Agd
from sordino.solvers.dense.gd import Gd
from sordino.solvers.dense.rrp_sgd import RrpSgd
from sordino.solvers.dense.sgd import Sgd
from sordino.solvers.dense.srm import Srm
from sordino.solvers.heavy.sparse import HeavyTailedSparse
from sordino.solvers.sparse.coordinate import Coordinate
from sordino.solvers.sparse.frank_wolfe import FrankWolfe
from sordino.solvers.sparse.ight import Ight
from sordino.solvers.sparse.peeled import Peeled
from sordino.solvers.sparse.scsg_ht import ScsgHt
from sordino.solvers.sparse.sgd_ht import SgdHt
from sordino.solvers.sparse.svrg_ht import SvrgHt
from sordino.solvers.sparse.transfer import Transfer
from sordino.solvers.sparse.two_stage import TwoStage

SOLVERS: dict[str, Callable[[Problem, Options], Solver]] = {
    "adam": Adam.configured,
    "agd": Agd.configured,
    "auto": Auto.configured,
    "coordinate": Coordinate.configured,
    "frank-wolfe": FrankWolfe.configured,
    "gd": Gd.configured,
    "heavy-tailed": HeavyTailedSparse.configured,
    "ight": Ight.configured,
    "ls-adam": Adam.smooth,
    "ls-sgd": Sgd.smooth,
    "peeled": Peeled.configured,
    "rrp-sgd": RrpSgd.configured,
    "scsg-ht": ScsgHt.configured,
    "sgd": Sgd.configured,
    "sgd-ht": SgdHt.configured,
    "srm": Srm.configured,
    "svrg-ht": SvrgHt.configured,
    "transfer": Transfer.configured,
    "two-stage": TwoStage.configured,
}


def make_solver(name: str, problem: Problem, options: Options) -> Solver:
    """Return the named solver, configured for a problem."""
    if not isinstance(name, str) or name not in SOLVERS:
        raise InvalidInputError(f"Expected solver in {sorted(SOLVERS)}, got {name!r}.")
    return SOLVERS[name](problem, options)


__all__ = ["SOLVERS", "Options", "Solver", "make_solver"]
