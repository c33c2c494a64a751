"""What a guarantee means in bets and chances, for people who do not read exponents."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal, localcontext

LITTLE = 8.0
"""Above this epsilon a guarantee protects little, and every text says so."""
_ROUNDING = 1e-8  # of a percentage, in units of its last digit: one half is 50.0 % and not 50.1


def guess(epsilon: float, delta: float) -> float:
    r"""Return the largest chance to guess right whether a record was there, from a prior of one half.

    The errors a, b of a test between neighbours have ``1 - b <= e^eps a + delta`` and
    ``1 - a <= e^eps b + delta``, so ``(a + b) / 2 >= (1 - delta) / (1 + e^eps)``: it is right with
    probability ``(e^eps + delta) / (1 + e^eps)`` at most.
    """
    small = math.exp(-min(epsilon, 700.0))
    return (1.0 + delta * small) / (1.0 + small)


def bet(what: str, epsilon: float, delta: float) -> str:
    """Return a guarantee as a bet on ``what``."""
    return (
        f"Whoever bets on {what}, and knows all the others, wins 50 % of the bets by tossing a coin, and "
        f"at worst {percent(guess(epsilon, delta))} after seeing everything that was released."
    )


def caught(epsilon: float, delta: float, false_alarms: float = 0.01) -> float:
    """Return the largest share of members that a test finds which accuses so many others wrongly."""
    factor = math.exp(min(epsilon, 700.0))
    return min(1.0, factor * false_alarms + delta, 1.0 - (1.0 - delta - false_alarms) / factor)


def likelier(epsilon: float, delta: float, chance: float = 0.001) -> float:
    """Return how likely a harm may become for those who take part, if it has this chance for others."""
    return min(1.0, math.exp(min(epsilon, 700.0)) * chance + delta)


def at_most(value: float, digits: int = 4) -> str:
    """Return a bound in so many digits, rounded up: to nearest it would promise more than holds."""
    if not math.isfinite(value):
        return f"{value:g}"
    with localcontext(prec=digits, rounding=ROUND_CEILING):
        return f"{float(+Decimal(repr(float(value)))):.{digits}g}"


def percent(share: float) -> str:
    """Return a share as percent, rounded up, with the digits that tell it from 100."""
    for digits in (1, 2, 3, 4):
        unit = 10.0**digits
        above = math.ceil(100.0 * share * unit - _ROUNDING) / unit
        if above < 100.0:
            return f"{above:.{digits}f} %"
    return "100 %"


def strength(epsilon: float) -> str:
    """Return one word, or a few, for a guarantee."""
    if not math.isfinite(epsilon):
        return "none"
    names = ((1.0, "strong"), (4.0, "moderate"), (LITTLE, "weak"))
    return next((name for most, name in names if epsilon <= most), "very little")


def warning(epsilon: float, delta: float) -> str | None:
    """Return what must be said about a guarantee that protects little; None where nothing must."""
    if epsilon <= LITTLE or not math.isfinite(epsilon):
        return None
    return (
        f"epsilon above {LITTLE:g} protects little: whoever bets on whether somebody was in the data may win "
        f"{percent(guess(epsilon, delta))} of the bets"
    )
