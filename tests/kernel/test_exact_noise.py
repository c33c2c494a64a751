"""Exact noise: draws agree bit for bit with slow samplers from the proof, and low bits tell nothing.

The proofs: docs/proofs.md.
"""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile.contributions import held
from tests.hostile.queries import AFFINES, GLM, GRAMS, ROBUST
from tests.statistical.laws import assert_counts

from sordino.errors import UnsupportedError
from sordino.kernel import ClippedSum, Gaussian, GumbelTopK, Laplace, NoiseSource, Relation, Release
from sordino.kernel import noise as drawing
from sordino.kernel.mechanism import (
    OUTPUT_MULTIPLE,
    LaplaceMax,
    LaplacePeeling,
    NormGamma,
    Rounding,
    StableCounts,
    SymmetricGaussian,
    TiltedObjective,
)
from sordino.kernel.noise import GUMBEL, LAPLACE, round_magnitudes, run_race
from sordino.kernel.plan import rounded_sum, rounding_of

SENSITIVITY = 0.7


def source(seed=3):
    return NoiseSource.seeded_not_private(seed)


# --------------------------------------------------------------------- slow samplers, from the proof


def slow_magnitude(word: int, scale: float) -> int:
    """Round ``-scale ln V``, V in the middle of its 64 bits, in 60 digits."""
    with mpmath.workdps(60):
        v = (mpmath.mpf(word) + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 64
        return int(mpmath.floor(-scale * mpmath.log(v) + mpmath.mpf(1) / 2))


def slow_race(scores, scale, count, words, signs=None):
    """Order noisy scores in 60 digits."""
    with mpmath.workdps(60):
        noisy = []
        for i, (score, word) in enumerate(zip(scores, words)):
            v = (mpmath.mpf(int(word)) + mpmath.mpf(1) / 2) / mpmath.mpf(2) ** 64
            x = -mpmath.log(-mpmath.log1p(-v)) if signs is None else -int(signs[i]) * mpmath.log(v)
            noisy.append(mpmath.mpf(float(score)) + mpmath.mpf(scale) * x)
        return sorted(range(len(noisy)), key=lambda i: noisy[i], reverse=True)[:count]


def no_more_bits():
    raise AssertionError("the first 64 bits were enough")


@pytest.mark.parametrize("scale", [1.0, 37.5, 2.0**28.5])
def test_every_laplace_word_is_rounded_as_in_arbitrary_precision(scale):
    words = np.random.default_rng(5).integers(0, 2**64, 2000, dtype=np.uint64)
    words[:6] = [1, 2, 2**20, 2**63, 2**64 - 1, 2**64 - 2]
    drawn = round_magnitudes(words, scale, lambda: 2**61, LAPLACE)
    assert drawn.tolist() == [slow_magnitude(int(w), scale) for w in words]


@pytest.mark.parametrize("law", [GUMBEL, LAPLACE])
@given(
    scores=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12),
    scale=st.floats(1e-3, 1e6),
    count=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
def test_races_end_as_in_arbitrary_precision(law, scores, scale, count, seed):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**64, len(scores), dtype=np.uint64)
    signs = None if law is GUMBEL else 1 - 2 * rng.integers(2, size=len(scores))
    found = run_race(np.array(scores), scale, count, words, signs, lambda: 2**61)
    assert found.tolist() == slow_race(scores, scale, count, words, signs)


def test_runners_who_start_alike_are_told_apart_by_more_bits():
    words = np.full(3, 2**63, dtype=np.uint64)
    stream = iter([5, 3, 2**61])
    assert run_race(np.zeros(3), 2.0, 3, words, None, lambda: next(stream)).tolist() == [1, 0, 2]
    words[:] = 0  # the largest noise there is: the interval has no end yet
    stream = iter([0, 3, 2**61, 1, 1, 1])
    assert run_race(np.zeros(3), 2.0, 1, words, None, lambda: next(stream)).tolist() == [0]


def test_a_clear_race_takes_no_more_bits():
    words = np.random.default_rng(1).integers(0, 2**64, 10_000, dtype=np.uint64)
    scores = np.random.default_rng(2).normal(size=10_000)
    assert run_race(scores, 2.0, 20, words, None, no_more_bits).size == 20


