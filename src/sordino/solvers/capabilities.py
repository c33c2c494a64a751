"""What a solver can do and what it reads, declared once: checks, documentation and tests follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel import Curator, Plan
from sordino.problems.problem import Problem
from sordino.solvers.base import Options, Solver

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
