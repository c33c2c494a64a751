"""Integers modulo the Mersenne prime ``2^61 - 1`` as arrays, and how a secret is split into shares.

Residues are 64-bit words, so that a product of shares costs a few machine instructions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from sordino.kernel.arrays import compile_with_cache
from sordino.kernel.noise import NoiseSource

Residues = NDArray[Any]
_U = np.uint64
BLOCK = 1 << 13  # numbers that are worked on at once: their steps stay in a processor's own memory
_P, _30, _31, _61 = _U(2**61 - 1), _U(30), _U(31), _U(61)
_LOW30, _LOW31, _LOW32 = _U(2**30 - 1), _U(2**31 - 1), _U(2**32 - 1)


class Field:
    """The integers modulo ``2^61 - 1``; arrays hold the residues from zero to one below the modulus."""

    dtype: Any = np.uint64
    modulus, width = 2**61 - 1, 8  # and the bytes of a residue in a message

    def __init__(self) -> None:
        self._sum, self._product, self._blend = _passes()

    def array(self, values: Any) -> Residues:
        """Return the residues of integers of any sign."""
        return np.asarray(np.asarray(values) % self.modulus).astype(_U)

    def signed(self, values: Residues) -> Residues:
        """Return the representatives between minus and plus half the modulus."""
        values = values.astype(np.int64)
        return np.asarray(np.where(values > self.modulus // 2, values - self.modulus, values))

    def add(self, left: Any, right: Any) -> Residues:
        return np.asarray(self._sum(left, right))

    def subtract(self, left: Any, right: Any) -> Residues:
        return np.asarray(self._sum(left, _P - right))

    def multiply(self, left: Any, right: Any) -> Residues:
        right = np.full_like(left, right) if np.ndim(right) == 0 else right  # several at once, as in a row
        return np.asarray(self._product(left, right))

    def blend(self, values: Any, factor: Any, rest: Any) -> Residues:
        """Return ``values * factor + rest``."""
        return np.asarray(self._blend(values, factor, rest))

    def apply(self, linear: Any, values: Residues) -> Residues:
        """Return ``linear(values)`` for a map that only adds entries up, such as a running sum."""
        # Halves of words: up to 2^31 of them add up without overflow.
        low, high = linear(values & _LOW32), linear(values >> _U(32))
        return self.add(low, self.multiply(self.add(high, _U(0)), _U(2**32)))

    def sum(self, values: Residues, axis: int) -> Residues:
        return self.apply(lambda part: part.sum(axis=axis), values)

    def draw(self, count: int, noise: NoiseSource) -> Residues:
        """Draw uniform residues."""
        return noise.integers(self.modulus, count).view(_U)

    def dumps(self, values: Residues) -> bytes:
        return values.astype("<u8", copy=False).tobytes()

    def loads(self, payload: bytes, count: int) -> Residues:
        """Read ``count`` residues. Anything else raises ``ValueError`` in words that end a refusal."""
        if len(payload) != self.width * count:
            raise ValueError("of a broken length")
        found = np.frombuffer(payload, dtype="<u8").astype(_U)
        if count and found.max() >= self.modulus:
            raise ValueError("out of range")
        return found

    def split(
        self, secrets: Residues, threshold: int, points: Iterable[int], noise: NoiseSource
    ) -> list[Residues]:
        """Return everybody's shares: values at points of random polynomials that are the secrets at 0."""
        *above, highest = [self.draw(secrets.size, noise) for _ in range(threshold)]
        places = [self._row(point, secrets.size) for point in points]
        shares = np.empty((len(places), secrets.size), self.dtype)
        for start in range(0, secrets.size, BLOCK):
            part = slice(start, start + BLOCK)
            for share, x in zip(shares, places):
                value = highest[part]
                for coefficient in (*reversed(above), secrets):  # Horner's rule
                    value = self.blend(value, x[: value.size], coefficient[part])
                share[part] = value
        return list(shares)

    def combine(self, points: dict[int, Residues], at: int = 0) -> Residues:
        """Return the value at ``at`` of the polynomials of least degree through these points."""
        rows = [np.reshape(values, -1) for values in points.values()]
        found = np.empty(rows[0].size, self.dtype)
        weights = [self._row(weight, found.size) for weight in lagrange(self.modulus, tuple(points), at)]
        for start in range(0, found.size, BLOCK):
            part = slice(start, start + BLOCK)
            total = np.zeros_like(found[part])
            for values, factors in zip(rows, weights):
                total = self.blend(values[part], factors[: total.size], total)
            found[part] = total
        return found.reshape(np.shape(next(iter(points.values()))))

    def _row(self, value: int, most: int) -> Residues:
        """Return one number as often as a block takes it: processors multiply words that lie side by side."""
        return np.full(min(BLOCK, most), self.array(value), self.dtype)


@lru_cache(maxsize=1024)
def lagrange(modulus: int, points: Sequence[int], at: int) -> list[int]:
    """Return the factors with which values at points add up to the value at ``at``."""
    weights = []
    for point in points:
        others = [other for other in points if other != point]
        above, below = (math.prod(place - other for other in others) for place in (at, point))
        weights.append(above * pow(below, -1, modulus) % modulus)
    return weights


@cache
def _passes() -> tuple[Any, Any, Any]:
    """Return sum, product and their blend in one compiled pass each, the sum of any words below 2^63."""

    def compiled(function: Any, words: int) -> Any:
        kinds = f"uint64({', '.join(['uint64'] * words)})"
        return compile_with_cache(numba.vectorize, ftylist_or_function=[kinds])(function)

    return compiled(_sum, 2), compiled(_product, 2), compiled(_blend, 3)


def _sum(left: Any, right: Any) -> Any:
    words = left + right
    once = (words & _P) + (words >> _61)
    return once - _P if once >= _P else once


def _product(left: Any, right: Any) -> Any:
    # With x = x1 2^31 + x0 the product is x1 y1 2^62 + (x1 y0 + x0 y1) 2^31 + x0 y0, and 2^61 is 1.
    # The four terms are below 2^61, 2^32, 2^61 and 2^62: their sum fits in 64 bits.
    left1, left0, right1, right0 = left >> _31, left & _LOW31, right >> _31, right & _LOW31
    middle = left1 * right0 + left0 * right1
    words = left1 * right1 * _U(2) + left0 * right0 + (middle >> _30) + ((middle & _LOW30) << _31)
    once = (words & _P) + (words >> _61)
    return once - _P if once >= _P else once


def _blend(left: Any, right: Any, rest: Any) -> Any:
    # As above; what is added is below 2^61, and so is the folded product.
    left1, left0, right1, right0 = left >> _31, left & _LOW31, right >> _31, right & _LOW31
    middle = left1 * right0 + left0 * right1
    words = left1 * right1 * _U(2) + left0 * right0 + (middle >> _30) + ((middle & _LOW30) << _31)
    once = (words & _P) + (words >> _61) + rest
    twice = (once & _P) + (once >> _61)
    return twice - _P if twice >= _P else twice
