r"""Real answers as integers: how fine, how large, and what rounding adds to the sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sordino.errors import UnsupportedError
from sordino.kernel import ClippedSum, OnLattice, Query, Relation, Release
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.matrix import SymmetricGaussian
from sordino.kernel.mechanism import Gaussian

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
        """Return that of the matrix."""
        return float(self.matrix.contribution(params))

    def reach(self, params: Any) -> float:
        """Return that of the matrix."""
        return float(self.matrix.reach(params))

    def sensitivity(self, relation: Relation, params: Any) -> float:
        """Return that of the matrix."""
        return float(self.matrix.sensitivity(relation, params))

    def evaluate(self, records: Any, params: Any) -> Floats:
        """Return the half as a vector."""
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
    rounded = [_rounded(release.query, part, params, spacing) for part in parts]
    values: Ints = np.sum(np.stack(rounded), axis=0)
    widened = sensitivity + math.sqrt(values.size) * spacing + _floating(release.query, params, population)
    lattice = _lattice(mechanism, widened, release, params, population, slack=1, spacing=spacing)
    return Quantised(values, lattice)


def _rounded(query: Query, records: Any, params: Any, spacing: float) -> Ints:
    answer = np.asarray(query.evaluate(records, params), dtype=float)
    return np.rint(answer / spacing).astype(np.int64)


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
