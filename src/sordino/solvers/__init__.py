"""The registry of solvers: a row adds one to the library, its documentation and its tests.

A family shares a setting: ``linear`` and ``heavy`` a :class:`~sordino.problems.problem.Problem`, ``pca`` a
:class:`~sordino.problems.covariance.PcaProblem`, ``location`` (means, moments, ranks, counts by group) a
:class:`~sordino.problems.robust.Sample`, ``networks`` a recipe. The rows of the last need torch:
:mod:`sordino.nn.solvers` adds them.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from functools import partial
from typing import Any

from sordino.errors import InvalidInputError
from sordino.solvers.auto import Auto
from sordino.solvers.base import Capabilities, Entry, Option, Options, Solver, check_asked
from sordino.solvers.baselines import Coordinate, FrankWolfe, Peeled, TwoStage
from sordino.solvers.dense import Adam, Agd, Gd, RrpSgd, Sgd, Srm
from sordino.solvers.heavy.learners import LEARNER, HeavyTailedSparse, learner
from sordino.solvers.heavy.location import RobustMean, RowMeans
from sordino.solvers.heavy.moments import (
    BoundedCovariance,
    BoundedMean,
    BoundedVariance,
    RobustCovariance,
    RobustVariance,
)
from sordino.solvers.heavy.ranks import CellCounts, CellMeans, CellSums, RankQuantiles
from sordino.solvers.one_step import OneStep
from sordino.solvers.pca.methods import Gauss, ModSulq, Oja, Power, Screen, Spca, Vrpca
from sordino.solvers.pca.spectrum import automatic
from sordino.solvers.sparse import Ight, ScsgHt, SgdHt, SvrgHt
from sordino.solvers.transfer import Transfer


def _pca_default(problem: Any) -> str:
    return automatic(problem.features, problem.sparse, math.isfinite(problem.epsilon))


def _statistic(solver: Any, asks: str) -> Entry:
    """Return the row of a solver whose options are its fields, which a function of statistics has checked."""
    known = {f.name: Option(None if f.default is MISSING else f.default) for f in fields(solver)}
    able = Capabilities(asks, reads=(), options=known, dense=True, weights=False, page="../statistics")
    return Entry(lambda sample, options: solver(**options.extra), able)


SOLVERS: dict[str, dict[str, Entry]] = {
    "linear": {
        "adam": Entry.of(Adam),
        "agd": Entry.of(Agd),
        "auto": Entry.of(Auto),
        "coordinate": Entry.of(Coordinate),
        "frank-wolfe": Entry.of(FrankWolfe),
        "gd": Entry.of(Gd),
        "heavy-tailed": Entry.of(HeavyTailedSparse),
        "ight": Entry.of(Ight),
        "ls-adam": Entry.of(Adam, "DP-LSAdam", smoothing=1.0),
        "ls-sgd": Entry.of(Sgd, "DP-LSSGD", smoothing=1.0),
        "peeled": Entry.of(Peeled),
        "rrp-sgd": Entry.of(RrpSgd),
        "scsg-ht": Entry.of(ScsgHt),
        "sgd": Entry.of(Sgd),
        "sgd-ht": Entry.of(SgdHt),
        "srm": Entry.of(Srm),
        "svrg-ht": Entry.of(SvrgHt),
        "transfer": Entry.of(Transfer),
        "two-stage": Entry.of(TwoStage),
    },
    "pca": {
        "auto": Entry(Power.configure, Power.capabilities, stands_for=_pca_default),
        "gauss": Entry.of(Gauss),
        "screen": Entry.of(Screen),
        "power": Entry.of(Power),
        "spca": Entry.of(Spca),
        "vrpca": Entry.of(Vrpca),
        "oja": Entry.of(Oja),
        "mod-sulq": Entry.of(ModSulq),
    },
    "heavy": {
        "strongly-convex": Entry(partial(learner, average="tail"), LEARNER),
        "convex": Entry(partial(learner, average="all"), LEARNER),
    },
    "location": {
        "truncated-mean": _statistic(RobustMean, "halvings, a histogram of scales, truncated sums"),
        "bounded-mean": _statistic(BoundedMean, "a truncated mean and the plain one"),
        "variance": _statistic(RobustVariance, "halvings, a histogram of scales, truncated powers"),
        "bounded-variance": _statistic(BoundedVariance, "a truncated variance and the plain one"),
        "covariance": _statistic(RobustCovariance, "scales and outer products of pair differences"),
        "bounded-covariance": _statistic(BoundedCovariance, "truncated pairs and the plain second moments"),
        "quantiles": _statistic(RankQuantiles, "ranks of candidates, or a tree of counts"),
        "row-means": _statistic(RowMeans, "the mean of rows in a ball"),
        "counts": _statistic(CellCounts, "counts of cells"),
        "sums": _statistic(CellSums, "sums of cells"),
        "means": _statistic(CellMeans, "counts, sums and squares of cells"),
        "one-step": _statistic(OneStep, "curvature, scores and their squares"),
    },
    "networks": {},
}
_WORD = {"networks": "optimizer"}  # what a solver of this family is called where it is chosen


def make_solver(name: str, setting: Any, options: Options, family: str = "linear") -> Any:
    """Return the named solver of a family, configured for a setting; refuse options that it does not read."""
    capabilities_of(name, family)
    row = SOLVERS[family][name]
    if row.stands_for is not None:
        name = row.stands_for(setting)
        row = SOLVERS[family][name]
    check_asked(name, SOLVERS[family], setting, options, _WORD.get(family, "solver"))
    return row.solver(setting, options)


def statistic(name: str, setting: Any, **known: Any) -> Any:
    """Return the named solver of the family ``location``."""
    return make_solver(name, setting, Options(extra=known), "location")


def capabilities_of(name: str, family: str = "linear") -> Capabilities:
    """Return what the named solver declares."""
    rows = SOLVERS[family]
    if not isinstance(name, str) or name not in rows:
        raise InvalidInputError(f"Expected {_WORD.get(family, 'solver')} in {sorted(rows)}, got {name!r}.")
    return rows[name].capabilities


def solvers_with(**wanted: bool) -> tuple[str, ...]:
    """Return the linear solvers that declare all of these, as in ``solvers_with(persons=True)``."""
    return tuple(
        name
        for name, entry in SOLVERS["linear"].items()
        if all(getattr(entry.capabilities, what) is value for what, value in wanted.items())
    )


__all__ = [
    "SOLVERS", "Capabilities", "Entry", "Option", "Options", "Solver", "capabilities_of", "make_solver",
    "solvers_with",
]  # fmt: skip
