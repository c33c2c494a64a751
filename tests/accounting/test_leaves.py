"""Trees are flattened without losing an event or a repetition."""

import math

import pytest
from dp_accounting import dp_event as dp
from tests.accounting.helpers import ADD, REPLACE, gaussian, laplace, mixture, poisson, pure, together, zcdp

from sordino.accounting.trees import Leaf, flatten, gaussian_mu, is_non_private, unsupported_error
from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel.events import PureDpEvent


def test_repetitions_multiply_through_the_tree():
    tree = dp.SelfComposedDpEvent(together(poisson(0.1, 2.0, 5), laplace(3.0)), 7)
    assert flatten(tree) == [
        Leaf(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(2.0)), 35),
        Leaf(dp.LaplaceDpEvent(3.0), 7),
    ]


def test_equal_leaves_are_counted_together_and_others_kept_apart():
    tree = together(pure(0.5, 2), pure(0.25), pure(0.5, 3))
    assert flatten(tree) == [Leaf(PureDpEvent(0.5), 5), Leaf(PureDpEvent(0.25), 1)]


def test_full_batch_gaussians_become_the_one_that_equals_their_composition():
    (leaf,) = flatten(together(gaussian(3.0, 4), gaussian(5.0, 2)))
    assert leaf.count == 1
    assert leaf.event.noise_multiplier == pytest.approx((4 / 9 + 2 / 25) ** -0.5)


def test_gaussians_on_one_poisson_batch_are_joined_before_sampling():
    two = dp.PoissonSampledDpEvent(0.2, together(gaussian(3.0), gaussian(4.0)))
    (leaf,) = flatten(dp.SelfComposedDpEvent(two, 6))
    assert leaf.count == 6
    assert leaf.event.sampling_probability == 0.2
    assert leaf.event.event.noise_multiplier == pytest.approx((1 / 9 + 1 / 16) ** -0.5)


@pytest.mark.parametrize("inner", [together(gaussian(2.0), laplace(2.0)), laplace(2.0, 2)])
def test_other_noise_twice_on_one_batch_is_refused(inner):
    with pytest.raises(UnsupportedError, match="Draw a new batch"):
        flatten(dp.PoissonSampledDpEvent(0.2, inner))


def test_a_batch_of_all_records_is_no_batch():
    full = dp.PoissonSampledDpEvent(1.0, together(laplace(2.0, 3)))
    assert flatten(dp.SelfComposedDpEvent(full, 2)) == [Leaf(dp.LaplaceDpEvent(2.0), 6)]
    full = dp.SampledWithoutReplacementDpEvent(8, 8, dp.GaussianDpEvent(2.0))
    assert flatten(full) == [Leaf(dp.GaussianDpEvent(2.0), 1)]


def test_a_fixed_size_batch_keeps_its_sizes():
    event = dp.SampledWithoutReplacementDpEvent(8, 3, dp.GaussianDpEvent(2.0))
    assert flatten(dp.SelfComposedDpEvent(event, 4)) == [Leaf(event, 4)]


@pytest.mark.parametrize(
    "free",
    [
        dp.NoOpDpEvent(),
        dp.SelfComposedDpEvent(dp.NonPrivateDpEvent(), 0),
        dp.PoissonSampledDpEvent(0.0, dp.GaussianDpEvent(1.0)),
        dp.PoissonSampledDpEvent(0.5, dp.NoOpDpEvent()),
        dp.SampledWithoutReplacementDpEvent(5, 0, dp.GaussianDpEvent(1.0)),
        dp.GaussianDpEvent(math.inf),
        mixture(1.0, [0.0, 0.0], [0.5, 0.5]),
        mixture(0.0, [0.0], [1.0]),
    ],
)
def test_what_costs_nothing_leaves_nothing(free):
    assert flatten(free) == []


@pytest.mark.parametrize(
    "open_event",
    [
        dp.NonPrivateDpEvent(),
        gaussian(0.0),
        gaussian(1e-101),
        laplace(0.0),
        mixture(0.0, [1.0], [1.0]),
        dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(0.0)),
        dp.RepeatAndSelectDpEvent(together(gaussian(1.0), laplace(0.0)), 3, 1.0),
    ],
)
def test_missing_noise_is_never_private(open_event):
    assert is_non_private(flatten(together(gaussian(1.0), open_event)))
    assert not is_non_private(flatten(gaussian(1e-100)))
    assert not is_non_private(flatten(laplace(1.2e-100)))


