"""Correlated noise: its law, its sensitivity over all participations, and what it refuses."""

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, stats

from sordino.errors import InvalidInputError, PlanError, UnsupportedError
from sordino.execute import LocalExecutor
from sordino.kernel import (
    Banded,
    Buffered,
    Correlated,
    Curator,
    Cyclic,
    Disjoint,
    FixedSize,
    Full,
    Gaussian,
    NoiseSource,
    Plan,
    Poisson,
    Regenerated,
    Relation,
    Release,
)
from sordino.kernel.correlated import Memory, Remembered, participation_norm
from sordino.kernel.curator import _DEALT
from sordino.problems.covariance import RowMoments

BOUND, SIZE = 0.7, 40
MOVES = BOUND * math.hypot(1.0, 0.5)  # what a record adds to RowMoments
STRATEGIES = {
    "banded": Banded((1.0, 0.6, 0.5, 0.1)),
    "blt": Buffered((0.3, 0.15), (0.5, 0.9)),
    "regenerated": Regenerated((1.0, -0.7, -0.1)),
}


def matrix(strategy, times):
    """Return C."""
    return linalg.toeplitz(strategy.coefficients(times), np.zeros(times))


def mechanism(strategy, parts=4, times=12, **known):
    return Correlated(strategy=strategy, parts=parts, times=times, **known)


class Fixed:
    """Stands for a noise source: numbered unit vectors, so that each row shows its coefficients."""

    def __init__(self, times):
        self.times, self.drawn = times, 0

    def subkey(self):
        self.drawn += 1
        return self.drawn - 1

    def normal_of(self, key, shape):
        return np.eye(self.times)[key]

    def normal(self, shape):
        return self.normal_of(self.subkey(), shape)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_rows_of_noise_are_those_of_the_inverse(kind):
    strategy, times = STRATEGIES[kind], 9
    rows, source = strategy.rows(), Fixed(times)
    found = np.stack([rows(source, (times,)) for _ in range(times)])
    np.testing.assert_allclose(matrix(strategy, times) @ found, np.eye(times), atol=1e-12)


@pytest.mark.parametrize(
    ("coefficients", "times", "separation", "expected"),
    [  # jax-privacy 2.0, toeplitz.minsep_sensitivity_squared, as many participations as fit
        ((1, 0.5, 0.25), 10, 3, 2.222048604328897),
        ((1, 0.5, 0.375, 0.3125, 0.2734375), 12, 2, 4.160623873366228),
    ],
)
def test_norms_are_those_of_jax_privacy(coefficients, times, separation, expected):
    found = participation_norm(Banded(coefficients).coefficients(times), separation)
    assert found == pytest.approx(expected, rel=1e-10)


def test_the_norm_of_buffers_is_that_of_jax_privacy():
    strategy = STRATEGIES["blt"]
    np.testing.assert_allclose(strategy.coefficients(6), [1, 0.45, 0.285, 0.1965, 0.14685, 0.117165])
    assert participation_norm(strategy.coefficients(30), 5) == pytest.approx(3.499749168057545, rel=1e-10)
    assert participation_norm(strategy.coefficients(30), 30) ** 2 == pytest.approx(1.4017946954495053)


def patterns(times, separation):
    """Yield every set of releases that are at least so far apart."""
    for size in range(1, times + 1):
        for chosen in itertools.combinations(range(times), size):
            if all(b - a >= separation for a, b in itertools.pairwise(chosen)):
                yield list(chosen)


@pytest.mark.parametrize("separation", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", STRATEGIES)
def test_no_pattern_that_far_apart_has_a_larger_norm(kind, separation):
    times = 9
    c = matrix(STRATEGIES[kind], times)
    largest = max(np.linalg.norm(c[:, chosen].sum(axis=1)) for chosen in patterns(times, separation))
    bound = participation_norm(c[:, 0], separation)
    assert largest <= bound <= largest * (1 + 1e-9)


falling = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8).map(
    lambda ratios: tuple(np.concatenate([[1.0], np.cumprod(ratios)]))
)


@given(falling, st.integers(1, 6), st.integers(2, 14), st.integers(0, 2**32 - 1), st.integers(0, 14))
def test_vectors_of_a_unit_move_what_is_released_by_at_most_the_norm(weights, parts, times, seed, forgets):
    """The vectors point anywhere, in any part, and the run may have forgotten its past noise."""
    public = np.random.default_rng(seed)
    c = matrix(Banded(weights), times)
    c[forgets:, :forgets] = 0.0
    vectors = public.normal(size=(times, 3)) * public.choice([0.0, 1.0, 1e6], size=(times, 1))
    if seed % 2:
        vectors = np.abs(vectors)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    part = int(public.integers(parts))
    vectors[np.arange(times) % parts != part] = 0.0
    assert np.linalg.norm(c @ vectors) <= participation_norm(Banded(weights).coefficients(times), parts)


