"""Rounded Gaussians are exact: probabilities by arbitrary precision, and the rare slow path."""

import itertools

import mpmath
import numpy as np
import pytest
from tests.statistical.laws import assert_counts

from sordino.kernel import NoiseSource
from sordino.kernel import noise as rounding
from sordino.kernel.noise import round_magnitudes


def no_more_bits():
    raise AssertionError("the first 64 bits were enough")


def exact_rounding(bits: int, length: int, std: float) -> int:
    """Return ``round(std |Z|)`` for the uniform ``(bits + 1/2) / 2^length``, with digits to spare."""
    with mpmath.workdps(60 + length // 2):
        tail = (mpmath.mpf(bits) + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** (length + 1)
        x = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * tail)
        assert abs(mpmath.erfc(x / mpmath.sqrt(2)) / 2 - tail) < tail * mpmath.mpf(10) ** -40
        return int(mpmath.floor(std * x + mpmath.mpf(1) / 2))


@pytest.mark.statistical
@pytest.mark.parametrize("std", [1.0, 1.7, 4.3])
def test_integers_have_the_probabilities_of_a_rounded_gaussian(std):
    size, reach = 60_000, 25
    drawn = NoiseSource.seeded_not_private(3).rounded_gaussian(std, size)
    assert np.abs(drawn).max() <= reach
    with mpmath.workdps(30):
        cdf = [mpmath.ncdf((k - mpmath.mpf(1) / 2) / std) for k in range(-reach, reach + 2)]
        expected = np.array([float(size * (b - a)) for a, b in itertools.pairwise(cdf)])
    counts = np.bincount(drawn + reach, minlength=2 * reach + 1)
    assert_counts(counts, expected)
    for wrong in (2 / 3, 3 / 2):
        with pytest.raises(AssertionError):
            assert_counts(
                np.bincount(np.rint(wrong * drawn).astype(int) + 60, minlength=121), _pmf(std, 60, size)
            )


def _pmf(std, reach, size):
    edges = (np.arange(-reach, reach + 2) - 0.5) / std
    return size * np.array([float(mpmath.ncdf(b) - mpmath.ncdf(a)) for a, b in itertools.pairwise(edges)])


@pytest.mark.parametrize("std", [1.0, 37.5, 2.0**28.5])
def test_every_word_is_rounded_as_in_arbitrary_precision(std):
    rng = np.random.default_rng(5)
    words = rng.integers(0, 2**64, 300, dtype=np.uint64)
    words[:6] = [1, 2, 2**20, 2**63, 2**64 - 1, 2**64 - 2]
    more = iter([2**61] * 300)
    drawn = round_magnitudes(words, std, lambda: next(more))
    wanted = [exact_rounding(int(w), 64, std) for w in words]
    assert np.array_equal(drawn, wanted)


def test_the_margin_is_far_above_the_error_of_the_quantile():
    rng = np.random.default_rng(6)
    tails = np.concatenate([rng.random(150) / 2, 2.0 ** -rng.uniform(1, 65, 150), [0.5, 0.25, 2.0**-65]])
    with mpmath.workdps(40):
        exact = [mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(float(t))) for t in tails]
        off = [abs(mpmath.mpf(float(q)) - x) for q, x in zip(rounding.upper_quantiles(tails), exact)]
    margin = rounding._RELATIVE * np.array([float(x) for x in exact]) + rounding._ABSOLUTE
    assert (20 * np.array([float(o) for o in off]) < margin).all()


def _word_at(value: float, std: float) -> int:
    """Return the 64 bits of the uniform whose magnitude is ``value / std``: half way between integers."""
    with mpmath.workdps(60):
        return int(mpmath.floor(mpmath.erfc(mpmath.mpf(value) / std / mpmath.sqrt(2)) * 2**64))


@pytest.mark.parametrize("integer", [0, 1, 5, 200])
def test_a_draw_next_to_a_border_takes_more_bits_and_goes_to_the_right_side(integer):
    std, asked = 40.0, []
    word = _word_at(integer + 0.5, std)

    def bits(answer):
        return lambda: asked.append(1) or answer

    # More bits make the uniform larger and the magnitude smaller: all ones stay below the border.
    above = round_magnitudes(np.array([word - 1], dtype=np.uint64), std, bits(0))
    below = round_magnitudes(np.array([word + 1], dtype=np.uint64), std, bits(2**62 - 1))
    assert asked
    assert above[0] == integer + 1 == exact_rounding((word - 1) << 62, 126, std)
    assert below[0] == integer == exact_rounding(((word + 1) << 62) + 2**62 - 1, 126, std)


def test_an_interval_of_64_bits_ends_at_the_next_word():
    # A rare, large magnitude: its word is small, so that a word is far wider than the margin.
    word = 2**30
    with mpmath.workdps(60):
        middle = mpmath.sqrt(2) * mpmath.erfinv(1 - (word + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 64)
        std = float(mpmath.mpf(1000.5) / middle)
    for more, wanted in ((0, 1001), (2**62 - 1, 1000)):
        drawn = round_magnitudes(np.array([word], dtype=np.uint64), std, lambda bits=more: bits)
        assert drawn[0] == wanted


def test_bits_are_drawn_until_the_integer_is_certain():
    std = 40.0
    with mpmath.workdps(120):
        border = mpmath.erfc(mpmath.mpf(3.5) / std / mpmath.sqrt(2)) * mpmath.mpf(2) ** (64 + 3 * 62)
        digits = int(mpmath.floor(border))
    word, tail = digits >> 186, [(digits >> (62 * i)) & (2**62 - 1) for i in (2, 1)]
    for last, wanted in ((0, 4), (2**62 - 1, 3)):
        stream = iter([*tail, last])
        assert round_magnitudes(np.array([word], dtype=np.uint64), std, stream.__next__)[0] == wanted
        assert next(stream, None) is None


def test_the_largest_magnitudes_come_from_the_smallest_words():
    stream = iter([0, 1, 7])
    drawn = round_magnitudes(np.array([0], dtype=np.uint64), 1000.0, lambda: next(stream))
    assert drawn[0] == exact_rounding((1 << 62) + 7, 64 + 3 * 62, 1000.0)
    assert drawn[0] > 14_000


def test_clear_words_take_no_more_bits():
    words = np.array([2**63, 2**62, 12345678901234567890], dtype=np.uint64)
    assert round_magnitudes(words, 3.0, no_more_bits).tolist() == [2, 3, 1]


@pytest.mark.statistical
def test_the_slow_path_alone_has_the_same_law(monkeypatch):
    monkeypatch.setattr(rounding, "_ABSOLUTE", 10.0)  # nothing is clear any more
    size, std = 400, 1.7
    drawn = NoiseSource.seeded_not_private(8).rounded_gaussian(std, size)
    monkeypatch.undo()
    assert_counts(np.bincount(drawn + 25, minlength=51), _pmf(std, 25, size))


def test_how_often_more_bits_are_needed_is_what_the_notes_say():
    calls, std, size = [], 2.0**29, 400_000
    words = np.random.default_rng(9).integers(0, 2**64, size, dtype=np.uint64)
    round_magnitudes(words, std, lambda: calls.append(1) or 2**61)
    assert 1 <= len(calls) < 20 * size * std / 2**43
