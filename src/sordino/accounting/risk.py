"""A budget in words of risk: noise that keeps the best attack below a bound, by the plan's own trade-off."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sordino.accounting.calibration import Search, solve_scale
from sordino.accounting.conversions import gaussian_epsilon
from sordino.accounting.trade_off import TradeOff, gaussian_trade_off, trade_off
from sordino.errors import CalibrationError, InvalidInputError
from sordino.kernel.plan import Plan

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

    def attained(scale: float) -> float:
        curve = trade_off(plan.at(scale).event(), delta, plan.relation)
        return risk.of(curve.after(*before) if any(before) else curve)

    start = solve_scale(lambda s: plan.at(s).event(), risk.epsilon(delta), delta, plan.relation)
    blind = risk.of(gaussian_trade_off(0.0))  # what guessing achieves: only what is above it falls with noise
    search = Search(lambda scale: max(attained(scale) - blind, 0.0), risk.bound - blind, str(risk), _TIGHT)
    try:
        return plan.at(search.run(lambda: start))
    except CalibrationError as error:
        raise CalibrationError(
            f"No noise keeps {risk}: what was paid before (epsilon = {before[0]:g}) or parts of the plan "
            "without noise exceed it. Declare what was learned, or choose a larger bound."
        ) from error
