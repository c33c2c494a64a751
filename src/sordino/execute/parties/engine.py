"""What every engine for sums with noise offers, the noise that is drawn inside of it, and a party's own.

The noise of a coordinate is ``step * G + V_1 + ... + V_h``. G has almost the discrete Gaussian law of
variance 30 and is drawn from the secret random signs of all parties, so nobody knows it; each ``V_j`` is
an exactly rounded Gaussian that one party draws, with a variance of ``2 step^2``. Whoever knows all but one
of the ``V_j`` is left with ``step * G + V``, which is a rounded Gaussian of variance ``32 step^2`` but for
:meth:`CoarseLaw.distance`: one copy of noise and a sixteenth for each further ``V_j``.

The proof is in ``docs/parties/noise-proof.md``.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, cached_property
from typing import Any, Protocol, cast

import mpmath
import numpy as np

from sordino.errors import InvalidInputError, PartyError, UnsupportedError
from sordino.execute.parties.field import Field, Residues, lagrange
from sordino.kernel import Release
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.mechanism import Gaussian, SymmetricGaussian
from sordino.kernel.noise import NoiseSource
from sordino.kernel.plan import rounded_sum, rounding_of

DIGIT = 4
_PRECISION = 80  # decimal digits of the tables


@dataclass(frozen=True)
class CoarseLaw:
    r"""``sign * M`` with ``M = #{k : U < t_k}``, U uniform on ``digits`` hexadecimal digits.

    ``t_k`` is ``P(|G| >= k)`` for the discrete Gaussian G, rounded to that many digits.

    Parameters
    ----------
    variance : of the discrete Gaussian, in units of ``step^2``.
    fine : the variance of what one party adds, in the same units.
    digits : hexadecimal digits of U.
    largest : the largest magnitude.
    """

    variance: int = 30
    fine: int = 2
    digits: int = 14
    largest: int = 46

    @classmethod
    @cache
    def against(cls, colluders: int) -> CoarseLaw:
        """Return the law with which ``colluders`` superfluous fine parts add a sixteenth to the variance."""
        variance = 32 * colluders - 2
        return cls(variance=variance, largest=math.ceil(8.39 * math.sqrt(variance)))

    @property
    def bits(self) -> int:
        """The number of secret bits of U; the sign takes one more."""
        return DIGIT * self.digits

    @property
    def total(self) -> int:
        """The variance that is left to whoever knows all but one of the fine parts."""
        return self.variance + self.fine

    @cached_property
    def _tails(self) -> list[Any]:
        with mpmath.workdps(_PRECISION):
            # Beyond three times the table there is less than 10^-130 of the mass.
            weights = [mpmath.exp(-mpmath.mpf(k * k) / (2 * self.variance)) for k in range(3 * self.largest)]
            tails = list(itertools.accumulate(reversed(weights[1:])))[::-1]
            return [2 * tail / (weights[0] + 2 * tails[0]) for tail in tails[: self.largest + 1]]

    @cached_property
    def thresholds(self) -> tuple[int, ...]:
        """The integers ``t_1 >= t_2 >= ...``."""
        with mpmath.workdps(_PRECISION):
            return tuple(int(mpmath.nint(tail * 2**self.bits)) for tail in self._tails[: self.largest])

    @cached_property
    def distance(self) -> float:
        """An upper bound on the total variation distance of one coordinate from the rounded Gaussian."""
        with mpmath.workdps(_PRECISION):
            ideal = [mpmath.mpf(1), *self._tails]
            ours = [mpmath.mpf(1), *(mpmath.mpf(t) / 2**self.bits for t in self.thresholds), mpmath.mpf(0)]
            steps = [(ours[k] - ours[k + 1]) - (ideal[k] - ideal[k + 1]) for k in range(self.largest + 1)]
            table = (mpmath.fsum(map(abs, steps)) + ideal[-1]) / 2
            both = mpmath.mpf(self.variance * self.fine) / self.total
            ripple = lattice_ripple(float(both)) + lattice_ripple(float(self.variance))
            return float(table) + ripple * (1 + 1e-9)

    def magnitude(self, uniforms: Any) -> Ints:
        """Return M for integers U in the clear: what the circuit computes in secret."""
        ascending = np.array(self.thresholds[::-1], dtype=np.uint64)
        return self.largest - np.searchsorted(ascending, np.asarray(uniforms, np.uint64), side="right")

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The comparison with all thresholds as a walk over the digits."""
        shifts = [DIGIT * (self.digits - 1 - depth) for depth in range(self.digits)]
        prefixes = [[t >> (shift + DIGIT) for t in self.thresholds] for shift in shifts]
        levels = []
        for depth, shift in enumerate(shifts):
            groups = _starts(prefixes[depth])
            digit = np.array([(t >> shift) & (2**DIGIT - 1) for t in self.thresholds])
            parent, child = np.array([], dtype=np.int64), np.array([], dtype=np.int64)
            if depth + 1 < self.digits:
                first = _starts(prefixes[depth + 1])
                parent, child = np.searchsorted(groups, first, side="right") - 1, digit[first]
            levels.append(Level(groups, digit, parent, child))
        return tuple(levels)


