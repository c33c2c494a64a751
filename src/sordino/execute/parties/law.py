r"""The noise that is drawn inside the computation, and how far it is from a Gaussian.

The noise of a coordinate is ``step * G + V_1 + ... + V_h``. G has almost the discrete Gaussian law of
variance 30 and is drawn from the secret random signs of all parties, so nobody knows it; each ``V_j`` is
an exactly rounded Gaussian that one party draws, with a variance of ``2 step^2``. Whoever knows all but one
of the ``V_j`` is left with ``step * G + V``, which is a rounded Gaussian of variance ``32 step^2`` but for
:meth:`CoarseLaw.distance`: one copy of noise and a sixteenth for each further ``V_j``.

The proof is in ``docs/parties/noise-proof.md``.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np

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

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The integers ``t_1 >= t_2 >= ...``."""
        return _thresholds(self)

    @property
    def distance(self) -> float:
        """An upper bound on the total variation distance of one coordinate from the rounded Gaussian."""
        return _distance(self)

    def magnitude(self, uniforms: Any) -> Ints:
        """Return M for integers U in the clear: what the circuit computes in secret."""
        ascending = np.array(self.thresholds[::-1], dtype=np.uint64)
        return self.largest - np.searchsorted(ascending, np.asarray(uniforms, np.uint64), side="right")

    def levels(self) -> tuple[Level, ...]:
        """Return the comparison with all thresholds as a walk over the digits."""
        return _levels(self)


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


@lru_cache(maxsize=8)
def _tails(law: CoarseLaw) -> list[Any]:
    with mpmath.workdps(_PRECISION):
        # Beyond three times the table there is less than 10^-130 of the mass.
        weights = [mpmath.exp(-mpmath.mpf(k * k) / (2 * law.variance)) for k in range(3 * law.largest)]
        tails = list(itertools.accumulate(reversed(weights[1:])))[::-1]
        return [2 * tail / (weights[0] + 2 * tails[0]) for tail in tails[: law.largest + 1]]


@lru_cache(maxsize=8)
def _thresholds(law: CoarseLaw) -> tuple[int, ...]:
    with mpmath.workdps(_PRECISION):
        return tuple(int(mpmath.nint(tail * 2**law.bits)) for tail in _tails(law)[: law.largest])


@lru_cache(maxsize=8)
def _distance(law: CoarseLaw) -> float:
    with mpmath.workdps(_PRECISION):
        ideal = [mpmath.mpf(1), *_tails(law)]
        ours = [mpmath.mpf(1), *(mpmath.mpf(t) / 2**law.bits for t in law.thresholds), mpmath.mpf(0)]
        steps = [(ours[k] - ours[k + 1]) - (ideal[k] - ideal[k + 1]) for k in range(law.largest + 1)]
        table = (mpmath.fsum(map(abs, steps)) + ideal[-1]) / 2
        both = mpmath.mpf(law.variance * law.fine) / law.total
        ripple = lattice_ripple(float(both)) + lattice_ripple(float(law.variance))
        return float(table) + ripple * (1 + 1e-9)


def lattice_ripple(variance: float) -> float:
    r"""Return ``2 sum_k exp(-2 pi^2 v k^2)``: how far a Gaussian's sum over the integers is from 1."""
    first = math.exp(-2 * math.pi**2 * variance)
    return 2 * first / (1 - first) * (1 + 1e-9)


@lru_cache(maxsize=8)
def _levels(law: CoarseLaw) -> tuple[Level, ...]:
    shifts = [DIGIT * (law.digits - 1 - depth) for depth in range(law.digits)]
    prefixes = [[t >> (shift + DIGIT) for t in law.thresholds] for shift in shifts]
    levels = []
    for depth, shift in enumerate(shifts):
        groups = _starts(prefixes[depth])
        digit = np.array([(t >> shift) & (2**DIGIT - 1) for t in law.thresholds])
        parent, child = np.array([], dtype=np.int64), np.array([], dtype=np.int64)
        if depth + 1 < law.digits:
            first = _starts(prefixes[depth + 1])
            parent, child = np.searchsorted(groups, first, side="right") - 1, digit[first]
        levels.append(Level(groups, digit, parent, child))
    return tuple(levels)


def _starts(prefix: list[int]) -> Ints:
    return np.array([k for k, p in enumerate(prefix) if k == 0 or p != prefix[k - 1]], dtype=np.int64)
