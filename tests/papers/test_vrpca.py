"""DP-VRPCA as printed: nothing exact is released, and a record moves a step as the event says."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from scipy import sparse, stats

from sordino import PCA
from sordino.execute import LocalExecutor
from sordino.kernel import Curator, NoiseSource, Relation
from sordino.literature.pca import (
    OneRecordOverSnapshot,
    PrintedVrpca,
    SnapshotAndDifference,
    published_solver,
)
from sordino.problems.covariance import Ball, PcaProblem
from sordino.solvers import Options, make_solver

R, N, D = 1.7, 30, 5
BALL = Ball(R)


def rows(n=N, seed=0):
    return np.random.default_rng(seed).normal(size=(n, D))


def basis(seed, columns=2):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(D, columns)))[0]


def problem_of(n=N):
    return PcaProblem(n, D, 2, Relation.ADD_REMOVE, 0.7, 1e-3, R, center=False, adaptive=False)


def step_of(x, moved, anchor):
    records = LocalExecutor(x, None, R).records(None)
    return SnapshotAndDifference(R).evaluate(records, (moved, anchor, BALL))


def clipped(x):
    return x * np.minimum(1, R / np.linalg.norm(x, axis=1))[:, None]


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_a_step_is_the_exact_mean_plus_the_difference_of_its_batch(kind):
    x, anchor, moved = rows(), basis(1), basis(2) - basis(1)
    step, y = step_of(kind(x), moved, anchor), clipped(x)
    for batch in ([], [4], [4, 7]):
        expected = y.T @ y @ anchor / N + y[batch].T @ y[batch] @ moved
        assert step.with_batch(np.array(batch, dtype=np.int64), N) == pytest.approx(expected, rel=1e-7)


def test_a_snapshot_is_kept_for_its_anchor_and_for_no_other():
    executor, query, none = LocalExecutor(rows(), None, R), SnapshotAndDifference(R), np.array([], np.int64)
    anchor, y = basis(1), clipped(rows())
    records = executor.records(None)
    for block in (anchor, basis(3), anchor):
        step = query.evaluate(records, (0 * block, block, BALL))
        assert step.with_batch(none, N) == pytest.approx(y.T @ y @ block / N, rel=1e-7)
    changed = anchor.copy()
    query.evaluate(records, (0 * changed, changed, BALL)).with_batch(none, N)
    changed *= 3.0  # in place: the product of the old values must not answer for it
    step = query.evaluate(records, (0 * changed, changed, BALL))
    assert step.with_batch(none, N) == pytest.approx(3 * y.T @ y @ anchor / N, rel=1e-7)


@pytest.mark.parametrize("size", [0.01, 1.0, 40.0])
def test_a_record_moves_a_step_by_at_most_what_its_event_says(size):
    anchor, moved = size * basis(1), 2 * size * basis(2)
    bound = SnapshotAndDifference(R).contribution((moved, anchor, BALL))
    long = 100 * np.vstack([basis(1)[:, 0], basis(2)[:, 0], rows(1)[0]])
    batches = {0.0: np.array([], dtype=np.int64), 1.0: np.array([0])}
    for record in long:
        there = step_of(np.vstack([record, rows(N - 1)]), moved, anchor)
        gone = step_of(np.vstack([0 * record, rows(N - 1)]), moved, anchor)
        for extra, batch in batches.items():
            change = np.linalg.norm(there.with_batch(batch, N) - gone.with_batch(batch, N))
            assert change <= bound * (extra + 0.5 / N)


def test_the_worst_record_attains_the_bound_of_two_opposite_bases():
    anchor = np.eye(D)[:, :1]
    x = np.vstack([R * np.eye(D)[:1], np.zeros((N - 1, D))])
    drawn = step_of(x, 2 * anchor, anchor).with_batch(np.array([0]), N)
    assert SnapshotAndDifference(R).contribution((2 * anchor, anchor, BALL)) == pytest.approx(2 * R**2)
    assert np.linalg.norm(drawn) == pytest.approx(2 * R**2 * (1 + 0.5 / N), rel=1e-6)


def test_the_plan_is_one_noisy_release_per_step():
    solver = PrintedVrpca.of(
        make_solver("vrpca", problem_of(), Options(), "pca"), epochs=2, inner=3, columns=2
    )
    plan = solver.plan(problem_of()).at(0.4)
    mixture = dp.MixtureOfGaussiansDpEvent(0.4, [0.5 / N, 1 + 0.5 / N], [1 - 1 / N, 1 / N])
    assert list(plan.releases) == ["step"]
    assert plan.event() == dp.ComposedDpEvent([dp.SelfComposedDpEvent(mixture, 6)])
    assert plan.printed == (OneRecordOverSnapshot.printed,)
    assert math.isclose(OneRecordOverSnapshot(0.4, population=N).rho(), 0.5)


def test_without_noise_the_event_is_not_private_and_the_steps_find_the_axes():
    x = rows(400) * [2.0, 1.2, 0.1, 0.1, 0.1]
    problem = problem_of(400)
    solver, _ = published_solver("vrpca", problem, Options(max_iter=2, step_size=0.3), problem)
    plan = solver.plan(problem).at(0.0)
    assert isinstance(plan.event().events[0].event, dp.NonPrivateDpEvent)
    noise = NoiseSource.seeded_not_private(3)
    curator = Curator(LocalExecutor(x, None, R), plan, noise, printed=plan.printed)
    *_, last = solver.run(curator, problem)
    y = clipped(x)
    values, vectors = np.linalg.eigh(y.T @ y / 400)
    assert np.linalg.norm(last.axes @ vectors[:, -2:], 2) > 0.99
    assert np.linalg.svd(last.axes @ vectors[:, -2:])[1].min() > 0.9
    assert last.variances == pytest.approx(values[:-3:-1], rel=0.25)


@pytest.mark.statistical
def test_the_noise_and_the_batches_have_the_declared_law():
    """Zero blocks leave the noise alone; without noise the batches of one record in N are Poisson."""
    noise, zero = NoiseSource.seeded_not_private(7), np.zeros((D, 2))
    step, mechanism = step_of(rows(), zero, zero), OneRecordOverSnapshot(0.4, population=N)
    draws = np.concatenate([mechanism.privatise(step, 3.1, noise).ravel() for _ in range(300)])
    assert stats.kstest(draws, stats.norm(0, 0.4 * 3.1).cdf).pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(draws, stats.norm(0, wrong * 0.4 * 3.1).cdf).pvalue < 1e-4
    ones = np.ones((N, D)) / math.sqrt(D)
    batch = step_of(ones, np.eye(D)[:, :1] * math.sqrt(D), zero[:, :1])
    silent = OneRecordOverSnapshot(0.0, population=N)
    sizes = [silent.privatise(batch, 3.1, noise).sum() * math.sqrt(D) / D for _ in range(3000)]
    assert np.mean(sizes) == pytest.approx(1.0, abs=0.08)
    assert np.var(sizes) == pytest.approx(1 - 1 / N, abs=0.12)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_variances_of_the_printed_solver_are_noisy_too():
    """They were computed from the exact snapshot, which nothing had paid for: the same in every fit."""
    x = np.random.default_rng(0).normal(size=(30, 4)) / 4
    settings = {"solver": "vrpca", "noise": "paper", "center": False, "epsilon": 0.7, "random_state": 0}
    first, second = (PCA(2, **settings).fit(x).noisy_eigenvalues_ for _ in range(2))
    assert not np.array_equal(first, second)