def lattice_ripple(variance: float) -> float:
    r"""Return ``2 sum_k exp(-2 pi^2 v k^2)``: how far a Gaussian's sum over the integers is from 1."""
    first = math.exp(-2 * math.pi**2 * variance)
    return 2 * first / (1 - first) * (1 + 1e-9)


def _starts(prefix: list[int]) -> Ints:
    return np.array([k for k, p in enumerate(prefix) if k == 0 or p != prefix[k - 1]], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Level:
    """One digit of the walk.

    A *state* says that the digits so far are those of some thresholds. ``groups`` are the first
    thresholds of each state, ``digit`` the present digit of each threshold; ``parent`` and ``child`` make the
    states of the next level: state ``parent[i]`` continued by digit ``child[i]``.
    """

    groups: Ints
    digit: Ints
    parent: Ints
    child: Ints


# Signs are proven by whoever shares them (:func:`with_proof`). Products cannot be bent: a wire is a pair
# ``(x, k x)`` with a key k that all parties draw, and a random combination over all wires must be zero before
# anything is opened. A lie passes with a probability of at most ``SOUNDNESS`` per release, for up to
# ``threshold`` members who deviate as they like: docs/parties/noise-proof.md, "Members who lie".

Shares = Residues
SOUNDNESS = 64 / (2.0**61 - 1)
COLUMNS = 20  # signs of a row, the values of one polynomial
_RANDOM = 3  # the key, a mask, and a factor for the zero


class Arithmetic(Protocol):
    """What a secret-sharing engine offers."""

    field: Field

    async def share(self, mine: Any, coins: Sequence[bytes] = ()) -> list[Shares]:
        """Share this party's values and promise its coins; return the shares of everybody's, of one shape."""

    async def reduce(self, product: Shares) -> Shares:
        """Return a fresh sharing of products of shares."""

    async def reveal(self, secret: Shares) -> Shares:
        """Open a secret to all parties, or fail if the shares do not agree."""

    async def coin(self, mine: bytes) -> bytes:
        """Toss a promised coin: nobody knows it before everybody is here, and nobody can choose it."""

    def blame(self, what: str, party: int) -> PartyError:
        """Return the error that names a party by its place."""


def with_proof(signs: Any, secret: bytes, numbers: Field) -> Shares:
    """Return signs in rows of :data:`COLUMNS`, filled up with ones, between a mask and squares.

    A mask and the signs of a row are the values at 0, 1, ... of a polynomial f. Its square is 1 where signs
    are; the squares at the other ``COLUMNS + 1`` points that determine ``f^2`` are the rest of the row.
    """
    ones = np.ones(-np.size(signs) % COLUMNS, dtype=np.int64)
    flat = numbers.array(np.append(np.reshape(signs, -1), ones))
    rows, places = flat.reshape(-1, COLUMNS), range(COLUMNS + 1)
    mask = field_elements(secret + b"masks", len(rows), numbers)[:, None]
    values = np.concatenate([mask, rows], axis=1)
    further = np.stack([numbers.array(lagrange(numbers.modulus, places, COLUMNS + k)) for k in places[1:]])
    free = np.concatenate(
        [mask, numbers.sum(numbers.multiply(values[:, None], further[None]), axis=2)], axis=1
    )
    return np.concatenate([values, numbers.multiply(free, free)], axis=1)


def plain_signs(proven: Shares, shape: tuple[int, ...]) -> Shares:
    """Return the signs of rows with their proofs, in the shape that they had."""
    return proven[..., 1 : COLUMNS + 1].reshape(-1)[: math.prod(shape)].reshape(shape)


async def open_proven(
    engine: Arithmetic, proven: list[Shares], seed: bytes, total: Shares, mask: Any, others: Shares
) -> Shares:
    """Open ``others`` if everybody's signs are signs and shares fit; name a party whose signs are none.

    Opened with them is a combination of the shares of ``total`` under a mask, each value of a party's
    polynomials at a point that the coin ``seed`` chose, which their masks make uniform, and a combination of
    squares that should be theirs.
    """
    f, rows = engine.field, np.stack(proven)
    factors = field_elements(seed + b"factors", rows.shape[1], f)
    (drawn,) = map(int, field_elements(seed + b"point", 1, f))
    point = COLUMNS + 1 + drawn % (f.modulus - COLUMNS - 1)  # at none of the signs
    first, *weights = lagrange(f.modulus, range(2 * COLUMNS + 1), point)
    known, free = lagrange(f.modulus, range(COLUMNS + 1), point), [first, *weights[COLUMNS:]]
    values = f.sum(f.multiply(rows[:, :, : COLUMNS + 1], f.array(known)), axis=2)
    squares = f.sum(f.multiply(rows[:, :, COLUMNS + 1 :], f.array(free)), axis=2)
    squares = f.add(squares, f.array(sum(weights[:COLUMNS])))  # 1 at each sign
    across = f.multiply(field_elements(seed + b"total", total.size, f), total.reshape(-1))
    sharing, claims = f.add(mask, f.sum(across, 0)), f.sum(f.multiply(squares, factors), axis=1)
    parts = [np.reshape(part, -1) for part in (others, sharing, values, claims)]
    opened = await engine.reveal(np.concatenate(parts))  # shares of a wrong degree fail to open here
    shown = opened[others.size + 1 : -len(rows)].reshape(values.shape)
    found = f.sum(f.multiply(f.multiply(shown, shown), factors), axis=1)
    for party in np.flatnonzero(found != opened[-len(rows) :]):
        raise engine.blame("failed the sign check: it shared numbers that are no signs", int(party))
    return np.asarray(opened[: others.size].reshape(others.shape))


@dataclass
class Wires:
    """The wires of one release as one party holds them: ``random`` are shares, ``coin`` is its own."""

    engine: Arithmetic
    coin: bytes = field(repr=False)
    random: Shares = field(repr=False)
    proven: list[Shares] = field(repr=False)
    log: list[Shares] = field(default_factory=list, repr=False)

    @classmethod
    async def draw(cls, engine: Arithmetic, secret: bytes, coin: bytes, signs: Any) -> Wires:
        """Share this party's signs, the key and what else must be known to nobody."""
        own, proof = field_elements(secret, _RANDOM, engine.field), with_proof(signs, secret, engine.field)
        dealt = await engine.share(np.concatenate([own, proof.reshape(-1)]), (coin,))
        random = engine.field.sum(np.stack([part[:_RANDOM] for part in dealt]), axis=0)
        return cls(engine, coin, random, [part[_RANDOM:].reshape(proof.shape) for part in dealt])

    @property
    def numbers(self) -> Field:
        return self.engine.field

    def one(self, shape: tuple[int, ...]) -> Shares:
        """Return the wire of the constant 1."""
        unit = self.numbers.array(np.ones(shape, dtype=np.int64))
        return np.stack([unit, self.numbers.multiply(unit, self.random[0])])

    async def signs(self, shape: tuple[int, ...]) -> list[Shares]:
        """Return everybody's signs as wires; :meth:`prove` will refuse what is not 1 or -1."""
        plain = np.stack([plain_signs(part, shape) for part in self.proven])
        found = np.stack([plain, await self.engine.reduce(self.numbers.multiply(plain, self.random[0]))])
        self.log.append(found)
        return list(found.swapaxes(0, 1))

    async def times(self, left: Shares, right: Shares) -> Shares:
        return await self.reshare(self.numbers.multiply(left[:1], right))

    async def reshare(self, product: Shares) -> Shares:
        """Bring sums of products of wires back to the degree of a sharing."""
        found = await self.engine.reduce(product)
        self.log.append(found)
        return found

    async def prove(self, total: Shares) -> None:
        """Check everything so far, and the sharing of ``total``; raise ``PartyError`` if somebody lied."""
        f, (key, mask, factor) = self.numbers, map(int, self.random)
        seed = hashlib.sha256(await self.engine.coin(self.coin)).digest()
        plain, tagged = self._combination(seed + b"wires", self.log)
        twist = map(int, field_elements(seed + b"twist", 3, f))
        sharing = mask + plain + sum(t * x for t, x in zip(twist, (tagged, factor, key)))
        facts = f.array(sharing % f.modulus), f.array([key])
        (shown,) = await open_proven(self.engine, self.proven, seed, total, *facts)
        zero = (tagged - int(shown) * plain) * factor
        (products,) = await self.engine.reveal(await self.engine.reduce(f.array([zero % f.modulus])))
        if products:
            raise PartyError("Product check: a party bent a product of the joint noise.")

    def _combination(self, seed: bytes, wires: list[Shares]) -> list[int]:
        """Return one random combination of all wires: a coefficient for the row times one for the column."""
        f, width = self.numbers, wires[0].shape[-1]
        rows = np.concatenate([w.reshape(len(w), -1, width) for w in wires], axis=1)
        down = field_elements(seed + b"rows", rows.shape[1], f)
        along = field_elements(seed + b"columns", width, f)
        each = f.sum(f.multiply(rows, along), axis=2)
        return [int(x) for x in f.sum(f.multiply(each, down), axis=1)]


def field_elements(seed: bytes, count: int, numbers: Field) -> Shares:
    """Expand a seed to almost uniform numbers of the field (distance below ``2^-63``)."""
    stream = np.frombuffer(hashlib.shake_256(seed).digest(16 * count), dtype="<u8")
    high, low = numbers.array(stream.reshape(2, count))
    return numbers.add(numbers.multiply(high, numbers.array(2**64)), low)


# --------------------------------------------- The noise a party brings along, and sums with it

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
# of the noise is a pair ``(x, key x)`` along the first axis: see :mod:`sordino.execute.parties.engine`.


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
