"""What every engine for sums with noise offers, and the noise a party brings along."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.execute.parties.law import (
    DIGIT,
    SOUNDNESS,
    Arithmetic,
    CoarseLaw,
    Level,
    Shares,
    Wires,
    lattice_ripple,
    share_sum,
)
from sordino.kernel import ClippedSum, OnLattice, Query, Relation, Release
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.mechanism import Gaussian, SymmetricGaussian
from sordino.kernel.noise import NoiseSource

# Real answers as integers: how fine, how large, and what rounding adds to the sensitivity.

# Mersenne primes: the smallest one that holds every sum is the field of a release.
FIELDS = (61, 89, 107, 127)
BLOCK = 1 << 16  # positions of records whose sum is taken in floating point
_TAIL = 16  # a fine part beyond this many deviations has a probability below 2^-180


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

    def field_bits(self, copies: float) -> int:
        """Return the exponent of a Mersenne prime that holds the sum with noise of ``copies`` variances."""
        # 46 / sqrt(32) < 9 deviations is the most that the coarse part can reach.
        largest = self.bound + math.ceil((9 + _TAIL) * self.std * math.sqrt(max(1.0, copies)) * copies)
        for bits in FIELDS:
            if 2 * largest + 1 < 2**bits - 1:
                return bits
        raise UnsupportedError(
            f"The sum needs {largest.bit_length() + 1} bits, the largest field has {FIELDS[-1]}. "
            "Use fewer records or a smaller clip norm."
        )


@dataclass(frozen=True)
class Quantised:
    """One party's answer on the grid; ``symmetric`` ones are the half of a matrix (:class:`HalfMatrix`)."""

    values: Ints
    lattice: Lattice
    symmetric: bool = False

    def shaped(self, opened: Any) -> Floats:
        """Return opened numbers, in real units, in the shape that the query has."""
        opened = np.asarray(opened, dtype=float)
        return HalfMatrix.whole(opened) if self.symmetric else opened


@dataclass(frozen=True)
class HalfMatrix(ClippedSum):
    r"""The upper half of a symmetric matrix, its entries off the diagonal times sqrt 2.

    Its Euclidean norm is the Frobenius norm of the matrix, so sensitivities stay what they are; independent
    noise of standard deviation s on each entry is the noise of :class:`sordino.kernel.SymmetricGaussian`: s
    on the diagonal and s / sqrt 2 off it.
    """

    matrix: Any
    needs: ClassVar[tuple[type, ...]] = ()

    def contribution(self, params: Any) -> float:
        return float(self.matrix.contribution(params))

    def reach(self, params: Any) -> float:
        return float(self.matrix.reach(params))

    def sensitivity(self, relation: Relation, params: Any) -> float:
        return float(self.matrix.sensitivity(relation, params))

    def evaluate(self, records: Any, params: Any) -> Floats:
        found = np.asarray(self.matrix.evaluate(records, params), dtype=float)
        rows, columns = np.triu_indices(len(found))
        return found[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))

    @staticmethod
    def whole(half: Floats) -> Floats:
        """Return the matrix of such a vector."""
        side = (math.isqrt(8 * half.size + 1) - 1) // 2
        rows, columns = np.triu_indices(side)
        out = np.zeros((side, side))
        out[rows, columns] = half / np.where(rows == columns, 1.0, math.sqrt(2.0))
        out[columns, rows] = out[rows, columns]
        return out


def quantise(release: Release, records: Any, params: Any, sensitivity: float, population: int) -> Quantised:
    r"""Return this party's integers.

    A query with an exact integer path truncates what each record adds towards zero, so its norm does not
    grow and the sensitivity is the declared one. Any other sum is evaluated in floating point, in blocks of
    b = 2^16 neighbouring positions, each rounded to integers, and the integers are added, which is exact.

    **Rounding.** Neighbours differ in one record, hence in one block: every other block is the same
    computation on the same numbers and gives the same integers, however many there are. In that block at
    most b vectors of norm at most r (the query's ``reach``, else its contribution) are added up; each of the
    two answers errs by at most ``b 2^-53 / (1 - b 2^-53)`` times the sum of their norms, so by less than
    ``2 b^2 2^-53 r``, and each of its D coordinates is rounded by at most half a grid point. The sensitivity
    grows by ``4 b^2 2^-53 r + sqrt(D)`` grid points: 1.9e-6 contributions for any number of records above b.
    """
    if type(release.mechanism) is SymmetricGaussian and isinstance(release.query, ClippedSum):
        flat = Gaussian(release.mechanism.multiplier)
        half = replace(release, query=HalfMatrix(release.query), mechanism=flat)
        return replace(quantise(half, records, params, sensitivity, population), symmetric=True)
    mechanism = gaussian_of(release)
    if isinstance(release.query, OnLattice):
        lattice = _lattice(mechanism, sensitivity, release, params, population, slack=0)
        return Quantised(release.query.evaluate_on_lattice(records, params, lattice.spacing), lattice)
    spacing = mechanism.lattice(sensitivity)
    parts = records.by_position(BLOCK) if isinstance(release.query, ClippedSum) else [records]
    answers = (np.asarray(release.query.evaluate(part, params), dtype=float) for part in parts)
    rounded = [np.rint(answer / spacing).astype(np.int64) for answer in answers]
    values: Ints = np.sum(np.stack(rounded), axis=0)
    widened = sensitivity + math.sqrt(values.size) * spacing + _floating(release.query, params, population)
    lattice = _lattice(mechanism, widened, release, params, population, slack=1, spacing=spacing)
    return Quantised(values, lattice)


