"""Certificates of hostile event trees: a typed error or a sound number, never a crash, never too little.

The oracle is not ours: exact hockey-stick divergences of single leaves in 60 digits. A tree costs at least
what one of its leaves costs, so at the certified epsilon no leaf may exceed delta.
"""

import json
import math

import mpmath
import pytest
from dp_accounting import dp_event as dp
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from sordino.accounting import certify
from sordino.accounting.trees import canonical, decode
from sordino.errors import SordinoError
from sordino.kernel.events import PureDpEvent, RareDpEvent, Relation, TiltDpEvent

ROOM = 1 + 1e-6  # accountants compute in floats; a wrong bound is wrong by more

powers = st.floats(-110, 300).map(lambda x: 10.0**x) | st.floats(-4, 3).map(lambda x: 10.0**x)
rates = st.sampled_from([5e-324, 1e-300, 1e-12, 1e-4, 0.5, 1 - 1e-12, 1 - 2.0**-53])
counts = st.sampled_from([1, 2, 1000, 10**9, 10**12])
deltas = st.sampled_from([5e-324, 1e-280, 1e-30, 1e-6, 0.5, 1 - 1e-12, 1 - 2.0**-53])
gaussians = st.builds(dp.GaussianDpEvent, powers)
leaves = st.one_of(
    gaussians,
    st.builds(dp.LaplaceDpEvent, powers),
    st.builds(PureDpEvent, powers),
    st.builds(RareDpEvent, rates),
    st.builds(lambda rho: dp.ZCDpEvent(rho, 0.0), powers),
    st.builds(TiltDpEvent, powers, st.just(0.0) | powers),
    st.builds(dp.PoissonSampledDpEvent, rates, gaussians),
)
repeated = st.builds(dp.SelfComposedDpEvent, leaves, counts)
trees = leaves | repeated | st.lists(repeated, max_size=3).map(dp.ComposedDpEvent)


def upper(x, factor=0.0):
    """Return ``e^factor P[N(0, 1) > x]``; far out by its expansion, where mpmath gives up."""
    if x < 1e4:
        return mpmath.exp(factor) * mpmath.erfc(x / mpmath.sqrt(2)) / 2
    exponent = factor - x**2 / 2
    if abs(exponent) > 1e6:
        return mpmath.mpf(0) if exponent < 0 else mpmath.inf
    return mpmath.exp(exponent) / (x * mpmath.sqrt(2 * mpmath.pi))


def gaussian_delta(mu, epsilon):
    """Return the exact delta of mu-Gaussian DP at an epsilon."""
    return upper(epsilon / mu - mu / 2) - upper(epsilon / mu + mu / 2, epsilon)


def single_delta(event, relation, epsilon):
    """Return a delta that the worst mechanism of a leaf, run once, really has at an epsilon."""
    shift = relation.contributions
    if isinstance(event, (dp.GaussianDpEvent, TiltDpEvent)):  # a linear loss makes a tilt a Gaussian
        return gaussian_delta(shift / mpmath.mpf(event.noise_multiplier), epsilon)
    if isinstance(event, dp.ZCDpEvent):  # a Gaussian is among the mechanisms it describes
        return gaussian_delta(mpmath.sqrt(2 * mpmath.mpf(event.rho)), epsilon)
    if isinstance(event, dp.LaplaceDpEvent):
        return 1 - mpmath.exp((epsilon - 1 / mpmath.mpf(event.noise_multiplier)) / 2)
    if isinstance(event, PureDpEvent):  # randomised response
        most = mpmath.mpf(event.epsilon)
        return (1 - mpmath.exp(epsilon - most)) / (1 + mpmath.exp(-most))
    if isinstance(event, RareDpEvent):  # the relation is in its number already
        return mpmath.mpf(event.delta)
    rate, z = mpmath.mpf(event.sampling_probability), mpmath.mpf(event.event.noise_multiplier)
    return max(
        poisson_delta(rate, z, shift, epsilon, mpmath.mpf(t)) for t in (0.5, 1.0, 1 + 3 * z, 1 + 10 * z)
    )


def poisson_delta(rate, z, shift, epsilon, cut):
    """Return what the test "x > cut" finds between a Poisson batch with the record and one without."""
    absent = upper(cut / z, epsilon)
    other = absent if shift == 1 else (1 - rate) * absent + rate * upper((cut + 1) / z, epsilon)
    return (1 - rate) * upper(cut / z) + rate * upper((cut - 1) / z) - other


def elements(event):
    if isinstance(event, dp.SelfComposedDpEvent):
        yield from elements(event.event)
    elif isinstance(event, dp.ComposedDpEvent):
        for part in event.events:
            yield from elements(part)
    else:
        yield event


@settings(max_examples=40, phases=[Phase.explicit, Phase.generate])
@given(trees, deltas, st.sampled_from(Relation))
def test_no_leaf_of_a_tree_exceeds_its_certificate(event, delta, relation):
    try:
        epsilon = certify(event, delta, relation).epsilon
    except SordinoError:
        return
    assert epsilon >= 0
    if math.isinf(epsilon):
        return
    with mpmath.workdps(60):
        for leaf in elements(event):
            found = single_delta(leaf, relation, mpmath.mpf(epsilon) * ROOM)
            assert found <= mpmath.mpf(delta) * ROOM, (leaf, float(found))


@settings(max_examples=30)
@given(st.lists(powers, min_size=1, max_size=4), counts, deltas, st.sampled_from(Relation))
def test_gaussians_of_all_sizes_compose_exactly(multipliers, count, delta, relation):
    assume(delta > 5e-324)
    parts = [dp.SelfComposedDpEvent(dp.GaussianDpEvent(z), count) for z in multipliers]
    epsilon = certify(dp.ComposedDpEvent(parts), delta, relation).epsilon
    if math.isinf(epsilon):
        assert min(multipliers) < 1e-90 * math.sqrt(count)  # no noise to speak of
        return
    with mpmath.workdps(60):
        mu = relation.contributions * mpmath.sqrt(count * sum(mpmath.mpf(z) ** -2 for z in multipliers))
        assert gaussian_delta(mu, mpmath.mpf(epsilon) * ROOM) <= mpmath.mpf(delta) * ROOM


@settings(max_examples=25)
@given(trees, leaves, deltas)
def test_one_release_more_never_costs_less(event, leaf, delta):
    try:
        alone = certify(event, delta, Relation.ADD_REMOVE).epsilon
        more = certify(dp.ComposedDpEvent([event, leaf]), delta, Relation.ADD_REMOVE).epsilon
    except SordinoError:
        return
    assert more >= 0.98 * alone  # grids of different fineness round up differently


@settings(max_examples=25)
@given(trees, st.sampled_from(Relation))
def test_a_tree_read_back_costs_the_same(event, relation):
    again = decode(json.loads(canonical(event)))
    assert again == event
    try:
        certificate = certify(event, 1e-6, relation)
    except SordinoError as error:
        with pytest.raises(type(error)):
            certify(again, 1e-6, relation)
        return
    assert certify(again, 1e-6, relation) == certificate
