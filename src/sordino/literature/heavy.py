"""The published forms of Tao et al.: DPODME, DPHDME, DP-SCO and sparse optimisation, for reproduction only.

Thresholds and steps are the papers' own: values beyond a threshold become zero, nothing is learned from
histograms, so a moment bound (or a threshold) and a step size have to be given. References are to "Private
stochastic convex optimization and sparse learning with heavy-tailed data revisited".
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from sordino.errors import InvalidInputError
from sordino.literature import formulas
from sordino.literature.formulas import Claimed, Formula, Published, check_finite, paper_noise, variant
from sordino.problems.problem import Problem
from sordino.problems.robust import Sample, Truncation
from sordino.solvers.heavy.learners import HeavyTailedSparse, ProjectedGradient, Scaling
from sordino.solvers.heavy.mean import RobustMean

_FAILURE = 0.05  # xi


def published_mean(solver: RobustMean, sample: Sample, budget: Claimed) -> Published:
    """Return DPODME (algorithm 1), or for blocks DPHDME (algorithm 3), with its noise.

    The noise is the classical Gaussian mechanism's, ``8 B^2 ln(1.25 / delta) / (n eps)^2`` (times ``m^2 d``
    for m blocks of d columns), which is sound and loose for epsilon up to 1.
    """
    check_finite(budget)
    several = solver.blocks > 1
    if not several and sample.columns > 1:
        raise InvalidInputError(
            f"DPODME is for single numbers, got rows of {sample.columns}. Set estimator='median-of-means' "
            "for DPHDME."
        )
    if solver.fixed is None:
        _needs(solver.bound, "moment_bound or threshold")
        level = (
            sample.population * budget.epsilon
        )  # over d^(3/2) in theorem 6, over logarithms in algorithm 1
        if several:
            level /= sample.columns**1.5
        else:
            level /= math.log(1 / solver.failure) * math.sqrt(math.log(1.25 / budget.delta))
        cut = (float(solver.bound or 0.0) * level) ** (1 / (1 + solver.order))
    else:
        cut = solver.fixed
    made = replace(solver, fixed=cut, center=np.zeros(sample.columns), truncation=Truncation(zero=True))
    noise = formulas.truncated_mean(budget.epsilon, budget.delta)
    said = "DPHDME, algorithm 3" if several else "DPODME, algorithm 1"
    return made, paper_noise(sample.relation, said, mean=noise)


def published_learner(noise: str, solver: Any, problem: Problem, budget: Claimed) -> Published:
    """Return DP-SCO (algorithm 2) or, for a sparse model, algorithm 5, with its noise.

    ``"paper"`` follows the proofs: strongly convex losses see a fresh chunk each step. ``"paper: as listed"``
    is line 8 of the listing, which passes all records with the budget of one chunk.
    """
    forms = {"": heavy_tailed} if isinstance(solver, HeavyTailedSparse) else _SCO
    return variant(noise, forms, budget, "for this model")(solver, problem, budget)


def _sco(solver: ProjectedGradient, problem: Problem, budget: Claimed) -> Published:
    split = solver.average != "all"
    if split:
        noise = formulas.truncated_mean(budget.epsilon, budget.delta)
        said = "DP-SCO, strongly convex, algorithm 2 and theorem 7"
    else:
        noise = formulas.sco(budget.epsilon, budget.delta, steps=solver.steps)
        said = "DP-SCO, convex, algorithm 2 and theorem 6"
    made = _coordinates(solver, problem, budget, split)
    return made, paper_noise(problem.relation, said, gradient=noise)


def _as_listed(solver: ProjectedGradient, problem: Problem, budget: Claimed) -> Published:
    if solver.average == "all":
        raise InvalidInputError("The listing differs from the proof for solver='strongly-convex' only.")
    made = replace(_coordinates(solver, problem, budget, False), average="last")
    noise = formulas.truncated_mean(budget.epsilon, budget.delta)
    return made, paper_noise(problem.relation, "DP-SCO, strongly convex, line 8 as listed", gradient=noise)


def _coordinates(
    solver: ProjectedGradient, problem: Problem, budget: Claimed, split: bool
) -> ProjectedGradient:
    """Return the solver with the medians of block means of algorithm 3."""
    d = problem.columns * problem.outputs
    level = budget.epsilon * problem.population / d**1.5
    if split:
        level /= math.sqrt(solver.steps)
    records = problem.population // (solver.steps if split else 1)
    blocks = max(1, min(math.ceil(4.0 * math.log(2.0 * d / _FAILURE)), records))
    return replace(
        solver,
        scaling=_printed_scaling(solver.scaling, level),
        average="last" if split else solver.average,
        split=split,
        truncation=Truncation("coordinate", zero=True),
        blocks=blocks,
    )


def heavy_tailed(solver: HeavyTailedSparse, problem: Problem, budget: Claimed) -> Published:
    """Return algorithm 5: fresh chunks, gradients truncated to zero by coordinate, Peeling."""
    if problem.n_intercepts or solver.sparsity is None:
        raise InvalidInputError(
            "Algorithm 5 is for a sparse model without an intercept. Set n_nonzero_coefs and "
            "fit_intercept=False."
        )
    s, steps, d = solver.sparsity, solver.steps, problem.columns * problem.outputs
    logs = math.log(d * steps / _FAILURE) * math.sqrt(s * math.log(1 / budget.delta))
    scaling = _printed_scaling(solver.scaling, problem.population * budget.epsilon / (steps * logs))
    made = replace(solver, scaling=scaling, split=True, selection="peeling", zero=True, joint=None)
    noise = formulas.peeling(budget.epsilon, budget.delta, sparsity=s)
    said = "heavy-tailed sparse optimisation, algorithm 5, Peeling"
    return made, paper_noise(problem.relation, said, select=noise)


def _printed_scaling(scaling: Scaling, level: float) -> Scaling:
    """Return the given step and the threshold ``(u level)^(1/(1+v))``, or the given one."""
    step = _needs(scaling.step, "step_size")
    cut = scaling.fixed
    if cut is None:
        cut = (_needs(scaling.bound, "moment_bound or threshold") * level) ** (1 / (1 + scaling.order))
    return Scaling(order=scaling.order, fixed=cut, step=step)


def _needs(value: float | None, name: str) -> float:
    if value is None:
        raise InvalidInputError(
            f"The published form of this estimator takes {name} as an input, got none. Pass a public number."
        )
    return float(value)


_SCO: dict[str, Formula] = {"": _sco, "as listed": _as_listed}
