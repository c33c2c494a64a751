"""T1 to T4: a lazy step has exactly the law of the dense one. Fixed seeds, p < 1e-4 by Bonferroni."""

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import erf, erfc, ndtri
from tests.asking import asked
from tests.kernel.toys import source
from tests.statistical.laws import LEVEL, assert_counts, assert_law, assert_same_law, assert_scale

from sordino.execute import LocalExecutor
from sordino.execute.records import LazyRecords
from sordino.kernel import Full, Gaussian, LazyVector, Release, SparseVector
from sordino.kernel.lazy import _abs_normal_quantile, top_abs_normals, top_gumbels
from sordino.problems.losses import LOSSES
from sordino.problems.queries import GlmGradient
from sordino.solvers.steps import hard_threshold

pytestmark = pytest.mark.statistical


# ------------------------------------------------------------------- T1: order statistics of |N(0,1)|


@pytest.mark.parametrize(("total", "count"), [(200, 200), (5000, 50), (10**7, 100)])
def test_t1_order_statistics_have_beta_tails(total, count):
    noise = source(81)
    drawn = np.array([top_abs_normals(total, count, noise) for _ in range(4000)])
    for i in (1, count // 2, count):
        tails = erfc(drawn[:, i - 1] / np.sqrt(2))
        assert_law(tails, stats.beta(i, total - i + 1), tests=9)


def test_t1_gumbel_order_statistics_have_beta_tails():
    noise, total, count = source(82), 5000, 40
    drawn = np.array([top_gumbels(total, count, noise) for _ in range(4000)])
    assert (np.diff(drawn) < 0).all()
    for i in (1, count // 2, count):
        assert_law(-np.expm1(-np.exp(-drawn[:, i - 1])), stats.beta(i, total - i + 1), tests=3)
    assert_scale(drawn[:, 0] - np.log(total), stats.gumbel_r)


@pytest.mark.parametrize("total", [3, 200, 10**7, 10**15])
def test_t1_the_largest_of_many_is_precise_in_both_tails(total):
    noise = source(83)
    drawn = np.array([top_abs_normals(total, 1, noise)[0] for _ in range(4000)])
    assert_law(erfc(drawn / np.sqrt(2)), stats.beta(1, total), tests=4)


def test_t1_the_quantile_is_precise_in_both_tails():
    logs = -np.logspace(-300, 2.5, 400)
    x = _abs_normal_quantile(logs)
    far, near = -logs < 0.7, -logs > 0.7
    np.testing.assert_allclose(erfc(x[far] / np.sqrt(2)), -np.expm1(logs[far]), rtol=1e-12)
    np.testing.assert_allclose(erf(x[near] / np.sqrt(2)), np.exp(logs[near]), rtol=1e-12)
    assert (np.diff(x) < 0).all()


# ------------------------------------------------------- T2: one step of a fixed problem, both ways

D, K, STEP, SIGMA, RUNS = 300, 20, 0.5, 1.0, 10_000
_RNG = np.random.default_rng(1)
TOUCHED = np.sort(_RNG.choice(D, 40, replace=False))
GRADIENT = SparseVector(TOUCHED, 2.2 * _RNG.normal(size=40), D)
ITERATE = SparseVector(np.append(TOUCHED[:5], [0]), np.array([1.5, -2.0, 0.7, 0.2, 3.0, 1.1]), D)
UNTOUCHED = np.setdiff1d(np.arange(D), np.append(TOUCHED, 0))


def dense_steps(seed, runs=RUNS):
    w, g = ITERATE.to_dense(), GRADIENT.to_dense()
    moved = w - STEP * (g + SIGMA * source(seed).normal((runs, D)))
    drop = np.argpartition(np.abs(moved), D - K, axis=1)[:, : D - K]
    np.put_along_axis(moved, drop, 0.0, axis=1)
    return moved


def lazy_steps(seed, runs=RUNS, noised=LazyVector.noised):
    noise, out = source(seed), np.zeros((runs, D))
    for row in out:
        step = ITERATE - STEP * noised(GRADIENT, SIGMA, noise)
        chosen = step.hard_threshold(K)
        row[chosen.indices] = chosen.values
    return out


@pytest.fixture(scope="module")
def both():
    return dense_steps(84), lazy_steps(85)


def test_t2_every_step_keeps_exactly_k(both):
    for steps in both:
        assert (np.count_nonzero(steps, axis=1) == K).all()


def test_t2_the_number_of_untouched_survivors_has_the_dense_law(both):
    counts = [np.bincount((s[:, UNTOUCHED] != 0).sum(axis=1), minlength=K + 1) for s in both]
    table = np.array(counts)[:, np.sum(counts, axis=0) > 20]
    assert stats.chi2_contingency(table)[1] > LEVEL / 5


def test_t2_magnitudes_and_sums_have_the_dense_law(both):
    def smallest(s):
        return np.sort(np.abs(s), axis=1)[:, D - K]

    for statistic in (smallest, lambda s: (s**2).sum(axis=1), lambda s: s[:, UNTOUCHED].sum(axis=1)):
        assert_same_law(statistic(both[0]), statistic(both[1]), tests=5)


def test_t2_every_coordinate_is_included_as_often_as_in_the_dense_step(both):
    p = [(s != 0).mean(axis=0) for s in both]
    pooled = np.clip(np.mean(p, axis=0), 1e-3, 1 - 1e-3)
    z = (p[0] - p[1]) / np.sqrt(2 * pooled * (1 - pooled) / RUNS)
    assert stats.chi2.sf((z**2).sum(), D - 1) > LEVEL / 5


@pytest.mark.parametrize("wrong", [2 / 3, 3 / 2])
def test_t2_notices_a_wrong_scale_of_the_undrawn_coordinates(both, wrong):
    def broken(value, std, noise):
        return LazyVector(LazyVector.noised(value, std, noise)._known, wrong * std, noise)

    twin = lazy_steps(86, 1000, broken)
    with pytest.raises(AssertionError):
        assert_same_law((twin**2).sum(axis=1), (both[0] ** 2).sum(axis=1))


# ---------------------------------------------------------------------- T3: positions and signs


def test_t3_untouched_survivors_are_uniform_in_position_and_sign(both):
    survived = both[1][:, UNTOUCHED]
    counts = (survived != 0).sum(axis=0)
    assert_counts(counts, np.full(UNTOUCHED.size, counts.sum() / UNTOUCHED.size), tests=2)
    signs = np.array([(survived > 0).sum(), (survived < 0).sum()])
    assert_counts(signs, np.full(2, signs.sum() / 2), tests=2)


def test_t3_the_largest_survivor_is_anywhere():
    noise, known = source(87), SparseVector(np.array([4]), np.zeros(1), 30)
    first = [LazyVector(known, 1.0, noise).hard_threshold(3).indices[0] for _ in range(6000)]
    assert_counts(np.delete(np.bincount(first, minlength=30), 4), np.full(29, 6000 / 29))


# ------------------------------------------------------------------- T4: completion to i.i.d. normals


def test_t4_completed_vectors_are_independent_normals():
    total, count, runs, noise, rng = 250, 20, 2000, source(88), np.random.default_rng(2)
    rows = np.empty((runs, total))
    for row in rows:
        top = top_abs_normals(total, count, noise)
        below = ndtri(0.5 + 0.5 * rng.random(total - count) * erf(top[-1] / np.sqrt(2)))
        assert (np.sort(np.append(top, below))[::-1][:count] == top).all()
        row[:] = rng.permutation(np.append(top, below)) * rng.choice([-1.0, 1.0], total)
    assert_law(rows, stats.norm, tests=4)
    assert_law((rows**2).sum(axis=1), stats.chi2(total), tests=4)
    columns = rows.mean(axis=0) * np.sqrt(runs)
    assert stats.chi2.sf((columns**2).sum(), total) > LEVEL / 4
    sorted_cdf = stats.norm.cdf(np.sort(rows.ravel()))
    n, i = rows.size, np.arange(1, rows.size + 1)
    darling = -n - np.mean((2 * i - 1) * (np.log(sorted_cdf) + np.log1p(-sorted_cdf[::-1])))
    assert darling < 9.5  # the upper 1e-4 / 4 point of the Anderson-Darling statistic lies above 9


# -------------------------------------------------- the whole path: a CSR batch with an intercept

LOGISTIC = GlmGradient(LOSSES["logistic"], 0.6)


def csr_executor(columns=120, intercept=0.7, density=0.03):
    rng = np.random.default_rng(3)
    matrix = sparse.random(8, columns, density=density, random_state=rng, format="csr") * 4
    return LocalExecutor(matrix, rng.choice([-1.0, 1.0], 8), 1.7, intercept)


def step_samples(executor, w, lazy, count, kept, runs=5000, seed=89):
    noise, out = source(seed), np.zeros((runs, w.size))
    start, records = (w if lazy else w.to_dense()), executor.records(None)
    value = LOGISTIC.evaluate(LazyRecords(records) if lazy else records, start)
    for row in out:
        answer = Gaussian(0.7).privatise(value, 0.6, noise) / 8.0
        chosen = hard_threshold(start - 2.0 * answer, count, kept)
        row[:] = chosen.to_dense() if lazy else chosen
    return out


@pytest.mark.parametrize(("count", "intercept"), [(10, 0.7), (10, 0.0), (118, 0.7)])
def test_a_lazy_step_on_csr_data_has_the_law_of_the_dense_step(count, intercept):
    executor, kept = csr_executor(intercept=intercept), int(intercept > 0)
    size = 120 + kept
    w = SparseVector(np.append([3, 50], np.arange(120, size)), np.append([0.4, -0.3], [0.2] * kept), size)
    dense, lazy = [step_samples(executor, w, way, count, kept, seed=90 + way) for way in (False, True)]
    for s in (dense, lazy):
        assert (np.count_nonzero(s[:, :120], axis=1) == count).all()
    if kept:
        assert (lazy[:, -1] != 0).all()
        assert_same_law(dense[:, -1], lazy[:, -1], tests=10)
    assert_same_law((dense**2).sum(axis=1), (lazy**2).sum(axis=1), tests=10)
    assert_same_law(dense.sum(axis=1), lazy.sum(axis=1), tests=10)
    p = [(s[:, :120] != 0).mean(axis=0) for s in (dense, lazy)]
    pooled = np.clip(np.mean(p, axis=0), 1e-3, 1 - 1e-3)
    z = (p[0] - p[1]) / np.sqrt(2 * pooled * (1 - pooled) / len(dense))
    assert stats.chi2.sf((z**2).sum(), 120) > LEVEL / 10


def test_the_executor_chooses_the_lazy_path_where_few_columns_are_touched():
    release = Release(LOGISTIC, Gaussian(1.0), Full(), 2, lazy=True)
    start = SparseVector.zeros(4001, kept=1)
    answer = asked(csr_executor(4000), release, start, 0.6, 0, source())
    assert isinstance(answer, LazyVector)
    crowded = csr_executor(30, density=0.5)
    assert isinstance(asked(crowded, release, SparseVector.zeros(31, kept=1), 0.6, 0, source()), np.ndarray)
    eager = Release(LOGISTIC, Gaussian(1.0), Full(), 2)
    assert isinstance(asked(csr_executor(4000), eager, start, 0.6, 0, source()), np.ndarray)


def test_steps_with_many_survivors_have_the_law_of_the_dense_step():
    size, count, runs = 20_000, 600, 600
    known = SparseVector(np.arange(400), np.linspace(-6, 6, 400), size)
    dense, lazy = np.zeros((runs, size)), np.zeros((runs, size))
    noise = source(105)
    for row in dense:
        moved = known.to_dense() + 1.4 * noise.normal(size)
        best = np.argpartition(np.abs(moved), size - count)[size - count :]
        row[best] = moved[best]
    for row in lazy:
        kept = LazyVector.noised(known, 1.4, noise).hard_threshold(count)
        row[kept.indices] = kept.values
    for s in (dense, lazy):
        assert (np.count_nonzero(s, axis=1) == count).all()
    for statistic in (
        lambda s: np.count_nonzero(s[:, :400], axis=1) + 0.0,
        lambda s: (s**2).sum(axis=1),
        lambda s: np.abs(s).max(axis=1),
        lambda s: np.where(s == 0, np.inf, np.abs(s)).min(axis=1),
    ):
        assert_same_law(statistic(dense), statistic(lazy), tests=4)
