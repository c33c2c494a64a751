"""One function turns multipliers into events, with the factor of replace-one in it."""

import math

import pytest
from dp_accounting import dp_event as dp

from sordino.errors import InvalidInputError
from sordino.kernel import Relation
from sordino.kernel.events import (
    PureDpEvent,
    composed,
    fixed_size_event,
    gaussian_event,
    laplace_event,
    poisson_event,
    pure_event,
    repeated,
    zcdp_event,
)

AR, RO = Relation.ADD_REMOVE, Relation.REPLACE_ONE


def test_a_gaussian_event_counts_single_contributions():
    # std = 1.5 * sensitivity; under replace-one that is 3 contributions of one record.
    assert gaussian_event(1.5, AR) == dp.GaussianDpEvent(1.5)
    assert gaussian_event(1.5, RO) == dp.GaussianDpEvent(3.0)


def test_no_noise_is_no_privacy():
    nothing = dp.NonPrivateDpEvent()
    assert gaussian_event(0.0, AR) == gaussian_event(0.0, RO) == laplace_event(0.0) == nothing
    assert pure_event(math.inf) == zcdp_event(math.inf) == nothing


def test_the_other_events_carry_what_they_are_given():
    assert laplace_event(1.5) == dp.LaplaceDpEvent(1.5)
    assert pure_event(0.7) == PureDpEvent(0.7)
    assert zcdp_event(0.7) == dp.ZCDpEvent(0.7)
    inner = dp.GaussianDpEvent(1.5)
    assert poisson_event(0.3, inner) == dp.PoissonSampledDpEvent(0.3, inner)
    assert poisson_event(1.0, inner) == inner
    assert fixed_size_event(50, 7, inner) == dp.SampledWithoutReplacementDpEvent(50, 7, inner)
    assert repeated(inner, 1) == inner
    assert repeated(inner, 2) == dp.SelfComposedDpEvent(inner, 2)
    assert composed([inner, inner]) == dp.ComposedDpEvent([inner, inner])


@pytest.mark.parametrize("make", [lambda m: gaussian_event(m, AR), laplace_event])
@pytest.mark.parametrize("multiplier", [-1e-9, -1.0, math.nan])
def test_a_multiplier_below_zero_is_refused(make, multiplier):
    with pytest.raises(InvalidInputError, match="noise multiplier >= 0"):
        make(multiplier)


def test_a_pure_event_is_frozen_and_compared_by_value():
    assert PureDpEvent(0.5) == PureDpEvent(0.5) != PureDpEvent(0.6)
    with pytest.raises(AttributeError):
        PureDpEvent(0.5).epsilon = 0.1
