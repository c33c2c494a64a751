"""DP-SCSG-HT: hard thresholding with gradients that are corrected against a snapshot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sordino.kernel import Curator, FixedSize, Full, Plan, Poisson, Release, Sampling, public_generator
from sordino.kernel.contracts import Point
from sordino.problems.glm import GlmDifference, GlmGradient
from sordino.problems.problem import Problem
from sordino.solvers.base import Options, among, count, positive
from sordino.solvers.capabilities import BATCHES, Capabilities
from sordino.solvers.vectors import as_sparse, hard_threshold, starting_point, vector_sum

EPOCHS = 10
SHARE = 50  # corrections of small batches are unstable: their noise grows with the distance from the snapshot


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
        options=(
            "difference_clip",
            "epochs",
            "option",
            "shrinking_bound",
            "snapshot_batch",
            "snapshot_keep",
            "snapshot_noise",
        ),
        sparse=True,
        dense=True,
        persons=True,
        secure_noise=True,
        lazy=True,
        paper="DP-SCSG-HT",
        page="scsg-ht",
    )

    sparsity: int | None
    step: float
    clip: float
    difference_clip: float
    row_bound: float
    snapshots: Sampling
    minibatches: Sampling
    lengths: tuple[int, ...]
    snapshot_keep: int | None = None
    snapshot_noise: float = 1.0
    drawn: bool = False  # option I: the lengths were drawn

    @classmethod
    def configured(cls, problem: Problem, options: Options) -> ScsgHt:
        """Fill what the user left open from public facts."""
        extra = _extra(options, snapshot_batch=None, option="II")
        small, n = options.batch(problem, SHARE), problem.population
        wanted = max(small, n // 5) if extra["snapshot_batch"] is None else extra["snapshot_batch"]
        big = count("snapshot_batch", wanted, n)
        option = among("option", extra["option"], ("I", "II"))
        lengths = _lengths(extra, options, option, big / small)
        batches = _batches(big, n, options), options.minibatches(problem, SHARE)
        made = _assembled(cls, problem, options, extra, batches, lengths)
        return replace(made, drawn=option == "I")

    def plan(self, problem: Problem) -> Plan:
        """Declare the snapshots and the corrections."""
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
        """Yield the iterates."""
        w = starting_point(problem.shape, problem.n_intercepts, sparse=self._lazy(problem))
        for length in self.lengths:
            if length == 0:  # nothing would use the snapshot, so it is not paid for
                continue
            anchor, m = w, self._snapshot(curator.release("snapshot", w), problem)
            for t in range(length):
                v = m if t == 0 else vector_sum(curator.release("correction", (w, anchor)), m)
                v = vector_sum(v, problem.ridge * w) if problem.ridge else v
                w = hard_threshold(vector_sum(w, -self.step * v), self.sparsity, problem.n_intercepts)
                yield w

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


def _extra(options: Options, **defaults: Any) -> dict[str, Any]:
    return options.chosen(
        epochs=EPOCHS,
        snapshot_keep=None,
        snapshot_noise=1.0,
        difference_clip=None,
        shrinking_bound=True,
        **defaults,
    )


def _assembled(
    kind: Any,
    problem: Problem,
    options: Options,
    extra: dict[str, Any],
    batches: tuple[Sampling, Sampling],
    lengths: tuple[int, ...],
) -> Any:
    clip = options.clip(problem)
    keep, bound = extra["snapshot_keep"], extra["difference_clip"]
    return kind(
        options.n_nonzero_coefs,
        options.step(problem),
        clip,
        2 * clip if bound is None else positive("difference_clip", bound, 2 * clip),
        # an infinite row bound leaves the constant bound of the paper
        problem.row_bound if among("shrinking_bound", extra["shrinking_bound"], (True, False)) else math.inf,
        *batches,
        lengths,
        None if keep is None else count("snapshot_keep", keep),
        positive("snapshot_noise", extra["snapshot_noise"]),
    )


def _batches(size: int, population: int, options: Options) -> Sampling:
    if size >= population:
        return Full()
    return FixedSize(size) if options.sampling == "fixed" else Poisson(size / population)


def _lengths(extra: dict[str, Any], options: Options, option: str, mean: float) -> tuple[int, ...]:
    """Return the lengths of all epochs, cut where ``max_iter`` steps are reached."""
    epochs, longest = count("epochs", extra["epochs"]), math.ceil(20 * mean)
    if option == "II":
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
