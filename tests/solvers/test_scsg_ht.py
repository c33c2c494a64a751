"""Variance-reduced hard thresholding: what is planned, what is asked, what comes out."""

import numpy as np
import pytest
from scipy import sparse, stats
from tests.solvers.plain import gradient, made_data, made_problem, run, top

from sordino.accounting import calibrate, certify
from sordino.errors import InvalidInputError
from sordino.kernel import Full, Poisson, Relation
from sordino.solvers import Options, make_solver
from sordino.solvers.sparse import ScsgHt, SvrgHt


def configured(name, problem, **extra):
    return make_solver(name, problem, Options(4, batch_size=20, extra=extra))


def test_without_noise_svrg_on_all_records_is_plain_hard_thresholding():
    problem = made_problem(intercept=0.7, ridge=0.1)
    x, y = made_data(problem)
    solver = SvrgHt(4, 0.6, 9.0, 18.0, problem.row_bound, Full(), Full(), (3, 4))
    w = np.zeros(problem.columns)
    for _ in range(7):
        w = top(w - 0.6 * gradient(problem, x, y, w), 4, 1)
    np.testing.assert_allclose(run(solver, problem, x, y)[-1], w, rtol=1e-10)


@pytest.mark.parametrize("keep", [None, 30])
def test_dense_and_sparse_rows_give_the_same_iterates(keep):
    problem = made_problem(d=700, ridge=0.1, intercept=0.4)
    rng = np.random.default_rng(1)
    x = sparse.random_array((120, 700), density=0.002, random_state=rng, format="csr")
    y = rng.choice([-1.0, 1.0], 120)
    solver = ScsgHt(6, 0.6, 0.4, 0.8, problem.row_bound, Full(), Full(), (3, 3), keep)
    ours, dense = run(solver, problem, x, y), run(solver, problem, x.toarray(), y)
    np.testing.assert_allclose(ours, dense, atol=1e-12)
    assert np.count_nonzero(ours[-1]) > 0


def test_the_plan_counts_a_snapshot_per_epoch_and_no_first_correction():
    problem = made_problem(n=1000)
    solver = ScsgHt(4, 0.6, 0.5, 1.0, 1.5, Poisson(0.1), Poisson(0.02), (5, 0, 1, 3))
    releases = solver.plan(problem).releases
    assert releases["snapshot"].times == 3
    assert releases["correction"].times == 4 + 0 + 2
    only = ScsgHt(4, 0.6, 0.5, 1.0, 1.5, Poisson(0.1), Poisson(0.02), (1, 1))
    assert set(only.plan(problem).releases) == {"snapshot"}


def test_vector_s4_is_what_the_plan_of_the_paper_sizes_needs_at_most():
    """One correction per epoch is free, so a little less noise than S4's 1.1945 does."""
    problem = made_problem(n=20242, d=100)
    solver = make_solver(
        "scsg-ht", problem, Options(10, batch_size=20, extra={"snapshot_batch": 2024, "epochs": 10})
    )
    assert solver.lengths == (101,) * 10
    plan = calibrate(solver.plan(problem), 2.0, 1e-5)
    scale = plan.releases["correction"].mechanism.multiplier
    assert 0.99 * 1.1945 < scale < 1.1945
    assert plan.releases["snapshot"].mechanism.multiplier == scale


def test_the_bound_of_a_correction_shrinks_with_the_step_and_never_exceeds_the_clip():
    problem = made_problem()
    solver = configured("svrg-ht", problem, difference_clip=0.9, epochs=10)
    query = solver.plan(problem).releases["correction"].query
    a = np.zeros(problem.columns)
    near, far = a + 1e-3, a + 1e3
    expected = 0.25 * 1.5**2 * 1e-3 * np.sqrt(problem.columns)
    assert query.contribution((near, a)) == pytest.approx(expected)
    assert query.contribution((far, a)) == pytest.approx(0.9)
    constant = configured("svrg-ht", problem, difference_clip=0.9, shrinking_bound=False, epochs=10)
    assert constant.plan(problem).releases["correction"].query.contribution((near, a)) == pytest.approx(0.9)


def test_option_one_draws_public_lengths_of_the_geometric_law():
    problem = made_problem(n=4000)
    options = Options(4, batch_size=40, extra={"option": "I", "epochs": 3000, "snapshot_batch": 400})
    drawn = [
        make_solver("scsg-ht", problem, Options(**{**vars(options), "random_state": s})) for s in (3, 3, 4)
    ]
    assert drawn[0].lengths == drawn[1].lengths != drawn[2].lengths
    lengths = np.array(drawn[0].lengths)
    assert 0 in lengths
    assert lengths.max() <= 200
    p_value = stats.chisquare(*_counts(lengths, 1 / 11)).pvalue
    assert p_value > 1e-4
    assert stats.chisquare(*_counts(lengths, 1 / 11 * 1.5)).pvalue < 1e-4
    assert stats.chisquare(*_counts(lengths, 1 / 11 / 1.5)).pvalue < 1e-4


