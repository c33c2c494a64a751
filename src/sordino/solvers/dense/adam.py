"""DP-Adam and DP-LSAdam for dense models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sordino.kernel import Curator, Plan, Release, Sampling
from sordino.kernel.arrays import Floats
from sordino.problems.glm import GlmGradient
from sordino.problems.problem import Problem
from sordino.solvers.base import Options, among, positive
from sordino.solvers.capabilities import BATCHES, Capabilities
from sordino.solvers.dense.column_smoothing import checked_strength, smoothed
from sordino.solvers.dense.sgd import epochs_of
from sordino.solvers.pace import in_units
from sordino.solvers.units import noise_std

EPOCHS = 20
STEP = 0.03  # of a coefficient that moves a margin by its unit
TINY = 1e-8  # of the clip norm


@dataclass(frozen=True)
class Adam:
    r"""``w <- w - step m / (sqrt s + 1e-8 clip)`` with running means of noisy gradients and of their squares.

    ``subtract_noise`` takes the known variance of the noise out of ``s``: without it s is mostly noise, and
    Adam is momentum with a constant step. Smoothing acts on the gradient, before the means.

    **Privacy.** ``steps`` Poisson-sampled Gaussian releases; the rest is post-processing of them and of the
    public noise level.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="mini-batch gradients",
        reads=BATCHES,
        options=("beta1", "beta2", "epochs", "smoothing", "subtract_noise"),
        dense=True,
        persons=True,
        secure_noise=True,
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
    def configured(cls, problem: Problem, options: Options, smoothing: float = 0.0) -> Adam:
        """Fill what the user left open from public facts."""
        extra = options.chosen(
            epochs=EPOCHS, smoothing=smoothing, beta1=0.9, beta2=0.999, subtract_noise=False
        )
        return cls(
            epochs_of(extra["epochs"], problem, options),
            STEP * in_units(problem) if options.step_size is None else options.step_size,
            options.clip(problem),
            options.minibatches(problem),
            checked_strength(extra["smoothing"]),
            positive("beta1", extra["beta1"], 1 - 1e-12),
            positive("beta2", extra["beta2"], 1 - 1e-12),
            among("subtract_noise", extra["subtract_noise"], (True, False)),
        )

    @classmethod
    def smooth(cls, problem: Problem, options: Options) -> Adam:
        """Return the same with smoothing 1 where the user left it open."""
        return cls.configured(problem, options, 1.0)

    def plan(self, problem: Problem) -> Plan:
        """Declare the gradients."""
        query = GlmGradient(problem.loss, self.clip)
        return problem.planned(gradient=Release(query, problem.gaussian(), self.sampling, self.steps))

    def run(self, curator: Curator, problem: Problem) -> Iterator[Floats]:
        """Yield the iterates."""
        w, m, s = (np.zeros(problem.shape) for _ in range(3))
        known = self._noise_variance(curator, problem)
        for t in range(1, self.steps + 1):
            g = curator.release("gradient", w) + problem.penalty_gradient(w)
            g = smoothed(g, self.smoothing, problem.n_intercepts)
            m = self.beta1 * m + (1 - self.beta1) * g
            s = self.beta2 * s + (1 - self.beta2) * np.square(g)
            level = np.maximum(s / (1 - self.beta2**t) - known, known * 1e-2)
            w = w - self.step * m / (1 - self.beta1**t) / (np.sqrt(level) + TINY * self.clip)
            yield w

    def _noise_variance(self, curator: Curator, problem: Problem) -> Any:
        """Return the variance that the noise adds to each entry of a smoothed mean gradient."""
        if not self.subtract_noise:
            return 0.0
        std = noise_std(curator, "gradient") / self.sampling.expected(problem.population)
        # the entries of A^{-1} N(0, I) have the variance sum_j (A^{-1})_0j^2
        row = np.zeros(problem.columns)
        row[0] = 1.0
        smooth = float(np.square(smoothed(row, self.smoothing, problem.n_intercepts)).sum())
        shares = np.full(problem.columns, smooth)
        shares[problem.features :] = 1.0
        return np.broadcast_to(std**2 * shares, problem.shape)
