"""What a data set may be asked in total, and the names a ledger accepts."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from sordino.accounting.conversions import SMALLEST_DELTA
from sordino.errors import InvalidInputError, PolicyMismatchError
from sordino.kernel.events import Relation
from sordino.values import check_number

MOST_NAME = 200
MOST_TEXT = 2000


@dataclass(frozen=True)
class BudgetPolicy:
    """The privacy budget of a data set: everything released from it together.

    Parameters
    ----------
    epsilon, delta : the guarantee of all releases together. ``epsilon=inf`` allows releases without noise;
        ``delta=0`` allows pure mechanisms only.
    relation : which data sets count as neighbours. A plan made for another relation is refused.
    unit : whom the guarantee protects, for example ``"record"`` or ``"person"``.

    Examples
    --------
    >>> BudgetPolicy(epsilon=2.0, delta=1e-6, unit="person").relation.value
    'add-remove'
    """

    epsilon: float
    delta: float
    relation: Relation = Relation.ADD_REMOVE
    unit: str = "record"

    def __post_init__(self) -> None:
        epsilon, delta = check_number("epsilon", self.epsilon), check_number("delta", self.delta)
        if not epsilon > 0:
            raise InvalidInputError(
                f"Expected a budget epsilon > 0, got {epsilon}. A data set that nothing may be "
                "asked of needs no budget."
            )
        if not 0 <= delta < 1:
            raise InvalidInputError(
                f"Expected a budget delta in [0, 1), got {delta}. Take it well below one over "
                "the number of records."
            )
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)
        object.__setattr__(self, "relation", Relation.parse(self.relation))
        object.__setattr__(self, "unit", name(self.unit, "unit"))

    def require(self, relation: Relation | str, unit: str) -> None:
        """Refuse a guarantee that is stated for other neighbours than the budget.

        An add-remove guarantee is about half as strong under replace-one, and a record's may say
        nothing about a person who has many; neither is converted silently.
        """
        relation = Relation.parse(relation)
        if relation is not self.relation:
            raise PolicyMismatchError(
                f"The plan protects under relation {relation.value!r}, the budget under "
                f"{self.relation.value!r}. Plan with relation={self.relation.value!r}."
            )
        if name(unit, "unit") != self.unit:
            raise PolicyMismatchError(
                f"The plan protects the unit {unit!r}, the budget the unit {self.unit!r}. "
                f"Plan for one {self.unit!r}, or book on a data set whose budget protects one {unit!r} "
                f"(sordino ledger create ... --unit {unit})."
            )


def name(value: object, what: str) -> str:
    """Return a printable name in Unicode's composed form, as two spellings are one name, or refuse it."""
    if not isinstance(value, str):
        raise InvalidInputError(f"Expected {what} to be a string, got a {type(value).__name__}.")
    result = unicodedata.normalize("NFC", value)
    if not 0 < len(result) <= MOST_NAME or not result.isprintable() or result != result.strip():
        raise InvalidInputError(
            f"Expected {what} of 1 to {MOST_NAME} printable characters without spaces around it, "
            f"got {value[:MOST_NAME]!r}."
        )
    return result


def text(value: object, what: str) -> str:
    """Return a short free text (it may be empty), or refuse it."""
    if not isinstance(value, str):
        raise InvalidInputError(f"Expected {what} to be a string, got a {type(value).__name__}.")
    if len(value) > MOST_TEXT or not value.replace("\n", " ").isprintable():
        raise InvalidInputError(
            f"Expected {what} of at most {MOST_TEXT} printable characters, got {len(value)}."
        )
    return value


# ------------------------------------------ The privacy filter: when a data set may be asked one thing more
# Fits are chosen after looking at earlier results, so the amount spent is itself random, and adding up
# guarantees that were fixed in advance is not a proof. A *filter* is: a stopping rule, fixed before the first
# release, under which everything released together keeps the policy. docs/ledger.md ("Which plans are
# admitted") states the two filters, by Rényi sums and by plain sums, and proves them.

