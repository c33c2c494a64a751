"""RRPSGD: stochastic gradients with a random number of steps."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from sordino.kernel import public_generator
from sordino.problems.problem import Problem
from sordino.solvers.base import Options
from sordino.solvers.capabilities import Capabilities
from sordino.solvers.dense.sgd import Sgd, epochs_of, update_of
from sordino.solvers.momentum import chosen_momentum

EPOCHS = 10


class RrpSgd(Sgd):
    r"""DP-SGD that stops after R steps, R uniform in {1, ..., T}: the stationary point of nonconvex theory.

    **Privacy.** R is a public number, drawn before the plan is made: for each R the run is private, and so
    is the mixture. Only the R steps that are taken are planned and paid for.

    References: Zhang et al. 2017. Departures: Poisson mini-batches in place of single records; calibrated on
    the drawn R and not on T.
    """

    capabilities: ClassVar[Capabilities] = replace(Sgd.capabilities, paper="RRPSGD, stopped at a random step")

    @classmethod
    def configured(cls, problem: Problem, options: Options, smoothing: float = 0.0) -> RrpSgd:
        """Fill what the user left open from public facts, and draw R."""
        momentum, extra = chosen_momentum(
            options, epochs=EPOCHS, smoothing=smoothing, schedule="constant", output="last"
        )
        most = epochs_of(extra["epochs"], problem, options)
        public = public_generator(options.random_state)
        steps = int(public.integers(1, most + 1))
        return cls(steps, **update_of(problem, options, extra), momentum=momentum)