def _floating(query: Query, params: Any, population: int) -> float:
    """Return how much further than declared neighbours may be apart because sums are taken in doubles."""
    each = query.contribution(params)
    if not isinstance(query, ClippedSum):  # a weighted point, at most ``population`` contributions from zero
        return 4 * population * 2.0**-53 * each
    return 4 * min(population, BLOCK) ** 2 * 2.0**-53 * query.reach(params)


def _lattice(
    mechanism: Gaussian,
    sensitivity: float,
    release: Release,
    params: Any,
    population: int,
    slack: int,
    spacing: float | None = None,
) -> Lattice:
    spacing = mechanism.lattice(sensitivity) if spacing is None else spacing
    # Every coordinate of a record is at most its norm; ``slack`` is for the rounding of each party.
    each = release.query.contribution(params) / spacing + slack
    bound = 1 << math.ceil(population * each * (1 + 2.0**-30)).bit_length()
    if bound >= 2**62:
        raise UnsupportedError(
            f"{population} records of clip norm {release.query.contribution(params):g} overflow 64-bit sums."
        )
    return Lattice(spacing, _round_up(mechanism.scale(sensitivity) / spacing), bound)


def _round_up(std: float) -> float:
    """Return 24 leading bits, a little more: all parties get the same, however their processors round."""
    mantissa, exponent = math.frexp(std * (1 + 2.0**-30))
    return math.ldexp(math.ceil(mantissa * 2**24), exponent - 24)


def gaussian_of(release: Release) -> Gaussian:
    """Return the Gaussian mechanism of a release, or say that it cannot be run between parties."""
    if type(release.mechanism) is not Gaussian:
        raise UnsupportedError(
            f"{type(release.mechanism).__name__} cannot be drawn between parties: only sums with independent "
            "Gaussian noise can. Choose a solver that asks for such sums, for example 'ight'."
        )
    return release.mechanism


class Mode(str, Enum):
    """Where the noise comes from.

    ``INSIDE``: one copy, drawn inside the computation from the randomness of all parties.
    ``AGGREGATION``: every party adds a share of the noise, larger by m / (m - t) against t colluders;
    nothing but additions, for long vectors.
    """

    INSIDE = "noise-inside"
    AGGREGATION = "secure-aggregation"

    @classmethod
    def parse(cls, value: Mode | str) -> Mode:
        try:
            return cls(value)
        except ValueError:
            names = ", ".join(repr(m.value) for m in cls)
            raise InvalidInputError(f"Expected mode in {{{names}}}, got {value!r}.") from None


@dataclass(frozen=True)
class Draw:
    """What a party contributes to the noise of one release beside what is in its values.

    ``step`` is 0 in aggregation mode: there is no coarse part. ``secret`` makes this party's part of the key
    of the proof and is never shown, ``coin`` its part of the public coin.
    """

    field_bits: int
    step: int
    signs: Any = field(repr=False)
    law: CoarseLaw
    secret: bytes = field(repr=False)
    coin: bytes = field(repr=False)

    def part(self, number: int, columns: slice) -> Draw:
        """Return the draw of some columns, with a key and a coin of its own: a proof shows its key."""
        salt = number.to_bytes(8, "little")
        secret, coin = (hashlib.sha256(own + salt).digest() for own in (self.secret, self.coin))
        signs = None if self.signs is None else self.signs[:, columns]
        return replace(self, signs=signs, secret=secret, coin=coin)


class Engine(Protocol):
    """One party's end of a computation that opens noised sums only."""

    def sum(self, values: Ints, draw: Draw) -> NDArray[Any]:
        """Open the noised sum."""


