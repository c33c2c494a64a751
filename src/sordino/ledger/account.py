"""The running state of one data set's budget, as pure functions: no file, no clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from enum import Enum

from dp_accounting import dp_event as dp

from sordino.accounting.calibration import certify, rdp_curve
from sordino.accounting.conversions import gaussian_epsilon
from sordino.accounting.trees import flatten
from sordino.errors import BudgetExceededError, InvalidInputError, LedgerCorruptError, UnsupportedError
from sordino.kernel.events import PureDpEvent, Relation
from sordino.ledger.policy import BudgetPolicy, RenyiFilter
from sordino.values import at_least, at_most, check_number


class FilterMode(str, Enum):
    """Which filter guards a data set; decided by the first reservation, for ever."""

    UNDECIDED = "undecided"
    RENYI = "renyi"
    BASIC = "basic"


@dataclass(frozen=True)
class Charge:
    """What one reservation costs.

    Parameters
    ----------
    renyi : its RDP at each order of the filter; infinity where none is proven.
    epsilon, delta : its certified guarantee, used in basic mode only.
    """

    renyi: tuple[float, ...]
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not all(cost >= 0 for cost in self.renyi) or not self.epsilon >= 0 or not 0 <= self.delta < 1:
            raise InvalidInputError(
                f"Expected costs >= 0 and a certificate with epsilon >= 0 and delta in [0, 1), got "
                f"{self.renyi} and ({self.epsilon}, {self.delta}). Pass what `certify` returns."
            )


@dataclass(frozen=True)
class Account:
    """A budget and what was booked on it. Booking returns a new account.

    ``renyi`` are the running sums per order. ``epsilon`` and ``delta`` are exact decimal sums of
    the certificates as they were written down: ten times 0.1 is 1, not a little more or less.
    """

    policy: BudgetPolicy
    filter: RenyiFilter
    mode: FilterMode = FilterMode.UNDECIDED
    count: int = 0
    renyi: tuple[float, ...] = ()
    epsilon: Decimal = field(default=Decimal(0))
    delta: Decimal = field(default=Decimal(0))

    def __post_init__(self) -> None:
        if not self.renyi:
            object.__setattr__(self, "renyi", (0.0,) * len(self.filter.orders))
        if len(self.renyi) != len(self.filter.orders):
            raise LedgerCorruptError(
                f"The ledger holds {len(self.renyi)} sums for {len(self.filter.orders)} orders. "
                "Restore it from a backup."
            )
        # A decimal that is not a number compares with nothing; `min` and `max` would pass it on.
        sums = (*self.renyi, *(math.nan if s.is_nan() else s for s in (self.epsilon, self.delta)))
        untouched = self.mode is FilterMode.UNDECIDED
        if self.count < 0 or untouched != (self.count == 0) or not all(total >= 0 for total in sums):
            raise LedgerCorruptError(
                "The ledger holds a sum, a count or a mode that no history gives. Restore it from a backup."
            )

    @classmethod
    def opened(cls, policy: BudgetPolicy) -> Account:
        """Return the untouched account of a policy."""
        return cls(policy, RenyiFilter.for_policy(policy))

    def needs_certificate(self, charge: Charge) -> bool:
        """Return whether a booking would rest on the certificate and not on the RDP sums."""
        if self.mode is FilterMode.UNDECIDED:
            return not self._renyi_admits(charge)
        return self.mode is FilterMode.BASIC

    def book(self, charge: Charge) -> Account:
        """Return the account after a reservation, or refuse it.

        Raises
        ------
        BudgetExceededError
            The filter does not admit the charge. The account is unchanged.
        """
        epsilon, delta = exact_sum(self.epsilon, charge.epsilon), exact_sum(self.delta, charge.delta)
        fits = epsilon <= exact(self.policy.epsilon) and delta <= exact(self.policy.delta)
        if not (fits if self.needs_certificate(charge) else self._renyi_admits(charge)):
            raise BudgetExceededError(self._refusal(charge))
        return replace(self.skip(charge), renyi=self._renyi_with(charge), epsilon=epsilon, delta=delta)

    def skip(self, charge: Charge) -> Account:
        """Return the account after a reservation that was given back: it chose the filter, at no cost."""
        mode = FilterMode.BASIC if self.needs_certificate(charge) else FilterMode.RENYI
        return replace(self, mode=mode, count=self.count + 1)

    @property
    def fraction(self) -> float:
        """The part of the budget that is gone, between 0 and 1."""
        if math.isinf(self.policy.epsilon):
            return 0.0
        if self.mode is FilterMode.BASIC:
            part = float(self.delta) / self.policy.delta if self.policy.delta else 0.0
            return max(float(self.epsilon) / self.policy.epsilon, part)
        budgets = self.filter.budgets(self.policy.epsilon)
        return min(total / budget for total, budget in zip(self.renyi, budgets))

    def _renyi_with(self, charge: Charge) -> tuple[float, ...]:
        return tuple(total + cost for total, cost in zip(self.renyi, charge.renyi, strict=True))

    def _renyi_admits(self, charge: Charge) -> bool:
        budgets = self.filter.budgets(self.policy.epsilon)
        return any(total <= most for total, most in zip(self._renyi_with(charge), budgets))

    def left(self, delta: float) -> tuple[float, float]:
        """Return epsilon of the largest Gaussian or pure plan that fits, and its delta, at most this."""
        policy, rho = self.policy, 0.0
        largest = policy.epsilon if math.isinf(policy.epsilon) else 0.0
        if self.mode is not FilterMode.RENYI:
            delta = min(delta, float(exact(policy.delta) - self.delta))
            largest = float(exact(policy.epsilon) - self.epsilon)
        if self.mode is FilterMode.BASIC or math.isinf(policy.epsilon):
            return largest, delta
        for order, budget, total in zip(self.filter.orders, self.filter.budgets(policy.epsilon), self.renyi):
            if math.isinf(order) and self.mode is FilterMode.RENYI:
                largest = max(largest, budget - total) if total < math.inf else largest
            else:
                rho = max(rho, (budget - total) / order)
        return max(largest, gaussian_epsilon(math.sqrt(2 * rho), delta) if rho * delta > 0 else 0.0), delta

    def _refusal(self, charge: Charge) -> str:
        asked = f"The plan asks for ({at_most(charge.epsilon)}, {at_most(charge.delta)})"
        whole = f"the budget ({self.policy.epsilon:.4g}, {self.policy.delta:.4g})"
        epsilon, delta = self.left(charge.delta)
        fits = f"about epsilon {at_least(epsilon, 3)} at delta {at_least(delta, 3)}"
        if epsilon > self.policy.epsilon:  # a plan of noise has one for each delta
            own = at_least(self.left(self.policy.delta)[0], 3)
            fits += (
                f" (a smaller delta than the budget's {self.policy.delta:g}, at which this is epsilon {own})"
            )
        remedy = f"Nothing was reserved. What would fit is {fits}; for more, ask whoever owns the data."
        if self.mode is FilterMode.RENYI and all(math.isinf(cost) for cost in charge.renyi):
            left = "it has no Rényi curve, and this data set is guarded by the RDP filter"
            remedy = "Nothing was reserved. It has to be first on its data set: declare the schema by hand."
        elif self.mode is FilterMode.BASIC:
            booked = f"{at_most(float(self.epsilon))} and {at_most(float(self.delta))}"
            left = f"{booked} are booked of {whole} (added up)"
        else:
            left = f"{self.fraction:.1%} of {whole} is spent (RDP filter)"
        return f"{asked}, but {left}. {remedy}"


def exact(value: float) -> Decimal:
    """Return the decimal number that a float is written as."""
    return Decimal(repr(value))


def exact_sum(total: Decimal, value: float) -> Decimal:
    """Add without rounding: 1100 digits hold the sum of any floats."""
    with localcontext(prec=1100):
        return total + exact(value)


# ------------------------ What a reservation costs: the only module of the ledger that asks the accountants

TOLERANCE = 1e-6  # what two runs of a numerical accountant may differ by, relatively


def charge_of(
    event: dp.DpEvent, relation: Relation, orders: Sequence[float], certificate: tuple[float, float]
) -> Charge:
    """Return the cost of an event at each order of a filter, beside its certified guarantee.

    An event without a proven RDP curve costs infinity at every finite order: it can still be
    admitted on its certificate, never on a guess.
    """
    if not isinstance(certificate, tuple | list) or len(certificate) != 2:
        raise InvalidInputError("Expected certificate=(epsilon, delta), a pair of numbers.")
    epsilon, delta = (check_number("certificate", value) for value in certificate)
    finite = [order for order in orders if order < math.inf]
    try:
        curve = [_cost(value) for value in rdp_curve(event, relation, finite)] if finite else []
    except UnsupportedError:
        curve = [math.inf] * len(finite)
    costs = dict(zip(finite, curve, strict=True))
    pure = pure_epsilon(event, relation)
    # RDP grows with the order, so the pure epsilon bounds every order.
    renyi = tuple(min(costs.get(order, pure), pure) for order in orders)
    return Charge(renyi, epsilon, delta)


def pure_epsilon(event: dp.DpEvent, relation: Relation) -> float:
    """Return the epsilon with which an event is pure DP, infinity if it is not."""
    return _cost(sum(leaf.count * _pure_leaf(leaf.event, relation) for leaf in flatten(event)))


def check_certificate(event: dp.DpEvent, relation: Relation, charge: Charge) -> Charge:
    """Return a charge whose certificate the accountant proves, or refuse one that claims too little.

    What is stated may be larger than what is proven, and smaller by the rounding of another machine;
    then the larger number is booked. An infinite epsilon claims nothing.

    Raises
    ------
    InvalidInputError
        The event costs more than its certificate says.
    """
    if math.isinf(charge.epsilon):
        return charge
    pure = charge.delta == 0
    found = pure_epsilon(event, relation) if pure else certify(event, charge.delta, relation).epsilon
    if not found <= charge.epsilon * (1 + TOLERANCE):
        raise InvalidInputError(
            f"The certificate claims epsilon {charge.epsilon:.6g} at delta {charge.delta:.3g}, "
            f"but the accountant certifies {found:.6g}. Nothing was reserved. Pass what `certify` "
            "returns for this event and relation."
        )
    return replace(charge, epsilon=max(charge.epsilon, found))


def _pure_leaf(event: dp.DpEvent, relation: Relation) -> float:
    if isinstance(event, dp.LaplaceDpEvent):
        return 1 / float(event.noise_multiplier)
    if isinstance(event, PureDpEvent):
        return float(event.epsilon)
    if isinstance(event, dp.PoissonSampledDpEvent):
        inner = _pure_leaf(event.event, relation)
        if relation is Relation.ADD_REMOVE and inner < 500:
            return math.log1p(event.sampling_probability * math.expm1(inner))
        return inner  # amplification is proven for add-remove; else sampling does no harm
    return math.inf


def _cost(value: float) -> float:
    """Return a cost that can be added up; what is not a number costs everything."""
    return math.inf if math.isnan(value) else max(float(value), 0.0)
