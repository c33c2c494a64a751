"""The price of DP-SGD in its users' words agrees with plans and with dp-accounting."""

import pytest
from dp_accounting import dp_event as dp
from dp_accounting.pld import pld_privacy_accountant

from sordino.accounting import gaussian_epsilon
from sordino.errors import InvalidInputError
from sordino.runs.training import Training


def test_the_epsilon_of_batches_agrees_with_another_accountant():
    found = Training(10_000, 200, 500, 1e-5).epsilon(0.9)
    peer = pld_privacy_accountant.PLDAccountant()
    peer.compose(dp.PoissonSampledDpEvent(0.02, dp.GaussianDpEvent(0.9)), 500)
    assert found.epsilon == pytest.approx(peer.get_epsilon(1e-5), rel=2e-3)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("batch", [100, 2000])
def test_noise_and_epsilon_are_inverse(relation, batch):
    training = Training(2000, batch, 50, 1e-5, relation)
    multiplier, proven = training.least_noise(1.5)
    assert 0.99 * 1.5 < proven.epsilon <= 1.5
    assert training.epsilon(multiplier).epsilon == pytest.approx(proven.epsilon, rel=1e-9)


def test_noise_is_in_units_of_the_clipping_norm_under_both_relations():
    whole = Training(2000, 2000, 1, 1e-5, "replace-one").epsilon(4.0)
    assert whole.epsilon == pytest.approx(gaussian_epsilon(2 / 4.0, 1e-5), rel=1e-3)
    assert Training(2000, 2000, 1, 1e-5).epsilon(4.0).epsilon < whole.epsilon


def test_delta_follows_the_rows():
    assert Training(10**6, 100, 10).epsilon(1.0).delta == 1e-7


@pytest.mark.parametrize("facts", [(0, 1, 1), (10, 11, 1), (10, 0, 1), (10, 5, 0), (10, 5, 1, 2.0)])
def test_numbers_that_make_no_training_are_refused(facts):
    with pytest.raises(InvalidInputError):
        Training(*facts)


@pytest.mark.parametrize("noise", [0.0, -1.0, float("inf"), float("nan")])
def test_noise_that_is_none_is_refused(noise):
    with pytest.raises(InvalidInputError, match="noise multiplier"):
        Training(10, 5, 1).epsilon(noise)
