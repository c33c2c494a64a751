"""Thresholds, means, projected gradients and sparse steps for heavy-tailed data."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from scipy.optimize import minimize

from sordino.accounting import calibrate, certify, gaussian_epsilon, gaussian_multiplier
from sordino.execute import LocalExecutor
from sordino.kernel import Curator, Gaussian, GumbelTopK, NoiseSource, Norm, Plan, Relation, Release
from sordino.problems.losses import LOSSES
from sordino.problems.problem import Problem
from sordino.problems.robust import GradientPoint, RobustSum, Sample, Truncation
from sordino.problems.scales import EDGES, counts_of
from sordino.solvers import SOLVERS, Options, make_solver
from sordino.solvers.heavy.learners import GradientStep, HeavyTailedSparse, ProjectedGradient, Scaling, Step
from sordino.solvers.heavy.location import (
    RobustMean,
    Tail,
    known_bias,
    location_release,
    moment_threshold,
    reconcile_levels,
)

AR, RO = Relation.ADD_REMOVE, Relation.REPLACE_ONE
DELTA = 1e-5


def problem(loss="squared", relation=AR, n=4000, d=6, **facts):
    return Problem(LOSSES[loss], n, d, relation, 1.0, DELTA, **facts)


def run(solver, task, X, y, scale, seed=0):
    plan = solver.plan(task).at(scale)
    executor = LocalExecutor(X, y, None, getattr(task, "intercept", 0.0))
    curator = Curator(executor, plan, NoiseSource.seeded_not_private(seed))
    *_, last = solver.run(curator, task)
    assert curator.used == {name: r.times for name, r in plan.releases.items()}
    return last


# ---------------------------------------------------------------------- vectors of the specification


def test_vector_h1_the_papers_noise_of_the_truncated_mean_is_correct_but_loose():
    z = math.sqrt(8 * math.log(1.25 / DELTA)) / 2  # its std over the replace-one sensitivity 2 B / n
    assert z == pytest.approx(4.84481, rel=1e-5)
    plan = RobustMean(1.0, 2.0, np.zeros(1)).plan(Sample(100, 1, RO)).at(z)
    assert certify(plan.event(), DELTA, RO).epsilon == pytest.approx(0.75098, rel=1e-3)
    zero_out = RobustMean(1.0, 2.0, np.zeros(1)).plan(Sample(100, 1, AR)).at(2 * z)
    assert certify(zero_out.event(), DELTA, AR).epsilon == pytest.approx(0.35257, rel=1e-3)


def test_vector_h3_the_convex_learner_needs_a_fourteenth_of_the_papers_noise():
    steps = 10
    part, small = 1 / (2 * math.sqrt(2 * steps * math.log(2 / DELTA))), DELTA / (2 * steps)
    paper = math.sqrt(2 * math.log(1.25 / small)) / part
    assert paper == pytest.approx(169.62, rel=1e-4)
    solver = ProjectedGradient(steps, Scaling(fixed=0.7, step=0.1), "all")
    plan = solver.plan(problem(relation=RO))
    assert certify(plan.at(paper).event(), DELTA, RO).epsilon == pytest.approx(0.05427, rel=1e-3)
    found = calibrate(plan, 1.0, DELTA).releases["gradient"].mechanism.multiplier
    assert found == pytest.approx(11.7973, rel=1e-3)
    assert math.sqrt(steps) * gaussian_multiplier(1.0, DELTA) == pytest.approx(11.7973, rel=1e-4)


@pytest.mark.parametrize(("steps", "true_epsilon"), [(10, 2.69), (100, 10.4)])
def test_the_listing_as_printed_spends_many_times_its_claim(steps, true_epsilon):
    """Line 8 of Algorithm 2 passes all of X where the text means the chunk X_t."""
    paper = math.sqrt(2 * math.log(1.25 / DELTA))  # (1, delta) for one release, of sensitivity 2 tau m / n
    literal = ProjectedGradient(steps, Scaling(fixed=0.7, step=0.1), "last", split=False)
    spent = certify(literal.plan(problem(relation=RO)).at(paper).event(), DELTA, RO).epsilon
    assert spent == pytest.approx(true_epsilon, rel=5e-3)
    assert spent == pytest.approx(gaussian_epsilon(math.sqrt(steps) / paper, DELTA), rel=1e-3)
    meant = ProjectedGradient(steps, Scaling(fixed=0.7, step=0.1), "last", split=True)
    assert certify(meant.plan(problem(relation=RO)).at(paper).event(), DELTA, RO).epsilon < 1


def test_vector_q1_the_papers_peeling_is_correct_but_loose():
    s = 10
    scale = 4 * math.sqrt(2 * s * math.log(1 / DELTA))
    assert scale == pytest.approx(60.697, rel=1e-4)
    assert 2.5 * s / scale**2 == pytest.approx(0.00679, rel=1e-3)
    solver = HeavyTailedSparse(s, 1, Scaling(fixed=0.7, step=0.1), True, "peeling")
    plan = solver.plan(problem(d=50, relation=RO))
    relative = plan.releases["select"].mechanism.relative
    epsilon = certify(plan.at(scale / relative).event(), DELTA, RO).epsilon
    assert epsilon == pytest.approx(0.3741, rel=2e-3)


def test_vector_q2_gumbel_and_gaussian_noise_are_equal_and_a_third_of_peeling():
    s, rho = 10, 0.0305527  # of epsilon 1, as the notes print it
    solver = HeavyTailedSparse(s, 1, Scaling(fixed=0.7, step=0.1))
    plan = solver.plan(problem(d=50)).at(1.0)
    select, values = (plan.releases[name].mechanism for name in ("select", "values"))
    assert isinstance(select, GumbelTopK)
    assert isinstance(values, Gaussian)
    # In units of lam: the Gumbel scale is its multiplier, the Gaussian std sqrt(s) times its own.
    assert select.relative == pytest.approx(math.sqrt(s) * values.relative)
    unit = math.sqrt((select.rho() / select.relative**2 + values.rho() / values.relative**2) / rho)
    assert unit * select.relative == pytest.approx(18.0915, rel=1e-3)


def test_a_joint_clip_divides_the_noise_of_the_values_by_the_root_of_their_number():
    step = Step(GradientPoint(np.zeros(50), 0.7), 0.1, np.arange(9))
    moved = []
    for joint in (None, 1.5, 40.0):
        plan = HeavyTailedSparse(9, 1, Scaling(fixed=0.7, step=0.1), joint=joint).plan(problem(d=50))
        moved.append([plan.releases[name].query.contribution(step) for name in ("select", "values")])
    lam = moved[0][0]
    np.testing.assert_allclose(moved, [[lam, 3.0 * lam], [lam, 1.5 * lam], [lam, 3.0 * lam]])


def test_not_splitting_needs_less_noise_in_a_step_than_splitting():
    steps, n = 10, 4000
    stds = []
    for split in (True, False):
        solver = HeavyTailedSparse(3, steps, Scaling(fixed=0.7, step=0.1), split)
        plan = calibrate(solver.plan(problem(n=n)), 1.0, DELTA)
        records = n / steps if split else n
        stds.append(plan.releases["values"].mechanism.multiplier / records)
    assert stds[0] / stds[1] == pytest.approx(math.sqrt(steps), rel=0.1)


# ------------------------------------------------------------------------------------------ threshold


@pytest.mark.parametrize("v", [0.3, 0.5, 1.0])
def test_the_threshold_of_a_known_moment_balances_bias_and_noise(v):
    u, n, z = 3.0, 10_000, 4.0
    best = moment_threshold(u, v, n, z, 1.0)
    assert z / n == pytest.approx(u / best ** (1 + v))  # Markov: about z records lie beyond it
    total = minimize(lambda t: u * t[0] ** -v + z * t[0] / n, [best]).fun
    assert u * best**-v + z * best / n < 1.4 * total


def test_the_bias_of_clipping_is_bounded_and_attained():
    v, u, t = 0.5, 2.0, 7.0
    x = t * (1 + v) / v  # two-point law with all of its moment at the worst place
    share = u / x ** (1 + v)
    assert share * (x - t) == pytest.approx(known_bias(u, v, t, zero=False))
    assert known_bias(u, v, t, zero=True) == pytest.approx(u * t**-v)


def test_a_tail_is_read_up_to_the_last_octave_above_the_noise_and_continued():
    x = (1 - np.random.default_rng(0).random(100_000)) ** (-1 / 1.5)  # Pareto of index 1.5
    tail = Tail.read(counts_of(x[:, None])[0], noise=20.0, index=1.5)
    assert tail.beyond == pytest.approx((x > tail.edge).sum(), rel=0.3)
    cut = tail.threshold(4.0)
    assert 1 <= (x > cut).sum() <= 16
    shown = np.mean(np.minimum(x, cut))
    assert 0.5 < tail.bias(cut, x.size) / (3.0 - shown) < 2.0
    light = Tail.read(np.where(EDGES == 2.0, 1e5, 0.0), noise=20.0, index=1.5)
    assert light.beyond < 100  # the empty octaves after it show that little can be there
    assert tail.moment(cut, x.size, 2) >= np.mean(np.minimum(x, cut) ** 2)


def test_a_tail_of_noise_alone_still_gives_a_finite_threshold():
    counts = np.random.default_rng(0).normal(size=EDGES.size) * 50
    assert 0 < Tail.read(counts, 50.0, 2.0).threshold(100.0) < np.inf


# ----------------------------------------------------------------------------------------------- mean


def test_without_noise_the_truncated_mean_is_the_mean():
    x = np.random.default_rng(1).lognormal(sigma=2, size=(500, 2))
    solver = RobustMean(1.0, None, np.zeros(2))
    got = run(solver, Sample(500, 2, AR), x, np.zeros(500), 0.0)
    np.testing.assert_allclose(got.value, x.mean(axis=0))


def test_a_learned_centre_is_a_rough_median_and_zero_where_records_are_few():
    x = 1e5 + np.random.default_rng(1).standard_t(3, size=(8000, 2)) * [1.0, 10.0]
    solver = RobustMean(1.0, None, None)
    found = run(solver, Sample(8000, 2, AR), x, np.zeros(8000), 4.0)
    assert (found.threshold < 3e4).all()
    few = run(solver, Sample(40, 2, AR), x[:40], np.zeros(40), 0.2)
    assert (few.threshold > 1e5).all()


def test_the_median_of_means_is_the_median_of_block_means():
    x = np.random.default_rng(1).normal(size=(60, 2))
    solver = RobustMean(1.0, None, np.zeros(2), Truncation(), 5)
    got = run(solver, Sample(60, 2, AR), x, np.zeros(60), 0.0)
    np.testing.assert_allclose(got.value, np.median(x.reshape(5, 12, 2).mean(axis=1), axis=0))


@pytest.mark.statistical
@pytest.mark.parametrize("blocks", [1, 9])
def test_the_noise_of_a_mean_is_what_is_declared(blocks):
    n, cut = 90, 0.3
    x, task = np.full((n, 2), 5.0), Sample(n, 2, RO)
    solver = RobustMean(1.0, None, np.zeros(2), Truncation(), blocks, fixed=cut)
    declared = 1.7 * 2 * math.sqrt(2) * cut * blocks / n
    draws = np.array(
        [run(solver, task, x, np.zeros(n), 1.7, seed).value - cut for seed in range(600)]
    ).ravel()
    assert run(solver, task, x, np.zeros(n), 1.7).noise == pytest.approx(declared)
    square = (draws**2).sum() / declared**2  # chi-square of 1200, within 5 deviations
    wide = 5 * math.sqrt(2 * draws.size)
    assert abs(square - draws.size) < wide
    assert all(abs(square * f**2 - draws.size) > wide for f in (2 / 3, 3 / 2))


def test_levels_that_disagree_are_made_consistent_and_sum_to_the_public_count():
    rng, depth = np.random.default_rng(0), 6
    leaves = rng.poisson(20, 2**depth).astype(float)
    levels = [leaves]
    while levels[0].size > 2:
        levels.insert(0, levels[0].reshape(-1, 2).sum(axis=1))
    exact = np.concatenate(levels)
    np.testing.assert_allclose(reconcile_levels(exact, depth, leaves.sum()), leaves)
    noisy = exact + 10 * rng.normal(size=exact.size)
    better = reconcile_levels(noisy, depth, leaves.sum())
    assert better.sum() == pytest.approx(leaves.sum())
    ours, theirs = (np.cumsum(c)[:-1] - np.cumsum(leaves)[:-1] for c in (better, noisy[-(2**depth) :]))
    assert np.std(ours) < 0.6 * np.std(theirs)


# ------------------------------------------------------------------------------------------- learners


def regression(n=4000, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X, w = rng.standard_t(3, size=(n, d)), np.zeros(d)
    w[:3] = [2.0, -1.0, 0.5]
    return X, X @ w + rng.standard_t(3, size=n), w


@pytest.mark.parametrize("average", ["tail", "last", "all"])
@pytest.mark.parametrize("columns", [True, False])
def test_without_noise_the_learner_finds_the_least_squares_solution(average, columns):
    X, y, _ = regression()
    X = X * np.array([1, 10, 0.1, 1, 1, 1]) if columns else X
    solver = ProjectedGradient(400, Scaling(columns=columns), average)
    got = run(solver, problem(), X, y, 0.0)
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    size = np.sqrt(np.mean((X @ (got - best)) ** 2))
    assert size < (0.6 if average == "all" else 0.1)


@pytest.mark.parametrize("selection", ["gumbel", "peeling"])
def test_without_noise_the_sparse_learner_finds_the_support(selection):
    X, y, w = regression()
    X = np.hstack([X, np.random.default_rng(1).standard_t(3, size=(4000, 10))])
    solver = HeavyTailedSparse(3, 60, Scaling(), selection=selection)
    got = run(solver, problem(d=16, intercept=1.0), X, y + 0.7, 0.0)
    assert set(np.flatnonzero(got[:-1])) == {0, 1, 2}
    np.testing.assert_allclose(got[:3], w[:3], atol=0.15)
    assert got[-1] == pytest.approx(0.7, abs=0.15)


def test_the_sparse_learner_gives_every_class_its_intercept_and_s_coefficients_in_all():
    X, y, _ = regression(1000)
    task = problem("multinomial", n=1000, outputs=3, intercept=1.0)
    classes = np.digitize(y, [-1, 1]).astype(float)
    got = run(HeavyTailedSparse(4, 5, Scaling(step=0.2)), task, X, classes, 0.5)
    assert got.shape == (3, 7)
    assert np.count_nonzero(got[:, :-1]) == 4
    assert (got[:, -1] != 0).all()


def test_a_chunk_is_used_once_by_the_split_learner():
    X, y, _ = regression(1000)
    task, steps = problem(n=1000), 5
    solver = ProjectedGradient(steps, Scaling(fixed=2.0, step=0.05), "last", split=True)
    sampling = solver.plan(task).releases["gradient"].sampling
    rows = np.concatenate([sampling.draw(1000, t, None) for t in range(steps)])
    np.testing.assert_array_equal(np.sort(rows), np.arange(1000))
    assert np.isfinite(run(solver, task, X, y, 1.0)).all()


def test_a_row_of_the_table_makes_the_sparse_solver():
    task = problem()
    solver = make_solver("heavy-tailed", task, Options(n_nonzero_coefs=2, clip_norm=0.4))
    assert isinstance(solver, HeavyTailedSparse)
    assert "heavy-tailed" in SOLVERS["linear"]
    assert solver.scaling.fixed == 0.4
    assert solver.sparsity == 2


def test_learned_scales_are_the_same_up_to_the_units_of_the_data():
    X, y, _ = regression()
    units = np.array([4.0, 1 / 16, 1, 1, 8, 1])  # powers of two keep the octaves
    solver, task = ProjectedGradient(20, Scaling(columns=True)), problem()
    ours, theirs = run(solver, task, X, y, 3.0), run(solver, task, X * units, y, 3.0)
    np.testing.assert_allclose(ours, theirs * units, atol=5e-3)  # the noise of a bin stays with its octave


def test_the_plan_of_a_learner_is_gaussian_and_so_accounted_exactly():
    plan = calibrate(ProjectedGradient(20, Scaling(columns=True)).plan(problem()), 1.0, DELTA)
    leaves = [e.event if isinstance(e, dp.SelfComposedDpEvent) else e for e in plan.event().events]
    assert all(isinstance(e, dp.GaussianDpEvent) for e in leaves)
    assert 0.99 < certify(plan.event(), DELTA, AR).epsilon <= 1.0


def test_a_histogram_gets_a_fifth_of_the_budget_and_a_median_a_tenth():
    solver = RobustMean(1.0, None, np.zeros(1))
    plan = solver.plan(Sample(100, 1, AR)).at(1.0)
    costs = {name: r.mechanism.rho() / r.mechanism.multiplier**2 for name, r in plan.releases.items()}
    assert costs["scales"] / sum(costs.values()) == pytest.approx(0.2)
    halvings = location_release(Sample(100, 1, AR))
    paid = halvings.times / halvings.mechanism.relative**2
    assert paid / (1.0 + paid) == pytest.approx(0.1)


def test_a_query_of_another_norm_is_refused_by_the_kernel():
    with pytest.raises(ValueError, match="sensitivity"):
        Plan({"a": Release(RobustSum(2), GumbelTopK())}, AR, 10)


def test_an_intercept_far_from_zero_does_not_round_the_values_of_a_step():
    """One record moved them by 1.0004 sensitivities, and by none, as the last bits of the intercept fell."""
    X, y = np.ones((7, 2)), np.full(7, 3.0)
    query = GradientStep(LOSSES["squared"], 1e3, norm=Norm.L2)
    step = Step(GradientPoint(np.array([0.0, 1e12]), 0.1, np.ones(2)), 0.1, np.arange(2))
    all_of_them, without = (
        query.evaluate(LocalExecutor(X[k:], y[k:], None).records(None), step) for k in (0, 1)
    )
    moved = np.linalg.norm(all_of_them - without) / query.sensitivity(Relation.ADD_REMOVE, step)
    assert moved == pytest.approx(1.0, abs=1e-9)
