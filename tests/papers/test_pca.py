"""The published noise of private PCA, and the epsilon it really gives."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp

from sordino import PCA
from sordino.accounting import certify
from sordino.errors import InvalidInputError, NotPrivateWarning, UnsupportedError
from sordino.kernel import Full, Relation, Release
from sordino.literature import formulas
from sordino.literature.pca import EntryLevelProduct, published_solver
from sordino.problems.covariance import GramProduct, PcaProblem
from sordino.runs import Ask, Promise
from sordino.solvers import Options, make_solver

ZO, RO = Relation.ADD_REMOVE, Relation.REPLACE_ONE
N = 32_561


def certified(solver, epsilon, delta=1e-3, relation=ZO, n=N, d=123, k=10, **options):
    """Return the epsilon of the printed noise at these public numbers; no data are touched."""
    problem = PcaProblem(n, d, k, relation, epsilon, delta, center=False, adaptive=False)
    own = {"n_oversamples": options.pop("oversampling")} if "oversampling" in options else {}
    options = Options(**options, extra=own)
    solver, noise = published_solver(solver, problem, options, Ask(epsilon, delta))
    with pytest.warns(NotPrivateWarning, match="certifies"):
        return Promise.made(Ask(epsilon, delta), solver.plan(problem), noise).certificate.epsilon


def test_dp_spca_is_over_noised_at_a_tenth_and_broken_at_one():
    assert certified("spca", 0.1) == pytest.approx(0.0024, rel=0.1)
    assert certified("spca", 1.0) == pytest.approx(100.0, rel=0.02)


def test_dp_vrpca_claims_a_tenth_and_certifies_hundreds():
    assert certified("vrpca", 0.1) == pytest.approx(450, rel=0.02)


def test_the_printed_step_of_dp_vrpca_is_accounted_for_removal_only():
    problem = PcaProblem(N, 9, 2, RO, 0.1, 1e-3, center=False, adaptive=False)
    solver, _ = published_solver("vrpca", problem, Options(), Ask(0.1, 1e-3))
    with pytest.raises(UnsupportedError, match="add-remove"):
        solver.plan(problem)


def test_vector_b5_mod_sulq_is_hundreds_of_times_too_noisy():
    assert formulas.mod_sulq(0.1, 1e-3, features=123) == pytest.approx(6934.15, rel=1e-5)
    assert certified("mod-sulq", 0.1) < 0.001


def test_the_classical_gaussian_is_sound_and_loose():
    assert certified("gauss", 0.1) == pytest.approx(0.037, rel=0.03)
    assert certified("gauss", 0.1, relation=RO) == pytest.approx(0.058, rel=0.03)


def test_private_power_iteration_protects_an_entry_but_not_a_record():
    """At ||V||_max = .05, which d = 400 allows, the entry-level noise for .1 gives a record .247."""
    assert certified("power", 0.1, d=400, oversampling=0) == pytest.approx(0.247, rel=0.01)
    assert certified("power", 0.1, d=25, oversampling=0) == pytest.approx(0.044, rel=0.02)


def test_the_noise_of_private_power_iteration_is_the_printed_one():
    block = np.linalg.qr(np.random.default_rng(0).normal(size=(16, 4)))[0]
    z = math.sqrt(4 * 4 * 5 * math.log(1e3)) / 0.1
    release = Release(EntryLevelProduct(1.3), PcaProblem(9, 16, 4, ZO, 1, 1e-3).gaussian(), Full())
    std = z / math.sqrt(16) * release.sensitivity(ZO, (block, None))
    assert std == pytest.approx(z * np.abs(block).max() * 1.3**2)
    assert release.sensitivity(ZO, (block, None)) > GramProduct(1.3).sensitivity(ZO, (block, None))


def test_the_entry_level_product_declares_at_least_the_true_bound():
    for seed in range(5):
        block = np.linalg.qr(np.random.default_rng(seed).normal(size=(9, 2)))[0]
        assert EntryLevelProduct(1.7).contribution((block, None)) >= GramProduct(1.7).contribution(
            (block, None)
        )


@pytest.mark.parametrize(
    ("delta", "relation", "z"), [(1e-3, ZO, 3.146), (1e-3, RO, 6.101), (1e-6, ZO, 6.437), (1e-6, RO, 12.733)]
)
def test_vector_c1_sound_dp_spca(delta, relation, z):
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(100 / N, dp.GaussianDpEvent(z)), 3256)
    assert certify(event, delta, relation).epsilon == pytest.approx(0.1, rel=5e-3)


def test_vector_c1_comes_from_the_plan():
    problem = PcaProblem(N, 123, 10, ZO, 0.1, 1e-3, adaptive=False)
    solver = make_solver("spca", problem, Options(max_iter=3256, batch_size=100), "pca")
    promise = Promise.made(Ask(0.1, 1e-3), solver.plan(problem))
    plan, certificate = promise.plan, promise.certificate
    assert plan.releases["batch"].mechanism.multiplier == pytest.approx(3.146, rel=5e-3)
    assert 0.099 < certificate.epsilon <= 0.1


@pytest.mark.parametrize(("delta", "expected"), [(1e-3, 0.09926), (1e-6, 0.21815)])
def test_vector_c2_sound_dp_vrpca(delta, expected):
    batches = dp.PoissonSampledDpEvent(100 / N, dp.GaussianDpEvent(8.0))
    event = dp.ComposedDpEvent(
        [dp.SelfComposedDpEvent(dp.GaussianDpEvent(60.0), 10), dp.SelfComposedDpEvent(batches, 3256)]
    )
    assert certify(event, delta, ZO).epsilon == pytest.approx(expected, rel=1e-3)


def test_vector_c3_the_correction_of_dp_vrpca_alone():
    noise = formulas.vrpca(0.1, 1e-3, population=N, steps=N)
    assert noise == pytest.approx(0.1457 / 2, rel=1e-3)
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(1 / N, dp.GaussianDpEvent(noise)), N)
    assert certify(event, 1e-3, ZO).epsilon == pytest.approx(450, rel=0.02)


# -------------------------------------------------------------------------------------- through fit


def rows(n=60, d=5):
    return np.random.default_rng(0).normal(size=(n, d)) / np.sqrt(d)


@pytest.mark.filterwarnings("ignore::sordino.errors.PrivacyWarning")
@pytest.mark.parametrize("solver", ["spca", "vrpca", "power", "mod-sulq", "gauss", "wishart"])
def test_paper_mode_reports_the_claim_beside_what_is_certified(solver):
    model = PCA(2, solver=solver, noise="paper", center=False, epsilon=0.7, delta=1e-3)
    with pytest.warns(NotPrivateWarning, match="certifies"):
        model.fit(rows())
    report = model.privacy_
    assert report.paper_claim.epsilon == 0.7
    assert report.epsilon != 0.7
    assert math.isinf(report.epsilon) == (solver == "wishart")
    assert model.components_.shape == (2, 5)


@pytest.mark.filterwarnings("ignore::sordino.errors.PrivacyWarning")
@pytest.mark.parametrize("solver", ["spca", "power", "mod-sulq", "gauss"])
def test_replacing_a_record_certifies_a_larger_epsilon_for_the_same_noise(solver):
    seen = []
    for relation in ("add-remove", "replace-one"):
        model = PCA(2, solver=solver, noise="paper", center=False, epsilon=2.0, delta=1e-2, relation=relation)
        with pytest.warns(NotPrivateWarning):
            seen.append(model.fit(rows()).privacy_.epsilon)
    assert seen[1] > 1.1 * seen[0]


def test_wishart_runs_only_when_it_is_asked_for_as_a_benchmark():
    with pytest.raises(InvalidInputError, match="not private"):
        PCA(2, solver="wishart").fit(rows())


def test_papers_do_not_centre():
    with pytest.raises(InvalidInputError, match="center=False"):
        PCA(2, noise="paper").fit(rows())