def _counts(lengths, rate):
    edges = np.arange(0, 40, 4)
    seen = [((lengths >= a) & (lengths < a + 4)).sum() for a in edges] + [(lengths >= 40).sum()]
    law = stats.geom(rate, loc=-1)
    expected = [law.cdf(a + 3) - law.cdf(a - 1) for a in edges] + [law.sf(39)]
    return np.array(seen), np.array(expected) * len(lengths)


def test_lengths_are_cut_at_max_iter_and_never_all_zero():
    problem = made_problem(n=1000)
    options = {"epochs": 10, "snapshot_batch": 100, "option": "II"}
    solver = make_solver("scsg-ht", problem, Options(4, max_iter=12, batch_size=20, extra=options))
    assert solver.lengths == (5, 5, 2, 0, 0, 0, 0, 0, 0, 0)
    tiny = {"epochs": 1, "snapshot_batch": 1, "option": "I"}
    for seed in range(5):
        options = Options(4, batch_size=900, extra=tiny, random_state=seed)
        assert sum(make_solver("scsg-ht", problem, options).lengths) >= 1


@pytest.mark.statistical
def test_the_lazy_step_with_a_sparse_snapshot_has_the_law_of_the_dense_one():
    problem = made_problem(n=24, d=400, intercept=0.4)
    rng = np.random.default_rng(1)
    x = sparse.random_array((24, 400), density=0.008, random_state=rng, format="csr")
    y = rng.choice([-1.0, 1.0], 24)
    solver = ScsgHt(5, 0.6, 0.4, 0.8, problem.row_bound, Poisson(0.5), Poisson(0.4), (3,), 6)
    lazy = np.array([_last(solver, problem, x, y, s) for s in range(700)])
    dense = np.array([_last(solver, problem, x.toarray(), y, 5000 + s) for s in range(700)])
    for statistic in (lambda w: np.sum(w**2, axis=1), lambda w: np.abs(w[:, :400]).max(axis=1)):
        assert stats.ks_2samp(statistic(lazy), statistic(dense)).pvalue > 1e-4
        assert stats.ks_2samp(1.5 * statistic(lazy), statistic(dense)).pvalue < 1e-4
    both = [(w[:, :400] != 0).sum(axis=0).reshape(8, 50).sum(axis=1) for w in (lazy, dense)]
    assert stats.chi2_contingency(np.array(both)).pvalue > 1e-4


def _last(solver, problem, x, y, seed):
    return run(solver, problem, x, y, scale=1.3, seed=seed)[-1]


@pytest.mark.parametrize(
    "extra",
    [
        {"snapshot_batch": 121},
        {"snapshot_batch": 0},
        {"option": "III"},
        {"snapshot_keep": 0},
        {"difference_clip": -1},
        {"epochs": 1.5},
        {"snapshot_noise": 0},
        {"batches": 3},
    ],
)
def test_an_option_out_of_bounds_is_refused(extra):
    with pytest.raises(InvalidInputError):
        configured("scsg-ht", made_problem(), **extra)


def test_less_noise_on_the_snapshot_is_accounted_for():
    problem = made_problem(n=1000)
    plan = configured("scsg-ht", problem, snapshot_noise=0.5).plan(problem).at(2.0)
    assert plan.releases["snapshot"].mechanism.multiplier == 1.0
    even = configured("scsg-ht", problem).plan(problem).at(2.0)
    loss = [certify(p.event(), 1e-5, Relation.ADD_REMOVE).epsilon for p in (plan, even)]
    assert loss[0] > loss[1]


@pytest.mark.parametrize("name", ["scsg-ht", "svrg-ht"])
def test_an_open_step_thresholds_late_and_a_given_one_at_once(name):
    problem = made_problem()
    late, asked, fixed = (
        make_solver(name, problem, Options(3, **settings))
        for settings in ({}, {"extra": {"threshold_after": 0.7}}, {"step_size": 1.0})
    )
    assert (late.threshold_after, asked.threshold_after, fixed.threshold_after) == (0.5, 0.7, 0.0)


def test_an_epoch_is_whole_where_its_corrections_bear_their_noise_and_one_step_elsewhere():
    wide, many = made_problem(n=2000), made_problem(n=200_000)
    assert make_solver("svrg-ht", wide, Options(4)).lengths == (1,) * 50
    assert make_solver("svrg-ht", many, Options(4)).lengths == (10,) * 5
