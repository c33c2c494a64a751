"""The one source of randomness: its laws, its batches, and what it refuses."""

import copy
import os
import pickle
import threading

import numpy as np
import pytest
from randomgen import AESCounter
from scipy import stats
from tests.statistical.laws import LEVEL, assert_counts, assert_independent, assert_law, assert_scale

from sordino.errors import InvalidInputError, PlanError
from sordino.kernel import NoiseSource, public_generator
from sordino.kernel.noise import fresh_noise
from sordino.testing import seeded_noise_not_private

SIZE = 20_000
KNOWN = [401, 814, 217, 701]  # for the name of its test, see tests/conftest.py


def source(seed=11):
    return NoiseSource.seeded_not_private(seed)


SAMPLERS = {
    "normal": (lambda noise: noise.normal(SIZE), stats.norm),
    "laplace": (lambda noise: noise.laplace(SIZE), stats.laplace),
    "gumbel": (lambda noise: noise.gumbel(SIZE), stats.gumbel_r),
    "exponential": (lambda noise: noise.exponential(SIZE), stats.expon),
    "uniform": (lambda noise: noise.random(SIZE), stats.uniform),
    "gamma": (lambda noise: np.array([noise.gamma(3.5) for _ in range(4000)]), stats.gamma(3.5)),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_has_its_law_and_no_other_scale(name):
    draw, law = SAMPLERS[name]
    assert_scale(draw(source()), law, tests=len(SAMPLERS))


@pytest.mark.statistical
@pytest.mark.parametrize("name", SAMPLERS)
def test_draws_are_independent_of_one_another(name):
    assert_independent(SAMPLERS[name][0](source(12)))


@pytest.mark.statistical
def test_consecutive_calls_and_coordinates_are_independent():
    noise = source(13)
    calls = np.array([noise.normal((2, 3)).ravel() for _ in range(4000)])
    off = np.corrcoef(calls.T)[np.triu_indices(6, 1)] * np.sqrt(len(calls))
    assert 2 * stats.norm.sf(np.abs(off)).min() > LEVEL / off.size


@pytest.mark.parametrize("shape", [(), 5, (5,), (2, 3), (0,), (3, 0)])
def test_draws_have_the_asked_shape(shape):
    noise = source()
    wanted = (shape,) if isinstance(shape, int) else shape
    for draw in (noise.normal, noise.laplace, noise.gumbel, noise.exponential, noise.random, noise.signs):
        assert np.shape(draw(shape)) == wanted
    assert noise.integers(7, shape).shape == wanted if shape != () else True
    assert noise.rounded_gaussian(3.0, shape).shape == wanted


@pytest.mark.statistical
def test_integers_and_signs_are_uniform():
    noise = source(14)
    drawn = noise.integers(7, SIZE)
    assert_counts(np.bincount(drawn, minlength=7), np.full(7, SIZE / 7))
    signs = noise.signs(SIZE)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert_counts(np.array([(signs > 0).sum(), (signs < 0).sum()]), np.full(2, SIZE / 2))
    assert_independent(signs)


# -------------------------------------------------------------------------------------- what it is


@pytest.mark.usefixtures("keys_of_the_system")
def test_the_operating_system_keys_a_private_source():
    noise = NoiseSource.from_os()
    assert noise.is_private
    assert "operating system" in noise.description
    assert not np.array_equal(noise.normal(8), NoiseSource.from_os().normal(8))


def test_a_test_gets_noise_of_its_own_that_says_it_is_private():
    noise, other = NoiseSource.from_os(), NoiseSource.from_os()
    assert noise.is_private
    assert not np.array_equal(noise.normal(8), other.normal(8))


@pytest.mark.skipif(os.environ.get("SORDINO_TEST_NOISE", "1") != "1", reason="other keys were asked for")
def test_the_noise_of_a_test_is_the_same_in_every_run():
    assert NoiseSource.from_os().integers(1000, 4).tolist() == KNOWN


def test_a_seeded_source_repeats_and_says_that_it_is_not_private():
    assert np.array_equal(source(5).normal(8), source(5).normal(8))
    assert not np.array_equal(source(5).normal(8), source(6).normal(8))
    assert not source(5).is_private
    assert source(5).description == "seeded (not private)"


def test_a_seed_means_the_same_in_every_version():
    words = np.random.SeedSequence(5).generate_state(2, np.uint64)
    key = (int(words[0]) << 64) + int(words[1])
    wanted = np.random.Generator(AESCounter(key=key)).standard_normal(4)
    np.testing.assert_array_equal(source(5).normal(4), wanted)


def test_a_source_never_says_the_same_twice():
    noise = source()
    assert not np.array_equal(noise.normal(8), noise.normal(8))


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("make", [NoiseSource.from_os, source])
def test_a_source_is_neither_copied_nor_pickled(attempt, make):
    with pytest.raises(PlanError, match="cancels"):
        attempt(make())


def _in_a_fork(action):
    """Return what a forked child writes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, action())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return answer


@pytest.mark.usefixtures("keys_of_the_system")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_draws_other_noise():
    noise = NoiseSource.from_os()
    noise.normal(1)
    children = [_in_a_fork(lambda: noise.normal(4).tobytes()) for _ in range(2)]
    assert len({*children, noise.normal(4).tobytes()}) == 3
    assert all(len(c) == 32 for c in children)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_cannot_use_a_seeded_source():
    noise = source()

    def attempt():
        try:
            noise.normal(4)
        except PlanError as error:
            return str(error).encode()
        return b"drew"

    assert b"forked" in _in_a_fork(attempt)


@pytest.mark.usefixtures("keys_of_the_system")
def test_threads_that_share_a_source_never_draw_the_same_noise():
    noise, drawn = NoiseSource.from_os(), []

    def work():
        drawn.extend(noise.normal(4000) for _ in range(25))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = np.concatenate(drawn)
    assert np.unique(values).size == values.size == 400_000


def test_the_compiled_sampler_waits_for_the_lock():
    noise = source()
    noise.normal(1)
    done = threading.Event()
    with noise._gen.bit_generator.lock:
        thread = threading.Thread(target=lambda: (noise.normal(1), done.set()))
        thread.start()
        assert not done.wait(0.2)
    thread.join(10)
    assert done.is_set()


def test_a_block_of_seeded_noise_gives_each_fit_its_own_seed_and_ends():
    def two():
        return [fresh_noise().normal(3).tolist() for _ in range(2)]

    with seeded_noise_not_private(3):
        first = two()
        assert not fresh_noise().is_private
    with seeded_noise_not_private(3):
        assert two() == first
    with seeded_noise_not_private(4, same_for_every_fit=True):
        assert two() == [first[1], first[1]]
    assert first[0] != first[1]
    assert fresh_noise().is_private


def test_a_block_of_seeded_noise_ends_after_an_error():
    with pytest.raises(KeyError), seeded_noise_not_private(3):
        raise KeyError
    assert fresh_noise().is_private


def test_public_choices_follow_their_seed():
    assert public_generator(4).random() == public_generator(4).random()
    assert public_generator().random() != public_generator().random()
    generator = np.random.default_rng(1)
    assert public_generator(generator) is generator
    states = [np.random.RandomState(9) for _ in range(2)]
    wanted = np.random.default_rng(np.random.RandomState(9).randint(2**31 - 1)).random()
    assert public_generator(states[0]).random() == public_generator(states[1]).random() == wanted
    assert public_generator(states[0]).random() != public_generator(np.random.RandomState(9)).random()


# ------------------------------------------------------------------------------ rounded Gaussians


@pytest.mark.parametrize("std", [0.5, 0.999, 2.0**40, float("nan"), float("inf"), -3.0])
def test_a_lattice_that_is_too_coarse_or_too_fine_is_refused(std):
    with pytest.raises(InvalidInputError, match="lattice std"):
        source().rounded_gaussian(std, 3)


@pytest.mark.parametrize("std", [1.0, 2.0**39.9])
def test_the_ends_of_the_allowed_lattices_work(std):
    assert source().rounded_gaussian(std, 3).dtype == np.int64


@pytest.mark.statistical
def test_rounded_noise_has_the_law_of_gaussian_noise_on_a_fine_lattice():
    std = 1e9 / 3
    assert_scale(source(18).rounded_gaussian(std, SIZE) / std, stats.norm)


@pytest.mark.statistical
def test_signs_of_rounded_noise_do_not_depend_on_its_size():
    drawn = source(19).rounded_gaussian(1e6, SIZE)
    assert_law(np.abs(drawn[drawn > 0]) / 1e6, stats.halfnorm, tests=2)
    assert_law(np.abs(drawn[drawn < 0]) / 1e6, stats.halfnorm, tests=2)


def test_further_bits_are_62_fresh_bits(monkeypatch):
    asked = []

    def keep(words, std, more_bits, law):
        asked.extend(more_bits() for _ in range(400))
        return np.zeros(words.size, dtype=np.int64)

    monkeypatch.setattr("sordino.kernel.noise.round_magnitudes", keep)
    source(20).rounded_gaussian(3.0, 1)
    assert min(asked) >= 0
    ones = np.array([[bit >> i & 1 for i in range(63)] for bit in asked]).sum(axis=0)
    assert ones[62] == 0
    assert (abs(ones[:62] - 200) < 60).all()  # six standard deviations


def test_normals_around_values_are_those_values_and_noise():
    values = np.linspace(-3.0, 3.0, 50_000)
    drawn = source(31).normal_around(values, 0.7)
    assert_law((drawn - values) / 0.7, stats.norm, tests=2)
    assert np.array_equal(source(31).normal_around(values, 0.7), values + 0.7 * source(31).normal(50_000))
