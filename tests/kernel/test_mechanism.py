"""Noise has the declared law and scale, whatever the sensitivity, and its event is that of the scale."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from scipy import stats
from tests.kernel.toys import source
from tests.statistical.laws import LEVEL, assert_independent, assert_scale

from sordino.errors import InvalidInputError, PlanError
from sordino.kernel import (
    Gaussian,
    GumbelTopK,
    Laplace,
    LaplacePeeling,
    LazyVector,
    Norm,
    NormGamma,
    Relation,
    SparseVector,
    SymmetricGaussian,
)
from sordino.kernel.events import PureDpEvent
from sordino.kernel.mechanism import Rounding

AR, RO = Relation.ADD_REMOVE, Relation.REPLACE_ONE
MULTIPLIER, SENSITIVITY = 1.3, 2.7
SCALE = MULTIPLIER * SENSITIVITY
ALL = [Gaussian, Laplace, NormGamma, SymmetricGaussian, GumbelTopK, LaplacePeeling]

pytestmark = pytest.mark.filterwarnings("error")


def noise_of(mechanism, size=20_000, seed=31):
    """Return the noise that a mechanism adds to a vector, in units of the declared scale."""
    value = np.linspace(-5, 5, size)
    return (mechanism.privatise(value, SENSITIVITY, source(seed)) - value) / SCALE


def assert_declared_scale(mechanism, law):
    assert_scale(noise_of(mechanism), law)


@pytest.mark.statistical
@pytest.mark.parametrize(("kind", "law"), [(Gaussian, stats.norm), (Laplace, stats.laplace)])
def test_noise_has_the_declared_law_and_scale(kind, law):
    assert_declared_scale(kind(MULTIPLIER), law)
    assert_independent(noise_of(kind(MULTIPLIER), seed=32))


@dataclass(frozen=True)
class SensitivityForgotten(Gaussian):
    """Noise of the size of the multiplier, as if every sensitivity were 1."""

    def scale(self, sensitivity):
        return super().scale(1.0)


@dataclass(frozen=True)
class HalfTheNoise(Gaussian):
    """Noise of half the size that is accounted for."""

    def scale(self, sensitivity):
        return super().scale(sensitivity) / 2


def test_a_forgotten_sensitivity_is_caught():
    with pytest.raises(AssertionError):
        assert_declared_scale(SensitivityForgotten(MULTIPLIER), stats.norm)


def test_half_the_noise_is_caught():
    with pytest.raises(AssertionError):
        assert_declared_scale(HalfTheNoise(MULTIPLIER), stats.norm)


@pytest.mark.statistical
@pytest.mark.parametrize("size", [1, 4, 30])
def test_norm_gamma_noise_has_a_gamma_radius_and_a_uniform_direction(size):
    mechanism, noise, value = NormGamma(MULTIPLIER), source(33), np.arange(size, dtype=float)
    drawn = np.array([mechanism.privatise(value, SENSITIVITY, noise) - value for _ in range(5000)])
    radius = np.linalg.norm(drawn, axis=1)
    assert_scale(radius / SCALE, stats.gamma(size), tests=6)
    unit = drawn / radius[:, None]
    # One coordinate of a uniform direction: its square is Beta(1/2, (d-1)/2), its sign is fair.
    if size > 1:
        law = stats.beta(0.5, (size - 1) / 2)
        assert stats.kstest(unit[:, 0] ** 2, law.cdf).pvalue > LEVEL
    z = unit.sum(axis=0) / np.sqrt(len(unit) / size)
    assert stats.chi2.sf((z**2).sum(), size) > LEVEL
    assert 2 * stats.norm.sf(abs(stats.spearmanr(radius, unit[:, 0]).statistic) * 5000**0.5) > LEVEL


def test_norm_gamma_in_one_dimension_is_laplace():
    mechanism, noise = NormGamma(MULTIPLIER), source(34)
    drawn = np.array([mechanism.privatise(np.zeros(1), SENSITIVITY, noise)[0] for _ in range(5000)])
    assert_scale(drawn / SCALE, stats.laplace)


@pytest.mark.parametrize("kind", [Gaussian, Laplace, NormGamma])
def test_without_noise_the_value_is_returned(kind):
    value = np.arange(4.0)
    np.testing.assert_array_equal(kind(0.0).privatise(value, SENSITIVITY, source()), value)
    np.testing.assert_array_equal(kind(MULTIPLIER).privatise(value, 0.0, source()), value)


@pytest.mark.parametrize("kind", [Gaussian, Laplace, NormGamma])
def test_the_callers_value_is_left_alone(kind):
    value = np.arange(4.0)
    kind(MULTIPLIER).privatise(value, SENSITIVITY, source())
    assert np.array_equal(value, np.arange(4.0))


def test_noise_is_added_to_the_value():
    value = np.arange(4.0)
    for kind, draw in ((Gaussian, "normal"), (Laplace, "laplace")):
        out = kind(MULTIPLIER).privatise(value, SENSITIVITY, source(39))
        np.testing.assert_allclose(out, value + SCALE * getattr(source(39), draw)(4))
    again, out = source(39), NormGamma(MULTIPLIER).privatise(value, SENSITIVITY, source(39))
    direction = again.normal(4)
    radius = SCALE * again.gamma(4.0)
    np.testing.assert_allclose(out, value + radius * direction / np.sqrt((direction**2).sum()))


@pytest.mark.parametrize("kind", ALL)
def test_a_fresh_mechanism_has_no_multiplier_and_weighs_as_much_as_any(kind):
    assert kind().multiplier is None
    assert kind().relative == 1.0
    assert not getattr(kind(), "secure", False)


@pytest.mark.parametrize("kind", [Laplace, NormGamma])
def test_sparse_values_get_noise_on_every_coordinate(kind):
    value = SparseVector(np.array([3, 1]), np.array([4.0, 5.0]), 6)
    out = kind(MULTIPLIER).privatise(value, SENSITIVITY, source(35))
    assert out.shape == (6,)
    assert (np.abs(out - value.to_dense()) > 0).all()


def test_a_sparse_value_under_gaussian_noise_stays_lazy():
    value = SparseVector(np.array([3, 1]), np.array([4.0, 5.0]), 6)
    out = Gaussian(MULTIPLIER).privatise(value, SENSITIVITY, source(35))
    assert isinstance(out, LazyVector)
    np.testing.assert_allclose(out._known.values, [4.0, 5.0] + SCALE * source(35).normal(2))
    assert out._std == pytest.approx(SCALE)


def test_a_number_can_be_released():
    out = Gaussian(MULTIPLIER).privatise(4.0, SENSITIVITY, source(36))
    assert np.shape(out) == ()
    assert out == pytest.approx(4.0 + SCALE * source(36).normal(1)[0])


# ------------------------------------------------------------------------------------------- events


def test_events_are_those_of_the_multiplier():
    m = 1.7
    assert Gaussian(m).event(AR) == SymmetricGaussian(m).event(AR) == dp.GaussianDpEvent(m)
    assert Gaussian(m).event(RO) == SymmetricGaussian(m).event(RO) == dp.GaussianDpEvent(2 * m)
    assert Laplace(m).event(AR) == Laplace(m).event(RO) == dp.LaplaceDpEvent(m)
    assert NormGamma(m).event(AR) == NormGamma(m).event(RO) == PureDpEvent(1 / m)


@pytest.mark.parametrize("kind", ALL)
def test_no_multiplier_no_event_and_no_noise(kind):
    with pytest.raises(PlanError, match="no noise multiplier"):
        kind().event(AR)
    with pytest.raises(PlanError, match="no noise multiplier"):
        kind().privatise(np.eye(3), SENSITIVITY, source())


@pytest.mark.parametrize("kind", [Gaussian, Laplace, NormGamma, SymmetricGaussian])
def test_a_multiplier_of_zero_is_no_privacy(kind):
    assert kind(0.0).event(AR) == kind(0.0).event(RO) == dp.NonPrivateDpEvent()


@pytest.mark.parametrize("kind", ALL)
def test_zcdp_weights_at_multiplier_one(kind):
    wanted = {LaplacePeeling: 2.5}.get(kind, 0.5)
    assert kind().rho() == wanted


@pytest.mark.parametrize("kind", ALL)
def test_a_mechanism_is_set_to_a_multiplier_and_keeps_the_rest(kind):
    mechanism = kind(relative=0.4).at(1.9)
    assert (mechanism.multiplier, mechanism.relative) == (1.9, 0.4)
    assert isinstance(mechanism, kind)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("multiplier", [-1e-9, math.nan, math.inf])
def test_a_multiplier_that_is_no_noise_level_is_refused(kind, multiplier):
    with pytest.raises(InvalidInputError, match="noise multiplier"):
        kind(multiplier)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("relative", [0.0, -1.0, math.nan, math.inf])
def test_a_relative_noise_size_has_to_be_positive(kind, relative):
    with pytest.raises(InvalidInputError, match="relative noise size > 0"):
        kind(relative=relative)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("sensitivity", [-1e-9, math.nan, math.inf])
def test_a_sensitivity_that_bounds_nothing_is_refused(kind, sensitivity):
    with pytest.raises(InvalidInputError, match="finite sensitivity"):
        kind(MULTIPLIER).privatise(np.eye(3), sensitivity, source())


def test_mechanisms_name_the_norm_they_need():
    assert Gaussian.norms == NormGamma.norms == SymmetricGaussian.norms == (Norm.L2,)
    assert Laplace.norms == (Norm.L1,)
    assert GumbelTopK.norms == LaplacePeeling.norms == (Norm.LINF,)


# ------------------------------------------------------------------------------------- the lattice


@pytest.mark.parametrize("sensitivity", [2.7, 1e-9, 3e8, 0.5])
def test_the_lattice_is_a_power_of_two_and_2_to_the_28_finer_than_the_noise(sensitivity):
    spacing = Gaussian(MULTIPLIER, secure=True).lattice(sensitivity)
    assert math.frexp(spacing)[0] == 0.5
    assert 2**28 <= MULTIPLIER * sensitivity / spacing < 2**29


def test_a_lattice_needs_noise():
    with pytest.raises(InvalidInputError, match="secure_noise=False"):
        Gaussian(0.0, secure=True).lattice(SENSITIVITY)


@pytest.mark.statistical
def test_noise_on_the_lattice_has_the_law_of_gaussian_noise():
    mechanism = Gaussian(MULTIPLIER, secure=True)
    spacing = mechanism.lattice(SENSITIVITY)
    value = np.arange(20_000) * 1_000_003
    out = mechanism.privatise_exactly(
        value, SENSITIVITY, Rounding(spacing=spacing, truncated=True), source(37)
    )
    assert out.dtype == np.float64
    assert np.array_equal(out / spacing, np.rint(out / spacing))
    assert_scale((out - value * spacing) / SCALE, stats.norm)


def test_noise_on_the_lattice_is_added_to_the_integers():
    mechanism = Gaussian(MULTIPLIER, secure=True)
    spacing = mechanism.lattice(SENSITIVITY)
    value = np.array([[3, -8], [10**15, 0]])
    out = mechanism.privatise_exactly(
        value, SENSITIVITY, Rounding(spacing=spacing, truncated=True), source(38)
    )
    drawn = source(38).rounded_gaussian(SCALE / spacing, (2, 2))
    np.testing.assert_array_equal(out, (value + drawn) * spacing)
