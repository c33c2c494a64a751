"""The protocol of solvers and the options they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel import Curator, FixedSize, Full, Plan, Poisson, Sampling, SparseVector
from sordino.kernel.arrays import Floats
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


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A linear model in the user's units: a margin is ``x @ coef + intercept``, for each output.

    ``noise`` is the public standard deviation of the noise in each coefficient, where the solver states it.
    """

    coef: Floats
    intercept: Floats
    noise: Floats | None = None
    bitten: bool = False

    @classmethod
    def of(cls, last: Any, problem: Problem) -> LinearFit:
        """Return the model that the last iterate of a solver stands for.

        The last weight belongs to the intercept column, which holds a constant: the intercept is their
        product.
        """
        found = last if isinstance(last, NoisyCoefficients) else NoisyCoefficients(last, None)
        w = found.value.to_dense() if isinstance(found.value, SparseVector) else np.asarray(found.value)
        intercept = w[..., -1] * problem.intercept if problem.intercept else np.zeros(w.shape[:-1])
        coef = np.ascontiguousarray(w[..., : problem.features])
        return cls(coef, np.array(intercept), found.noise, found.bitten)


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


# ----------------------------------------------------------------------------------------------------------
# What a solver can do and what it reads, declared once: checks, documentation and tests follow from it.

# Losses above zero whose curvature has a bound: what a line search and a certified minimiser stand on.
CURVED = ("logistic", "multinomial", "squared", "huber", "squared-hinge")
STEPS = ("max_iter", "step_size", "clip_norm")
BATCHES = (*STEPS, "batch_size", "sampling")
_OPEN: Mapping[str, Any] = {
    "n_nonzero_coefs": None,
    "max_iter": None,
    "batch_size": None,
    "step_size": None,
    "clip_norm": None,
    "sampling": "poisson",
}


@dataclass(frozen=True)
class Capabilities:
    """One solver's declaration.

    Parameters
    ----------
    asks : what it asks the curator for, in a few words.
    reads : the options of all solvers that it reads; another one that is set is an error.
    options : the names of its own options, for ``solver_options``.
    sparse, dense : whether it keeps ``n_nonzero_coefs`` coefficients, and whether it can keep all.
    persons : its sums can be clipped per person.
    weights : it knows declared class and sample weights.
    secure_noise : its sums can be taken in integers.
    losses : the names of the losses it knows; none named means all of them.
    lazy : its steps cost what a batch touches, on sparse data with one output.
    paper : how a reader of the papers knows it.
    page : the page of the documentation that explains it and its options.
    """

    asks: str
    reads: tuple[str, ...]
    options: tuple[str, ...] = ()
    sparse: bool = False
    dense: bool = False
    persons: bool = False
    weights: bool = True
    secure_noise: bool = False
    losses: tuple[str, ...] = ()
    lazy: bool = False
    paper: str = ""
    page: str = "dense"

    def __post_init__(self) -> None:
        unknown = sorted(set(self.reads) - set(_OPEN))
        if unknown:
            raise InvalidInputError(f"Expected options among {sorted(_OPEN)}, got {unknown}.")

    def knows(self, loss: str) -> bool:
        """Tell whether it takes the loss of this name."""
        return not self.losses or loss in self.losses


class Declared(Protocol):
    """A solver class with its declaration."""

    capabilities: ClassVar[Capabilities]

    @classmethod
    def configured(cls, problem: Problem, options: Options) -> Solver:
        """Fill what the user left open, from public facts."""

    def plan(self, problem: Problem) -> Plan:
        """Declare every release; no data is touched."""

    def run(self, curator: Curator, problem: Problem) -> Iterator[Any]:
        """Yield the iterates; the last one is the result."""


@dataclass(frozen=True)
class Entry:
    """A row of the registry: how a solver is made, and what it declares."""

    make: Callable[[Problem, Options], Solver]
    capabilities: Capabilities

    @classmethod
    def of(cls, solver: type[Declared]) -> Self:
        """Return the entry of a solver class."""
        return cls(solver.configured, solver.capabilities)

    def renamed(self, make: Callable[[Problem, Options], Solver], paper: str) -> Entry:
        """Return a variant with the same declaration."""
        return Entry(make, replace(self.capabilities, paper=paper))


def check_asked(name: str, solvers: Mapping[str, Entry], problem: Problem, options: Options) -> None:
    """Refuse what the solver would ignore or cannot do; say which solvers can."""
    able = solvers[name].capabilities
    if problem.secure_noise and not able.secure_noise:
        raise UnsupportedError(
            f"secure_noise=True is proven for sums of clipped gradients only, not for solver {name!r}. "
            f"Set secure_noise=False, or use one of {_with(solvers, 'secure_noise')}."
        )
    if not able.knows(problem.loss.name):
        knowing = sorted(n for n, e in solvers.items() if e.capabilities.knows(problem.loss.name))
        raise UnsupportedError(
            f"Solver {name!r} needs a loss in {able.losses}, got {problem.loss.name!r}. Use one of {knowing}."
        )
    if options.n_nonzero_coefs is not None and not able.sparse:
        raise UnsupportedError(
            f"Expected n_nonzero_coefs=None, got {options.n_nonzero_coefs}: solver {name!r} fits dense "
            f"models. Use one of {_with(solvers, 'sparse')}."
        )
    for option, unset in _OPEN.items():
        value = getattr(options, option)
        if value != unset and option not in able.reads and option != "n_nonzero_coefs":
            readers = sorted(n for n, entry in solvers.items() if option in entry.capabilities.reads)
            raise InvalidInputError(
                f"Expected {option}={unset!r} with solver {name!r}, which does not read it, got {value!r}. "
                f"It is read by {readers}."
            )
    unknown = sorted(set(options.extra) - set(able.options))
    if unknown:
        known = ", ".join(sorted(able.options)) or "none"
        raise InvalidInputError(f"Expected solver_options among: {known}; got {unknown}.")


def _with(solvers: Mapping[str, Entry], what: str) -> list[str]:
    return sorted(name for name, entry in solvers.items() if getattr(entry.capabilities, what))
