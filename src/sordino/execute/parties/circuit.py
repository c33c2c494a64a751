r"""The secret computation: one addition of everybody's integers, and noise that nobody knows.

Everything here is written against :class:`Arithmetic`, on one party's shares. Sums and public factors are
local, and so is a product, which :meth:`Arithmetic.reduce` brings back to the degree of a sharing.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sordino.execute.parties.law import DIGIT, CoarseLaw, Level

Shares = NDArray[Any]  # Python integers modulo a prime


class Arithmetic(Protocol):
    """What a secret-sharing engine offers."""

    modulus: int

    async def share(self, mine: Any) -> list[Shares]:
        """Share this party's values; return the shares of everybody's."""

    async def reduce(self, product: Shares) -> Shares:
        """Return a fresh sharing of products of shares."""

    async def reveal(self, secret: Shares) -> Shares:
        """Open a secret to all parties, or fail if the shares do not agree."""


async def noised_sum(engine: Arithmetic, values: Any, signs: Any, law: CoarseLaw, step: int) -> Shares:
    """Open ``sum of everybody's values + step * G`` and nothing else.

    ``values`` are this party's integers with its fine noise; ``signs`` its ``law.bits + 1`` rows of signs.
    """
    p = engine.modulus
    total = sum(await engine.share(values)) % p
    secret = await joint_signs(engine, signs)
    coarse = await coarse_noise(engine, secret, law)
    return await engine.reveal((total + step * coarse) % p)


async def plain_sum(engine: Arithmetic, values: Any) -> Shares:
    """Open the sum of everybody's values, each of which holds its share of the noise."""
    total = sum(await engine.share(values)) % engine.modulus
    return await engine.reveal(total)


async def joint_signs(engine: Arithmetic, mine: Any) -> Shares:
    """Return the products of everybody's signs: fair and secret if one party's are."""
    first, *others = await engine.share(mine)
    for other in others:
        first = await engine.reduce(first * other % engine.modulus)
    return first


async def coarse_noise(engine: Arithmetic, signs: Shares, law: CoarseLaw) -> Shares:
    """Return shares of G from ``law.bits + 1`` rows of secret signs."""
    p = engine.modulus
    bits = (1 - signs[: law.bits]) * ((p + 1) // 2) % p
    at_most = np.cumsum(await one_hot(engine, bits), axis=0) % p  # row c: is the digit <= c?
    state = np.ones((1, 1, bits.shape[1]), dtype=object)
    magnitude = 0
    for depth, level in enumerate(law.levels()):
        found, state = await _step(engine, level, state, at_most[:, depth])
        magnitude = magnitude + found
    return await engine.reduce(magnitude * signs[law.bits] % p)


async def _step(engine: Arithmetic, level: Level, state: Shares, at_most: Shares) -> tuple[Shares, Shares]:
    """Count the thresholds that the present digit decides, and walk on."""
    p, width = engine.modulus, state.shape[-1]
    state = state.reshape(-1, width)
    below = np.vstack([np.zeros((1, width), dtype=object), at_most])  # row c: is the digit < c?
    decided = np.add.reduceat(below[level.digit], level.groups, axis=0)
    found = (state * decided).sum(axis=0, keepdims=True)
    equal = below[level.child + 1] - below[level.child]
    products = np.vstack([found, state[level.parent] * equal]) % p
    fresh = await engine.reduce(products)
    return fresh[0], fresh[1:]


async def one_hot(engine: Arithmetic, bits: Shares) -> Shares:
    """Return, for each digit of four secret bits, the indicators of its sixteen values.

    ``bits`` has shape (4 digits, n), the result (16, digits, n). Eleven products per digit: two of pairs
    of bits and nine of those; the rest is inclusion and exclusion.
    """
    p = engine.modulus
    b = bits.reshape(-1, DIGIT, bits.shape[1]).swapaxes(0, 1)
    pairs = await engine.reduce(b[0::2] * b[1::2] % p)
    low, high = np.stack([b[1], b[0], pairs[0]]), np.stack([b[3], b[2], pairs[1]])
    both = await engine.reduce(low[:, None] * high[None] % p)
    one = np.ones_like(b[0])
    rows = [[one, *high], *([low[i], *both[i]] for i in range(3))]
    monomials = np.stack([x for row in rows for x in row])  # index = which bits are multiplied
    for bit in (1, 2, 4, 8):
        absent = [i for i in range(16) if not i & bit]
        monomials[absent] = monomials[absent] - monomials[[i | bit for i in absent]]
    return monomials % p
