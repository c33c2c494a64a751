"""Solvers of private PCA: what they plan, how they agree without noise, what their spectra mean."""

import math

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.sparse.linalg import svds

from sordino.accounting import certify, gaussian_multiplier
from sordino.errors import InvalidInputError, PlanError
from sordino.execute import LocalExecutor
from sordino.execute.local import StreamExecutor
from sordino.kernel import Curator, Full, NoiseSource, Plan, Poisson, Relation, Release
from sordino.problems.covariance import GramMatrix, PcaProblem
from sordino.solvers import SOLVERS, Options, make_solver
from sordino.solvers.pca.methods import Gauss, Pooled, Power, Products, Spca, StreamGauss, Vrpca
from sordino.solvers.pca.spectrum import (
    Principal,
    automatic,
    captured_variance,
    choose_count,
    decompose,
    locate,
    location_from,
    polar,
    strength,
)

ROWS = SOLVERS["pca"]
SOUND = [name for name in ROWS if name != "auto"]


def spiked(n=400, d=8, seed=0, shift=0.5):
    public = np.random.default_rng(seed)
    scales = np.r_[2.0, 1.2, 0.8, np.full(d - 3, 0.1)]
    rows = public.normal(size=(n, d)) * scales + shift
    return rows / (1.01 * np.linalg.norm(rows, axis=1).max())


def problem_of(rows, components=3, **facts):
    n, d = rows.shape
    settings = {
        "relation": Relation.ADD_REMOVE,
        "epsilon": math.inf,
        "delta": 1e-5,
        "random_state": 0,
    } | facts
    return PcaProblem(n, d, components, **settings)


def run(solver, rows, problem, scale=0.0, seed=0):
    executor = LocalExecutor(rows, None, problem.data_norm)
    curator = Curator(executor, solver.plan(problem).at(scale), NoiseSource.seeded_not_private(seed))
    return list(solver.run(curator, problem))


def moment(rows, center):
    rows = rows - rows.mean(axis=0) if center else rows
    return rows.T @ rows / len(rows)


def captured(axes, matrix):
    return np.trace(axes @ matrix @ axes.T) / np.linalg.eigvalsh(matrix)[-len(axes) :].sum()


# ------------------------------------------------------------------------------------ without noise


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("name", ["gauss", "mod-sulq", "power", "screen"])
def test_without_noise_the_full_solvers_are_plain_pca(name, center):
    rows = spiked()
    problem = problem_of(rows, center=center)
    options = Options(max_iter=30 if "max_iter" in ROWS[name].capabilities.reads else None)
    found = run(make_solver(name, problem, options, "pca"), rows, problem)[-1]
    values, vectors = np.linalg.eigh(moment(rows, center))
    np.testing.assert_allclose(found.variances, values[::-1][:3], rtol=1e-6)
    np.testing.assert_allclose(np.abs(found.axes @ vectors[:, ::-1][:, :3]), np.eye(3), atol=1e-5)
    assert found.total == pytest.approx(values.sum(), rel=1e-6)


def test_without_noise_the_power_method_takes_as_many_steps_as_the_axes_need():
    rows = spiked(n=1000, d=40)
    for epsilon, right in ((math.inf, 1e-6), (1.0, 1.0)):
        problem = problem_of(rows, epsilon=epsilon)
        solver = make_solver("power", problem, Options(extra={"n_oversamples": 2}), "pca")
        found = run(solver, rows, problem)[-1]
        assert 1 - captured(found.axes, moment(rows, True)) < right
    assert (solver.steps, solver.momentum) == (5, 1.0)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(
    "solver", [Spca(3, 60, 400.0, Poisson(1.0)), Vrpca(3, 8, 20, 60.0, Poisson(0.5))], ids=["spca", "vrpca"]
)
def test_without_noise_the_stochastic_solvers_find_the_subspace(solver, center):
    rows = spiked()
    problem = problem_of(rows, center=center)
    found = run(solver, rows, problem)[-1]
    assert captured(found.axes, moment(rows, center)) > 0.999
    np.testing.assert_allclose(found.axes @ found.axes.T, np.eye(3), atol=1e-9)


def test_a_stream_without_noise_is_the_batch():
    rows = spiked(n=400)
    rows[:100] += 0.05  # the chunks have different means
    problem = problem_of(rows)
    solver, executor = StreamGauss(4), StreamExecutor(400)
    curator = Curator(executor, solver.plan(problem).at(0.0), NoiseSource.seeded_not_private(0))
    pooled = Pooled.empty(problem.features)
    for chunk in np.split(rows, [50, 200, 350]):
        executor.feed(LocalExecutor(chunk, None, 1.0))
        pooled = solver.absorb(curator, problem, pooled, len(chunk))
    found = solver.principal(pooled, problem)
    np.testing.assert_allclose(found.variances, np.linalg.eigvalsh(moment(rows, True))[::-1][:3], rtol=1e-6)
    with pytest.raises(PlanError):
        curator.release("moments")


