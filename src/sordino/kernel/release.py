"""Releases and plans: what a solver is going to ask, written down before it sees any data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from dp_accounting import dp_event as dp

from sordino.errors import InvalidInputError, PlanError, UnsupportedError
from sordino.kernel.contracts import AffineViews, ColumnSums, RecordSums, missing
from sordino.kernel.events import check_event, composed
from sordino.kernel.mechanism import Mechanism
from sordino.kernel.quarantine import marks
from sordino.kernel.query import Query
from sordino.kernel.relation import Relation
from sordino.kernel.sampling import Full, Poisson, Sampling
from sordino.kernel.selection import GumbelTopK, LaplaceMax


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
    """

    query: Query
    mechanism: Mechanism
    sampling: Sampling = field(default_factory=Full)
    times: int = 1
    mean: bool = True
    lazy: bool = False

    def __post_init__(self) -> None:
        if self.times < 1:
            raise InvalidInputError(f"Expected a release to be planned at least once, got {self.times}.")
        if self.query.norm not in self.mechanism.norms:
            allowed = " or ".join(norm.value for norm in self.mechanism.norms)
            raise UnsupportedError(
                f"{type(self.mechanism).__name__} needs a sensitivity in {allowed}, "
                f"the query {type(self.query).__name__} has one in {self.query.norm.value}."
            )
        if self.mean and isinstance(self.mechanism, (GumbelTopK, LaplaceMax)):
            raise InvalidInputError("A selection answers with indices, which have no mean. Pass mean=False.")
        touched = (RecordSums, AffineViews, ColumnSums)
        absent = missing(self.query.needs, touched) if self.lazy else []
        if absent:
            raise UnsupportedError(
                f"{type(self.query).__name__} needs {' and '.join(absent)}, which a batch of few columns "
                "does not have. Pass lazy=False."
            )

    def sensitivity(self, relation: Relation, params: Any = None) -> float:
        """Return how far the answers of neighbours can be apart.

        Under Poisson sampling and replace-one the worst pair is (+C, -C) whatever the query: see the
        proof of the dominating pair in the privacy notes.
        """
        if isinstance(self.sampling, Poisson) and self.sampling.rate < 1:
            return relation.contributions * self.query.contribution(params)
        return self.query.sensitivity(relation, params)

    def event(self, relation: Relation, population: int) -> dp.DpEvent:
        """Return the privacy event of all ``times`` releases."""
        single = self.mechanism.event(relation)
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
            single = check_event(release.mechanism.at(1.0).event(self.relation))
            check_event(release.sampling.amplify(single, release.times, self.relation, self.population))

    @property
    def is_calibrated(self) -> bool:
        """Whether every mechanism has its noise multiplier."""
        return all(r.mechanism.multiplier is not None for r in self.releases.values())

    @property
    def printed(self) -> tuple[str, ...]:
        """The names of the parts that are not proven here; a curator wants to hear them from its caller."""
        parts = [(r.query, r.mechanism, r.sampling) for r in self.releases.values()]
        return tuple(dict.fromkeys(mark for part in parts for mark in marks(*part)))

    def at(self, scale: float) -> Plan:
        """Return this plan with every multiplier set to ``scale`` times its relative size."""
        releases = {
            name: replace(r, mechanism=r.mechanism.at(scale * r.mechanism.relative))
            for name, r in self.releases.items()
        }
        return replace(self, releases=releases)

    def event(self) -> dp.DpEvent:
        """Return the privacy event of the whole plan."""
        if not self.is_calibrated:
            raise PlanError("The plan has no noise multipliers yet. Call accounting.calibrate first.")
        events = [r.event(self.relation, self.population) for r in self.releases.values()]
        return check_event(composed(events))
