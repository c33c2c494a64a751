"""noise="paper" runs the published formula and reports the epsilon it really gives."""

import numpy as np
import pytest
from tests.solvers.plain import made_problem

from sordino import SparseLinearRegression, SparseLogisticRegression
from sordino.accounting import gaussian_multiplier
from sordino.errors import InvalidInputError, NotPrivateWarning
from sordino.execute import LocalExecutor
from sordino.kernel import NoiseSource
from sordino.literature.linear import (
    PrintedResponses,
    SparseTeacher,
    feature_spread,
    published_solver,
    response_noise,
)
from sordino.runs import Ask
from sordino.solvers import Options, make_solver


def data(n=400, d=12):
    public = np.random.default_rng(0)
    x = public.normal(size=(n, d)) / np.sqrt(d)
    return x, (x[:, 0] > x[:, 1]).astype(int)


@pytest.mark.filterwarnings("ignore:delta")
@pytest.mark.parametrize(("relation", "truth"), [("replace-one", 12.6596), ("add-remove", 4.6840)])
def test_vector_i2_through_the_estimator(relation, truth):
    model = SparseLogisticRegression(
        10.0, 0.01, n_nonzero_coefs=4, solver="ight", relation=relation, noise="paper", max_iter=7
    )
    with pytest.warns(NotPrivateWarning, match="claims epsilon = 10"):
        model.fit(*data())
    assert model.privacy_.epsilon == pytest.approx(truth, rel=1e-3)
    assert model.privacy_.paper_claim.epsilon == 10.0


@pytest.mark.parametrize(
    ("solver", "options"),
    [
        ("sgd-ht", {"epochs": 2}),
        ("scsg-ht", {"epochs": 2}),
        ("svrg-ht", {"epochs": 2}),
        ("frank-wolfe", {"selection": "laplace"}),
        ("peeled", {"selection": "laplace", "split": True}),
        ("transfer", {"mode": "R", "public_features": "synthetic", "public_rows": 30}),
    ],
)
def test_every_published_solver_reports_its_claim_beside_the_truth(solver, options):
    model = SparseLogisticRegression(
        2.0,
        1e-5,
        n_nonzero_coefs=4,
        solver=solver,
        noise="paper",
        fit_intercept=False,
        solver_options=options,
        random_state=0,
    )
    with pytest.warns(NotPrivateWarning, match="what it certifies"):
        model.fit(*data())
    assert model.privacy_.paper_claim.epsilon == 2.0
    assert model.privacy_.epsilon != pytest.approx(2.0, rel=1e-3)
    assert 0 < np.count_nonzero(model.coef_) <= 4


def multipliers(name, options, epsilon=2.0, relation="add-remove", n=20242, noise="paper"):
    problem = made_problem(n=n, d=60, relation=relation, data_norm=1.0)
    solver = make_solver(name, problem, options)
    return published_solver(noise, name, solver, problem, Ask(epsilon, 1e-5))[1].multipliers


def test_vectors_s2_and_s5_are_the_multipliers_of_the_printed_noise():
    sgd = multipliers("sgd-ht", Options(10, max_iter=4048, batch_size=100))
    assert sgd["gradient"] == pytest.approx(4.9723, rel=1e-4)
    halved = multipliers("sgd-ht", Options(10, max_iter=4048, batch_size=100), relation="replace-one")
    assert halved["gradient"] == pytest.approx(4.9723 / 2, rel=1e-4)
    scsg = multipliers("scsg-ht", Options(10, batch_size=20, extra={"snapshot_batch": 2024, "epochs": 10}))
    assert scsg["snapshot"] == pytest.approx(142.327, rel=1e-3)
    assert scsg["correction"] == pytest.approx(0.3516, rel=1e-3)


def test_the_published_noise_would_do_for_the_certified_teacher_on_short_rows():
    """It is the sparse teacher that breaks DPSL-KT: on rows of norm 1 the printed noise is large enough."""
    extra = {"mode": "R", "public_features": "synthetic", "public_rows": 800, "strength": 0.1}
    noise = multipliers("transfer", Options(10, extra=extra, random_state=0), 0.8, "replace-one", 800)
    assert noise["teacher"] > gaussian_multiplier(0.8, 1e-5)


