"""What every engine for sums with noise offers, and the noise a party brings along."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, cast

import numpy as np

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute.parties.field import Field
from sordino.execute.parties.law import (
    DIGIT,
    SOUNDNESS,
    Arithmetic,
    CoarseLaw,
    Level,
    Shares,
    Wires,
    field_elements,
    lattice_ripple,
    open_proven,
    plain_signs,
    with_proof,
)
from sordino.kernel import Release
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.mechanism import Gaussian, SymmetricGaussian
from sordino.kernel.noise import NoiseSource
from sordino.kernel.plan import rounded_sum, rounding_of

BLOCK = 1 << 16  # positions of records whose sum is taken in floating point
# Deviations of noise that a sum has room for: 9 of the coarse part and 16 of each of 100 members' fine ones,
# 25 times 100^1.5 at most. A fine part beyond 16 deviations has a probability below 2^-180.
ROOM = 2**15


@dataclass(frozen=True)
class Lattice:
    """The grid of one release.

    Parameters
    ----------
    spacing : the real number that 1 stands for, a power of two.
    std : the noise that every coalition must be left with, in units of ``spacing``.
    bound : no coordinate of the exact sum of all parties is larger, in units of ``spacing``.
    """

    spacing: float
    std: float
    bound: int


@dataclass(frozen=True)
class Quantised:
    """One party's answer on the grid; ``symmetric`` ones are the half of a matrix."""

    values: Ints
    lattice: Lattice
    symmetric: bool = False

    def give_shape(self, opened: Any) -> Floats:
        """Return opened numbers, in real units, in the shape that the query has."""
        opened = np.asarray(opened, dtype=float)
        return SymmetricGaussian.whole(opened) if self.symmetric else opened


def quantise(release: Release, records: Any, params: Any, sensitivity: float, population: int) -> Quantised:
    r"""Return this party's integers, or say that a release cannot be run between parties.

    A sum is evaluated in doubles, in blocks of b = 2^16 neighbouring positions, each rounded to integers, and
    the integers are added, which is exact: the proof is in the privacy notes, "Noise on a lattice".
    """
    kind, reach = type(release.mechanism), release.query.contribution(params)
    if kind not in (Gaussian, SymmetricGaussian):
        raise UnsupportedError(
            f"{kind.__name__} cannot be drawn between parties: only sums with independent "
            "Gaussian noise can. Choose a solver that asks for such sums, for example 'ight'."
        )
    mechanism = cast(Gaussian, release.mechanism)
    spacing = mechanism.lattice(sensitivity)
    values = rounded_sum(release, records, params, spacing, population)
    rounding = rounding_of(release, params, spacing, population)
    rows, corner = release.rows, mechanism.corner(values.size) * spacing
    widened = rows * rounding.widen(sensitivity / rows, corner)  # a chain of neighbours, each rounded anew
    # Every coordinate of a record is at most its norm; 1 is for the rounding of each party.
    bound = 1 << math.ceil(population * (reach / spacing + 1) * (1 + 2.0**-30)).bit_length()
    lattice = Lattice(spacing, _round_up(mechanism.scale(widened) / spacing), bound)
    if not bound + ROOM * lattice.std < 2**60:
        raise UnsupportedError(
            f"{population} records of clip norm {reach:g} overflow sums of 61 bits. Use fewer records or a "
            "smaller clip norm."
        )
    return Quantised(values, lattice, kind is SymmetricGaussian)


def _round_up(std: float) -> float:
    """Return 24 leading bits, a little more: all parties get the same, however their processors round."""
    mantissa, exponent = math.frexp(std * (1 + 2.0**-30))
    return math.ldexp(math.ceil(mantissa * 2**24), exponent - 24)


class Mode(str, Enum):
    """Where the noise comes from.

    ``INSIDE``: one copy, drawn inside the computation from the randomness of all parties.
    ``AGGREGATION``: every party adds a share of the noise, larger by m / (m - t) against t colluders;
    nothing but additions, for long vectors.
    """

    INSIDE = "noise-inside"
    AGGREGATION = "secure-aggregation"