def test_a_stream_answers_no_chunk_twice():
    rows = spiked(n=40)
    problem = problem_of(rows)
    executor = StreamExecutor(40)
    curator = Curator(executor, StreamGauss(2).plan(problem).at(0.0), NoiseSource.seeded_not_private(0))
    executor.feed(LocalExecutor(rows, None, 1.0))
    curator.release("moments")
    with pytest.raises(PlanError, match="cannot answer release number"):
        curator.release("moments")


# ------------------------------------------------------------------------------------------- plans


@pytest.mark.parametrize("relation", list(Relation))
def test_the_plan_of_gauss_spends_15_percent_on_the_mean_and_5_on_the_last_question(relation):
    problem = problem_of(spiked(), relation=relation)
    plan = Gauss().plan(problem).at(1.0)
    mu = {name: 1 / r.mechanism.multiplier**2 for name, r in plan.releases.items()}
    assert mu["moments"] + mu["again"] == pytest.approx(0.15)
    assert mu["gram"] == pytest.approx(0.8)
    assert mu["spectrum"] == pytest.approx(0.05)
    exact = gaussian_multiplier(1.0, 1e-5)
    assert certify(Gauss().plan(problem).at(exact).event(), 1e-5, relation).epsilon == pytest.approx(
        1.0, rel=1e-3
    )


def test_more_steps_of_the_power_method_share_one_budget():
    problem = problem_of(spiked())
    for steps in (1, 7):
        plan = Power(4, steps).plan(problem).at(3.0)
        spent = sum(r.times / r.mechanism.multiplier**2 for r in plan.releases.values())
        assert spent == pytest.approx(1 / 3.0**2)


def test_one_pass_of_oja_costs_one_batch_and_the_mean():
    problem = problem_of(spiked())
    for batches in (1, 8):
        solver = make_solver("oja", problem, Options(max_iter=batches), "pca")
        plan = solver.plan(problem).at(gaussian_multiplier(1.0, 1e-5))
        assert plan.releases["batch"].times == batches
        assert certify(plan.event(), 1e-5, problem.relation).epsilon == pytest.approx(1.0, rel=1e-3)


def test_auto_takes_the_matrix_while_it_fits():
    assert automatic(784) == automatic(3072) == "gauss"
    assert automatic(26_000) == "power"
    assert automatic(26_000, sparse=True) == "screen"
    assert automatic(26_000, sparse=True, noisy=False) == "power"
    assert automatic(784, sparse=True) == "gauss"
    wide = PcaProblem(50, 5000, 2, Relation.ADD_REMOVE, 1.0, 1e-5)
    assert isinstance(make_solver("auto", wide, Options(), "pca"), Power)
    with pytest.raises(InvalidInputError, match="power"):
        make_solver("gauss", wide, Options(), "pca")
    with pytest.raises(InvalidInputError, match="auto"):
        make_solver("magic", wide, Options(), "pca")


# --------------------------------------------------------------------------- measuring from the mean


def test_measuring_from_the_mean_divides_the_noise():
    rows = spiked(n=4000, shift=3.0)
    problem = problem_of(rows)
    plan = Gauss().plan(problem).at(3.0)
    place = locate(Curator(LocalExecutor(rows), plan, NoiseSource.seeded_not_private(0)), problem, 1.0)
    spread = math.sqrt(np.trace(moment(rows, True)))
    assert place.ball.radius == pytest.approx(0.85 * spread, rel=0.1)
    assert GramMatrix(1.0).contribution(place.ball) < 0.3
    np.testing.assert_allclose(place.mean, rows.mean(axis=0), atol=0.1)


def test_a_mean_that_drowns_in_noise_is_shrunk_to_zero():
    problem = problem_of(spiked())
    noise = NoiseSource.seeded_not_private(1).normal(9) * 0.01
    place = location_from(problem, np.r_[noise[:8], 0.1], std=0.02, level=0.1)
    assert not place.mean.any()
    assert place.ball.radius < 1.0


def test_without_noise_no_row_is_clipped():
    rows = spiked()
    place = locate(
        Curator(LocalExecutor(rows), Gauss().plan(problem_of(rows)).at(0.0), NoiseSource.from_os()),
        problem_of(rows),
        0.0,
    )
    assert place.ball.radius >= np.linalg.norm(rows - place.mean, axis=1).max()