@pytest.mark.statistical
def test_rounded_laplace_noise_has_its_law_and_no_other():
    size, reach, scale = 60_000, 80, 3.7
    drawn = source().rounded_laplace(scale, size)
    edges = (np.arange(-reach, reach + 2) - 0.5) / scale
    cdf = [0.5 * math.exp(e) if e < 0 else 1 - 0.5 * math.exp(-e) for e in edges]
    expected = size * np.array([b - a for a, b in itertools.pairwise(cdf)])
    assert_counts(np.bincount(drawn + reach, minlength=2 * reach + 1), expected)
    for wrong in (2 / 3, 3 / 2):
        off = np.clip(np.rint(wrong * drawn), -reach, reach).astype(int)
        with pytest.raises(AssertionError):
            assert_counts(np.bincount(off + reach, minlength=2 * reach + 1), expected)


@pytest.mark.statistical
@pytest.mark.parametrize("multiplier", [2.0])
def test_an_exact_race_is_the_exponential_mechanism(multiplier):
    noise, scores = source(4), np.array([0.0, 1.0, 2.5])
    race = GumbelTopK(multiplier, secure=True)
    wins = np.bincount(
        [race.privatise_exactly(scores, SENSITIVITY, Rounding(), noise)[0] for _ in range(20_000)],
        minlength=3,
    )
    weights = np.exp(scores / (multiplier * SENSITIVITY))
    assert_counts(wins, 20_000 * weights / weights.sum())
    wrong = np.exp(scores / (multiplier * SENSITIVITY * 1.5))
    with pytest.raises(AssertionError):
        assert_counts(wins, 20_000 * wrong / wrong.sum())


# ----------------------------------------------------------------------------- errors are as written

SUMS = [case for case in [*GLM, *AFFINES, *GRAMS, *ROBUST] if isinstance(case.query, ClippedSum)]


@pytest.mark.parametrize("case", [case for case in SUMS if case.query.adds_up], ids=str)
def test_sums_in_doubles_err_by_less_than_is_written(case):
    # Who leaves stays in place as a record that is no number: the others are computed as they were.
    rng, n = np.random.default_rng(0), 50
    rows = rng.normal(size=(n, 4)) * 10.0 ** rng.uniform(-6, 3, (n, 1))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    for kind in [k for k in case.kinds if k in ("dense", "csr")]:

        def added_up(present, kind=kind):
            some = np.where(present[:, None], rows, np.nan)
            with np.errstate(all="ignore"):
                return np.ravel(case.query.evaluate(held(case, some, y, kind), case.params))

        whole, each = added_up(np.ones(n, dtype=bool)), [added_up(np.arange(n) == i) for i in range(n)]
        exact = [sum(Fraction(float(v)) for v in column) for column in zip(*each)]
        off = math.sqrt(sum(float(Fraction(float(a)) - b) ** 2 for a, b in zip(whole, exact)))
        assert off <= case.query.error(case.params, n) + n * case.query.error(case.params, 1), kind


@pytest.mark.parametrize("mechanism", [Gaussian(1.3), Laplace(1.3), SymmetricGaussian(1.3)])
def test_rounded_answers_of_neighbours_are_within_the_widened_sensitivity(mechanism):
    spacing, rng = mechanism.lattice(SENSITIVITY), np.random.default_rng(0)
    order = 1 if isinstance(mechanism, Laplace) else 2
    for _ in range(200):
        one = rng.normal(size=(3, 3))
        step = rng.normal(size=(3, 3))
        one, step = one + one.T, step + step.T
        step *= SENSITIVITY / np.linalg.norm(np.ravel(step), order)
        grids = [drawing_grid(mechanism, value, spacing) for value in (one, one + step)]
        apart = np.linalg.norm((grids[0] - grids[1]).astype(float).ravel(), order) * spacing
        room = mechanism.corner(grids[0].size) * spacing
        assert apart <= SENSITIVITY + room + 1e-15


def drawing_grid(mechanism, value, spacing):
    from sordino.kernel.mechanism import to_grid

    return to_grid(mechanism.vector(value), spacing)


def test_blocks_keep_the_error_of_many_records_small():
    case = next(c for c in GRAMS if c.name == "gram")
    release = Release(case.query, Gaussian(2.0), mean=False)
    few, many = (
        rounding_of(release, case.params, 2.0**-28, n).widen(1.0, 4 * 2.0**-28) for n in (10**6, 10**8)
    )
    assert few == many < 1.0 + 4 * 2.0**-20 * case.query.reach(case.params) + 16 * 2.0**-28


