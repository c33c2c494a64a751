"""What an account means to a person: how much is spent, how much is left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sordino.accounting.accountants import Certificate, certify
from sordino.accounting.conversions import gaussian_epsilon
from sordino.kernel.events import composed
from sordino.ledger.account import Account, FilterMode, exact
from sordino.ledger.charge import pure_epsilon
from sordino.ledger.policy import BudgetPolicy, number
from sordino.ledger.records import Entry, Status


@dataclass(frozen=True)
class Spent:
    """What the filter has booked.

    Parameters
    ----------
    epsilon, delta : float
        In basic mode the sums of the certificates; else the reading of the Rényi sums at the
        policy's delta. The guarantee is the policy's: this says how much of it is used up.
    fraction : float
        The part of the budget that is gone. It grows evenly with equal plans, unlike epsilon.
    mode : FilterMode
        Which filter guards the data set.
    reservations : int
        How many were booked, those included that were given back unused.
    """

    epsilon: float
    delta: float
    fraction: float
    mode: FilterMode
    reservations: int


@dataclass(frozen=True)
class Remaining:
    """What can still be booked.

    Parameters
    ----------
    epsilon, delta : float
        The largest certificate of one more plan that fits: any plan on an untouched data set and
        in basic mode; under the Rényi filter a plan of full-batch Gaussian noise (others fit
        about as much).
    fraction : float
        The part of the budget that is left.
    """

    epsilon: float
    delta: float
    fraction: float


def spent_of(account: Account) -> Spent:
    """Return what is booked on an account."""
    if account.count == 0:
        return Spent(0.0, 0.0, 0.0, account.mode, 0)
    if account.mode is FilterMode.BASIC:
        epsilon, delta = float(account.epsilon), float(account.delta)
    else:
        epsilon, delta = account.filter.reading(account.renyi), account.policy.delta
    return Spent(epsilon, delta, account.fraction, account.mode, account.count)


def remaining_of(account: Account) -> Remaining:
    """Return what can still be booked on an account."""
    policy, left = account.policy, 1 - account.fraction
    if account.mode is FilterMode.UNDECIDED:
        return Remaining(policy.epsilon, policy.delta, left)
    if account.mode is FilterMode.BASIC:
        epsilon = float(exact(policy.epsilon) - account.epsilon)
        return Remaining(epsilon, float(exact(policy.delta) - account.delta), left)
    return Remaining(_largest_gaussian(account), policy.delta, left)


def nonadaptive(policy: BudgetPolicy, entries: Sequence[Entry], delta: float | None = None) -> Certificate:
    """Return the tight certificate of a history, valid for plans fixed in advance."""
    event = composed([entry.event for entry in entries if entry.status is not Status.RETURNED])
    chosen = policy.delta if delta is None else number(delta, "delta")
    if chosen == 0:
        epsilon = pure_epsilon(event, policy.relation)
        return Certificate(epsilon, 0.0, policy.relation, "pure (sum)")
    return certify(event, chosen, policy.relation)


def _largest_gaussian(account: Account) -> float:
    """Return the epsilon of the largest Gaussian plan, or pure plan, that still fits."""
    policy = account.policy
    budgets = account.filter.budgets(policy.epsilon)
    rho, pure = 0.0, 0.0
    for order, budget, total in zip(account.filter.orders, budgets, account.renyi):
        if math.isinf(order):
            pure = max(pure, budget - total) if total < math.inf else pure
        else:
            rho = max(rho, (budget - total) / order)
    if math.isinf(policy.epsilon):
        return math.inf
    gaussian = gaussian_epsilon(math.sqrt(2 * rho), policy.delta) if rho > 0 else 0.0
    return max(pure, gaussian)