@pytest.mark.parametrize(
    "strategy",
    [Banded((0.9, 0.5)), Banded((1.0, 0.5, 0.6)), Banded((1.0, -0.1)), Buffered((1.2,), (0.5,)),
     Buffered((0.5,), (1.1,)), Regenerated((1.0, 0.5)), Regenerated((1.0, -1.2)), Banded((1.0, math.nan))],
)  # fmt: skip
def test_strategies_without_a_proof_are_refused(strategy):
    with pytest.raises(InvalidInputError, match="not negative and do not grow"):
        mechanism(strategy)


def test_random_batches_with_more_bands_than_parts_are_refused():
    mechanism(STRATEGIES["banded"], sampled=True)
    for strategy in (Banded((1.0, 0.5, 0.4, 0.3, 0.2)), STRATEGIES["blt"], STRATEGIES["regenerated"]):
        with pytest.raises(UnsupportedError, match="no proven amplification"):
            mechanism(strategy, sampled=True)


@pytest.mark.parametrize(
    ("sampling", "times"), [(Poisson(0.1), 12), (Cyclic(3), 12), (Cyclic(4), 13), (Cyclic(4, 0.5), 12)]
)
def test_batches_that_the_norm_is_not_for_are_refused(sampling, times):
    with pytest.raises(UnsupportedError, match="proven for its own batches only"):
        Release(RowMoments(BOUND), mechanism(STRATEGIES["banded"]), sampling, times)
    sampled = mechanism(STRATEGIES["banded"], sampled=True)
    with pytest.raises(UnsupportedError, match="proven for its own batches only"):
        Release(RowMoments(BOUND), sampled, Cyclic(4), 12)


def test_all_releases_are_one_gaussian_event():
    one = Release(RowMoments(BOUND), mechanism(STRATEGIES["blt"]).at(2.0), Cyclic(4), 12)
    assert one.event(Relation.ADD_REMOVE, SIZE) == Gaussian(2.0).event(Relation.ADD_REMOVE)
    assert one.event(Relation.REPLACE_ONE, SIZE) == Gaussian(2.0).event(Relation.REPLACE_ONE)


def test_rounds_of_sampled_batches_are_amplified():
    sampled = mechanism(STRATEGIES["banded"], sampled=True, times=10).at(2.0)
    found = Release(RowMoments(BOUND), sampled, Cyclic(4, 0.25), 10).event(Relation.ADD_REMOVE, SIZE)
    plain = Release(RowMoments(BOUND), Gaussian(2.0), Poisson(0.25), 3).event(Relation.ADD_REMOVE, SIZE)
    assert found == plain  # 10 releases on 4 parts are 3 rounds
    assert sampled.norm == pytest.approx(np.linalg.norm([1.0, 0.6, 0.5, 0.1]))


def test_disjoint_bands_cost_as_independent_noise_of_the_rounds():
    """With as many bands as parts the columns of a unit do not overlap: k rounds, sqrt(k) times the norm."""
    strategy = STRATEGIES["banded"]
    assert mechanism(strategy, 4, 12).norm == pytest.approx(math.sqrt(3) * np.linalg.norm(strategy.weights))


def sources(seed=0, key=3):
    """Return the source of noise of each position of one run."""
    memory, noise = Memory(STRATEGIES["banded"], key), NoiseSource.seeded_not_private(seed)
    return lambda position: Remembered(noise, memory, position)


def test_each_record_is_looked_at_in_its_turn_only():
    source = sources()
    seen = [set(Cyclic(4).draw(SIZE, t, source(t)).tolist()) for t in range(8)]
    assert seen[:4] == seen[4:]
    assert sorted(itertools.chain(*seen[:4])) == list(range(SIZE))


