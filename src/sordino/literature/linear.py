"""Linear and heavy-tailed solvers as printed, with the noise of each paper: for reproduction only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel import (
    Curator,
    Full,
    NoiseSource,
    Norm,
    PaperNoise,
    Plan,
    Printed,
    Relation,
    Release,
    public_generator,
)
from sordino.kernel.arrays import Floats
from sordino.kernel.mechanism import Gaussian
from sordino.kernel.query import RecordSums
from sordino.literature import formulas
from sordino.literature.formulas import Formula, Published, Uncertified, paper_noise
from sordino.problems.problem import Problem
from sordino.problems.queries import GlmGradient, residuals
from sordino.problems.robust import Sample, Truncation
from sordino.runs import Ask
from sordino.solvers.heavy.learners import HeavyTailedSparse, ProjectedGradient, Scaling
from sordino.solvers.heavy.location import RobustMean
from sordino.solvers.steps import hard_threshold
from sordino.solvers.transfer import Transfer, largest_curvature, with_intercept

# ------------------------------------------------ Tao et al.: DPODME, DPHDME, DP-SCO and sparse optimisation
# Thresholds and steps are the papers' own: values beyond a threshold become zero, nothing is learned from
# histograms, so a moment bound (or a threshold) and a step size have to be given. References are to "Private
# stochastic convex optimization and sparse learning with heavy-tailed data revisited".

_FAILURE = 0.05  # xi


def published_mean(solver: RobustMean, sample: Sample, budget: Ask) -> Published:
    """Return DPODME (algorithm 1), or for blocks DPHDME (algorithm 3), with its noise.

    The noise is the classical Gaussian mechanism's, ``8 B^2 ln(1.25 / delta) / (n eps)^2`` (times ``m^2 d``
    for m blocks of d columns), which is sound and loose for epsilon up to 1.
    """
    formulas.check_finite(budget)
    several = solver.blocks > 1
    if not several and sample.columns > 1:
        raise InvalidInputError(
            f"DPODME is for single numbers, got rows of {sample.columns}. Set estimator='median-of-means' "
            "for DPHDME."
        )
    if solver.fixed is None:
        _needs(solver.bound, "moment_bound or threshold")
        level = sample.population * budget.epsilon
        if several:
            level /= sample.columns**1.5  # theorem 6
        else:  # algorithm 1
            level /= math.log(1 / solver.failure) * math.sqrt(math.log(1.25 / budget.delta))
        cut = (float(solver.bound or 0.0) * level) ** (1 / (1 + solver.order))
    else:
        cut = solver.fixed
    made = replace(solver, fixed=cut, center=np.zeros(sample.columns), truncation=Truncation(zero=True))
    noise = formulas.truncated_mean(budget.epsilon, budget.delta)
    said = "DPHDME, algorithm 3" if several else "DPODME, algorithm 1"
    return made, paper_noise(sample.relation, said, mean=noise)


def published_learner(noise: str, solver: Any, problem: Problem, budget: Ask) -> Published:
    """Return DP-SCO (algorithm 2) or, for a sparse model, algorithm 5, with its noise.

    ``"paper"`` follows the proofs: strongly convex losses see a fresh chunk each step. ``"paper: as listed"``
    is line 8 of the listing, which passes all records with the budget of one chunk.
    """
    forms = {"": heavy_tailed} if isinstance(solver, HeavyTailedSparse) else _SCO
    return formulas.variant(noise, forms, budget, "for this model")(solver, problem, budget)


def _sco(solver: ProjectedGradient, problem: Problem, budget: Ask) -> Published:
    split = solver.average != "all"
    if split:
        noise = formulas.truncated_mean(budget.epsilon, budget.delta)
        said = "DP-SCO, strongly convex, algorithm 2 and theorem 7"
    else:
        noise = formulas.sco(budget.epsilon, budget.delta, steps=solver.steps)
        said = "DP-SCO, convex, algorithm 2 and theorem 6"
    made = _coordinates(solver, problem, budget, split)
    return made, paper_noise(problem.relation, said, gradient=noise)


def _as_listed(solver: ProjectedGradient, problem: Problem, budget: Ask) -> Published:
    if solver.average == "all":
        raise InvalidInputError("The listing differs from the proof for solver='strongly-convex' only.")
    made = replace(_coordinates(solver, problem, budget, False), average="last")
    noise = formulas.truncated_mean(budget.epsilon, budget.delta)
    return made, paper_noise(problem.relation, "DP-SCO, strongly convex, line 8 as listed", gradient=noise)


def _coordinates(solver: ProjectedGradient, problem: Problem, budget: Ask, split: bool) -> ProjectedGradient:
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


def heavy_tailed(solver: HeavyTailedSparse, problem: Problem, budget: Ask) -> Published:
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


# ------- DPSL-KT as printed: the responses of a sparse teacher, under a noise that its proof does not carry


TEACHER_STEPS = 200


def feature_spread(x: Any) -> float:
    """Return the norm of the covariance of public features: one half's direction, measured on the other."""
    sizes, public = [], public_generator(0)
    order = public.permutation(x.shape[0])
    halves = x[np.sort(order[::2])], x[np.sort(order[1::2])]
    for one, other in (halves, halves[::-1]):
        v = np.ones(x.shape[1])
        for _ in range(50):
            v = one.T @ (one @ v)
            v = v / max(math.sqrt(float(v @ v)), 1e-300)
        sizes.append(float(np.square(other @ v).mean()))
    return max(sizes)


