"""Sparse linear models by hard thresholding: DP-IGHT, DP-SGD-HT, DP-SCSG-HT and DP-SVRG-HT."""

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
    Plan,
    Poisson,
    Release,
    Sampling,
    SparseVector,
    public_generator,
)
from sordino.kernel.query import Point
from sordino.problems.problem import Problem
from sordino.problems.queries import GlmDifference, GlmGradient
from sordino.solvers.base import BATCHES, FLAGS, STEPS, Capabilities, Option, Options
from sordino.solvers.steps import (
    DENSE,
    LOOKS,
    MOMENTUM,
    MOMENTUM_OPTIONS,
    SATURATION,
    SPARSE,
    GradientPlan,
    Momentum,
    Pace,
    SharedPace,
    as_sparse,
    dense,
    hard_threshold,
    starting_point,
    vector_sum,
)
from sordino.values import check_range, check_whole

# --------------------------------------------- DP-IGHT: iterative gradient hard thresholding on all records

LATE = 0.5  # thresholding starts after this share of the steps
_AFTER = Option(0.0, "[0, 1)", "It is a share of the steps.")


def ridge_pull(problem: Problem, w: Point) -> Point:
    """Return the gradient of the ridge; the intercept is not penalised."""
    if not isinstance(w, SparseVector):
        return problem.penalty_gradient(w)
    values = np.where(w.indices < problem.features, problem.ridge * w.values, 0.0)
    return replace(w, values=values)


@dataclass(frozen=True)
class Ight(GradientPlan):
    r"""``w <- H_k(w - step (mean clipped gradient + noise + ridge w))``, ``steps`` times.

    A step size that is left open follows :class:`sordino.solvers.steps.Pace`, with Nesterov's momentum, and
    thresholding starts late: the noise of early steps would choose the support. Two of the steps of a
    logistic regression with an intercept find the direction that rows share, see
    :class:`~sordino.solvers.steps.SharedPace`.

    **Privacy.** ``steps`` Gaussian releases of a clipped sum over all records; thresholding, the ridge term
    and momentum are post-processing. Also known as DP-GD-HT.

    References: Wang and Gu 2019 (DP-IGHT). Departures: the gradient is clipped, so the bound holds for
    every data set and not only with high probability; momentum on released iterates.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="the gradient on all records",
        reads=("n_nonzero_coefs", *STEPS),
        options={**MOMENTUM_OPTIONS, "threshold_after": _AFTER},
        sparse=True,
        dense=True,
        persons=True,
        paper="DP-IGHT = DP-GD-HT",
        page="ight",
    )

    sparsity: int | None
    steps: int
    step: float | None
    clip: float
    sampling: Sampling = field(default_factory=Full)
    momentum: Momentum = field(default_factory=Momentum)
    threshold_after: float = 0.0
    paced: bool = False

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> Self:
        paced = options.step_size is None
        usual = {"momentum": "nesterov", "threshold_after": LATE} if paced else {}
        own = options.read(cls.capabilities, **usual)
        return cls._assemble(problem, options, own, (options.steps(50), Full()), paced)

    @classmethod
    def _assemble(
        cls, problem: Problem, options: Options, own: dict[str, Any], run: tuple[int, Sampling], paced: bool
    ) -> Self:
        """Return the solver of so many steps on such batches."""
        momentum, late = Momentum(own["momentum"], own["momentum_weight"]), LATE if paced else 0.0
        start = (options.n_nonzero_coefs, run[0], options.step_size, options.clip(problem), run[1])
        return cls(*start, momentum, own.get("threshold_after", late), paced)

    def run(self, curator: Curator, problem: Problem, name: str = "gradient") -> Iterator[Point]:
        sparse = curator.plan.releases[name].lazy
        w = previous = starting_point(problem.shape, problem.n_intercepts, sparse)
        margin = SPARSE if self.paced and self.sparsity is not None else DENSE
        pace = Pace.of(curator, name, problem, margin, self.momentum.weight)
        looks: set[int] = set()
        if self.paced and SharedPace.fits(problem, self.steps):
            answers = []
            for margin in (SATURATION, -SATURATION):
                answers.append(curator.release(name, SharedPace.beside(dense(w), problem, margin)))
                yield w
            pace = SharedPace.across(pace, curator, name, problem, answers[0] - answers[1])
            looks = {int(share * self.steps) for share in LOOKS}
        t, step = 2 * bool(looks), pace.first if self.step is None else self.step
        while t < self.steps:
            asked, start = self.momentum.ask_point(w, previous), self.momentum.step_point(w, previous)
            g, t = curator.release(name, asked), t + 1
            if isinstance(pace, SharedPace) and t in looks:
                there, t = curator.release(name, SharedPace.beside(dense(asked), problem)), t + 1
                pace.look(g, there, problem)
                yield w
            if problem.penalties:
                g = vector_sum(g, ridge_pull(problem, asked))
            move = pace.move(dense(asked), g) if self.paced else step * g
            kept = self.sparsity if t > self.threshold_after * self.steps else None
            w, previous = hard_threshold(vector_sum(start, -1.0 * move), kept, problem.n_intercepts), w
            yield w


# --------------------------------------------------------- DP-SGD-HT: stochastic gradient hard thresholding

EPOCHS = 20
# Without a batch size and a step of the user's: noise is nearly that of as many full steps, for a third of
# the work. Smaller batches save more, but amplification ends where a step has little noise.
PACED_SHARE, PACED_EPOCHS = 3, 17


class SgdHt(Ight):
    r"""``w <- H_k(w - step (batch gradient / expected batch size + noise + ridge w))``.

    With neither a batch size nor a step size, batches hold a third of the records and steps follow
    :class:`sordino.solvers.steps.Pace` as those of :class:`Ight` do. With either, the step is constant
    and on sparse data never touches more columns than the batch and the iterate hold: see
    :mod:`sordino.kernel.lazy`.

    **Privacy.** ``steps`` Poisson-sampled Gaussian releases.

    References: Liang et al. (DP-SGD-HT). Departures: Poisson batches divided by the expected size
    (the realised size is private); the ridge term is outside the clip; momentum on released iterates.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="mini-batch gradients",
        reads=("n_nonzero_coefs", *BATCHES),
        options={**MOMENTUM_OPTIONS, "epochs": Option(EPOCHS, 1)},
        sparse=True,
        dense=True,
        persons=True,
        lazy=True,
        paper="DP-SGD-HT",
        page="sgd-ht",
    )

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> Self:
        paced = options.step_size is None and options.batch_size is None
        share, usual = (PACED_SHARE, {"momentum": "nesterov", "epochs": PACED_EPOCHS}) if paced else (200, {})
        own = options.read(cls.capabilities, **usual)
        steps, batches = options.passes(own["epochs"], problem, share), options.minibatches(problem, share)
        return cls._assemble(problem, options, own, (steps, batches), paced)

    def _lazy(self, problem: Problem) -> bool:
        sparse = self.sparsity is not None and problem.outputs == 1
        return sparse and not problem.secure_noise and not self.paced