def test_the_place_of_a_record_says_nothing_of_its_part():
    """Every second record is told apart by its place: dropping the first row exchanges them, and no law."""
    signs = np.resize([1.0, -1.0], 61)
    dealt = [Cyclic(2).draw(61, 0, sources(key=key)(0)) for key in range(400)]
    sums, sizes = np.array([(signs[rows].sum(), len(rows)) for rows in dealt]).T
    assert abs(sums.mean() - 0.5) < 5 * math.sqrt(61 / 4 / 400)  # half of 31 - 30; by places it was 31 or 0
    assert sums.var() == pytest.approx(61 / 4, rel=0.35)
    assert stats.binomtest(int(sizes.sum()), 61 * 400, 0.5).pvalue > 1e-4
    assert sizes.var() == pytest.approx(61 / 4, rel=0.35)  # each by a draw of its own: sizes vary


def test_a_rate_takes_that_share_of_the_part():
    source = sources()
    whole = [set(Cyclic(4).draw(4000, t, source(t)).tolist()) for t in range(4)]
    rows = [Cyclic(4, 0.3).draw(4000, t, source(t)) for t in range(40)]
    assert all(set(r.tolist()) <= whole[t % 4] for t, r in enumerate(rows))
    assert stats.binomtest(sum(map(len, rows)), 40_000, 0.3).pvalue > 1e-4
    assert stats.binomtest(sum(map(len, rows)), 40_000, 0.27).pvalue < 1e-4


def test_parts_are_drawn_by_a_curator_for_correlated_noise_only():
    with pytest.raises(PlanError, match="only a curator can draw them"):
        Cyclic(4).draw(SIZE, 0, NoiseSource.from_os())
    with pytest.raises(UnsupportedError, match="Parts in turn belong to correlated noise"):
        Release(RowMoments(BOUND), Gaussian(2.0), Cyclic(4), 12)


def test_shares_are_the_draw_on_parts_behind_each_other():
    whole = Cyclic(3, 0.5).draw(50, 4, sources()(4))
    shares = Cyclic(3, 0.5).shares([20, 0, 30], 4, sources()(4))
    found = [share.rows(size) + start for share, size, start in zip(shares, (20, 0, 30), (0, 20, 20))]
    np.testing.assert_array_equal(np.concatenate(found), whole)


@pytest.mark.parametrize(("parts", "rate"), [(0, 1.0), (3, 0.0), (3, 1.1)])
def test_impossible_parts_are_refused(parts, rate):
    with pytest.raises(InvalidInputError, match=r"parts >= 1 and a sampling rate in \(0, 1\]"):
        Cyclic(parts, rate)


def curator(strategy, times=12, multiplier=2.0, seed=5, used=None, journal=None, rows=None):
    release = Release(
        RowMoments(BOUND), mechanism(strategy, times=times).at(multiplier), Cyclic(4), times, mean=False
    )
    plan = Plan({"sum": release}, Relation.ADD_REMOVE, SIZE)
    data = LocalExecutor(np.zeros((SIZE, 3)) if rows is None else rows, None, BOUND)
    return Curator(data, plan, NoiseSource.seeded_not_private(seed), used, journal)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", STRATEGIES)
def test_what_is_released_has_the_declared_law(kind):
    """C times the noise of a run is independent, with the deviation of the whole sensitivity."""
    strategy = STRATEGIES[kind]
    c, released = matrix(strategy, 12), []
    for seed in range(150):
        run = curator(strategy, seed=seed)
        released.append(np.stack([run.release("sum") for _ in range(12)]))
    z = np.einsum("ts,rsd->rtd", c, np.array(released))
    std = 2.0 * MOVES * participation_norm(c[:, 0], 4)
    pvalue = lambda scale: stats.kstest(z.ravel(), stats.norm(scale=scale).cdf).pvalue  # noqa: E731
    assert pvalue(std) > 1e-4
    assert pvalue(std * 2 / 3) < 1e-4
    assert pvalue(std * 3 / 2) < 1e-4
    flat = z.transpose(0, 2, 1).reshape(-1, 12)
    off = np.corrcoef(flat.T) - np.eye(12)
    assert np.abs(off).max() < 5 / math.sqrt(len(flat))
    raw = np.corrcoef(np.array(released).transpose(0, 2, 1).reshape(-1, 12).T)
    assert np.diag(raw, 1).mean() < -0.2  # and without C it is not


def test_a_run_that_is_resumed_begins_its_noise_anew():
    """Nothing of the past noise is saved: the first row after it is fresh, which is private too."""
    strategy = STRATEGIES["banded"]
    whole, rest = curator(strategy), curator(strategy, used={"sum": 3, _DEALT: 5}, seed=6)
    fresh = curator(strategy, used={_DEALT: 5}, seed=6)
    for _ in range(3):
        whole.release("sum")
    np.testing.assert_array_equal(rest.release("sum"), fresh.release("sum"))


