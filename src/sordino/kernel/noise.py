"""The one source of randomness for noise and for secret batches.

AES-128 in counter mode, keyed from the operating system. Nothing else in the library draws random
numbers; a test walks the syntax tree of the sources to keep that true.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn

import mpmath
import numpy as np
from numpy.typing import NDArray
from randomgen import AESCounter
from scipy.special import ndtri

from sordino.errors import InvalidInputError, PlanError
from sordino.kernel.arrays import Floats, Ints
from sordino.kernel.machine_code import compiled

# A uniform V in (0, 1) is known by its first 64 bits, that is as an interval. Its image under the
# decreasing map ``|Z| = -ndtri(V / 2)`` is an interval too. When, with a margin far above the error
# of ``ndtri``, both ends round to the same integer, that integer is exact. Otherwise more bits are
# drawn and the ends are computed in arbitrary precision until they agree.

# Cephes' ndtri is good to about 1e-15 relative; the margin is fifty times that.
_RELATIVE, _ABSOLUTE = 2.0**-44, 1e-14
_WORD = 62


def round_magnitudes(words: NDArray[np.uint64], std: float, more_bits: Callable[[], int]) -> Ints:
    """Return ``round(std * |Z|)`` for uniforms whose first 64 bits are ``words``.

    ``more_bits`` draws 62 further bits; it is needed about once in ``2**43 / std`` draws.
    """
    low, high = (words + 0.0) * 2.0**-65, (words + 1.0) * 2.0**-65
    with np.errstate(divide="ignore"):
        smallest = -ndtri(np.minimum(high, 0.5)) * (1 - _RELATIVE) - _ABSOLUTE
        largest = -ndtri(np.minimum(low, 0.5)) * (1 + _RELATIVE) + _ABSOLUTE
    first = np.floor(std * np.maximum(smallest, 0.0) + 0.5)
    last = np.floor(std * largest + 0.5)
    unclear = np.flatnonzero(first != last)
    result: Ints = first.astype(np.int64)
    for i in unclear:
        result[i] = _round_exactly(int(words[i]), std, more_bits)
    return result


def _round_exactly(bits: int, std: float, more_bits: Callable[[], int]) -> int:
    length = 64
    while True:
        bits, length = bits << _WORD | more_bits(), length + _WORD
        with mpmath.workdps(30 + length // 3):  # length bits, and 30 digits beyond them
            last_bit = mpmath.mpf(2) ** (-length - 1)  # of the tail, half of the uniform
            ends = [_upper_quantile(b * last_bit) for b in (bits + 1, bits)]
            rounded = [int(mpmath.floor(mpmath.mpf(std) * x + mpmath.mpf(1) / 2)) for x in ends]
        if bits and rounded[0] == rounded[1]:
            return rounded[0]


def _upper_quantile(tail: mpmath.mpf) -> mpmath.mpf:
    """Return x with P(Z > x) = tail, for tail in [0, 1/2]."""
    if tail <= 0:
        return mpmath.mpf(1e9)  # replaced by more bits before it can be used
    return mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * tail)


Shape = int | tuple[int, ...]


def public_generator(random_state: object = None) -> np.random.Generator:
    """Return a generator for *public* choices (starting points, splits of public data), never noise."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    return np.random.default_rng(random_state)  # type: ignore[arg-type]


