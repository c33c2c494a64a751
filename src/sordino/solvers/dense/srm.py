"""DP-SRM: stochastic recursive momentum for nonconvex problems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import Curator, Full, Plan, Poisson, Release, Sampling, public_generator
from sordino.kernel.arrays import Floats
from sordino.kernel.sampling import FixedSize
from sordino.problems.glm import GlmGradient
from sordino.problems.problem import Problem
from sordino.problems.recursive import RecursiveGradient
from sordino.solvers.base import Options, among, count, positive
from sordino.solvers.capabilities import BATCHES, Capabilities
from sordino.solvers.dense.column_smoothing import checked_strength, smoothed
from sordino.solvers.dense.sgd import epochs_of
from sordino.solvers.pace import bearable

EPOCHS = 4
SHARE = 100  # a mini-batch is this part of the records
GAMMA = 0.15
LATE = 0.7  # the average is over the iterates after this share of the steps
# Of the default step: the margin noise of the last iterate; how far the noise of v may feed back into the
# bound on its own next difference; and how many times one over the curvature it may be.
MARGIN_NOISE, FEEDBACK, LONGEST = 4.0, 0.2, 10.0
RULES = ("constant", "adaptive")
OUTPUTS = ("average", "last", "random")


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
        options=(
            "difference_clip",
            "epochs",
            "first_batch",
            "first_noise",
            "gamma",
            "output",
            "shrinking_bound",
            "smoothing",
            "step_rule",
        ),
        dense=True,
        persons=True,
        secure_noise=True,
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
    def configured(cls, problem: Problem, options: Options) -> Srm:
        """Fill what the user left open from public facts."""
        extra = options.chosen(
            epochs=EPOCHS,
            gamma=GAMMA,
            difference_clip=None,
            first_batch=None,
            first_noise=1.0,
            shrinking_bound=True,
            step_rule="constant",
            output="average",
            smoothing=0.0,
        )
        clip, wanted = options.clip(problem), extra["difference_clip"]
        shrinking = among("shrinking_bound", extra["shrinking_bound"], (True, False))
        return cls(
            _drawn(epochs_of(extra["epochs"], problem, options, SHARE), extra["output"], options),
            options.step_size,
            clip,
            2 * clip if wanted is None else positive("difference_clip", wanted, 2 * clip),
            positive("gamma", extra["gamma"], 1.0),
            problem.row_bound if shrinking else np.inf,
            _first(extra["first_batch"], problem, options),
            options.minibatches(problem, SHARE),
            among("step_rule", extra["step_rule"], RULES),
            checked_strength(extra["smoothing"]),
            positive("first_noise", extra["first_noise"]),
            extra["output"] == "average",
        )

    def plan(self, problem: Problem) -> Plan:
        """Declare the first gradient and the recursions."""
        first = GlmGradient(problem.loss, self.gradient_clip)
        releases = {"first": Release(first, problem.gaussian(self.first_noise), self.first)}
        if self.steps > 1:
            query = RecursiveGradient(
                problem.loss, self.gradient_clip, self.difference_clip, self.gamma, self.row_bound
            )
            releases["recursion"] = Release(query, problem.gaussian(), self.minibatches, self.steps - 1)
        return problem.planned(**releases)

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        """Yield the iterates."""
        w = previous = mean = np.zeros(problem.shape)
        step = self.step_for(curator, problem) if self.step is None else self.step
        v = curator.release("first", w)
        for t in range(self.steps):
            if t > 0:
                v = (1 - self.gamma) * v + curator.release("recursion", (w, previous))
            d = smoothed(v + problem.penalty_gradient(w), self.smoothing, problem.n_intercepts)
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


def _drawn(steps: int, output: str, options: Options) -> int:
    """Return how many steps are taken: all, or up to an iterate drawn before anything is planned."""
    if among("output", output, OUTPUTS) != "random":
        return steps
    public = public_generator(options.random_state)
    return int(public.integers(1, steps + 1))


def _first(wanted: Any, problem: Problem, options: Options) -> Sampling:
    """Return how the first batch is drawn: four times a mini-batch if the user left it open."""
    n = problem.population
    size = min(n, 4 * options.batch(problem, SHARE)) if wanted is None else count("first_batch", wanted, n)
    if size >= n:
        return Full()
    return FixedSize(size) if options.sampling == "fixed" else Poisson(size / n)
