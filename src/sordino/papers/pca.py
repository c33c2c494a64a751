"""The published noise of private PCA, by solver: for reproduction only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sordino.errors import InvalidInputError
from sordino.kernel import PaperNoise, Relation
from sordino.papers import formulas
from sordino.papers.formulas import Claimed
from sordino.papers.local_gauss import LocalGauss, SumOfLocalNoise
from sordino.papers.power import EntryLevelPower, EntryLevelProduct
from sordino.papers.vrpca import OneRecordOverSnapshot, PrintedVrpca
from sordino.papers.wishart import Wishart, WishartNotPrivate
from sordino.problems.covariance import PcaProblem
from sordino.solvers.pca import PcaOptions, make_pca_solver
from sordino.solvers.pca.power import Power
from sordino.solvers.pca.spca import Spca
from sordino.solvers.pca.vrpca import Vrpca

Published = tuple[Any, PaperNoise]


def published(name: str, problem: PcaProblem, options: PcaOptions, budget: Claimed) -> Published:
    """Return the named solver with its printed settings and its printed noise."""
    quarantined: dict[str, Any] = {"wishart": Wishart, "local-gauss": LocalGauss}
    if name in quarantined:
        solver: Any = quarantined[name].configured(problem, options)
    else:
        solver = make_pca_solver(name, problem, options)
    kind = type(solver).__name__
    if kind not in _PUBLISHED:
        raise InvalidInputError(f"Expected a solver with a published formula, got {kind!r}.")
    return _PUBLISHED[kind](solver, problem, options, budget)


def _spca(solver: Spca, problem: PcaProblem, options: PcaOptions, budget: Claimed) -> Published:
    n = problem.population
    steps = n if options.max_iter is None else options.max_iter
    batch = 1 if options.batch_size is None else options.batch_size
    solver = replace(
        solver,
        columns=problem.components,
        decay=False,
        steps=steps,
        sampling=problem.minibatches(batch),
        step=0.5 / n if options.step_size is None else options.step_size,
    )
    noise = formulas.spca(budget.epsilon, budget.delta, population=n, steps=steps, batch_size=batch)
    said = "DP-SPCA: lambda1^2 = 20 T a G^2 / (n^2 eps mu)"
    return solver, PaperNoise({"batch": formulas.multiplier(noise, problem.relation)}, said)


def _vrpca(
    solver: Vrpca, problem: PcaProblem, options: PcaOptions, budget: Claimed
) -> tuple[Any, PaperNoise]:
    n = problem.population
    epochs = 1 if options.max_iter is None else options.max_iter
    step = 1 / n if options.step_size is None else options.step_size
    settings = {"columns": problem.components, "epochs": epochs, "inner": n, "step": step}
    noise = formulas.vrpca(budget.epsilon, budget.delta, population=n, steps=n, epochs=epochs)
    said = "DP-VRPCA: lambda2^2 = G^2 T m ln(1/delta) / (n^2 eps^2)"
    return PrintedVrpca.of(solver, **settings), PaperNoise(
        {"step": noise}, said, (OneRecordOverSnapshot.printed,)
    )


def _power(
    solver: Power, problem: PcaProblem, options: PcaOptions, budget: Claimed
) -> tuple[Any, PaperNoise]:
    log = math.log(1 / budget.delta)
    entry = math.sqrt(4 * solver.columns * solver.steps * log) / budget.epsilon
    # ||V||_max >= 1 / sqrt(d) for unit columns, so this is the least noise a record can meet.
    noise = entry / math.sqrt(problem.features)
    said = "PPI: s = ||V||_max sqrt(4 p T ln(1/delta)) / eps, which protects one entry"
    printed = EntryLevelPower(solver.columns, solver.steps, momentum=0.0)
    multipliers = {"product": noise / _quadratic(problem.relation)}
    return printed, PaperNoise(multipliers, said, (EntryLevelProduct.printed,))


def _mod_sulq(
    solver: Any, problem: PcaProblem, options: PcaOptions, budget: Claimed
) -> tuple[Any, PaperNoise]:
    noise = formulas.mod_sulq(budget.epsilon, budget.delta, features=problem.features)
    said = "MOD-SULQ: beta = (d+1)/(n eps) sqrt(2 ln((d^2+d)/(delta sqrt(2 pi)))) + 1/(n sqrt(eps))"
    return solver, PaperNoise({"triangle": noise / _quadratic(problem.relation)}, said)


def _gauss(solver: Any, problem: PcaProblem, options: PcaOptions, budget: Claimed) -> Published:
    noise = math.sqrt(2 * math.log(1.25 / budget.delta)) / budget.epsilon
    said = "Analyze-Gauss: s = sqrt(2 ln(1.25/delta)) / eps for rows of norm at most 1"
    return solver, PaperNoise({"gram": noise / _quadratic(problem.relation)}, said)


def _wishart(
    solver: Any, problem: PcaProblem, options: PcaOptions, budget: Claimed
) -> tuple[Any, PaperNoise]:
    noise = 1.5 / budget.epsilon / _quadratic(problem.relation)
    said = "Wishart: c = 3 / (2 n eps), d + 1 degrees of freedom"
    return solver, PaperNoise({"gram": noise}, said, (WishartNotPrivate.printed,))


def _local_gauss(
    solver: Any, problem: PcaProblem, options: PcaOptions, budget: Claimed
) -> tuple[Any, PaperNoise]:
    noise = math.sqrt(2 * math.log(1.25 / budget.delta)) / budget.epsilon
    said = "local Gaussian: s = sqrt(2 ln(1.25/delta)) / eps on the matrix of each record"
    return solver, PaperNoise(
        {"gram": noise / _quadratic(problem.relation)}, said, (SumOfLocalNoise.printed,)
    )


def _quadratic(relation: Relation) -> float:
    """Return how many contributions the sensitivity of a Gram matrix is."""
    return math.sqrt(2.0) if relation is Relation.REPLACE_ONE else 1.0


_PUBLISHED: dict[str, Callable[..., Published]] = {
    "Spca": _spca,
    "Vrpca": _vrpca,
    "Power": _power,
    "ModSulq": _mod_sulq,
    "Gauss": _gauss,
    "Wishart": _wishart,
    "LocalGauss": _local_gauss,
}