class NoiseSource:
    """Cryptographic noise.

    Use :meth:`from_os`. :meth:`seeded_not_private` exists for tests; whoever knows the seed can
    subtract the noise, so what it makes carries no guarantee and every report says so.

    A source cannot be copied or pickled, and a forked child draws a new key: the same noise added
    to two answers would cancel in their difference.
    """

    def __init__(self, key: int | None) -> None:
        self._seeded = key is not None
        self._rekey(key)

    @classmethod
    def from_os(cls) -> NoiseSource:
        """Return a source keyed by the operating system."""
        return cls(None)

    @classmethod
    def seeded_not_private(cls, seed: int) -> NoiseSource:
        """Return a reproducible source for tests: it is NOT private."""
        words = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        return cls(int(words[0]) << 64 | int(words[1]))

    @classmethod
    def of_subkey(cls, key: int) -> NoiseSource:
        """Return the source of one secret batch from a key that :meth:`subkey` drew; never for noise."""
        return cls(key)

    def normal_of(self, key: int, shape: Shape) -> Floats:
        """Return the normal variables of a key that :meth:`subkey` drew, the same ones each time.

        For correlated noise, a part of which is taken back later; used for two answers it would cancel.
        """
        return NoiseSource(key).normal(shape)

    @property
    def is_private(self) -> bool:
        """Whether nobody can know the noise."""
        return not self._seeded

    @property
    def description(self) -> str:
        """The words for the report."""
        if self._seeded:
            return "seeded (not private)"
        return "AES-128 counter generator keyed by the operating system"

    def normal(self, shape: Shape) -> Floats:
        """Draw standard normal variables."""
        out, generator = np.empty(shape), self._generator()
        # Compiled code takes no lock: two threads in it at once would draw the same noise.
        with generator.bit_generator.lock:
            _fill_normal(generator, out.reshape(-1))
        return out

    def normal_around(self, values: Floats, std: float) -> Floats:
        """Draw independent normal variables with these means."""
        out, generator = np.empty(values.size), self._generator()
        with generator.bit_generator.lock:
            _fill_around(generator, values, std, out)
        return out

    def normal_tail(self, low: float, count: int) -> Floats:
        """Draw standard normal variables that are larger than ``low > 0``, by Marsaglia's tail method."""
        out, generator = np.empty(count), self._generator()
        with generator.bit_generator.lock:
            _fill_tail(generator, low, out)
        return out

    def binomial(self, trials: int, chance: float) -> int:
        """Draw how many of so many trials succeed."""
        return int(self._generator().binomial(trials, chance))

    def exponential(self, shape: Shape) -> Floats:
        """Draw standard exponential variables."""
        return self._generator().standard_exponential(shape)

    def laplace(self, shape: Shape) -> Floats:
        """Draw standard Laplace variables."""
        return self._generator().laplace(size=shape)

    def gumbel(self, shape: Shape) -> Floats:
        """Draw standard Gumbel variables."""
        return self._generator().gumbel(size=shape)

    def gamma(self, shape_parameter: float) -> float:
        """Draw one Gamma variable of scale 1."""
        return float(self._generator().standard_gamma(shape_parameter))

    def random(self, shape: Shape) -> Floats:
        """Draw uniform variables on [0, 1)."""
        return self._generator().random(shape)

    def integers(self, high: int, shape: Shape) -> Ints:
        """Draw uniform integers below ``high``."""
        return self._generator().integers(high, size=shape)

    def signs(self, shape: Shape) -> Floats:
        """Draw fair signs."""
        return np.asarray(1.0 - 2.0 * self._generator().integers(2, size=shape), dtype=np.float64)

    def bernoulli_rows(self, population: int, rate: float) -> Ints:
        """Draw each of ``population`` rows with probability ``rate`` by geometric skips, O(batch)."""
        mean = population * rate
        chunk = int(mean + 6 * math.sqrt(mean) + 16)
        rows = self._skips(rate, chunk, population) - 1
        while rows[-1] < population:
            rows = np.concatenate([rows, rows[-1] + self._skips(rate, chunk, population)])
        return rows[: np.searchsorted(rows, population)]

    def _skips(self, rate: float, count: int, population: int) -> Ints:
        # A skip beyond the end says no more than one just past it, and sums of those fit.
        return np.minimum(self._generator().geometric(rate, size=count), population + 1).cumsum()

    def distinct_rows(self, population: int, size: int) -> Ints:
        """Draw a uniform set of ``size`` distinct rows."""
        return self._generator().choice(
            population,
            size=size,
            replace=False,
            shuffle=False,  # a set: nobody uses its order
        )

    def subkey(self) -> int:
        """Draw the key of a source of its own: whoever gets it draws the same batch each time it is asked."""
        return int.from_bytes(self._generator().bytes(16), "little")

    def split_count(self, sizes: Ints, total: int) -> Ints:
        """Draw how many of ``total`` distinct rows fall into parts of these sizes."""
        return self._generator().multivariate_hypergeometric(sizes, total)

    def distinct_order(self, population: int, size: int) -> Ints:
        """Draw ``size`` distinct positions in uniform random order."""
        return self._generator().choice(population, size=size, replace=False)

    def trials(self, mean: float, shape: float) -> int:
        """Draw a number of trials: Poisson for shape inf, else truncated negative binomial."""
        generator = self._generator()
        if math.isinf(shape):
            return int(generator.poisson(mean))
        if shape == 1.0:
            return int(generator.geometric(1.0 / mean))
        success = halting_probability(mean, shape)
        # A Poisson number of logarithmic variables, given that there is one: drawing zeros again would
        # never end where the mean is near one. ``rest`` is the time that is left after the first.
        rate = -shape * math.log(success)
        rest = math.log1p(generator.random() * math.expm1(rate))
        return int(generator.logseries(1 - success, size=1 + generator.poisson(rest)).sum())

    def rounded_gaussian(self, std: float, shape: Shape) -> Ints:
        r"""Draw ``round(std * Z)``, Z standard normal, exactly (no floating-point artefacts).

        Adding it to an integer x is the same as rounding ``x + std * Z``: a post-processing of the
        real Gaussian mechanism, so every accountant for Gaussian noise applies as it is.
        """
        if not 1 <= std < 2**40:
            raise InvalidInputError(f"Expected a lattice std in [1, 2**40), got {std}.")
        generator = self._generator()
        words = generator.integers(2**64, size=shape, dtype=np.uint64)
        magnitude = round_magnitudes(words.reshape(-1), std, lambda: int(generator.integers(2**62)))
        signs = 1 - 2 * generator.integers(2, size=magnitude.size, dtype=np.int64)
        return (signs * magnitude).reshape(shape)

    def _generator(self) -> np.random.Generator:
        if os.getpid() != self._pid:
            if self._seeded:
                raise PlanError("A seeded noise source cannot be used in a forked process.")
            self._rekey(None)
        return self._gen

    def _rekey(self, key: int | None) -> None:
        self._pid = os.getpid()
        bits = int.from_bytes(os.urandom(16), "little") if key is None else key
        self._gen = np.random.Generator(AESCounter(key=bits))

    def __reduce__(self) -> NoReturn:
        raise PlanError("A noise source cannot be copied or pickled: noise used twice cancels.")


