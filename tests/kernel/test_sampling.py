"""Which rows a release sees, what that saves, and which pairs have no proof."""

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from tests.kernel.toys import source

from sordino.errors import InvalidInputError, UnsupportedError
from sordino.kernel import (
    Disjoint,
    FixedSize,
    Full,
    Gaussian,
    GumbelTopK,
    Laplace,
    LaplacePeeling,
    NormGamma,
    Poisson,
    Relation,
    SymmetricGaussian,
)

AR, RO = Relation.ADD_REMOVE, Relation.REPLACE_ONE
EVENT = dp.GaussianDpEvent(1.7)
NOTHING = dp.NonPrivateDpEvent()


def test_full_sampling_sees_everything_and_composes():
    assert Full().draw(9, 0, source()) is None
    assert Full().expected(9) == 9.0
    assert Full().amplify(EVENT, 4, AR, 9) == dp.SelfComposedDpEvent(EVENT, 4)


def test_poisson_sampling_draws_rows_and_divides_by_the_expected_number():
    rows = Poisson(0.3).draw(500, 0, source(2))
    np.testing.assert_array_equal(rows, source(2).bernoulli_rows(500, 0.3))
    assert Poisson(0.3).expected(500) == pytest.approx(150.0)
    assert rows.size != 150


def test_poisson_sampling_amplifies_each_release():
    inner = dp.PoissonSampledDpEvent(0.3, EVENT)
    assert Poisson(0.3).amplify(EVENT, 4, AR, 9) == dp.SelfComposedDpEvent(inner, 4)
    assert Poisson(0.3).amplify(EVENT, 1, RO, 9) == inner
    assert Poisson(0.3).amplify(NOTHING, 4, AR, 9) == NOTHING


def test_a_rate_of_one_is_full_sampling_for_any_mechanism():
    assert Poisson(1.0).draw(9, 0, source()) is None
    for event in (EVENT, dp.ZCDpEvent(0.2), NOTHING):
        assert Poisson(1.0).amplify(event, 3, AR, 9) == Full().amplify(event, 3, AR, 9)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.0000001, float("nan")])
def test_a_rate_outside_0_1_is_refused(rate):
    with pytest.raises(InvalidInputError, match="sampling rate"):
        Poisson(rate)


def test_fixed_size_sampling_draws_that_many_distinct_rows():
    rows = FixedSize(7).draw(20, 0, source())
    assert np.unique(rows).size == rows.size == 7
    assert FixedSize(7).expected(20) == 7.0
    inner = dp.SampledWithoutReplacementDpEvent(20, 7, EVENT)
    assert FixedSize(7).amplify(EVENT, 3, RO, 20) == dp.SelfComposedDpEvent(inner, 3)
    assert FixedSize(20).amplify(NOTHING, 3, RO, 20) == NOTHING


def test_a_batch_may_hold_one_record():
    assert FixedSize(1).draw(20, 0, source()).size == 1


def test_fixed_size_sampling_is_for_replace_one():
    with pytest.raises(UnsupportedError, match="replace-one"):
        FixedSize(7).amplify(EVENT, 1, AR, 20)


def test_a_batch_larger_than_the_population_is_refused():
    FixedSize(20).amplify(EVENT, 1, RO, 20)
    with pytest.raises(InvalidInputError, match="batch size <= the 20 records"):
        FixedSize(21).amplify(EVENT, 1, RO, 20)


@pytest.mark.parametrize("size", [0, -4])
def test_an_empty_batch_size_is_refused(size):
    with pytest.raises(InvalidInputError, match="batch size >= 1"):
        FixedSize(size)


@pytest.mark.parametrize(
    ("sampling", "mechanism", "relation"),
    [
        (sampling, mechanism, relation)
        for sampling, relation in ((Poisson(0.3), AR), (Poisson(0.3), RO), (FixedSize(7), RO))
        for mechanism in (NormGamma(1.7), GumbelTopK(1.7), LaplacePeeling(1.7))
    ],
)
def test_a_sampling_without_a_proof_for_the_mechanism_is_refused(sampling, mechanism, relation):
    with pytest.raises(UnsupportedError, match="No amplification is proven"):
        sampling.amplify(mechanism.event(relation), 2, relation, 20)


def test_laplace_noise_is_amplified_by_poisson_and_not_by_fixed_size_sampling():
    assert isinstance(Poisson(0.3).amplify(Laplace(1.7).event(AR), 1, AR, 20), dp.PoissonSampledDpEvent)
    with pytest.raises(UnsupportedError):
        FixedSize(7).amplify(Laplace(1.7).event(RO), 1, RO, 20)


@pytest.mark.parametrize("mechanism", [Gaussian(1.7), SymmetricGaussian(1.7)])
def test_gaussian_noise_is_amplified_by_both(mechanism):
    Poisson(0.3).amplify(mechanism.event(AR), 2, AR, 20)
    FixedSize(7).amplify(mechanism.event(RO), 2, RO, 20)


@pytest.mark.parametrize(("population", "parts"), [(10, 3), (12, 4), (3, 5), (7, 1)])
def test_disjoint_chunks_hold_each_record_exactly_once(population, parts):
    sampling = Disjoint(parts)
    chunks = [sampling.draw(population, t, source()) for t in range(parts)]
    np.testing.assert_array_equal(np.concatenate(chunks), np.arange(population))
    assert max(c.size for c in chunks) - min(c.size for c in chunks) <= 1
    assert sampling.expected(population) == pytest.approx(population / parts)


@pytest.mark.parametrize("relation", [AR, RO])
@pytest.mark.parametrize("mechanism", [Gaussian(1.7), NormGamma(1.7), GumbelTopK(1.7)])
def test_disjoint_chunks_cost_one_release(relation, mechanism):
    event = mechanism.event(relation)
    assert Disjoint(4).amplify(event, 4, relation, 20) == event
    assert Disjoint(4).amplify(event, 1, relation, 20) == event


def test_more_releases_than_chunks_are_refused():
    with pytest.raises(UnsupportedError, match="at most 4 releases"):
        Disjoint(4).amplify(EVENT, 5, AR, 20)


@pytest.mark.parametrize("parts", [0, -2])
def test_no_chunks_are_refused(parts):
    with pytest.raises(InvalidInputError, match="parts >= 1"):
        Disjoint(parts)
