"""Traps of dp-accounting 0.6: what it does, and that we do not fall in."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from dp_accounting import pld, rdp
from dp_accounting.privacy_accountant import NeighboringRelation, UnsupportedEventError
from tests.accounting.helpers import ADD, REPLACE, gaussian, laplace, poisson, pure

from sordino.accounting import certify, certify_by, decode, rdp_curve
from sordino.errors import InvalidInputError
from sordino.kernel.events import PureDpEvent, gaussian_event

REPLACE_ONE = NeighboringRelation.REPLACE_ONE


def test_loss_distributions_double_the_shift_of_replace_one_and_renyi_does_not():
    event = dp.GaussianDpEvent(1.0)
    assert pld.PLDAccountant(REPLACE_ONE).compose(event).get_epsilon(1e-5) == pytest.approx(9.997, rel=1e-3)
    theirs = rdp.RdpAccountant(neighboring_relation=REPLACE_ONE).compose(event).get_epsilon(1e-5)
    assert theirs == pytest.approx(4.729, rel=1e-3)
    assert certify_by("pld", event, 1e-5, REPLACE).epsilon == pytest.approx(9.997, rel=1e-3)
    assert certify_by("rdp", event, 1e-5, REPLACE).epsilon > 9.997


def test_an_event_built_from_a_multiplier_costs_the_same_under_both_relations():
    costs = [certify(gaussian_event(1.7, relation), 1e-5, relation).epsilon for relation in (ADD, REPLACE)]
    assert costs[0] == pytest.approx(costs[1])


def test_repetitions_of_a_pure_mechanism_are_counted():
    response = dp.RandomizedResponseDpEvent(0.9, 2)  # ln 1.222 = 0.2007
    dropped = pld.PLDAccountant(REPLACE_ONE).compose(response, 20).get_epsilon(1e-5)
    assert dropped == pytest.approx(0.201, rel=1e-2)
    one_by_one = pld.PLDAccountant(REPLACE_ONE)
    for _ in range(20):
        one_by_one.compose(response)
    ours = certify(pure(math.log((1 - 0.45) / 0.45), 20), 1e-5, REPLACE).epsilon
    assert ours == pytest.approx(one_by_one.get_epsilon(1e-5), rel=5e-3)
    assert ours > 10 * dropped


def test_a_pure_selection_costs_more_than_a_laplace_event_of_the_same_epsilon():
    assert certify(pure(0.5, 20), 1e-5, ADD).epsilon > 1.05 * certify(laplace(2.0, 20), 1e-5, ADD).epsilon


def test_laplace_under_replace_one_is_refused_by_the_library_and_proven_here():
    with pytest.raises(UnsupportedEventError):
        pld.PLDAccountant(REPLACE_ONE).compose(dp.LaplaceDpEvent(2.0))
    assert certify(laplace(2.0), 1e-5, REPLACE).epsilon == pytest.approx(0.5, rel=1e-3)


def test_poisson_batches_under_replace_one_have_a_renyi_curve_here():
    with pytest.raises(UnsupportedEventError):
        rdp.RdpAccountant(neighboring_relation=REPLACE_ONE).compose(poisson(0.1, 1.0))
    assert certify_by("rdp", poisson(0.01, 1.0, 1000), 1e-5, REPLACE).epsilon > 2.84345


def test_fractional_orders_of_the_library_are_too_large_and_ours_are_right():
    event, orders = poisson(0.01, 1.0), [1.5]
    theirs, ours = rdp.RdpAccountant(orders).compose(event).rdp[0], rdp_curve(event, ADD, orders)[0]
    exact = 0.000127253743327  # 40 digits of mpmath, cut
    assert ours == pytest.approx(exact, rel=1e-6)
    assert theirs > 1.03 * exact


def test_tiny_steps_on_a_fine_grid_gain_mass_in_the_library():
    event = dp.SelfComposedDpEvent(dp.GaussianDpEvent(300.0), 20000)
    theirs = pld.PLDAccountant(value_discretization_interval=3e-6)
    theirs.compose(poisson(1.0, 300.0))
    composed = theirs._pld.self_compose(20000)
    assert composed._pmf_remove._probs.sum() > 1 + 1e-6
    assert certify_by("pld", event, 1e-5, ADD).epsilon == pytest.approx(
        certify(gaussian(300.0, 20000), 1e-5, ADD).epsilon, rel=1e-3
    )


def test_decoding_does_not_import_what_the_data_says():
    class Payload:
        _fields = ("module_name", "class_name")
        module_name = "antigravity_of_an_attacker"
        class_name = "Anything"

    with pytest.raises(ModuleNotFoundError):  # the library tries
        dp.DpEvent.from_named_tuple(Payload())
    with pytest.raises(InvalidInputError):
        decode({"type": "antigravity_of_an_attacker.Anything"})


def test_a_pure_event_is_not_hidden_from_the_library_as_free():
    """Our own event is unknown to dp-accounting: it must refuse it, not skip it."""
    assert not pld.PLDAccountant().supports(PureDpEvent(0.5))
    assert not rdp.RdpAccountant().supports(PureDpEvent(0.5))
    assert np.all(rdp_curve(PureDpEvent(0.5), ADD) > 0)
