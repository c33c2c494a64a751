"""Wishart noise, published as pure DP, tells two neighbours apart."""

import math

import numpy as np
import pytest
from scipy import stats

from sordino.accounting import certify
from sordino.kernel import NoiseSource, Relation
from sordino.literature.pca import WishartNotPrivate, distinguishing_probability


@pytest.mark.parametrize(("epsilon", "expected"), [(0.1, 0.0327839), (1.0, 0.2834687)])
def test_vector_b6_the_wishart_event_has_this_probability(epsilon, expected):
    assert distinguishing_probability(epsilon) == pytest.approx(expected, rel=1e-5)


@pytest.mark.statistical
def test_wishart_noise_tells_two_neighbours_apart():
    """Under A + x x^T the answer dominates it always; under A not, with probability 1 - exp(-eps/3)."""
    epsilon, draws = 1.0, 3000
    noise, axis = NoiseSource.seeded_not_private(0), np.eye(5)[0]
    mechanism = WishartNotPrivate().at(1.5 / epsilon)
    seen = {0.0: 0, 1.0: 0}
    for extra in seen:
        for _ in range(draws):
            answer = mechanism.privatise(extra * np.outer(axis, axis), 1.0, noise)
            seen[extra] += np.linalg.eigvalsh(answer - np.outer(axis, axis))[0] < 0
    assert seen[1.0] == 0
    expected = distinguishing_probability(epsilon)
    assert stats.binomtest(seen[0.0], draws, expected).pvalue > 1e-4
    for wrong in (2 / 3 * expected, 3 / 2 * expected):
        assert stats.binomtest(seen[0.0], draws, wrong).pvalue < 1e-4
    assert math.isinf(certify(mechanism.event(Relation.ADD_REMOVE), 1e-3, Relation.ADD_REMOVE).epsilon)
    assert math.isinf(mechanism.rho())
