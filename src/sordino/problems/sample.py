"""The public facts of an estimation task on a table of numbers."""

from __future__ import annotations

from dataclasses import dataclass

from sordino.kernel import Gaussian, Plan, Relation, Release


@dataclass(frozen=True)
class Sample:
    """The public facts of an estimation task.

    Parameters
    ----------
    population : the public number of records.
    columns : numbers per record.
    relation : the neighbouring relation.
    unit : what a neighbour differs in.
    secure_noise : use noise on a lattice.
    """

    population: int
    columns: int
    relation: Relation
    unit: str = "record"
    secure_noise: bool = False

    def gaussian(self, relative: float = 1.0) -> Gaussian:
        """Return the noise of a vector release, not yet calibrated."""
        return Gaussian(relative=relative, secure=self.secure_noise)

    def planned(self, **releases: Release) -> Plan:
        """Return the plan of these releases."""
        return Plan(releases, self.relation, self.population, self.unit)
