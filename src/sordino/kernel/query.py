"""Queries: functions of records with a proven sensitivity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.events import Relation
from sordino.kernel.lazy import SparseVector

# A group is a protocol. A query names groups in ``needs`` and takes its records as one of them; an executor
# names groups in its :class:`sordino.kernel.Offer`. The two are compared once, before anything is booked.
# Groups in ``shortcuts`` are used where records have them, and done without elsewhere.

Point: TypeAlias = Floats | SparseVector
"""Coefficients that are public: constants, or released before."""
Answer: TypeAlias = Any
"""What a query returns and a mechanism adds noise to: an array, a sparse vector, a tensor."""


class PublicMap(Protocol):
    """A public affine map ``x -> clip_1(scale * (x - shift))`` with a constant entry behind it.

    With ``columns`` it has entries for these only: the others are dropped, or have the scale ``rest``.
    """

    @property
    def shift(self) -> Floats: ...

    @property
    def scale(self) -> Floats: ...

    @property
    def intercept(self) -> float: ...

    @property
    def floor(self) -> float: ...

    @property
    def columns(self) -> Ints | None: ...

    @property
    def rest(self) -> float | None: ...

    def picked(self, columns: Ints) -> PublicMap:
        """Return the map of some columns, as if there were no others."""


class PublicBall(Protocol):
    """Where rows are measured from (None: the origin) and how far one may be."""

    @property
    def radius(self) -> float: ...

    @property
    def center(self) -> Floats | None: ...


class Records(Protocol):
    """What is known of each record: target, clipped norm (nan where it is not finite), weight of its loss."""

    @property
    def targets(self) -> Floats: ...

    @property
    def norms(self) -> Floats: ...

    @property
    def weights(self) -> Floats | None: ...


class UnitSums(Records, Protocol):
    """Sums of one bounded vector per unit of privacy: a record, or a person with several of them."""

    def margins(self, w: Point) -> Floats:
        """Return ``x_i . w`` of each record, one column per output for a matrix ``w``."""

    def unit_sum(self, coefficients: Floats, bound: float) -> Answer:
        """Return ``sum_i c_i x_i``, the part of each unit at most ``bound`` long.

        The coefficients bound each record already; a person's sum is clipped once more.
        """


class RecordSums(UnitSums, Protocol):
    """Sums over single records, where a record is the unit; batches of few columns can do these too."""

    @property
    def peaks(self) -> Floats: ...

    def weighted_sum(self, coefficients: Floats) -> Answer:
        """Return ``sum_i c_i x_i``."""


class OnePass(Protocol):
    """A clipped gradient from rows that are read once, each record clipped: persons' records have none."""

    def clipped_gradient(self, w: Point, pull: Any) -> Answer:
        """Return ``sum_i clip_C(r_i x_i)``, one output, for a :class:`~sordino.kernel.pull.Pull`."""


class RowBlocks(RecordSums, Protocol):
    """The rows themselves, block by block."""

    @property
    def count(self) -> int: ...

    def scaled_rows(self, coefficients: Floats) -> Iterator[tuple[slice, Any]]:
        """Yield ``c_i x_i`` in blocks of rows."""

    def weighted_norms(self, weights: Floats | float) -> Floats:
        """Return upper bounds of the norms of the rows times column weights."""


class DenseRows(RowBlocks, Protocol):
    """Blocks of rows that are arrays: sparse rows stay sparse and do not offer this."""


class MappedRows(Records, Protocol):
    """Rows after a public affine map and a clip: their sizes before the clip, and the factors of it."""

    @property
    def sizes(self) -> Floats: ...

    @property
    def factors(self) -> Floats: ...

    def margins(self, w: Point) -> Floats:
        """Return the margins of the mapped rows."""

    def weighted_sum(self, coefficients: Floats) -> Answer:
        """Return the weighted sum of the mapped rows."""

    def gram(self, factors: Floats) -> Floats:
        """Return ``sum_i f_i z_i z_i^T``, the constant entry left out, symmetric to the last bit."""


class AffineViews(Records, Protocol):
    """Rows through a public affine map."""

    def through(self, affine: PublicMap) -> MappedRows:
        """Return these rows mapped."""

    def within(self, columns: Ints | None) -> Any:
        """Return these records with some columns and the intercept; None keeps all."""


class ColumnSums(Protocol):
    """Sums of the columns."""

    def column_moments(self, square: bool = False) -> tuple[Answer, Answer]:
        """Return the sums of the columns and of their absolute values, or squares."""


