r"""The secret computation: one addition of everybody's integers, and noise that nobody knows.

Everything here is written against :class:`Arithmetic`, on one party's shares. Sums and public factors are
local, and so is a product, which :meth:`Arithmetic.reduce` brings back to the degree of a sharing. A wire of
the noise is a pair ``(x, key x)`` along the first axis: see :mod:`sordino.execute.parties.proof`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from sordino.execute.parties.engine import Draw
from sordino.execute.parties.law import DIGIT, CoarseLaw, Level
from sordino.execute.parties.proof import Arithmetic, Shares, Wires, share_sum

Times = Callable[[Shares, Shares], Awaitable[Shares]]


async def noised_sum(engine: Arithmetic, values: Any, draw: Draw) -> Shares:
    """Open ``sum of everybody's values + step * G`` and nothing else.

    ``values`` are this party's integers with its fine noise. Nothing that depends on a record is opened
    before everybody's signs and all products have passed :meth:`Wires.prove`.
    """
    total = share_sum(await engine.share(values), engine.modulus)
    wires = await Wires.keyed(engine, draw.secret, draw.coin)
    signs = await wires.signs(await engine.share(draw.signs))
    coarse = await coarse_noise(wires, await joint_signs(wires.times, signs), draw.law)
    await wires.prove(total)
    return await engine.reveal((total + draw.step * coarse[0]) % engine.modulus)


async def plain_sum(engine: Arithmetic, values: Any) -> Shares:
    """Open the sum of everybody's values, each of which holds its share of the noise."""
    return await engine.reveal(share_sum(await engine.share(values), engine.modulus))


async def joint_signs(times: Times, signs: Sequence[Shares]) -> Shares:
    """Return the products of everybody's signs: fair and secret if one party's are."""
    first, *others = signs
    for other in others:
        first = await times(first, other)
    return first


async def coarse_noise(wires: Wires, signs: Shares, law: CoarseLaw) -> Shares:
    """Return G as a wire, from ``law.bits + 1`` rows of secret signs."""
    p, width = wires.modulus, signs.shape[-1]
    bits = (wires.one((law.bits, width)) - signs[:, : law.bits]) * ((p + 1) // 2) % p
    at_most = np.cumsum(await one_hot(wires, bits), axis=1) % p  # row c: is the digit <= c?
    state = wires.one((1, width))
    magnitude = np.zeros_like(signs[:, law.bits])
    for depth, level in enumerate(law.levels()):
        found, state = await _step(wires, level, state, at_most[:, :, depth])
        magnitude = magnitude + found
    return await wires.times(magnitude, signs[:, law.bits])


async def _step(wires: Wires, level: Level, state: Shares, at_most: Shares) -> tuple[Shares, Shares]:
    """Count the thresholds that the present digit decides, and walk on."""
    below = np.concatenate([np.zeros_like(at_most[:, :1]), at_most], axis=1)  # row c: is the digit < c?
    decided = np.add.reduceat(below[:, level.digit], level.groups, axis=1)
    found = (state[:1] * decided).sum(axis=1, keepdims=True)
    equal = below[:, level.child + 1] - below[:, level.child]
    fresh = await wires.settled(np.concatenate([found, state[:1, level.parent] * equal], axis=1))
    return fresh[:, 0], fresh[:, 1:]


async def one_hot(wires: Wires, bits: Shares) -> Shares:
    """Return, for each digit of four secret bits, the indicators of its sixteen values.

    ``bits`` has shape (2, 4 digits, n), the result (2, 16, digits, n). Eleven products per digit: two of
    pairs of bits and nine of those; the rest is inclusion and exclusion.
    """
    b = bits.reshape(2, -1, DIGIT, bits.shape[-1]).swapaxes(1, 2)
    pairs = await wires.times(b[:, 0::2], b[:, 1::2])
    low = np.stack([b[:, 1], b[:, 0], pairs[:, 0]], axis=1)
    high = np.stack([b[:, 3], b[:, 2], pairs[:, 1]], axis=1)
    both = await wires.times(low[:, :, None], high[:, None])
    one = wires.one(b.shape[2:])
    rows = [[one, *high.swapaxes(0, 1)], *([low[:, i], *both[:, i].swapaxes(0, 1)] for i in range(3))]
    monomials = np.stack([x for row in rows for x in row], axis=1)  # index = which bits are multiplied
    for bit in (1, 2, 4, 8):
        absent = [i for i in range(16) if not i & bit]
        monomials[:, absent] = monomials[:, absent] - monomials[:, [i | bit for i in absent]]
    return monomials % wires.modulus
