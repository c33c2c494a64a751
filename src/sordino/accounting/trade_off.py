"""What the best test between neighbours achieves: from the events of a plan, not from epsilon and delta."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from dp_accounting import dp_event as dp
from scipy import optimize, special

from sordino.accounting.calibration import EXACT, PLD, certify
from sordino.accounting.conversions import SMALLEST_MU
from sordino.accounting.leaves import Leaf, flatten, gaussian_mu, is_non_private, without_rare
from sordino.accounting.pld import grid_losses
from sordino.accounting.renyi import ORDERS, renyi_delta, total_curve
from sordino.kernel.events import Relation

_MARGIN = 1e-14  # rounding of two probabilities and of their difference
_LARGEST = 700.0  # the exponential of a larger number is no float


@dataclass(frozen=True, eq=False)
class TradeOff:
    r"""An upper bound ``delta(e) >= P(S) - exp(e) Q(S)`` for all events S and neighbours P and Q.

    It says what any attack can do, whatever it knows of the other records: the best bet at even odds is won
    with probability ``(1 + delta(0)) / 2``; a test with the false positive rate a has a true positive rate of
    at most ``min over e of exp(e) a + delta(e)``. One pair (epsilon, delta) is one point of it.
    """

    divergence: Callable[[float], float]  # for e >= 0

    def delta(self, epsilon: float) -> float:
        """Return the bound at any real ``epsilon``; for a negative one by exchanging the neighbours."""
        if epsilon < 0:
            factor = math.exp(max(epsilon, -_LARGEST))
            return min(1.0, 1.0 - factor * (1.0 - self.delta(-epsilon)))
        return min(1.0, max(0.0, self.divergence(epsilon)))

    @property
    def advantage(self) -> float:
        """The largest true positive rate minus false positive rate of any test: the total variation."""
        return self.delta(0.0)

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return the highest true positive rate of any test with at most this false positive rate."""

        def bound(epsilon: float) -> float:
            return math.exp(epsilon) * false_positive_rate + self.delta(epsilon)

        if false_positive_rate <= 0:
            return self.delta(_LARGEST)
        grid = np.linspace(-12.0, -math.log(min(false_positive_rate, 1.0)), 200)

        def rises(i: int) -> bool:
            return bound(grid[i]) <= bound(grid[i + 1])

        # In exp(e) divergences are convex, on each side of 0: halving finds where they begin to rise.
        zero = int(np.searchsorted(grid, 0.0))
        sides = ((0, zero - 1), (zero, 199))
        best = min(
            (float(grid[bisect_left(range(199), True, *side, key=rises)]) for side in sides), key=bound
        )
        step = grid[1] - grid[0] or 1.0
        found = optimize.minimize_scalar(bound, bounds=(best - step, best + step), method="bounded")
        return min(1.0, bound(best), float(found.fun))

    def after(self, epsilon: float, delta: float) -> TradeOff:
        """Return the bound for a run that came after another one, of which only (epsilon, delta) is known."""
        # P(S) <= exp(epsilon + e) Q(S) + delta(e) + delta, by composition at the point e.
        return TradeOff(lambda e: self.delta(e - epsilon) + delta)


NO_BOUND = TradeOff(lambda e: 1.0)
"""What is known of a run without noise."""


def worst_trade_off(epsilon: float, delta: float) -> TradeOff:
    """Return the bound that (epsilon, delta) alone allows; randomised response attains it."""
    strongest = math.exp(-min(epsilon, _LARGEST))

    def divergence(e: float) -> float:
        if e >= epsilon:
            return delta
        return delta + (1.0 - delta) * (1.0 - math.exp(e - min(epsilon, e + _LARGEST))) / (1.0 + strongest)

    return TradeOff(divergence)


def gaussian_trade_off(mu: float) -> TradeOff:
    r"""Return the bound of mu-Gaussian DP: ``Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu)``, exact."""
    mu = max(mu, SMALLEST_MU)

    def divergence(e: float) -> float:
        first = float(special.ndtr(mu / 2 - e / mu))
        second = math.exp(e + float(special.log_ndtr(-mu / 2 - e / mu)))
        return first - second + _MARGIN * first

    return TradeOff(divergence)


def trade_off(event: dp.DpEvent, delta: float, relation: Relation) -> TradeOff:
    """Return the trade-off of an event tree by the accountant that certifies it at ``delta``.

    Examples
    --------
    >>> from dp_accounting import dp_event as dp
    >>> from sordino.kernel.events import Relation
    >>> round(trade_off(dp.GaussianDpEvent(4.0), 1e-6, Relation.ADD_REMOVE).advantage, 4)
    0.0995

    **Privacy.** It depends on the tree only, never on data.
    """
    leaves, rare = without_rare(flatten(event))
    if is_non_private(leaves):
        return NO_BOUND
    found = certify(event, delta, relation)
    inner = _of_leaves(leaves, relation, found.accountant, found.discretisation)
    return TradeOff(lambda e: inner.delta(e) + rare) if rare else inner


@lru_cache(maxsize=64)
def _of_leaves(
    leaves: tuple[Leaf, ...], relation: Relation, accountant: str, interval: float | None
) -> TradeOff:
    if accountant == EXACT:
        return gaussian_trade_off(sum(gaussian_mu(leaf, relation) for leaf in leaves))
    if accountant == PLD and interval is not None:
        losses = grid_losses(leaves, relation, interval)
        return TradeOff(lambda e: max(loss.delta(e) for loss in losses))
    orders = np.array(ORDERS)
    curve = total_curve(leaves, relation)
    return TradeOff(lambda e: renyi_delta(orders, curve, e))
