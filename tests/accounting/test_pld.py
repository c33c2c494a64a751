"""Epsilon by loss distributions: both directions, all leaves, fine enough, never below the truth."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from tests.accounting.helpers import (
    ADD,
    REPLACE,
    fixed_size,
    gaussian,
    laplace,
    mixture,
    poisson,
    pure,
    together,
    zcdp,
)

from sordino.accounting import pld
from sordino.accounting.conversions import gaussian_epsilon
from sordino.accounting.pld import discretise, gaussian_pair, laplace_pair, leaf_pairs, pld_epsilon, supports
from sordino.accounting.trees import Leaf, flatten
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.events import PureDpEvent, TiltDpEvent


def epsilon(event, delta, relation, grid=None):
    return pld_epsilon(flatten(event), delta, relation, grid).epsilon


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize(("multiplier", "times"), [(0.7, 1), (3.0, 5), (40.0, 100)])
def test_full_batch_gaussians_agree_with_the_exact_formula(relation, multiplier, times):
    mu = relation.contributions * math.sqrt(times) / multiplier
    found = epsilon(gaussian(multiplier, times), 1e-6, relation)
    assert found == pytest.approx(gaussian_epsilon(mu, 1e-6), rel=2e-3)
    assert found >= gaussian_epsilon(mu, 1e-6) * (1 - 1e-9)


SUPPORT = [
    (dp.GaussianDpEvent(1.5), True, True),
    (dp.LaplaceDpEvent(1.5), True, True),
    (PureDpEvent(0.5), True, True),
    (TiltDpEvent(1.5, 0.2), True, True),
    (dp.PoissonSampledDpEvent(0.1, TiltDpEvent(1.5, 0.2)), False, False),
    (dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(1.5)), True, True),
    (dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1.5)), True, False),
    (dp.PoissonSampledDpEvent(0.1, PureDpEvent(0.5)), True, False),
    (dp.PoissonSampledDpEvent(0.1, dp.ZCDpEvent(0.5)), False, False),
    (dp.SampledWithoutReplacementDpEvent(9, 3, dp.GaussianDpEvent(1.5)), False, True),
    (dp.SampledWithoutReplacementDpEvent(9, 3, dp.LaplaceDpEvent(1.5)), False, False),
    (dp.MixtureOfGaussiansDpEvent(1.0, (0.5, 1.0), (0.5, 0.5)), True, False),
    (dp.ZCDpEvent(0.5), False, False),
    (dp.RepeatAndSelectDpEvent(dp.GaussianDpEvent(1.5), 3, 1.0), False, False),
]


@pytest.mark.parametrize(("event", "add", "replace"), SUPPORT)
def test_only_proven_pairs_are_supported(event, add, replace):
    assert supports(Leaf(event, 1), ADD) is add
    assert supports(Leaf(event, 1), REPLACE) is replace


def test_what_is_not_supported_is_named_with_a_remedy():
    event = dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1.5))
    with pytest.raises(
        UnsupportedError, match=r"PoissonSampledDpEvent\(LaplaceDpEvent\).*'replace-one'.*Use"
    ):
        leaf_pairs(Leaf(event, 1), REPLACE)


@pytest.mark.parametrize(
    ("event", "relation", "directions"),
    [
        (gaussian(1.0), ADD, 1),
        (poisson(0.1, 1.0), ADD, 2),
        (poisson(0.1, 1.0), REPLACE, 1),
        (mixture(1.0, [1.0, 2.0], [0.5, 0.5]), ADD, 2),
        (fixed_size(9, 3, 1.0), REPLACE, 1),
    ],
)
def test_asymmetric_pairs_are_looked_at_from_both_sides(event, relation, directions):
    (leaf,) = flatten(event)
    assert len(leaf_pairs(leaf, relation)) == directions


def test_the_worse_direction_counts(monkeypatch):
    event = flatten(poisson(0.1, 0.8, 10))
    both = pld_epsilon(event, 1e-5, ADD).epsilon
    pairs = leaf_pairs(event[0], ADD)
    single = []
    for pair in pairs:
        monkeypatch.setattr(pld, "leaf_pairs", lambda *_, pair=pair: (pair,))
        single.append(pld_epsilon(event, 1e-5, ADD).epsilon)
    assert both == max(single) > min(single)


@pytest.mark.parametrize("worse", [0, 1])
def test_the_worse_direction_counts_also_next_to_a_leaf_that_has_only_one(monkeypatch, worse):
    mild, strong = gaussian_pair(0.3), gaussian_pair(0.9)
    both = (mild, strong) if worse else (strong, mild)
    table = {1: both, 2: (laplace_pair(0.01),)}
    monkeypatch.setattr(pld, "leaf_pairs", lambda leaf, _: table[leaf.count])
    found = pld_epsilon([Leaf(None, 1), Leaf(None, 2)], 1e-5, ADD).epsilon
    strongest = gaussian_epsilon(0.9, 1e-5)
    assert strongest < found < strongest + 2 * 0.01


def test_symmetric_leaves_join_both_directions():
    alone = epsilon(poisson(0.1, 0.8, 10), 1e-5, ADD)
    joined = epsilon(together(poisson(0.1, 0.8, 10), laplace(50.0)), 1e-5, ADD)
    assert alone < joined < alone + 1 / 50


def test_pure_sampling_is_amplified_as_a_pure_mechanism():
    sampled = dp.PoissonSampledDpEvent(0.2, PureDpEvent(1.5))
    amplified = math.log1p(0.2 * math.expm1(1.5))
    assert epsilon(sampled, 1e-9, ADD) == pytest.approx(epsilon(pure(amplified), 1e-9, ADD), rel=1e-9)
    assert epsilon(pure(amplified), 1e-9, ADD) == pytest.approx(amplified, rel=2e-3)


def test_one_laplace_release_is_as_pure_as_its_multiplier_says():
    assert epsilon(laplace(4.0), 1e-9, ADD) == pytest.approx(0.25, rel=1e-3)


def test_one_fixed_size_release_of_all_but_one_record_is_nearly_a_full_batch():
    # multiplier 2 per replaced record: mu = 1/2
    nearly = epsilon(fixed_size(10**6, 10**6 - 1, 2.0), 1e-5, REPLACE)
    assert nearly == pytest.approx(gaussian_epsilon(0.5, 1e-5), rel=1e-3)


@pytest.mark.parametrize("tiny", [0.003, 0.0028])  # the second lies on the first two grids
def test_tiny_epsilons_are_refined_even_when_they_have_settled(tiny):
    found = pld_epsilon(flatten(pure(tiny)), 1e-6, ADD)
    assert found.interval <= found.epsilon / 100
    assert found.epsilon == pytest.approx(tiny, rel=1e-2)


def test_laplace_under_replace_one_is_the_pair_of_its_own_sensitivity():
    assert epsilon(laplace(4.0, 3), 1e-5, REPLACE) == epsilon(laplace(4.0, 3), 1e-5, ADD)


def test_fixed_size_costs_at_least_its_explicit_worst_pair():
    # n=10000, b=100, multiplier 1 per replaced record: the pair (sampled, absent) costs 1.8282.
    assert epsilon(fixed_size(10000, 100, 1.0, 1000), 1e-5, REPLACE) > 1.8282


def test_a_coarse_grid_is_loose_but_never_too_small():
    event = poisson(128 / 50000, 108.8, 19531)
    fine = epsilon(event, 1e-5, ADD)
    previous = fine
    for grid in (1e-5, 5e-5, 1e-4):
        coarse = epsilon(event, 1e-5, ADD, grid)
        assert coarse > previous
        previous = coarse
    assert previous == pytest.approx(0.0155, rel=2e-2)  # the notes' example of a loose grid
    assert fine == pytest.approx(0.0078, rel=1e-2)


@pytest.mark.parametrize("target_grid", [poisson(0.01, 1.0, 1000), poisson(2.56e-3, 108.8, 19531)])
def test_halving_the_chosen_grid_changes_little(target_grid):
    found = pld_epsilon(flatten(target_grid), 1e-5, ADD)
    finer = pld_epsilon(flatten(target_grid), 1e-5, ADD, found.interval / 2)
    assert 0.99 * found.epsilon < finer.epsilon <= found.epsilon * (1 + 1e-9)
    assert found.interval <= found.epsilon / 100


def test_small_noise_gets_a_coarser_grid():
    assert pld_epsilon(flatten(poisson(0.01, 0.2, 10)), 1e-5, ADD).interval == 1e-3
    assert pld_epsilon(flatten(poisson(0.01, 1.0, 10)), 1e-5, ADD).interval == 1e-4


def test_the_grid_follows_the_bins_that_memory_allows(monkeypatch):
    monkeypatch.setattr(pld, "MAX_BINS", 2**12)
    found = pld_epsilon(flatten(poisson(0.01, 1.0, 1000)), 1e-5, ADD)
    assert found.interval > 1e-4
    assert found.epsilon == pytest.approx(1.828, rel=0.02)
    assert found.epsilon >= 1.828
    wide = pld_epsilon(flatten(together(gaussian(0.05), poisson(0.01, 1.0))), 1e-5, ADD)
    assert wide.epsilon == pytest.approx(gaussian_epsilon(20.0, 1e-5), rel=0.02)


def test_the_widest_loss_decides_the_first_grid(monkeypatch):
    """Before anything is composed: a loss of 400 on the usual grid would have a million bins."""
    sizes = []

    def recorded(pair, interval):
        grid = discretise(pair, interval)
        sizes.append(grid.probabilities.size)
        return grid

    monkeypatch.setattr(pld, "MAX_BINS", 2**12)
    monkeypatch.setattr(pld, "discretise", recorded)
    event = together(poisson(0.01, 1.0), gaussian(0.05))
    found = pld_epsilon(flatten(event), 1e-5, ADD)
    assert found.epsilon == pytest.approx(gaussian_epsilon(20.0, 1e-5), rel=0.02)
    assert 2**12 <= max(sizes[:2]) <= 2**12 + 2


def test_a_composed_loss_takes_32_mebibytes_at_most():
    assert pld.MAX_BINS * np.dtype(float).itemsize == 32 * 2**20


def test_a_grid_without_room_proves_nothing(monkeypatch):
    monkeypatch.setattr(pld, "MAX_BINS", 2**12)
    assert pld_epsilon(flatten(poisson(0.01, 1.0, 1000)), 1e-5, ADD, 1e-5) == (math.inf, 1e-5)


def test_a_delta_below_the_resolution_of_floats_proves_nothing():
    assert epsilon(poisson(0.01, 1.0, 1000), 1e-14, ADD) == math.inf


def test_little_enough_leakage_has_epsilon_zero_without_further_search():
    assert pld_epsilon(flatten(poisson(1e-4, 50.0, 2)), 0.01, ADD) == (0, 1e-4)


@pytest.mark.parametrize("grid", [0.0, -1e-4, math.nan, 1.5])
def test_impossible_grids_are_refused(grid):
    with pytest.raises(InvalidInputError, match="grid interval in"):
        epsilon(poisson(0.01, 1.0), 1e-5, ADD, grid)


def test_selections_have_no_loss_distribution_here():
    with pytest.raises(UnsupportedError, match="ZCDpEvent"):
        epsilon(zcdp(0.1), 1e-5, ADD)
