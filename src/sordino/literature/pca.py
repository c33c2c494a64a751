"""PCA mechanisms as printed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from dp_accounting import dp_event as dp
from scipy.linalg import eigh

from sordino.accounting.calibration import Search, certify
from sordino.errors import InvalidInputError, UnsupportedError
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
from sordino.kernel.events import compose_events, poisson_event, repeat_event
from sordino.kernel.mechanism import Additive
from sordino.kernel.noise import fresh_noise
from sordino.kernel.query import GramSums, Parts
from sordino.literature import formulas
from sordino.literature.formulas import Published, Uncertified, paper_noise
from sordino.problems.covariance import Ball, GramMatrix, GramProduct, PcaProblem, Quadratic, operator_norm
from sordino.runs import Ask
from sordino.solvers import Options, make_solver
from sordino.solvers.base import noise_std
from sordino.solvers.pca.methods import Gauss, ModSulq, Power, Products, Spca, Vrpca, principal_of
from sordino.solvers.pca.spectrum import Principal, by_strength, locate, polar

# ----------------------- Private power iteration as printed: noise that protects a single entry of a record


@dataclass(frozen=True)
class EntryLevelProduct(Printed, GramProduct):
    r"""The product with the noise of the private power iteration, which protects one *entry*.

    That noise is ``z ||V||_max``. Declaring ``sqrt(d) ||V||_max >= 1`` as the contribution of a record gives
    the same noise at the multiplier ``z / sqrt(d)``, and an epsilon that is true for records.
    """

    printed: ClassVar[str] = "private power iteration, entry-level noise"

    def contribution(self, params: Any) -> float:
        """Return ``radius^2 sqrt(d) ||V||_max``, at least the true bound for orthonormal V."""
        block, ball = params
        radius = self.row_norm if ball is None else ball.radius
        spread = math.sqrt(len(block)) * float(np.abs(block).max())
        return float(max(super().contribution(params), radius**2 * spread))


@dataclass(frozen=True)
class EntryLevelPower(Power):
    """The noisy power method with entry-level noise and without momentum."""

    def query(self, problem: PcaProblem) -> GramProduct:
        return EntryLevelProduct(problem.data_norm)


# ---------------------- DP-VRPCA as printed: an exact snapshot and one record's difference, under one noise

_NAME = "DP-VRPCA, step as printed"
# The exact product of the last anchor, one per set of records: a snapshot holds for many steps.
_SNAPSHOTS: WeakKeyDictionary[Any, tuple[Floats, Ball, Floats]] = WeakKeyDictionary()


@dataclass(frozen=True)
class SnapshotAndDifference(Printed, Quadratic):
    r"""``A V~ / n + sum over a batch of x x^T (V - V~)``; ``params = (V - V~, V~, ball)``.

    **Privacy.** In units of the contribution ``c = r^2 max(2, ||V - V~||, 2 ||V~||)`` a record adds at most
    ``1 / (2 n)`` always and at most 1 more when it is in the batch, whatever the blocks are; the 2 is the
    most that two bases can need, because the printed noise never shrinks. :meth:`evaluate` does not return an
    answer: only :class:`OneRecordOverSnapshot` can draw the batch, and it adds the noise.
    """

    needs: ClassVar[tuple[type, ...]] = (GramSums, Parts)
    printed: ClassVar[str] = _NAME

    row_norm: float

    def contribution(self, params: Any) -> float:
        """Return twice the squared radius; more where the blocks are not differences of bases."""
        moved, anchor, ball = params
        return float(ball.radius**2 * max(2.0, operator_norm(moved), 2 * operator_norm(anchor)))

    def evaluate(self, records: Any, params: Any) -> Step:
        """Return the step of these records, not drawn yet."""
        return Step(records, *params)


@dataclass(frozen=True, eq=False)
class Step:
    """The records and blocks of one step, for the mechanism only."""

    records: Any
    moved: Floats
    anchor: Floats
    ball: Ball

    def with_batch(self, rows: Any, population: int) -> Floats:
        """Return the snapshot's mean, and the sum over the batch."""
        known = _SNAPSHOTS.get(self.records)
        if known is None or known[1] is not self.ball or not np.array_equal(known[0], self.anchor):
            product: Floats = self.records.gram_product(self.anchor, self.ball)
            known = _SNAPSHOTS[self.records] = (self.anchor.copy(), self.ball, product)
        batch: Floats = self.records.subset(rows).gram_product(self.moved, self.ball)
        return known[2] / population + batch