def test_the_default_is_far_better_than_the_textbook_when_the_mean_is_large():
    rows = spiked(n=2000, d=30, shift=2.0)
    problem, matrix = problem_of(rows), moment(rows, True)
    textbook = Plan({"gram": Release(GramMatrix(1.0), problem.symmetric(), Full())}, problem.relation, 2000)
    ours, theirs = [], []
    for seed in range(5):
        ours.append(captured(run(Gauss(), rows, problem, 7.0, seed)[-1].axes, matrix))
        curator = Curator(LocalExecutor(rows), textbook.at(7.0), NoiseSource.seeded_not_private(seed))
        noisy = curator.release("gram") - np.outer(rows.mean(axis=0), rows.mean(axis=0))  # a free mean, even
        theirs.append(captured(decompose(noisy, 3)[1], matrix))
    assert np.mean(ours) > np.mean(theirs) + 0.1


def test_averaging_released_products_beats_the_plain_power_method():
    rows = spiked(n=2000, d=30)
    problem, matrix = problem_of(rows), moment(rows, True)
    score = {
        momentum: np.mean(
            [captured(run(Power(8, 8, momentum), rows, problem, 7.0, s)[-1].axes, matrix) for s in range(6)]
        )
        for momentum in (0.0, 1.0)
    }
    assert score[1.0] > score[0.0] + 0.02


def test_screening_finds_the_columns_that_matter_where_nothing_else_learns():
    public = np.random.default_rng(0)
    n, d, busy = 3000, 5000, public.permutation(5000)[:6]
    rows = sparse.lil_matrix((n, d))
    for i in range(n):
        rows[i, busy[(np.arange(3) + 3 * (i % 2))]] = 0.5 + 0.1 * public.random(3)
        rows[i, public.integers(0, d, 5)] = 0.1
    rows = rows.tocsr()
    dense = rows.toarray() - np.asarray(rows.mean(axis=0))
    problem = problem_of(rows, components=1, sparse=True, epsilon=1.0)
    best = svds(dense, k=1, return_singular_vectors=False, random_state=0)[0] ** 2
    scores = {}
    for name in ("auto", "power"):
        solver = make_solver(name, problem, Options(), "pca")
        axis = run(solver, rows, problem, scale=15.0)[-1].axes[0]
        scores[name] = np.square(dense @ axis).sum() / best
    assert scores["auto"] > 0.9
    assert scores["power"] < 0.5


def test_screening_keeps_as_many_columns_as_axes_need():
    rows = spiked(n=50)
    problem = problem_of(rows)
    found = run(make_solver("screen", problem, Options(), "pca"), rows, problem, scale=1e4)[-1]
    assert found.axes.shape == (3, 8)
    np.testing.assert_allclose(found.axes @ found.axes.T, np.eye(3), atol=1e-9)
    assert (found.axes.any(axis=0)).sum() == 6


# ----------------------------------------------------------------------------------------- spectra


@pytest.mark.statistical
def test_the_edge_and_the_captured_variance_are_those_of_a_spiked_matrix():
    d, std, spike = 300, 0.05, 2.0
    edges, values, kept = [], [], []
    for seed in range(12):
        noise = NoiseSource.seeded_not_private(seed)
        mechanism = PcaProblem(10, d, 1, Relation.ADD_REMOVE, 1.0, 1e-5).symmetric().at(std)
        empty = mechanism.privatise(np.zeros((d, d)), 1.0, noise)
        edges.append(np.linalg.eigvalsh(empty)[-1])
        signal = np.zeros((d, d))
        signal[0, 0] = spike
        noisy, axes = decompose(mechanism.privatise(signal, 1.0, noise), 1)
        values.append(captured_variance(noisy, std, 1)[0][0])
        kept.append(spike * axes[0, 0] ** 2)
    edge = strength(std, d)
    assert np.mean(edges) == pytest.approx(edge, rel=0.05)
    assert np.mean(edges) != pytest.approx(1.5 * edge, rel=0.05)
    assert stats.ttest_rel(values, kept).pvalue > 1e-4
    assert np.mean(values) == pytest.approx(np.mean(kept), rel=0.05)


def some(variances, noisy=None, edge=0.01, total=None, doubt=None):
    values = np.asarray(variances, float)
    total = values.sum() if total is None else total
    noisy = values if noisy is None else np.asarray(noisy, float)
    doubt = np.zeros(values.size) if doubt is None else np.asarray(doubt, float)
    return Principal(np.eye(values.size), values, noisy, 0.001, doubt, edge, total, np.zeros(values.size))


