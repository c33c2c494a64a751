"""The variances of a PCA are those of rows that only the declared bound clips."""

import numpy as np
import pytest

from sordino import PCA
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
    np.testing.assert_allclose(ratios, 1.0, atol=0.03)  # .28 for spiky, .92 for correlated columns without it
    assert np.sqrt(np.mean(np.square(misses))) < 2.0
