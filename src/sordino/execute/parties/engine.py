"""What every engine for sums with noise offers, and the noise a party brings along."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInputError
from sordino.execute.parties.lattice import Lattice
from sordino.execute.parties.law import CoarseLaw, lattice_ripple
from sordino.execute.parties.proof import SOUNDNESS
from sordino.kernel.arrays import Ints
from sordino.kernel.noise import NoiseSource


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
        """Read a mode from its name."""
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
            signs = noise.signs(shape).astype(np.int64).astype(object)
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


def centred(values: Any, modulus: int) -> NDArray[Any]:
    """Return representatives between minus and plus half the modulus."""
    out: NDArray[Any] = np.where(values > modulus // 2, values - modulus, values)
    return out
