"""The table is as near to the Gaussian as it says, and the bound is not vacuous."""

import math

import numpy as np
import pytest
from scipy import stats

from sordino.execute.parties.engine import CoarseLaw, Lattice, Mode, NoiseShare, lattice_ripple
from sordino.kernel import NoiseSource


def _discrete_gaussian(variance, reach):
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * variance))
    return x, weights / weights.sum()


def test_one_coordinate_is_within_two_to_the_minus_51():
    assert CoarseLaw().distance <= 2.0**-51
    assert 104 * CoarseLaw().distance <= 2.0**-44
    assert max(CoarseLaw.against(t).distance for t in (1, 2, 3, 7)) <= 2.0**-50


def test_the_enumerated_table_is_within_its_distance():
    law = CoarseLaw(variance=4, fine=3, digits=3, largest=11)
    magnitudes = law.magnitude(np.arange(2**law.bits))
    x, ideal = _discrete_gaussian(4, 40)
    ours = np.array([np.mean(magnitudes == abs(k)) / (1 if k == 0 else 2) for k in x])
    found = np.abs(ours - ideal).sum() / 2
    assert found <= law.distance
    assert found > 1e-5  # three digits are coarse, and the test sees it


@pytest.mark.parametrize(("variance", "fine"), [(2, 1), (3, 1), (1, 1)])
def test_smoothing_the_lattice_leaves_a_ripple_within_its_bound(variance, fine):
    x, mass = _discrete_gaussian(variance, 60)
    grid = np.linspace(-3, 3, 241)
    mixture = (mass * stats.norm.pdf(grid[:, None] - x, scale=math.sqrt(fine))).sum(axis=1)
    ratio = np.abs(mixture / stats.norm.pdf(grid, scale=math.sqrt(variance + fine)) - 1).max()
    bound = lattice_ripple(variance * fine / (variance + fine)) + lattice_ripple(variance)
    assert bound / 3 < ratio <= bound * (1 + 1e-6) + 1e-13


@pytest.mark.parametrize(("std", "parties"), [(0.6, 2), (0.5, 4)])
def test_rounding_every_share_is_rounding_the_sum_with_more_noise(std, parties):
    reach = 30
    x = np.arange(-reach, reach + 1)
    rounded = np.diff(stats.norm.cdf(np.append(x - 0.5, reach + 0.5), scale=std))
    total = rounded
    for _ in range(parties - 1):
        total = np.convolve(total, rounded, mode="same")
    fine = np.arange(-40 * 64, 40 * 64 + 1) / 64
    ideal = stats.norm.pdf(fine, scale=std * math.sqrt(parties))
    box = np.ones(64) / 64
    box = np.convolve(box, [0.5, 0.5])  # a box that is centred on the grid
    for _ in range(parties):
        ideal = np.convolve(ideal, box, mode="same")
    ratio = total / ideal[np.searchsorted(fine, x)]
    ripple = lattice_ripple(std**2 / 2)
    middle = np.abs(x) <= 4 * std * math.sqrt(parties)
    assert np.abs(ratio[middle] - 1).max() <= (1 + ripple) ** (parties - 1) - 1 + 1e-3


def _opened_noise(mode, count, seed, known=()):
    """Return noise that three parties open, less the fine parts of the parties in ``known``."""
    share, lattice = NoiseShare(mode, 3, 1), Lattice(1.0, 2.0**28.4, 2**40)
    noise = NoiseSource.seeded_not_private(seed)
    total = np.zeros(count, dtype=np.int64)
    for party in range(3):
        fine, draw = share.draw(np.zeros(count, dtype=np.int64), lattice, party, noise)
        total += 0 if party in known else fine
    if draw.step:
        uniforms = noise.integers(2**share.law.bits, count)
        total += draw.step * noise.signs(count).astype(np.int64) * share.law.magnitude(uniforms)
    return total / lattice.std, share


@pytest.mark.statistical
@pytest.mark.parametrize("mode", list(Mode))
def test_opened_noise_has_the_declared_variance_and_no_other(mode):
    sample, share = _opened_noise(mode, 40_000, 11)
    std = math.sqrt(share.copies)
    assert stats.kstest(sample, stats.norm(scale=std).cdf).pvalue > 1e-4
    for wrong in (2 / 3, 3 / 2):
        assert stats.kstest(sample, stats.norm(scale=std * wrong).cdf).pvalue < 1e-4


@pytest.mark.statistical
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("colluder", [0, 1])
def test_a_colluder_is_left_with_the_full_noise(mode, colluder):
    sample, _ = _opened_noise(mode, 40_000, 12, known=(colluder,))
    assert stats.kstest(sample, stats.norm().cdf).pvalue > 1e-4
    assert stats.kstest(sample, stats.norm(scale=2 / 3).cdf).pvalue < 1e-4


def test_noise_inside_costs_a_sixteenth_and_aggregation_a_half_of_the_variance():
    assert NoiseShare(Mode.INSIDE, 3, 1).copies == NoiseShare(Mode.INSIDE, 9, 4).copies == 1 + 1 / 16
    assert NoiseShare(Mode.AGGREGATION, 3, 1).copies == 1.5
    assert (
        0 < NoiseShare(Mode.AGGREGATION, 1000, 1).distance < 2.0**-63
    )  # the chance that the check of contributions ends an honest run