class GramSums(Protocol):
    """Sums of ``y y^T`` of the rows y measured in a ball."""

    def gram(self, ball: PublicBall) -> Floats:
        """Return ``sum_i y_i y_i^T``."""

    def gram_product(self, matrix: Floats, ball: PublicBall) -> Floats:
        """Return ``sum_i y_i (y_i^T matrix)``."""

    def moments(self, ball: PublicBall) -> tuple[Floats, float]:
        """Return ``sum_i y_i`` and ``sum_i ||y_i||^2``."""

    def squared_columns(self, ball: PublicBall) -> Floats:
        """Return ``sum_i y_ij^2`` for each column j."""

    def restricted(self, columns: Ints) -> GramSums:
        """Return these records with only some columns."""


class Parts(Protocol):
    """Records that can be split by position."""

    @property
    def count(self) -> int: ...

    def part(self, index: int, parts: int) -> Any:
        """Return block number ``index`` of ``parts`` blocks."""

    def taken(self, rows: Ints) -> Any:
        """Return some of the records, by position."""


class TensorChunks(Protocol):
    """Inputs and targets as tensors."""

    def chunks(self) -> Iterator[tuple[Any, Any]]:
        """Yield (inputs, targets) of some records at a time."""


class TensorPersons(Protocol):
    """Inputs and targets of persons with several records, as tensors; a person is the unit of privacy."""

    def blocks(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield (inputs, targets, present) of some persons at a time.

        ``present`` is (persons, places): 1 where a place holds a record, 0 where it fills up. The places of
        a person lie behind each other.
        """

    def long(self) -> Iterator[Iterator[tuple[Any, Any]]]:
        """Yield the persons with more records than fit at once: each as (inputs, targets) of its parts."""

    def each(self) -> Iterator[Iterator[tuple[Any, Any]]]:
        """Yield all persons in parts: what one of them looks like depends on no other."""


class ValueColumns(Protocol):
    """Columns of a table as they are: each record has at most one value in each."""

    def numbers(self, column: int) -> Floats:
        """Return the numbers of a column, one per record; nan where there is none."""

    def counts(self, column: int) -> dict[str, int]:
        """Return how many records have each text that occurs in a column."""


class ClientUpdates(Protocol):
    """One answer per client; the unit is a client with everything it holds."""

    def __iter__(self) -> Iterator[Any]: ...


def missing(needs: Iterable[type], offered: Iterable[type]) -> list[str]:
    """Return the names of the needed groups that no offered group is or extends."""
    known = {kind for group in offered for kind in group.__mro__}
    return [need.__name__ for need in needs if need not in known]


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
    of operations (:mod:`sordino.kernel.query`) that :meth:`evaluate` uses, and nothing else may be used;
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


WHOLE, BLOCK = 1 << 18, 1 << 16
"""Up to WHOLE records are added up in doubles; of more, the rounded sums of BLOCK positions each."""


def summation_error(count: int, reach: float) -> float:
    r"""Return how far a sum of ``count`` vectors in doubles is from the exact one, in any order.

    A coordinate errs by at most ``g / (1 - g)`` times the sum of its magnitudes, ``g = (count + 16) 2^-53``,
    the 16 for products on the way. Magnitudes have the norms of the vectors, at most ``reach`` each.
    """
    return 2.0 * count * (count + 16) * 2.0**-53 * reach


class FromSum:
    """Base of queries whose answer is a public function of a sum over records: the sum of parts will do."""

    def summed(self, records: Any, params: Any) -> Answer:
        """Return the sum over these records."""
        raise NotImplementedError  # pragma: no cover

    def finished(self, total: Answer, params: Any) -> Answer:
        """Return the answer, from the sum over all records and what is public."""
        raise NotImplementedError  # pragma: no cover

    def evaluate(self, records: Any, params: Any) -> Answer:
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

    def error(self, params: Any, count: int) -> float:
        """Return how far the answer on ``count`` records in doubles is from the exact one."""
        return summation_error(count, self.reach(params))

    def evaluate(self, records: Any, params: Any) -> Answer:
        """Return the sum; subclasses say of what."""
        raise NotImplementedError  # pragma: no cover

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return one contribution, or two when a record is replaced."""
        return relation.contributions * self.contribution(params)


class OneCount(ClippedSum):
    """Base of counts, and of sums like them: no two vectors that records can add point apart.

    **Privacy.** A record adds a vector of norm at most one (one to one count, or the square ``y y^T`` of a
    row), and the product of two such vectors is never negative. So replacing a record moves the sum by at
    most ``sqrt(1 + 1)``.
    """

    def contribution(self, params: Any) -> float:
        """Return 1."""
        return 1.0

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return 1, or sqrt 2 when a record moves from one count to another."""
        return math.sqrt(relation.contributions)
