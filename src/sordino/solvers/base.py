"""The protocol of solvers and the options they share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sordino.errors import InvalidInputError
from sordino.kernel import Curator, FixedSize, Full, Plan, Poisson, Sampling
from sordino.problems.problem import Problem

PEAK = 0.25  # the largest entry of a gradient, in units of the bound on its norm


class Solver(Protocol):
    """An algorithm of the library."""

    def plan(self, problem: Problem) -> Plan:
        """Declare every release; no data is touched."""

    def run(self, curator: Curator, problem: Problem) -> Iterator[Any]:
        """Yield the iterates; the last one is the result."""


@dataclass(frozen=True, eq=False)
class NoisyCoefficients:
    """A result with the public standard deviation of the noise in each of its numbers.

    ``bitten`` says that released numbers show a clip that bites, and that not all of it was put back;
    ``around`` is what the run has released of the loss around the result.
    """

    value: Any
    noise: Any
    bitten: bool = False
    around: Any = None


@dataclass(frozen=True)
class Options:
    """What a user may fix; None means: by a rule that looks at public facts only.

    ``extra`` holds the options that only one solver has, under the names of its paper; ``random_state``
    seeds public choices (the lengths of epochs, synthetic features), never noise.
    """

    n_nonzero_coefs: int | None = None
    max_iter: int | None = None
    batch_size: int | None = None
    step_size: float | None = None
    clip_norm: float | None = None
    sampling: str = "poisson"
    extra: Mapping[str, Any] = field(default_factory=dict)
    random_state: Any = None

    def chosen(self, **defaults: Any) -> dict[str, Any]:
        """Return the solver's own options: those asked for over ``defaults``; unknown names are refused."""
        unknown = sorted(set(self.extra) - set(defaults))
        if unknown:
            known = ", ".join(sorted(defaults)) or "none"
            raise InvalidInputError(f"Expected solver_options among: {known}; got {unknown}.")
        return {**defaults, **self.extra}

    def clip(self, problem: Problem) -> float:
        """Return the clip norm: the asked one, or the bound of the gradient."""
        return problem.gradient_bound if self.clip_norm is None else self.clip_norm

    def peak(self, problem: Problem) -> float:
        """Return the bound on the largest entry of a gradient: the clip norm, or a share of the norm bound.

        A row of many entries has none near its norm; the few records that do are shortened.
        """
        return PEAK * problem.gradient_bound if self.clip_norm is None else self.clip_norm

    def step(self, problem: Problem) -> float:
        """Return the step size: the asked one, or one over the largest curvature."""
        if self.step_size is not None:
            return self.step_size
        curvature = problem.curvature * problem.row_bound**2 + problem.penalty_curvature
        return 1.0 / curvature

    def batch(self, problem: Problem, share: int = 200) -> int:
        """Return the (expected) batch size: the asked one, or n / ``share``."""
        wanted = max(64, problem.population // share) if self.batch_size is None else self.batch_size
        return min(wanted, problem.population)

    def minibatches(self, problem: Problem, share: int = 200) -> Sampling:
        """Return how mini-batches are drawn."""
        size = self.batch(problem, share)
        if size >= problem.population:
            return Full()
        if self.sampling == "fixed":
            return FixedSize(size)
        return Poisson(size / problem.population)


def distinguishable(problem: Problem, wanted: int, candidates: int = 100) -> int:
    """Return how many coordinates a private choice can tell from the others: ``wanted``, or fewer.

    The noise of a choice of m grows with sqrt m, so that one of too many is a choice at random: at most one
    for every 500 records and unit of epsilon, and five at least. The largest of many noises grows with the
    logarithm of their number, and the square root of m has to make up for it.
    """
    told = max(5.0, problem.population * min(problem.epsilon, 1e6) // 500)
    told *= (math.log(100.0) / math.log(max(candidates, 100))) ** 2
    return max(1, min(wanted, math.ceil(told)))


def among(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """Return ``value`` if it is one of ``allowed``."""
    if value not in allowed:
        raise InvalidInputError(f"Expected {name} in {allowed}, got {value!r}.")
    return value


def positive(name: str, value: Any, most: float = float("inf")) -> float:
    """Return ``value`` as a number in (0, most]."""
    number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else float("nan")
    if not (0 < number <= most and number < float("inf")):
        raise InvalidInputError(f"Expected {name} in (0, {most:g}], got {value!r}. It is a public constant.")
    return number


def share(name: str, value: Any) -> float:
    """Return ``value`` as a number in [0, 1)."""
    number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else float("nan")
    if not 0 <= number < 1:
        raise InvalidInputError(f"Expected {name} in [0, 1), got {value!r}. It is a share of the steps.")
    return number


def count(name: str, value: Any, most: int | None = None) -> int:
    """Return ``value`` as a whole number >= 1 (and at most ``most``)."""
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and float(value).is_integer()
    if not whole or value < 1 or (most is not None and value > most):
        bound = ">= 1" if most is None else f"in [1, {most}]"
        raise InvalidInputError(f"Expected {name} to be a whole number {bound}, got {value!r}.")
    return int(value)