def response_noise(solver: Transfer, problem: Problem, budget: Ask) -> float:
    r"""Return the printed standard deviation over g, ``sqrt(8 m b s ln(2.5/delta)) / (n eps lam)``.

    b is the largest eigenvalue of the second moments of the public features, as they estimate it; g bounds
    the largest *entry* of the gradient of a record at the teacher.
    """
    if solver.mode != "R" or solver.sparsity is None:
        raise InvalidInputError(
            "The published DPSL-KT releases responses of a sparse teacher. Set n_nonzero_coefs and "
            "solver_options={'mode': 'R', 'public_features': ...}."
        )
    x = solver.features
    variance = 8 * x.shape[0] * feature_spread(x) * solver.sparsity * math.log(2.5 / budget.delta)
    return math.sqrt(variance) / (problem.population * budget.epsilon * solver.strength)


@dataclass(frozen=True, eq=False)
class Responses:
    """What the sparse minimiser says about public features, and g of its records, for the mechanism only."""

    margins: Floats
    peak: float


@dataclass(frozen=True, eq=False)
class SparseResponses(Printed):
    """What the sparse minimiser of plain hard thresholding says about public features.

    **Privacy.** None: the minimiser is discontinuous in the records, so its sensitivity does not fall with
    their number, and g is read from them. The declared one is a unit for :class:`PrintedResponses`.
    """

    printed: ClassVar[str] = "DPSL-KT with its sparse teacher"
    needs: ClassVar[tuple[type, ...]] = (RecordSums,)
    norm: ClassVar[Norm] = Norm.L2
    adds_up: ClassVar[bool] = False

    problem: Problem
    teacher: Transfer
    ridge: float

    def contribution(self, params: Any = None) -> float:
        """Return 1, a unit and no bound."""
        return 1.0

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        """Return 1, a unit and no bound."""
        return 1.0

    def evaluate(self, records: Any, params: Any = None) -> Responses:
        problem, strength, x = self.problem, self.ridge, self.teacher.features
        gradient = GlmGradient(problem.loss, problem.gradient_bound)
        # The paper does not print the step: one over the curvature that the public features have.
        spread = largest_curvature(with_intercept(x, problem.intercept)) / x.shape[0]
        step = 1.0 / (problem.curvature * spread + strength)
        w = before = np.zeros(problem.shape)
        for _ in range(TEACHER_STEPS):
            slope = gradient.evaluate(records, w) / problem.population + strength * w
            before, w = w, hard_threshold(w - step * slope, self.teacher.sparsity, problem.n_intercepts)
            if np.allclose(before, w, rtol=1e-6, atol=1e-9):
                break
        margins: Floats = with_intercept(x, problem.intercept) @ w.T
        slopes = np.abs(residuals(problem.loss, records, w)) * records.peaks
        return Responses(margins, float(slopes.max(initial=0.0)))


