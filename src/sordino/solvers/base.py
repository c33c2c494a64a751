"""The protocol of solvers and the options they share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel import Curator, FixedSize, Full, Laplace, Plan, Poisson, Sampling, SparseVector
from sordino.kernel.arrays import Floats
from sordino.problems.problem import Problem
from sordino.values import among, check_count, check_positive, check_range, check_whole

PEAK = 0.25  # the largest entry of a gradient, in units of the bound on its norm


def noise_std(curator: Curator, name: str, params: Any = None) -> float:
    """Return the standard deviation of the noise on a planned sum: public, it is in the plan."""
    return noise_in(curator.plan, name, params)


def noise_in(plan: Plan, name: str, params: Any = None) -> float:
    """Return the standard deviation of the noise of a release of a calibrated plan."""
    release = plan.releases[name]
    unit = math.sqrt(2.0) if isinstance(release.mechanism, Laplace) else 1.0
    return unit * float(release.mechanism.multiplier or 0.0) * release.sensitivity(plan.relation, params)


class Solver(Protocol):
    """An algorithm: it says what it will ask in a setting, and what it does with the answers."""

    def plan(self, setting: Any, /) -> Plan:
        """Declare every release; no data is touched."""

    def run(self, curator: Curator, setting: Any, /) -> Iterator[Any]:
        """Yield the iterates; the last one is the result."""


@dataclass(frozen=True, eq=False)
class NoisyCoefficients:
    """A result with the public standard deviation of the noise in each of its numbers.

    ``bitten`` says that released numbers show a clip that bites, and that not all of it was put back;
    ``around`` is what the run has released of the loss around the result; ``mean_noise`` is that of the mean
    of the targets, where it is all that the model is; ``unseen`` is what clips may have taken from that mean;
    ``guessed`` is the share of records whose rows may be so long that their margins are guesses.
    """

    value: Any
    noise: Any
    bitten: bool = False
    around: Any = None
    mean_noise: float = 0.0
    unseen: float = 0.0
    guessed: float = 0.0


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A linear model in the user's units: a margin is ``x @ coef + intercept``, for each output.

    ``noise`` is the public standard deviation of the noise in each coefficient, where the solver states it.
    """

    coef: Floats
    intercept: Floats
    noise: Floats | None = None

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
        return cls(coef, np.array(intercept), found.noise)


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

    @classmethod
    def of(cls, given: Mapping[str, Any], **others: Any) -> Options:
        """Return what a user typed, checked: ``given`` is ``solver_options``, others are set elsewhere."""
        own = dict(given)
        size = check_count("batch_size", own.pop("batch_size", None), 1, None, "It is the expected size.")
        sampling = among("sampling", own.pop("sampling", "poisson"), ("poisson", "fixed"))
        step, clip = own.pop("step_size", None), own.pop("clip_norm", None)
        if step is not None:
            step = check_positive("step_size", step, "It is a public number; from the data it would leak.")
        if clip is not None:
            clip = check_positive("clip_norm", clip, "Pass a public bound on a record's gradient norm.")
        most = check_count("max_iter", others.pop("max_iter"), 1, None, "Each iteration is a paid release.")
        return cls(
            max_iter=most,
            batch_size=size,
            step_size=step,
            clip_norm=clip,
            sampling=sampling,
            extra=own,
            **others,
        )

    def read(self, able: Capabilities, **usual: Any) -> dict[str, Any]:
        """Return the options that a solver declares, checked; public facts set other defaults, ``usual``."""
        found = {name: option.default for name, option in able.options.items()} | usual
        for name, option in able.options.items():
            asked = self.extra.get(name)
            if asked is not None or (name in self.extra and option.default is not None):
                found[name] = option.check(name, asked)
        return found

    def steps(self, usual: int) -> int:
        """Return the number of steps: the asked one, or the usual one."""
        return usual if self.max_iter is None else self.max_iter

    def passes(self, epochs: int, problem: Any, share: int = 200) -> int:
        """Return the number of steps: the asked one, or that of so many passes over the records."""
        return self.steps(epochs * max(1, problem.population // self.batch(problem, share)))

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

    def batch(self, problem: Any, share: int = 200) -> int:
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
class Option:
    """An option of some solvers: its default, and what it may be.

    ``allowed`` is an interval as in a book, ``"[0, 1)"``; ``"> 0"`` for a number whose square is neither zero
    nor infinite; a tuple of words or flags; or the least of whole numbers. None leaves the check to the
    solver. A default of None is a rule of public numbers.

    Examples
    --------
    >>> Option(0.9, "[0, 1)").check("momentum_weight", 0.5)
    0.5
    """

    default: Any = None
    allowed: str | tuple[Any, ...] | int | None = None
    remedy: str = "It is a public constant."

    def check(self, name: str, value: Any) -> Any:
        """Return the value, as the number it stands for; refuse what is not allowed."""
        if self.allowed is None:
            return value
        if self.allowed == "> 0":
            return check_positive(name, value, self.remedy)
        if isinstance(self.allowed, str):
            return check_range(name, value, self.allowed, self.remedy)
        if isinstance(self.allowed, tuple):
            return among(name, value, self.allowed)
        return check_whole(name, value, least=self.allowed)


SMOOTHING = Option(0.0, "[0, inf)", "Usual are 0 to 3.")
FLAGS = (True, False)


@dataclass(frozen=True)
class Capabilities:
    """One solver's declaration.

    Parameters
    ----------
    asks : what it asks the curator for, in a few words.
    reads : the options of all solvers that it reads; another one that is set is an error.
    options : its own options by name, for ``solver_options``.
    sparse, dense : whether it keeps ``n_nonzero_coefs`` coefficients, and whether it can keep all.
    persons : it can protect persons, by sums that are clipped per person,
    parts : or by questions in which each row is a part of its person.
    weights : it knows declared class and sample weights.
    losses : the names of the losses it knows; none named means all of them.
    lazy : its steps cost what a batch touches, on sparse data with one output.
    paper : how a reader of the papers knows it.
    page : the page of the documentation that explains it and its options.
    """

    asks: str
    reads: tuple[str, ...]
    options: Mapping[str, Option] = field(default_factory=dict)
    sparse: bool = False
    dense: bool = False
    persons: bool = False
    parts: bool = False
    weights: bool = True
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
    def configure(cls, problem: Any, options: Options) -> Any:
        """Fill what the user left open, from public facts."""


@dataclass(frozen=True)
class Entry:
    """A row of the registry: how a solver is made, what it declares, and what a variant sets by default."""

    make: Callable[[Any, Options], Any]
    capabilities: Capabilities
    usual: Mapping[str, Any] = field(default_factory=dict)
    stands_for: Callable[[Any], str] | None = None  # the name of another row, by public facts

    @classmethod
    def of(cls, solver: type[Declared], paper: str = "", **usual: Any) -> Self:
        """Return the row of a solver class, or of a variant of it with other defaults."""
        able = replace(solver.capabilities, paper=paper or solver.capabilities.paper)
        return cls(solver.configure, able, usual)

    def solver(self, setting: Any, options: Options) -> Any:
        """Return the solver for a setting; options that nobody set are those of the variant."""
        return self.make(setting, replace(options, extra={**self.usual, **options.extra}))


def check_asked(
    name: str, rows: Mapping[str, Entry], setting: Any, options: Options, word: str = "solver"
) -> None:
    """Refuse what the solver would ignore or cannot do; say which solvers of its family can."""
    able, loss = rows[name].capabilities, getattr(setting, "loss", None)
    if loss is not None and not able.knows(loss.name):
        knowing = sorted(n for n, e in rows.items() if e.capabilities.knows(loss.name))
        raise UnsupportedError(
            f"Solver {name!r} needs a loss in {able.losses}, got {loss.name!r}. Use one of {knowing}."
        )
    if options.n_nonzero_coefs is not None and not able.sparse:
        raise UnsupportedError(
            f"Expected n_nonzero_coefs=None, got {options.n_nonzero_coefs}: solver {name!r} fits dense "
            f"models. Use one of {sorted(name for name, entry in rows.items() if entry.capabilities.sparse)}."
        )
    for option, unset in _OPEN.items():
        value = getattr(options, option)
        if value != unset and option not in able.reads and option != "n_nonzero_coefs":
            readers = sorted(n for n, entry in rows.items() if option in entry.capabilities.reads)
            raise InvalidInputError(
                f"Expected {option}={unset!r} with solver {name!r}, which does not read it, got {value!r}. "
                f"It is read by {readers}."
            )
    unknown = sorted(set(options.extra) - set(able.options))
    if unknown:
        known = ", ".join(sorted(able.options)) or "none"
        readers = sorted(n for n, entry in rows.items() if set(unknown) <= set(entry.capabilities.options))
        other = f" It is read by {readers}." if readers else ""
        raise InvalidInputError(
            f"Expected {word}_options among: {known}; got {unknown} with {word} {name!r}.{other}"
        )