def sources_differ() -> bool:
    """Return whether two sources draw different numbers on this machine, as they must."""
    one, other = (NoiseSource.from_os().normal(8) for _ in range(2))
    return bool((one != other).all())


def halting_probability(mean: float, shape: float) -> float:
    """Return the success probability p of a truncated negative binomial law with this mean.

    Its mean is ``shape (1 - p) / (p (1 - p^shape))``, which falls from infinity to 1 as p grows to 1.
    """
    low, high = 1e-12, 1.0 - 1e-12
    for _ in range(200):
        middle = math.sqrt(low * high)
        value = shape * (1 - middle) / (middle * -math.expm1(shape * math.log(middle)))
        low, high = (middle, high) if value > mean else (low, middle)
    return high


_test_seed: ContextVar[Iterator[int] | None] = ContextVar("sordino_test_seed", default=None)


@contextmanager
def seeded_noise_not_private(seed: int, *, same_for_every_fit: bool = False) -> Iterator[None]:
    """Make every fit inside the block reproducible and NOT private; reports say so. For tests only.

    With ``same_for_every_fit`` two fits on the same data give the same model.
    """
    token = _test_seed.set(itertools.repeat(seed) if same_for_every_fit else itertools.count(seed))
    try:
        yield
    finally:
        _test_seed.reset(token)


def fresh_noise() -> NoiseSource:
    """Return the source for one fit: from the operating system, unless a test asked for a seed."""
    seeds = _test_seed.get()
    return NoiseSource.from_os() if seeds is None else NoiseSource.seeded_not_private(next(seeds))


@compiled(nogil=True)
def _fill_normal(generator: np.random.Generator, out: Floats) -> None:
    # Twice as fast as Generator.standard_normal: the ziggurat is inlined around the AES call.
    for i in range(out.size):
        out[i] = generator.standard_normal()


@compiled(nogil=True)
def _fill_around(generator: np.random.Generator, values: Floats, std: float, out: Floats) -> None:
    for i in range(out.size):
        out[i] = values[i] + std * generator.standard_normal()


@compiled(nogil=True)
def _fill_tail(generator: np.random.Generator, low: float, out: Floats) -> None:
    # x of density low exp(-low x), kept with probability exp(-x^2 / 2), has the law of Z - low for Z > low.
    for i in range(out.size):
        beyond = generator.standard_exponential() / low
        while 2.0 * generator.standard_exponential() < beyond * beyond:
            beyond = generator.standard_exponential() / low
        out[i] = low + beyond