@dataclass(frozen=True)
class OneRecordOverSnapshot(Printed, Additive):
    """Draws a batch of (on average) one record and adds Gaussian noise to the whole step.

    A record moves the snapshot by 1/n always and the difference by up to 2 with probability 1/n: a mixture of
    Gaussians, which is what the event says.
    """

    printed: ClassVar[str] = _NAME
    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)
    population: int = 1

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the mixture, in units of the contribution, which is 2."""
        if relation is not Relation.ADD_REMOVE:
            raise UnsupportedError(
                "The printed DP-VRPCA step is accounted for relation 'add-remove' only. "
                "Use noise='sound', or relation='add-remove'."
            )
        if self.scale(1.0) == 0:
            return dp.NonPrivateDpEvent()
        mean, rate = 0.5 / self.population, 1 / self.population
        return dp.MixtureOfGaussiansDpEvent(self.scale(1.0), [mean, 1 + mean], [1 - rate, rate])

    def rho(self) -> float:
        """Return 1/2, the cost of a step that holds the record."""
        return 0.5

    def privatise(self, value: Step, sensitivity: float, noise: NoiseSource) -> Floats:
        rows = noise.bernoulli_rows(value.records.count, 1 / self.population)
        exact = value.with_batch(rows, self.population)
        return exact + self.scale(sensitivity) * noise.normal(exact.shape)


@dataclass(frozen=True)
class PrintedVrpca(Vrpca):
    """``V <- orth(V + step (A V~ + x x^T (V - V~) + noise))``, one release per step."""

    @classmethod
    def of(cls, solver: Vrpca, **settings: Any) -> PrintedVrpca:
        return replace(cls(**vars(solver)), **settings)

    def plan(self, problem: PcaProblem) -> Plan:
        query = SnapshotAndDifference(problem.data_norm)
        noise = OneRecordOverSnapshot(population=problem.population)
        return problem.planned(step=Release(query, noise, Full(), self.epochs * self.inner, mean=False))

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        """Yield the axes after each step; their variances come from the noisy steps too."""
        place = locate(curator, problem, 0.0)
        basis, step = problem.start(self.columns), self.step / place.ball.radius**2
        inner = np.zeros((self.columns, self.columns))
        for epoch in range(self.epochs):
            anchor = basis
            std = noise_std(curator, "step", (basis - anchor, anchor, place.ball))
            for t in range(self.inner):
                answer = curator.release("step", (basis - anchor, anchor, place.ball))
                inner += 2 / (epoch * self.inner + t + 2) * (basis.T @ answer - inner)
                basis = polar(basis + step * answer)
                yield Products(place, problem).principal(inner, by_strength(basis, inner), std)


# -------------------------- Wishart noise: published as pure DP, it is not private at all. A benchmark only


@dataclass(frozen=True)
class WishartNotPrivate(Uncertified):
    r"""Adds ``c G G^T`` with a d x (d + 1) Gaussian ``G`` and ``c = multiplier * sensitivity``.

    The noise is positive definite, so an answer M rules out every data set with a direction in which
    M is below its Gram matrix: see :func:`distinguishing_probability`. Its event is "not private".

    References: Jiang, Xie, Zhang 2016, who claim pure DP.
    """

    printed: ClassVar[str] = "Wishart noise"

    def privatise(self, value: Any, sensitivity: float, noise: NoiseSource) -> Any:
        d = len(value)
        block = noise.normal((d, d + 1))
        return value + self.scale(sensitivity) * (block @ block.T)


def distinguishing_probability(epsilon: float) -> float:
    r"""Return ``1 - exp(-epsilon / 3)``: how often the noise shows which of two neighbours it hides.

    Let A' hold one record x more than A. Under A' the answer M satisfies ``M >= A'`` always; under A it
    fails to when ``c / (x^T (G G^T)^-1 x) < 1``, and that is ``c chi^2_2 < 1``, ``c = 3 / (2 epsilon)``,
    for every d and n. An event of probability p under A and 0 under A' means delta >= p for every epsilon.
    """
    return -math.expm1(-epsilon / 3)


@dataclass(frozen=True)
class PrintedWishart:
    """Eigenvectors of a matrix under Wishart noise; runs only with ``noise="paper"``."""

    def plan(self, problem: PcaProblem) -> Plan:
        return problem.planned(gram=Release(GramMatrix(problem.data_norm), WishartNotPrivate(), Full()))

    def run(self, curator: Curator, problem: PcaProblem) -> Iterator[Principal]:
        place = locate(curator, problem, 0.0)
        yield principal_of(curator.release("gram", place.ball), 0.0, place, problem)


# ----------------- The noise that an accountant gives the text's methods, for a reproduction of its figures


# The steps of Shang et al. over the number of rows.
TEXT_STEPS = {"DP-SPCA": 0.5, "DP-VRPCA": 1.0}


def text_axes(
    values: Floats, vectors: Floats, n: int, k: int, method: str, epsilon: float, rounds: int, seed: int
) -> Floats:
    """Return k axes by a text's method with calibrated noise, from the spectrum of n unit rows, not centred.

    A matrix has independent noise on and above its diagonal, of one law for Gaussian and MOD-SULQ; PPI has
    so many products. A round of DP-SPCA and DP-VRPCA is n steps with the exact gradient in the place of one
    record's, which can only help, in pieces: ``V <- orth(exp(step A) V + noise)``.
    """
    noise, d = fresh_noise(), len(values)
    std = text_noise(method, epsilon, n, rounds)
    if method in ("Gaussian", "MOD-SULQ"):
        half = np.triu(noise.normal((d, d)))
        matrix = (vectors * values) @ vectors.T + std / n * (half + np.triu(half, 1).T)
        return np.asarray(eigh(matrix, subset_by_index=[d - k, d - 1])[1])
    public = public_generator(seed)
    basis = np.linalg.qr(public.normal(size=(d, k)))[0]
    pieces, grow, spread = rounds, values[:, None], std / n
    if method != "PPI":
        step, pieces = TEXT_STEPS[method] / n, max(10, rounds)
        many = n * rounds / pieces
        grow, spread = np.exp(step * many * grow), step * math.sqrt(many) * std
    for _ in range(pieces):
        basis = np.linalg.qr(grow * basis + spread * noise.normal(basis.shape))[0]
    return np.asarray(vectors @ basis)


@cache
def text_noise(method: str, epsilon: float, n: int, rounds: int, delta: float = 1e-3) -> float:
    """Return the deviation of the noise of each release, a sum over rows of norm one, for replace-one.

    **Privacy.** Gram matrices of two unit rows, and their products with a basis, are at most sqrt 2 apart;
    an event's multiplier is relative to half of the distance. A step of DP-SPCA holds a record with
    probability 1 / n. One of DP-VRPCA adds a share 1 / n of the snapshot, always, to a difference of norm 2
    at most with probability 1 / n: two thirds of the variance hide the latter.
    """
    sampled = method in TEXT_STEPS

    def event(std: float) -> dp.DpEvent:
        if not sampled:
            return repeat_event(dp.GaussianDpEvent(math.sqrt(2) * std), rounds)
        one = dp.GaussianDpEvent(std if method == "DP-SPCA" else math.sqrt(2 / 3) * std / 2)
        drawn = repeat_event(poisson_event(1 / n, one), n * rounds)
        if method == "DP-SPCA":
            return drawn
        return compose_events(
            [drawn, repeat_event(dp.GaussianDpEvent(math.sqrt(2 / 3) * n * std), n * rounds)]
        )

    grid = None if epsilon < 0.5 or not sampled else 5e-5 * epsilon  # coarser: 1 % more noise
    found = Search(
        lambda std: certify(event(std), delta, Relation.REPLACE_ONE, grid=grid).epsilon, epsilon, method
    )
    return found.run(lambda: 0.1 * math.sqrt(rounds) if sampled else 2.0 * rounds**0.5 / epsilon)


# ------------------------------------- The published noise of private PCA, by solver: for reproduction only


def published_solver(name: str, problem: PcaProblem, options: Options, budget: Ask) -> Published:
    """Return the named solver with its printed settings and its printed noise."""
    if name == "wishart":
        Gauss.configure(problem, options)  # refuses a matrix that does not fit
    solver = PrintedWishart() if name == "wishart" else make_solver(name, problem, options, "pca")
    kind = type(solver).__name__
    if kind not in _FORMULAS:
        raise InvalidInputError(f"Expected a solver with a published formula, got {kind!r}.")
    return _FORMULAS[kind](solver, problem, options, budget)


def _spca(solver: Spca, problem: PcaProblem, options: Options, budget: Ask) -> Published:
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
    noise = formulas.lssgd(budget.epsilon, budget.delta, population=n, steps=steps, batch_size=batch)
    said = "DP-SPCA: lambda1^2 = 20 T a G^2 / (n^2 eps mu)"
    return solver, paper_noise(problem.relation, said, batch=noise)


def _vrpca(solver: Vrpca, problem: PcaProblem, options: Options, budget: Ask) -> Published:
    n = problem.population
    epochs = 1 if options.max_iter is None else options.max_iter
    step = 1 / n if options.step_size is None else options.step_size
    printed = PrintedVrpca.of(solver, columns=problem.components, epochs=epochs, inner=n, step=step)
    noise = formulas.vrpca(budget.epsilon, budget.delta, population=n, steps=n, epochs=epochs)
    said = "DP-VRPCA: lambda2^2 = G^2 T m ln(1/delta) / (n^2 eps^2)"
    return printed, PaperNoise({"step": noise}, said, (OneRecordOverSnapshot.printed,))


def _power(solver: Power, problem: PcaProblem, options: Options, budget: Ask) -> Published:
    log = math.log(1 / budget.delta)
    entry = math.sqrt(4 * solver.columns * solver.steps * log) / budget.epsilon
    # ||V||_max >= 1 / sqrt(d) for unit columns, so this is the least noise a record can meet.
    noise = entry / math.sqrt(problem.features)
    said = "PPI: s = ||V||_max sqrt(4 p T ln(1/delta)) / eps, which protects one entry"
    printed = EntryLevelPower(solver.columns, solver.steps, momentum=0.0)
    multipliers = {"product": noise / _quadratic(problem.relation)}
    return printed, PaperNoise(multipliers, said, (EntryLevelProduct.printed,))


def _quadratic(relation: Relation) -> float:
    """Return how many contributions the sensitivity of a Gram matrix is."""
    return math.sqrt(2.0) if relation is Relation.REPLACE_ONE else 1.0


def _on_matrix(
    name: str, noise: Callable[[Ask, int], float], said: str, *printed: str
) -> Callable[..., Published]:
    """Return a formula for noise on a matrix, in contributions of a record."""

    def formula(solver: Any, problem: PcaProblem, options: Options, budget: Ask) -> Published:
        found = noise(budget, problem.features) / _quadratic(problem.relation)
        return solver, PaperNoise({name: found}, said, printed)

    return formula


_GAUSS = _on_matrix(
    "triangle",
    lambda budget, d: math.sqrt(2 * math.log(1.25 / budget.delta)) / budget.epsilon,
    "Analyze-Gauss: s = sqrt(2 ln(1.25/delta)) / eps for rows of norm at most 1",
)
_FORMULAS: dict[str, Callable[..., Published]] = {
    "Spca": _spca,
    "Vrpca": _vrpca,
    "Power": _power,
    "ModSulq": _on_matrix(
        "triangle",
        lambda budget, d: formulas.mod_sulq(budget.epsilon, budget.delta, features=d),
        "MOD-SULQ: beta = (d+1)/(n eps) sqrt(2 ln((d^2+d)/(delta sqrt(2 pi)))) + 1/(n sqrt(eps))",
    ),
    "Gauss": lambda solver, *task: _GAUSS(ModSulq(), *task),  # independent noise on the triangle, as printed
    "PrintedWishart": _on_matrix(
        "gram",
        lambda budget, d: 1.5 / budget.epsilon,
        "Wishart: c = 3 / (2 n eps), d + 1 degrees of freedom",
        WishartNotPrivate.printed,
    ),
}
