r"""By how much doubles may be wrong, and how a bound makes room for it.

Write ``u = 2^-53``. All norms of this package are taken in double precision (single precision is cast first,
which is exact), over numbers that were scaled by a power of two, which is exact too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

UNIT = 2.0**-53
# Smaller products lose digits to underflow, and a factor this small belongs to a row beyond 1e289: such a
# product is taken for zero, which no record can be harmed by.
TINY = 2.0**-960
# Public bounds outside are refused: their squares, and products with factors, must stay normal numbers.
LOWEST, HIGHEST = 2.0**-400, 2.0**400
NOTHING = 2.0**-500  # a clip below this, of a difference of two points, lets nothing through


def slack(length: int) -> float:
    r"""Return ``(K + 16) u``, the relative error that a norm over ``K = length`` numbers may have.

    K squares added in any order err by at most ``K u / (1 - K u)`` of their sum; the root halves that and
    adds u. Squares that underflow (the largest scaled number is at least 1) lose at most ``K 2^-1074``.
    The sixteen u that are left cover what is done to a number before and after: a product with a column
    weight (two roundings), with a row factor, scaling back, and the product with ``1 + slack`` itself.
    """
    return (length + 16) * UNIT


def limit(bound: float, length: int = 0) -> float:
    r"""Return ``bound (1 - slack(length))``: what a computed norm may reach.

    The sixteen u of length 0 are for the operations between a norm that is an upper bound already and the
    contribution: ``|r| norm``, the quotient, ``r factor``, ``coefficient scale``, the product with an entry.
    """
    return bound * (1.0 - slack(length))


def above(norms: Any, length: int) -> Any:
    """Return ``norms (1 + slack(length))``, and the next number where a subnormal was rounded."""
    with np.errstate(all="ignore"):
        out = np.asarray(norms * (1.0 + slack(length)))
        small = (out > 0) & (out < TINY)
        if small.any():
            out = np.where(small, np.nextafter(out, np.inf), out)
    return out


def root_above(square: float) -> float:
    """Return a square root that is not below the exact one."""
    root = math.sqrt(square)
    return root if root * root == square and root == int(root) else math.nextafter(root, math.inf)
