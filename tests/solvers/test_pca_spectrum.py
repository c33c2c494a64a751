"""The variances of a PCA are those of rows that only the declared bound clips."""

import numpy as np
import pytest

from sordino import PCA
from sordino.kernel import Relation
from sordino.problems.covariance import PcaProblem
from sordino.solvers.pca.spectrum import Principal, combine
from sordino.testing import seeded_noise_not_private


def heavy_columns(rng, n):
    """Independent t(4) columns of falling size."""
    return rng.standard_t(4, size=(n, 12)) * np.linspace(2.0, 0.5, 12)


def spiky_columns(rng, n):
    """Normal columns, and one that is zero but for rare large values: it has the largest variance."""
    rows = rng.normal(size=(n, 12))
    rows[:, 3] = np.where(rng.random(n) < 0.02, 15.0 * rng.choice([-1.0, 1.0], n), 0.0)
    return rows


def correlated_columns(rng, n):
    """Columns that share most of what they vary by."""
    return 0.7 * rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, 12))


@pytest.mark.statistical
@pytest.mark.parametrize("draw", [heavy_columns, spiky_columns, correlated_columns])
def test_variances_converge_to_those_of_rows_that_only_the_declared_bound_clips(draw):
    rng, ratios, misses, bound = np.random.default_rng(0), [], [], 17.0
    for seed in range(3):
        rows = draw(rng, 40_000)
        rows *= np.minimum(1.0, bound / np.linalg.norm(rows, axis=1))[:, None]
        covariance = np.cov(rows.T)
        with seeded_noise_not_private(seed):
            model = PCA(3, epsilon=1.0, data_norm=bound).fit(rows)
        real = np.einsum("kd,de,ke->k", model.components_, covariance, model.components_)
        ratios.append(model.explained_variance_[0] / np.linalg.eigvalsh(covariance)[-1])
        misses.append((model.explained_variance_ - real) / model.eigenvalue_noise_)
    assert np.mean(ratios) == pytest.approx(
        1.0, abs=0.03
    )  # .28 for spiky, .92 for correlated columns without
    np.testing.assert_allclose(ratios, 1.0, atol=0.1)  # three stated deviations of spiky columns
    assert np.sqrt(np.mean(np.square(misses))) < 2.0


def rare_axis(rng, n):
    """Small normal columns; two rows in a thousand lie far out along one axis, which holds most variance."""
    rows = 0.3 * rng.normal(size=(n, 20))
    rows[rng.random(n) < 0.002] = 0.0
    far = np.flatnonzero(~rows.any(axis=1))
    rows[far, 0] = 20.0 * rng.choice([-1.0, 1.0], far.size)
    return rows, 22.0


def one_sided_axis(rng, n):
    """The same, one row in a hundred and to one side: with the mean, a plain variance of 1."""
    rows = 0.3 * rng.normal(size=(n, 20))
    far = rng.random(n) < 0.01
    rows[far] = 0.0
    rows[far, 0] = 10.0
    return rows, 12.0


def far_from_zero(rng, n):
    """Rows a hundred deviations from the origin."""
    return 5.0 + 0.1 * rng.normal(size=(n, 20)), 27.0


@pytest.mark.statistical
@pytest.mark.parametrize("draw", [rare_axis, one_sided_axis, far_from_zero])
@pytest.mark.parametrize(("n", "solver"), [(1000, "auto"), (5000, "auto"), (30_000, "auto"), (5000, "spca")])
def test_stated_deviations_hold_on_axes_that_few_rows_carry_and_far_from_zero(draw, n, solver):
    rng, misses = np.random.default_rng(1), []
    for seed in range(4):
        rows, bound = draw(rng, n)
        with seeded_noise_not_private(seed):
            model = PCA(4, epsilon=1.0, data_norm=bound, solver=solver, random_state=seed).fit(rows)
        real = np.einsum("kd,de,ke->k", model.components_, np.cov(rows.T), model.components_)
        misses.append((model.explained_variance_ - real) / model.eigenvalue_noise_)
    assert (
        np.abs(misses).max() < 3.0
    )  # 29 where an axis that few rows carry counted as one that clipping spares
    assert np.sqrt(np.mean(np.square(misses))) < 1.5