# ----------------------- DP-SCSG-HT: hard thresholding with gradients that are corrected against a snapshot

SCSG_STEPS = 50
SHARE = 50  # corrections of small batches are unstable: their noise grows with the distance from the snapshot
# How far the noise of corrections may feed back into their own bound, and how much of it an epoch bears.
FEEDBACK, BEARABLE = 0.5, 0.05


@dataclass(frozen=True)
class ScsgHt:
    r"""Each epoch releases a snapshot gradient ``m`` at ``a`` on a batch B, then steps with corrections.

    ``w <- H_k(w - step (m + correction(w, a) + ridge w))``, where the correction is the mean over a batch b
    of ``clip(grad f_i(w) - grad f_i(a))`` plus noise. ``lengths`` are the numbers of steps of the epochs:
    option II takes ``B / b`` each; option I draws them from the geometric law of that mean.

    **Privacy.** One (Poisson-sampled) Gaussian release per snapshot, one per correction. A record enters a
    correction with both gradients at once, so the clip is on the difference; its bound
    ``min(difference_clip, curvature R^2 ||w - a||)`` depends on released points only, so the noise shrinks
    as the steps do, at the same price.

    References: Liang et al. (DP-SCSG-HT). Departures: Poisson batches divided by expected sizes; lengths
    are drawn before planning from a public generator, truncated at ``20 B / b``, and the noise is
    calibrated for the drawn ones, so that no delta is lost on them; an epoch of length zero releases no
    snapshot; the first correction of an epoch is zero by definition (w = a), so it is not released at all.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="batch snapshots, mini-batch corrections",
        reads=("n_nonzero_coefs", *BATCHES),
        options={
            "difference_clip": Option(),
            "epochs": Option(None, 1),
            "option": Option("II", ("I", "II")),
            "shrinking_bound": Option(True, FLAGS),
            "snapshot_batch": Option(None, 1),
            "snapshot_keep": Option(None, 1),
            "snapshot_noise": Option(1.0, "(0, inf)"),
            "threshold_after": _AFTER,
        },
        sparse=True,
        dense=True,
        persons=True,
        lazy=True,
        paper="DP-SCSG-HT",
        page="scsg-ht",
    )

    sparsity: int | None
    step: float | None
    clip: float
    difference_clip: float
    row_bound: float
    snapshots: Sampling
    minibatches: Sampling
    lengths: tuple[int, ...]
    snapshot_keep: int | None = None
    snapshot_noise: float = 1.0
    threshold_after: float = 0.0
    drawn: bool = False  # option I: the lengths were drawn

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> ScsgHt:
        small, n = options.batch(problem, SHARE), problem.population
        wanted = options.extra.get("snapshot_batch")
        big = max(small, n // 5) if wanted is None else check_whole("snapshot_batch", wanted, n)
        return cls._assemble(problem, options, SHARE, big)

    @classmethod
    def _assemble(cls, problem: Problem, options: Options, part: int, big: int) -> Self:
        """Return the solver with snapshots on ``big`` records and corrections on one of ``part``."""
        n, clip = problem.population, options.clip(problem)
        own = options.read(cls.capabilities, threshold_after=LATE if options.step_size is None else 0.0)
        most, keep, bound = 2 * clip, own["snapshot_keep"], own["difference_clip"]
        batches = FixedSize(big) if options.sampling == "fixed" else Poisson(big / n)
        return cls(
            sparsity=options.n_nonzero_coefs,
            step=options.step_size,
            clip=clip,
            difference_clip=most if bound is None else check_range("difference_clip", bound, f"(0, {most}]"),
            # Without shrinking the paper's bound is left.
            row_bound=problem.row_bound if own["shrinking_bound"] else math.inf,
            snapshots=Full() if big >= n else batches,
            minibatches=options.minibatches(problem, part),
            lengths=_lengths(own, options, big / options.batch(problem, part), problem),
            snapshot_keep=keep,
            snapshot_noise=own["snapshot_noise"],
            threshold_after=0.0 if keep is not None else own["threshold_after"],
            drawn=own["option"] == "I",
        )

    def plan(self, problem: Problem) -> Plan:
        lazy = self._lazy(problem)
        epochs = sum(length > 0 for length in self.lengths)
        corrections = sum(self.lengths) - epochs
        gradient = GlmGradient(problem.loss, self.clip)
        noise = problem.gaussian(self.snapshot_noise)
        releases = {"snapshot": Release(gradient, noise, self.snapshots, epochs, lazy=lazy)}
        if corrections:
            difference = GlmDifference(problem.loss, self.difference_clip / 2, self.row_bound)
            releases["correction"] = Release(
                difference, problem.gaussian(), self.minibatches, corrections, lazy=lazy
            )
        return problem.planned(**releases)

    def run(self, curator: Curator, problem: Problem) -> Iterator[Point]:
        if self.step is None and self.snapshot_keep is None and set(self.lengths) == {1}:
            # Without a correction each snapshot is a gradient like any other, and paced like one.
            start = (self.sparsity, len(self.lengths), None, self.clip, self.snapshots)
            plain = Ight(*start, Momentum("nesterov"), self.threshold_after, paced=True)
            yield from plain.run(curator, problem, "snapshot")
            return
        w = starting_point(problem.shape, problem.n_intercepts, sparse=self._lazy(problem))
        pace = self._pace(curator, problem) if self.step is None else None
        momentum = Momentum("nesterov") if pace is not None and not self._lazy(problem) else Momentum()
        previous, dense_steps, done = w, self.threshold_after * sum(self.lengths), 0
        for length in self.lengths:
            if length == 0:  # nothing would use the snapshot, so it is not paid for
                continue
            anchor = asked = momentum.ask_point(w, previous)
            m = self._snapshot(curator.release("snapshot", anchor), problem)
            for t in range(length):
                asked = momentum.ask_point(w, previous)
                v = m if t == 0 else vector_sum(curator.release("correction", (asked, anchor)), m)
                v = vector_sum(v, ridge_pull(problem, asked)) if problem.ridge else v
                h = self._step(pace, asked, v)
                done += 1
                kept = self.sparsity if done > dense_steps else None
                w, previous = hard_threshold(vector_sum(asked, -h * v), kept, problem.n_intercepts), w
                yield w

    def _step(self, pace: Pace | None, asked: Point, v: Any) -> float:
        if pace is None:
            assert self.step is not None
            return self.step
        return pace.largest if isinstance(asked, SparseVector) else pace.after(dense(asked), dense(v))

    def _pace(self, curator: Curator, problem: Problem) -> Pace:
        """Return the pace that the planned noise allows.

        The noise of a snapshot is in every step of its epoch and adds up in the margins; that of a correction
        grows with the distance from the snapshot, and must not carry itself away.
        """
        used = sum(self.lengths) / sum(length > 0 for length in self.lengths)
        noise, lazy = (DENSE if self.sparsity is None else SPARSE), self._lazy(problem)
        pace = Pace.of(curator, "snapshot", problem, noise, 0.0 if lazy else MOMENTUM, used)
        release = curator.plan.releases.get("correction")
        z = 0.0 if release is None else float(release.mechanism.multiplier or 0.0)
        z *= curator.plan.relation.contributions / self.minibatches.expected(problem.population)
        curvature = problem.curvature * problem.row_bound**2
        feedback = curvature * z * math.sqrt(math.prod(problem.shape) * used)
        largest = min(pace.largest, FEEDBACK / feedback) if feedback else pace.largest
        largest = min(largest, pace.first) if lazy else largest
        return replace(pace, first=min(pace.first, largest), largest=largest)

    def _snapshot(self, answer: Any, problem: Problem) -> Any:
        # A dense snapshot stays in every step of its epoch: undrawn coordinates would not be i.i.d. from
        # the second step on. A sparse one is part of the touched set, so the lazy step stays exact.
        if self.snapshot_keep is None:
            return answer
        kept = hard_threshold(answer, self.snapshot_keep, problem.n_intercepts)
        return as_sparse(kept, problem.n_intercepts) if self._lazy(problem) else kept

    def _lazy(self, problem: Problem) -> bool:
        sparse = self.sparsity is not None and self.snapshot_keep is not None
        return sparse and problem.outputs == 1 and not problem.secure_noise


def _lengths(own: dict[str, Any], options: Options, mean: float, problem: Problem) -> tuple[int, ...]:
    """Return the lengths of all epochs, cut where ``max_iter`` steps are reached."""
    epochs = own["epochs"]
    if epochs is None:
        # A correction has noise of norm z sqrt(d) / b times the distance from the snapshot, and z is at least
        # about sqrt(steps) (b / n) 4 / epsilon: with many columns for the records there is no room for one.
        noise = 4 * math.sqrt(SCSG_STEPS * math.prod(problem.shape)) / (problem.population * problem.epsilon)
        mean = mean if mean * noise <= BEARABLE else 1.0
        epochs = math.ceil(SCSG_STEPS / mean)
    longest = math.ceil(20 * mean)
    if own["option"] == "II":
        drawn = [max(1, round(mean))] * epochs
    else:
        public = public_generator(options.random_state)
        # P(N = m) = (1 - g) g^m with g = B / (B + b); the generator counts from one.
        drawn = [min(int(m) - 1, longest) for m in public.geometric(1.0 / (1.0 + mean), size=epochs)]
    left = sum(drawn) if options.max_iter is None else options.max_iter
    lengths = []
    for length in drawn:
        lengths.append(min(length, left))
        left -= lengths[-1]
    return tuple(lengths) if sum(lengths) else (*lengths[:-1], 1)


# --------------------------------------------------- DP-SVRG-HT: DP-SCSG-HT whose snapshots see all records

SVRG_SHARE = 10


@dataclass(frozen=True)
class SvrgHt(ScsgHt):
    r"""Snapshots on all records, ``n / b`` corrected steps between them.

    **Privacy.** One Gaussian release per snapshot (no sampling, so no amplification), one Poisson-sampled
    release per correction; see :class:`ScsgHt`.

    References: Liang et al. (DP-SVRG-HT). Departure: their subsampling lemma needs a rate below .147 and
    does not apply to full snapshots; we account for them as they are.
    """

    capabilities: ClassVar[Capabilities] = replace(
        ScsgHt.capabilities,
        asks="full snapshots, mini-batch corrections",
        options={k: v for k, v in ScsgHt.capabilities.options.items() if k != "snapshot_batch"},
        paper="DP-SVRG-HT",
        page="svrg-ht",
    )

    @classmethod
    def configure(cls, problem: Problem, options: Options) -> SvrgHt:
        return cls._assemble(problem, options, SVRG_SHARE, problem.population)
