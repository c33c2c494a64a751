"""Local Gaussian PCA: n times the noise variance of one message, and the certificate of one message."""

import math
import warnings

import numpy as np
import pytest

from sordino import PCA
from sordino.accounting import gaussian_epsilon
from sordino.errors import InvalidInputError, NotPrivateWarning
from sordino.kernel import NoiseSource
from sordino.literature.pca import SumOfLocalNoise

ROWS = np.random.default_rng(0).normal(size=(4000, 4)) * [0.6, 0.1, 0.1, 0.1]


def fitted(**options):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        settings = {"solver": "local-gauss", "noise": "paper", "center": False, "data_norm": 1.0}
        model = PCA(1, epsilon=1.0, delta=1e-5, **settings, **options).fit(ROWS)
    assert any(issubclass(w.category, NotPrivateWarning) for w in said)
    return model


@pytest.mark.parametrize(("relation", "contributions"), [("add-remove", 1.0), ("replace-one", math.sqrt(2))])
def test_it_certifies_one_message_of_one_record(relation, contributions):
    model = fitted(relation=relation)
    noise = math.sqrt(2 * math.log(1.25 / 1e-5))
    assert model.privacy_.epsilon == pytest.approx(gaussian_epsilon(contributions / noise, 1e-5), rel=1e-3)
    assert "local Gaussian" in model.privacy_.paper_claim.formula


def test_the_sum_carries_the_noise_of_every_record():
    noise = NoiseSource.seeded_not_private(0)
    mechanism = SumOfLocalNoise(population=400).at(1.7)
    drawn = np.array([mechanism.privatise(np.zeros((3, 3)), 2.0, noise)[0, 0] for _ in range(2000)])
    expected = 1.7 * 2.0 * math.sqrt(400)
    assert np.std(drawn) == pytest.approx(expected, rel=0.08)


def test_it_runs_as_a_benchmark_only():
    with pytest.raises(InvalidInputError, match="local-gauss"):
        PCA(1, epsilon=1.0, solver="local-gauss", center=False, data_norm=1.0).fit(ROWS)