def test_a_share_keeps_the_fewest_axes_that_reach_it():
    found = some([4.0, 3.0, 2.0, 1.0])
    assert [choose_count(share, found, 4) for share in (0.1, 0.4, 0.41, 0.7, 0.9, 0.99)] == [1, 1, 2, 2, 3, 4]


def test_a_share_is_reached_within_half_a_deviation_and_without_axes_that_drown():
    assert choose_count(0.9, some([5.0, 3.9, 0.6, 0.5]), 4) == 3
    assert choose_count(0.9, some([5.0, 3.9, 0.6, 0.5], doubt=[0.1, 0.2, 0.0, 0.0]), 4) == 2
    assert choose_count(0.9, some([5.0, 3.0, 0.6, 0.5], edge=1.0, total=20.0), 4) == 2
    assert choose_count(0.9, some([0.5, 0.4], edge=1.0, total=20.0), 2) == 1


def test_a_few_directions_leave_the_trace_of_few_axes_in_more_doubt_than_that_of_many():
    d, p = 60, 20
    problem = PcaProblem(1000, d, 2, Relation.ADD_REMOVE, 1.0, 1e-5, random_state=0)
    place = location_from(problem, np.r_[np.zeros(d), 0.5], std=1e-9, level=0.1)
    basis = problem.start(p)
    few = np.r_[0.7 * p / d / np.square(basis[0]).sum(), np.zeros(d - 1)]  # the directions tell .7 of it too
    many, few = (
        Products(place, problem).first(basis, values[:, None] * basis, 1e-9).moved
        for values in (np.full(d, 0.7 / d), few)
    )
    assert few > 1.15 * many


@pytest.mark.statistical
def test_what_drowned_axes_capture_is_not_overstated():
    d, std = 60, 0.1
    signal = np.diag(np.r_[0.3, np.full(d - 1, 0.005)])
    stated, true = [], []
    for seed in range(30):
        noise = NoiseSource.seeded_not_private(seed)
        mechanism = PcaProblem(10, d, 1, Relation.ADD_REMOVE, 1.0, 1e-5).symmetric().at(std)
        noisy, axes = decompose(mechanism.privatise(signal, 1.0, noise), d)
        stated.append(captured_variance(noisy, std, d)[0][:10].sum())
        true.append(np.einsum("ij,jk,ik->", axes[:10], signal, axes[:10]))
    assert np.mean(stated) == pytest.approx(np.mean(true), abs=0.5)
    assert np.mean(noisy[:10].sum()) > 5.0  # which is what the noise shows, for .3 at most


def test_the_gap_ignores_what_is_below_the_noise():
    found = some([5.0, 4.8, 1.0, 0.9, 0.02], edge=0.5)
    assert choose_count("gap", found, 5) == 2
    assert choose_count("gap", some([0.2, 0.1], edge=0.5), 2) == 1


def test_the_broken_stick_keeps_what_chance_would_not_break_off():
    assert choose_count("broken-stick", some([0.6, 0.3, 0.05, 0.05]), 4) == 2
    assert choose_count("broken-stick", some([0.25] * 4), 4) == 1


def test_the_polar_factor_is_the_nearest_orthonormal_block():
    block = np.random.default_rng(0).normal(size=(7, 3))
    near = polar(block)
    np.testing.assert_allclose(near.T @ near, np.eye(3), atol=1e-12)
    other = np.linalg.qr(block)[0]
    assert np.linalg.norm(block - near) <= np.linalg.norm(block - other)


PCA_VALUES = {"max_iter": 3, "batch_size": 50, "step_size": 0.2}
PCA_OWN = {"n_oversamples": 2, "momentum": 0.3}


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("option", sorted(PCA_VALUES | PCA_OWN))
def test_a_pca_solver_reads_what_it_declares_and_refuses_the_rest(name, option):
    problem = PcaProblem(2000, 30, 4, Relation.ADD_REMOVE, 1.0, 1e-5, random_state=0)
    own = option in PCA_OWN
    asked = Options(extra={option: PCA_OWN[option]}) if own else Options(**{option: PCA_VALUES[option]})
    able = ROWS[name].capabilities
    if option in (*able.reads, *able.options):
        assert make_solver(name, problem, asked, "pca") != make_solver(name, problem, Options(), "pca")
        return
    with pytest.raises(InvalidInputError, match=f"{option}.* It is read by"):
        make_solver(name, problem, asked, "pca")