@pytest.mark.parametrize(
    ("solver", "changes"),
    [
        ("two-stage", {}),
        ("coordinate", {}),
        ("frank-wolfe", {}),
        ("peeled", {"solver_options": {"selection": "laplace"}}),
        ("transfer", {}),
        ("ight", {"epsilon": float("inf")}),
    ],
)
def test_a_formula_that_does_not_exist_is_refused(solver, changes):
    model = SparseLinearRegression(
        2.0, 1e-5, n_nonzero_coefs=4, solver=solver, noise="paper", fit_intercept=False
    )
    with pytest.raises(InvalidInputError):
        model.set_params(**changes).fit(*data())


@pytest.mark.parametrize("options", [{"momentun": "none"}, {1: 2}, ["momentum"], "momentum"])
def test_solver_options_are_checked(options):
    with pytest.raises(InvalidInputError, match="solver_options"):
        SparseLogisticRegression(solver_options=options).fit(*data())


def test_option_one_pays_for_its_drawn_lengths_as_printed():
    extra = {"snapshot_batch": 2024, "epochs": 10}
    fixed = multipliers("scsg-ht", Options(10, batch_size=20, extra=extra))
    drawn = multipliers("scsg-ht", Options(10, batch_size=20, extra={**extra, "option": "I"}, random_state=0))
    # C = 18.42, and ln(2/delta) instead of ln(1/delta)
    larger = 18.42 * (1 + np.log(2e5)) / (1 + np.log(1e5))
    for name in ("snapshot", "correction"):
        assert drawn[name] == pytest.approx(fixed[name] * np.sqrt(larger), rel=1e-3)


def test_the_printed_correction_has_a_bound_that_does_not_shrink():
    problem = made_problem(n=400, d=60, data_norm=1.0)
    solver = make_solver(
        "scsg-ht", problem, Options(10, batch_size=20, extra={"snapshot_batch": 100, "epochs": 10})
    )
    printed, _ = published_solver("paper", "scsg-ht", solver, problem, Ask(2.0, 1e-5))
    near = (np.full(60, 1e-6), np.zeros(60))
    bound = printed.plan(problem).releases["correction"].query.contribution(near)
    assert bound == pytest.approx(printed.difference_clip)
    assert solver.plan(problem).releases["correction"].query.contribution(near) < bound / 100


@pytest.mark.filterwarnings("ignore:delta")
def test_corollary_5_8_certifies_what_the_spec_says():
    model = SparseLogisticRegression(
        10.0, 0.01, n_nonzero_coefs=4, solver="ight", relation="replace-one", noise="paper: corollary 5.8"
    )
    with pytest.warns(NotPrivateWarning, match=r"Corollary 5\.8"):
        model.fit(*data())
    assert model.privacy_.epsilon == pytest.approx(64.2, rel=2e-3)


@pytest.mark.filterwarnings("ignore:delta")
def test_corollary_5_6_is_for_the_squared_loss():
    x, y = data()
    options = {"n_nonzero_coefs": 4, "solver": "ight", "noise": "paper: corollary 5.6", "data_norm": 1.0}
    model = SparseLinearRegression(2.0, 0.01, target_bound=1.0, **options)
    with pytest.warns(NotPrivateWarning, match=r"Corollary 5\.6"):
        model.fit(x, y.astype(float))
    # sigma = sqrt(2 T ln(1/delta)) / eps contributions, T times: mu = eps / sqrt(2 ln(1/delta)) in all
    assert model.privacy_.epsilon < 2.0
    with pytest.raises(InvalidInputError, match="squared"):
        SparseLogisticRegression(2.0, 0.01, **options).fit(x, y)


