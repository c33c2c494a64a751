"""The published noise of the linear solvers, DPSL-KT included: for reproduction only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sordino.errors import InvalidInputError
from sordino.kernel import FixedSize, PaperNoise, Poisson, Sampling, public_generator
from sordino.papers import formulas
from sordino.papers.formulas import Claimed
from sordino.papers.heavy import heavy_tailed
from sordino.papers.schedules import growing_batches
from sordino.papers.transfer import PrintedResponses, SparseTeacher, response_noise
from sordino.problems.problem import Problem

Formula = Callable[[Any, Problem, Claimed], "Published"]
Published = tuple[Any, PaperNoise]


def check_noise(noise: Any) -> bool:
    """Tell whether ``noise`` asks for a published formula: ``"paper"`` or ``"paper: NAME"``."""
    if isinstance(noise, str):
        if noise == "sound":
            return False
        if noise == "paper" or noise.startswith("paper:"):
            return True
    raise InvalidInputError(f"Expected noise in ('sound', 'paper', 'paper: NAME'), got {noise!r}.")


def published(noise: str, name: str, solver: Any, problem: Problem, budget: Claimed) -> Published:
    """Return the solver as it is printed, with its published noise.

    ``noise`` is ``"paper"``, or ``"paper: NAME"`` for a variant. Which epsilon the multipliers give is for
    the accountant to say.
    """
    variants = _FORMULAS.get(name)
    if variants is None:
        raise InvalidInputError(
            f"noise='paper' needs a solver with a published formula ({sorted(_FORMULAS)}), got {name!r}."
        )
    wanted = noise.partition(":")[2].strip()
    if wanted not in variants:
        known = sorted(f"paper: {variant}" if variant else "paper" for variant in variants)
        raise InvalidInputError(f"Expected noise in {known} with solver {name!r}, got {noise!r}.")
    if not math.isfinite(budget.epsilon):
        raise InvalidInputError("noise='paper' needs a finite epsilon; epsilon=inf runs without noise.")
    return variants[wanted](solver, problem, budget)


def _ight(solver: Any, problem: Problem, budget: Claimed) -> Published:
    noise = formulas.ight(budget.epsilon, budget.delta, steps=solver.steps)
    return solver, _noise(problem, "DP-IGHT, Theorem 5.2", gradient=noise)


def _ight_linear(solver: Any, problem: Problem, budget: Claimed) -> Published:
    _needs_loss(problem, "squared", "Corollary 5.6")
    noise = formulas.ight_linear(budget.epsilon, budget.delta, steps=solver.steps)
    said = "DP-IGHT, Corollary 5.6, its undefined lambda 1, its Lipschitz constant the clip"
    return solver, _noise(problem, said, gradient=noise)


def _ight_logistic(solver: Any, problem: Problem, budget: Claimed) -> Published:
    _needs_loss(problem, "logistic", "Corollary 5.8")
    noise = formulas.ight_logistic(budget.epsilon, budget.delta, steps=solver.steps)
    return solver, _noise(problem, "DP-IGHT, Corollary 5.8", gradient=noise)


def _sgd_ht(solver: Any, problem: Problem, budget: Claimed) -> Published:
    n = problem.population
    noise = formulas.sgd_ht(
        budget.epsilon,
        budget.delta,
        population=n,
        batch_size=_size(solver.sampling, n),
        steps=solver.steps,
    )
    return solver, _noise(problem, "DP-SGD-HT, Theorem 4.1", gradient=noise)


def _scsg_ht(solver: Any, problem: Problem, budget: Claimed) -> Published:
    n = problem.population
    solver = replace(solver, row_bound=math.inf)  # the constant bound of the paper, which does not shrink
    snapshot, correction = formulas.scsg_ht(
        budget.epsilon,
        budget.delta,
        population=n,
        anchor_batch=_size(solver.snapshots, n),
        batch_size=_size(solver.minibatches, n),
        epochs=len(solver.lengths),
        drawn=solver.drawn,
    )
    said = f"DP-SCSG-HT, option {'I' if solver.drawn else 'II'}, constants as printed"
    return solver, _noise(problem, said, snapshot=snapshot, correction=correction)


def _srm(solver: Any, problem: Problem, budget: Claimed) -> Published:
    n = problem.population
    first, recursion = (
        formulas.srm(
            budget.epsilon, budget.delta, population=n, batch_size=_size(sampling, n), steps=solver.steps
        )
        for sampling in (solver.first, solver.minibatches)
    )
    noises = {"first": first, "recursion": recursion} if solver.steps > 1 else {"first": first}
    return solver, _noise(problem, "DP-SRM, section 4.5", **noises)


def _srm_random(solver: Any, problem: Problem, budget: Claimed) -> Published:
    """Return DP-SRM with the noise of all T steps, stopped at a step that is drawn before the plan is made.

    The paper draws among theta_0 to theta_(T-1); theta_0 is no result, so ours is drawn among 1 to T.
    """
    _, noise = _srm(solver, problem, budget)
    public = public_generator(None)
    steps = int(public.integers(1, solver.steps + 1))
    made = replace(solver, steps=steps, average=False)
    kept = {name: noise.multipliers[name] for name in made.plan(problem).releases}
    return made, PaperNoise(kept, f"{noise.formula}, a random one of {solver.steps} iterates")


def _lssgd(solver: Any, problem: Problem, budget: Claimed) -> Published:
    n = problem.population
    noise = formulas.lssgd(
        budget.epsilon,
        budget.delta,
        population=n,
        batch_size=_size(solver.sampling, n),
        steps=solver.steps,
    )
    return solver, _noise(problem, "DP-LSSGD, Theorem 5.3", gradient=noise)


def _frank_wolfe(solver: Any, problem: Problem, budget: Claimed) -> Published:
    _needs_laplace(solver)
    noise = formulas.frank_wolfe(budget.epsilon, budget.delta, steps=solver.steps)
    return solver, _noise(problem, "private Frank-Wolfe, Laplace", vertex=noise)


def _peeled(solver: Any, problem: Problem, budget: Claimed) -> Published:
    _needs_laplace(solver)
    if problem.n_intercepts or not solver.split:
        raise InvalidInputError(
            "The published Peeling has no intercept and gives each step its own records. "
            "Set fit_intercept=False and solver_options={'selection': 'laplace', 'split': True}."
        )
    noise = formulas.peeling(budget.epsilon, budget.delta, sparsity=solver.sparsity)
    return solver, _noise(problem, "Peeling, Laplace", support=noise)


def _transfer(solver: Any, problem: Problem, budget: Claimed) -> Published:
    """Return the published noise on the responses of the certified teacher."""
    std = response_noise(solver, problem, budget)
    query = solver.plan(problem).releases["teacher"].query
    multiplier = std / query.sensitivity(problem.relation, None)
    return solver, PaperNoise({"teacher": multiplier}, "DPSL-KT, on the certified teacher")


def _sparse_teacher(solver: Any, problem: Problem, budget: Claimed) -> Published:
    """Return DPSL-KT as printed: the responses of a sparse teacher, for which no epsilon is certified."""
    noise = response_noise(solver, problem, budget)
    printed = SparseTeacher.of(solver, problem)
    said = "DPSL-KT as printed, with its sparse teacher"
    return printed, PaperNoise({"teacher": noise}, said, (PrintedResponses.printed,))


def _noise(problem: Problem, formula: str, **noises: float) -> PaperNoise:
    return PaperNoise(
        {name: formulas.multiplier(noise, problem.relation) for name, noise in noises.items()}, formula
    )


def _needs_loss(problem: Problem, loss: str, corollary: str) -> None:
    if problem.loss.name != loss:
        raise InvalidInputError(f"{corollary} is for the {loss} loss, got {problem.loss.name!r}.")


def _needs_laplace(solver: Any) -> None:
    if solver.selection != "laplace":
        raise InvalidInputError(
            "The published noise is Laplace. Set solver_options={'selection': 'laplace'}."
        )


def _size(sampling: Sampling, population: int) -> int:
    if isinstance(sampling, FixedSize):
        return sampling.size
    return round(sampling.rate * population) if isinstance(sampling, Poisson) else population


_FORMULAS: dict[str, dict[str, Formula]] = {
    "frank-wolfe": {"": _frank_wolfe},
    "heavy-tailed": {"": heavy_tailed},
    "ight": {"": _ight, "corollary 5.6": _ight_linear, "corollary 5.8": _ight_logistic},
    "ls-sgd": {"": _lssgd},
    "peeled": {"": _peeled},
    "scsg-ht": {"": _scsg_ht},
    "sgd-ht": {"": _sgd_ht, "growing batches": growing_batches},
    "sgd": {"": _lssgd},
    "srm": {"": _srm, "random output": _srm_random},
    "svrg-ht": {"": _scsg_ht},
    "transfer": {"": _transfer, "sparse teacher": _sparse_teacher},
}
