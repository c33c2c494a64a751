"""A plan of releases: what is asked and how often, what an executor must offer, and one question of it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from dp_accounting import dp_event as dp

from sordino.errors import InvalidInputError, PlanError, UnsupportedError
from sordino.kernel.correlated import Correlated, Memory, Remembered
from sordino.kernel.events import Cyclic, Full, Poisson, Relation, Sampling, check_event, compose_events
from sordino.kernel.mechanism import (
    Gaussian,
    GumbelTopK,
    JointSelection,
    LaplaceMax,
    Mechanism,
    OnGrid,
    Rounding,
    SymmetricGaussian,
    to_grid,
)
from sordino.kernel.query import (
    BLOCK,
    WHOLE,
    AffineViews,
    Answer,
    ClippedSum,
    ColumnSums,
    FromSum,
    OnLattice,
    Query,
    RecordSums,
    missing,
)


class Printed:
    """Base of a query, mechanism or sampling that follows a paper whose claim does not hold.

    ``printed`` names the paper's algorithm: what a caller has to say to run it, and what the report shows.
    """

    printed: ClassVar[str]


@dataclass(frozen=True)
class PaperNoise:
    """Published multipliers by release, the formula they come from, and the printed parts of its plan."""

    multipliers: Mapping[str, float]
    formula: str
    printed: tuple[str, ...] = ()


def check_asked(found: Collection[str], asked: Collection[str]) -> None:
    """Refuse a plan with marks that its caller has not named."""
    if isinstance(asked, str):
        asked = (asked,)
    missing = [mark for mark in found if mark not in asked]
    if missing:
        raise PlanError(
            f"The plan holds parts that are not proven here: {'; '.join(missing)}. To run them all the same, "
            f"open it with printed={tuple(missing)!r}; the report will show these names."
        )


def _mark(part: Any, is_query: bool = False) -> str | None:
    """Return the mark of a part of a release.

    Mechanisms and samplings, which make the event, have to come from the kernel: only those are under the
    tests that every proof here has. Others are called unreviewed, with their full name. A query may be
    anybody's; its sensitivity is a claim of whoever wrote it.
    """
    kind = type(part)
    unreviewed = f"unreviewed: {kind.__module__}.{kind.__qualname__}"
    if issubclass(kind, Printed):
        return getattr(kind, "printed", "") or unreviewed
    # A class that only says it is from the kernel is not found there.
    home = getattr(sys.modules.get(kind.__module__), kind.__qualname__, None)
    own = home is kind and kind.__module__.startswith("sordino.kernel.")
    return None if is_query or own else unreviewed


@dataclass(frozen=True)
class Release:
    """A query, the noise it gets, the rows it sees, and how often it may be asked.

    Parameters
    ----------
    query : the question; its norm must be the one of the mechanism.
    mechanism : the noise, not yet calibrated in a fresh plan.
    sampling : which records are looked at.
    times : the number of releases that are paid for.
    mean : divide the answer by the public expected number of records.
    lazy : the solver can use an answer whose untouched coordinates are not drawn yet.
    rows : how many records of one unit may change at once, where nobody knows whose they are. A chain of so
        many neighbours leads from one data set to the other, so by the triangle inequality answers are at
        most so many sensitivities apart, whatever the query. A Poisson batch holds a random number of them:
        its event is a mixture. Of other batches and other noise this is not proven.
    """

    query: Query
    mechanism: Mechanism
    sampling: Sampling = field(default_factory=Full)
    times: int = 1
    mean: bool = True
    lazy: bool = False
    rows: int = 1

    def __post_init__(self) -> None:
        if self.times < 1:
            raise InvalidInputError(f"Expected a release to be planned at least once, got {self.times}.")
        if self.rows != 1:
            self._check_rows()
        if self.query.norm not in self.mechanism.norms:
            allowed = " or ".join(norm.value for norm in self.mechanism.norms)
            raise UnsupportedError(
                f"{type(self.mechanism).__name__} needs a sensitivity in {allowed}, "
                f"the query {type(self.query).__name__} has one in {self.query.norm.value}."
            )
        if isinstance(self.mechanism, Correlated):
            self.mechanism.check(self.sampling, self.times)
        elif isinstance(self.sampling, Cyclic):
            raise UnsupportedError("Parts in turn belong to correlated noise. Use Poisson() or Disjoint().")
        if self.mean and isinstance(self.mechanism, (GumbelTopK, JointSelection, LaplaceMax)):
            raise InvalidInputError("A selection answers with indices, which have no mean. Pass mean=False.")
        touched = (RecordSums, AffineViews, ColumnSums)
        absent = missing(self.query.needs, touched) if self.lazy else []
        if absent:
            raise UnsupportedError(
                f"{type(self.query).__name__} needs {' and '.join(absent)}, which a batch of few columns "
                "does not have. Pass lazy=False."
            )

    def _check_rows(self) -> None:
        gaussian = type(self.mechanism) in (Gaussian, SymmetricGaussian)
        if self.rows < 1 or not gaussian or type(self.sampling) not in (Full, Poisson):
            kind, drawn = type(self.mechanism).__name__, type(self.sampling).__name__
            raise UnsupportedError(
                f"Several records of a unit ({self.rows}) are proven for Gaussian noise on all records or "
                f"Poisson batches, not for {kind} noise on {drawn} batches. Use solver='auto', 'gd' or 'sgd' "
                "of linear models, and noise='independent' of networks."
            )

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        """Return how far the answers of neighbours can be apart.

        Under Poisson sampling and replace-one the worst pair is (+C, -C) whatever the query: see the
        proof of the dominating pair in the privacy notes.
        """
        if isinstance(self.sampling, (Poisson, Cyclic)) and self.sampling.rate < 1:
            return self.rows * relation.contributions * self.query.contribution(params)
        return self.rows * self.query.sensitivity(relation, params)

    @property
    def in_integers(self) -> bool:
        """Whether what each record adds can be truncated to integers."""
        exact = isinstance(self.query, OnLattice) and self.query.exact
        return exact and isinstance(self.mechanism, OnGrid)

    def event(self, relation: Relation, population: int) -> dp.DpEvent:
        """Return the privacy event of all ``times`` releases."""
        single = self.mechanism.event(relation)
        if isinstance(self.mechanism, Correlated) and not self.mechanism.sampled:
            return single  # its norm is that of all releases together
        if self.rows > 1 and isinstance(self.sampling, Poisson):
            return self.sampling.amplify_rows(single, self.times, relation, self.rows)
        return self.sampling.amplify(single, self.times, relation, population)


@dataclass(frozen=True, eq=False)
class Plan:
    """All releases of a run: what is calibrated, accounted, reserved, executed and reported.

    Parameters
    ----------
    releases : the releases by name, in the order of the report.
    relation : the neighbouring relation.
    population : the public number of units.
    unit : what a neighbour differs in, for example ``"record"`` or ``"person"``.
    """

    releases: Mapping[str, Release]
    relation: Relation
    population: int
    unit: str = "record"

    def __post_init__(self) -> None:
        if not self.releases:
            raise InvalidInputError("Expected a plan with at least one release, got none.")
        if self.population < 1:
            raise InvalidInputError(f"Expected a public population >= 1, got {self.population}.")
        object.__setattr__(self, "releases", MappingProxyType(dict(self.releases)))
        object.__setattr__(self, "relation", Relation.parse(self.relation))
        for release in self.releases.values():  # refused before any data: free releases, some samplings
            unit = replace(release, mechanism=release.mechanism.at(1.0))
            check_event(unit.mechanism.event(self.relation))
            check_event(unit.event(self.relation, self.population))

    @property
    def is_calibrated(self) -> bool:
        """Whether every mechanism has its noise multiplier."""
        return all(r.mechanism.multiplier is not None for r in self.releases.values())

    @property
    def printed(self) -> tuple[str, ...]:
        """The names of the parts that are not proven here; a curator wants to hear them from its caller."""
        each = ((_mark(r.query, True), _mark(r.mechanism), _mark(r.sampling)) for r in self.releases.values())
        return tuple(dict.fromkeys(mark for marks in each for mark in marks if mark))

    def at(self, scale: float) -> Plan:
        """Return this plan with every multiplier set to ``scale`` times its relative size."""
        releases = {
            name: replace(r, mechanism=r.mechanism.at(scale * r.mechanism.relative))
            for name, r in self.releases.items()
        }
        out = copy(self)  # its parts were checked at noise 1 and are the same
        object.__setattr__(out, "releases", MappingProxyType(releases))
        return out

    def event(self) -> dp.DpEvent:
        """Return the privacy event of the whole plan."""
        if not self.is_calibrated:
            raise PlanError("The plan has no noise multipliers yet. Call accounting.calibrate first.")
        events = [r.event(self.relation, self.population) for r in self.releases.values()]
        return check_event(compose_events(events))


@dataclass(frozen=True)
class Offer:
    """The declaration of an executor.

    Parameters
    ----------
    records : what it holds, in words for an error: ``"records grouped by person"``.
    operations : the groups of operations (:mod:`sordino.kernel.query`) that its records have.
    lattice : it can take sums of integers record by record, for noise that is safe in floating point.
    doubles : it takes other sums in doubles, for which errors are written down.
    roundings : errors of its sums are those of so many records at least; persons may have several each.
    samplings : the kinds of batches it can draw; none means all.
    sums_only : it adds up the answers of several holders: only sums with independent Gaussian noise.
    in_parts : its records lie in several places: only sums over records, and public functions of these.
    parts : the numbers of records of the places that find their own rows of a batch; none for one place.
    remedy : what a user can do instead.
    """

    records: str
    operations: tuple[type, ...]
    lattice: bool = False
    doubles: bool = True
    roundings: int = 0
    samplings: tuple[type, ...] = ()
    sums_only: bool = False
    in_parts: bool = False
    parts: tuple[int, ...] = ()
    remedy: str = ""

    def unmet(self, release: Release) -> str | None:
        """Return what a release asks for and this executor does not have, in words; None where it fits."""
        query = type(release.query).__name__
        absent = missing(release.query.needs, self.operations)
        if absent:
            return f"{query} needs {' and '.join(absent)}, which is not proven for {self.records}"
        if self.samplings and not isinstance(release.sampling, self.samplings):
            drawn = " or ".join(kind.__name__ for kind in self.samplings)
            return (
                f"{type(release.sampling).__name__} batches cannot be drawn from {self.records}, "
                f"only {drawn} ones"
            )
        if self.in_parts and not (release.query.adds_up or isinstance(release.query, FromSum)):
            return f"{query} is not a sum over records: it needs all rows in one place, not {self.records}"
        if not self.sums_only:
            return self._unmet_lattice(release, query)
        if type(release.mechanism) not in (Gaussian, SymmetricGaussian):
            return f"{type(release.mechanism).__name__} is not independent Gaussian noise on a sum"
        if not release.query.adds_up:
            return f"{query} is not a sum over records, so the answers of {self.records} do not add up"
        return None

    def _unmet_lattice(self, release: Release, query: str) -> str | None:
        if not release.mechanism.secure or (self.lattice and release.in_integers):
            return None
        if not self.doubles:
            return f"secure_noise=True is not proven for {query if self.lattice else self.records}"
        if not hasattr(release.query, "error"):
            return f"secure_noise=True is not proven for {query}"
        if not hasattr(release.mechanism, "privatise_exactly"):
            return f"secure_noise=True is not proven for {type(release.mechanism).__name__}"
        return None


def check_offer(plan: Plan, offer: Offer) -> None:
    """Refuse a plan that asks for more than is offered: one sentence that names release, need and remedy."""
    for name, release in plan.releases.items():
        reason = offer.unmet(release)
        if reason is not None:
            remedy = "Set secure_noise=False." if reason.startswith("secure_noise") else offer.remedy
            raise UnsupportedError(f"Release {name!r} cannot be run: {reason}. {remedy}".rstrip())
        if release.in_integers and release.mechanism.secure and release.mechanism.multiplier == 0:
            raise InvalidInputError("secure_noise needs noise: epsilon=inf has none. Set secure_noise=False.")


@dataclass(frozen=True)
class Question:
    """A release with its parameters, all of it public.

    Parameters
    ----------
    release, params : what is asked.
    sensitivity : how far the answers of neighbours can be apart.
    position : how often the release was asked before.
    population : the number of units, which bounds the integers of a lattice.
    memory : what the run remembers of the noise of this release, where that is correlated.
    integers : the executor can take sums of integers record by record.
    roundings : of how many records the errors of the executor's sums are, at least.
    """

    release: Release
    params: Any
    sensitivity: float
    position: int
    population: int
    memory: Memory | None = field(default=None, repr=False)
    integers: bool = True
    roundings: int = 0

    @property
    def query(self) -> Query:
        """The query of the release."""
        return self.release.query

    @cached_property
    def secure(self) -> bool:
        """Whether the noise is exact. Where there is none, or nothing moves, there is nothing to hide."""
        mechanism = self.release.mechanism
        return mechanism.secure and self.sensitivity > 0 and mechanism.multiplier != 0

    @property
    def lazy(self) -> bool:
        """Whether the asker can use an answer on the touched columns only."""
        points = self.params if isinstance(self.params, tuple) else (self.params,)
        sparse = not any(isinstance(p, np.ndarray) for p in points)
        return self.release.lazy and not self.secure and sparse

    @cached_property
    def spacing(self) -> float | None:
        """The spacing of the lattice of integers that executors add up; None adds up doubles."""
        mechanism, query = self.release.mechanism, self.query
        if not (self.secure and isinstance(mechanism, OnGrid)) or isinstance(query, FromSum):
            return None
        if not (self._truncates or (query.adds_up and isinstance(query, ClippedSum))):
            return None
        spacing = mechanism.lattice(self.sensitivity)
        reach = query.reach(self.params) if isinstance(query, ClippedSum) else 0.0
        if self.population * (max(reach, self.sensitivity) / spacing) > 2**61:
            raise UnsupportedError("secure_noise=True would overflow 64-bit sums for this many records.")
        return spacing

    @cached_property
    def _truncates(self) -> bool:
        return self.integers and self.release.in_integers

    @property
    def _rounding(self) -> Rounding:
        if self.spacing is not None and self._truncates:
            return Rounding(spacing=self.spacing, truncated=True)
        return rounding_of(self.release, self.params, self.spacing, self.population, self.roundings)

    def summed(self, records: Any) -> Answer:
        """Return the exact sum over some records; only what adds the noise to it may see it."""
        if self.spacing is None or self._truncates:
            return exact_sum(self.query, records, self.params, self.spacing)
        return rounded_sum(self.release, records, self.params, self.spacing, self.population)

    def noised(self, total: Any, noise: Any) -> Answer:
        """Return the privatised answer from the sum over all records of the batch."""
        if isinstance(self.query, FromSum) and self.spacing is None:
            total = self.query.finished(total, self.params)
        return self.privatised(total, noise)

    def privatised(self, exact: Any, noise: Any) -> Answer:
        """Return an exact answer with the noise of the release: the one way from the one to the other."""
        mechanism: Any = self.release.mechanism
        if self.secure:  # no executor offers other noise then; to ask for it would take longer than to draw
            return mechanism.privatise_exactly(exact, self.sensitivity, self._rounding, noise)
        if self.memory is not None:
            noise = Remembered(noise, self.memory, self.position)
        return mechanism.privatise(exact, self.sensitivity, noise)

    def room(self, exact: Any) -> float:
        """Return how far apart the noise lets computed answers be: the sensitivity, and room to round."""
        if not self.secure or self._truncates:
            return self.sensitivity
        mechanism, rounding = self.release.mechanism, self._rounding
        corner = mechanism.corner(np.size(exact)) if isinstance(mechanism, OnGrid) else 0.0
        return rounding.widen(self.sensitivity, corner * (rounding.spacing or 0.0))


def exact_sum(query: Any, records: Any, params: Any, spacing: float | None) -> Answer:
    """Return the sum of a query over some records, truncated to a lattice if it has a spacing."""
    if spacing is not None:
        return query.evaluate_on_lattice(records, params, spacing)
    return query.summed(records, params) if isinstance(query, FromSum) else query.evaluate(records, params)


def rounded_sum(release: Release, records: Any, params: Any, spacing: float, population: int) -> Any:
    """Return a sum in doubles, rounded to integers; of very many records, block by block."""
    assert isinstance(release.mechanism, OnGrid)
    size = _block_length(release.query, population)
    parts = [records] if size == population else records.by_position(size)
    values = [release.mechanism.vector(release.query.evaluate(part, params)) for part in parts]
    return sum(to_grid(value, spacing) for value in values)


def rounding_of(
    release: Release, params: Any, spacing: float | None, population: int, roundings: int = 0
) -> Rounding:
    """Return what rounding does to an answer in doubles; rounded sums of neighbours differ in one block."""
    query: Any = release.query  # no executor offers one without an error
    count = population if spacing is None else _block_length(release.query, population)
    return Rounding(query.error(params, max(count, roundings)), spacing, rows=release.rows)


def _block_length(query: Any, population: int) -> int:
    """Return how many positions of records are added up in doubles before they are rounded."""
    return population if population <= WHOLE or not isinstance(query, ClippedSum) else BLOCK