def test_blocks_of_records_are_rounded_one_by_one(monkeypatch):
    from sordino.kernel import plan

    case = next(c for c in GRAMS if c.name == "gram")
    records = held(case, np.random.default_rng(0).normal(size=(23, 4)), np.zeros(23), "dense")
    release = Release(case.query, Gaussian(2.0), mean=False)
    monkeypatch.setattr(plan, "BLOCK", 4)
    monkeypatch.setattr(plan, "WHOLE", 8)
    found = rounded_sum(release, records, case.params, 0.5, 23)
    parts = [case.query.evaluate(part, case.params) for part in records.by_position(4)]
    assert len(parts) == 6
    np.testing.assert_array_equal(found, sum(np.rint(part / 0.5) for part in parts))


def test_each_of_several_records_of_a_unit_has_room_to_round():
    # However many of them a batch holds, or lie in blocks that are rounded apart: j records move an answer by
    # at most j sensitivities, j roundings of two answers and j corners, so by j parts of the room for all.
    case, rows, one, corner = next(c for c in GRAMS if c.name == "gram"), 5, 0.7, 3 * 2.0**-20
    for population in (100, 10**6):
        release = Release(case.query, Gaussian(2.0, secure=True), mean=False, rows=rows)
        rounding = rounding_of(release, case.params, 2.0**-20, population)
        room = rounding.widen(rows * one, corner)
        assert rounding.error > 0
        for present in range(1, rows + 1):
            assert present * (one + 2 * rounding.error + corner) <= room * present / rows
    with pytest.raises(UnsupportedError, match="Several records"):
        Release(case.query, NormGamma(2.0, secure=True), mean=False, rows=rows)


# ------------------------------------------------------------------------- what mechanisms make of it


def test_noise_grows_with_the_error_of_an_answer(monkeypatch):
    scales = []
    monkeypatch.setattr(
        NoiseSource, "rounded_gaussian", lambda self, std, shape: scales.append(std) or np.zeros(shape, int)
    )
    gaussian = Gaussian(2.0, secure=True)
    for error in (0.0, 0.25):
        gaussian.privatise_exactly(np.zeros(9), SENSITIVITY, Rounding(error), source())
    spacing = gaussian.lattice(SENSITIVITY)
    assert scales[0] == pytest.approx(2.0 * (SENSITIVITY / spacing + 3.0), rel=1e-11)
    assert scales[1] == pytest.approx(2.0 * ((SENSITIVITY + 0.5) / spacing + 3.0), rel=1e-11)


def test_scores_that_moved_together_have_four_errors_more_room(monkeypatch):
    scales = []

    def race(self, scores, scale, count, law=GUMBEL):
        scales.append(scale)
        return np.arange(count)

    monkeypatch.setattr(NoiseSource, "race", race)
    for monotone in (False, True):
        mechanism = GumbelTopK(2.0, secure=True, monotone=monotone)
        mechanism.privatise_exactly(np.zeros(3), SENSITIVITY, Rounding(0.1), source())
    LaplaceMax(2.0, secure=True).privatise_exactly(np.zeros(3), SENSITIVITY, Rounding(0.1), source())
    wanted = [2.0 * (SENSITIVITY + room) for room in (0.2, 0.4, 0.2)]
    assert scales == pytest.approx(wanted, rel=1e-11)


def test_symmetric_noise_on_a_lattice_is_that_of_the_ensemble():
    value = np.arange(9.0).reshape(3, 3)
    value = value + value.T
    mechanism, noise = SymmetricGaussian(2.0, secure=True), source()
    draws = np.array(
        [mechanism.privatise_exactly(value, SENSITIVITY, Rounding(), noise) for _ in range(4000)]
    )
    assert np.array_equal(draws, draws.transpose(0, 2, 1))
    spread = (draws - value).std(axis=0) / (2.0 * SENSITIVITY)
    np.testing.assert_allclose(np.diag(spread), 1.0, atol=0.07)
    np.testing.assert_allclose(spread[0, 1:], math.sqrt(0.5), atol=0.05)


def test_peeling_releases_distinct_coordinates_on_a_lattice():
    mechanism = LaplacePeeling(0.01, count=3, secure=True)
    found = mechanism.privatise_exactly(np.array([1.0, -9.0, 5.0, 0.0]), SENSITIVITY, Rounding(), source())
    assert found.indices.tolist() == [1, 2, 0]
    assert np.sign(found.values).tolist() == [-1.0, 1.0, 1.0]
    spacing = Laplace(0.01).lattice(SENSITIVITY)
    assert np.array_equal(found.values / spacing, np.rint(found.values / spacing))


