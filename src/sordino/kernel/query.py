"""Questions about records whose sensitivity is proven."""

from __future__ import annotations

from enum import Enum
from typing import Any, Protocol, runtime_checkable

from sordino.kernel.relation import Relation


class Norm(str, Enum):
    """The norm in which a sensitivity is measured."""

    L1 = "L1"
    L2 = "L2"
    LINF = "Linf"


@runtime_checkable
class Query(Protocol):
    """A function of records with a proven sensitivity.

    ``params`` are public: constants of the plan or values that were released before. The bound may
    depend on them (a difference of gradients shrinks with the distance of the two points).
    ``records`` is what an executor offers: data and the operations it can do fast.
    """

    @property
    def norm(self) -> Norm:
        """The norm of the sensitivity."""

    def contribution(self, params: Any) -> float:
        """Return the largest norm of what one record adds."""

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return the largest distance between the answers on two neighbours."""

    def evaluate(self, records: Any, params: Any) -> Any:
        """Return the exact answer; only a curator may ask for it."""


class ClippedSum:
    """Base of queries that add up one clipped vector per record.

    A record adds a vector of norm at most ``contribution(params)``, so replacing it moves the sum by
    at most twice that (``+C`` becomes ``-C``).
    """

    norm = Norm.L2

    def contribution(self, params: Any) -> float:
        """Return the clip norm; subclasses say which."""
        raise NotImplementedError  # pragma: no cover

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return one contribution, or two when a record is replaced."""
        return relation.contributions * self.contribution(params)
