"""What a guarantee means in bets and chances, for people who do not read exponents."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal, localcontext

from sordino.accounting.trade_off import TradeOff

LITTLE = 8.0
"""Above this epsilon a guarantee protects little, and every text says so."""
_ROUNDING = 1e-8  # of a percentage, in units of its last digit: one half is 50.0 % and not 50.1


def guess(curve: TradeOff) -> float:
    """Return the largest chance to guess right whether a record was there, from a prior of one half."""
    return 0.5 + curve.advantage / 2


def bet(what: str, curve: TradeOff) -> str:
    """Return a guarantee as a bet on ``what``."""
    return (
        f"Whoever bets on {what}, and knows all the others, wins 50 % of the bets by tossing a coin, and "
        f"at worst {percent(guess(curve))} after seeing everything that was released."
    )


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


def warning(epsilon: float, curve: TradeOff) -> str | None:
    """Return what must be said about a guarantee that protects little; None where there is none at all."""
    if not math.isfinite(epsilon):
        return None
    return (
        f"epsilon above {LITTLE:g} protects little: whoever bets on whether somebody was in the data may win "
        f"{percent(guess(curve))} of the bets"
    )
