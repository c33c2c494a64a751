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
from dataclasses import dataclass
from typing import Any, NoReturn

import mpmath
import numba
import numpy as np
from numpy.typing import NDArray
from randomgen.aes import AESCounter

from sordino.errors import InvalidInputError, PlanError
from sordino.kernel.arrays import Floats, Ints, compile_with_cache

# A uniform V in (0, 1) is known by its first 64 bits, that is as an interval. Its image under a
# decreasing map, the quantile of a law, is an interval too. When, with a margin far above the error of
# the map in doubles, both ends round to the same integer, that integer is exact. Otherwise more bits are
# drawn and the ends are computed in arbitrary precision until they agree.

# Wichura's quantile is good to about 1e-15 relative, logarithms are better; the margin is fifty times that.
_RELATIVE, _ABSOLUTE = 2.0**-44, 1e-14
_WORD = 62


@dataclass(frozen=True)
class Law:
    """A decreasing map of a uniform variable, in doubles and in any precision."""

    doubles: Callable[[Floats], Floats]
    digits: Callable[[mpmath.mpf], mpmath.mpf]


GAUSSIAN = Law(lambda v: upper_quantiles(v / 2), lambda v: mpmath.sqrt(2) * mpmath.erfinv(1 - v))
"""The magnitude of a standard normal variable."""
LAPLACE = Law(lambda v: -np.log(v), lambda v: -mpmath.log(v))
"""The magnitude of a standard Laplace variable."""
GUMBEL = Law(lambda v: -np.log(-np.log1p(-v)), lambda v: -mpmath.log(-mpmath.log1p(-v)))
"""A standard Gumbel variable itself."""


def round_magnitudes(
    words: NDArray[np.uint64], scale: float, more_bits: Callable[[], int], law: Law = GAUSSIAN
) -> Ints:
    """Return ``round(scale * X)`` for uniforms whose first 64 bits are ``words``, X a magnitude of the law.

    ``more_bits`` draws 62 further bits; it is needed about once in ``2**43 / scale`` draws.
    """
    result = np.empty(words.size, dtype=np.int64)
    if law is GAUSSIAN:
        _round_gaussians(words, scale, _RELATIVE, _ABSOLUTE, result)
    else:
        with np.errstate(divide="ignore"):
            least = law.doubles(np.minimum((words.astype(float) + 1.0) * 2.0**-64, 1.0))
            most = law.doubles(words.astype(float) * 2.0**-64)
        first = np.floor(scale * np.maximum(least * (1 - _RELATIVE) - _ABSOLUTE, 0.0) + 0.5)
        last = np.floor(scale * (most * (1 + _RELATIVE) + _ABSOLUTE) + 0.5)
        result[:] = np.where(first == last, first, -1.0)
    for i in np.flatnonzero(result < 0):
        result[i] = _round_exactly(int(words[i]), scale, more_bits, law)
    return result


def _round_exactly(bits: int, scale: float, more_bits: Callable[[], int], law: Law) -> int:
    length = 64
    while True:
        bits, length = bits << _WORD | more_bits(), length + _WORD
        with mpmath.workdps(_digits(length)):
            ends = _ends(bits, length, law)
            if mpmath.inf in ends:
                continue
            rounded = [int(mpmath.floor(mpmath.mpf(scale) * x + mpmath.mpf(1) / 2)) for x in ends]
        if rounded[0] == rounded[1]:
            return rounded[0]


def _digits(length: int) -> int:
    return 30 + length // 3  # those of ``length`` bits, and 30 beyond them


