"""Queries, functions of records with a proven sensitivity, and the clipped gradient that most of them use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

import numba
import numpy as np

from sordino.errors import InvalidInputError
from sordino.kernel.arrays import Floats, Ints, compile_with_cache, public_norm
from sordino.kernel.clip import check_bound, clip_scalar, limit, times_factor
from sordino.kernel.clip.doubles import clipped_scalars
from sordino.kernel.events import Relation
from sordino.kernel.lazy import SparseVector, TouchMap

# A group is a protocol. A query takes its records as one, and so needs it (:class:`Bounded`); an executor
# names groups in its :class:`sordino.kernel.Offer`. The two are compared once, before anything is booked.
# Groups in ``shortcuts`` are used where records have them, and done without elsewhere.

Point: TypeAlias = Floats | SparseVector
"""Coefficients that are public: constants, or released before."""
Answer: TypeAlias = Any
"""What a query returns and a mechanism adds noise to: an array, a sparse vector, a tensor."""


@dataclass(frozen=True, eq=False)
class PublicMap:
    r"""The map ``x -> clip_1(scale * (x - shift))``, with a constant ``intercept`` entry behind it.

    All its numbers are public: released before, or constants. With ``columns`` its entries stand for these
    columns only. The others are dropped; or, with ``rest``, they are all multiplied by that one number and
    not shifted, so that a map of very many columns is a short list.
    """

    shift: Floats
    scale: Floats
    intercept: float
    columns: Ints | None = None
    rest: float | None = None

    def __post_init__(self) -> None:
        for name in ("shift", "scale", "columns"):  # records remember a map by the object and clip for it
            if (values := getattr(self, name)) is not None:
                own = np.array(values)
                own.flags.writeable = False
                object.__setattr__(self, name, own)

    @cached_property
    def offset(self) -> float:
        """The norm of the scaled shift."""
        return public_norm(self.scale * self.shift)

    @property
    def floor(self) -> float:
        """A mapped row counts as at least this long: much shorter ones are differences of large numbers."""
        return 2.0**-10 * self.offset

    @property
    def listed(self) -> Ints:
        """The columns that have entries."""
        return np.arange(self.scale.size) if self.columns is None else self.columns

    def pick(self, columns: Ints) -> Self:
        """Return the map of some columns, in this order, as if there were no others."""
        slots = TouchMap.of(self.listed).slots(columns)  # -1, the last, for those that are not listed
        rest = 0.0 if self.rest is None else self.rest
        shift, scale = np.append(self.shift, 0.0)[slots], np.append(self.scale, rest)[slots]
        return replace(self, shift=shift, scale=scale, columns=None, rest=None)


@dataclass(frozen=True)
class PublicBall:
    """Where rows are measured from (None: the origin) and how far one may be: both public or released."""

    radius: float
    center: Floats | None = None

    def __post_init__(self) -> None:
        if not 0 < self.radius < math.inf:
            raise InvalidInputError(
                f"Expected a radius in (0, inf), got {self.radius}. Pass a public bound on the row norms."
            )


class Records(Protocol):
    """What is known of each record: target, clipped norm (nan where it is not finite), weight of its loss."""

    targets: Floats
    norms: Floats
    weights: Floats | None


class Margins(Records, Protocol):
    """The margins of records."""

    def margins(self, w: Point) -> Floats:
        """Return ``x_i . w`` of each record, one column per output for a matrix ``w``."""


class RowSums(Margins, Protocol):
    """Sums of the rows."""

    def weighted_sum(self, coefficients: Floats) -> Answer:
        """Return ``sum_i c_i x_i``."""


class UnitSums(Margins, Protocol):
    """Sums of one bounded vector per unit of privacy: a record, or a person with several of them."""

    def unit_sum(self, coefficients: Floats, bound: float) -> Answer:
        """Return ``sum_i c_i x_i``, the part of each unit at most ``bound`` long.

        The coefficients bound each record already; a person's sum is clipped once more.
        """


class RecordSums(UnitSums, RowSums, Protocol):
    """Sums over single records, where a record is the unit; batches of few columns can do these too."""

    peaks: Floats


LOGISTIC, NUMBERS = 0, 1
"""Labels -1 and 1 with log odds; numbers, their errors cut at a threshold."""


@dataclass(frozen=True)
class Pull:
    r"""``clip_C`` of the residual of one record, in units of ``unit``.

    Parameters
    ----------
    kind : the loss, :data:`LOGISTIC` or :data:`NUMBERS`.
    clip : the norm C of what a record adds, at least 2^-400 (:func:`~sordino.kernel.clip.check_bound`).
    fair : whether a record is weighed first, so that neither label would be clipped; of log odds only.
    longest : margins are those of rows before their clip, up to so many times as long; 1 for clipped ones.
    unit : of the targets, and of margins that predict numbers.
    threshold : where errors of numbers are cut.
    constant : nobody looks at more of the sum than its constant entry.
    """

    kind: int
    clip: float
    fair: bool = False
    longest: float = 1.0
    unit: float = 1.0
    threshold: float = math.inf
    constant: bool = False

    @property
    def numbers(self) -> tuple[int, float, float, bool, float, float]:
        """The fields as numbers for the compiled passes: the clip comes with its limit."""
        return self.kind, self.clip, limit(self.clip), self.fair, self.unit, self.threshold


class OnePass(Protocol):
    """A clipped gradient from rows that are read once, each record clipped: persons' records have none."""

    def clipped_gradient(self, w: Point, pull: Pull) -> Answer:
        """Return ``sum_i clip_C(r_i x_i)``, one output."""


