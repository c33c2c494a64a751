"""Dense linear models: SGD, gradient descent, RRPSGD, Adam, accelerated descent, DP-SRM."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from sordino.kernel import (
    Curator,
    FixedSize,
    Full,
    GumbelTopK,
    Plan,
    Poisson,
    Release,
    Sampling,
    public_generator,
)
from sordino.kernel.arrays import Floats
from sordino.problems.problem import Problem
from sordino.problems.queries import GlmGradient, RecursiveGradient, StepSizeScores
from sordino.solvers import updates
from sordino.solvers.base import (
    BATCHES,
    CURVED,
    FLAGS,
    SMOOTHING,
    STEPS,
    Capabilities,
    Option,
    Options,
    noise_std,
)
from sordino.solvers.steps import (
    DENSE,
    MOMENTUM_OPTIONS,
    GradientPlan,
    Momentum,
    Pace,
    bearable,
    dense,
    in_units,
)
from sordino.solvers.updates import recursive_direction, smooth_vector
from sordino.values import check_range, check_whole

# --------------------------------------------------------------------- DP-SGD and DP-LSSGD for dense models

EPOCHS = 20
_DESCENT = {
    **MOMENTUM_OPTIONS,
    "output": Option("last", ("last", "average")),
    "schedule": Option("constant", ("constant", "inverse", "inverse-root")),
    "smoothing": SMOOTHING,
}


@dataclass(frozen=True)
class Sgd(GradientPlan):
    r"""``w <- w - step_t A^{-1}(batch gradient / expected batch size + noise + penalty'(w))``.

    ``A = I - smoothing * Laplacian`` is the identity without smoothing. ``schedule`` divides the step of
    number t by 1, t or sqrt t; the output is the last iterate or the average of all.

    **Privacy.** ``steps`` Poisson-sampled Gaussian releases of clipped sums. The penalty, momentum,
    smoothing and averaging are post-processing.

    References: Wang, dissertation, chapter 5 (DP-LSSGD). Departures: Poisson batches divided by the
    expected size; the penalty is outside the clip; each output is smoothed apart, without its intercept.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="mini-batch gradients",
        reads=BATCHES,
        options={**_DESCENT, "epochs": Option(EPOCHS, 1)},
        dense=True,
        persons=True,
        paper="DP-SGD",
    )

    steps: int
    step: float | None
    clip: float
    sampling: Sampling
    momentum: Momentum = field(default_factory=Momentum)
    smoothing: float = 0.0
    schedule: str = "constant"
    output: str = "last"

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> Self:
        own = options.read(cls.capabilities)
        return cls._assemble(problem, options, own, options.passes(own["epochs"], problem))

    @classmethod
    def _assemble(cls, problem: Problem, options: Options, own: dict[str, Any], steps: int) -> Self:
        start = (steps, options.step_size, options.clip(problem), options.minibatches(problem))
        momentum = Momentum(own["momentum"], own["momentum_weight"])
        return cls(*start, momentum, own["smoothing"], own["schedule"], own["output"])

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        w = previous = mean = np.zeros(problem.shape)
        pace = self._pace(curator, problem) if self.step is None else None
        for t in range(1, self.steps + 1):
            asked, start = self.momentum.ask_point(w, previous), self.momentum.step_point(w, previous)
            g = curator.release("gradient", asked) + problem.penalty_gradient(dense(asked))
            h = self._step(t, pace.first if pace else self.step)
            h = pace.after(dense(asked), g) if pace and isinstance(self.sampling, Full) else h
            w, previous = start - h * smooth_vector(g, self.smoothing, problem.n_intercepts), w
            mean = mean + (w - mean) / t
            yield w if self.output == "last" else mean

    def _pace(self, curator: Curator, problem: Problem) -> Pace:
        return Pace.of(curator, "gradient", problem, DENSE, self.momentum.weight)

    def _step(self, t: int, step: float | None) -> float:
        assert step is not None
        return step / {"constant": 1.0, "inverse": float(t), "inverse-root": t**0.5}[self.schedule]


