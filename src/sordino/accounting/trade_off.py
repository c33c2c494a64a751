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

from sordino.accounting.calibration import EXACT, PLD, Search, certify, solve_scale
from sordino.accounting.conversions import SMALLEST_MU, gaussian_epsilon
from sordino.accounting.pld import grid_losses
from sordino.accounting.renyi import ORDERS, renyi_delta, total_curve
from sordino.accounting.trees import Leaf, flatten, gaussian_mu, is_non_private, without_rare
from sordino.errors import CalibrationError, InvalidInputError
from sordino.kernel.events import Relation
from sordino.kernel.plan import Plan

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
        # Randomised response dominates it: a loss of +-epsilon, infinite with probability delta.
        share = 1.0 / (1.0 + math.exp(-min(epsilon, _LARGEST)))

        def divergence(e: float) -> float:
            told = share * self.delta(e - epsilon) + (1.0 - share) * self.delta(e + epsilon)
            return delta + (1.0 - delta) * told + _MARGIN

        return TradeOff(divergence)


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


# ---------------------------------- A budget in words of risk: noise that keeps the best attack below a bound


_TIGHT = 0.9999  # of what the best attack achieves beyond guessing
_USUAL_DELTA = 1e-5


@dataclass(frozen=True, kw_only=True)
class Risk:
    """The most that any attack may achieve against one unit; stands where an epsilon does.

    Parameters
    ----------
    max_advantage : the largest true positive rate minus false positive rate of any membership test.
    max_posterior : the largest chance that the best guess of whether somebody was in the data is right, for
        somebody who believed so with probability ``prior``; the mean posterior of what is guessed.
    prior : of ``max_posterior``.
    max_true_positive_rate : of any test whose false positive rate is at most ``false_positive_rate``.

    Exactly one of the three bounds is given. Noise is calibrated so that the plan's own trade-off curve keeps
    it, which takes less than the worst case of an (epsilon, delta); epsilon is then what the plan certifies.

    Examples
    --------
    >>> import numpy as np, sordino
    >>> X = np.linspace(-1, 1, 3000)[:, None]
    >>> model = sordino.LogisticRegression(sordino.Risk(max_advantage=0.1), data_norm=1.0, classes=[0, 1])
    >>> report = model.fit(X, (X[:, 0] > 0) * 1).privacy_
    >>> bool(0.0999 < report.trade_off.advantage <= 0.1), round(report.epsilon, 1)
    (True, 1.0)
    """

    max_advantage: float | None = None
    max_posterior: float | None = None
    prior: float = 0.5
    max_true_positive_rate: float | None = None
    false_positive_rate: float = 0.01

    def __post_init__(self) -> None:
        bounds = (self.max_advantage, self.max_posterior, self.max_true_positive_rate)
        given = [value for value in bounds if value is not None]
        rates = (self.prior, self.false_positive_rate, *given)
        if len(given) != 1 or not all(isinstance(rate, (int, float)) and 0 < rate < 1 for rate in rates):
            raise InvalidInputError(
                "Expected one of max_advantage, max_posterior and max_true_positive_rate, and all rates in "
                "(0, 1). Write Risk(max_advantage=0.1)."
            )
        if not self.bound > self.of(gaussian_trade_off(0.0)):
            raise InvalidInputError(
                f"Expected {self} above what guessing achieves without looking. Choose a larger bound."
            )

    @property
    def bound(self) -> float:
        """The number of the one bound that was set."""
        return float(self.max_advantage or self.max_posterior or self.max_true_positive_rate or 0.0)

    def of(self, curve: TradeOff) -> float:
        """Return what the best attack achieves on a trade-off curve."""
        if self.max_advantage is not None:
            return curve.advantage
        if self.max_posterior is not None:
            # max over S of p P(S) + (1 - p) (1 - Q(S)), and with the neighbours exchanged.
            odds = math.log((1.0 - self.prior) / self.prior)
            found = 1.0 - self.prior + self.prior * curve.delta(odds)
            return max(found, self.prior + (1.0 - self.prior) * curve.delta(-odds))
        return curve.true_positive_rate(self.false_positive_rate)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of one Gaussian release that has this risk: for rules that need a number."""
        low, high = 1e-6, 50.0
        while high / low > 1 + 1e-9:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.of(gaussian_trade_off(middle)) <= self.bound else (low, middle)
        return gaussian_epsilon(low, delta)

    def __float__(self) -> float:
        return self.epsilon(_USUAL_DELTA)

    def __str__(self) -> str:
        if self.max_advantage is not None:
            return f"max_advantage={self.max_advantage:g}"
        if self.max_posterior is not None:
            return f"max_posterior={self.max_posterior:g},prior={self.prior:g}"
        rate = f"max_true_positive_rate={self.max_true_positive_rate:g}"
        return f"{rate},false_positive_rate={self.false_positive_rate:g}"


def calibrate_to_risk(plan: Plan, risk: Risk, delta: float, before: tuple[float, float] = (0.0, 0.0)) -> Plan:
    """Return the plan with the smallest noise whose trade-off curve keeps a risk.

    ``before`` is an (epsilon, delta) that was paid for facts which the plan reads; the risk is that of both.

    **Privacy.** Data-independent; the curve is an upper bound, so the risk of the run is at most as asked.
    """

    def risk_at(scale: float) -> float:
        curve = trade_off(plan.at(scale).event(), delta, plan.relation)
        return risk.of(curve.after(*before) if any(before) else curve)

    start = solve_scale(lambda s: plan.at(s).event(), risk.epsilon(delta), delta, plan.relation)
    blind = risk.of(gaussian_trade_off(0.0))  # what guessing achieves: only what is above it falls with noise
    search = Search(lambda scale: max(risk_at(scale) - blind, 0.0), risk.bound - blind, str(risk), _TIGHT)
    try:
        return plan.at(search.run(lambda: start))
    except CalibrationError as error:
        raise CalibrationError(
            f"No noise keeps {risk}: what was paid before (epsilon = {before[0]:g}) or parts of the plan "
            "without noise exceed it. Declare what was learned, or choose a larger bound."
        ) from error
