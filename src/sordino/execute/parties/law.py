"""The noise that is drawn inside the computation, and how far it is from a Gaussian.

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
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Protocol

import mpmath
import numpy as np

from sordino.errors import PartyError
from sordino.execute.parties.field import Field, Residues, lagrange
from sordino.kernel.arrays import Ints

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
