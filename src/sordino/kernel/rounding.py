"""Exact rounding of a Gaussian to integers, from random bits.

A uniform V in (0, 1) is known by its first 64 bits, that is as an interval. Its image under the
decreasing map ``|Z| = -ndtri(V / 2)`` is an interval too. When, with a margin far above the error
of ``ndtri``, both ends round to the same integer, that integer is exact. Otherwise more bits are
drawn and the ends are computed in arbitrary precision until they agree.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sordino.kernel.arrays import Ints

# Cephes' ndtri is good to about 1e-15 relative; the margin is fifty times that.
_RELATIVE, _ABSOLUTE = 2.0**-44, 1e-14
_WORD = 62


def round_magnitudes(words: NDArray[np.uint64], std: float, more_bits: Callable[[], int]) -> Ints:
    """Return ``round(std * |Z|)`` for uniforms whose first 64 bits are ``words``.

    ``more_bits`` draws 62 further bits; it is needed about once in ``2**43 / std`` draws.
    """
    low, high = (words + 0.0) * 2.0**-65, (words + 1.0) * 2.0**-65
    with np.errstate(divide="ignore"):
        smallest = -ndtri(np.minimum(high, 0.5)) * (1 - _RELATIVE) - _ABSOLUTE
        largest = -ndtri(np.minimum(low, 0.5)) * (1 + _RELATIVE) + _ABSOLUTE
    first = np.floor(std * np.maximum(smallest, 0.0) + 0.5)
    last = np.floor(std * largest + 0.5)
    unclear = np.flatnonzero(first != last)
    result: Ints = first.astype(np.int64)
    for i in unclear:
        result[i] = _round_exactly(int(words[i]), std, more_bits)
    return result


def _round_exactly(bits: int, std: float, more_bits: Callable[[], int]) -> int:
    length = 64
    while True:
        bits, length = bits << _WORD | more_bits(), length + _WORD
        with mpmath.workdps(30 + length // 3):  # length bits, and 30 digits beyond them
            last_bit = mpmath.mpf(2) ** (-length - 1)  # of the tail, half of the uniform
            ends = [_upper_quantile(b * last_bit) for b in (bits + 1, bits)]
            rounded = [int(mpmath.floor(mpmath.mpf(std) * x + mpmath.mpf(1) / 2)) for x in ends]
        if bits and rounded[0] == rounded[1]:
            return rounded[0]


def _upper_quantile(tail: mpmath.mpf) -> mpmath.mpf:
    """Return x with P(Z > x) = tail, for tail in [0, 1/2]."""
    if tail <= 0:
        return mpmath.mpf(1e9)  # replaced by more bits before it can be used
    return mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * tail)