# ----------------------------------------------------------------------------------- DP-GD for dense models

GD_STEPS = 50


class Gd(Sgd):
    r"""``w <- w - step A^{-1}(mean clipped gradient + noise + penalty'(w))`` over all records.

    A step size that is left open follows :class:`sordino.solvers.steps.Pace`, with Nesterov's momentum.

    **Privacy.** ``steps`` Gaussian releases of a clipped sum: exactly one Gaussian release of the same sum
    with ``sqrt(steps)`` less noise.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="the gradient on all records",
        reads=STEPS,
        options=_DESCENT,
        dense=True,
        persons=True,
        paper="DP-GD",
    )

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> Self:
        paced = options.step_size is None and "schedule" not in options.extra
        own = options.read(cls.capabilities, momentum="nesterov" if paced else "none")
        whole = replace(options, batch_size=problem.population)
        return cls._assemble(problem, whole, own, options.steps(GD_STEPS))


# ----------------------------------------------- RRPSGD: stochastic gradients with a random number of steps

RRP_EPOCHS = 10


class RrpSgd(Sgd):
    r"""DP-SGD that stops after R steps, R uniform in {1, ..., T}: the stationary point of nonconvex theory.

    **Privacy.** R is a public number, drawn before the plan is made: for each R the run is private, and so
    is the mixture. Only the R steps that are taken are planned and paid for.

    References: Zhang et al. 2017. Departures: Poisson mini-batches in place of single records; calibrated on
    the drawn R and not on T.
    """

    capabilities: ClassVar[Capabilities] = replace(
        Sgd.capabilities,
        options={**_DESCENT, "epochs": Option(RRP_EPOCHS, 1)},
        paper="RRPSGD, stopped at a random step",
    )

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> Self:
        own = options.read(cls.capabilities)
        most = options.passes(own["epochs"], problem)
        public = public_generator(options.random_state)
        return cls._assemble(problem, options, own, int(public.integers(1, most + 1)))


# ------------------------------------------------------------------- DP-Adam and DP-LSAdam for dense models

STEP = 0.03  # of a coefficient that moves a margin by its unit
TINY = 1e-8  # of the clip norm


@dataclass(frozen=True)
class Adam(GradientPlan):
    r"""``w <- w - step m / (sqrt s + 1e-8 clip)`` with running means of noisy gradients and of their squares.

    ``subtract_noise`` takes the known variance of the noise out of ``s``: without it s is mostly noise, and
    Adam is momentum with a constant step. Smoothing acts on the gradient, before the means.

    **Privacy.** ``steps`` Poisson-sampled Gaussian releases; the rest is post-processing of them and of the
    public noise level.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="mini-batch gradients",
        reads=BATCHES,
        options={
            "beta1": Option(0.9, "(0, 1)"),
            "beta2": Option(0.999, "(0, 1)"),
            "epochs": Option(EPOCHS, 1),
            "smoothing": SMOOTHING,
            "subtract_noise": Option(False, FLAGS),
        },
        dense=True,
        persons=True,
        paper="DP-Adam",
    )

    steps: int
    step: float
    clip: float
    sampling: Sampling
    smoothing: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    subtract_noise: bool = False

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> Adam:
        own = options.read(cls.capabilities)
        return cls(
            options.passes(own.pop("epochs"), problem),
            STEP * in_units(problem) if options.step_size is None else options.step_size,
            options.clip(problem),
            options.minibatches(problem),
            **own,
        )

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        w, rule = np.zeros(problem.shape), updates.Adam(self.beta1, self.beta2, TINY * self.clip)
        slots, known = rule.start(w), self._noise_variance(curator, problem)
        for _ in range(self.steps):
            g = curator.release("gradient", w) + problem.penalty_gradient(w)
            direction, slots = rule.step(smooth_vector(g, self.smoothing, problem.n_intercepts), slots, known)
            w = w - self.step * direction
            yield w

    def _noise_variance(self, curator: Curator, problem: Problem) -> Floats | None:
        """Return the variance that the noise adds to each entry of a smoothed mean gradient."""
        if not self.subtract_noise:
            return None
        std = noise_std(curator, "gradient") / self.sampling.expected(problem.population)
        # the entries of A^{-1} N(0, I) have the variance sum_j (A^{-1})_0j^2
        row = np.zeros(problem.columns)
        row[0] = 1.0
        smooth = float(np.square(smooth_vector(row, self.smoothing, problem.n_intercepts)).sum())
        shares = np.full(problem.columns, smooth)
        shares[problem.features :] = 1.0
        return np.broadcast_to(std**2 * shares, problem.shape)