class StoredRows(Protocol):
    """Rows as they are stored, and the factors that clip them: for passes that make no copy."""

    stored: tuple[Any, Floats]


class PartedRows(RowSums, Protocol):
    """The rows themselves, block by block; a row may stand for a part of its unit.

    A query that needs no more than this adds for each row ``parts[i]`` of what the row would add as a record
    of its own. The parts of a unit add up to one at most, so all its rows together add a convex combination
    of what records add, or a part of one: bounds of records, and of replaced ones, hold for persons.
    """

    count: int
    parts: Floats | None

    def scaled_rows(self, coefficients: Floats) -> Iterator[tuple[slice, Any]]:
        """Yield ``c_i x_i`` in blocks of rows."""

    def weighted_norms(self, weights: Floats | float) -> Floats:
        """Return upper bounds of the norms of the rows times column weights."""


class RowBlocks(RecordSums, PartedRows, Protocol):
    """Rows that are records: none is a part of another unit."""


class PartedArrays(PartedRows, Protocol):
    """Blocks of :class:`PartedRows` that are arrays; sparse rows stay sparse and do not offer this."""


class DenseRows(RowBlocks, PartedArrays, Protocol):
    """Blocks of rows that are arrays, and records."""


class MappedRows(RowSums, Protocol):
    """Rows after a public affine map and a clip: their sizes before the clip, and the factors of it."""

    sizes: Floats
    factors: Floats

    def gram(self, factors: Floats) -> Floats:
        """Return ``sum_i f_i z_i z_i^T``, the constant entry left out, symmetric to the last bit."""


class AffineViews(Records, Protocol):
    """Rows through a public affine map; their ``parts`` where they are parts of persons, None for records."""

    parts: Floats | None

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

    def restrict(self, columns: Ints) -> GramSums:
        """Return these records with only some columns."""


class Parts(Protocol):
    """Records that can be split by position."""

    count: int

    def part(self, index: int, parts: int) -> Any:
        """Return block number ``index`` of ``parts`` blocks."""

    def subset(self, rows: Ints) -> Any:
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


