"""DP-GD for dense models."""

from __future__ import annotations

from typing import ClassVar

from sordino.kernel import Full
from sordino.problems.problem import Problem
from sordino.solvers.base import Options
from sordino.solvers.capabilities import STEPS as STEP_OPTIONS
from sordino.solvers.capabilities import Capabilities
from sordino.solvers.dense.sgd import Sgd, update_of
from sordino.solvers.momentum import chosen_momentum

STEPS = 50


class Gd(Sgd):
    r"""``w <- w - step A^{-1}(mean clipped gradient + noise + penalty'(w))`` over all records.

    A step size that is left open follows :class:`sordino.solvers.pace.Pace`, with Nesterov's momentum.

    **Privacy.** ``steps`` Gaussian releases of a clipped sum: exactly one Gaussian release of the same sum
    with ``sqrt(steps)`` less noise.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        asks="the gradient on all records",
        reads=STEP_OPTIONS,
        options=("momentum", "momentum_weight", "output", "schedule", "smoothing"),
        dense=True,
        persons=True,
        secure_noise=True,
        paper="DP-GD",
    )

    @classmethod
    def configured(cls, problem: Problem, options: Options, smoothing: float = 0.0) -> Gd:
        """Fill what the user left open from public facts."""
        paced = options.step_size is None and "schedule" not in options.extra
        momentum, extra = chosen_momentum(
            options, "nesterov" if paced else "none", smoothing=smoothing, schedule="constant", output="last"
        )
        steps = STEPS if options.max_iter is None else options.max_iter
        update = {**update_of(problem, options, extra), "sampling": Full()}
        return cls(steps, **update, momentum=momentum)