# -------------- DP-AGD: noisy gradient descent that spends more on a gradient only where less does not help

# So many gradients, fewer where so many records and units of epsilon for each are not there.
GRADIENTS, FEWEST, RECORDS = 60, 20, 20.0
SEARCH_SHARE = 0.1
STEP_COUNT = 8  # halvings from 32 over the largest curvature: shorter ones win by noise only


@dataclass(frozen=True)
class Agd:
    r"""Noisy gradients with a private line search; where no step helps, the gradient is asked again.

    A portion is one noisy gradient of fixed price. At a point, portions are averaged; a noisy minimum over
    ``{0, step sizes}`` of the clipped objective picks the move. Where 0 wins, the number of portions per
    point grows by ``1 + growth``, the missing ones are asked at the same point and averaged in (the price of
    the difference), and the search is repeated. The run ends when portions or searches are spent.

    **Privacy.** This is a zCDP filter in whole portions: ``portions`` Gaussian releases and ``searches``
    Gumbel selections of fixed prices are planned and paid for. Where they are asked depends on released
    values only, which adaptive composition allows; what is left over at the end stays spent.

    References: Lee and Kifer 2018. Departures: budgets rise in whole portions; Gumbel noise and, under
    add-remove, its monotone price for the search.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="gradients in portions, and private line searches",
        reads=STEPS,
        options={
            "growth": Option(0.5, "(0, inf)"),
            "objective_clip": Option(None, "(0, inf)"),
            "search_share": Option(SEARCH_SHARE, "(0, 0.9]"),
            "searches": Option(None, 1),
            "smoothing": SMOOTHING,
            "step_count": Option(STEP_COUNT, 1),
        },
        dense=True,
        paper="DP-AGD",
        losses=CURVED,
    )

    portions: int
    searches: int
    steps: tuple[float, ...]
    clip: float
    objective_clip: float
    growth: float = 0.5
    search_share: float = SEARCH_SHARE
    smoothing: float = 0.0

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> Agd:
        told = int(min(problem.population * problem.epsilon / RECORDS, GRADIENTS))
        portions = options.steps(max(told, FEWEST))
        own = options.read(cls.capabilities)
        largest = 32 * options.step(problem)
        return cls(
            portions,
            own["searches"] or max(1, 2 * portions // 3),
            tuple(largest * 2.0**-i for i in range(own["step_count"])),
            options.clip(problem),
            own["objective_clip"] or _typical_loss(problem),
            own["growth"],
            own["search_share"],
            own["smoothing"],
        )

    def plan(self, problem: Problem) -> Plan:
        gradient = GlmGradient(problem.loss, self.clip)
        scores = StepSizeScores(
            problem.loss,
            self.objective_clip,
            (0.0, *self.steps),
            problem.penalties,
            problem.population,
            problem.features,
        )
        search = GumbelTopK(monotone=True)
        # a release of relative size r and price rho/r^2 at multiplier 1 gets the share times * rho / r^2
        spread = math.sqrt(self.portions * 0.5 / (1 - self.search_share))
        finest = math.sqrt(self.searches * search.rho() / self.search_share)
        return problem.planned(
            gradient=Release(gradient, problem.gaussian(spread), Full(), self.portions),
            search=Release(
                scores, GumbelTopK(monotone=True, relative=finest), Full(), self.searches, mean=False
            ),
        )

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        """Yield the iterates; a search that finds no better point yields the same one again."""
        w, level, left = np.zeros(problem.shape), 1.0, self.portions
        total, asked = np.zeros(problem.shape), 0
        for _ in range(self.searches):
            missing = min(math.ceil(level) - asked, left)
            if missing <= 0 and left == 0:
                return
            for _ in range(missing):
                total, asked = total + curator.release("gradient", w), asked + 1
            left -= missing
            d = smooth_vector(
                total / asked + problem.penalty_gradient(w), self.smoothing, problem.n_intercepts
            )
            best = int(curator.release("search", (w, d))[0])
            if best == 0:
                level = math.ceil(level) * (1 + self.growth)
            else:
                w = w - (0.0, *self.steps)[best] * d
                total, asked = np.zeros(problem.shape), 0
            yield w


def _typical_loss(problem: Problem) -> float:
    """Return five times the largest loss of the model that knows nothing: a public bound to clip losses at.

    A lower clip would forget the records of a rare class, whose losses are large at first.
    """
    shape = (1,) if problem.outputs == 1 else (1, problem.outputs)
    target = np.array([problem.target_bound if problem.loss.targets == "numbers" else 1.0])
    return max(5.0 * float(problem.loss.value(np.zeros(shape), target)[0]), 1e-12)


# --------------------------------------------- DP-SRM: stochastic recursive momentum for nonconvex problems

SRM_EPOCHS = 4
SHARE = 100  # a mini-batch is this part of the records
GAMMA = 0.15
LATE = 0.7  # the average is over the iterates after this share of the steps
# Of the default step: the margin noise of the last iterate; how far the noise of v may feed back into the
# bound on its own next difference; and how many times one over the curvature it may be.
MARGIN_NOISE, FEEDBACK, LONGEST = 4.0, 0.2, 10.0


@dataclass(frozen=True)
class Srm:
    r"""Steps along a recursive estimate v of the gradient: a little new gradient, the rest its change.

    ``v_0`` is a noisy batch gradient; then ``w_{t+1} = w_t - step_t (v_t + penalty'(w_t))`` and
    ``v_{t+1} = (1 - gamma) v_t + mean_batch[gamma clip_C1(grad(w_{t+1})) + (1 - gamma)
    clip_C2(grad(w_{t+1}) - grad(w_t))] + noise``. The rule ``"adaptive"`` cuts a step to the length
    ``C2 / curvature``, where the difference is never clipped: ``min(C2 / (curvature ||v||), step)``. A step
    of None is chosen from the planned noise: see :meth:`step_for`. The output is the last iterate, a random
    one, or the average of the last ones, which takes out most of the noise of the last one.

    **Privacy.** One sampled Gaussian release of the first gradient, one of each recursion. A record adds at
    most ``Cbar = gamma C1 + (1 - gamma) C2,t`` to it; ``C2,t = min(C2, curvature R^2 ||w_{t+1} - w_t||)``
    is a function of released points. ``"random"`` output draws its index before the plan is made, from a
    public generator; later steps are neither taken nor paid for.

    References: Wang, dissertation, chapter 4 (DP-SRM). Departures: Cbar as in its section 4.5 (4.7 swaps
    the clips); Poisson batches divided by expected sizes; the penalty is outside v and the clips.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="a first gradient, then recursive corrections",
        reads=BATCHES,
        options={
            "difference_clip": Option(),
            "epochs": Option(SRM_EPOCHS, 1),
            "first_batch": Option(),
            "first_noise": Option(1.0, "(0, inf)"),
            "gamma": Option(GAMMA, "(0, 1]"),
            "output": Option("average", ("average", "last", "random")),
            "shrinking_bound": Option(True, FLAGS),
            "smoothing": SMOOTHING,
            "step_rule": Option("constant", ("constant", "adaptive")),
        },
        dense=True,
        persons=True,
        paper="DP-SRM",
    )

    steps: int
    step: float | None
    gradient_clip: float
    difference_clip: float
    gamma: float
    row_bound: float
    first: Sampling
    minibatches: Sampling
    rule: str = "constant"
    smoothing: float = 0.0
    first_noise: float = 1.0
    average: bool = False

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> Srm:
        own = options.read(cls.capabilities)
        clip, wanted = options.clip(problem), own["difference_clip"]
        steps = options.passes(own["epochs"], problem, SHARE)
        if own["output"] == "random":  # the iterate is drawn before anything is planned
            public = public_generator(options.random_state)
            steps = int(public.integers(1, steps + 1))
        return cls(
            steps,
            options.step_size,
            clip,
            2 * clip if wanted is None else check_range("difference_clip", wanted, f"(0, {2 * clip}]"),
            own["gamma"],
            problem.row_bound if own["shrinking_bound"] else np.inf,
            _first(own["first_batch"], problem, options),
            options.minibatches(problem, SHARE),
            own["step_rule"],
            own["smoothing"],
            own["first_noise"],
            own["output"] == "average",
        )

    def plan(self, problem: Problem) -> Plan:
        first = GlmGradient(problem.loss, self.gradient_clip)
        releases = {"first": Release(first, problem.gaussian(self.first_noise), self.first)}
        if self.steps > 1:
            query = RecursiveGradient(
                problem.loss, self.gradient_clip, self.difference_clip, self.gamma, self.row_bound
            )
            releases["recursion"] = Release(query, problem.gaussian(), self.minibatches, self.steps - 1)
        return problem.planned(**releases)

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        w = previous = mean = np.zeros(problem.shape)
        step = self.step_for(curator, problem) if self.step is None else self.step
        v = curator.release("first", w)
        for t in range(self.steps):
            if t > 0:
                v = recursive_direction(v, curator.release("recursion", (w, previous)), self.gamma)
            d = smooth_vector(v + problem.penalty_gradient(w), self.smoothing, problem.n_intercepts)
            w, previous = w - self._cut(step, d, problem) * d, w
            late = t - int(LATE * self.steps)
            mean = w if late <= 0 else mean + (w - mean) / (late + 1)
            yield mean if self.average else w

    def _cut(self, step: float, direction: Floats, problem: Problem) -> float:
        length = float(np.linalg.norm(direction))
        if self.rule == "constant" or length == 0:
            return step
        return min(step, self.difference_clip / (_curvature(problem) * length))

    def step_for(self, curator: Curator, problem: Problem) -> float:
        r"""Return the largest step that the planned noise allows: a function of public numbers.

        With noise of multiplier z and batches b, ``steps`` steps h put noise of about
        ``h C1 z sqrt(steps) R / b`` into a margin. And as the difference bound grows with the length of v,
        which holds noise of norm ``Cbar z sqrt(d / (2 gamma)) / b``, v would feed its own noise beyond
        ``h curvature (1 - gamma) z sqrt(d) / (b sqrt(2 gamma)) = 1``.
        """
        longest = LONGEST if np.isfinite(problem.loss.lipschitz) else 1.0
        limit = longest / (_curvature(problem) + problem.penalty_curvature)
        release = curator.plan.releases.get("recursion")
        z = 0.0 if release is None else float(release.mechanism.multiplier or 0.0)
        if z == 0:
            return limit / longest
        z *= curator.plan.relation.contributions / self.minibatches.expected(problem.population)
        margin = MARGIN_NOISE * bearable(problem)
        margin /= self.gradient_clip * z * np.sqrt(self.steps) * problem.row_bound
        d = float(np.prod(problem.shape))
        feedback = (1 - self.gamma) * _curvature(problem) * z * np.sqrt(d / (2 * self.gamma))
        return float(min(limit, margin, FEEDBACK / max(feedback, 1e-300)))


def _curvature(problem: Problem) -> float:
    """Return the curvature of a record's loss."""
    return problem.curvature * problem.row_bound**2


def _first(wanted: Any, problem: Problem, options: Options) -> Sampling:
    """Return how the first batch is drawn: four times a mini-batch if the user left it open."""
    n = problem.population
    size = (
        min(n, 4 * options.batch(problem, SHARE)) if wanted is None else check_whole("first_batch", wanted, n)
    )
    if size >= n:
        return Full()
    return FixedSize(size) if options.sampling == "fixed" else Poisson(size / n)