# Multiples of (order - 1) around the best Gaussian order, and their shares of delta. The centre
# is the best order of nearly every plan (Gaussian, Poisson-sampled), so it gets most: an even
# split would cost about 17 % of the runs, this one 2 to 3 %. The others insure against
# unusual curves.
SHARES = ((0.4, 0.05), (0.65, 0.05), (1.0, 0.8), (1.5, 0.05), (2.5, 0.05))
LARGEST_ORDER = 10_000.0
LARGEST_EPSILON = 50.0
ROUNDING = 1e-9  # taken off: covers the rounding of a million floating-point additions
TWELVE_DIGITS = 1e-12  # given at order infinity: 0.1 and 0.2 fit a budget of 0.3


@dataclass(frozen=True)
class RenyiFilter:
    """The orders of a data set's filter and each order's share of delta, fixed at creation.

    Parameters
    ----------
    orders : Rényi orders above one; infinity stands for pure differential privacy.
    deltas : the share of each order. They add up to at most the policy's delta.
    """

    orders: tuple[float, ...]
    deltas: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.orders) != len(self.deltas) or not self.orders:
            raise InvalidInputError("Expected one share of delta for each order of a filter.")
        for order, delta in zip(self.orders, self.deltas):
            if not order > 1 or not 0 <= delta < 1 or (delta == 0 and order < math.inf):
                raise InvalidInputError(
                    f"Expected an order above 1 with a positive share, got {order} with {delta}."
                )

    @staticmethod
    @lru_cache(maxsize=256)
    def for_policy(policy: BudgetPolicy) -> RenyiFilter:
        """Choose the orders that suit a policy; they depend on nothing but the policy."""
        # Shares of a smaller delta would not be exact floats; then only pure mechanisms are admitted.
        pairs = [] if policy.delta < 100 * SMALLEST_DELTA else _finite_orders(policy)
        orders, deltas = zip(*pairs, (math.inf, 0.0))
        return RenyiFilter(orders, deltas)

    def belongs_to(self, policy: BudgetPolicy) -> bool:
        """Return whether this is the filter of a policy, and none that somebody chose later.

        The theorem needs shares that add up to delta *and* a family that was fixed before the first
        release. So a filter that comes from a file is never believed: it has to be the policy's own.
        """
        own = RenyiFilter.for_policy(policy)
        return self.orders == own.orders and all(
            math.isclose(mine, its, rel_tol=1e-12) for mine, its in zip(self.deltas, own.deltas, strict=True)
        )

    def budgets(self, epsilon: float) -> tuple[float, ...]:
        """Return the largest sum that each order may reach."""
        return tuple(
            epsilon * (1 + TWELVE_DIGITS)
            if math.isinf(order)
            else (epsilon - price(order, delta)) * (1 - ROUNDING)
            for order, delta in zip(self.orders, self.deltas)
        )

    def reading(self, spent: tuple[float, ...]) -> float:
        """Return the epsilon of the sums at the order that says least."""
        return min(
            total + price(order, delta) for order, delta, total in zip(self.orders, self.deltas, spent)
        )


def price(order: float, delta: float) -> float:
    """Return what converting RDP of one order to (epsilon, delta)-DP adds to epsilon."""
    if math.isinf(order):
        return 0.0
    return math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


def gaussian_order(epsilon: float, delta: float) -> float:
    """Return the order at which the most Gaussian noise fits: the maximiser of B_a / a."""
    epsilon = min(epsilon, LARGEST_EPSILON)
    steps = 2000
    span = math.log(LARGEST_ORDER / 0.02)
    candidates = (1 + 0.02 * math.exp(span * step / steps) for step in range(steps + 1))
    return max(candidates, key=lambda order: (epsilon - price(order, delta)) / order)


def _finite_orders(policy: BudgetPolicy) -> list[tuple[float, float]]:
    """Return orders around the best one, with shares; orders without any budget are left out."""
    centre = gaussian_order(policy.epsilon, policy.delta * max(share for _, share in SHARES))
    shares: dict[float, float] = {}
    for multiple, share in SHARES:
        order = _readable(min(1 + (centre - 1) * multiple, LARGEST_ORDER))
        if price(order, share * policy.delta) >= policy.epsilon:
            order = _readable(centre)  # no budget there: its share does more good in the centre
        shares[order] = shares.get(order, 0.0) + share * policy.delta * (1 - ROUNDING)
    return sorted(pair for pair in shares.items() if price(*pair) < policy.epsilon)


def _readable(order: float) -> float:
    """Round an order: whole ones are faster to account for."""
    return float(round(order)) if order >= 3.5 else max(round(order, 2), 1.01)