def test_a_run_that_is_resumed_keeps_the_parts_of_its_records():
    """Dealt anew, a record would be looked at twice in a round: its key is told to the journal, once."""
    strategy, told = STRATEGIES["banded"], []
    rows = np.outer(np.linspace(0, BOUND, SIZE), [0.6, 0.8, 0.0])
    quiet = {"multiplier": 0.0, "rows": rows}
    first = curator(strategy, **quiet, journal=lambda name, count: told.append((name, count)))
    sums = [first.release("sum") for _ in range(4)]
    assert [name for name, _ in told] == [_DEALT, *["sum"] * 4]
    rest = curator(strategy, **quiet, used=dict(told), seed=6)
    np.testing.assert_array_equal([rest.release("sum") for _ in range(4)], sums)
    assert rest.used == {"sum": 8}
    with pytest.raises(PlanError, match="how its records were dealt"):
        curator(strategy, used={"sum": 3})


def test_a_position_that_is_skipped_forgets_the_past():
    memory, source = Memory(STRATEGIES["banded"], 1), Fixed(6)
    memory.row(0, source, (6,))
    np.testing.assert_array_equal(memory.row(2, source, (6,)), np.eye(6)[1])
    assert memory.row(3, source, (6,))[1] == -0.6


def test_noise_cannot_be_added_without_its_memory_nor_the_memory_be_copied():
    with pytest.raises(PlanError, match="only a curator can add it"):
        mechanism(STRATEGIES["banded"]).at(1.0).privatise(np.zeros(3), 0.7, NoiseSource.from_os())
    with pytest.raises(PlanError, match="noise used twice"):
        pickle.dumps(Memory(STRATEGIES["banded"], 1))
    with pytest.raises(PlanError, match="Calibrate the plan first"):
        mechanism(STRATEGIES["banded"]).event(Relation.ADD_REMOVE)


def test_no_noise_is_none():
    assert not curator(STRATEGIES["banded"], multiplier=0.0).release("sum").any()


def test_two_keys_make_different_noise_and_one_key_the_same():
    noise = NoiseSource.from_os()
    one, other = noise.subkey(), noise.subkey()
    np.testing.assert_array_equal(noise.normal_of(one, 5), noise.normal_of(one, 5))
    assert (noise.normal_of(one, 5) != noise.normal_of(other, 5)).all()


def attacked(run, unit, times=8, parts=4):
    """Return the best test statistic of a unit that adds ``BOUND`` in its turns, for z of deviation 1."""
    released = np.stack([run.release("sum")[0] for _ in range(times)])
    signal = np.zeros(times)
    signal[unit::parts] = MOVES
    return released, signal


@pytest.mark.statistical
@pytest.mark.parametrize("broken", [None, "participation", "sensitivity", "reused"])
def test_the_best_attack_meets_the_promise_and_finds_broken_twins(monkeypatch, broken):
    """The likelihood ratio of a unit in all its turns has deviation 1 / multiplier; twins exceed it."""
    strategy, times, multiplier = STRATEGIES["banded"], 8, 2.0
    if broken == "participation":  # as if every unit were looked at once
        monkeypatch.setattr(
            Correlated, "norm", property(lambda self: float(np.linalg.norm(strategy.weights)))
        )
    if broken == "sensitivity":  # as if the strategy were free
        monkeypatch.setattr(Correlated, "norm", property(lambda self: 1.0))
    if broken == "reused":  # the same noise in every release
        monkeypatch.setattr(Memory, "row", lambda self, p, noise, shape: NoiseSource(7).normal(shape))
    c, found = matrix(strategy, times), []
    for seed in range(400):
        released, signal = attacked(curator(strategy, times, multiplier, seed), 0, times)
        direction = c @ signal
        found.append(float((c @ released) @ direction / (direction @ direction)))
    # released + signal against released: a shift of 1 in this statistic, of deviation multiplier
    loudness = np.std(found)
    assert (loudness > 0.85 * multiplier) == (broken is None)


def test_the_audit_draws_the_batches_of_parts_as_well():
    from sordino.auditing import tape

    for kind in (Full, Poisson, Cyclic, FixedSize, Disjoint):
        (heard,) = [base for base in kind.__mro__ if base in tape._SAMPLINGS]
        assert (kind.draw, kind.shares) == (heard.draw, heard.shares)  # no draw of its own that is not heard