def test_one_release_without_noise_spoils_a_sampled_pair():
    pair = dp.PoissonSampledDpEvent(0.1, together(gaussian(1.0), dp.NonPrivateDpEvent()))
    assert is_non_private(flatten(pair))


def test_private_tuning_is_normalised_inside_and_can_be_hashed():
    (leaf,) = flatten(dp.RepeatAndSelectDpEvent(together(gaussian(2.0, 4), zcdp(0.1, 3)), 5, 1.0))
    parts = leaf.event.event.events
    assert [(p.event, p.count) for p in parts] == [(dp.GaussianDpEvent(1.0), 1), (dp.ZCDpEvent(0.1), 3)]
    assert (leaf.event.mean, leaf.event.shape) == (5, 1.0)
    assert hash(leaf) == hash(leaf)


def test_a_mixture_that_is_sometimes_absent_is_not_free():
    (leaf,) = flatten(mixture(2.0, [0.0, 1.0], [0.75, 0.25]))
    assert leaf.event.sensitivities == (0.0, 1.0)


def test_a_single_record_is_a_population():
    event = dp.SampledWithoutReplacementDpEvent(1, 1, dp.GaussianDpEvent(2.0))
    assert flatten(event) == [Leaf(dp.GaussianDpEvent(2.0), 1)]


def test_mixtures_can_be_hashed_and_keep_their_numbers():
    (leaf,) = flatten(mixture(2.0, [0.5, 1.0], [0.75, 0.25], 3))
    assert leaf == Leaf(dp.MixtureOfGaussiansDpEvent(2.0, (0.5, 1.0), (0.75, 0.25)), 3)


@pytest.mark.parametrize(
    "wrong",
    [
        gaussian(-1.0),
        gaussian(math.nan),
        laplace(-1.0),
        pure(-0.5),
        zcdp(-0.5),
        dp.ZCDpEvent(0.5, -1.0),
        dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), -1),
        dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), 1.5),
        dp.SelfComposedDpEvent(dp.GaussianDpEvent(1.0), True),
        poisson(1.5, 1.0),
        poisson(-0.1, 1.0),
        dp.SampledWithoutReplacementDpEvent(5, 6, dp.GaussianDpEvent(1.0)),
        dp.SampledWithoutReplacementDpEvent(5, -1, dp.GaussianDpEvent(1.0)),
        dp.SampledWithoutReplacementDpEvent(0, 0, dp.GaussianDpEvent(1.0)),
        mixture(1.0, [1.0, 2.0], [1.0]),
        mixture(1.0, [1.0], [0.5]),
        mixture(1.0, [1.0], [1 + 1.2e-9]),
        mixture(1.0, [-1.0], [1.0]),
        mixture(-1.0, [1.0], [1.0]),
        mixture(1.0, [1.0, 1.0], [1.5, -0.5]),
    ],
)
def test_numbers_that_no_mechanism_has_are_refused(wrong):
    with pytest.raises(InvalidInputError, match="Expected"):
        flatten(wrong)


def test_unknown_events_are_refused_by_name():
    with pytest.raises(UnsupportedError, match="RandomizedResponseDpEvent"):
        flatten(dp.RandomizedResponseDpEvent(0.5, 2))


def test_replacing_a_record_moves_a_gaussian_twice_as_far():
    leaf = Leaf(dp.GaussianDpEvent(5.0), 9)
    assert gaussian_mu(leaf, ADD) == pytest.approx(3 / 5)
    assert gaussian_mu(leaf, REPLACE) == pytest.approx(6 / 5)


def test_a_missing_proof_is_named_with_relation_accountant_and_remedy():
    error = unsupported_error(dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(2.0)), REPLACE, "PLD")
    assert isinstance(error, UnsupportedError)
    assert str(error).startswith(
        "No PLD accounting is proven for PoissonSampledDpEvent(LaplaceDpEvent) under relation 'replace-one'."
    )
    assert "for ZCDpEvent under" in str(unsupported_error(dp.ZCDpEvent(0.1), ADD, "PLD"))