@pytest.mark.parametrize("variant", ["sparse teacher", "sparse eigenvalue"])
def test_the_printed_teacher_is_sparse_and_nothing_is_certified_for_it(variant):
    x, y = data()
    model = SparseLogisticRegression(
        2.0,
        1e-5,
        n_nonzero_coefs=4,
        solver="transfer",
        noise=f"paper: {variant}",
        data_norm=1.0,
        solver_options={"mode": "R", "public_features": "synthetic", "public_rows": 30},
        random_state=0,
    )
    with pytest.warns(NotPrivateWarning, match="DPSL-KT as printed"):
        model.fit(x, y)
    assert model.privacy_.epsilon == np.inf
    assert not model.privacy_.is_private
    assert "DPSL-KT with its sparse teacher" in model.privacy_.unproven
    assert np.count_nonzero(model.coef_) <= 4


def test_the_printed_noise_of_transfer_knows_the_eigenvalue_of_the_features():
    """Sixty features that are all the same have one large eigenvalue, 60 times their mean square."""
    same, apart = (
        np.ones((800, 60)),
        np.sqrt(60.0) * np.eye(60)[np.random.default_rng(1).integers(0, 60, 800)],
    )
    assert feature_spread(same) == pytest.approx(60.0)
    problem, noises = made_problem(n=800, d=60, data_norm=1.0), []
    for features in (same, apart, 3 * same):
        extra = {"mode": "R", "strength": 0.1, "public_features": features}
        solver = make_solver("transfer", problem, Options(10, extra=extra))
        noises.append(response_noise(solver, problem, Ask(2.0, 1e-5)))
    spread = np.sqrt(feature_spread(apart) / feature_spread(same))
    assert noises[1] / noises[0] == pytest.approx(spread)
    assert noises[2] / noises[0] == pytest.approx(3.0)


def test_the_printed_noise_of_transfer_is_that_of_the_largest_entry_of_a_gradient_at_the_teacher():
    public = np.random.default_rng(2)
    x, y = public.uniform(-0.4, 0.4, (50, 6)), public.choice([-1.0, 1.0], 50)
    problem = made_problem(n=50, d=6, data_norm=1.0)
    extra = {"mode": "R", "strength": 0.1, "public_features": x}
    teacher = SparseTeacher.of(make_solver("transfer", problem, Options(2, extra=extra)), problem, 0.1)
    found = teacher.responses.evaluate(LocalExecutor(x, y).records(None))
    slopes = np.abs(problem.loss.residual(found.margins, y))
    assert found.peak == pytest.approx(float((slopes * np.abs(x).max(axis=1)).max()), rel=1e-6)
    noisy = PrintedResponses(2.0).privatise(found, 1.0, NoiseSource.seeded_not_private(0))
    assert np.std(noisy - found.margins) == pytest.approx(2 * found.peak, rel=0.4)


def test_the_spread_of_few_rows_with_many_columns_is_that_of_their_law():
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (200, 400))
    assert np.linalg.norm(rows, 2) ** 2 / 200 > 1.5
    assert feature_spread(rows) == pytest.approx(1 / 3, rel=0.3)


def test_a_variant_that_does_not_exist_is_refused_with_those_that_do():
    model = SparseLogisticRegression(1.0, solver="ight", noise="paper: corollary 9", data_norm=1.0)
    with pytest.raises(InvalidInputError, match=r"corollary 5\.6.*corollary 5\.8"):
        model.fit(*data())
    with pytest.raises(InvalidInputError, match="Expected noise"):
        SparseLogisticRegression(1.0, noise="printed", data_norm=1.0).fit(*data())


def paper(solver, noise, steps=30, relation="replace-one", **options):
    """Return the printed form of a solver at a claimed epsilon of 2, and its noise."""
    problem = made_problem(relation=relation)
    made = make_solver(solver, problem, Options(max_iter=steps, **options))
    return problem, made, *published_solver(noise, solver, made, problem, Ask(2.0, 1e-5))


def test_a_random_iterate_carries_the_noise_of_all_steps_and_pays_for_its_own():
    problem, solver, _, full = paper("srm", "paper")
    drawn = [paper("srm", "paper: random output")[2:] for _ in range(20)]
    steps = {made.steps for made, _ in drawn}
    assert len(steps) > 3
    assert max(steps) <= solver.steps
    for made, noise in drawn:
        assert not made.average
        assert noise.multipliers.keys() == made.plan(problem).releases.keys()
        assert all(noise.multipliers[name] == full.multipliers[name] for name in noise.multipliers)