def _ends(bits: int, length: int, law: Law) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Return the least and the largest value of the law where the uniform begins with these bits."""
    unit = mpmath.mpf(2) ** -length
    least = law.digits((bits + 1) * unit) if bits + 1 < 1 << length or law is not GUMBEL else -mpmath.inf
    return least, law.digits(bits * unit) if bits else mpmath.inf


def run_race(
    scores: Floats,
    scale: float,
    count: int,
    words: NDArray[np.uint64],
    signs: Ints | None,
    more_bits: Callable[[], int],
) -> Ints:
    """Return the positions of the ``count`` largest of ``scores + scale * X``, largest first, exactly.

    X are Gumbel variables, or Laplace ones where ``signs`` are given. Both ends of each sum are computed in
    doubles with a margin; where their order is not clear, the runners in question get more bits and digits
    until it is. No two are ever equal, so that only the scores and the law decide.
    """
    law = GUMBEL if signs is None else LAPLACE
    with np.errstate(divide="ignore", over="ignore"):
        least = law.doubles(np.minimum((words.astype(float) + 1.0) * (2.0**-64 * (1 + 2.0**-50)), 1.0))
        most = law.doubles(words.astype(float) * (2.0**-64 * (1 - 2.0**-50)))
        least, most = (end * (1 + side * np.sign(end) * _RELATIVE) for end, side in ((least, -1), (most, 1)))
        if signs is not None:
            least, most = np.where(signs > 0, least, -most), np.where(signs > 0, most, -least)
        low = _beside(scores, scale, least - _ABSOLUTE, -1)
        high = _beside(scores, scale, most + _ABSOLUTE, 1)
    count = min(count, scores.size)
    floor = np.partition(low, scores.size - count)[scores.size - count]
    runners = np.flatnonzero(high >= floor)
    ends, length, bits = list(zip(low[runners], high[runners])), 64, [int(words[i]) for i in runners]
    while True:
        order = sorted(range(len(ends)), key=lambda k: ends[k][0], reverse=True)
        above = list(itertools.accumulate((ends[k][1] for k in order[:0:-1]), max))[::-1]
        if all(ends[k][0] > rest for k, rest in zip(order[:count], above)):  # surely above all that follow
            return runners[order[:count]]
        bits, length = [b << _WORD | more_bits() for b in bits], length + _WORD
        facts = [(float(scores[i]), 1 if signs is None else signs[i]) for i in runners]
        with mpmath.workdps(_digits(length)):
            ends = [_sum_ends(b, length, law, *fact, scale) for b, fact in zip(bits, facts)]


def _sum_ends(bits: int, length: int, law: Law, score: float, sign: int, scale: float) -> tuple[Any, Any]:
    ends = _ends(bits, length, law)
    least, most = ends if sign > 0 else (-ends[1], -ends[0])
    return mpmath.mpf(score) + mpmath.mpf(scale) * least, mpmath.mpf(score) + mpmath.mpf(scale) * most


def _beside(scores: Floats, scale: float, ends: Floats, side: int) -> Floats:
    """Return ``scores + scale * ends`` with a margin for the rounding of product and sum."""
    product = scale * ends
    margin = (np.abs(scores) + np.where(np.isfinite(product), np.abs(product), 0.0)) * 2.0**-50
    return scores + product + side * margin


Shape = int | tuple[int, ...]


def public_generator(random_state: object = None) -> np.random.Generator:
    """Return a generator for *public* choices (starting points, splits of public data), never noise."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    try:
        return np.random.default_rng(random_state)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"Expected random_state to be None, an integer >= 0 or a generator, got {random_state!r:.60}."
        ) from None


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
        out = np.zeros(shape)
        return self.normal_around(out.reshape(-1), 1.0).reshape(out.shape)

    def normal_around(self, values: Floats, std: float) -> Floats:
        """Draw independent normal variables with these means."""
        generator = self._generator()
        if values.size < _MANY:
            return np.asarray(values + std * generator.standard_normal(values.size))
        out = np.empty(values.size)
        # Compiled code takes no lock: two threads in it at once would draw the same noise.
        with generator.bit_generator.lock:
            _fill_around(generator, out, values, std)
        return out

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
        return self._round(std, shape, GAUSSIAN)

    def rounded_laplace(self, scale: float, shape: Shape) -> Ints:
        """Draw ``round(scale * L)``, L standard Laplace, exactly: like :meth:`rounded_gaussian`."""
        return self._round(scale, shape, LAPLACE)

    def race(self, scores: Floats, scale: float, count: int, law: Law = GUMBEL) -> Ints:
        """Draw the positions of the ``count`` largest noisy scores, largest first, exactly."""
        words = self._words(scores.shape)
        signs = None if law is GUMBEL else self._signs(words.size)
        return run_race(scores, scale, count, words, signs, self._more_bits)

    def _round(self, scale: float, shape: Shape, law: Law) -> Ints:
        if not 1 <= scale < 2**40:
            raise InvalidInputError(f"Expected a lattice std in [1, 2**40), got {scale}.")
        words = self._words(shape)
        magnitude = round_magnitudes(words.reshape(-1), scale, self._more_bits, law)
        return (self._signs(magnitude.size) * magnitude).reshape(words.shape)

    def _words(self, shape: Shape) -> NDArray[np.uint64]:
        size = math.prod(shape) if isinstance(shape, tuple) else shape
        return self._generator().bit_generator.random_raw(size).reshape(shape)

    def _more_bits(self) -> int:
        return int(self._words(1)[0] >> np.uint64(64 - _WORD))

    def _signs(self, size: int) -> Ints:
        bits = np.unpackbits(self._words(-(-size // 64)).view(np.uint8), count=size)
        return 1 - 2 * bits.astype(np.int64)

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


_MANY = 2048  # numbers, from which on the compiled loop is worth its call; both draw the same


@compile_with_cache(nogil=True)
def _fill_around(generator: np.random.Generator, out: Floats, values: Floats, std: float) -> None:
    # Twice as fast as Generator.standard_normal: the ziggurat is inlined around the AES call.
    for i in range(out.size):
        out[i] = values[i] + std * generator.standard_normal()


# The quantile of the normal law by Wichura's rational functions (1988, algorithm AS 241), which are good to
# 16 digits: near the middle, in the tail, and far out; of each the polynomial above and the one below.
_NUMBERS = """
    2.5090809287301227e3 3.3430575583588128e4 6.7265770927008701e4 4.5921953931549871e4
    1.3731693765509461e4 1.9715909503065514e3 1.3314166789178438e2 3.3871328727963666
    5.2264952788528546e3 2.8729085735721943e4 3.9307895800092711e4 2.1213794301586596e4
    5.3941960214247511e3 6.8718700749205791e2 4.2313330701600911e1 1.0
    7.7454501427834141e-4 2.2723844989269185e-2 2.4178072517745061e-1 1.2704582524523684
    3.6478483247632046 5.7694972214606914 4.6303378461565453 1.4234371107496836
    1.0507500716444168e-9 5.4759380849953449e-4 1.5198666563616457e-2 1.4810397642748007e-1
    6.8976733498510000e-1 1.6763848301838038 2.0531916266377588 1.0
    2.0103343992922881e-7 2.7115555687434876e-5 1.2426609473880784e-3 2.6532189526576123e-2
    2.9656057182850489e-1 1.7848265399172913 5.4637849111641144 6.6579046435011038
    2.0442631033899398e-15 1.4215117583164459e-7 1.8463183175100547e-5 7.8686913114561326e-4
    1.4875361290850615e-2 1.3692988092273581e-1 5.9983220655588794e-1 1.0
"""
_EIGHTS = [tuple(map(float, _NUMBERS.split()[i : i + 8])) for i in range(0, 48, 8)]
_MIDDLE, _TAIL, _FAR = zip(_EIGHTS[::2], _EIGHTS[1::2], strict=True)


@numba.njit(inline="always")
def _ratio(x: float, both: Any) -> float:
    above, below = 0.0, 0.0
    for i in range(8):
        above, below = above * x + both[0][i], below * x + both[1][i]
    return above / below


@numba.njit(inline="always")
def _upper_quantile(tail: float) -> float:
    """Return x with P(Z > x) = tail, for tail in [0, 1/2]."""
    q = 0.5 - tail
    if q <= 0.425:
        return q * _ratio(0.180625 - q * q, _MIDDLE)
    if tail == 0.0:
        return np.inf
    r = math.sqrt(-math.log(tail))
    return _ratio(r - 1.6, _TAIL) if r <= 5.0 else _ratio(r - 5.0, _FAR)


@compile_with_cache(nogil=True)
def _fill_quantiles(tails: Floats, out: Floats) -> None:
    for i in range(out.size):
        out[i] = _upper_quantile(tails[i])


def upper_quantiles(tails: Floats) -> Floats:
    """Return x with P(Z > x) = tail for each tail in [0, 1/2], good to about 1e-15 relative."""
    out = np.empty(tails.size)
    _fill_quantiles(tails, out)
    return out


@compile_with_cache(nogil=True)
def _round_gaussians(
    words: NDArray[np.uint64], scale: float, relative: float, absolute: float, out: Ints
) -> None:
    """Write the rounded magnitudes; -1 where 64 bits and the margin do not tell."""
    for i in range(words.size):
        most = _upper_quantile(np.float64(words[i]) * 2.0**-65)
        # From 2^50 on a word is narrower than a quarter of the margin: one end will do.
        least = most
        if words[i] < np.uint64(1 << 50):
            least = _upper_quantile((np.float64(words[i]) + 1.0) * 2.0**-65)
        first = math.floor(scale * max(least * (1 - relative) - absolute, 0.0) + 0.5)
        top = scale * (most * (1 + relative) + absolute) + 0.5
        out[i] = first if top < first + 1.0 else -1