def problem_of(features, components):
    return PcaProblem(1000, features, components, Relation.ADD_REMOVE, 1.0, 1e-5)


@pytest.mark.parametrize(("whole", "first"), [([1.0, 0.9, 5.0], [2, 0]), ([1.0, 1.02, 0.99], [0, 1])])
def test_axes_change_places_where_whole_rows_say_so_and_not_by_noise(whole, first):
    clipped, none, total = np.array([1.0, 0.9, 0.8]), np.zeros(3), sum(whole)
    found = Principal(np.eye(3), clipped, clipped, 0.01, np.full(3, 0.05), 0.02, total, none, stated=none)
    both = combine(found, np.array(whole), np.full(3, 0.05), problem_of(3, 2))
    assert both.axes.argmax(axis=1).tolist() == first
    assert both.variances[0] == pytest.approx(whole[first[0]], abs=0.06)
    assert both.noisy.shape == both.doubt.shape == both.stated.shape == (2,)


@pytest.mark.statistical
def test_the_first_axis_is_the_one_that_few_long_rows_make():
    rng, shares = np.random.default_rng(3), []
    for seed in range(3):
        rows = rng.normal(size=(2000, 8)) * np.r_[1.0, np.full(7, 0.5)]
        far = rng.random(2000) < 0.02
        rows[far, 1] = 20.0 * rng.choice([-1.0, 1.0], far.sum())
        with seeded_noise_not_private(seed):
            axis = PCA(1, epsilon=8.0, data_norm=25.0).fit(rows).components_[0]
        covariance = np.cov(rows.T)
        shares.append(axis @ covariance @ axis / np.linalg.eigvalsh(covariance)[-1])
    assert np.mean(shares) > 0.8  # .4 by the order that clipped rows give


@pytest.mark.statistical
def test_few_long_rows_turn_the_first_axis_as_they_do_without_noise():
    rng, shares, between = np.random.default_rng(4), [], np.r_[np.sqrt([0.5, 0.5]), np.zeros(8)]
    for seed in range(4):
        rows = 0.02 * rng.normal(size=(5000, 10))
        rows[:, 0] += 0.15 * rng.normal(size=5000)
        rows[:250] += 0.8 * rng.choice([-1.0, 1.0], (250, 1)) * between
        with seeded_noise_not_private(seed):
            axis = PCA(1, epsilon=1.0, data_norm=1.0).fit(rows).components_[0]
        covariance = np.cov(rows.T)
        shares.append(axis @ covariance @ axis / np.linalg.eigvalsh(covariance)[-1])
    assert min(shares) > 0.97  # .88 where long rows are clipped


def test_an_axis_without_variance_that_noise_puts_below_zero_leaves_the_others_finite():
    two, none = np.array([3.0, 0.0]), np.zeros(2)
    found = Principal(np.eye(2), two, two, 0.001, np.full(2, 0.001), 0.003, 3.0, none, stated=none)
    both = combine(found, np.array([3.0, -0.1]), np.full(2, 0.01), problem_of(2, 2))
    np.testing.assert_allclose(both.variances, two, atol=0.02)  # nan before
    assert np.isfinite([both.doubt, both.stated]).all()


@pytest.mark.statistical
def test_a_second_look_at_the_mean_finds_the_variances_of_rows_far_from_zero():
    rng, ratios = np.random.default_rng(0), []
    for seed in range(4):
        rows = 10.0 + 0.5 * rng.normal(size=(5000, 20)) @ np.diag(np.linspace(2.0, 0.5, 20))
        with seeded_noise_not_private(seed):
            model = PCA(2, epsilon=1.0, data_norm=50.0).fit(rows)
        ratios.append(model.explained_variance_[0] / np.linalg.eigvalsh(np.cov(rows.T))[-1])
    assert 0.7 < np.median(ratios) < 1.6  # 2.7 to 3.5 with one look