@dataclass(frozen=True)
class PrintedResponses(Uncertified):
    """Adds the printed Gaussian noise to responses; no epsilon is certified for it."""

    printed: ClassVar[str] = "DPSL-KT with its sparse teacher"

    def privatise(self, value: Responses, sensitivity: float, noise: NoiseSource) -> Floats:
        found: Floats = Gaussian(self.multiplier).privatise(value.margins, value.peak * sensitivity, noise)
        return found


@dataclass(frozen=True, eq=False)
class SparseTeacher:
    """DPSL-KT: the printed teacher and its noisy responses, then the student of :class:`Transfer`."""

    responses: SparseResponses

    @classmethod
    def of(cls, solver: Transfer, problem: Problem, ridge: float) -> SparseTeacher:
        return cls(SparseResponses(problem, solver, ridge))

    def plan(self, problem: Problem) -> Plan:
        return problem.planned(teacher=Release(self.responses, PrintedResponses(), Full(), mean=False))

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        answer = curator.release("teacher")
        yield self.responses.teacher.student(answer, np.zeros(problem.shape), problem)


# ----------------------- The published noise of the linear solvers, DPSL-KT included: for reproduction only


def published_solver(noise: str, name: str, solver: Any, problem: Problem, budget: Ask) -> Published:
    """Return the solver as it is printed, with its published noise.

    ``noise`` is ``"paper"``, or ``"paper: NAME"`` for a variant. Which epsilon the multipliers give is for
    the accountant to say.
    """
    if name not in _FORMULAS:
        raise InvalidInputError(
            f"noise='paper' needs a solver with a published formula ({sorted(_FORMULAS)}), got {name!r}."
        )
    return formulas.variant(noise, _FORMULAS[name], budget, f"with solver {name!r}")(solver, problem, budget)


def _gradients(noise: Callable[..., float], said: str, loss: str = "", batches: bool = False) -> Formula:
    """Return a formula for gradients on all records or on batches, some of them for one loss only."""

    def formula(solver: Any, problem: Problem, budget: Ask) -> Published:
        if loss and problem.loss.name != loss:
            where = said.split(", ")[1]
            raise InvalidInputError(f"{where} is for the {loss} loss, got {problem.loss.name!r}.")
        n, facts = problem.population, {"steps": solver.steps}
        facts |= {"population": n, "batch_size": formulas.batch_size(solver.sampling, n)} if batches else {}
        found = noise(budget.epsilon, budget.delta, **facts)
        return solver, paper_noise(problem.relation, said, gradient=found)

    return formula


def _scsg_ht(solver: Any, problem: Problem, budget: Ask) -> Published:
    n = problem.population
    solver = replace(solver, row_bound=math.inf)  # the constant bound of the paper, which does not shrink
    snapshot, correction = formulas.scsg_ht(
        budget.epsilon,
        budget.delta,
        population=n,
        anchor_batch=formulas.batch_size(solver.snapshots, n),
        batch_size=formulas.batch_size(solver.minibatches, n),
        epochs=len(solver.lengths),
        drawn=solver.drawn,
    )
    said = f"DP-SCSG-HT, option {'I' if solver.drawn else 'II'}, constants as printed"
    return solver, paper_noise(problem.relation, said, snapshot=snapshot, correction=correction)


def _srm_random(solver: Any, problem: Problem, budget: Ask) -> Published:
    """Return DP-SRM with the noise of all T steps, stopped at a step that is drawn before the plan is made.

    The paper draws among theta_0 to theta_(T-1); theta_0 is no result, so ours is drawn among 1 to T.
    """
    noise = formulas.srm_noise(solver.plan(problem), budget)
    public = public_generator(None)
    steps = int(public.integers(1, solver.steps + 1))
    made = replace(solver, steps=steps, average=False)
    kept = {name: noise.multipliers[name] for name in made.plan(problem).releases}
    return made, PaperNoise(kept, f"{noise.formula}, a random one of {solver.steps} iterates")


