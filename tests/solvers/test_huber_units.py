"""Huber's loss beside the unit of the targets: a threshold beyond all errors costs no noise."""

import numpy as np
import pytest

from sordino import LinearRegression
from sordino.kernel import Relation
from sordino.problems.losses import Huber
from sordino.problems.problem import Problem
from sordino.testing import seeded_noise_not_private

THRESHOLD = 1.0


@pytest.mark.parametrize("unit", [1.0, 1e-3])
def test_a_threshold_beyond_all_errors_is_no_noise(unit):
    public = np.random.default_rng(3)
    X = public.normal(size=(9000, 3))
    y = unit * np.clip(X[:, 0] + public.standard_t(3, size=len(X)), -20.0, 20.0)
    with seeded_noise_not_private(8):
        model = LinearRegression(1.0, data_norm=10.0, target_bound=20.0 * unit, loss="huber").fit(X, y)
    assert model.huber_threshold == THRESHOLD
    assert model.score(X, y) > 0.2  # least squares have .27
    assert abs(model.coef_[0] / unit - 1.0) < 5.0 * model.coef_noise_[0] / unit < 0.6


@pytest.mark.parametrize(("bound", "largest"), [(5.0, 1.0), (0.02, 0.04)])
def test_no_gradient_is_clipped_beyond_what_bounds_allow(bound, largest):
    facts = {"relation": Relation.ADD_REMOVE, "epsilon": 1.0, "delta": 1e-6}
    problem = Problem(Huber(THRESHOLD), 500, 3, **facts, data_norm=2.0, target_bound=bound)
    assert problem.gradient_bound == pytest.approx(2.0 * largest)
