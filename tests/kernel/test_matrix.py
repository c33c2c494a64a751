"""Symmetric matrix noise: variances on and off the diagonal, and isotropy in the Frobenius norm."""

import numpy as np
import pytest
from scipy import stats
from tests.kernel.toys import source
from tests.statistical.laws import LEVEL, assert_scale

from sordino.errors import InvalidInputError
from sordino.kernel import Gaussian, Relation, SymmetricGaussian

MULTIPLIER, SENSITIVITY = 1.3, 2.7
SCALE = MULTIPLIER * SENSITIVITY


def draws(count=6000, size=3, seed=41):
    noise, value = source(seed), np.arange(size * size, dtype=float).reshape(size, size)
    value = value + value.T
    mechanism = SymmetricGaussian(MULTIPLIER)
    return np.array([mechanism.privatise(value, SENSITIVITY, noise) - value for _ in range(count)]) / SCALE


def test_the_noise_is_symmetric():
    value = np.full((5, 5), 1e3)
    out = SymmetricGaussian(MULTIPLIER).privatise(value, SENSITIVITY, source(44))
    assert np.array_equal(out, out.T)
    assert np.unique(out).size == 15


@pytest.mark.statistical
def test_the_diagonal_has_the_declared_std_and_the_rest_a_root_of_two_less():
    drawn = draws()
    for i in range(3):
        assert_scale(drawn[:, i, i], stats.norm, tests=6)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert_scale(drawn[:, i, j], stats.norm(0, 0.5**0.5), tests=6)


@pytest.mark.statistical
def test_entries_are_uncorrelated():
    drawn = draws(seed=42)
    flat = drawn[:, *np.triu_indices(3)]
    off = np.corrcoef(flat.T)[np.triu_indices(6, 1)] * np.sqrt(len(flat))
    assert 2 * stats.norm.sf(np.abs(off)).min() > LEVEL / off.size


@pytest.mark.statistical
def test_the_noise_has_the_declared_std_in_every_symmetric_direction():
    drawn, rng = draws(seed=43), np.random.default_rng(0)
    for _ in range(4):
        direction = rng.normal(size=(3, 3))
        direction = direction + direction.T
        direction /= np.linalg.norm(direction)
        assert_scale(np.einsum("nij,ij->n", drawn, direction), stats.norm, tests=4)


def test_the_noise_is_added_and_costs_what_gaussian_noise_costs():
    value, normal = np.diag([1.0, 2.0]), source(45).normal((2, 2))
    out = SymmetricGaussian(MULTIPLIER).privatise(value, SENSITIVITY, source(45))
    np.testing.assert_allclose(out, value + SCALE / 2 * (normal + normal.T))
    assert SymmetricGaussian(1.7).event(Relation.ADD_REMOVE) == Gaussian(1.7).event(Relation.ADD_REMOVE)
    assert SymmetricGaussian(1.7).event(Relation.REPLACE_ONE) == Gaussian(1.7).event(Relation.REPLACE_ONE)
    assert SymmetricGaussian().rho() == Gaussian().rho() == 0.5


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 2)])
def test_only_square_matrices_get_symmetric_noise(shape):
    with pytest.raises(InvalidInputError, match="square matrix"):
        SymmetricGaussian(MULTIPLIER).privatise(np.zeros(shape), SENSITIVITY, source())


def test_without_noise_the_matrix_is_returned():
    value = np.array([[1, 2], [2, 5]])
    np.testing.assert_array_equal(SymmetricGaussian(0.0).privatise(value, SENSITIVITY, source()), value)