def _frank_wolfe(solver: Any, problem: Problem, budget: Ask) -> Published:
    _needs_laplace(solver)
    noise = formulas.frank_wolfe(budget.epsilon, budget.delta, steps=solver.steps)
    return solver, paper_noise(problem.relation, "private Frank-Wolfe, Laplace", vertex=noise)


def _peel(solver: Any, problem: Problem, budget: Ask) -> Published:
    _needs_laplace(solver)
    if problem.n_intercepts or not solver.split:
        raise InvalidInputError(
            "The published Peeling has no intercept and gives each step its own records. "
            "Set fit_intercept=False and solver_options={'selection': 'laplace', 'split': True}."
        )
    noise = formulas.peeling(budget.epsilon, budget.delta, sparsity=solver.sparsity)
    return solver, paper_noise(problem.relation, "Peeling, Laplace", support=noise)


def _transfer(solver: Any, problem: Problem, budget: Ask) -> Published:
    peak = max(float(abs(solver.features).max()), problem.intercept) if solver.mode == "R" else 0.0
    std = response_noise(solver, problem, budget) * peak * problem.gradient_bound / problem.row_bound
    query = solver.plan(problem).releases["teacher"].query
    multiplier = std / query.sensitivity(problem.relation, None)
    return solver, PaperNoise({"teacher": multiplier}, "DPSL-KT, on the certified teacher")


def _sparse_teacher(
    solver: Any,
    problem: Problem,
    budget: Ask,
    ridge: float | None = None,
    said: str = "with its sparse teacher",
) -> Published:
    """Return DPSL-KT as printed: the responses of a sparse teacher, for which no epsilon is certified."""
    noise = {"teacher": response_noise(solver, problem, budget)}
    printed = SparseTeacher.of(solver, problem, solver.strength if ridge is None else ridge)
    return printed, PaperNoise(noise, f"DPSL-KT as printed, {said}", (PrintedResponses.printed,))


def _sparse_eigenvalue(solver: Any, problem: Problem, budget: Ask) -> Published:
    """Return DPSL-KT of corollary 3.3.7: no ridge, the least sparse eigenvalue of the loss in its place.

    That is the curvature of the loss times the mean square of a public feature, as columns that are not
    correlated have it; the paper prints no number.
    """
    x = solver.features
    square = float((x.multiply(x) if hasattr(x, "multiply") else np.square(x)).mean())
    made = replace(solver, strength=problem.loss.curvature * square)
    return _sparse_teacher(made, problem, budget, 0.0, "corollary 3.3.7: no ridge")


def _needs_laplace(solver: Any) -> None:
    if solver.selection != "laplace":
        raise InvalidInputError(
            "The published noise is Laplace. Set solver_options={'selection': 'laplace'}."
        )


_LSSGD = _gradients(formulas.lssgd, "DP-LSSGD, Theorem 5.3", batches=True)
_FORMULAS: dict[str, dict[str, Formula]] = {
    "frank-wolfe": {"": _frank_wolfe},
    "heavy-tailed": {"": heavy_tailed},
    "ight": {
        "": _gradients(formulas.ight, "DP-IGHT, Theorem 5.2"),
        "corollary 5.6": _gradients(
            formulas.ight_linear,
            "DP-IGHT, Corollary 5.6, its undefined lambda 1, its Lipschitz constant the clip",
            "squared",
        ),
        "corollary 5.8": _gradients(formulas.ight_logistic, "DP-IGHT, Corollary 5.8", "logistic"),
    },
    "ls-sgd": {"": _LSSGD},
    "peeled": {"": _peel},
    "scsg-ht": {"": _scsg_ht},
    "sgd-ht": {"": _gradients(formulas.sgd_ht, "DP-SGD-HT, Theorem 4.1", batches=True)},
    "sgd": {"": _LSSGD},
    "srm": {
        "": lambda solver, problem, budget: (solver, formulas.srm_noise(solver.plan(problem), budget)),
        "random output": _srm_random,
    },
    "svrg-ht": {"": _scsg_ht},
    "transfer": {"": _transfer, "sparse eigenvalue": _sparse_eigenvalue, "sparse teacher": _sparse_teacher},
}
