"""What an executor can do, and the check of a plan against it before anything is booked."""

from __future__ import annotations

from dataclasses import dataclass

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.contracts import missing
from sordino.kernel.matrix import SymmetricGaussian
from sordino.kernel.mechanism import Gaussian
from sordino.kernel.query import FromSum, OnLattice
from sordino.kernel.release import Plan, Release


@dataclass(frozen=True)
class Offer:
    """The declaration of an executor.

    Parameters
    ----------
    records : what it holds, in words for an error: ``"records grouped by person"``.
    operations : the groups of operations (:mod:`sordino.kernel.contracts`) that its records have.
    lattice : it can take sums in integers, for noise that is safe in floating point.
    samplings : the kinds of batches it can draw; none means all.
    sums_only : it adds up the answers of several holders: only sums with independent Gaussian noise.
    in_parts : its records lie in several places: only sums over records, and public functions of these.
    parts : the numbers of records of the places that find their own rows of a batch; none for one place.
    remedy : what a user can do instead.
    """

    records: str
    operations: tuple[type, ...]
    lattice: bool = False
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
        return self._unmet_sum(release, query) if self.sums_only else self._unmet_lattice(release, query)

    def _unmet_sum(self, release: Release, query: str) -> str | None:
        if type(release.mechanism) not in (Gaussian, SymmetricGaussian):
            return f"{type(release.mechanism).__name__} is not independent Gaussian noise on a sum"
        if not release.query.adds_up:
            return f"{query} is not a sum over records, so the answers of {self.records} do not add up"
        return None

    def _unmet_lattice(self, release: Release, query: str) -> str | None:
        if not release.mechanism.secure:
            return None
        exact = isinstance(release.query, OnLattice) and release.query.exact
        if self.lattice and exact:
            return None
        return f"secure_noise=True is not proven for {query if self.lattice else self.records}"


def check_offer(plan: Plan, offer: Offer) -> None:
    """Refuse a plan that asks for more than is offered: one sentence that names release, need and remedy."""
    for name, release in plan.releases.items():
        reason = offer.unmet(release)
        if reason is not None:
            remedy = "Set secure_noise=False." if reason.startswith("secure_noise") else offer.remedy
            raise UnsupportedError(f"Release {name!r} cannot be run: {reason}. {remedy}".rstrip())
        if release.mechanism.secure and release.mechanism.multiplier == 0:
            raise InvalidInputError("secure_noise needs noise: epsilon=inf has none. Set secure_noise=False.")