def test_counts_behind_a_threshold_are_told_on_a_lattice():
    mechanism = StableCounts(1.5, delta=1e-6, secure=True)
    found = mechanism.privatise_exactly([{"few": 1, "many": 500}], 1.3, Rounding(), source())
    assert list(found[0]) == ["many"]
    spacing = Gaussian(1.5).lattice(1.3)
    assert (found[0]["many"] / spacing).is_integer()
    plain = StableCounts(1.5, delta=1e-6).privatise([{"few": 1, "many": 500}], 1.3, source())
    assert not (plain[0]["many"] / spacing).is_integer()


def test_a_rounded_tilt_is_covered_by_the_output_noise(monkeypatch):
    class Bowl:
        size, output_sensitivity, travel = 4, 0.01, 0.5

        def minimise(self, tilt):
            self.tilt = tilt
            return -tilt

    scales = []
    honest = NoiseSource.rounded_gaussian
    monkeypatch.setattr(
        NoiseSource,
        "rounded_gaussian",
        lambda self, std, shape: scales.append(std) or honest(self, std, shape),
    )
    bowl, mechanism = Bowl(), TiltedObjective(2.0, jacobian=0.1, secure=True)
    mechanism.privatise_exactly(bowl, SENSITIVITY, Rounding(), source())
    spacing = Gaussian(2.0).lattice(SENSITIVITY)
    assert np.array_equal(bowl.tilt / spacing, np.rint(bowl.tilt / spacing))
    output = Gaussian(2.0 * OUTPUT_MULTIPLE).lattice(0.01)
    wanted = 2.0 * OUTPUT_MULTIPLE * ((0.01 + 2.0 * spacing * 0.5) / output + 2.0)
    assert scales[1] == pytest.approx(wanted, rel=1e-9)


# -------------------------------------------------------------------- Mironov's attack on low bits


def tells(values: np.ndarray) -> int:
    """Count small answers that are no multiple of 2^-53: a sum with an exact part of 1 has none of these."""
    small = values[np.abs(values) < 0.25]
    return int(np.count_nonzero(np.ldexp(small, 53) % 1.0))


def answers_around(centre: float, secure: bool, count: int = 20_000) -> np.ndarray:
    mechanism, noise = Gaussian(1.0, secure=secure), source(int(centre) + 7)
    value = np.full(count, centre)
    if secure:
        return np.concatenate(
            [mechanism.privatise_exactly(v, 1.0, Rounding(), noise) for v in value.reshape(-1, 1)]
        )
    return mechanism.privatise(value, 1.0, noise)


def test_low_bits_give_plain_noise_away():
    # No noise hides this: the event has probability 0.15 under one neighbour and none under the other.
    assert tells(answers_around(0.0, secure=False)) > 2500
    assert tells(answers_around(1.0, secure=False)) == 0


def test_low_bits_of_exact_noise_are_alike():
    zero, one = (answers_around(centre, secure=True) for centre in (0.0, 1.0))
    assert tells(zero) == tells(one) == 0
    spacing = Gaussian(1.0).lattice(1.0)
    for values in (zero, one):
        low = (np.rint(values / spacing).astype(np.int64) % 16).astype(int)
        assert_counts(np.bincount(low, minlength=16), np.full(16, len(values) / 16))


def test_a_race_of_low_bits_is_decided_by_the_scores_alone():
    # Plain Gumbel noise in doubles cannot break a tie below its last bit; an exact race can.
    scores = np.array([1e17, 1e17])
    wins = np.bincount([source(s).race(scores, 1.0, 1)[0] for s in range(400)], minlength=2)
    assert 140 < wins[0] < 260
    plain = np.bincount(
        [GumbelTopK(1.0).privatise(scores, 1.0, source(s))[0] for s in range(400)], minlength=2
    )
    assert 0 in plain


def test_a_plan_with_secure_noise_has_it_in_every_release():
    from sordino.problems.robust import Sample

    release = Release(GRAMS[0].query, SymmetricGaussian(), mean=False)
    plan = Sample(5, 4, Relation.ADD_REMOVE, secure_noise=True).planned(gram=release)
    assert all(r.mechanism.secure for r in plan.releases.values())
    plain = Sample(5, 4, Relation.ADD_REMOVE).planned(gram=release)
    assert not any(r.mechanism.secure for r in plain.releases.values())
    assert drawing.GAUSSIAN is not LAPLACE
