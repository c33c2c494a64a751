"""Gaussian noise that is correlated over the releases of a run (matrix factorisation).

Release t gets ``(C^-1 z)_t`` instead of ``z_t``, with C a lower triangular Toeplitz matrix, the *strategy*,
and z independent Gaussian vectors. Part of the noise of a step is taken back in later ones, so that sums
over many steps are less noisy than with independent noise. The proofs are on the page
``docs/correlated-noise.md``.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NoReturn, Protocol, TypeAlias

import numpy as np
from dp_accounting import dp_event as dp

from sordino.errors import InvalidInputError, PlanError, UnsupportedError
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.events import Cyclic, Relation, Sampling, gaussian_event
from sordino.kernel.mechanism import Additive, _ready
from sordino.kernel.noise import NoiseSource
from sordino.kernel.query import Norm


class Strategy(Protocol):
    """A lower triangular Toeplitz matrix with ones on its diagonal, and how ``C^-1 z`` is made row by row."""

    @property
    def bands(self) -> float:
        """How many coefficients are not zero."""

    def coefficients(self, times: int) -> Floats:
        """Return the first ``times`` entries of the first column."""

    def rows(self) -> NextRow:
        """Return what makes one row of ``C^-1 z`` after the other from fresh normal variables."""


NextRow: TypeAlias = Callable[[Any, Any], Any]
"""Of a source of noise and a shape."""


@dataclass(frozen=True)
class Banded:
    """C has ``len(weights)`` bands; it keeps one vector less than that.

    >>> Banded((1.0, 0.5)).coefficients(4)
    array([1. , 0.5, 0. , 0. ])
    """

    weights: tuple[float, ...]

    @property
    def bands(self) -> float:
        return len(self.weights)

    def coefficients(self, times: int) -> Floats:
        found = np.zeros(max(times, len(self.weights)))
        found[: len(self.weights)] = self.weights
        return found[:times]

    def rows(self) -> NextRow:
        past = deque[Any](maxlen=len(self.weights) - 1)

        def next_row(noise: Any, shape: Any) -> Any:
            row = noise.normal(shape)
            for weight, before in zip(self.weights[1:], past):  # the latest comes first
                row -= weight * before
            past.appendleft(row.copy() if isinstance(row, np.ndarray) else row.clone())
            return row

        return next_row


@dataclass(frozen=True)
class Buffered:
    """A buffered linear Toeplitz matrix: ``c_t = sum_i scales_i decays_i^(t-1)``; keeps a vector for each i.

    >>> Buffered((0.5,), (0.8,)).coefficients(4)
    array([1.  , 0.5 , 0.4 , 0.32])
    """

    scales: tuple[float, ...]
    decays: tuple[float, ...]

    bands: ClassVar[float] = math.inf

    def coefficients(self, times: int) -> Floats:
        powers = np.arange(max(times - 1, 0))[:, None]
        rest = (np.array(self.scales) * np.array(self.decays) ** powers).sum(axis=1)
        return np.concatenate([[1.0], rest])[:times]

    def rows(self) -> NextRow:
        buffers: list[Any] = []

        def next_row(noise: Any, shape: Any) -> Any:
            row = noise.normal(shape)
            for scale, buffer in zip(self.scales, buffers):
                row -= scale * buffer
            past = buffers or [0.0] * len(self.scales)
            buffers[:] = [decay * buffer + row for decay, buffer in zip(self.decays, past)]
            return row

        return next_row


@dataclass(frozen=True)
class Regenerated:
    """C^-1 has few bands, ``taps``: past noise is made again from its keys, so that no vector is kept.

    >>> Regenerated((1.0, -0.5)).coefficients(4)
    array([1.   , 0.5  , 0.25 , 0.125])
    """

    taps: tuple[float, ...]

    bands: ClassVar[float] = math.inf

    def coefficients(self, times: int) -> Floats:
        found = np.zeros(times)
        for t in range(times):
            past = found[max(0, t - len(self.taps) + 1) : t][::-1]
            found[t] = (t == 0) - float(np.dot(self.taps[1 : len(past) + 1], past))
        return found

    def rows(self) -> NextRow:
        keys = deque[int](maxlen=len(self.taps))

        def next_row(noise: Any, shape: Any) -> Any:
            keys.appendleft(noise.subkey())
            parts = [tap * noise.normal_of(key, shape) for tap, key in zip(self.taps, keys)]
            return sum(parts[1:], start=parts[0])

        return next_row


def participation_norm(coefficients: Floats, separation: int) -> float:
    """Return the largest norm of ``C x`` over x of norm 1 at steps that are ``separation`` or more apart.

    It is the norm of the sum of the columns 0, b, 2b, ...: for coefficients that are not negative and do
    not grow no other choice of columns that far apart has a larger one (Kalinin and Lampert, 2024, theorem
    2).
    """
    times = len(coefficients)
    rounds = np.zeros((-(-times // separation), separation))
    rounds.reshape(-1)[:times] = coefficients
    total = rounds.cumsum(axis=0).reshape(-1)[:times]  # entry t is that of t plus those of t - b, t - 2b, ...
    return math.sqrt(float(total @ total)) * (1.0 + times * 2.0**-50)  # covers the rounding of the sums


@dataclass(frozen=True)
class Correlated(Additive):
    r"""Noise ``(C^-1 z)_t`` on release t, z of std ``multiplier * sensitivity * norm``, for L2 sensitivities.

    Parameters
    ----------
    strategy : C, whose coefficients begin with 1, are not negative and do not grow.
    parts, times : a unit is looked at in every ``parts``-th of ``times`` releases at most.
    sampled : batches are drawn at random inside of a part. Then C has at most ``parts`` bands.

    **Privacy.** ``C G + z`` is one Gaussian release of all gradients G (also if they are chosen adaptively,
    as C is lower triangular) and ``C^-1`` of it is what is released. Its sensitivity is ``norm``:
    :func:`participation_norm`, or that of one column where batches are sampled; there each round of all
    parts is a Poisson-sampled Gaussian release. A run that forgets its past noise, because it is resumed,
    has zeros in place of some entries of C, and no larger norm.
    """

    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)
    strategy: Strategy = field(kw_only=True)
    parts: int = field(kw_only=True)
    times: int = field(kw_only=True)
    sampled: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parts < 1 or self.times < 1:
            raise InvalidInputError(f"Expected parts and times >= 1, got {self.parts} and {self.times}.")
        found = self.strategy.coefficients(self.times)
        falls = bool((np.diff(found) <= 0).all() and found[-1] >= 0)
        if not (found[0] == 1.0 and falls and np.isfinite(found).all()):
            raise InvalidInputError(
                "Expected a strategy whose coefficients begin with 1, are not negative and do not grow: the "
                "sensitivity is proven for those only."
            )
        if self.sampled and self.strategy.bands > self.parts:
            raise UnsupportedError(
                f"Expected at most {self.parts} bands, one for each part, got {self.strategy.bands}: with "
                "more, random batches inside of parts have no proven amplification."
            )

    @cached_property
    def norm(self) -> float:
        """How far a unit of sensitivity 1 moves ``C G``: in one round if batches are sampled, else in all."""
        separation = self.times if self.sampled else self.parts
        return participation_norm(self.strategy.coefficients(self.times), separation)

    def check(self, sampling: Sampling, times: int) -> None:
        """Refuse batches or lengths that the norm was not computed for."""
        fits = isinstance(sampling, Cyclic) and sampling.parts == self.parts and times <= self.times
        if not fits or (isinstance(sampling, Cyclic) and (sampling.rate < 1) != self.sampled):
            raise UnsupportedError(
                f"Correlated noise for {self.times} releases on {self.parts} parts in turn was planned with "
                f"{times} releases of {sampling!r}. Its sensitivity is proven for its own batches only."
            )

    def event(self, relation: Relation) -> dp.DpEvent:
        """Return the Gaussian event of all releases together, or of one round of all parts."""
        return gaussian_event(_ready(self.multiplier), relation)

    def scale(self, sensitivity: float) -> float:
        return super().scale(sensitivity) * self.norm

    def privatise(self, value: Any, sensitivity: float, noise: Any) -> Any:
        if not isinstance(noise, Remembered):
            raise PlanError("Correlated noise needs the memory of its run: only a curator can add it.")
        std = self.scale(sensitivity)
        return value + std * noise.row(np.shape(value)) if std else value


class Memory:
    """What one release of one run remembers of its noise, and of the key that deals records to parts.

    It belongs to a curator. The noise is never saved; the key goes into the journal of a run, if it has one.
    """

    def __init__(self, strategy: Strategy, key: int) -> None:
        self._strategy, self._key, self._turn = strategy, key, threading.Lock()
        self._next_row, self._expected = strategy.rows(), 0
        self._dealt: tuple[Ints, Ints] | None = None

    def part(self, population: int, number: int, parts: int) -> Ints:
        """Return the rows that were dealt to a part, each by a draw of its own; they stay there."""
        with self._turn:
            if self._dealt is None:
                noise = NoiseSource.of_subkey(self._key)
                drawn = noise.integers(parts, population)
                order = np.argsort(drawn, kind="stable")
                self._dealt = order, np.searchsorted(drawn[order], np.arange(parts + 1))
        order, edges = self._dealt
        return order[edges[number] : edges[number + 1]]

    def row(self, position: int, noise: Any, shape: Any) -> Any:
        """Return the noise of a position. One that is not the next forgets the past, which is private too."""
        with self._turn:
            if position != self._expected:
                self._next_row = self._strategy.rows()
            self._expected = position + 1
            return self._next_row(noise, shape)

    def __reduce__(self) -> NoReturn:
        raise PlanError("A memory of noise cannot be copied or pickled: noise used twice cancels.")


@dataclass(frozen=True)
class Remembered:
    """A source of noise together with the memory of a release and the position that is asked."""

    noise: Any
    memory: Memory
    position: int

    def row(self, shape: Any) -> Any:
        """Return the noise of this position."""
        return self.memory.row(self.position, self.noise, shape)

    def bernoulli_rows(self, population: int, rate: float) -> Ints:
        """Return the rows of one Poisson batch."""
        return self.noise.bernoulli_rows(population, rate)