@dataclass(frozen=True)
class Draw:
    """What a party contributes to the noise of one release beside what is in its values.

    ``step`` is 0 in aggregation mode: there is no coarse part. ``secret`` makes this party's part of the key
    of the proof and is never shown, ``coin`` its part of the public coin. ``reaches`` bounds what each party
    may contribute (:func:`valid_total`); nothing is checked where it is empty.
    """

    step: int
    signs: Any = field(repr=False)
    law: CoarseLaw
    secret: bytes = field(repr=False)
    coin: bytes = field(repr=False)
    reaches: tuple[int, ...] = ()
    party: int = 0

    def part(self, number: int, columns: slice = slice(None)) -> Draw:
        """Return the draw of some columns, with a key and a coin of its own: a proof shows its key."""
        salt = number.to_bytes(8, "little")
        secret, coin = (hashlib.sha256(own + salt).digest() for own in (self.secret, self.coin))
        signs = None if self.signs is None else self.signs[:, columns]
        return replace(self, signs=signs, secret=secret, coin=coin)


@dataclass(frozen=True)
class NoiseShare:
    """How m parties make the noise of a release when t of them may collude.

    **Privacy.** Any t parties are left with rounded Gaussian noise of the full standard deviation, but for
    a total variation distance of :meth:`distance` per coordinate, whatever they share or send.
    """

    mode: Mode
    parties: int
    threshold: int
    dropouts: int = 0  # how many may leave an aggregation without stopping it

    def __post_init__(self) -> None:
        most = min(self.parties - self.threshold - 1, 2 * (self.parties - 2 * self.threshold - 1)) // 2
        if self.dropouts and (self.mode is not Mode.AGGREGATION or not 0 < self.dropouts <= most):
            raise InvalidInputError(
                f"Expected dropouts in [0, {most}] by {Mode.AGGREGATION.value!r}, {self.parties} parties "
                f"and a threshold of {self.threshold}, got {self.dropouts} in mode {self.mode.value!r}."
            )

    @property
    def law(self) -> CoarseLaw:
        """The law of the coarse part: the more fine parts there are, the wider it is."""
        return CoarseLaw.against(self.threshold)

    @property
    def copies(self) -> float:
        """The variance of the opened noise over the variance that is needed."""
        if self.mode is Mode.AGGREGATION:
            return self.parties / (self.parties - self.threshold - self.dropouts)
        return 1 + self.threshold * self.law.fine / self.law.total

    @property
    def distance(self) -> float:
        """The distance of one coordinate from an exactly rounded Gaussian, an upper bound."""
        if self.mode is Mode.AGGREGATION:
            # Each share has a std of at least 16 lattice points: see the proof.
            return self.parties * max(lattice_ripple(128.0), 2.0**-1000) + VALIDITY
        # The proof that nobody bent the noise, and a chance end of the check of contributions, per release.
        return self.law.distance + SOUNDNESS + VALIDITY

    def reaches(self, lattice: Lattice, records: Sequence[int], size: int) -> tuple[int, ...]:
        r"""Return a power of two for each party that no projection of an honest contribution exceeds.

        With n_j of n records a party's integers have a norm of at most ``bound n_j / n``, its fine part one
        of at most ``(sqrt D + 9) std`` but for a probability of ``2^-58``, and a random combination of
        coefficients -1, 0 and 1 exceeds ten norms with a probability below ``2 e^-50 < 2^-70``.
        """
        rounding = math.sqrt(size) * (max(records) // BLOCK + 2)
        fine = (math.sqrt(size) + 9) * self.fine_std(lattice) + rounding
        norms = [lattice.bound * (n / sum(records)) + fine for n in records]
        return tuple(1 << math.ceil(10 * norm).bit_length() for norm in norms)

    def draw(self, values: Ints, lattice: Lattice, party: int, noise: NoiseSource) -> tuple[Ints, Draw]:
        """Return this party's values with its fine noise, and its contribution to the coarse part."""
        drawn = replace(self.ahead(values.size, noise), step=self.step(lattice), party=party)
        return self.with_fine_part(values, lattice, party, noise), drawn

    def ahead(self, count: int, noise: NoiseSource) -> Draw:
        """Return what a party contributes to the coarse noise of so many coordinates, before any is asked."""
        signs = None
        if self.mode is Mode.INSIDE:
            signs = noise.signs((self.law.bits + 1, count)).astype(np.int64)
        secret, coin = noise.integers(256, (2, 32)).astype(np.uint8)
        return Draw(1, signs, self.law, secret.tobytes(), coin.tobytes())

    def step(self, lattice: Lattice) -> int:
        """Return the spacing of the coarse part in grid points; 0 where there is none."""
        if self.mode is Mode.AGGREGATION:
            return 0
        return math.floor(lattice.std / math.sqrt(self.law.total))

    def with_fine_part(self, values: Ints, lattice: Lattice, party: int, noise: NoiseSource) -> Ints:
        """Return this party's values with the noise that it draws alone."""
        if self.mode is Mode.INSIDE and party > self.threshold:
            return values  # t + 1 have fine parts: one of them is not known to the t colluders
        return np.asarray(values + noise.rounded_gaussian(self.fine_std(lattice), values.shape))

    def fine_std(self, lattice: Lattice) -> float:
        """Return the deviation of a fine part in grid points."""
        if self.mode is Mode.AGGREGATION:
            std = lattice.std / math.sqrt(self.parties - self.threshold - self.dropouts)
        else:
            std = math.sqrt(lattice.std**2 - self.law.variance * self.step(lattice) ** 2)
        if std < 16:
            raise InvalidInputError(f"Expected a fine part of at least 16 grid points, got {std:g}.")
        return std


# Everything here is written against :class:`Arithmetic`, on one party's shares. Sums and public factors are
# local, and so is a product, which :meth:`Arithmetic.reduce` brings back to the degree of a sharing. A wire
# of the noise is a pair ``(x, key x)`` along the first axis: see :mod:`sordino.execute.parties.law`.


async def joint_noise(engine: Arithmetic, draw: Draw) -> Shares:
    """Return shares of the coarse noise G, which needs no record: it may be drawn before there are any.

    It is handed out when everybody's signs and all products have passed :meth:`Wires.prove`.
    """
    wires = await Wires.draw(engine, draw.secret, draw.coin, draw.signs)
    signs = await wires.signs(draw.signs.shape)
    coarse = await coarse_noise(wires, await joint_signs(wires.times, signs), draw.law)
    await wires.prove(coarse[0])
    return np.asarray(coarse[0])


VALIDITY = 2.0**-64  # an honest member is taken for one that contributes too much (:func:`valid_total`)
PROJECTIONS = 20  # who contributes too much passes with a probability of 2^-20 at most


async def valid_total(engine: Arithmetic, values: Any, draw: Draw) -> Shares:
    r"""Return shares of the sum of everybody's values, after a check that each contributes what it may.

    ``values`` are this party's integers with its fine noise. When all are shared, a coin gives
    :data:`PROJECTIONS` rows of coefficients -1, 0, 0, 1. Each party shares the bits of ``z + T`` for each
    combination z of its values, as signs with their proof, and a second coin chooses where the proofs are
    looked at. The difference of both is opened: zero, for an honest party, and therefore nothing.

    **Soundness.** If some value v is further than 2 T from zero (in the field), then of ``a - v``, ``a``,
    ``a + v`` at most one is within ``[-T, T)``, whatever the others add up to: a row lets it pass with a
    probability of at most 1/2, all rows with ``2^-20``.
    """
    f, second = engine.field, draw.part(2**62)
    own = np.append(f.array(values), field_elements(draw.secret + b"total", 1, f))
    dealt = np.stack(await engine.share(own, (draw.coin, second.coin)))
    total, mask = f.sum(dealt[:, :-1], axis=0), f.sum(dealt[:, -1], axis=0)
    if not draw.reaches:
        return total
    rows = _coefficients(await engine.coin(draw.coin), total.size)
    bits = _bit_signs(rows, values, draw, max(draw.reaches).bit_length())  # of numbers below 2 T
    proven = await engine.share(with_proof(bits, second.secret, f))
    seed = await engine.coin(second.coin)
    apart = _apart(f, draw.reaches, dealt[:, :-1], [plain_signs(part, bits.shape) for part in proven], rows)
    opened = await open_proven(engine, proven, seed, total, mask, apart)
    for party, differences in enumerate(opened):
        if any(int(x) for x in differences):
            raise engine.blame("contributed more than its records can", party)
    return total


def _apart(f: Field, reaches: Sequence[int], values: Any, signs: Sequence[Shares], rows: Ints) -> Shares:
    """Return by how much each party's bits miss the combinations of its values."""
    up, down = (rows > 0).astype(np.uint8), (rows < 0).astype(np.uint8)
    apart = []
    for reach, own, bits in zip(reaches, values, signs):
        z = f.subtract(*(f.apply(lambda x, part=part: part.astype(x.dtype) @ x, own) for part in (up, down)))
        weights = [1 << bit if 1 << bit <= reach else 0 for bit in range(len(bits))]
        half = f.multiply(f.subtract(f.array(1), bits), f.array((f.modulus + 1) // 2))
        sums = f.sum(f.multiply(half, f.array(weights)[:, None]), axis=0)
        apart.append(f.subtract(f.subtract(sums, z), f.array(reach)))
    return np.stack(apart)


def _coefficients(coin: bytes, size: int) -> Ints:
    stream = np.frombuffer(hashlib.shake_256(coin + b"rows").digest(PROJECTIONS * size), dtype=np.uint8)
    return np.array([-1, 0, 0, 1])[stream.reshape(PROJECTIONS, size) & 3]


def _bit_signs(rows: Ints, values: Any, draw: Draw, length: int) -> Ints:
    """Return the bits of this party's projections, with 1 for 0 and -1 for 1."""
    high, low = np.asarray(values) >> 31, np.asarray(values) & (2**31 - 1)
    found = (rows @ high).astype(object) * 2**31 + (rows @ low).astype(object) + draw.reaches[draw.party]
    bits = [[(int(z) >> bit) & 1 for z in found] for bit in range(length)]
    return 1 - 2 * np.array(bits, dtype=np.int64)


async def joint_signs(times: Any, signs: Sequence[Shares]) -> Shares:
    """Return the products of everybody's signs: fair and secret if one party's are."""
    while len(signs) > 1:  # in pairs, all at once
        half = len(signs) // 2
        found = await times(np.stack(signs[:half], axis=1), np.stack(signs[half : 2 * half], axis=1))
        signs = [*found.swapaxes(0, 1), *signs[2 * half :]]
    return signs[0]


async def coarse_noise(wires: Wires, signs: Shares, law: CoarseLaw) -> Shares:
    """Return G as a wire, from ``law.bits + 1`` rows of secret signs."""
    f, width = wires.numbers, signs.shape[-1]
    half = f.array((f.modulus + 1) // 2)
    bits = f.multiply(f.subtract(wires.one((law.bits, width)), signs[:, : law.bits]), half)
    at_most = f.apply(lambda x: np.cumsum(x, axis=1), await one_hot(wires, bits))  # row c: is the digit <= c?
    state = wires.one((1, width))
    magnitude = np.zeros_like(signs[:, law.bits])
    for depth, level in enumerate(law.levels):
        found, state = await _step(wires, level, state, at_most[:, :, depth])
        magnitude = f.add(magnitude, found)
    return await wires.times(magnitude, signs[:, law.bits])


async def _step(wires: Wires, level: Level, state: Shares, at_most: Shares) -> tuple[Shares, Shares]:
    """Count the thresholds that the present digit decides, and walk on."""
    f = wires.numbers
    below = np.concatenate([np.zeros_like(at_most[:, :1]), at_most], axis=1)  # row c: is the digit < c?
    decided = f.apply(lambda x: np.add.reduceat(x, level.groups, axis=1), below[:, level.digit])
    found = f.sum(f.multiply(state[:1], decided), axis=1)[:, None]
    equal = f.subtract(below[:, level.child + 1], below[:, level.child])
    fresh = await wires.reshare(np.concatenate([found, f.multiply(state[:1, level.parent], equal)], axis=1))
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
        present = monomials[:, [i | bit for i in absent]]
        monomials[:, absent] = wires.numbers.subtract(monomials[:, absent], present)
    return monomials
