"""The published noise of the linear solvers, DPSL-KT included: for reproduction only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scipy import sparse

from sordino.errors import InvalidInputError
from sordino.kernel import FixedSize, PaperNoise, Poisson, Sampling
from sordino.papers import formulas
from sordino.papers.formulas import Claimed
from sordino.problems.problem import Problem

Formula = Callable[[Any, Problem, Claimed], PaperNoise]


def paper_noise(name: str, solver: Any, problem: Problem, budget: Claimed) -> PaperNoise:
    """Return the published multipliers of a solver; which epsilon they give is for the accountant to say."""
    if name not in _FORMULAS:
        raise InvalidInputError(
            f"noise='paper' needs a solver with a published formula ({sorted(_FORMULAS)}), got {name!r}."
        )
    if not math.isfinite(budget.epsilon):
        raise InvalidInputError("noise='paper' needs a finite epsilon; epsilon=inf runs without noise.")
    return _FORMULAS[name](solver, problem, budget)


def _ight(solver: Any, problem: Problem, budget: Claimed) -> PaperNoise:
    noise = formulas.ight(budget.epsilon, budget.delta, steps=solver.steps)
    return _noise(problem, "DP-IGHT, Theorem 5.2", gradient=noise)


def _sgd_ht(solver: Any, problem: Problem, budget: Claimed) -> PaperNoise:
    n = problem.population
    noise = formulas.sgd_ht(
        budget.epsilon,
        budget.delta,
        population=n,
        batch_size=_size(solver.sampling, n),
        steps=solver.steps,
    )
    return _noise(problem, "DP-SGD-HT, Theorem 4.1", gradient=noise)


def _scsg_ht(solver: Any, problem: Problem, budget: Claimed) -> PaperNoise:
    n = problem.population
    snapshot, correction = formulas.scsg_ht(
        budget.epsilon,
        budget.delta,
        population=n,
        anchor_batch=_size(solver.snapshots, n),
        batch_size=_size(solver.minibatches, n),
        epochs=sum(length > 0 for length in solver.lengths),
    )
    return _noise(problem, "DP-SCSG-HT, constants as printed", snapshot=snapshot, correction=correction)


def _srm(solver: Any, problem: Problem, budget: Claimed) -> PaperNoise:
    n = problem.population
    first, recursion = (
        formulas.srm(
            budget.epsilon, budget.delta, population=n, batch_size=_size(sampling, n), steps=solver.steps
        )
        for sampling in (solver.first, solver.minibatches)
    )
    noises = {"first": first, "recursion": recursion} if solver.steps > 1 else {"first": first}
    return _noise(problem, "DP-SRM, section 4.5", **noises)


def _lssgd(solver: Any, problem: Problem, budget: Claimed) -> PaperNoise:
    n = problem.population
    noise = formulas.lssgd(
        budget.epsilon,
        budget.delta,
        population=n,
        batch_size=_size(solver.sampling, n),
        steps=solver.steps,
    )
    return _noise(problem, "DP-LSSGD, Theorem 5.3", gradient=noise)


def _frank_wolfe(solver: Any, problem: Problem, budget: Claimed) -> PaperNoise:
    _needs_laplace(solver)
    noise = formulas.frank_wolfe(budget.epsilon, budget.delta, steps=solver.steps)
    return _noise(problem, "private Frank-Wolfe, Laplace", vertex=noise)


def _peeled(solver: Any, problem: Problem, budget: Claimed) -> PaperNoise:
    _needs_laplace(solver)
    if problem.n_intercepts or not solver.split:
        raise InvalidInputError(
            "The published Peeling has no intercept and gives each step its own records. "
            "Set fit_intercept=False and solver_options={'selection': 'laplace', 'split': True}."
        )
    noise = formulas.peeling(budget.epsilon, budget.delta, sparsity=solver.sparsity)
    return _noise(problem, "Peeling, Laplace", support=noise)


def _transfer(solver: Any, problem: Problem, budget: Claimed) -> PaperNoise:
    r"""Return the published noise on responses, ``sigma^2 = 8 m b s g^2 ln(2.5/delta) / (n eps lam)^2``.

    It is put on the responses of the certified teacher: the published teacher has no bounded sensitivity
    at all. b is the mean square of the public features, g the bound on the largest entry of a gradient.
    """
    if solver.mode != "R" or solver.sparsity is None:
        raise InvalidInputError(
            "The published DPSL-KT releases responses of a sparse teacher. Set n_nonzero_coefs and "
            "solver_options={'mode': 'R', 'public_features': ...}."
        )
    x = solver.features
    square = float((x.power(2) if sparse.issparse(x) else x**2).mean())
    peak = problem.gradient_bound * max(problem.data_norm, problem.intercept) / problem.row_bound
    variance = 8 * x.shape[0] * square * solver.sparsity * peak**2 * math.log(2.5 / budget.delta)
    std = math.sqrt(variance) / (problem.population * budget.epsilon * solver.strength)
    query = solver.plan(problem).releases["teacher"].query
    multiplier = std / query.sensitivity(problem.relation, None)
    return PaperNoise({"teacher": multiplier}, "DPSL-KT, on the certified teacher")


def _noise(problem: Problem, formula: str, **noises: float) -> PaperNoise:
    return PaperNoise(
        {name: formulas.multiplier(noise, problem.relation) for name, noise in noises.items()}, formula
    )


def _needs_laplace(solver: Any) -> None:
    if solver.selection != "laplace":
        raise InvalidInputError(
            "The published noise is Laplace. Set solver_options={'selection': 'laplace'}."
        )


def _size(sampling: Sampling, population: int) -> int:
    if isinstance(sampling, FixedSize):
        return sampling.size
    return round(sampling.rate * population) if isinstance(sampling, Poisson) else population


_FORMULAS: dict[str, Formula] = {
    "frank-wolfe": _frank_wolfe,
    "ight": _ight,
    "ls-sgd": _lssgd,
    "peeled": _peeled,
    "scsg-ht": _scsg_ht,
    "sgd-ht": _sgd_ht,
    "sgd": _lssgd,
    "srm": _srm,
    "svrg-ht": _scsg_ht,
    "transfer": _transfer,
}
