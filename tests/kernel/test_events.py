"""One function turns multipliers into events, with the factor of replace-one in it."""

import math

import pytest
from dp_accounting import dp_event as dp

from sordino.errors import InvalidInputError, PlanError
from sordino.kernel import FixedSize, Relation
from sordino.kernel.events import (
    PureDpEvent,
    TiltDpEvent,
    check_event,
    compose_events,
    gaussian_event,
    laplace_event,
    poisson_event,
    pure_event,
    repeat_event,
    tilt_event,
    zcdp_event,
)

AR, RO = Relation.ADD_REMOVE, Relation.REPLACE_ONE


def test_a_gaussian_event_counts_single_contributions():
    # std = 1.5 * sensitivity; under replace-one that is 3 contributions of one record.
    assert gaussian_event(1.5, AR) == dp.GaussianDpEvent(1.5)
    assert gaussian_event(1.5, RO) == dp.GaussianDpEvent(3.0)
    assert tilt_event(1.5, 0.2, AR) == TiltDpEvent(1.5, 0.2)
    assert tilt_event(1.5, 0.2, RO) == TiltDpEvent(3.0, 0.2)


def test_no_noise_is_no_privacy():
    nothing = dp.NonPrivateDpEvent()
    assert gaussian_event(0.0, AR) == gaussian_event(0.0, RO) == laplace_event(0.0) == nothing
    assert tilt_event(0.0, 0.1, AR) == tilt_event(0.0, 0.1, RO) == nothing
    assert pure_event(math.inf) == zcdp_event(math.inf) == nothing


def test_the_other_events_carry_what_they_are_given():
    assert laplace_event(1.5) == dp.LaplaceDpEvent(1.5)
    assert pure_event(0.7) == PureDpEvent(0.7)
    assert zcdp_event(0.7) == dp.ZCDpEvent(0.7)
    inner = dp.GaussianDpEvent(1.5)
    assert poisson_event(0.3, inner) == dp.PoissonSampledDpEvent(0.3, inner)
    assert poisson_event(1.0, inner) == inner
    assert FixedSize(7).amplify(inner, 1, Relation.REPLACE_ONE, 50) == dp.SampledWithoutReplacementDpEvent(
        50, 7, inner
    )
    assert repeat_event(inner, 1) == inner
    assert repeat_event(inner, 2) == dp.SelfComposedDpEvent(inner, 2)
    assert compose_events([inner, inner]) == dp.ComposedDpEvent([inner, inner])


@pytest.mark.parametrize(
    "make", [lambda m: gaussian_event(m, AR), lambda m: tilt_event(m, 0.1, AR), laplace_event]
)
@pytest.mark.parametrize("multiplier", [-1e-9, -1.0, math.nan])
def test_a_multiplier_below_zero_is_refused(make, multiplier):
    with pytest.raises(InvalidInputError, match="noise multiplier >= 0"):
        make(multiplier)


def test_a_pure_event_is_frozen_and_compared_by_value():
    assert PureDpEvent(0.5) == PureDpEvent(0.5) != PureDpEvent(0.6)
    with pytest.raises(AttributeError):
        PureDpEvent(0.5).epsilon = 0.1


INNER = dp.GaussianDpEvent(2.0)


@pytest.mark.parametrize(
    "event",
    [
        dp.NoOpDpEvent(),
        PureDpEvent(0.0),
        dp.ZCDpEvent(0.0, 0.0),
        dp.ComposedDpEvent([]),
        dp.ComposedDpEvent([INNER, dp.NoOpDpEvent()]),
        dp.SelfComposedDpEvent(dp.NoOpDpEvent(), 3),
        dp.SelfComposedDpEvent(INNER, 0),
        dp.PoissonSampledDpEvent(0.0, INNER),
        dp.SampledWithoutReplacementDpEvent(9, 0, INNER),
    ],
)
def test_an_event_that_costs_nothing_is_refused(event):
    with pytest.raises(PlanError, match="nothing is released for free"):
        check_event(event)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0, -1e-300])
@pytest.mark.parametrize(
    "make",
    [
        dp.GaussianDpEvent,
        PureDpEvent,
        lambda x: dp.ZCDpEvent(0.3, x),
        lambda x: TiltDpEvent(0.3, x),
        lambda x: dp.PoissonSampledDpEvent(x, INNER),
        lambda x: dp.ComposedDpEvent([INNER, dp.LaplaceDpEvent(x)]),
        lambda x: dp.MixtureOfGaussiansDpEvent(2.0, [0.1, x], [0.5, 0.5]),
    ],
)
def test_an_event_whose_numbers_mean_nothing_is_refused(make, wrong):
    with pytest.raises(PlanError, match="finite numbers >= 0"):
        check_event(make(wrong))


@pytest.mark.parametrize(
    "event",
    [
        dp.NonPrivateDpEvent(),
        PureDpEvent(1e-9),
        PureDpEvent(1.0),
        dp.ZCDpEvent(0.0, 1.0),
        dp.ZCDpEvent(1.0, 0.0),
        dp.LaplaceDpEvent(0.5),
        TiltDpEvent(0.5, 0.0),
        dp.SelfComposedDpEvent(INNER, 1),
        dp.PoissonSampledDpEvent(1.0, INNER),
        dp.ComposedDpEvent([INNER, dp.SelfComposedDpEvent(INNER, 2)]),
        dp.MixtureOfGaussiansDpEvent(2.0, [0.0, 0.1], [0.0, 1.0]),
    ],
)
def test_an_event_with_a_price_comes_back_as_it_is(event):
    assert check_event(event) is event
