"""Claim 15: a mechanism without noise and without an event certified .1 for an exact Gram matrix."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from dp_accounting import dp_event as dp

from sordino import PCA
from sordino.errors import PlanError
from sordino.kernel import Full, Gaussian, Norm, Plan, Release
from sordino.kernel.mechanism import Additive
from sordino.problems.covariance import GramMatrix


@dataclass(frozen=True)
class ExactSnapshot(Additive):
    norms: ClassVar[tuple[Norm, ...]] = (Norm.L2,)

    def event(self, relation):
        return dp.NoOpDpEvent()

    def privatise(self, value, sensitivity, noise):
        return value


def test_no_plan_holds_a_release_that_is_free():
    noisy = Release(GramMatrix(0.7), Gaussian(50.0), Full())
    exact = Release(GramMatrix(0.7), ExactSnapshot(0.0), Full())
    with pytest.raises(PlanError, match="nothing is released for free"):
        Plan({"noisy": noisy, "gram": exact}, "add-remove", 5)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_variances_of_the_printed_dp_vrpca_are_noisy_too():
    """They were computed from the exact snapshot, which nothing had paid for: the same in every fit."""
    x = np.random.default_rng(0).normal(size=(30, 4)) / 4
    settings = {"solver": "vrpca", "noise": "paper", "center": False, "epsilon": 0.7, "random_state": 0}
    first, second = (PCA(2, **settings).fit(x).noisy_eigenvalues_ for _ in range(2))
    assert not np.array_equal(first, second)