@dataclass(frozen=True)
class NoiseShare:
    """How m parties make the noise of a release when t of them may collude.

    **Privacy.** Any t parties are left with rounded Gaussian noise of the full standard deviation, but for
    a total variation distance of :meth:`distance` per coordinate, whatever they share or send.
    """

    mode: Mode
    parties: int
    threshold: int

    @property
    def law(self) -> CoarseLaw:
        """The law of the coarse part: the more fine parts there are, the wider it is."""
        return CoarseLaw.against(self.threshold)

    @property
    def copies(self) -> float:
        """The variance of the opened noise over the variance that is needed."""
        if self.mode is Mode.AGGREGATION:
            return self.parties / (self.parties - self.threshold)
        return 1 + self.threshold * self.law.fine / self.law.total

    @property
    def distance(self) -> float:
        """The distance of one coordinate from an exactly rounded Gaussian, an upper bound."""
        if self.mode is Mode.AGGREGATION:
            # Each share has a std of at least 16 lattice points: see the proof.
            return self.parties * max(lattice_ripple(128.0), 2.0**-1000)
        return self.law.distance + SOUNDNESS  # of the proof that nobody bent the noise, once per release

    def draw(self, values: Ints, lattice: Lattice, party: int, noise: NoiseSource) -> tuple[Ints, Draw]:
        """Return this party's values with its fine noise, and its contribution to the coarse part."""
        if self.mode is Mode.INSIDE:
            shape = (self.law.bits + 1, values.size)
            signs = noise.signs(shape).astype(np.int64)
        else:
            signs = None
        ready = self.with_fine_part(values, lattice, party, noise)
        secret, coin = noise.integers(256, (2, 32)).astype(np.uint8)
        bits = lattice.field_bits(self.parties)
        return ready, Draw(bits, self.step(lattice), signs, self.law, secret.tobytes(), coin.tobytes())

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
            std = lattice.std / math.sqrt(self.parties - self.threshold)
        else:
            std = math.sqrt(lattice.std**2 - self.law.variance * self.step(lattice) ** 2)
        if std < 16:
            raise InvalidInputError(f"Expected a fine part of at least 16 grid points, got {std:g}.")
        return std


# Everything here is written against :class:`Arithmetic`, on one party's shares. Sums and public factors are
# local, and so is a product, which :meth:`Arithmetic.reduce` brings back to the degree of a sharing. A wire
# of the noise is a pair ``(x, key x)`` along the first axis: see :mod:`sordino.execute.parties.law`.

Times = Callable[[Shares, Shares], Awaitable[Shares]]


async def noised_sum(engine: Arithmetic, values: Any, draw: Draw) -> Shares:
    """Open ``sum of everybody's values + step * G`` and nothing else.

    ``values`` are this party's integers with its fine noise. Nothing that depends on a record is opened
    before everybody's signs and all products have passed :meth:`Wires.prove`.
    """
    numbers = engine.field
    total = share_sum(await engine.share(values), numbers)
    wires = await Wires.keyed(engine, draw.secret, draw.coin)
    signs = await wires.signs(await engine.share(draw.signs))
    coarse = await coarse_noise(wires, await joint_signs(wires.times, signs), draw.law)
    await wires.prove(total)
    return await engine.reveal(numbers.add(total, numbers.multiply(coarse[0], numbers.array(draw.step))))


async def plain_sum(engine: Arithmetic, values: Any) -> Shares:
    """Open the sum of everybody's values, each of which holds its share of the noise."""
    return await engine.reveal(share_sum(await engine.share(values), engine.field))


async def joint_signs(times: Times, signs: Sequence[Shares]) -> Shares:
    """Return the products of everybody's signs: fair and secret if one party's are."""
    first, *others = signs
    for other in others:
        first = await times(first, other)
    return first


async def coarse_noise(wires: Wires, signs: Shares, law: CoarseLaw) -> Shares:
    """Return G as a wire, from ``law.bits + 1`` rows of secret signs."""
    f, width = wires.numbers, signs.shape[-1]
    half = f.array((f.modulus + 1) // 2)
    bits = f.multiply(f.subtract(wires.one((law.bits, width)), signs[:, : law.bits]), half)
    at_most = f.apply(lambda x: np.cumsum(x, axis=1), await one_hot(wires, bits))  # row c: is the digit <= c?
    state = wires.one((1, width))
    magnitude = np.zeros_like(signs[:, law.bits])
    for depth, level in enumerate(law.levels()):
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
    fresh = await wires.settled(np.concatenate([found, f.multiply(state[:1, level.parent], equal)], axis=1))
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
