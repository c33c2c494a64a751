"""Queries: functions of records with a proven sensitivity."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar, Protocol, runtime_checkable

from sordino.kernel.arrays import Ints
from sordino.kernel.contracts import Answer, RecordSums
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
    ``records`` is what an executor offers: data and the operations it can do fast. ``needs`` names the groups
    of operations (:mod:`sordino.kernel.contracts`) that :meth:`evaluate` uses, and nothing else may be used;
    ``adds_up`` says that the answer on some records plus that on others is the answer on all of them.
    """

    needs: ClassVar[tuple[type, ...]]

    @property
    def adds_up(self) -> bool:
        """Whether the query is a sum over records."""

    @property
    def norm(self) -> Norm:
        """The norm of the sensitivity."""

    def contribution(self, params: Any) -> float:
        """Return the largest norm of what one record adds."""

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return the largest distance between the answers on two neighbours."""

    def evaluate(self, records: Any, params: Any) -> Answer:
        """Return the exact answer; only a curator may ask for it."""


class OnLattice:
    """Base of queries that can add up their contributions in integers, without any rounding error."""

    @property
    def exact(self) -> bool:
        """Whether the query as it is configured can."""
        return True

    def evaluate_on_lattice(self, records: Any, params: Any, spacing: float) -> Ints:
        """Return the sum of contributions truncated towards zero to multiples of ``spacing``."""
        raise NotImplementedError  # pragma: no cover


class FromSum:
    """Base of queries whose answer is a public function of a sum over records: the sum of parts will do."""

    def summed(self, records: Any, params: Any) -> Answer:
        """Return the sum over these records."""
        raise NotImplementedError  # pragma: no cover

    def finished(self, total: Answer, params: Any) -> Answer:
        """Return the answer, from the sum over all records and what is public."""
        raise NotImplementedError  # pragma: no cover

    def evaluate(self, records: Any, params: Any) -> Answer:
        """Return the exact answer."""
        return self.finished(self.summed(records, params), params)


class ClippedSum:
    """Base of queries that add up one clipped vector per record.

    A record adds a vector of norm at most ``contribution(params)``, so replacing it moves the sum by
    at most twice that (``+C`` becomes ``-C``).
    """

    needs: ClassVar[tuple[type, ...]] = (RecordSums,)  # what is not declared is not proven for persons
    shortcuts: ClassVar[tuple[type, ...]] = ()
    norm = Norm.L2

    @property
    def adds_up(self) -> bool:
        """True, where a subclass does not say otherwise."""
        return True

    def contribution(self, params: Any) -> float:
        """Return the clip norm; subclasses say which."""
        raise NotImplementedError  # pragma: no cover

    def reach(self, params: Any) -> float:
        """Return how large the terms are that are added up for a record; a difference has larger ones."""
        return self.contribution(params)

    def evaluate(self, records: Any, params: Any) -> Answer:
        """Return the sum; subclasses say of what."""
        raise NotImplementedError  # pragma: no cover

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return one contribution, or two when a record is replaced."""
        return relation.contributions * self.contribution(params)
