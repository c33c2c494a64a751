"""Report-noisy-max with Laplace noise: its law and its price."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event as dp
from scipy import stats

from sordino.kernel import LaplaceMax, NoiseSource, Norm, Relation, SparseVector
from sordino.kernel.events import PureDpEvent


@pytest.mark.statistical
def test_the_better_of_two_scores_wins_as_often_as_laplace_noise_says():
    noise, count = NoiseSource.seeded_not_private(3), 6000
    mechanism, scores = LaplaceMax(2.5), np.array([0.3, 1.5])
    wins = sum(int(mechanism.privatise(scores, 0.4, noise)[0]) for _ in range(count))

    def p_value(scale):
        gap = 1.2 / scale  # the difference of two Laplace variables
        return stats.binomtest(wins, count, 1 - 0.5 * math.exp(-gap) * (1 + gap / 2)).pvalue

    assert p_value(2.5 * 0.4) > 1e-4
    assert p_value(2.5 * 0.4 * 1.5) < 1e-4
    assert p_value(2.5 * 0.4 / 1.5) < 1e-4


@pytest.mark.parametrize("relation", list(Relation), ids=str)
def test_a_selection_is_two_over_the_multiplier_dp(relation):
    assert LaplaceMax(8.0).event(relation) == PureDpEvent(0.25)
    assert LaplaceMax(0.0).event(relation) == dp.NonPrivateDpEvent()
    assert LaplaceMax.norms == (Norm.LINF,)


def test_the_price_at_multiplier_one_is_that_of_a_two_dp_mechanism():
    assert LaplaceMax().rho() == 2.0


def test_without_noise_the_largest_score_wins_also_in_a_sparse_vector():
    noise = NoiseSource.seeded_not_private(0)
    sparse = SparseVector(np.array([7, 2]), np.array([-1.0, 3.0]), 9)
    assert LaplaceMax(0.0).privatise(sparse, 0.7, noise).tolist() == [2]
    assert LaplaceMax(0.0).privatise(np.array([0.1, 0.5, 0.2]), 0.7, noise).tolist() == [1]