class TensorShards(Protocol):
    """Inputs and targets of one of several processes, which run all passes together."""

    def blocks(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield (inputs, targets, present) of some records; every process has as many blocks of one size."""

    @property
    def places(self) -> int:
        """The places of a block in all processes together."""

    def between(self, block: tuple[Any, ...], low: int, high: int) -> tuple[Any, Any, Any]:
        """Return a block with made-up records, which count zero, outside of some places."""

    def is_finite(self, value: Any) -> bool:
        """Tell whether a sum is finite in all processes."""


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
    Exact noise needs ``error(params, count)`` too: how far the answer on so many records in doubles is from
    the exact one.
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


def check_clip(clip: float) -> None:
    """Refuse a clip norm that bounds nothing."""
    check_bound("clip_norm", clip, "Pass a public bound on a record's gradient norm.")


class Bounded:
    """Base of queries to which a record adds a vector of norm at most ``contribution(params)``.

    They need of records the group that ``evaluate`` (or ``summed``) is typed to take. mypy checks that no
    other is used; a class that needs several groups names them in ``needs``.

    **Privacy.** The type says for which units the sensitivity is proven: no other executor answers. Replacing
    a record moves a sum by at most twice a contribution (``+C`` becomes ``-C``).
    """

    needs: ClassVar[tuple[type, ...]] = (RecordSums,)  # what is not declared is not proven for persons
    clip: float

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = vars(cls)
        reader = own.get("summed", own.get("evaluate"))
        if reader is not None and "needs" not in own:
            said = reader.__annotations__.get("records", Any)
            group = reader.__globals__[said] if isinstance(said, str) and said.isidentifier() else said
            if getattr(group, "_is_protocol", False):
                cls.needs = (group,)

    def __post_init__(self) -> None:
        for name in vars(self):
            if name.endswith("clip"):
                check_clip(getattr(self, name))

    def contribution(self, params: Any) -> float:
        """Return the clip; a query whose bound is another one says which."""
        return self.clip

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return one contribution, or two when a record is replaced."""
        return relation.contributions * self.contribution(params)


class FromSum(Bounded):
    """Base of queries whose answer is a public function of a sum over records, which parts can add up to."""

    def summed(self, records: Any, params: Any) -> Answer:
        """Return the sum over these records."""
        raise NotImplementedError  # pragma: no cover

    def finished(self, total: Answer, params: Any) -> Answer:
        """Return the answer, from the sum over all records and what is public."""
        raise NotImplementedError  # pragma: no cover

    def evaluate(self, records: Any, params: Any) -> Answer:
        return self.finished(self.summed(records, params), params)


class ClippedSum(Bounded):
    """Base of queries that add up one clipped vector per record."""

    shortcuts: ClassVar[tuple[type, ...]] = ()
    adds_up: ClassVar[bool] = True
    norm = Norm.L2

    def reach(self, params: Any) -> float:
        """Return how large the terms are that are added up for a record; a difference has larger ones."""
        return self.contribution(params)

    def error(self, params: Any, count: int) -> float:
        """Return how far the answer on ``count`` records in doubles is from the exact one."""
        return summation_error(count, self.reach(params))

    def evaluate(self, records: Any, params: Any) -> Answer:
        """Return the sum; subclasses say of what."""
        raise NotImplementedError  # pragma: no cover


class OneCount(ClippedSum):
    """Base of counts, and of sums like them: no two vectors that records can add point apart.

    **Privacy.** A record adds a vector of norm at most ``sqrt(counts)`` (one to each of so many counts, or
    the square ``y y^T`` of a row as one), and the product of two such vectors is never negative. So
    replacing a record moves the sum by at most ``sqrt(2 counts)``.
    """

    @property
    def counts(self) -> int:
        """How many counts a record is in."""
        return 1

    def contribution(self, params: Any) -> float:
        return math.sqrt(self.counts)

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return sqrt(counts), or sqrt(2 counts) when a record moves from some counts to others."""
        return math.sqrt(relation.contributions * self.counts)


# The pull of a record on the coefficients: the scalar that its row is multiplied by in a clipped gradient.
# Margin, residual, fair weight and clip are one compiled function, so that a gradient can be one pass over
# the rows. The clip is that of :mod:`sordino.kernel.clip`.

# 1 / ln 2, ln 2 in two parts, and a number whose last bit is worth one.
_BITS, _LN_2, _LN_2_LOW, _ROUND = (
    1.4426950408889634,
    6.93147180369123816490e-01,
    1.90821492927058770002e-10,
    1.5 * 2.0**52,
)


@numba.njit(inline="always", error_model="numpy")
def error_of(margin: float, y: float, unit: float, threshold: float) -> float:
    """Return the error of a number, cut at the threshold; what is not a number stays as it is."""
    error = margin * unit - y
    return math.copysign(threshold, error) if abs(error) > threshold else error


@compile_with_cache(nogil=True, error_model="numpy", fastmath={"contract"})
def _exponentials(values: Any) -> None:
    """Write exp over values of at most 0, within 4e-16 of it: four times as quick as one call for each.

    ``exp(x) = 2^k exp(r)`` with ``|r| <= ln(2) / 2``; k stands in the last bits of a sum with 1.5 2^52. Below
    -700 it is exp(-700); what is not a number stays as it is.
    """
    whole, powers = np.empty(values.size), np.empty(values.size, dtype=np.int64)
    for j in range(values.size):
        x = -700.0 if values[j] < -700.0 else values[j]
        whole[j] = x * _BITS + _ROUND
        k = whole[j] - _ROUND
        r = (x - k * _LN_2) - k * _LN_2_LOW
        series = 1.0
        for divisor in (13.0, 12.0, 11.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0):
            series = 1.0 + series * r * (1.0 / divisor)
        values[j] = series
    bits, factors = whole.view(np.int64), powers.view(np.float64)
    for j in range(values.size):
        powers[j] = (bits[j] + 1023) << 52
    for j in range(values.size):
        values[j] *= factors[j]


@compile_with_cache(nogil=True, error_model="numpy")
def write_residuals(pull: Any, margins: Any, targets: Any, largest: Any) -> None:
    """Write residuals over margins, and the largest that either label would have (1 for numbers).

    Labels are signs. Short loops do several records at a time.
    """
    kind, _, _, _, unit, threshold = pull
    if kind == NUMBERS:
        for j in range(margins.size):
            margins[j] = error_of(margins[j], targets[j], unit, threshold)
            largest[j] = 1.0
    else:
        for j in range(margins.size):
            largest[j] = -abs(targets[j] * margins[j])
        _exponentials(largest[: margins.size])
        for j in range(margins.size):
            size = 1.0 / (1.0 + largest[j])
            part = largest[j] if targets[j] * margins[j] > 0.0 else 1.0
            margins[j] = -targets[j] * (part * size)
            largest[j] = size
    if unit != 1.0:
        for j in range(margins.size):
            margins[j] /= unit


@compile_with_cache(nogil=True, error_model="numpy")
def clip_residuals(pull: Any, margins: Any, largest: Any, targets: Any, weights: Any, norms: Any) -> None:
    """Write clipped residuals over margins; ``largest`` is room for as many numbers."""
    _, bound, most, fair, _, _ = pull
    write_residuals(pull, margins, targets, largest)
    if weights.size:
        for j in range(margins.size):
            margins[j] *= weights[j]
    if fair:
        for j in range(margins.size):
            margins[j] *= min(1.0, bound / (norms[j] * largest[j]))
    for j in range(margins.size):
        margins[j] = clip_scalar(margins[j], norms[j], most)


@compile_with_cache(nogil=True, fastmath={"reassoc", "nsz"})
def _sums(scalars: Any, shorter: Any) -> tuple[float, float]:
    total = shifted = 0.0
    for j in range(scalars.size):
        total += scalars[j]
        shifted += scalars[j] * shorter[j]
    return total, shifted


@compile_with_cache(nogil=True, error_model="numpy")
def pull_rows(
    pull: Any, margins: Any, largest: Any, targets: Any, weights: Any, norms: Any, shorter: Any, scale: Any
) -> tuple[float, float]:
    """Write the factor of each stored row over its margin; ``largest`` is room for as many numbers.

    A row enters by ``clip * shorter * scale``. Returns the sums of ``clip`` and of ``clip * shorter``: what
    multiplies a constant entry, and what a shift.
    """
    clip_residuals(pull, margins, largest, targets, weights, norms)
    sums = _sums(margins, shorter)
    for j in range(margins.size):
        margins[j] = times_factor(margins[j] * shorter[j], scale[j])
    return sums


def pull_scalars(pull: Pull, margins: Any, targets: Any, weights: Any, norms: Any) -> Any:
    """Return the clipped scalars of records whose numbers are tensors on a device."""
    if pull.kind == NUMBERS:
        error = margins * pull.unit - targets
        value, largest = error.clamp(-pull.threshold, pull.threshold) / pull.unit, None
    else:
        against = targets.neg()
        along = against * margins
        value, largest = against * along.sigmoid() / pull.unit, along.abs().sigmoid()
    value = value if weights is None else value * weights
    if pull.fair and largest is not None:
        value = value * (pull.clip / (norms * largest)).clamp(max=1.0)
    return clipped_scalars(value, norms, pull.clip)


def shares_of(records: Any) -> Any:
    """Return what each record counts for: its part of a person times its weight; None where all count as 1.

    A weight beyond 1 counts as 1, one that is no number as 0.
    """
    given, parts = getattr(records, "weights", None), records.parts
    if given is None:
        return parts
    own = np.clip(np.nan_to_num(np.asarray(given, dtype=np.float64)), 0.0, 1.0)
    return own if parts is None else own * parts


def as_weights(weights: Any) -> Any:
    """Return weights of records for the compiled passes, which take none for an empty array."""
    return np.empty(0) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
