"""Nothing that could be known before the budget was booked fails after it."""

import numpy as np
import pytest
from tests.runs.helpers import CountingLedger

import sordino

X = np.random.default_rng(0).normal(size=(60, 3))


def test_a_mean_with_secure_noise_learns_its_centre():
    assert np.isfinite(sordino.mean(X[:, 0], secure_noise=True))


def test_exact_noise_for_groups_is_drawn():
    model = sordino.LinearRegression(secure_noise=True, solver="gd")
    model.fit(X, X[:, 0], groups=np.arange(60) // 2)
    assert all("lattice" in release.mechanism for release in model.privacy_.releases)


def test_bounds_that_no_arithmetic_survives_are_refused_before_the_budget_is_booked():
    spy = CountingLedger()
    with pytest.raises(ValueError, match="Expected data_norm in"):
        sordino.LinearRegression(data_norm=5e-324, ledger=spy, dataset_id="ward").fit(X, X[:, 0])
    assert spy.booked == 0
